"""3. Neuron activation pattern: the share of the images of a scenario that excite a layer unlike most of them.

    M_neu-pattern = sum |G_i| over i outside {j-1, j, j+1} / n          (equation 3)

The n images of a scenario fall into groups G_i by their number of active neurons; G_j is the largest group, the first
of equals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Metric
from roadworthy.metrics.neurons import activation_pattern
from roadworthy.protocols.dependability.bounds import from_mean
from roadworthy.protocols.dependability.measures.base import BeforeRun, Results
from roadworthy.protocols.dependability.measures.over_layers import OverLayers, layers_of
from roadworthy.protocols.dependability.names import ALL, layer_scope
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import PATTERNS

NEURON_PATTERN = Metric(
    "neuron_pattern",
    label="Activation pattern",
    sentence="Share of the images of a scenario that excite a layer unlike most others of it.",
    higher_is_better=False,
    percent=True,
    mean_over_objects=True,
)


class NeuronActivationPattern(OverLayers):
    """The activation pattern of every layer, over all images and over those of every value of a condition."""

    prefix = NEURON_PATTERN.name
    metrics = (NEURON_PATTERN,)
    tables = (PATTERNS,)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """Every layer, alone and with every value of a condition."""
        layers, values = layers_of(before.resolved.settings), ["", *before.resolved.value_scopes]
        return {NEURON_PATTERN.name: [layer_scope(layer, value) for layer in layers for value in values]}

    def measure_layer(self, data: StoredData, results: Results, model: str, layer: str, on: NDArray[np.bool_]) -> None:
        """A figure and a row per scenario of at most one condition."""
        for scenario, rows in data.scenarios(0, 1):
            pattern = activation_pattern(on[rows], data.settings.pattern_groups, threshold=0.5)
            objects = data.objects[rows]
            bounded = from_mean(pattern.apart, objects, 0, 1, pattern.reason)
            results.add(model, layer_scope(layer, scenario), NEURON_PATTERN.name, objects, bounded)
            row = {"model": model, "layer": layer, "scenario": scenario or ALL, "n": len(rows)}
            row["sizes"] = " ".join(map(str, pattern.sizes.tolist()))
            results.rows[PATTERNS].append(vars(pattern) | row)
