"""The score of activation patterns: by how many neurons an image differs from all patterns of its predicted class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.boxes import nan_where_not_finite
from roadworthy.monitors.onnx_export.builder import Tensor
from roadworthy.monitors.onnx_export.network import ModelGraph
from roadworthy.monitors.onnx_export.scores import ONNX_SCORES
from roadworthy.monitors.patterns import ActivationPatterns


@ONNX_SCORES.register("activation_patterns")
def patterns_score(graph: ModelGraph, monitor: ActivationPatterns, state: Learned, rule: Learned) -> Tensor:
    """-min_p (sum_d b_d + sum_d p_d - 2 sum_d b_d p_d), (N,), over patterns p of the predicted class.

    b_d is 1 where neuron d is on and 0 where it is not. All sums are whole numbers that float32 holds exactly.
    """
    features, neurons = graph.features(monitor.layer), state["neurons"]
    values = features
    if (neurons != np.arange(neurons.shape[1])).any() or monitor.neurons is not None:
        own = graph.add("Gather", graph.constant(neurons, np.int64), graph.predicted, axis=0)
        values = graph.add("GatherElements", features, own, axis=1)
    is_on = graph.cast(graph.add("Greater", values, 0.0), np.float32)
    patterns = _unpacked(state["patterns"], neurons.shape[1])
    columns = graph.cast(graph.constant(patterns.T, np.uint8), np.float32)
    common = graph.add("MatMul", is_on, columns)
    differing = graph.add("Sub", patterns.sum(axis=1, dtype=np.float32), graph.add("Mul", common, np.float32(2)))
    distances = graph.add("Add", differing, graph.reduce("ReduceSum", is_on, keep=True))
    owners = np.repeat(np.arange(len(neurons)), np.diff(state["starts"]))
    is_own = graph.add("Equal", graph.add("Unsqueeze", graph.predicted, np.array([1])), owners[None].astype(np.int64))
    reached = graph.add("Where", is_own, distances, np.float32(neurons.shape[1] + 1))
    score = graph.add("Neg", graph.reduce("ReduceMin", reached))
    return graph.add("Add", score, nan_where_not_finite(graph, features))


def _unpacked(words: NDArray[np.uint64], neurons: int) -> NDArray[np.uint8]:
    """Patterns (n, neurons) of zeros and ones from numbers (n, W) of 64 bits each."""
    return np.unpackbits(np.ascontiguousarray(words.astype("<u8")).view(np.uint8), axis=1)[:, :neurons]
