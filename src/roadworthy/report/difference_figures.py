"""Figures of differences: means with comparison intervals and grouping letters, and the spread over repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from roadworthy.metrics import higher_is_better
from roadworthy.report import drawing
from roadworthy.report.classification import CLEAN, ClassificationFacts, Condition
from roadworthy.report.differences import Comparison, Differences, Mean, Question
from roadworthy.report.facts import Cell, Facts
from roadworthy.report.words import bounds, number, words_of

NEUTRAL = "#0b4a82"
LABEL = 34
"""How many characters of a cell's name an axis has room for."""


def charts(differences: Differences, facts: Facts) -> drawing.Charts:
    """Every chart by the id of its element."""
    found: drawing.Charts = {}
    for place, question in enumerate(differences.questions):
        for number_, by in enumerate(question.by):
            found[f"posthoc-{place}-{number_}"] = [
                comparison_chart(question, facts, metric, by, method) for metric, method in question.choices
            ]
    if not isinstance(facts, ClassificationFacts) or not differences.metrics or not facts.shifts:
        return found
    found["spread-level"] = [spread_by_level(differences, facts, metric) for metric in differences.metrics]
    levels = {"spread-shift": facts.levels}
    if len(facts.levels) > 1:
        levels |= {f"spread-shift-{level}": (level,) for level in facts.levels}
    for name, shown in levels.items():
        found[name] = [spread_by_shift(differences, facts, metric, shown) for metric in differences.metrics]
    return found


def comparison_chart(question: Question, facts: Facts, metric: str, by: str, method: str) -> drawing.View:
    """The means of all cells, the worst at the top; a dotted line where all above differ from all below."""
    found = question.comparison(metric, by, method)
    name = f"{words_of(metric).label}, {method}"
    if not found.means:
        return _nothing(name, found)
    worst_first = higher_is_better(metric) is not False
    means = sorted(found.means, key=lambda mean: mean.mean if worst_first else -mean.mean)
    colours, symbols = zip(*(_look(mean, facts) for mean in means), strict=True)
    cells = [Cell(mean.mean, mean.lo, mean.hi) for mean in means]
    points = drawing.trace(
        "scatter",
        [
            f"<b>{drawing.text(mean.cell)}</b><br>mean {number(metric, mean.mean)}<br>comparison interval "
            f"{bounds(metric, mean.lo, mean.hi)}<br>group {drawing.text(mean.letters)}"
            for mean in means
        ],
        mode="markers",
        y=list(range(len(means))),
        x=[drawing.plain(mean.mean) for mean in means],
        error_x=drawing.whiskers(cells) | {"width": 4, "color": drawing.MUTED},
        marker={"color": colours, "symbol": symbols, "size": 8},
    )
    letters = {
        "type": "scatter",
        "mode": "text",
        "y": list(range(len(means))),
        "x": [1.0] * len(means),
        "xaxis": "x2",
        "text": [drawing.text(mean.letters) for mean in means],
        "textposition": "middle left",
        "textfont": {"color": drawing.MUTED, "size": 11},
        "hoverinfo": "skip",
    }
    layout = drawing.layout_of(height=64 + 22 * len(means), margin={"l": 8, "r": 8, "t": 8, "b": 40})
    layout["xaxis"] = {
        "domain": [0, 0.84],
        "range": _range(cells),
        "tickformat": drawing.tick_format(metric),
        **drawing.VALUE_AXIS,
        "nticks": 6,
        "title": drawing.axis_title(words_of(metric).label),
    }
    layout["xaxis2"] = {"domain": [0.85, 1], "range": [0, 1], "visible": False, "fixedrange": True}
    layout["yaxis"] = drawing.names_axis([mean.cell for mean in means], LABEL, range=[len(means) - 0.5, -0.5])
    layout["shapes"] = [drawing.line_at("y", at, "dot") for at in boundaries([mean.letters for mean in means])]
    return drawing.view(name, [points, letters], layout)


