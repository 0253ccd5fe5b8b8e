"""Figures of dependability: coverage of pairs, neurons, confidence loss, scenarios and the curve over rho."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from roadworthy.metrics import higher_is_better
from roadworthy.report.dependability import Dependability
from roadworthy.report.drawing import (
    COLOURS,
    GRID,
    INK,
    MUTED,
    SYMBOLS,
    Chart,
    View,
    axis_title,
    layout_of,
    names_axis,
    plain,
    short_text,
    text,
    tick_format,
    value_text,
    view,
    whiskers,
)
from roadworthy.report.facts import Cell, Facts
from roadworthy.report.reading import Row, number_of
from roadworthy.report.words import number, words_of

ENOUGH = ((0.0, "#c8402f"), (0.999, "#f6d9a8"), (1.0, "#dcebe1"))
"""From no data at all to as much as is needed."""
WORSE = ((0.0, "#c8402f"), (0.5, "#f3c98b"), (1.0, "#eef3f0"))
BINS = 20


def charts(found: Dependability, facts: Facts) -> dict[str, Chart]:
    """Every chart by the id of its element."""
    made: dict[str, Chart] = {}
    if found.of_pairs:
        made["cover-pairs"] = [coverage_map(found)]
    if found.activations and found.rows["neurons"]:
        made["neurons"] = [neuron_bars(found, facts)]
    if found.rows["patterns"]:
        made["patterns"] = [dots(found, facts, "neuron_pattern", found.scopes("neuron_pattern"), _after_layer)]
    for place, model in enumerate(found.models):
        if found.of("loss", model):
            made[f"loss-{place}"] = [loss_histogram(found, model, place)]
            made[f"wins-{place}"] = [wins(found, model, place)]
        if found.conditions and found.of_pairs and found.of("scenarios", model):
            made[f"pairs-{place}"] = [pair_map(found, model, metric) for metric in found.metrics]
    if found.metrics and found.rows["scenarios"]:
        made["scenarios"] = [dots(found, facts, m, found.scopes(m), str) for m in found.metrics]
    if found.rows["rho"]:
        made["rho-precision"] = [rho_curve(found, facts, "precision", "Interpretation precision (higher is better)")]
        made["rho-covering"] = [rho_curve(found, facts, "covering", "Occlusion covering (lower is better)")]
    return made


def _after_layer(scope: str) -> str:
    layer, _, scenario = scope.partition(", ")
    return scenario or f"all images, {layer}"


def _square(
    found: Dependability,
    z: Callable[[str, str], float | None],
    label: Callable[[str, str], str],
    hover: Callable[[str, str], str],
    colours: Sequence[tuple[float, str]],
    low: float,
    high: float,
    *,
    diagonal: bool,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A triangle of all values of all conditions against each other: traces and layout."""
    groups = list(found.conditions.items())
    down, across = (groups, groups) if diagonal else (groups[1:], groups[:-1])
    order = {f"{name}={value}": place for place, (name, value) in enumerate(_values(groups))}
    rows = [
        [(a, b) if order[a] >= order[b] else None for b in (f"{n}={v}" for n, v in _values(across))]
        for a in (f"{n}={v}" for n, v in _values(down))
    ]

    def each(of: Callable[[str, str], Any], default: Any) -> list[list[Any]]:
        return [[default if pair is None else of(*pair) for pair in row] for row in rows]

    trace = {
        "type": "heatmap",
        "z": each(z, None),
        "text": each(label, ""),
        "texttemplate": "%{text}",
        "textfont": {"color": INK, "size": 9},
        "hovertext": each(hover, ""),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
        "zmin": low,
        "zmax": high,
        "colorscale": [list(stop) for stop in colours],
        "showscale": False,
    }
    layout = layout_of(height=130 + 24 * len(rows), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout["xaxis"] = _ticks(across) | {"tickangle": -90}
    layout["yaxis"] = _ticks(down) | {"autorange": "reversed"}
    lines = []
    for axis, other, members in (("x", "y", across), ("y", "x", down)):
        end = -0.5
        for _, values in members[:-1]:
            end += len(values)
            place = {f"{axis}0": end, f"{axis}1": end, f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
            lines.append({"type": "line", **place, "line": {"color": MUTED, "width": 1}})
    layout["shapes"] = lines
    return [trace], layout


def _values(groups: Sequence[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    return [(name, value) for name, values in groups for value in values]


def _ticks(groups: Sequence[tuple[str, list[str]]]) -> dict[str, Any]:
    names = _values(groups)
    return names_axis([value for _, value in names], 14, tickfont={"size": 10})


def coverage_map(found: Dependability) -> View:
    """How much data every pair of values has, against what it needs."""
    cells: dict[tuple[str, str], Row] = {}
    for row in found.rows["cells"]:
        pair = f"{row['condition_1']}={row['value_1']}", f"{row['condition_2']}={row['value_2']}"
        cells[pair] = cells[pair[::-1]] = row

    def share(a: str, b: str) -> float | None:
        row = cells.get((a, b))
        if row is None or row["status"] == "impossible":
            return None
        return min(row["count"] / row["minimum"], 1.0) if row["minimum"] else 1.0

    def label(a: str, b: str) -> str:
        row = cells.get((a, b))
        return "" if row is None else "–" if row["status"] == "impossible" else str(row["count"])

    def hover(a: str, b: str) -> str:
        row = cells.get((a, b))
        if row is None:
            return ""
        if row["status"] == "impossible":
            return f"{text(a)}, {text(b)}: cannot occur"
        return f"{text(a)}, {text(b)}<br>{row['count']} of {row['minimum']} needed, weight {row['weight']:g}"

    traces, layout = _square(found, share, label, hover, ENOUGH, 0, 1, diagonal=False)
    return view("Coverage", traces, layout)


def pair_map(found: Dependability, model: str, metric: str) -> View:
    """A metric for every value (on the diagonal) and every pair of values of conditions."""
    rows = {row["scenario"]: row for row in found.of("scenarios", model) if row["metric"] == metric}
    values = [number_of(row["value"]) for row in rows.values()]
    known = [value for value in values if not math.isnan(value)] or [0.0, 1.0]
    higher = higher_is_better(metric)

    def row_of(a: str, b: str) -> Row | None:
        return rows.get(a) if a == b else rows.get(f"{b}, {a}") or rows.get(f"{a}, {b}")

    def value(a: str, b: str) -> float | None:
        row = row_of(a, b)
        return None if row is None else plain(number_of(row["value"]))

    def label(a: str, b: str) -> str:
        row = row_of(a, b)
        if row is None or math.isnan(number_of(row["value"])):
            return ""
        return f"{100 * row['value']:.0f}" if words_of(metric).percent else f"{row['value']:.2f}"

    def hover(a: str, b: str) -> str:
        row = row_of(a, b)
        if row is None:
            return ""
        cell = Cell(number_of(row["value"]), number_of(row["lo"]), number_of(row["hi"]), reason=row["reason"] or "")
        return f"{text(row['scenario'])}<br>{value_text(metric, cell)}<br>{row['n']} images, {row['groups']} objects"

    scale = WORSE if higher is not False else tuple((1 - place, colour) for place, colour in reversed(WORSE))
    traces, layout = _square(found, value, label, hover, scale, min(known), max(known), diagonal=True)
    return view(words_of(metric).label, traces, layout)


def dots(found: Dependability, facts: Facts, metric: str, scopes: Sequence[str], name: Callable[[str], str]) -> View:
    """A metric per scope with its bounds, a mark per model."""
    traces = []
    dodge = 0.5 / max(len(found.models), 2)
    for place, model in enumerate(found.models):
        cells = [found.cell(model, metric, scope) for scope in scopes]
        colour = COLOURS[place % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [plain(cell.value) for cell in cells],
                "y": [row + dodge * (place - (len(found.models) - 1) / 2) for row in range(len(scopes))],
                "error_x": whiskers(cells) | {"width": 3, "color": colour},
                "marker": {"color": colour, "size": 7, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                "hovertext": [
                    f"<b>{text(facts.named(model))}</b>, {text(name(scope))}<br>{value_text(metric, cell)}"
                    for scope, cell in zip(scopes, cells, strict=True)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    layout = layout_of(
        height=70 + (13 * len(found.models) + 10) * len(scopes), margin={"l": 8, "r": 14, "t": 8, "b": 40}
    )
    better = {True: " (higher is better)", False: " (lower is better)", None: ""}[higher_is_better(metric)]
    layout["xaxis"] = {
        "tickformat": tick_format(metric),
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        "title": axis_title(f"{words_of(metric).label}{better}"),
    }
    down = {"range": [len(scopes) - 0.5, -0.5], "tickfont": {"size": 11}}
    layout["yaxis"] = names_axis([name(scope) for scope in scopes], 26, **down)
    return view(words_of(metric).label, traces, layout)


def neuron_bars(found: Dependability, facts: Facts) -> View:
    """Neuron k-activation by k, a bar per model and layer."""
    traces = []
    for place, model in enumerate(found.models):
        for layer in dict.fromkeys(row["layer"] for row in found.of("neurons", model)):
            rows = [row for row in found.of("neurons", model) if row["layer"] == layer]
            traces.append(
                {
                    "type": "bar",
                    "name": text(f"{facts.named(model)}, {layer}"),
                    "x": [f"k = {row['k']}" for row in rows],
                    "y": [plain(number_of(row["value"])) for row in rows],
                    "marker": {"color": COLOURS[place % len(COLOURS)]},
                    "text": [number("neuron_activation_2", number_of(row["value"])) for row in rows],
                    "textposition": "outside",
                    "textfont": {"size": 10},
                    "textangle": 0,
                    "cliponaxis": False,
                    "hovertext": [
                        f"<b>{text(facts.named(model))}</b>, layer {text(layer)}<br>{row['neurons']} neurons, "
                        f"{row['never_on']} never on, {row['always_on']} always on"
                        for row in rows
                    ],
                    "hovertemplate": "%{hovertext}<extra></extra>",
                }
            )
    layout = layout_of(height=270, margin={"l": 52, "r": 8, "t": 8, "b": 28}) | {"barmode": "group"}
    layout["xaxis"] = {"fixedrange": True}
    title = axis_title("share of cells occupied (higher is better)")
    layout["yaxis"] = {"range": [0, 1.1], "tickformat": ".0%", "gridcolor": GRID, "fixedrange": True, "title": title}
    return view("Neuron k-activation", traces, layout)


def loss_histogram(found: Dependability, model: str, place: int) -> View:
    """How the worst change of the true class's probability is distributed over images."""
    changes = [row["change"] for row in found.of("loss", model)]
    counts = [0] * (2 * BINS)
    for change in changes:
        counts[min(int((change + 1) * BINS), 2 * BINS - 1)] += 1
    last = max((index for index, count in enumerate(counts) if count), default=BINS) + 1
    last = max(last, BINS + 1)
    middles = [-1 + (index + 0.5) / BINS for index in range(last)]
    trace = {
        "type": "bar",
        "x": middles,
        "y": counts[:last],
        "width": [0.94 / BINS] * last,
        "marker": {"color": COLOURS[place % len(COLOURS)]},
        "hovertext": [
            f"{middle - 0.5 / BINS:+.2f} to {middle + 0.5 / BINS:+.2f}: {count} images"
            for middle, count in zip(middles, counts, strict=False)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    layout = layout_of(height=220, margin={"l": 46, "r": 8, "t": 8, "b": 42})
    layout["xaxis"] = {
        "range": [-1, max(0.05, -1 + last / BINS)],
        "fixedrange": True,
        "zeroline": False,
        "title": axis_title("worst change of the true class's probability (0 is best)"),
    }
    layout["yaxis"] = {"gridcolor": GRID, "fixedrange": True, "title": axis_title("images")}
    return view("Confidence loss", [trace], layout)


def wins(found: Dependability, model: str, place: int) -> View:
    """How many images each transformer hurts most."""
    rows = sorted((row for row in found.of("transformers", model) if row["n"]), key=lambda row: row["wins"])
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [row["wins"] for row in rows],
        "y": [short_text(row["transformer"], 26) for row in rows],
        "marker": {"color": COLOURS[place % len(COLOURS)]},
        "text": [str(row["wins"]) for row in rows],
        "textposition": "auto",
        "hovertext": [
            f"{text(row['transformer'])}: worst for {row['wins']} of {row['n']} images<br>mean change alone "
            f"{number_of(row['mean_change']):+.3f}<br>accuracy {number('accuracy', number_of(row['accuracy']))}"
            for row in rows
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    layout = layout_of(height=76 + 26 * len(rows), margin={"l": 8, "r": 12, "t": 8, "b": 42})
    layout["xaxis"] = {"gridcolor": GRID, "fixedrange": True, "title": axis_title("images it hurts most")}
    layout["yaxis"] = {"fixedrange": True, "automargin": True}
    return view("Transformers", [trace], layout)


def rho_curve(found: Dependability, facts: Facts, metric: str, title: str) -> View:
    """Precision or covering over the threshold rho: the mean over images, a line per model."""
    traces = []
    for place, model in enumerate(found.models):
        rows = found.of("rho", model)
        colour = COLOURS[place % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [row["rho"] for row in rows],
                "y": [plain(number_of(row[metric])) for row in rows],
                "line": {"color": colour, "width": 2},
                "marker": {"color": colour, "size": 6, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                "hovertext": [
                    f"<b>{text(facts.named(model))}</b>, rho {row['rho']:.2f}<br>mean "
                    f"{number('interpretation_precision', number_of(row[metric]))} of "
                    f"{row[f'{metric}_images']} images"
                    for row in rows
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    relative = any(row["relative"] for row in found.rows["rho"])
    layout = layout_of(height=260, margin={"l": 52, "r": 12, "t": 8, "b": 42})
    of_what = "rho, a share of the undisturbed probability" if relative else "rho: a cell is hot below this probability"
    layout["xaxis"] = {"range": [-0.02, 1.02], "gridcolor": GRID, "fixedrange": True, "title": axis_title(of_what)}
    layout["yaxis"] = {
        "range": [-0.02, 1.04],
        "tickformat": ".0%",
        "gridcolor": GRID,
        "fixedrange": True,
        "title": axis_title(title),
    }
    return view(title, traces, layout)
