"""Scores of the answer itself: msp, max_logit, energy, kl_matching, doctor."""

from __future__ import annotations

import numpy as np

from roadworthy.monitors.confidence import SMALLEST, Energy, KlMatching, MaxLogit, Msp
from roadworthy.monitors.doctor import Doctor
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.builder import Tensor
from roadworthy.monitors.onnx_export.network import ModelGraph
from roadworthy.monitors.onnx_export.scores import ONNX_SCORES


@ONNX_SCORES.register("msp")
def msp_score(graph: ModelGraph, monitor: Msp, state: Learned, rule: Learned) -> Tensor:
    """The largest probability, (N,)."""
    return graph.reduce("ReduceMax", graph.probabilities)


@ONNX_SCORES.register("max_logit")
def max_logit_score(graph: ModelGraph, monitor: MaxLogit, state: Learned, rule: Learned) -> Tensor:
    """The largest logit, (N,)."""
    return graph.reduce("ReduceMax", graph.logits)


def add_energy(graph: ModelGraph, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """T log sum_k exp(z_k / T) of logits (N, K): (N,) float64."""
    values = graph.cast(logits, np.float64)
    if temperature == 1.0:
        return graph.reduce("ReduceLogSumExp", values)
    return graph.add("Mul", graph.reduce("ReduceLogSumExp", graph.add("Div", values, temperature)), temperature)


@ONNX_SCORES.register("energy")
def energy_score(graph: ModelGraph, monitor: Energy, state: Learned, rule: Learned) -> Tensor:
    """The energy of the logits, (N,)."""
    return graph.cast(add_energy(graph, graph.logits, monitor.temperature), np.float32)


@ONNX_SCORES.register("kl_matching")
def kl_matching_score(graph: ModelGraph, monitor: KlMatching, state: Learned, rule: Learned) -> Tensor:
    """max_c sum_k p_k log d_ck - sum_k p_k log p_k over the templates d_c, (N,)."""
    templates = state["templates"][state["templates"].any(axis=1)]
    answers = graph.cast(graph.probabilities, np.float64)
    matches = graph.add("MatMul", answers, np.log(np.maximum(templates, SMALLEST)).T)
    own = graph.add("Mul", answers, graph.add("Log", graph.add("Max", answers, SMALLEST)))
    score = graph.add("Sub", graph.reduce("ReduceMax", matches), graph.reduce("ReduceSum", own))
    return graph.cast(score, np.float32)


@ONNX_SCORES.register("doctor")
def doctor_score(graph: ModelGraph, monitor: Doctor, state: Learned, rule: Learned) -> Tensor:
    """Minus the odds of an error, (N,), summed from the smaller probabilities as `error_odds` does."""
    classes = graph.model.num_classes
    ascending = graph.nearest(graph.cast(graph.probabilities, np.float64), classes)
    scaled = graph.add("Div", ascending, graph.add("Gather", ascending, np.array([classes - 1]), axis=1))
    scaled = scaled if monitor.temperature == 1.0 else graph.add("Pow", scaled, 1.0 / monitor.temperature)
    smaller = graph.add("Gather", scaled, np.arange(classes - 1), axis=1)
    if monitor.variant == "alpha":
        sums_below = graph.add("CumSum", smaller, np.array(1))
        larger = graph.add("Gather", scaled, np.arange(1, classes), axis=1)
        pairs = graph.reduce("ReduceSum", graph.add("Mul", graph.add("Mul", larger, sums_below), 2.0))
        odds = graph.add("Div", pairs, graph.reduce("ReduceSumSquare", scaled))
    else:
        odds = graph.reduce("ReduceSum", smaller)
    return graph.cast(graph.add("Neg", odds), np.float32)
