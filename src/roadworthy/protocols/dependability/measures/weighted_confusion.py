"""8. Weighted confusion: what the mistakes cost, as a share of the worst possible.

    M_confusion = sum_i s(y_i, prediction_i) / sum_i max_k s(y_i, k)

s(a, b) is the severity of taking an image of class a for one of class b.
"""

from __future__ import annotations

import math

import numpy as np

from roadworthy.metrics import Metric, weighted_confusion
from roadworthy.protocols.dependability.bounds import from_resamples
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results
from roadworthy.protocols.dependability.names import ALL
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import CONFUSIONS

WEIGHTED_CONFUSION = Metric(
    "weighted_confusion",
    label="Weighted confusion",
    sentence="Cost of all mistakes, by their severity, as a share of the worst possible; 0 is perfect.",
    higher_is_better=False,
    percent=True,
)
METRIC = WEIGHTED_CONFUSION.name


class WeightedConfusion(Measure):
    """The cost of all mistakes, and the confusions behind it, the most expensive first."""

    metrics = (WEIGHTED_CONFUSION,)
    tables = (CONFUSIONS,)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images."""
        return {METRIC: [ALL]}

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """No value without severities, and where no mistake of the classes shown costs anything."""
        answers = data.readouts[model].answers
        if data.resolved.severity is None:
            results.missing[model, METRIC] = "the study names no severity matrix"
            return
        cost = weighted_confusion.WeightedConfusion(np.array(data.resolved.severity))
        value, why = cost(answers), cost.reason(answers)
        if why:
            results.missing[model, METRIC] = why
            return
        bootstrap = data.bootstrap(data.objects)
        bounded = from_resamples(value, bootstrap.distribution(cost, answers), bootstrap.groups, (0.0, 1.0))
        results.add(model, ALL, METRIC, data.objects, bounded)
        confusions = cost.most_expensive(answers)
        total = math.fsum(confusion.cost for confusion in confusions)
        for confusion in confusions:
            label, prediction = data.class_names[confusion.label], data.class_names[confusion.prediction]
            row = {"model": model, "label": label, "prediction": prediction, "cost": confusion.cost}
            results.rows[CONFUSIONS].append(vars(confusion) | row | {"share": confusion.cost / total})
