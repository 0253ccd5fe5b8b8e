"""Figures of localization: networks and methods on ID data, under shift, and what their uncertainty is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from roadworthy.metrics import Metric
from roadworthy.metrics.box_uncertainty import COORDINATES
from roadworthy.protocols.localization.facts import Curve, ImageSet, LocalizationFacts, Network
from roadworthy.protocols.localization.names import BOXES, CLASSES, DISTANCE, SIZE, TEST
from roadworthy.protocols.localization.words import QUALITY, bin_label, method_label, quantity, set_label
from roadworthy.report import drawing
from roadworthy.report.drawing import MUTED, VALUE_AXIS, Charts, View, look, plain, text
from roadworthy.report.reading import number_of
from roadworthy.statistics import Estimate

ID_METRICS = {CLASSES: ("accuracy", "ece", "brier"), BOXES: ("iou", "mae", "box_ece_interval", "box_ece")}
"""What networks and methods are compared by on ID data."""
SHIFT_METRICS = {CLASSES: ("accuracy", "ece"), BOXES: ("iou", "box_ece_interval", "box_ece")}
"""What they are compared by under shift."""
ROOM = 0.7
"""The share of the distance between two names that their marks take."""
MANY_NAMES = 5
COORDINATE_LABELS = dict(
    zip(COORDINATES, ("x0, left edge", "y0, top edge", "x1, right edge", "y1, bottom edge"), strict=True)
)
MEAN_LINE = "mean of the four, in which errors of opposite sign cancel (a run of an earlier version)"
TRIAL_COLOURS = ((0.0, "#c6dbef"), (1.0, "#08306b"))


class Series(NamedTuple):
    """Estimates of one method or network, one for each name on the axis, with what is said of each."""

    label: str
    colour_index: int
    cells: Sequence[Estimate]
    hover: Sequence[str]


def charts(test: LocalizationFacts) -> Charts:
    """Every chart by the id of its element."""
    made: Charts = {}
    for task in test.tasks:
        for name in ID_METRICS[task]:
            made[f"id-{name}"] = [on_id(test, task, test.metric(name))]
        for name in SHIFT_METRICS[task]:
            if len(test.sets_of(task)) > 1:
                draw = under_shift if test.compared_families else networks_under_shift
                made[f"shift-{name}"] = [draw(test, task, test.metric(name))]
            if test.compared_families:
                made[f"methods-{name}"] = [methods(test, f, task, test.metric(name)) for f in test.compared_families]
    if test.detailed:
        made |= _details(test)
    if test.searches:
        made["trials"] = [search(test, *key) for key in test.searches]
    return made


def _details(test: LocalizationFacts) -> Charts:
    """The curves of a network on a set, by the method: what is promised, what is kept, and the size of objects."""
    made: Charts = {}
    if test.reliability:
        made["detail-reliability"] = [reliability(test, *chosen) for chosen in test.detailed]
    for task in test.tasks:
        if any(key[2] == task for key in test.sparsification):
            made[f"detail-kept-{task}"] = [sparsified(test, *chosen, task) for chosen in test.detailed]
    for by in (SIZE, DISTANCE):
        if any(key[2] == by for key in test.sizes):
            made[f"detail-{by}"] = [by_size(test, *chosen, by) for chosen in test.detailed]
    drawn = {key[0] for key in test.coordinates}
    for index, method in enumerate(test.methods):
        if any(network.method == method and network.name in drawn for network in test.networks):
            made[f"detail-coordinates-{index}"] = [by_coordinate(test, *chosen, method) for chosen in test.detailed]
    return made


def on_id(test: LocalizationFacts, task: str, metric: Metric) -> View:
    """A metric on ID data: networks side by side, a mark with its bounds for each method."""
    series = []
    families = [family for family in test.families if test.of_family(family, task)]
    for index, method in enumerate(test.methods):
        variants = [test.variant(family, method, task) for family in families]
        cells = [Estimate(math.nan) if own is None else test.cell(own.name, TEST, metric.name) for own in variants]
        hover = [
            "" if own is None else _hover(test, own, test.sets[0], metric, cell)
            for own, cell in zip(variants, cells, strict=True)
        ]
        series.append(Series(method_label(method), index, cells, hover))
    return marks_by_name(metric, families, series, height=300)


def methods(test: LocalizationFacts, family: str, task: str, metric: Metric) -> View:
    """A metric of one network on every set: a mark with its bounds for each method."""
    sets = test.sets_of(task)
    series = []
    for network in test.of_family(family, task):
        cells = [test.cell(network.name, image_set.name, metric.name) for image_set in sets]
        hover = [_hover(test, network, own, metric, cell) for own, cell in zip(sets, cells, strict=True)]
        series.append(Series(network.method_label, test.methods.index(network.method), cells, hover))
    return marks_by_name(metric, [set_label(image_set, task) for image_set in sets], series, height=330, name=family)


def marks_by_name(metric: Metric, names: Sequence[str], series: Sequence[Series], height: int, name: str = "") -> View:
    """Marks with bounds in groups: a group for each name, in it a mark for each series that has a value."""
    shown = [own for own in series if not all(cell.missing for cell in own.cells)]
    step = ROOM / max(len(shown), 1)
    traces = []
    for order, own in enumerate(shown):
        colour, symbol = look(own.colour_index)
        shift = step * (order - (len(shown) - 1) / 2)
        whiskers = drawing.whiskers(own.cells) | {"width": 2, "color": colour}
        points: dict[str, Any] = {"x": [round(position + shift, 4) for position in range(len(names))]}
        points["y"] = [plain(cell.value) for cell in own.cells]
        marker = {"color": colour, "symbol": symbol, "size": 8}
        traces.append(
            drawing.trace("scatter", own.hover, mode="markers", **points, marker=marker, error_y=whiskers)
            | {"name": text(own.label), "cliponaxis": False}
        )
    layout = _layout(height)
    layout["xaxis"] = drawing.names_axis(names, 20, range=[-0.5, len(names) - 0.5], **_turned(names))
    layout["shapes"] = _between(names)
    layout["yaxis"] = _value_axis(metric, [cell for own in shown for cell in own.cells])
    return _or_empty(drawing.view(text(name or metric.label), traces, layout))


def under_shift(test: LocalizationFacts, task: str, metric: Metric) -> View:
    """A metric on every set: a box for each network, over its methods, with a point for each method."""
    traces, cells = [], []
    sets = test.sets_of(task)
    for index, family in enumerate(test.families):
        points = [
            (own, network, cell)
            for own in sets
            for network in test.of_family(family, task)
            if not (cell := test.cell(network.name, own.name, metric.name)).missing
        ]
        colour, _ = look(index)
        hover = [_hover(test, network, own, metric, cell) for own, network, cell in points]
        cells += [cell for *_, cell in points]
        values = {
            "x": [text(set_label(own, task)) for own, *_ in points],
            "y": [plain(cell.value) for *_, cell in points],
        }
        box: dict[str, Any] = {"line": {"color": colour, "width": 1.2}, "marker": {"color": colour, "size": 4}}
        box |= {"boxpoints": "all", "pointpos": 0, "jitter": 0.35, "hoveron": "points", "fillcolor": "#ffffff00"}
        traces.append(drawing.trace("box", hover, **values, **box) | {"name": text(family)})
    layout = _layout(340) | {"boxmode": "group", "boxgap": 0.25, "boxgroupgap": 0.2}
    order = [text(set_label(own, task)) for own in sets]
    layout["xaxis"] = {"type": "category", "categoryorder": "array", "categoryarray": order, "fixedrange": True}
    layout["xaxis"] |= {"automargin": True, "showgrid": False, "range": [-0.5, len(order) - 0.5]}
    layout["xaxis"] |= _turned(order)
    layout["shapes"] = _between(order)
    layout["yaxis"] = _value_axis(metric, [Estimate(cell.value) for cell in cells])
    return _or_empty(drawing.view(text(metric.label), traces, layout))


def networks_under_shift(test: LocalizationFacts, task: str, metric: Metric) -> View:
    """A metric on every set where no network has several methods: a mark with its bounds for each network."""
    sets, series = test.sets_of(task), []
    for index, family in enumerate(test.families):
        for network in test.of_family(family, task):
            cells = [test.cell(network.name, own.name, metric.name) for own in sets]
            hover = [_hover(test, network, own, metric, cell) for own, cell in zip(sets, cells, strict=True)]
            series.append(Series(family, index, cells, hover))
    return marks_by_name(metric, [set_label(own, task) for own in sets], series, height=340)


def reliability(test: LocalizationFacts, family: str, image_set: ImageSet) -> View:
    """Confidence (across) and accuracy (up), a line for each method; on the dashed line they are equal."""
    hover = "confidence %{x:.2f}, right %{y:.2f}"
    lines = _lines(test, family, image_set, CLASSES, test.reliability, hover)
    layout = _reliability_layout("mean confidence of the bin", "accuracy in the bin")
    return _or_empty(drawing.view(_chosen(family, image_set), lines, layout), _lacks(test, family, CLASSES))


def by_coordinate(test: LocalizationFacts, family: str, image_set: ImageSet, method: str) -> View:
    """Predicted quantiles (across) and the share of true coordinates below (up), a line for each coordinate."""
    network, lines = test.variant(family, method, BOXES), []
    for index, (coordinate, label) in enumerate((COORDINATE_LABELS | {"": MEAN_LINE}).items()):
        curve = test.coordinates.get((network.name, image_set.name, coordinate)) if network else None
        if curve is not None:
            line = _line(curve.x, curve.y, index, "quantile %{x:.1f}, below it %{y:.2f}")
            lines.append(line | {"name": label})
    layout = _reliability_layout("predicted quantile", "share of true coordinates below")
    lacks = "no values here" if network else f"{text(family)} has no {text(method_label(method))} for boxes"
    return _or_empty(drawing.view(_chosen(family, image_set), lines, layout), lacks)


def _reliability_layout(across: str, up: str) -> dict[str, Any]:
    layout = _square_layout(across, up) | {"shapes": [_diagonal()]}
    layout["xaxis"]["range"] = layout["yaxis"]["range"] = [-0.03, 1.03]
    return layout


def sparsified(test: LocalizationFacts, family: str, image_set: ImageSet, task: str) -> View:
    """The mean error of the surest answers by the share that is kept; dotted is what an oracle would reach."""
    hover = "kept %{x:.0%}, error %{y:.3f}"
    lines = _lines(test, family, image_set, task, test.sparsification, hover)
    oracles = _lines(
        test, family, image_set, task, test.sparsification, f"oracle, {hover}", lambda curve: curve.beside, dash="dot"
    )
    layout = _square_layout("share of the images kept", "share wrong" if task == CLASSES else "mean of 1 − IoU")
    layout["xaxis"] |= {"tickformat": ".0%", "range": [0, 1.03]}
    layout["yaxis"] |= {"rangemode": "tozero"}
    return _or_empty(drawing.view(_chosen(family, image_set), [*lines, *oracles], layout), _lacks(test, family, task))


def _lines(
    test: LocalizationFacts,
    family: str,
    image_set: ImageSet,
    task: str,
    curves: Any,
    hover: str,
    height_of: Callable[[Curve], Sequence[float]] = lambda curve: curve.y,
    dash: str = "solid",
) -> list[dict[str, Any]]:
    """A line for each method of a network that has one."""
    lines = []
    for network in test.of_family(family, task):
        curve = curves.get((network.name, image_set.name, task))
        if curve is None:
            continue
        line = _line(curve.x, height_of(curve), test.methods.index(network.method), hover, dash)
        lines.append(line | {"name": text(network.method_label)})
    return lines


def _line(across: Sequence[float], up: Sequence[float], index: int, hover: str, dash: str = "solid") -> dict[str, Any]:
    """A line in the colour and with the marks of an index; a dashed one has no marks."""
    colour, symbol = look(index)
    line: dict[str, Any] = {"type": "scatter", "mode": "lines+markers" if dash == "solid" else "lines"}
    line |= {"x": [plain(value) for value in across], "y": [plain(value) for value in up], "cliponaxis": False}
    line |= {"line": {"color": colour, "width": 1.8, "dash": dash}}
    line |= {"marker": {"color": colour, "symbol": symbol, "size": 5}}
    return line | {"hovertemplate": f"<b>%{{fullData.name}}</b><br>{hover}<extra></extra>"}


def by_size(test: LocalizationFacts, family: str, image_set: ImageSet, by: str) -> View:
    """The IoU of a network on a set by the size or the distance of the object, a mark for each method."""
    metric = test.metric(QUALITY[BOXES])
    networks = [own for own in test.of_family(family, BOXES) if (own.name, image_set.name, by) in test.sizes]
    bins = test.sizes[networks[0].name, image_set.name, by] if networks else ()
    names = [bin_label(own.low, own.high, by) for own in bins]
    series = []
    for network in networks:
        cells = [own.cells.get(metric.name, Estimate(math.nan)) for own in test.sizes[network.name, image_set.name, by]]
        hover = [
            drawing.hover_text(network.method_label, f"{name}, {cell.n} images", metric, cell)
            for name, cell in zip(names, cells, strict=True)
        ]
        series.append(Series(network.method_label, test.methods.index(network.method), cells, hover))
    shown = marks_by_name(metric, names, series, height=300, name=_chosen(family, image_set))
    title = "side of the object in percent of the image's" if by == SIZE else "distance of the object in metres"
    shown["layout"]["xaxis"]["title"] = drawing.axis_title(title)
    return shown


def search(test: LocalizationFacts, model: str, task: str) -> View:
    """The trials of a search: their value on validation data over the learning rate, darker with more dropout."""
    trials = [row for row in test.searches[model, task] if not math.isnan(number_of(row["value"]))]
    hover = [
        f"<b>trial {row['trial']}</b>, {text(row['state'])}<br>value {quantity(row['value'], 4)}<br>"
        f"learning rate {quantity(row['learning_rate'])}<br>dropout {quantity(row['dropout'])}<br>"
        f"head width {quantity(row['hidden'])}"
        for row in trials
    ]
    dropout = [plain(number_of(row["dropout"]), 0.0) for row in trials]
    marker = {"size": 9, "color": dropout, "colorscale": [*TRIAL_COLOURS], "line": {"color": MUTED, "width": 1}}
    points = {"x": [plain(row["learning_rate"]) for row in trials], "y": [plain(row["value"]) for row in trials]}
    traces = [drawing.trace("scatter", hover, mode="markers", **points, marker=marker)]
    layout = _square_layout("learning rate", "value on validation data")
    layout["xaxis"] |= {"type": "log", "dtick": 1, "exponentformat": "power"}
    return _or_empty(drawing.view(f"{text(model)}, {text(task)}", traces, layout))


def _hover(test: LocalizationFacts, network: Network, image_set: ImageSet, metric: Metric, cell: Estimate) -> str:
    poor = " (undertrained)" if network.name in test.undertrained else ""
    name = f"{network.family}, {network.method_label}{poor}"
    return drawing.hover_text(name, image_set.label, metric, cell)


def _chosen(family: str, image_set: ImageSet) -> str:
    return text(f"{family}, {image_set.label}")


def _layout(height: int) -> dict[str, Any]:
    return drawing.layout_of(height=height, margin={"l": 8, "r": 10, "t": 8, "b": 8})


def _value_axis(metric: Metric, cells: Sequence[Estimate]) -> dict[str, Any]:
    ends = drawing.ends_of(cells)
    axis = {"range": drawing.padded(min(ends), max(ends)), "nticks": 6, **VALUE_AXIS, "automargin": True}
    arrow = {True: " (higher is better)", False: " (lower is better)", None: ""}[metric.higher_is_better]
    return axis | {"title": drawing.axis_title(f"{metric.label}{arrow}"), "tickformat": drawing.tick_format(metric)}


def _square_layout(across: str, up: str) -> dict[str, Any]:
    layout = _layout(320)
    for axis, title in (("xaxis", across), ("yaxis", up)):
        layout[axis] = {"nticks": 6, **VALUE_AXIS, "automargin": True, "title": drawing.axis_title(title)}
    return layout


def _turned(names: Sequence[str]) -> dict[str, Any]:
    """Names that end at their place, where there are too many to stand side by side."""
    return {"tickangle": -35} if len(names) > MANY_NAMES else {}


def _between(names: Sequence[str]) -> list[dict[str, Any]]:
    """A pale line between any two names."""
    lines = [drawing.line_at("x", position + 0.5, "solid") for position in range(len(names) - 1)]
    return [line | {"line": {"color": drawing.GRID, "width": 1}, "layer": "below"} for line in lines]


def _diagonal() -> dict[str, Any]:
    return {"type": "line", "x0": 0, "y0": 0, "x1": 1, "y1": 1, "line": {"color": MUTED, "width": 1, "dash": "dash"}}


def _lacks(test: LocalizationFacts, family: str, task: str) -> str:
    """Why a network has no curve of a task."""
    return "no values here" if test.of_family(family, task) else f"{text(family)} answers no {task}"


def _or_empty(shown: View, reason: str = "no values here") -> View:
    """The view, or the reason in its place, on a low chart, where it has nothing to draw."""
    if not any(trace.get("y") for trace in shown["data"]):
        shown["layout"]["height"] = 120
        words = {"text": reason, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
        shown["layout"]["annotations"] = [words | {"font": {"color": MUTED}}]
        shown["layout"] |= {axis: {"visible": False} for axis in ("xaxis", "yaxis")} | {"shapes": []}
    return shown
