"""Figures of break points: the curve over severity of each shift, and all break points side by side."""

from __future__ import annotations

import math
from typing import Any

from roadworthy.protocols.break_point.facts import BreakFacts, CurvePoint, Point, sentence, short
from roadworthy.protocols.break_point.metrics import METRICS
from roadworthy.report import drawing
from roadworthy.report.facts import Facts
from roadworthy.report.words import words_of

BEYOND = 0.35
"""How far right of the last level a break point beyond it is drawn."""
BAND = "2e"
"""Opacity of a band, as two hexadecimal digits."""


def charts(breaks: BreakFacts, facts: Facts) -> drawing.Charts:
    """Every chart by the id of its element."""
    charts_by_id: drawing.Charts = {"forest": [forest(breaks, facts)]}
    for index, shift in enumerate(breaks.shifts):
        charts_by_id[f"curve-{index}"] = [curve_chart(breaks, facts, shift)]
    return charts_by_id


def forest(breaks: BreakFacts, facts: Facts) -> drawing.View:
    """Every break point with its bounds, a mark per model, the weakest shift at the top."""
    last = max((point.last for point in breaks.points.values()), default=5.0)
    edge = last + BEYOND
    dodge = 0.5 / max(len(breaks.models), 2)
    traces = []
    for index, model in enumerate(breaks.models):
        colour, symbol = drawing.look(index)
        offset = dodge * (index - (len(breaks.models) - 1) / 2)
        points = [breaks.point(model, shift) for shift in breaks.shifts]
        rows = [row + offset for row in range(len(points))]
        traces += [_bar(point, row, colour) for point, row in zip(points, rows, strict=True)]
        traces += [_met(point, row, colour) for point, row in zip(points, rows, strict=True)]
        hover = [f"<b>{drawing.text(facts.named(model))}</b>, {_hover(breaks, point)}" for point in points]
        symbols = ["triangle-right-open" if point.is_beyond else symbol for point in points]
        marks = drawing.trace("scatter", hover, mode="markers", y=rows, cliponaxis=False)
        marks["x"] = [None if point.cell.missing else _drawn_at(point) for point in points]
        traces.append(marks | {"marker": {"color": colour, "size": 9, "symbol": symbols}})
    rows_high = 16 * max(len(breaks.models), 1) + 14
    layout = drawing.layout_of(height=76 + rows_high * len(breaks.shifts), margin={"l": 8, "r": 20, "t": 8, "b": 44})
    layout["xaxis"] = _severity_axis(last, edge)
    layout["yaxis"] = drawing.names_axis(breaks.shifts, 22, range=[len(breaks.shifts) - 0.5, -0.5])
    layout["shapes"] = [drawing.line_at("x", last, "dot")]
    return drawing.view("Break points", [trace for trace in traces if trace], layout)


def _bar(point: Point, row: float, colour: str) -> dict[str, Any]:
    """The interval of a break point as a horizontal line; it runs beyond the last level where it has no upper end."""
    if point.cell.missing:
        return {}
    ends = [drawing.plain(point.cell.lo), drawing.plain(point.cell.hi, point.last + BEYOND)]
    line = {"color": colour, "width": 2.5}
    return {"type": "scatter", "mode": "lines", "x": ends, "y": [row, row], "line": line, "hoverinfo": "skip"}


def _drawn_at(point: Point) -> float | None:
    """The severity at which a break point is drawn: right of the last level where it is beyond."""
    return drawing.plain(point.cell.value, point.last + BEYOND)


def _met(point: Point, row: float, colour: str) -> dict[str, Any]:
    """The severities at which the threshold is surely met, as a thin line up to the interval."""
    if point.cell.missing or not point.cell.lo:
        return {}
    line = {"color": colour, "width": 1, "dash": "dot"}
    ends = [0, drawing.plain(point.cell.lo)]
    return {"type": "scatter", "mode": "lines", "x": ends, "y": [row, row], "line": line, "hoverinfo": "skip"}


def _hover(breaks: BreakFacts, point: Point) -> str:
    return f"{drawing.text(point.shift)}<br>{drawing.text(sentence(breaks, point))}"


