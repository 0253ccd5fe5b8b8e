"""Scores of the features of a layer: mahalanobis, vim, react, deep_knn. All in double precision, as in Python."""

from __future__ import annotations

import numpy as np

from roadworthy.monitors.features import Mahalanobis, React, Vim
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.neighbours import SHORTEST, DeepKnn
from roadworthy.monitors.onnx_export.builder import Tensor
from roadworthy.monitors.onnx_export.confidence import add_energy
from roadworthy.monitors.onnx_export.network import ModelGraph
from roadworthy.monitors.onnx_export.scores import ONNX_SCORES


@ONNX_SCORES.register("mahalanobis")
def mahalanobis_score(graph: ModelGraph, monitor: Mahalanobis, state: Learned, rule: Learned) -> Tensor:
    """max_k (2 w m_k - |m_k|^2) - |w|^2 of whitened features w and class means m_k, (N,)."""
    values = graph.cast(graph.features(monitor.layer), np.float64)
    whitened = graph.add("MatMul", graph.add("Sub", values, state["origin"]), state["whitening"])
    means = state["means"]
    products = graph.add("MatMul", whitened, 2.0 * means.T)
    nearest = graph.reduce("ReduceMax", graph.add("Sub", products, np.square(means).sum(axis=1)))
    return graph.cast(graph.add("Sub", nearest, graph.reduce("ReduceSumSquare", whitened)), np.float32)


@ONNX_SCORES.register("vim")
def vim_score(graph: ModelGraph, monitor: Vim, state: Learned, rule: Learned) -> Tensor:
    """The energy less the scaled length of what leaves the principal space, (N,)."""
    values = graph.cast(graph.features(), np.float64)
    residual, space = graph.add("Sub", values, state["origin"]), state["principal"]
    if space.shape[1]:
        inside = graph.add("MatMul", graph.add("MatMul", residual, space), space.T)
        residual = graph.add("Sub", residual, inside)
    virtual = graph.add("Mul", graph.reduce("ReduceL2", residual), state["scale"])
    return graph.cast(graph.add("Sub", add_energy(graph, _last_layer(graph, values, state)), virtual), np.float32)


@ONNX_SCORES.register("react")
def react_score(graph: ModelGraph, monitor: React, state: Learned, rule: Learned) -> Tensor:
    """The energy of the features, cut at their quantile, (N,)."""
    values = graph.add("Min", graph.cast(graph.features(), np.float64), state["cut"])
    return graph.cast(add_energy(graph, _last_layer(graph, values, state)), np.float32)


@ONNX_SCORES.register("deep_knn")
def deep_knn_score(graph: ModelGraph, monitor: DeepKnn, state: Learned, rule: Learned) -> Tensor:
    """Minus the distance to the k-th nearest reference, (N,), by |a - b|^2 = |a|^2 + |b|^2 - 2 a.b in float64.

    The references are stored in float32, as they were learned.
    """
    values = graph.cast(graph.features(monitor.layer), np.float64)
    length = graph.add("Max", graph.reduce("ReduceL2", values, keep=True), SHORTEST)
    query = graph.cast(graph.cast(graph.add("Div", values, length), np.float32), np.float64)
    references = state["features"]
    columns = graph.cast(graph.constant(references.T, np.float32), np.float64)
    squares = np.square(references, dtype=np.float64).sum(axis=1)
    panel = graph.add("Sub", squares, graph.add("MatMul", graph.add("Mul", query, 2.0), columns))
    kth = graph.add("Gather", graph.nearest(panel, monitor.k), np.array(monitor.k - 1), axis=1)
    squared = graph.add("Max", graph.add("Add", kth, graph.reduce("ReduceSumSquare", query)), 0.0)
    return graph.cast(graph.add("Neg", graph.add("Sqrt", squared)), np.float32)


def _last_layer(graph: ModelGraph, values: Tensor, state: Learned) -> Tensor:
    """Logits (N, K) of features (N, D) by the last linear layer that was learned."""
    return graph.add("Add", graph.add("MatMul", values, state["weights"].T), state["bias"])
