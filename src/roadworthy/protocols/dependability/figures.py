"""Figures of dependability: coverage of pairs, neurons, confidence loss, scenarios and the curve over rho."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from roadworthy.metrics import higher_is_better
from roadworthy.protocols.dependability.facts import DATA_WORDS, TEST, Dependability
from roadworthy.report import drawing
from roadworthy.report.drawing import GRID, MUTED, Chart, Square, View, axis_title, layout_of, look, plain, text, view
from roadworthy.report.facts import Facts
from roadworthy.report.reading import Row, number_of
from roadworthy.report.words import number, words_of
from roadworthy.statistics import Estimate

ENOUGH = ((0.0, "#c8402f"), (0.999, "#f6d9a8"), (1.0, "#dcebe1"))
"""From no data at all to as much as is needed."""
WORSE = ((0.0, "#c8402f"), (0.5, "#f3c98b"), (1.0, "#eef3f0"))
LEAST_SPAN = 0.2
"""The colours of pairs reach over at least 20 points of a share: a difference of one point is no alarm."""
BINS = 20
PALE = 0.45
"""The opacity of what is of the test data, beside the training data."""
Groups = Sequence[tuple[str, list[str]]]
"""Conditions with their values."""
EMPTY = Square(None, "", "")


def charts(dependability: Dependability, facts: Facts) -> dict[str, Chart]:
    """Every chart by the id of its element."""
    made: dict[str, Chart] = {}
    if dependability.of_pairs:
        for data in dependability.counted_data:
            if dependability.on("cells", data):
                made["cover-pairs" if data == TEST else f"cover-pairs-{data}"] = [coverage_map(dependability, data)]
    if dependability.activations and dependability.rows["neurons"]:
        made["neurons"] = [neuron_bars(dependability, facts)]
    if dependability.rows["patterns"]:
        made["patterns"] = [
            dots(dependability, facts, "neuron_pattern", dependability.scopes("neuron_pattern"), _after_layer)
        ]
    for model_index, model in enumerate(dependability.models):
        if dependability.of("loss", model):
            made[f"loss-{model_index}"] = [loss_histogram(dependability, model, model_index)]
            made[f"wins-{model_index}"] = [wins(dependability, model, model_index)]
        if dependability.conditions and dependability.of_pairs and dependability.of("scenarios", model):
            made[f"pairs-{model_index}"] = [pair_map(dependability, model, metric) for metric in dependability.metrics]
    if dependability.metrics and dependability.rows["scenarios"]:
        made["scenarios"] = [dots(dependability, facts, m, dependability.scopes(m), str) for m in dependability.metrics]
    if dependability.rows["rho"]:
        made["rho-precision"] = [rho_curve(dependability, facts, "precision", "precision (higher is better)")]
        made["rho-covering"] = [rho_curve(dependability, facts, "covering", "covering (lower is better)")]
    return made


def _after_layer(scope: str) -> str:
    layer, _, scenario = scope.partition(", ")
    return scenario or f"all images, {layer}"


def _axis(title: str, **other: Any) -> dict[str, Any]:
    """An axis of numbers with grid lines."""
    return {**other, "gridcolor": GRID, "fixedrange": True, "title": axis_title(title)}


def _triangle(
    dependability: Dependability,
    square: Callable[[str, str], Square],
    colours: Sequence[tuple[float, str]],
    low: float,
    high: float,
    *,
    diagonal: bool,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A triangle of all values of all conditions against each other: traces and layout."""
    groups = list(dependability.conditions.items())
    down, across = (groups, groups) if diagonal else (groups[1:], groups[:-1])
    order = {value: index for index, value in enumerate(_values(groups))}
    rows = [[square(a, b) if order[a] >= order[b] else EMPTY for b in _values(across)] for a in _values(down)]
    layout = layout_of(height=130 + 24 * len(rows), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout["xaxis"] = _ticks(across) | {"tickangle": -90}
    layout["yaxis"] = _ticks(down) | {"autorange": "reversed"}
    layout["shapes"] = lines = []
    for axis, other, members in (("x", "y", across), ("y", "x", down)):
        end = -0.5
        for _, own in members[:-1]:
            end += len(own)
            ends = {f"{axis}0": end, f"{axis}1": end, f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
            lines.append({"type": "line", **ends, "line": {"color": MUTED, "width": 1}})
    return drawing.heat_map(rows, low, high, colours, gap=1, size=9)[:1], layout


def _values(groups: Groups) -> list[str]:
    return [f"{name}={value}" for name, values in groups for value in values]


def _ticks(groups: Groups) -> dict[str, Any]:
    return drawing.names_axis([value for _, values in groups for value in values], 14, tickfont={"size": 10})


def coverage_map(dependability: Dependability, data: str) -> View:
    """How much training or test data every pair of values has, against what it needs."""
    cells: dict[tuple[str, str], Row] = {}
    for row in dependability.on("cells", data):
        pair = f"{row['condition_1']}={row['value_1']}", f"{row['condition_2']}={row['value_2']}"
        cells[pair] = cells[pair[::-1]] = row

    def square(a: str, b: str) -> Square:
        row, words = cells.get((a, b)), f"{text(a)}, {text(b)}"
        if row is None:
            return EMPTY
        if row["status"] == "impossible":
            return Square(None, "–", f"{words}: cannot occur")
        share = min(row["count"] / row["minimum"], 1.0) if row["minimum"] else 1.0
        words += f"<br>{row['count']} of {row['minimum']} needed, weight {row['weight']:g}"
        return Square(share, str(row["count"]), words)

    return view("Coverage", *_triangle(dependability, square, ENOUGH, 0, 1, diagonal=False))


def pair_map(dependability: Dependability, model: str, metric: str) -> View:
    """A metric for every value (on the diagonal) and every pair of values of conditions."""
    rows = {row["scenario"]: row for row in dependability.of("scenarios", model) if row["metric"] == metric}
    low, high = _ends(dependability, metric)

    def square(a: str, b: str) -> Square:
        row = rows.get(a) if a == b else rows.get(f"{b}, {a}") or rows.get(f"{a}, {b}")
        if row is None:
            return EMPTY
        value, lo, hi = (number_of(row[name]) for name in ("value", "lo", "hi"))
        label = f"{100 * value:.0f}" if words_of(metric).percent else f"{value:.2f}"
        bounds = drawing.value_text(metric, Estimate(value, lo, hi, reason=row["reason"] or ""))
        words = f"{text(row['scenario'])}<br>{bounds}<br>{row['n']} images, {row['groups']} objects"
        return Square(plain(value), "" if math.isnan(value) else label, words)

    falling = higher_is_better(metric) is False
    scale = tuple((1 - share, colour) for share, colour in reversed(WORSE)) if falling else WORSE
    squares = _triangle(dependability, square, scale, low, high, diagonal=True)
    return view(words_of(metric).label, *squares)


def _ends(dependability: Dependability, metric: str) -> tuple[float, float]:
    """The ends of the colours of a metric: the same for all models, and so far apart that small differences stay pale.

    The better end is the best value; the other is the worst, of a share at least `LEAST_SPAN` away.
    """
    values = [number_of(row["value"]) for row in dependability.rows["scenarios"] if row["metric"] == metric]
    known = [value for value in values if not math.isnan(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    span = LEAST_SPAN if words_of(metric).percent else 0.0
    return (low, max(high, low + span)) if higher_is_better(metric) is False else (min(low, high - span), high)


def dots(
    dependability: Dependability, facts: Facts, metric: str, scopes: Sequence[str], name: Callable[[str], str]
) -> View:
    """A metric per scope with its bounds, a mark per model."""
    traces = []
    dodge = 0.5 / max(len(dependability.models), 2)
    for model_index, model in enumerate(dependability.models):
        cells = {scope: dependability.cell(model, metric, scope) for scope in scopes}
        rows = [row + dodge * (model_index - (len(dependability.models) - 1) / 2) for row in range(len(scopes))]
        hover = [drawing.hover_text(facts.named(model), name(scope), metric, cell) for scope, cell in cells.items()]
        colour, symbol = look(model_index)
        traces.append(drawing.marks([*cells.values()], rows, hover, colour, size=7, symbol=symbol))
    height = 70 + (13 * len(dependability.models) + 10) * len(scopes)
    layout = layout_of(height, margin={"l": 8, "r": 14, "t": 8, "b": 40})
    better = {True: " (higher is better)", False: " (lower is better)", None: ""}[higher_is_better(metric)]
    layout["xaxis"] = {
        "tickformat": drawing.tick_format(metric),
        **drawing.VALUE_AXIS,
        "title": axis_title(f"{words_of(metric).label}{better}"),
    }
    down = {"range": [len(scopes) - 0.5, -0.5], "tickfont": {"size": 11}}
    layout["yaxis"] = drawing.names_axis([name(scope) for scope in scopes], 26, **down)
    return view(words_of(metric).label, traces, layout)


def neuron_bars(dependability: Dependability, facts: Facts) -> View:
    """Neuron k-activation by k, a bar per model, layer and data; paler on the test data where both are there."""
    traces, several = [], len(dependability.counted_data) > 1
    for model_index, model in enumerate(dependability.models):
        for layer, data in dict.fromkeys((row["layer"], row["data"]) for row in dependability.of("neurons", model)):
            own = dependability.of("neurons", model)
            rows = [row for row in own if (row["layer"], row["data"]) == (layer, data)]
            where = f", {DATA_WORDS[data]}" if several else ""
            hover = [
                f"<b>{text(facts.named(model))}</b>, layer {text(layer)}{where}<br>{row['neurons']} neurons, "
                f"{row['never_on']} never on, {row['always_on']} always on"
                for row in rows
            ]
            colour = {"color": look(model_index)[0]}
            shown = drawing.trace(
                "bar",
                hover,
                name=text(f"{facts.named(model)}, {layer}{where}"),
                x=[f"k = {row['k']}" for row in rows],
                y=[plain(number_of(row["value"])) for row in rows],
                marker=colour | ({"opacity": PALE} if several and data == TEST else {}),
                text=[number("neuron_activation_2", number_of(row["value"])) for row in rows],
                textposition="outside",
                textfont={"size": 10},
                textangle=0,
            )
            traces.append(shown | {"cliponaxis": False})
    layout = layout_of(height=270, margin={"l": 52, "r": 8, "t": 8, "b": 28}) | {"barmode": "group"}
    layout["xaxis"] = {"fixedrange": True}
    layout["yaxis"] = _axis("share of cells occupied (higher is better)", range=[0, 1.1], tickformat=".0%")
    return view("Neuron k-activation", traces, layout)


def loss_histogram(dependability: Dependability, model: str, model_index: int) -> View:
    """How the worst change of the true class's probability is distributed over images."""
    counts = [0] * (2 * BINS)
    for row in dependability.of("loss", model):
        counts[min(int((row["change"] + 1) * BINS), 2 * BINS - 1)] += 1
    last = max([index for index, count in enumerate(counts) if count] + [BINS]) + 1
    middles = [-1 + (index + 0.5) / BINS for index in range(last)]
    hover = [
        f"{middle - 0.5 / BINS:+.2f} to {middle + 0.5 / BINS:+.2f}: {count} images"
        for middle, count in zip(middles, counts, strict=False)
    ]
    colour, widths = look(model_index)[0], [0.94 / BINS] * last
    trace = drawing.trace("bar", hover, x=middles, y=counts[:last], width=widths, marker={"color": colour})
    layout = layout_of(height=220, margin={"l": 46, "r": 8, "t": 8, "b": 42})
    layout["xaxis"] = {
        "range": [-1, max(0.05, -1 + last / BINS)],
        "fixedrange": True,
        "zeroline": False,
        "title": axis_title("worst change of the true class's probability (higher is better)"),
    }
    layout["yaxis"] = _axis("images")
    return view("Confidence loss", [trace], layout)


def wins(dependability: Dependability, model: str, model_index: int) -> View:
    """How many images each transformer hurts most."""
    rows = sorted((row for row in dependability.of("transformers", model) if row["n"]), key=lambda row: row["wins"])
    hover = [
        f"{text(row['transformer'])}: worst for {row['wins']} of {row['n']} images<br>mean change alone "
        f"{number_of(row['mean_change']):+.3f}<br>accuracy {number('accuracy', number_of(row['accuracy']))}"
        for row in rows
    ]
    trace = drawing.trace(
        "bar",
        hover,
        orientation="h",
        x=[row["wins"] for row in rows],
        y=[drawing.short_text(row["transformer"], 26) for row in rows],
        marker={"color": look(model_index)[0]},
        text=[str(row["wins"]) for row in rows],
        textposition="auto",
    )
    layout = layout_of(height=76 + 26 * len(rows), margin={"l": 8, "r": 12, "t": 8, "b": 42})
    layout["xaxis"] = _axis("images it hurts most")
    layout["yaxis"] = {"fixedrange": True, "automargin": True}
    return view("Transformers", [trace], layout)


def _chance_line(name: str, rows: Sequence[Row], colour: str) -> dict[str, Any]:
    """The chance level of the precision over rho, dotted."""
    levels = [number_of(row["chance"]) for row in rows]
    at = [f"rho {row['rho']:.2f}: {number('accuracy', level)}" for row, level in zip(rows, levels, strict=True)]
    hover = [f"<b>{text(name)}</b>, by chance, {words}" for words in at]
    line = {"color": colour, "width": 1.5, "dash": "dot"}
    return drawing.trace("scatter", hover, mode="lines", x=[r["rho"] for r in rows], y=[*map(plain, levels)], line=line)


def rho_curve(dependability: Dependability, facts: Facts, metric: str, title: str) -> View:
    """Precision or covering over the threshold rho: the mean over images, a line per model."""
    traces = []
    for model_index, model in enumerate(dependability.models):
        rows = dependability.of("rho", model)
        hover = [
            f"<b>{text(facts.named(model))}</b>, rho {row['rho']:.2f}<br>mean "
            f"{number('interpretation_precision', number_of(row[metric]))} of {row[f'{metric}_images']} images"
            for row in rows
        ]
        colour, symbol = look(model_index)
        shown = drawing.trace(
            "scatter",
            hover,
            mode="lines+markers",
            x=[row["rho"] for row in rows],
            y=[plain(number_of(row[metric])) for row in rows],
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 6, "symbol": symbol},
        )
        traces.append(shown | {"cliponaxis": False})
        if metric == "precision" and any(plain(number_of(row["chance"])) is not None for row in rows):
            traces.append(_chance_line(facts.named(model), rows, colour))
    relative = any(row["relative"] for row in dependability.rows["rho"])
    layout = layout_of(height=260, margin={"l": 52, "r": 12, "t": 8, "b": 42})
    of_what = "rho, a share of the undisturbed probability" if relative else "rho: a cell is hot below this probability"
    layout["xaxis"] = _axis(of_what, range=[-0.02, 1.02])
    layout["yaxis"] = _axis(title, range=[-0.02, 1.04], tickformat=".0%")
    return view(title, traces, layout)