def _severity_axis(last: float, edge: float) -> dict[str, Any]:
    ticks = list(range(int(last) + 1))
    return {
        **drawing.VALUE_AXIS,
        "range": [-0.1, edge + 0.15],
        "tickmode": "array",
        "tickvals": [*ticks, edge],
        "ticktext": [*map(str, ticks), f"&gt;{last:g}"],
        "tickangle": 0,
        "title": drawing.axis_title("severity (0 is undisturbed)"),
    }


def curve_chart(breaks: BreakFacts, facts: Facts, shift: str) -> drawing.View:
    """The metric over the severity of a shift with its band, the threshold, and the break points with their bounds."""
    traces: list[dict[str, Any]] = []
    last, bottom, top = 1.0, 0.0, 0.0
    for index, model in enumerate(breaks.models):
        curve = breaks.curves.get((model, shift), ())
        drawn = [point for point in curve if not point.cell.missing]
        if not drawn:
            continue
        last = max(last, drawn[-1].severity)
        top = max([top, *(point.cell.hi for point in drawn if math.isfinite(point.cell.hi))])
        colour, symbol = drawing.look(index)
        traces += _curve(breaks, facts, model, shift, drawn, colour, symbol)
    threshold, edge = breaks.shown_threshold, last + BEYOND
    top = max(top, threshold) * 1.06 or 1.0
    room = 0.075 * top
    for index, model in enumerate(breaks.models):
        point = breaks.point(model, shift)
        if point.cell.missing:
            continue
        colour, symbol = drawing.look(index)
        height = -room * (index + 0.6)
        bottom = min(bottom, height - 0.4 * room)
        traces.append(_bar(point, height, colour))
        mark = drawing.trace("scatter", [_hover(breaks, point)], mode="markers", y=[height], cliponaxis=False)
        mark["x"] = [_drawn_at(point)]
        mark["marker"] = {"color": colour, "size": 8, "symbol": "triangle-right-open" if point.is_beyond else symbol}
        traces.append(mark)
    metric = breaks.shown_metric
    layout = drawing.layout_of(height=300, margin={"l": 52, "r": 12, "t": 10, "b": 44})
    layout["xaxis"] = _severity_axis(last, edge)
    layout["yaxis"] = {
        **drawing.VALUE_AXIS,
        "range": [bottom, top],
        "tickformat": drawing.tick_format(words_of(metric, METRICS)),
        "title": drawing.axis_title(words_of(metric, METRICS).label.lower()),
    }
    layout["shapes"] = [drawing.line_at("y", drawing.plain(threshold)), drawing.line_at("y", 0, "solid")]
    return drawing.view(drawing.text(shift), traces, layout)


def _curve(
    breaks: BreakFacts, facts: Facts, model: str, shift: str, drawn: list[CurvePoint], colour: str, symbol: str
) -> list[dict[str, Any]]:
    """The band of a model's curve, and the curve."""
    metric, point = words_of(breaks.shown_metric, METRICS), breaks.point(model, shift)
    severities = [one.severity for one in drawn]
    ends = [drawing.plain(one.cell.hi) for one in drawn] + [drawing.plain(one.cell.lo) for one in reversed(drawn)]
    band: dict[str, Any] = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": {"width": 0}}
    band |= {"x": severities + severities[::-1], "y": ends, "fill": "toself", "fillcolor": f"{colour}{BAND}"}
    hover = []
    for one in drawn:
        unit = f", {point.quantity} {short(one.in_unit)} {point.unit}" if point.unit else ""
        where = f"{shift} {one.severity:g}{unit}" if one.severity else "undisturbed"
        hover.append(drawing.hover_text(facts.named(model), where, metric, one.cell))
    line = drawing.trace("scatter", hover, mode="lines+markers", x=severities)
    line |= {"y": [drawing.plain(one.cell.value) for one in drawn], "line": {"color": colour, "width": 1.6}}
    return [band, line | {"marker": {"color": colour, "size": 5, "symbol": symbol}}]
