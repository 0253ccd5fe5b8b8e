"""Figures of an OD-test: the ranking, its breakdown by source and architecture, and accuracy by D_v and D_t."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from roadworthy.protocols.od_test.words import ALL, FAR, NEAR, ROLE, OdTest, better, cost_text, metric_words
from roadworthy.report.drawing import (
    ABSENT,
    COLOURS,
    GRID,
    INK,
    MUTED,
    SYMBOLS,
    Chart,
    Charts,
    View,
    axis_title,
    layout_of,
    names_axis,
    plain,
    text,
    tick_format,
    view,
    whiskers,
)
from roadworthy.report.facts import Cell
from roadworthy.report.words import bounds, number, plural, short_number

LOW_TO_HIGH = ((0.0, "#ea7320"), (0.5, "#fffdf3"), (1.0, "#5f9fd0"))
"""Orange is below guessing, blue above; light enough for dark text at both ends."""
NAME_LENGTH = 22
LEAST_ROWS = 4
"""A heat map of fewer rows is as high as one of these, so that the title beside it has room."""


def charts(found: OdTest) -> Charts:
    """Every chart by the id of its element."""
    made: Charts = {"ranking-chart": [ranking(found, metric) for metric in found.metrics]}
    if found.has_near:
        made["near-far"] = [near_and_far(found, metric) for metric in found.metrics]
    for place, source in enumerate(found.sources):
        made[f"source-{place}"] = _breakdown(found, partial(_at_source, found, source.name))
    for place, name in enumerate(found.architecture_names):
        made[f"architecture-{place}"] = _breakdown(found, partial(found.of_architecture, name))
    for place, name in enumerate(heat_sources(found)):
        made[f"heat-{place}"] = [heat_map(found, method.label, name) for method in found.methods]
    made["cost-chart"] = [costs(found)]
    return made


def heat_sources(found: OdTest) -> list[str]:
    """What has a heat map: each source, and before them all together where there are several."""
    names = [source.name for source in found.sources]
    return [ALL, *names] if len(names) > 1 else names


def ranking(found: OdTest, metric: str) -> View:
    """Figure 3: the mean of each monitor with its interval, best accuracy on top; hollow marks have no rank."""
    labels = [method.label for method in found.methods]
    cells = [found.mean(label, metric) for label in labels]
    filled = [method.rank is not None for method in found.methods]
    trace = _marks(labels, cells, metric, COLOURS[0], SYMBOLS[0], 0.0, "mean of all sources", filled)
    return _view(found, metric, [trace], cells, height=26)


def near_and_far(found: OdTest, metric: str) -> View:
    """The mean over outliers near to their source and far from it."""
    labels = [method.label for method in found.methods]
    traces, shown = [], []
    for place, ood in enumerate((NEAR, FAR)):
        cells = [found.mean(label, metric, ood=ood) for label in labels]
        traces.append(_marks(labels, cells, metric, COLOURS[place], SYMBOLS[place], 0.36 * place - 0.18, ood))
        shown += cells
    return _view(found, metric, traces, shown, height=30)


def _at_source(found: OdTest, source: str, label: str, metric: str) -> Cell:
    return found.mean(label, metric, source)


def _breakdown(found: OdTest, cell_of: Callable[[str, str], Cell]) -> Chart:
    """Figures 4 and 6: every monitor at one source, in the order of the ranking; a view per metric."""
    views = []
    for metric in found.metrics:
        labels = [method.label for method in found.methods]
        cells = [cell_of(label, metric) for label in labels]
        everywhere = [cell for (_, ood, _, name), cell in found.means.items() if name == metric and ood == ALL]
        trace = _marks(labels, cells, metric, COLOURS[0], SYMBOLS[0], 0.0, "")
        views.append(_view(found, metric, [trace], everywhere, height=21))
    return views


def _marks(
    labels: Sequence[str],
    cells: Sequence[Cell],
    metric: str,
    colour: str,
    symbol: str,
    offset: float,
    what: str,
    filled: Sequence[bool] | None = None,
) -> dict[str, Any]:
    marks = filled or [True] * len(labels)
    return {
        "type": "scatter",
        "mode": "markers",
        "y": [row + offset for row in range(len(labels))],
        "x": [plain(cell.value) for cell in cells],
        "error_x": whiskers(cells) | {"width": 3, "color": colour},
        "marker": {"color": [colour if fill else "#ffffff" for fill in marks], "size": 8, "symbol": symbol}
        | {"line": {"color": colour, "width": 1.5}},
        "hovertext": [_hover(label, metric, cell, what) for label, cell in zip(labels, cells, strict=True)],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
    }


def _hover(label: str, metric: str, cell: Cell, what: str) -> str:
    lines = [f"<b>{text(label)}</b>{', ' + text(what) if what else ''}"]
    if cell.missing:
        return f"{lines[0]}<br>no value: {text(cell.reason)}"
    lines.append(f"{metric_words(metric).label} {number(metric, cell.value)}")
    lines.append(f"95 % interval {bounds(metric, cell.lo, cell.hi)}, {plural(cell.n, 'triple')}")
    return "<br>".join([*lines, *([text(cell.reason)] if cell.reason else [])])


def _view(found: OdTest, metric: str, traces: list[dict[str, Any]], cells: Sequence[Cell], height: int) -> View:
    """Marks over rows of monitors; the dashed line is guessing."""
    labels = [method.label for method in found.methods]
    guess = found.guesses.get(metric)
    ends = [end for cell in cells for end in (cell.value, cell.lo, cell.hi) if not math.isnan(end)] or [0.0, 1.0]
    ends += [guess] if guess is not None else []
    pad = 0.04 * (max(ends) - min(ends)) or 0.04
    layout = layout_of(height=62 + height * len(labels), margin={"l": 8, "r": 16, "t": 8, "b": 46})
    layout["xaxis"] = {
        "range": [round(min(ends) - pad, 6), round(max(ends) + pad, 6)],
        "tickformat": tick_format(metric),
        "nticks": 6,
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        "title": axis_title(f"{metric_words(metric).label} ({better(metric)} is better)"),
    }
    grid = {"showgrid": True, "gridcolor": "#f1f3f6"}
    layout["yaxis"] = names_axis(labels, NAME_LENGTH, range=[len(labels) - 0.5, -0.5], **grid)
    if guess is not None:
        across = {"xref": "x", "x0": guess, "x1": guess, "yref": "paper", "y0": 0, "y1": 1}
        layout["shapes"] = [{"type": "line", **across, "line": {"color": MUTED, "width": 1, "dash": "dash"}}]
    return view(metric_words(metric).label, traces, layout)


def heat_map(found: OdTest, label: str, source: str) -> View:
    """The accuracy of a monitor by the set it was calibrated with (rows) and the one it was tested with (columns)."""
    sets = found.sets if source == ALL else _met(found, source)
    cells = [[found.triple(source, label, one, other) for other in sets] for one in sets]
    same = [[one == other for other in sets] for one in sets]
    hover = [
        [_heat_hover(source, one, other, cell) for other, cell in zip(sets, row, strict=True)]
        for one, row in zip(sets, cells, strict=True)
    ]
    shared = {"type": "heatmap", "xgap": 2, "ygap": 2, "texttemplate": "%{text}", "showscale": False}
    shared |= {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>", "hoverongaps": False}
    shared |= {"textfont": {"color": INK, "size": 11}}
    chance = found.guesses[ROLE]
    reach = max(chance, 1 - chance)
    values = {
        **shared,
        "z": [[plain(cell.value) for cell in row] for row in cells],
        "text": [["" if cell.missing else short_number(ROLE, cell.value) for cell in row] for row in cells],
        "zmin": chance - reach,
        "zmax": chance + reach,
        "colorscale": LOW_TO_HIGH,
    }
    absent = {
        **shared,
        "z": [[0 if cell.missing else None for cell in row] for row in cells],
        "text": [
            ["" if equal else "n/a" if cell.missing else "" for cell, equal in zip(*pair, strict=True)]
            for pair in zip(cells, same, strict=True)
        ],
        "colorscale": [[0, ABSENT], [1, ABSENT]],
    }
    layout = layout_of(height=150 + 32 * max(len(sets), LEAST_ROWS), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout["xaxis"] = names_axis(sets, 16, side="top", tickangle=-90, title=axis_title("tested with (D_t)"))
    layout["yaxis"] = names_axis(sets, 16, autorange="reversed", title=axis_title("calibrated with (D_v)"))
    return view(text(label), [values, absent], layout)


def _met(found: OdTest, source: str) -> tuple[str, ...]:
    met = {name for where, _, *pair in found.triples if where == source for name in pair}
    return tuple(name for name in found.sets if name in met)


def _heat_hover(source: str, one: str, other: str, cell: Cell) -> str:
    if one == other:
        return "the same set is never both"
    lines = [f"<b>{text(one)} → {text(other)}</b>"]
    if cell.missing:
        return f"{lines[0]}<br>no value: {text(cell.reason)}"
    lines.append(f"accuracy {number(ROLE, cell.value)}")
    lines.append(f"mean of {plural(cell.n, 'source')}" if source == ALL else f"95 % {bounds(ROLE, cell.lo, cell.hi)}")
    return "<br>".join(lines)


def _decades(values: Sequence[float]) -> list[float]:
    """Whole powers of ten around some values, as exponents, with room for a number behind the longest bar.

    >>> _decades([0.2, 150.0])
    [-1, 3.2]
    """
    known = [value for value in values if value > 0] or [1.0]
    return [math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 0.2]


def costs(found: OdTest) -> View:
    """Milliseconds per image of each monitor on its own, the network's pass included."""
    rows = found.monitor_costs
    values = [1000 * row.seconds_per_image for row in rows]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(rows))),
        "x": [plain(value) for value in values],
        "marker": {"color": COLOURS[0]},
        "text": [cost_text(value) for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": [
            f"<b>{text(row.label)}</b><br>{cost_text(v)} ms per image" for row, v in zip(rows, values, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    layout = layout_of(height=62 + 22 * len(rows), margin={"l": 8, "r": 46, "t": 8, "b": 46})
    layout["xaxis"] = {
        "type": "log",
        "range": _decades(values),
        "gridcolor": GRID,
        "fixedrange": True,
        "dtick": 1,
        "title": axis_title("milliseconds per image, logarithmic (lower is better)"),
    }
    layout["yaxis"] = names_axis([row.label for row in rows], NAME_LENGTH, range=[len(rows) - 0.5, -0.5])
    return view("cost", [trace], layout)
