"""Figures of an OD-test: the ranking, its breakdown by source and architecture, and accuracy by D_v and D_t."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.names import ACCURACY, ALL, FAR, NEAR
from roadworthy.protocols.od_test.words import better, cost_text, metric_words
from roadworthy.report import drawing
from roadworthy.report.drawing import VALUE_AXIS, Chart, Charts, View, look, plain, text
from roadworthy.report.words import bounds, number, plural
from roadworthy.statistics import Estimate

LOW_TO_HIGH = ((0.0, "#ea7320"), (0.5, "#fffdf3"), (1.0, "#5f9fd0"))
"""Orange is below guessing, blue above; light enough for dark text at both ends."""
NAME_LENGTH = 36
"""Room for the name of a monitor and a mark behind it."""
LEAST_ROWS = 4
"""A heat map of fewer rows is as high as one of these, so that the title beside it has room."""


def charts(test: OdTestFacts) -> Charts:
    """Every chart by the id of its element."""
    made: Charts = {"ranking-chart": [ranking(test, metric) for metric in test.metrics]}
    if test.has_near:
        made["near-far"] = [near_and_far(test, metric) for metric in test.metrics]
    for index, source in enumerate(test.sources):
        made[f"source-{index}"] = _breakdown(test, partial(test.mean, source=source.name))
    for index, name in enumerate(test.architecture_names):
        of_architecture = partial(test.of_architecture, name)
        made[f"architecture-{index}"] = _breakdown(test, of_architecture, test.labels_of(name))
    for index, name in enumerate(heat_sources(test)):
        made[f"heat-{index}"] = [heat_map(test, label, name) for label in test.labels]
    made["cost-chart"] = [costs(test)]
    return made


def heat_sources(test: OdTestFacts) -> list[str]:
    """What has a heat map: each source, and before them all together where there are several."""
    names = [source.name for source in test.sources]
    return [ALL, *names] if len(names) > 1 else names


def ranking(test: OdTestFacts, metric: str) -> View:
    """Figure 3: the mean of each monitor with its interval, best accuracy on top; hollow marks have no rank."""
    hollow = [method.label for method in test.methods if method.rank is None]
    means = [test.mean(label, metric) for label in test.labels]
    return _view(test, metric, {"mean of all sources": means}, height=26, hollow=hollow)


def near_and_far(test: OdTestFacts, metric: str) -> View:
    """The mean over outliers near to their source and far from it."""
    series = {side: [test.mean(label, metric, distance=side) for label in test.labels] for side in (NEAR, FAR)}
    return _view(test, metric, series, height=30)


def _breakdown(
    test: OdTestFacts, estimate_of: Callable[[str, str], Estimate], labels: Sequence[str] | None = None
) -> Chart:
    """Figures 4 and 6: every monitor at one source, in the order of the ranking; a view per metric, of one scale."""
    views, labels = [], test.labels if labels is None else labels
    for metric in test.metrics:
        everywhere = [cell for (_, distance, _, name), cell in test.means.items() if (name, distance) == (metric, ALL)]
        cells = [estimate_of(label, metric) for label in labels]
        views.append(_view(test, metric, {"": cells}, height=21, scale=everywhere, labels=labels))
    return views


def _hover(label: str, metric: str, cell: Estimate, what: str) -> str:
    name = f"<b>{text(label)}</b>{', ' + text(what) if what else ''}"
    if cell.missing:
        return f"{name}<br>no value: {text(cell.reason)}"
    value = f"{metric_words(metric).label} {number(metric, cell.value)}"
    interval = f"95 % interval {bounds(metric, cell.lo, cell.hi)}, {plural(cell.n, 'triple')}"
    return "<br>".join(filter(None, [name, value, interval, text(cell.reason)]))


def _view(
    test: OdTestFacts,
    metric: str,
    series: Mapping[str, Sequence[Estimate]],
    height: int,
    scale: Sequence[Estimate] = (),
    hollow: Collection[str] = (),
    labels: Sequence[str] | None = None,
) -> View:
    """Marks over rows of monitors, all of them by default, a series below the other; the dashed line is guessing.

    `scale` are the cells that the axis has room for, those shown by default; `hollow` marks belong to these monitors.
    """
    labels, traces = test.labels if labels is None else labels, []
    for index, (what, cells) in enumerate(series.items()):
        (colour, symbol), offset = look(index), 0.36 * index - 0.18 * (len(series) - 1)
        shown = drawing.marks(
            cells,
            [row + offset for row in range(len(labels))],
            [_hover(label, metric, cell, what) for label, cell in zip(labels, cells, strict=True)],
            colour,
            **{"size": 8, "symbol": symbol, "line": {"color": colour, "width": 1.5}},
        )
        shown["marker"]["color"] = ["#ffffff" if label in hollow else colour for label in labels]
        traces.append(shown)
    guess = test.guesses.get(metric)
    room = scale or [cell for cells in series.values() for cell in cells]
    ends = drawing.ends_of(room) + ([guess] if guess is not None else [])
    layout = drawing.layout_of(height=62 + height * len(labels), margin={"l": 8, "r": 16, "t": 8, "b": 46})
    layout["xaxis"] = {
        "range": drawing.padded(min(ends), max(ends), 0.04),
        "tickformat": drawing.tick_format(metric),
        "nticks": 6,
        **VALUE_AXIS,
        "title": drawing.axis_title(f"{metric_words(metric).label} ({better(metric)} is better)"),
    }
    down = [len(labels) - 0.5, -0.5]
    names = [test.marked(label) for label in labels]
    layout["yaxis"] = drawing.names_axis(names, NAME_LENGTH, range=down, showgrid=True, gridcolor="#f1f3f6")
    if guess is not None:
        layout["shapes"] = [drawing.line_at("x", guess)]
    return drawing.view(metric_words(metric).label, traces, layout)


def heat_map(test: OdTestFacts, label: str, source: str) -> View:
    """The accuracy of a monitor by the set it was calibrated with (rows) and the one it was tested with (columns)."""
    met = {name for where, _, *pair in test.triples if source in (ALL, where) for name in pair}
    sets = [name for name in test.sets if name in met]

    def square(one: str, other: str) -> drawing.Square:
        if one == other:
            return drawing.Square(None, "", "the same set is never both", grey=True)
        cell = test.triple(source, label, one, other)
        return drawing.square(ACCURACY, cell, _heat_hover(source, one, other, cell))

    chance = test.guesses[ACCURACY]
    reach = max(chance, 1 - chance)
    squares = [[square(one, other) for other in sets] for one in sets]
    traces = drawing.heat_map(squares, chance - reach, chance + reach, LOW_TO_HIGH, size=11)
    layout = drawing.layout_of(height=150 + 32 * max(len(sets), LEAST_ROWS), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    tested, calibrated = map(drawing.axis_title, ("tested with (D_t)", "calibrated with (D_v)"))
    layout["xaxis"] = drawing.names_axis(sets, 16, side="top", tickangle=-90, title=tested)
    layout["yaxis"] = drawing.names_axis(sets, 16, autorange="reversed", title=calibrated)
    return drawing.view(text(label), traces, layout)


def _heat_hover(source: str, one: str, other: str, cell: Estimate) -> str:
    name = f"<b>{text(one)} → {text(other)}</b>"
    if cell.missing:
        return f"{name}<br>no value: {text(cell.reason)}"
    rest = f"mean of {plural(cell.n, 'source')}" if source == ALL else f"95 % {bounds(ACCURACY, cell.lo, cell.hi)}"
    return "<br>".join([name, f"accuracy {number(ACCURACY, cell.value)}", rest])


def decades(values: Sequence[float]) -> list[float]:
    """Whole powers of ten around some values, as exponents, with room for a number behind the longest bar.

    >>> decades([0.2, 150.0])
    [-1, 3.2]
    """
    known = [value for value in values if value > 0] or [1.0]
    return [math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))) + 0.2]


def costs(test: OdTestFacts) -> View:
    """Milliseconds per image of each monitor on its own, the network's pass included."""
    rows = test.monitor_costs
    values = [1000 * row.seconds_per_image for row in rows]
    trace = drawing.trace(
        "bar",
        [f"<b>{text(row.label)}</b><br>{cost_text(v)} ms per image" for row, v in zip(rows, values, strict=True)],
        orientation="h",
        y=list(range(len(rows))),
        x=[plain(value) for value in values],
        marker={"color": look(0)[0]},
        text=[cost_text(value) for value in values],
        textposition="outside",
        cliponaxis=False,
    )
    layout = drawing.layout_of(height=62 + 22 * len(rows), margin={"l": 8, "r": 46, "t": 8, "b": 46})
    layout["xaxis"] = {
        "type": "log",
        "range": decades(values),
        "gridcolor": drawing.GRID,
        "fixedrange": True,
        "dtick": 1,
        "title": drawing.axis_title("milliseconds per image, logarithmic (lower is better)"),
    }
    layout["yaxis"] = drawing.names_axis([row.label for row in rows], range=[len(rows) - 0.5, -0.5])
    return drawing.view("cost", [trace], layout)
