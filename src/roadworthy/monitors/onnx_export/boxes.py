"""The score of boxes: how far outside the boxes of its predicted class an image is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.monitors.boxes import NEVER_INSIDE, Boxes
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.builder import NotExportable, Tensor
from roadworthy.monitors.onnx_export.network import ModelGraph
from roadworthy.monitors.onnx_export.scores import ONNX_SCORES

NO_ISOMAP = (
    "monitor boxes with reduction isomap cannot be written as ONNX: it searches the shortest way among all points of a "
    "class; use the folder of the guard, or reduction pca"
)


@ONNX_SCORES.register("boxes")
def boxes_score(graph: ModelGraph, monitor: Boxes, state: Learned, rule: Learned) -> Tensor:
    """-max(0, min over boxes of max_d (|f_d - c_d| - h_d - e) / max(h_d, e)), (N,), over boxes of the predicted class.

    Every class has the same number B of boxes in the file: those that it has not are infinitely far away.
    """
    if monitor.reduction == "isomap":
        raise NotExportable(NO_ISOMAP)
    features = graph.cast(graph.features(monitor.layer), np.float64)
    centres, reach, width, missing = _boxes_by_class(state, graph.model.num_classes)
    points = graph.add("Unsqueeze", _coordinates(graph, monitor, state, features), np.array([1]))

    def of_predicted(table: NDArray[Any]) -> Tensor:
        return graph.add("Gather", graph.constant(table), graph.predicted, axis=0)

    distances = graph.add("Abs", graph.add("Sub", points, of_predicted(centres)))
    beyond = graph.add("Div", graph.add("Sub", distances, of_predicted(reach)), of_predicted(width))
    by_box = graph.add("Add", graph.reduce("ReduceMax", beyond, (2,)), of_predicted(missing))
    least = graph.add("Max", graph.reduce("ReduceMin", by_box), 0.0)
    score = graph.add("Max", graph.add("Neg", least), NEVER_INSIDE)
    return graph.cast(graph.add("Add", score, nan_where_not_finite(graph, features)), np.float32)


def nan_where_not_finite(graph: ModelGraph, features: Tensor) -> Tensor:
    """0 for each image, (N,), but NaN where one of its features (N, D) is NaN or infinite: such a score is rejected."""
    return graph.reduce("ReduceSum", graph.add("Mul", features, 0.0))


def _coordinates(graph: ModelGraph, monitor: Boxes, state: Learned, features: Tensor) -> Tensor:
    """Points (N, d) in the space of the predicted class, of features (N, D)."""
    if monitor.reduction == "none":
        return features
    if monitor.reduction == "two_neurons":
        return graph.add("Gather", features, np.array([0, -1]), axis=1)
    classes = range(graph.model.num_classes)
    first = int(state["classes"][0])
    means, directions = (
        np.stack([state.get(f"{label}.{name}", np.zeros_like(state[f"{first}.{name}"])) for label in classes])
        for name in ("mean", "directions")
    )
    centred = graph.add("Sub", features, graph.add("Gather", graph.constant(means), graph.predicted, axis=0))
    own = graph.add("Gather", graph.constant(directions), graph.predicted, axis=0)
    rows = graph.add("MatMul", graph.add("Unsqueeze", centred, np.array([1])), own)
    return graph.add("Squeeze", rows, np.array([1]))


def _boxes_by_class(state: Learned, classes: int) -> tuple[NDArray[Any], ...]:
    """Centres, h + e and max(h, e), each (K, B, d), and what is added to the distance of a box: 0, or infinity (K, B).

    B is the largest number of boxes that a class has.
    """
    owners, dimensions = state["classes"], state["centres"].shape[1]
    most = int(np.bincount(owners, minlength=classes).max())
    centres, reach = np.zeros((classes, most, dimensions)), np.zeros((classes, most, dimensions))
    width, missing = np.ones((classes, most, dimensions)), np.full((classes, most), np.inf)
    for label in range(classes):
        own, tolerance = owners == label, state["tolerances"][label]
        count, half = int(own.sum()), state["half_widths"][own]
        centres[label, :count], reach[label, :count] = state["centres"][own], half + tolerance
        width[label, :count], missing[label, :count] = np.maximum(half, tolerance), 0.0
    return centres, reach, width, missing