def boundaries(letters: Sequence[str]) -> list[float]:
    """Between which neighbours no letter reaches across: all before differ from all after.

    >>> boundaries(["a", "ab", "b", "c", "c"])
    [2.5]
    """
    return [
        place - 0.5
        for place in range(1, len(letters))
        if not set("".join(letters[:place])) & set("".join(letters[place:]))
    ]


def _look(mean: Mean, facts: Facts) -> tuple[str, str]:
    """The colour and mark of the model whose cell it is; neutral where it is of no single one."""
    if mean.model is None:
        return NEUTRAL, "circle"
    return drawing.look(facts.models.index(mean.model))


def _nothing(name: str, found: Comparison) -> drawing.View:
    """A view that says why there is nothing to see."""
    layout = drawing.layout_of(height=120, margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout |= {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    layout["annotations"] = [{**place, "text": drawing.short_text(f"no comparison: {found.reason}", 90)}]
    return drawing.view(name, [], layout)


def spread_by_level(differences: Differences, facts: ClassificationFacts, metric: str) -> drawing.View:
    """A metric undisturbed and at each level, the mean over shifts, with its standard deviation over repeats."""
    places = {"undisturbed": [CLEAN]} | {
        f"level {level}": [c for c in facts.conditions if c.level == level] for level in facts.levels
    }
    return _spread(differences, facts, metric, places)


def spread_by_shift(
    differences: Differences, facts: ClassificationFacts, metric: str, levels: Sequence[int]
) -> drawing.View:
    """A metric under each shift, the mean over the levels, with its standard deviation over repeats."""
    places = {shift: [c for c in facts.conditions if c.shift == shift and c.level in levels] for shift in facts.shifts}
    return _spread(differences, facts, metric, places)


def _spread(
    differences: Differences, facts: ClassificationFacts, metric: str, places: dict[str, list[Condition]]
) -> drawing.View:
    traces = []
    dodge = 0.4 / max(len(facts.models), 2)
    for place, model in enumerate(facts.models):
        cells = [differences.spread(metric, model, conditions) for conditions in places.values()]
        colour, symbol = drawing.look(place)
        offset = dodge * (place - (len(facts.models) - 1) / 2)
        traces.append(
            drawing.trace(
                "scatter",
                [
                    f"<b>{drawing.text(facts.named(model))}</b>, {drawing.text(name)}<br>{_spread_text(metric, cell)}"
                    for name, cell in zip(places, cells, strict=True)
                ],
                mode="markers",
                x=[column + offset for column in range(len(places))],
                y=[drawing.plain(cell.value) for cell in cells],
                error_y=drawing.whiskers(cells) | {"width": 3, "color": colour},
                marker={"color": colour, "size": 7, "symbol": symbol},
            )
        )
    layout = drawing.layout_of(height=230, margin={"l": 46, "r": 8, "t": 8, "b": 30})
    layout["xaxis"] = drawing.names_axis(list(places), 12, range=[-0.6, len(places) - 0.4], tickangle=-40)
    every = [[condition] for condition in (CLEAN, *facts.conditions)]
    cells = [differences.spread(metric, model, conditions) for model in facts.models for conditions in every]
    ticks = {"tickformat": drawing.tick_format(metric), "nticks": 6}
    layout["yaxis"] = {"range": _range(cells), **ticks, **drawing.VALUE_AXIS}
    return drawing.view(words_of(metric).label, traces, layout)


def _spread_text(metric: str, cell: Cell) -> str:
    if cell.missing:
        return f"no value: {drawing.text(cell.reason)}"
    sd = "one repeat" if math.isnan(cell.sd) else f"sd {number(metric, cell.sd)} over {cell.n} repeats"
    return f"{words_of(metric).label} {number(metric, cell.value)}<br>{sd}"


def _range(cells: Sequence[Cell]) -> list[float]:
    ends = drawing.ends_of(cells)
    return drawing.padded(min(ends), max(ends))
