"""2. Neuron k-activation: which on-off combinations of k neurons of a layer the data has shown (equation 2).

    M_neu-k-act = occupied cells / (C(c, k) 2^k)

A cell is k of the c neurons of a layer with one on-off combination; it is occupied where some image shows it. It is
counted on the training data, where the study names some, and on the test data.
"""

from __future__ import annotations

import math

from roadworthy.metrics import Metric
from roadworthy.metrics.neurons import KActivation, NeuronCoverage
from roadworthy.protocols.dependability.bounds import Bounded, counted, from_numbers, no_value
from roadworthy.protocols.dependability.measures.base import BeforeRun, Results, Row
from roadworthy.protocols.dependability.measures.over_layers import OverLayers, layers_of
from roadworthy.protocols.dependability.names import ACTIVATION, FigureKey, activation_metric, layer_scope
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.stored import ReadLayer, StoredData
from roadworthy.protocols.dependability.table_specs import NEURONS
from roadworthy.statistics import mean_interval

TUPLES = {1: "single neurons", 2: "pairs of neurons", 3: "triples of neurons"}


def neuron_activation(k: int) -> Metric:
    """The metric of tuples of k neurons.

    >>> neuron_activation(2).name, neuron_activation(2).label
    ('neuron_activation_2', 'Neuron 2-activation')
    """
    return Metric(
        activation_metric(k),
        label=f"Neuron {k}-activation",
        sentence=f"Share of the on-off combinations of {TUPLES.get(k, f'{k} neurons')} of a layer that the data shows.",
        higher_is_better=True,
        percent=True,
    )


class NeuronKActivation(OverLayers):
    """Neuron k-activation of every layer, for every k that the study names."""

    prefix = ACTIVATION
    metrics = tuple(neuron_activation(k) for k in TUPLES)
    tables = (NEURONS,)

    def metrics_of(self, settings: Settings) -> tuple[Metric, ...]:
        """One for every k that the study names."""
        return tuple(neuron_activation(k) for k in settings.activation_k)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """Every layer, for every k."""
        layers = [layer_scope(layer) for layer in layers_of(before.resolved.settings)]
        return {activation_metric(k): list(layers) for k in before.resolved.settings.activation_k}

    def measure_layer(self, data: StoredData, results: Results, model: str, read: ReadLayer) -> None:
        """A figure and a row for every k; none of a k above the number of neurons."""
        on, scope = read.on, layer_scope(read.layer)
        neurons = on.shape[1]
        for k in data.settings.activation_k:
            row: Row = {"model": model, "layer": read.layer, "data": read.data, "k": k, "images": len(on)}
            row["neurons"] = neurons
            row |= {"never_on": int((~on.any(axis=0)).sum()), "always_on": int(on.all(axis=0).sum())}
            results.rows[NEURONS].append(row)
            if k > neurons:
                why = f"the layer has {neurons} neurons"
                results.figures[FigureKey(model, scope, activation_metric(k), read.data)] = no_value(why)
                row |= {"value": math.nan, "exact": False, "reason": why}
                continue
            counter = NeuronCoverage(neurons, k, threshold=0.5, seed=data.seed)
            counter.add(on)
            result = counter.result()
            row |= {name: getattr(result, name) for name in ("value", "occupied", "cells", "tuples", "exact", "reason")}
            results.add(model, scope, activation_metric(k), read.groups, _bounds(result), read.data)


def _bounds(result: KActivation) -> Bounded:
    """None where all tuples were counted; else those of the sample, which bound the count of all."""
    if result.exact:
        return counted(result.value, result.reason, "count of all tuples")

    def numbers(confidence: float) -> tuple[float, float, float, str]:
        bounds = mean_interval(result.shares, range(result.tuples), 0, 1, confidence)
        return bounds.value, bounds.lo, bounds.hi, result.reason

    return from_numbers(numbers, f"sample of {result.tuples} tuples")
