"""3. Neuron activation pattern: the share of the images of a scenario that excite a layer unlike most of them.

    M_neu-pattern = sum |G_i| over i outside {j-1, j, j+1} / n          (equation 3)

The n images of a scenario, a value of each condition, fall into groups G_i by their number of active neurons; G_j is
the largest group, the first of equals.
"""

from __future__ import annotations

import math

import numpy as np

from roadworthy.metrics import Metric
from roadworthy.metrics.neurons import activation_pattern, group_advice
from roadworthy.protocols.dependability.bounds import from_mean
from roadworthy.protocols.dependability.measures.base import BeforeRun, Results
from roadworthy.protocols.dependability.measures.over_layers import OverLayers, layers_of
from roadworthy.protocols.dependability.names import ALL, TEST, each_scenario_scope, layer_scope
from roadworthy.protocols.dependability.stored import ReadLayer, StoredData
from roadworthy.protocols.dependability.table_specs import PATTERN_GROUPS, PATTERNS

GROUPS = (4, 6, 10, 16, 25, 40)
"""Numbers of groups at which the pattern of each scenario is looked at, beside the one used and the one advised."""

NEURON_PATTERN = Metric(
    "neuron_pattern",
    label="Activation pattern",
    sentence="Share of the images of a scenario that excite a layer unlike most others of it.",
    higher_is_better=False,
    percent=True,
    mean_over_objects=True,
)


class NeuronActivationPattern(OverLayers):
    """The pattern of every layer: of all images, of every value of a condition, and of every full scenario.

    A scenario is a value of each condition. The figure of scope `each scenario` is the share of images that lie apart
    from most of their own full scenario, over the scenarios that enough images show.
    """

    prefix = NEURON_PATTERN.name
    metrics = (NEURON_PATTERN,)
    tables = (PATTERNS, PATTERN_GROUPS)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """Every layer: alone, with each full scenario, and with every value of a condition."""
        layers, values = layers_of(before.resolved.settings), before.resolved.value_scopes
        scopes = list[str]()
        for layer in layers:
            scopes += [layer_scope(layer), *([each_scenario_scope(layer)] if values else [])]
            scopes += [layer_scope(layer, value) for value in values]
        return {NEURON_PATTERN.name: scopes}

    def measure_layer(self, data: StoredData, results: Results, model: str, read: ReadLayer) -> None:
        """A figure and a row per scenario of at most one condition, a row per full scenario of several images.

        The figure of `each scenario` is of all full scenarios.
        """
        if read.data != TEST:
            return
        full = len(data.conditions)
        for conditions in (0, 1, *([full] if full > 1 and not data.context.of_test_alone else [])):
            for scenario, rows in data.scenarios(conditions):
                if conditions > 1 and len(rows) < 2:
                    continue  # one image alone cannot lie apart
                pattern = activation_pattern(read.on[rows], data.settings.pattern_groups, threshold=0.5)
                objects = data.objects[rows]
                if conditions < 2:
                    bounded = from_mean(pattern.apart, objects, 0, 1, pattern.reason)
                    results.add(model, layer_scope(read.layer, scenario), NEURON_PATTERN.name, objects, bounded)
                row = {"model": model, "layer": read.layer, "scenario": scenario or ALL, "n": len(rows)}
                row |= {"sizes": " ".join(map(str, pattern.sizes.tolist())), "conditions": conditions}
                results.rows[PATTERNS].append(vars(pattern) | row)
        if full and not data.context.of_test_alone:
            self._each_scenario(data, results, model, read)

    def _each_scenario(self, data: StoredData, results: Results, model: str, read: ReadLayer) -> None:
        """The figure of all full scenarios that enough images show, and a row for each number of groups."""
        fewest, wanted = data.settings.pattern_images, data.settings.pattern_groups
        scenarios = list(data.scenarios(len(data.conditions)))
        several = [rows for _, rows in scenarios if len(rows) >= fewest]
        names = np.full(len(read.on), "", object)
        for scenario, rows in scenarios:
            names[rows] = scenario
        known = names != ""
        neurons = read.on.shape[1]
        advice = group_advice(read.on[known].sum(axis=1), names[known].astype(str), neurons, wanted)
        why = f"{len(several)} of {len(scenarios)} full scenarios have {fewest} images or more"
        for groups in sorted({*GROUPS, wanted, *([advice.advised] if advice.advised else [])}):
            apart = [activation_pattern(read.on[rows], groups, threshold=0.5).apart for rows in several]
            images = np.concatenate(several) if several else np.zeros(0, np.intp)
            values = np.concatenate(apart) if apart else np.zeros(0, bool)
            if groups == wanted:
                objects = data.objects[images]
                bounded = from_mean(values, objects, 0, 1, why)
                results.add(model, each_scenario_scope(read.layer), NEURON_PATTERN.name, objects, bounded)
            note = [word for word, own in (("used", wanted), ("advised", advice.advised)) if own == groups]
            results.rows[PATTERN_GROUPS].append(
                {
                    "model": model,
                    "layer": read.layer,
                    "groups": groups,
                    "width": neurons / groups,
                    "spread": advice.spread,
                    "value": float(values.mean()) if len(values) else math.nan,
                    "n": len(values),
                    "scenarios": len(several),
                    "note": ", ".join(note),
                    "reason": why,
                }
            )
