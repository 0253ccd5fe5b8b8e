"""Figures of classification under shifts: a view per metric, or per condition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from roadworthy.metrics import higher_is_better
from roadworthy.protocols.classification.facts import ROLE, ClassificationFacts
from roadworthy.protocols.classification.words import accuracy_threshold
from roadworthy.report import drawing
from roadworthy.report.facts import CLEAN, Condition
from roadworthy.report.words import plural, words_of
from roadworthy.statistics import Estimate

WORSE_IS_DARKER = ((0.0, "#fffdf3"), (0.25, "#fdeab5"), (0.5, "#fbc873"), (0.75, "#f6a04a"), (1.0, "#ea7320"))
"""Light enough for dark text at its darkest."""
MORE_IS_DARKER = ((0.0, "#f4f8fc"), (1.0, "#7fb2d9"))
SHARE_COLOURS = ((0.0, "#f4f8fc"), (0.1, "#cfe1f0"), (0.5, "#7fb2d9"), (1.0, "#0b4a82"))
TEXT_CLASSES = 15
"""Up to this many classes the confusion matrix shows its counts."""
NAMED_ROWS, NAMED_COLUMNS = 60, 25
"""How many classes its axes have room to name."""


def charts(facts: ClassificationFacts) -> drawing.Charts:
    """Every chart by the id of its element."""
    charts_by_id: drawing.Charts = {}
    for index, model in enumerate(facts.models):
        if facts.shifts:
            charts_by_id[f"heat-{index}"] = [heat_map(facts, model, metric) for metric in facts.metrics]
        for order, condition in enumerate(facts.shown(model)):
            charts_by_id[f"reliability-{index}-{order}"] = [reliability_diagram(facts, model, condition)]
        if facts.shown(model):
            charts_by_id[f"confusion-{index}"] = [confusion_matrix(facts, model, c) for c in facts.shown(model)]
    if facts.shifts:
        charts_by_id["curve-all"] = [average_curve(facts, metric) for metric in facts.metrics]
        for index, shift in enumerate(facts.shown_shifts):
            charts_by_id[f"curve-{index}"] = [curve(facts, shift, metric) for metric in facts.metrics]
        charts_by_id["drop-ranking"] = [drop_ranking(facts, metric) for metric in facts.drops]
    return charts_by_id


def heat_map(facts: ClassificationFacts, model: str, metric: str) -> drawing.View:
    """A metric by shift and level, undisturbed first; a cell without a value is grey and says why."""

    known = words_of(metric)

    def square(condition: Condition) -> drawing.Square:
        cell = facts.cell(model, condition, metric)
        return drawing.square(known, cell, f"<b>{drawing.text(condition)}</b><br>{drawing.value_text(known, cell)}")

    rows = [[CLEAN, *(Condition(shift, level) for level in facts.levels)] for shift in facts.shown_shifts]
    traces = drawing.heat_map([[square(c) for c in row] for row in rows], *_colour_range(facts, metric))
    layout = drawing.layout_of(height=70 + 34 * len(rows), margin={"l": 8, "r": 8, "t": 34, "b": 8})
    title = {"text": "level", "font": {"size": 11, "color": drawing.MUTED}, "standoff": 4}
    layout["xaxis"] = drawing.names_axis(["clean", *facts.levels], side="top", title=title)
    layout["yaxis"] = drawing.names_axis(facts.shown_shifts, 16, autorange="reversed")
    return drawing.view(words_of(metric).label, traces, layout)


def curve(facts: ClassificationFacts, shift: str, metric: str) -> drawing.View:
    """A metric over the levels of one shift, undisturbed at level 0, with bounds; one line per model.

    A dashed line marks the threshold of accuracy where all models share one.
    """
    levels = facts.levels_of[shift]
    lines = []
    for model in facts.models:
        points: list[tuple[float, Estimate]] = [(0, facts.cell(model, CLEAN, metric))]
        points += [(level, facts.cell(model, Condition(shift, level), metric)) for level in levels]
        lines.append(points)
    shown = _curve_view(facts, metric, lines)
    thresholds = {accuracy_threshold(facts, model, shift).value for model in facts.models}
    if metric == ROLE and len(thresholds) == 1:
        shown["layout"]["shapes"] = [drawing.line_at("y", drawing.plain(thresholds.pop()))]
    return shown


def average_curve(facts: ClassificationFacts, metric: str) -> drawing.View:
    """A metric over levels, averaged over all shifts."""
    lines = []
    for model in facts.models:
        points: list[tuple[float, Estimate]] = [(0, facts.cell(model, CLEAN, metric))]
        levels = [level for level in facts.levels if (model, level, metric) in facts.by_level]
        points += [(level, facts.by_level[model, level, metric]) for level in levels]
        lines.append(sorted(points, key=lambda point: point[0]))
    return _curve_view(facts, metric, lines)


def _curve_view(
    facts: ClassificationFacts, metric: str, lines: Sequence[Sequence[tuple[float, Estimate]]]
) -> drawing.View:
    traces, known = [], words_of(metric)
    dodge = 0.07
    for model_index, points in enumerate(lines):
        offset = dodge * (model_index - (len(lines) - 1) / 2)
        colour, symbol = drawing.look(model_index)
        name = facts.named(facts.models[model_index])
        shown = drawing.trace(
            "scatter",
            [drawing.hover_text(name, f"level {level}", known, cell) for level, cell in points],
            mode="lines+markers",
            x=[level + offset for level, _ in points],
            y=[drawing.plain(cell.value) for _, cell in points],
            error_y=drawing.whiskers([cell for _, cell in points]) | {"width": 2},
            line={"color": colour, "width": 2},
            marker={"color": colour, "size": 6, "symbol": symbol},
        )
        traces.append(shown | {"showlegend": False})
    layout = drawing.layout_of(height=200, margin={"l": 44, "r": 8, "t": 8, "b": 30})
    layout["xaxis"] = {
        "range": [-0.4, max(facts.levels) + 0.4],
        "tickmode": "array",
        "tickvals": [0, *facts.levels],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }
    ticks = {"tickformat": drawing.tick_format(metric), "nticks": 5}
    layout["yaxis"] = {"range": _value_range(facts, metric), **ticks, **drawing.VALUE_AXIS}
    return drawing.view(words_of(metric).label, traces, layout)


def drop_ranking(facts: ClassificationFacts, metric: str) -> drawing.View:
    """Shifts by how much worse a metric is than undisturbed, averaged over levels, with bounds; hardest at the top."""
    nothing = Estimate(math.nan)
    shown_shifts = facts.shown_shifts
    rows = {s: [facts.by_shift.get((model, s, metric), nothing) for model in facts.models] for s in shown_shifts}
    order = sorted(rows, key=lambda shift: max((c.value for c in rows[shift] if not c.missing), default=math.inf))
    traces = []
    for model_index, model in enumerate(facts.models):
        cells = {shift: rows[shift][model_index] for shift in order}
        shown = drawing.trace(
            "bar",
            [drawing.hover_text(facts.named(model), shift, metric, cell) for shift, cell in cells.items()],
            orientation="h",
            y=list(range(len(order))),
            x=[drawing.plain(cell.value) for cell in cells.values()],
            error_x=drawing.whiskers([*cells.values()]) | {"width": 3, "color": drawing.INK},
            marker={"color": drawing.look(model_index)[0]},
        )
        traces.append(shown | {"showlegend": False})
    bar = 12 * len(facts.models) + 16
    layout = drawing.layout_of(height=60 + bar * len(order), margin={"l": 8, "r": 12, "t": 8, "b": 40})
    layout |= {"bargap": 0.28, "bargroupgap": 0.08}
    layout["xaxis"] = {
        "tickformat": drawing.tick_format(metric),
        "gridcolor": drawing.GRID,
        "zerolinecolor": drawing.MUTED,
        "fixedrange": True,
        "title": {"text": words_of(metric).label, "font": {"size": 11, "color": drawing.MUTED}},
    }
    layout["yaxis"] = drawing.names_axis(order, 16)
    return drawing.view(words_of(metric).label, list(reversed(traces)), layout)


def reliability_diagram(facts: ClassificationFacts, model: str, condition: Condition) -> drawing.View:
    """Accuracy by bin of confidence against the diagonal of perfect calibration, and the number of answers per bin."""
    bins = facts.reliability[model, condition]
    centres = [(b.start + b.end) / 2 for b in bins]
    hover = [
        f"confidence {b.start:.1f} to {b.end:.1f}: {plural(b.count, 'answer')}"
        + (f"<br>mean confidence {b.confidence:.3f}<br>accuracy {b.accuracy:.3f}" if b.count else "")
        for b in bins
    ]
    shared = {"hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False}
    widths = [0.92 * (b.end - b.start) for b in bins]
    accuracy = {
        **shared,
        "type": "bar",
        "x": centres,
        "y": [drawing.plain(b.accuracy) for b in bins],
        "width": widths,
        "marker": {"color": "#7fb2d9"},
    }
    confidence = {
        **shared,
        "type": "scatter",
        "mode": "markers",
        "x": [drawing.plain(b.confidence) for b in bins],
        "y": [drawing.plain(b.accuracy) for b in bins],
        "marker": {"color": "#0b4a82", "size": 7},
        "cliponaxis": False,
    }
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"color": drawing.MUTED, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    counts = {
        **shared,
        "type": "bar",
        "x": centres,
        "y": [b.count for b in bins],
        "width": widths,
        "yaxis": "y2",
        "marker": {"color": "#b9c3ce"},
    }
    layout = drawing.layout_of(height=270, margin={"l": 46, "r": 8, "t": 8, "b": 40})
    axis = {"fixedrange": True, "zeroline": False, "gridcolor": drawing.GRID}
    layout["xaxis"] = {**axis, "range": [0, 1], "anchor": "y2", "nticks": 6, "title": drawing.axis_title("confidence")}
    layout["yaxis"] = {
        **axis,
        "range": [0, 1.02],
        "domain": [0.34, 1],
        "nticks": 6,
        "title": drawing.axis_title("accuracy"),
    }
    layout["yaxis2"] = {**axis, "domain": [0, 0.24], "nticks": 3, "title": drawing.axis_title("count")}
    return drawing.view(drawing.text(condition), [accuracy, diagonal, confidence, counts], layout)


def confusion_matrix(facts: ClassificationFacts, model: str, condition: Condition) -> drawing.View:
    """Which class was taken for which: colour is the share of the true class, the counts are given too."""
    classes = facts.matrix_classes(model, condition)
    size = len(classes)
    answers = {(entry.label, entry.prediction): entry.count for entry in facts.confusion[model, condition]}
    totals: Counter[int] = Counter()
    for (label, _), count in answers.items():
        totals[label] += count
    counts = [[answers.get((label, prediction), 0) for prediction in classes] for label in classes]
    shares = [
        [round(100 * count / totals[label], 1) if count else 0 for count in row]
        for label, row in zip(classes, counts, strict=True)
    ]
    distinct = _distinct([drawing.text(name) for name in facts.class_names])
    categories = [distinct[label] for label in classes]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": categories,
        "y": categories,
        "z": shares,
        "customdata": counts,
        "zmin": 0,
        "zmax": 100,
        "colorscale": SHARE_COLOURS,
        "showscale": False,
        "hovertemplate": "true: %{y}<br>predicted: %{x}<br>%{customdata} answers, %{z} %<extra></extra>",
    }
    if size <= TEXT_CLASSES:
        labels = [[str(count) if count else "" for count in row] for row in counts]
        trace |= {"text": labels, "texttemplate": "%{text}", "xgap": 1, "ygap": 1}
    layout = drawing.layout_of(height=max(300, min(720, 120 + 36 * size)), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    axis = {
        "type": "category",
        "zeroline": False,
        "showgrid": False,
        "automargin": True,
        "tickmode": "array",
        "tickfont": {"size": 11 if size <= TEXT_CLASSES else 9},
        "fixedrange": size <= TEXT_CLASSES,
    }
    across = down = [drawing.short_text(facts.class_names[label]) for label in classes]
    if size > TEXT_CLASSES:
        across = [str(label) for label in classes]
        down = [f"{name} {label}" for label, name in zip(classes, down, strict=True)]
    layout["xaxis"] = {
        **axis,
        **_class_ticks(across, NAMED_COLUMNS),
        "tickangle": -90 if size > 5 else 0,
        "title": drawing.axis_title("predicted"),
    }
    layout["yaxis"] = {
        **axis,
        **_class_ticks(down, NAMED_ROWS),
        "autorange": "reversed",
        "title": drawing.axis_title("true class"),
    }
    if size > TEXT_CLASSES:
        layout["dragmode"] = "zoom"
    return drawing.view(drawing.text(condition), [trace], layout)


def _class_ticks(labels: Sequence[str], room: int) -> dict[str, Any]:
    """Ticks at every class, or at every second, third, ... where there is no room for all."""
    ticks = range(0, len(labels), math.ceil(len(labels) / room))
    return {"tickvals": list(ticks), "ticktext": [labels[index] for index in ticks]}


def _distinct(labels: Sequence[str]) -> list[str]:
    """Labels that plotly cannot merge: those that occur twice carry their index."""
    occurrences = Counter(labels)
    return [f"{label} ({index})" if occurrences[label] > 1 else label for index, label in enumerate(labels)]


def _colour_range(facts: ClassificationFacts, metric: str) -> tuple[float, float, Iterable[tuple[float, str]]]:
    """The same colours for every model. Where less is worse the scale is turned, so that darker is always worse."""
    extent = facts.extent(metric)
    values = [extent.low, extent.high] if extent else [0.0]
    better = higher_is_better(metric)
    if better:
        turned = [(1 - share, colour) for share, colour in reversed(WORSE_IS_DARKER)]
        return round(min([*values, 0.8]), 6), max([*values, 1.0]), turned
    colours = MORE_IS_DARKER if better is None else WORSE_IS_DARKER
    return min([*values, 0.0]), round(max([*values, 0.05]), 6), colours


def _value_range(facts: ClassificationFacts, metric: str) -> list[float]:
    """One range for all curves of a metric, so that they compare."""
    extent = facts.extent(metric)
    ends = [extent.lowest_end, extent.highest_end] if extent else [0.0, 1.0]
    return drawing.padded(min([*ends, 0.0]) if higher_is_better(metric) is False else min(ends), max(ends))
