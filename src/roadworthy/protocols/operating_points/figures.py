"""Figures of operating points: what becomes of every image, silent failures by shift and level, and the curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roadworthy.protocols.operating_points.facts import OUTLIER, RIGHT, SHARE, WRONG, OperatingFacts
from roadworthy.protocols.operating_points.metrics import METRICS
from roadworthy.report import drawing
from roadworthy.report.facts import CLEAN, Condition, Facts
from roadworthy.report.words import number, words_of
from roadworthy.statistics import Estimate

FATES = (
    ("accepted and wrong", "#c0392b"),
    ("rejected and wrong", "#e8b4ac"),
    ("rejected and right", "#f3d58a"),
    ("accepted and right", "#b9d7c2"),
)
"""What becomes of an image, the silent failure first, each with its colour."""
WORSE_IS_DARKER = ((0.0, "#fffdf3"), (0.25, "#fdeab5"), (0.5, "#fbc873"), (0.75, "#f6a04a"), (1.0, "#ea7320"))
LINES = (
    ("undisturbed", WRONG, "silent failures, undisturbed", "#c0392b", "solid"),
    ("mean of shifts", WRONG, "silent failures, mean of shifts", "#c0392b", "dash"),
    ("undisturbed", RIGHT, "right but rejected, undisturbed", "#b8860b", "solid"),
    ("mean of shifts", RIGHT, "right but rejected, mean of shifts", "#b8860b", "dash"),
    ("worst outliers", OUTLIER, "outliers accepted, worst set", "#7a4fd0", "solid"),
)
"""The curves: condition, rate, what it is called, its colour and dash."""


def charts(facts: OperatingFacts, named: Facts) -> drawing.Charts:
    """Every chart by the id of its element."""
    charts_by_id: drawing.Charts = {}
    for index, model in enumerate(facts.models):
        levels = facts.levels[::-1] or (0,)
        charts_by_id[f"fates-{index}"] = [fate_chart(facts, model, level) for level in levels]
        if facts.shifts:
            charts_by_id[f"heat-{index}"] = [heat_map(facts, model, metric) for metric in facts.metrics]
        if any(key[0] == model for key in facts.curves):
            views = {"all rates": LINES, "silent failures alone": [line for line in LINES if line[1] == WRONG]}
            charts_by_id[f"curve-{index}"] = [curve(facts, model, name, lines) for name, lines in views.items()]
    if facts.sets:
        charts_by_id["sets"] = [set_chart(facts, named)]
    return charts_by_id


def fate_chart(facts: OperatingFacts, model: str, level: float) -> drawing.View:
    """What becomes of the images undisturbed and under every shift at one level: stacked shares of all images."""
    rows = [CLEAN, *(c for c in facts.conditions if c.level == level and c != CLEAN)]
    shares = [_fates(facts, model, condition) for condition in rows]
    traces = [
        drawing.trace(
            "bar",
            [
                f"<b>{drawing.text(condition)}</b><br>{name}: {number(WRONG_METRIC, own[index])}"
                for condition, own in zip(rows, shares, strict=True)
            ],
            orientation="h",
            y=list(range(len(rows))),
            x=[drawing.plain(own[index]) for own in shares],
            marker={"color": colour},
        )
        for index, (name, colour) in enumerate(FATES)
    ]
    layout = drawing.layout_of(height=50 + 26 * len(rows), margin={"l": 8, "r": 14, "t": 8, "b": 34})
    layout |= {"barmode": "stack", "bargap": 0.25}
    layout["xaxis"] = {"range": [0, 1], "tickformat": ".0%", **drawing.VALUE_AXIS}
    names = ["undisturbed", *(condition.shift for condition in rows[1:])]
    layout["yaxis"] = drawing.names_axis(names, 18, autorange="reversed")
    return drawing.view(f"level {level}", traces, layout)


WRONG_METRIC = next(metric for metric in METRICS if metric.name == WRONG)


def _fates(facts: OperatingFacts, model: str, condition: Condition) -> tuple[float, ...]:
    """The share of each of `FATES`; NaN where the case failed."""
    wrong, right, rejected = (facts.cell(model, condition, name).value for name in (WRONG, RIGHT, SHARE))
    return wrong, max(rejected - right, 0.0) if not math.isnan(rejected) else math.nan, right, 1 - wrong - rejected


def heat_map(facts: OperatingFacts, model: str, metric: str) -> drawing.View:
    """A rate by shift and level, undisturbed first; a cell without a value is grey and says why."""
    known = words_of(metric, METRICS)

    def square(condition: Condition) -> drawing.Square:
        cell = facts.cell(model, condition, metric)
        return drawing.square(known, cell, f"<b>{drawing.text(condition)}</b><br>{drawing.value_text(known, cell)}")

    rows = [[CLEAN, *(Condition(shift, level) for level in facts.levels)] for shift in facts.shifts]
    values = [cell.value for (_, _, _, name), cell in facts.cells.items() if name == metric and not cell.missing]
    traces = drawing.heat_map([[square(c) for c in row] for row in rows], 0.0, max([*values, 0.01]), WORSE_IS_DARKER)
    layout = drawing.layout_of(height=70 + 34 * len(facts.shifts), margin={"l": 8, "r": 8, "t": 34, "b": 8})
    title = {"text": "level", "font": {"size": 11, "color": drawing.MUTED}, "standoff": 4}
    layout["xaxis"] = drawing.names_axis(["clean", *facts.levels], side="top", title=title)
    layout["yaxis"] = drawing.names_axis(facts.shifts, 16, autorange="reversed")
    return drawing.view(known.label, traces, layout)


def set_chart(facts: OperatingFacts, named: Facts) -> drawing.View:
    """The share of every set of outliers that is accepted, with its bounds, a mark per model."""
    known = words_of(OUTLIER, METRICS)
    sets = sorted(facts.sets, key=lambda own: -max(_values(facts, own), default=-1.0))
    traces = []
    dodge = 0.5 / max(len(facts.models), 2)
    for index, model in enumerate(facts.models):
        cells = [facts.of_set(model, own) for own in sets]
        colour, symbol = drawing.look(index)
        offset = dodge * (index - (len(facts.models) - 1) / 2)
        hover = [
            drawing.hover_text(named.named(model), own, known, cell) for own, cell in zip(sets, cells, strict=True)
        ]
        rows = [row + offset for row in range(len(sets))]
        traces.append(drawing.marks(cells, rows, hover, colour, size=8, symbol=symbol))
    height = 56 + (16 * len(facts.models) + 10) * len(sets)
    layout = drawing.layout_of(height=height, margin={"l": 8, "r": 14, "t": 8, "b": 40})
    title = drawing.axis_title("share of outliers accepted")
    layout["xaxis"] = {"range": [-0.02, 1.02], "tickformat": ".0%", **drawing.VALUE_AXIS, "title": title}
    layout["yaxis"] = drawing.names_axis(sets, 22, range=[len(sets) - 0.5, -0.5])
    return drawing.view(known.label, traces, layout)


def _values(facts: OperatingFacts, outliers: Any) -> list[float]:
    cells: list[Estimate] = [facts.of_set(model, outliers) for model in facts.models]
    return [cell.value for cell in cells if not cell.missing]


def curve(facts: OperatingFacts, model: str, view: str, lines: Sequence[tuple[str, ...]]) -> drawing.View:
    """Some rates over the share of held-out images that a threshold rejects; a line where the threshold lies."""
    traces = []
    for condition, metric, name, colour, dash in lines:
        points = facts.curves.get((model, condition, metric), ())
        hover = [
            f"{name} {number(WRONG_METRIC, point.value)}{f' ({drawing.text(point.ood_set)})' if point.ood_set else ''}"
            f"<br>threshold {point.threshold:.4g}, rejects {number(WRONG_METRIC, point.reached)} of held-out images"
            for point in points
        ]
        traces.append(
            drawing.trace(
                "scatter",
                hover,
                mode="lines",
                x=[drawing.plain(point.asked) for point in points],
                y=[drawing.plain(point.value) for point in points],
                line={"color": colour, "width": 2, "dash": dash},
            )
        )
    layout = drawing.layout_of(height=320, margin={"l": 50, "r": 14, "t": 8, "b": 42})
    title = drawing.axis_title("share of held-out images rejected")
    layout["xaxis"] = {"range": [0, 0.5], "tickformat": ".0%", **drawing.VALUE_AXIS, "title": title}
    layout["yaxis"] = {"rangemode": "tozero", "tickformat": ".1~%", **drawing.VALUE_AXIS}
    chosen = facts.thresholds[model].rejected
    if not math.isnan(chosen) and chosen <= 0.5:
        layout["shapes"] = [drawing.line_at("x", drawing.plain(chosen))]
    return drawing.view(view, traces, layout)
