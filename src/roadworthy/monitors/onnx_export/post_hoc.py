"""Scores of post-hoc detectors that read the answer alone: entropy, margin, gen, temperature_msp."""

from __future__ import annotations

import numpy as np

from roadworthy.monitors.confidence import SMALLEST
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.builder import Tensor
from roadworthy.monitors.onnx_export.network import ModelGraph
from roadworthy.monitors.onnx_export.scores import ONNX_SCORES
from roadworthy.monitors.post_hoc import Entropy, Gen, Margin, TemperatureMsp


@ONNX_SCORES.register("entropy")
def entropy_score(graph: ModelGraph, monitor: Entropy, state: Learned, rule: Learned) -> Tensor:
    """sum_k p_k log p_k, (N,)."""
    answers = graph.cast(graph.probabilities, np.float64)
    terms = graph.add("Mul", answers, graph.add("Log", graph.add("Max", answers, SMALLEST)))
    return graph.cast(graph.reduce("ReduceSum", terms), np.float32)


@ONNX_SCORES.register("margin")
def margin_score(graph: ModelGraph, monitor: Margin, state: Learned, rule: Learned) -> Tensor:
    """The largest probability less the second largest, (N,)."""
    classes = graph.model.num_classes
    ranked = graph.nearest(graph.cast(graph.probabilities, np.float64), classes)
    first, second = (graph.add("Gather", ranked, np.array(classes - rank), axis=1) for rank in (1, 2))
    return graph.cast(graph.add("Sub", first, second), np.float32)


@ONNX_SCORES.register("gen")
def gen_score(graph: ModelGraph, monitor: Gen, state: Learned, rule: Learned) -> Tensor:
    """Minus the generalised entropy, (N,); 1 - p of the largest probability is the sum of the others."""
    classes = graph.model.num_classes
    ranked = graph.nearest(graph.cast(graph.probabilities, np.float64), classes)
    smaller = graph.add("Gather", ranked, np.arange(classes - 1), axis=1)
    complements = graph.add("Sub", 1.0, smaller)
    others = graph.add("Concat", complements, graph.reduce("ReduceSum", smaller, keep=True), axis=1)
    terms = graph.add("Pow", graph.add("Mul", ranked, graph.add("Max", others, 0.0)), monitor.gamma)
    kept = graph.add("Gather", terms, np.arange(max(0, classes - monitor.largest), classes), axis=1)
    return graph.cast(graph.add("Neg", graph.reduce("ReduceSum", kept)), np.float32)


@ONNX_SCORES.register("temperature_msp")
def temperature_msp_score(graph: ModelGraph, monitor: TemperatureMsp, state: Learned, rule: Learned) -> Tensor:
    """1 / sum_k exp((z_k - max z) / T), (N,)."""
    temperature = float(state["temperature"]) if monitor.temperature is None else monitor.temperature
    scaled = graph.add("Div", graph.cast(graph.logits, np.float64), temperature)
    below = graph.add("Exp", graph.add("Sub", scaled, graph.reduce("ReduceMax", scaled, keep=True)))
    return graph.cast(graph.add("Reciprocal", graph.reduce("ReduceSum", below)), np.float32)
