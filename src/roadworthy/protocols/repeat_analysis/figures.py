"""Figures of differences: means with their intervals and grouping letters."""

from __future__ import annotations

from collections.abc import Sequence

from roadworthy.metrics import higher_is_better
from roadworthy.protocols.repeat_analysis.facts import METHODS, Comparison, Differences, Mean, Question
from roadworthy.protocols.repeat_analysis.questions import BY_REPEAT
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
    return charts_by_id


def comparison_chart(question: Question, facts: Facts, metric: str, by: str, method: str) -> drawing.View:
    """The means of all cells, the worst at the top; a dotted line where all above differ from all below."""
    comparison = question.comparison(metric, by, method)
    name = f"{words_of(metric).label}, {METHODS[method]}"
    interval = "95 % interval over repeats" if method == BY_REPEAT else "comparison interval"
    if not comparison.means:
        return _empty_view(name, comparison)
    worst_first = higher_is_better(metric) is not False
    means = sorted(comparison.means, key=lambda mean: mean.mean if worst_first else -mean.mean)
    colours, symbols = zip(*(_look(mean, facts) for mean in means), strict=True)
    cells = [Estimate(mean.mean, mean.lo, mean.hi) for mean in means]
    points = drawing.trace(
        "scatter",
        [
            f"<b>{drawing.text(mean.cell)}</b><br>mean {number(metric, mean.mean)}<br>{interval} "
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
        "range": value_axis_range(cells),
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


def value_axis_range(cells: Sequence[Estimate]) -> list[float]:
    """The range of an axis that shows all these values with their bounds."""
    ends = drawing.ends_of(cells)
    return drawing.padded(min(ends), max(ends))
