"""Figures of differences: means with comparison intervals and grouping letters, and the spread over repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from roadworthy.metrics import higher_is_better
from roadworthy.protocols.classification.facts import CLEAN, ClassificationFacts, Condition
from roadworthy.protocols.repeats.facts import Comparison, Differences, Mean, Question
from roadworthy.report import drawing
from roadworthy.report.facts import Facts
from roadworthy.report.words import bounds, number, words_of
from roadworthy.statistics import Estimate

NEUTRAL = "#0b4a82"
LABEL = 34
"""How many characters of a cell's name an axis has room for."""


def difference_charts(differences: Differences | None, facts: Facts) -> drawing.Charts:
    """Every chart by the id of its element; none where nothing was repeated."""
    if differences is None:
        return {}
    charts_by_id: drawing.Charts = {}
    for question_index, question in enumerate(differences.questions):
        for by_index, by in enumerate(question.by):
            charts_by_id[f"posthoc-{question_index}-{by_index}"] = [
                comparison_chart(question, facts, metric, by, method) for metric, method in question.choices
            ]
    if not isinstance(facts, ClassificationFacts) or not differences.metrics or not facts.shifts:
        return charts_by_id
    charts_by_id["spread-level"] = [spread_by_level(differences, facts, metric) for metric in differences.metrics]
    levels = {"spread-shift": facts.levels}
    if len(facts.levels) > 1:
        levels |= {f"spread-shift-{level}": (level,) for level in facts.levels}
    for name, shown in levels.items():
        charts_by_id[name] = [spread_by_shift(differences, facts, metric, shown) for metric in differences.metrics]
    return charts_by_id


def comparison_chart(question: Question, facts: Facts, metric: str, by: str, method: str) -> drawing.View:
    """The means of all cells, the worst at the top; a dotted line where all above differ from all below."""
    comparison = question.comparison(metric, by, method)
    name = f"{words_of(metric).label}, {method}"
    if not comparison.means:
        return _empty_view(name, comparison)
    worst_first = higher_is_better(metric) is not False
    means = sorted(comparison.means, key=lambda mean: mean.mean if worst_first else -mean.mean)
    colours, symbols = zip(*(_look(mean, facts) for mean in means), strict=True)
    cells = [Estimate(mean.mean, mean.lo, mean.hi) for mean in means]
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
    """The positions between neighbours that share no letter across: all cells before differ from all after.

    >>> boundaries(["a", "ab", "b", "c", "c"])
    [2.5]
    """
    return [
        index - 0.5
        for index in range(1, len(letters))
        if not set("".join(letters[:index])) & set("".join(letters[index:]))
    ]


def _look(mean: Mean, facts: Facts) -> tuple[str, str]:
    """The colour and mark of the model that a cell belongs to; neutral where it belongs to several."""
    if mean.model is None:
        return NEUTRAL, "circle"
    return drawing.look(facts.models.index(mean.model))


def _empty_view(name: str, comparison: Comparison) -> drawing.View:
    """A view that says why there is nothing to see."""
    layout = drawing.layout_of(height=120, margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout |= {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    position = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    layout["annotations"] = [{**position, "text": drawing.short_text(f"no comparison: {comparison.reason}", 90)}]
    return drawing.view(name, [], layout)


def spread_by_level(differences: Differences, facts: ClassificationFacts, metric: str) -> drawing.View:
    """A metric undisturbed and at each level, the mean over shifts, with its standard deviation over repeats."""
    columns = {"undisturbed": [CLEAN]} | {
        f"level {level}": [c for c in facts.conditions if c.level == level] for level in facts.levels
    }
    return _spread(differences, facts, metric, columns)


def spread_by_shift(
    differences: Differences, facts: ClassificationFacts, metric: str, levels: Sequence[int]
) -> drawing.View:
    """A metric under each shift, the mean over the levels, with its standard deviation over repeats."""
    columns = {shift: [c for c in facts.conditions if c.shift == shift and c.level in levels] for shift in facts.shifts}
    return _spread(differences, facts, metric, columns)


def _spread(
    differences: Differences, facts: ClassificationFacts, metric: str, columns: dict[str, list[Condition]]
) -> drawing.View:
    traces = []
    dodge = 0.4 / max(len(facts.models), 2)
    for model_index, model in enumerate(facts.models):
        cells = [differences.spread(metric, model, averaged) for averaged in columns.values()]
        colour, symbol = drawing.look(model_index)
        offset = dodge * (model_index - (len(facts.models) - 1) / 2)
        traces.append(
            drawing.trace(
                "scatter",
                [
                    f"<b>{drawing.text(facts.named(model))}</b>, {drawing.text(name)}<br>{_spread_text(metric, cell)}"
                    for name, cell in zip(columns, cells, strict=True)
                ],
                mode="markers",
                x=[column + offset for column in range(len(columns))],
                y=[drawing.plain(cell.value) for cell in cells],
                error_y=drawing.whiskers(cells) | {"width": 3, "color": colour},
                marker={"color": colour, "size": 7, "symbol": symbol},
            )
        )
    layout = drawing.layout_of(height=230, margin={"l": 46, "r": 8, "t": 8, "b": 30})
    layout["xaxis"] = drawing.names_axis(list(columns), 12, range=[-0.6, len(columns) - 0.4], tickangle=-40)
    conditions = (CLEAN, *facts.conditions)
    cells = [differences.spread(metric, model, [condition]) for model in facts.models for condition in conditions]
    ticks = {"tickformat": drawing.tick_format(metric), "nticks": 6}
    layout["yaxis"] = {"range": _range(cells), **ticks, **drawing.VALUE_AXIS}
    return drawing.view(words_of(metric).label, traces, layout)


def _spread_text(metric: str, cell: Estimate) -> str:
    if cell.missing:
        return f"no value: {drawing.text(cell.reason)}"
    sd = "one repeat" if math.isnan(cell.sd) else f"sd {number(metric, cell.sd)} over {cell.n} repeats"
    return f"{words_of(metric).label} {number(metric, cell.value)}<br>{sd}"


def _range(cells: Sequence[Estimate]) -> list[float]:
    ends = drawing.ends_of(cells)
    return drawing.padded(min(ends), max(ends))
