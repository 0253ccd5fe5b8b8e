"""5. Scenario based performance degradation: a metric of answers by scenario, and discounted for missing scenarios.

    m_s = m(images of scenario s)        m_discounted = m(all images) M_scene

for any metric m of answers; scenarios are the values of every condition and of every pair of conditions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import HIGHER_IS_BETTER, METRICS, Answers, per_image, value_range
from roadworthy.metrics import reason as reason_of
from roadworthy.protocols.dependability.bounds import (
    Bounded,
    discounted,
    from_interval,
    from_mean,
    from_resamples,
    no_value,
)
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results, count_objects
from roadworthy.protocols.dependability.names import ALL
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import SCENARIOS
from roadworthy.protocols.estimates import CONFIDENCE
from roadworthy.statistics import proportion_interval


class ScenarioBasedDegradation(Measure):
    """The metrics that the study names over all images, over every value and over every pair of values."""

    metrics = (("accuracy_discounted", "Accuracy times scenario coverage: what was not shown counts as failed."),)
    tables = (SCENARIOS,)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images and every value; discounted, all images alone, where more is better."""
        scopes = dict[str, list[str]]()
        for metric in before.resolved.settings.metrics:
            scopes[metric] = [ALL, *before.resolved.value_scopes]
            if HIGHER_IS_BETTER[metric]:
                scopes[f"{metric}_discounted"] = [ALL]
        return scopes

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Figures of at most one condition, and rows of up to two."""
        answers = data.readouts[model].answers
        coverage = math.nan if data.coverage is None else data.coverage.value
        for metric in data.settings.metrics:
            for count in (0, 1, 2):
                for scenario, rows in data.scenarios(count):
                    bounded, objects = _bounds(data, metric, answers, rows), data.objects[rows]
                    if count < 2:
                        results.add(model, scenario or ALL, metric, objects, bounded)
                    if not count and HIGHER_IS_BETTER[metric]:
                        reduced = discounted(bounded, coverage, data.no_conditions)
                        results.add(model, ALL, f"{metric}_discounted", objects, reduced)
                    where = {"model": model, "conditions": count, "scenario": scenario or ALL}
                    row = bounded(CONFIDENCE).row(where, metric, len(rows), count_objects(objects))
                    results.rows[SCENARIOS].append(row)


def _bounds(data: StoredData, metric: str, answers: Answers, rows: NDArray[np.intp]) -> Bounded:
    """A metric over some images, bounded by objects."""
    part, objects = _take(answers, rows), data.objects[rows]
    value = float(METRICS[metric](part))
    if math.isnan(value):
        return no_value(reason_of(metric, part) or "undefined")
    if metric == "accuracy":
        return from_interval(partial(proportion_interval, per_image(metric, part), objects))
    low, high = value_range(metric, answers.num_classes)
    if metric in ("brier", "brier_mean", "mean_confidence"):
        return from_mean(per_image(metric, part), objects, low, high)
    return from_resamples(value, METRICS[metric].of_rows, part, data.bootstrap(objects), (low, high))


def _take(answers: Answers, rows: NDArray[np.intp]) -> Answers:
    """The answers to some images."""
    if len(rows) == len(answers):
        return answers
    columns = {name: column[rows] for name, column in vars(answers).items() if name != "num_classes"}
    return replace(answers, **columns)
