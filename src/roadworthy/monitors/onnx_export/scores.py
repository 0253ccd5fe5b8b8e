"""How a monitor's score is written as nodes of a graph, by the name of the monitor; third parties add theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roadworthy.core.registry import Registry
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.builder import NotExportable, Tensor
from roadworthy.monitors.onnx_export.network import ModelGraph

OnnxScore = Callable[[ModelGraph, Any, Learned, Learned], Tensor]
"""Called with the graph, the settings of the monitor, what `fit` and what `tune` learned; adds nodes and returns the
tensor (N,), float32 or float64, that holds what `FittedMonitor.scores` gives."""

ONNX_SCORES: Registry[OnnxScore] = Registry("onnx_score")
"""The monitors that can be written as ONNX, by their name."""

OWN_NETWORKS = "it runs networks of its own, which no file of the model holds"
WHY_NOT = {
    "odin": "it follows a gradient of the network, and ONNX graphs give none",
    "odin_id": "it follows a gradient of the network, and ONNX graphs give none",
    "mahalanobis_full": "it follows a gradient of the network, and ONNX graphs give none",
    "rankfeat": "it runs the network anew from changed feature maps",
    "mc_dropout": "it asks the network in several random passes",
    "random": "it draws a number by the name of the image, which a graph does not see",
    "knn_svm": "it keeps all training images, at the size of the data and not of the network",
    "pytorch_ood": "it runs code of another library",
    **dict.fromkeys(("ae_threshold", "mnn_svm", "bnn_svm", "vnn_svm", "logistic_svm"), OWN_NETWORKS),
    **dict.fromkeys(("deep_ensemble", "bin_class", "pixelcnn"), OWN_NETWORKS),
}
"""Why a built-in monitor has no such form."""


def why_not_exportable(monitor: Monitor) -> str:
    """Why a monitor cannot be written as ONNX, as a clause; empty where it can be.

    >>> from roadworthy.monitors import Msp, Random
    >>> why_not_exportable(Msp()), why_not_exportable(Random())
    ('', 'it draws a number by the name of the image, which a graph does not see')
    """
    if monitor.is_sequential:
        return "its decision also depends on the images before, which a graph does not remember"
    if monitor.name in ONNX_SCORES:
        return ""
    return WHY_NOT.get(monitor.name, "nobody has registered its score in ONNX_SCORES")


def check_exportable(monitor: Monitor) -> None:
    """Refuse a monitor that cannot be written as ONNX, with the reason."""
    reason = why_not_exportable(monitor)
    if reason:
        raise NotExportable(f"monitor {monitor.name} cannot be written as ONNX: {reason}; use the folder of the guard")


def add_score(graph: ModelGraph, monitor: Monitor, state: Learned, rule: Learned) -> Tensor:
    """Add the nodes of a monitor's score (N,) and return its tensor."""
    return ONNX_SCORES.get(monitor.name)(graph, monitor, state, rule)
