"""Figures of the benchmark of monitors: the matrix, means, safety against availability, risk over coverage, time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.monitoring.facts import Curve, MonitoringFacts
from roadworthy.protocols.monitoring.metrics import AURC, EFFECT_METRICS, MCC
from roadworthy.protocols.monitoring.names import ALL, ALONE, EXPORTED, FORMS, MODEL_SCOPE
from roadworthy.protocols.monitoring.rank_figure import critical_difference
from roadworthy.protocols.monitoring.stream_figure import monitor_line, rounded, timeline
from roadworthy.protocols.monitoring.words import KIND_LABELS, quantity, short_value, view_label
from roadworthy.report import drawing
from roadworthy.report.drawing import VALUE_AXIS, Charts, Square, View, look, plain, short_text, text
from roadworthy.report.reading import number_of
from roadworthy.report.words import number, plural
from roadworthy.statistics import Estimate

RESIDUAL_HAZARD, AVAILABILITY_COST = (
    find_metric(name, EFFECT_METRICS) for name in ("residual_hazard", "availability_cost")
)
LOW_TO_HIGH = ((0.0, "#ea7320"), (0.5, "#fffdf3"), (1.0, "#5f9fd0"))
"""Orange is worse than chance, blue better; light enough for dark text at both ends."""
ROW_HEIGHT = 25
EMPTY = Square(None, "", "")
"""A square of a row that is a heading."""
LEGEND = {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 11.5}}


def charts(test: MonitoringFacts) -> Charts:
    """Every chart by the id of its element."""
    made: Charts = {}
    for index, model in enumerate(test.models):
        made[f"matrix-{index}"] = [matrix(test, model, view) for view in test.views]
    made["means"] = [means(test, model, view) for model, view in model_views(test)]
    for index, model in enumerate(test.models):
        made[f"pareto-{index}"] = [pareto(test, model, name) for name in swept_sets(test)]
        made[f"risk-{index}"] = [risk(test, model, benchmark.name) for benchmark in test.benchmarks]
    if test.rankings:
        made["rank-chart"] = [critical_difference(ranking) for ranking in test.rankings]
    if test.timelines:
        made["timeline"] = [timeline(test, model, benchmark) for model, benchmark in test.timelines]
    for index, model in enumerate(timed_models(test)):
        made[f"time-{index}"] = [time_per_image(test, model)]
    return made


def model_views(test: MonitoringFacts) -> list[tuple[str, str]]:
    """What a reader can choose where a model and a view are shown at a time."""
    return [(model, view) for model in test.models for view in test.views]


def swept_sets(test: MonitoringFacts) -> list[str]:
    """The benchmarks whose threshold is swept, their mean first."""
    return [*([ALL] if len(test.benchmarks) > 1 else []), *(benchmark.name for benchmark in test.benchmarks)]


def timed_models(test: MonitoringFacts) -> list[str]:
    """The models that were timed image by image."""
    return [model for model in test.models if any(key[0] == model and is_timed(test, *key) for key in test.timing)]


def is_timed(test: MonitoringFacts, model: str, monitor: str, form: str) -> bool:
    """Whether there are times of a monitor, or the model alone, in a form."""
    return not math.isnan(number_of(test.timing.get((model, monitor, form), {}).get("median")))


def matrix(test: MonitoringFacts, model: str, view: str) -> View:
    """The MCC of every monitor (columns) on every benchmark (rows, by kind), and the means of the kinds."""
    names, rows = [], []
    if len(test.benchmarks) > 1:
        names.append("<b>mean of all</b>")
        rows.append([_mean_square(test, model, monitor, view, ALL) for monitor in test.monitors])
    for kind in test.kinds:
        own = test.of_kind(kind)
        names.append(f"<b>{KIND_LABELS[kind]}</b>")
        several = len(own) > 1
        rows.append([_mean_square(test, model, m, view, kind) if several else EMPTY for m in test.monitors])
        for benchmark in own:
            cells = [test.cell(model, benchmark.name, monitor, MCC.name, view) for monitor in test.monitors]
            names.append(short_text(benchmark.label, 20))
            rows.append([_square(m, benchmark.name, cell) for m, cell in zip(test.monitors, cells, strict=True)])
    traces = drawing.heat_map(rows, -1.0, 1.0, LOW_TO_HIGH, size=11)
    layout = drawing.layout_of(height=112 + ROW_HEIGHT * len(rows), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout["xaxis"] = drawing.names_axis(test.monitors, 20, side="top", tickangle=-90)
    layout["yaxis"] = drawing.names_axis(names, autorange="reversed") | {"ticktext": names}
    return drawing.view(view_label(view), traces, layout)


def _square(monitor: str, benchmark: str, cell: Estimate) -> Square:
    hover = drawing.hover_text(monitor, benchmark, MCC, cell)
    return Square(plain(cell.value), short_value(cell.value), hover, cell.missing)


def _mean_square(test: MonitoringFacts, model: str, monitor: str, view: str, kind: str) -> Square:
    cell = test.mean(model, monitor, MCC.name, view, kind)
    number_of_sets = len(test.benchmarks if kind == ALL else test.of_kind(kind))
    square = _square(monitor, f"mean of {plural(min(cell.n, number_of_sets), 'benchmark')}", cell)
    star = "*" if cell.n < number_of_sets else ""
    return square if square.grey else square._replace(text=f"<b>{square.text}{star}</b>")


def means(test: MonitoringFacts, model: str, view: str) -> View:
    """The mean MCC of each monitor over the benchmarks with its interval; the dashed line is chance."""
    cells = [test.mean(model, monitor, MCC.name, view) for monitor in test.monitors]
    hover = [drawing.hover_text(m, model, MCC, cell) for m, cell in zip(test.monitors, cells, strict=True)]
    colour, symbol = look(0)
    edge = {"color": colour, "width": 1.5}
    trace = drawing.marks(cells, list(range(len(cells))), hover, colour, size=9, symbol=symbol, line=edge)
    trace["marker"]["color"] = ["#ffffff" if cell.n < len(test.benchmarks) else colour for cell in cells]
    ends = [*drawing.ends_of(cell for cell in cells if not cell.missing), 0.0]
    layout = drawing.layout_of(height=66 + 26 * len(cells), margin={"l": 8, "r": 16, "t": 8, "b": 46})
    title = "mean MCC (higher is better)"
    layout["xaxis"] = {"range": drawing.padded(min(ends), max(ends)), "nticks": 6, **VALUE_AXIS}
    layout["xaxis"]["title"] = drawing.axis_title(title)
    layout["yaxis"] = drawing.names_axis(test.monitors, range=[len(cells) - 0.5, -0.5])
    layout["yaxis"] |= {"showgrid": True, "gridcolor": "#f1f3f6"}
    layout["shapes"] = [drawing.line_at("x", 0.0)]
    return drawing.view(f"{text(model)}, {view_label(view)}", [trace], layout)


def pareto(test: MonitoringFacts, model: str, name: str) -> View:
    """Residual hazard over availability cost as the threshold goes from accepting all to rejecting all.

    A large mark is the threshold that the study found on ID data; the star is the model alone.
    """
    traces = []
    alone = _effect(test, model, name, ALONE, RESIDUAL_HAZARD)
    for index, monitor in enumerate(test.monitors):
        curve = test.sweep.get((model, name, monitor))
        if curve is not None:
            traces.append(_swept_line(index, monitor, curve if alone.missing else _from_nothing(curve, alone.value)))
        point = [_effect(test, model, name, monitor, metric) for metric in (AVAILABILITY_COST, RESIDUAL_HAZARD)]
        if not any(cell.missing for cell in point):
            traces.append(_chosen_point(index, monitor, point))
    if not alone.missing:
        hover = [f"<b>model alone</b><br>residual hazard {number(RESIDUAL_HAZARD, alone.value)}"]
        star = {"symbol": "star", "size": 13, "color": drawing.INK}
        star_at = {"x": [0], "y": [plain(alone.value)], "marker": star, "name": "model alone", "cliponaxis": False}
        traces.append(drawing.trace("scatter", hover, mode="markers", **star_at))
    label = "mean of all benchmarks" if name == ALL else name
    titles = ("right and rejected (availability cost)", "wrong and accepted (residual hazard)")
    return drawing.view(text(label), traces, _line_layout(titles))


def _effect(test: MonitoringFacts, model: str, name: str, monitor: str, metric: Metric) -> Estimate:
    if name == ALL:
        return test.mean(model, monitor, metric.name, MODEL_SCOPE)
    return test.cell(model, name, monitor, metric.name, MODEL_SCOPE)


def _from_nothing(curve: Curve, hazard: float) -> Curve:
    """A line that starts where nothing is rejected: no cost, and the residual hazard of the model alone.

    The least threshold of a sweep is the smallest score of ID validation images, which may already reject others.

    >>> _from_nothing(Curve((0.1, 0.7), (0.2, 0.0), (3.0, math.inf)), 0.3)
    Curve(x=(0.0, 0.1, 0.7), y=(0.3, 0.2, 0.0), threshold=(-inf, 3.0, inf))
    """
    return Curve((0.0, *curve.x), (hazard, *curve.y), (-math.inf, *curve.threshold))


def _swept_line(index: int, monitor: str, curve: Curve) -> dict[str, Any]:
    hover = "threshold %{text}<br>right answers rejected %{x:.1%}<br>wrong answers accepted %{y:.1%}"
    line = monitor_line(index, monitor, curve.y, hover, x=[rounded(value) for value in curve.x])
    return line | {"text": [quantity(threshold) for threshold in curve.threshold]}


def _chosen_point(index: int, monitor: str, point: Sequence[Estimate]) -> dict[str, Any]:
    colour, symbol = look(index)
    across, up = point
    values = "<br>".join(
        drawing.value_text(m, c) for m, c in zip((AVAILABILITY_COST, RESIDUAL_HAZARD), point, strict=True)
    )
    mark = {"color": colour, "symbol": symbol, "size": 11, "line": {"color": "#ffffff", "width": 1.5}}
    mark_at = {"x": [plain(across.value)], "y": [plain(up.value)], "marker": mark, "legendgroup": monitor}
    hover = [f"<b>{text(monitor)}</b>, threshold of the study<br>{values}"]
    return drawing.trace("scatter", hover, mode="markers", showlegend=False, cliponaxis=False, **mark_at)


def risk(test: MonitoringFacts, model: str, benchmark: str) -> View:
    """The share of wrong answers among those accepted, over the share that is accepted; the legend has the area."""
    traces = []
    for index, monitor in enumerate(test.monitors):
        curve = test.risk.get((model, benchmark, monitor))
        if curve is None:
            continue
        area = test.risk_area(model, benchmark, monitor)
        hover = "accepted %{x:.0%}, of these wrong %{y:.1%}"
        line = monitor_line(index, monitor, curve.y, hover, x=[rounded(value) for value in curve.x])
        traces.append(line | {"name": f"{text(monitor)} ({number(AURC, area.value)})"})
    titles = ("images accepted (coverage)", "wrong among the accepted (risk)")
    return drawing.view(text(benchmark), traces, _line_layout(titles))


def _line_layout(titles: tuple[str, str]) -> dict[str, Any]:
    """Two axes of shares from 0 on, with a legend whose entries can be switched off."""
    layout = drawing.layout_of(height=470, margin={"l": 8, "r": 12, "t": 10, "b": 46})
    for axis, title in zip(("xaxis", "yaxis"), titles, strict=True):
        layout[axis] = {"rangemode": "tozero", "tickformat": ".0%", "nticks": 6, **VALUE_AXIS, "automargin": True}
        layout[axis]["title"] = drawing.axis_title(title)
    return layout | {"showlegend": True, "legend": LEGEND}


def time_per_image(test: MonitoringFacts, model: str) -> View:
    """Milliseconds per image of the model alone and with each monitor: the median, and up to the 95th percentile.

    A monitor whose exported file was timed has a second bar.
    """
    systems = [(name, form) for name in (ALONE, *test.monitors) for form in FORMS if is_timed(test, model, name, form)]
    rows = [test.timing[model, *system] for system in systems]
    median, late = ([1000 * number_of(row[column]) for row in rows] for column in ("median", "p95"))
    labels = [
        ("model alone" if name == ALONE else name) + (" (file)" if form == EXPORTED else "") for name, form in systems
    ]
    hover = [
        f"<b>{text(label)}</b><br>median {quantity(middle)} ms<br>95 % of images within {quantity(high)} ms"
        for label, middle, high in zip(labels, median, late, strict=True)
    ]
    whisker = {"type": "data", "symmetric": False, "color": drawing.MUTED, "thickness": 1.2, "width": 3}
    whisker["array"] = [plain(high - middle, 0.0) for middle, high in zip(median, late, strict=True)]
    whisker["arrayminus"] = [0.0] * len(rows)
    bars: dict[str, Any] = {"orientation": "h", "y": list(range(len(rows))), "x": [plain(value) for value in median]}
    colours = [drawing.MUTED if name == ALONE else look(FORMS.index(form))[0] for name, form in systems]
    trace = drawing.trace("bar", hover, **bars, marker={"color": colours}, error_x=whisker)
    layout = drawing.layout_of(height=66 + 24 * len(rows), margin={"l": 8, "r": 16, "t": 8, "b": 46})
    title = "milliseconds per image (lower is better)"
    layout["xaxis"] = {"rangemode": "tozero", "nticks": 6, **VALUE_AXIS, "title": drawing.axis_title(title)}
    layout["yaxis"] = drawing.names_axis(labels, range=[len(rows) - 0.5, -0.5])
    return drawing.view(text(model), [trace], layout)
