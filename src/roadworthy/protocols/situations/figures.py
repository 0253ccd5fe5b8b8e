"""Figures of expected situations: the shares that meet a requirement, what situations cost, and how often they are."""

from __future__ import annotations

import math
from itertools import accumulate

from roadworthy.protocols.situations.facts import MET, MISSED, UNDECIDED, ExpectedSituation, SituationFacts
from roadworthy.report import drawing
from roadworthy.report.facts import Facts
from roadworthy.report.words import number, words_of
from roadworthy.statistics import Estimate

STATUS_COLOURS = {MET: "#2e8b57", UNDECIDED: "#e0b040", MISSED: "#c23b3b"}
"""In the order of the bar."""
SHARE = "share_met"
FINEST = 0.01
"""Pieces of a bar that are rarer than this have no edge: it would hide them."""
MOST_BARS = 15
"""Situations in the chart of costs."""


def charts(test: SituationFacts, facts: Facts) -> drawing.Charts:
    """Every chart by the id of its element."""
    by_id: drawing.Charts = {}
    if test.requirements:
        by_id["shares"] = [share_chart(test, facts, requirement) for requirement in test.requirements]
    costed = [metric for metric in test.metrics if words_of(metric).higher_is_better is not None]
    by_id["costs"] = [cost_chart(test, facts, metric) for metric in costed]
    by_id["frequency"] = [frequency_chart(test, facts, metric) for metric in test.metrics]
    return by_id


def share_chart(test: SituationFacts, facts: Facts, requirement: str) -> drawing.View:
    """A bar per model, a piece of it per situation, as wide as that is frequent, in the colour of its status."""
    traces = []
    for row, model in enumerate(test.models):
        pieces = [
            (own, status, *test.statuses[model, requirement, own.name])
            for status in STATUS_COLOURS
            for own in test.situations
            if test.statuses[model, requirement, own.name][0] == status
        ]
        ends = [0.0, *accumulate(own.frequency for own, *_ in pieces)]
        hover = [
            f"<b>{drawing.text(facts.named(model))}</b>, {drawing.text(own)}: {status}<br>"
            f"in {number(SHARE, own.frequency)} of expected situations<br>{_interval(estimate)}"
            for own, status, _, estimate in pieces
        ]
        bar = drawing.trace(
            "bar",
            hover,
            orientation="h",
            y=[row] * len(pieces),
            x=[drawing.plain(own.frequency) for own, *_ in pieces],
            base=[drawing.plain(end) for end in ends[:-1]],
            width=0.62,
            marker={
                "color": [STATUS_COLOURS[status] for _, status, *_ in pieces],
                "line": {"color": "#ffffff", "width": [float(own.frequency >= FINEST) for own, *_ in pieces]},
            },
        )
        traces.append(bar)
    layout = drawing.layout_of(height=86 + 44 * len(test.models), margin={"l": 8, "r": 14, "t": 8, "b": 44})
    layout["xaxis"] = {
        "range": [0, 1],
        "tickformat": ".0%",
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title("share of expected situations"),
    }
    names = [facts.named(model) for model in test.models]
    layout["yaxis"] = drawing.names_axis(names, 18, range=[len(names) - 0.5, -0.5])
    layout["barmode"] = "overlay"
    return drawing.view(drawing.text(test.called(requirement)), traces, layout)


def _interval(estimate: Estimate) -> str:
    if estimate.missing:
        return f"no value: {drawing.text(estimate.reason)}"
    return f"value {estimate.value:.4g}, joint bounds {estimate.lo:.4g} to {estimate.hi:.4g}"


def cost_chart(test: SituationFacts, facts: Facts, metric: str) -> drawing.View:
    """What every situation costs of the expected metric, a bar per model, the costliest at the top."""
    highest = {
        own: max((test.costs.get((model, own.name, metric), 0.0) for model in test.models), default=0.0)
        for own in test.situations
    }
    chosen = sorted((own for own in highest if highest[own] > 0), key=lambda own: -highest[own])[:MOST_BARS]
    thickness = 0.8 / max(len(test.models), 1)
    traces = []
    for index, model in enumerate(test.models):
        colour, _ = drawing.look(index)
        shift = thickness * (index - (len(test.models) - 1) / 2)
        traces.append(
            drawing.trace(
                "bar",
                [_cost_hover(test, facts, model, own, metric) for own in chosen],
                orientation="h",
                y=[row + shift for row in range(len(chosen))],
                x=[drawing.plain(test.costs.get((model, own.name, metric), 0.0), 0.0) for own in chosen],
                width=0.9 * thickness,
                marker={"color": colour},
                text=[_cost_text(test.costs.get((model, own.name, metric), math.nan), metric) for own in chosen],
                textposition="outside",
                textfont={"size": 10},
                cliponaxis=False,
            )
        )
    rows = max(22, 12 * len(test.models) + 8)
    layout = drawing.layout_of(height=64 + rows * max(len(chosen), 1), margin={"l": 8, "r": 48, "t": 8, "b": 44})
    words = words_of(metric)
    lost = f"frequency × (1 − {words.label.lower()})" if words.higher_is_better else f"frequency × {words.label}"
    layout["xaxis"] = {
        "rangemode": "tozero",
        "tickformat": ".2~%" if words.percent else ".3~f",
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title(lost),
    }
    layout["yaxis"] = drawing.names_axis(chosen, 26, range=[max(len(chosen), 1) - 0.5, -0.5])
    return drawing.view(words.label, traces, layout)


def _cost_text(cost: float, metric: str) -> str:
    """A cost in two digits: most are small."""
    return f"{100 * cost:.2g} %" if words_of(metric).percent else f"{cost:.2g}"


def _cost_hover(test: SituationFacts, facts: Facts, model: str, own: ExpectedSituation, metric: str) -> str:
    cost = test.costs.get((model, own.name, metric), math.nan)
    start = drawing.hover_text(facts.named(model), own, metric, test.cell(model, own.name, metric))
    return f"{start}<br>in {number(SHARE, own.frequency)} of expected situations<br>costs {_cost_text(cost, metric)}"


def frequency_chart(test: SituationFacts, facts: Facts, metric: str) -> drawing.View:
    """A metric of every situation over how often it is expected, a mark per model: what matters is right and low."""
    traces = []
    for index, model in enumerate(test.models):
        colour, symbol = drawing.look(index)
        cells = [test.cell(model, own.name, metric) for own in test.situations]
        shown = drawing.trace(
            "scatter",
            [_cost_hover(test, facts, model, own, metric) for own in test.situations],
            mode="markers",
            x=[drawing.plain(own.frequency) for own in test.situations],
            y=[drawing.plain(cell.value) for cell in cells],
            error_y=drawing.whiskers(cells) | {"width": 3, "color": colour},
            marker={"color": colour, "size": 8, "symbol": symbol},
        )
        traces.append(shown | {"cliponaxis": False})
    layout = drawing.layout_of(height=340, margin={"l": 56, "r": 14, "t": 8, "b": 44})
    ends = drawing.ends_of(test.cell(model, own.name, metric) for model in test.models for own in test.situations)
    layout["xaxis"] = {
        "type": "log",
        "tickformat": "~%",
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title("how often it is expected (logarithmic)"),
    }
    layout["yaxis"] = {
        "range": drawing.padded(min(ends), max(ends)),
        "tickformat": drawing.tick_format(metric),
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title(words_of(metric).label),
    }
    return drawing.view(words_of(metric).label, traces, layout)
