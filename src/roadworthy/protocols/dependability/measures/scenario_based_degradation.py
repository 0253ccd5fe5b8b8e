"""5. Scenario based performance degradation: a metric of answers by scenario, and discounted for missing scenarios.

    m_s = m(images of scenario s)        m_discounted = m(all images) M_scene

for any metric m of answers; scenarios are the values of every condition and of every pair of conditions. M_scene is
that of the test data: what was not tested counts as failed.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import METRICS, Answers, Metric, accuracy
from roadworthy.protocols.dependability.bounds import (
    Bounded,
    discounted,
    from_interval,
    from_mean,
    from_resamples,
    no_bounds,
    no_value,
    over_objects,
)
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results
from roadworthy.protocols.dependability.names import ALL, TEST
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import SCENARIOS
from roadworthy.statistics import proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE


class ScenarioBasedDegradation(Measure):
    """The metrics that the study names over all images, over every value and over every pair of values."""

    metrics = (accuracy.discounted(),)
    tables = (SCENARIOS,)

    def metrics_of(self, settings: Settings) -> tuple[Metric, ...]:
        """Those that the study names, and discounted where more is better."""
        measured = [METRICS.get(name) for name in settings.metrics]
        return (*measured, *(metric.discounted() for metric in measured if metric.higher_is_better))

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images and every value; discounted, all images alone, where more is better."""
        scopes = dict[str, list[str]]()
        for metric in map(METRICS.get, before.resolved.settings.metrics):
            scopes[metric.name] = [ALL, *before.resolved.value_scopes]
            if metric.higher_is_better:
                scopes[metric.discounted().name] = [ALL]
        return scopes

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Figures of at most one condition, and rows of up to two."""
        answers = data.readouts[model].answers
        coverage = data.coverages[TEST].value if TEST in data.coverages else math.nan
        for metric in map(METRICS.get, data.settings.metrics):
            for count in (0, 1, 2):
                for scenario, rows in data.scenarios(count):
                    bounded, objects = _bounds(data, metric, answers, rows), data.objects[rows]
                    if count < 2:
                        results.add(model, scenario or ALL, metric.name, objects, bounded)
                    if not count and metric.higher_is_better:
                        reduced = discounted(bounded, coverage, data.no_conditions)
                        results.add(model, ALL, metric.discounted().name, objects, reduced)
                    where = {"model": model, "conditions": count, "scenario": scenario or ALL}
                    row = over_objects(bounded, objects)(CONFIDENCE).row(where, metric.name)
                    results.rows[SCENARIOS].append(row)


def _bounds(data: StoredData, metric: Metric, answers: Answers, rows: NDArray[np.intp]) -> Bounded:
    """A metric over some images, bounded by objects."""
    part, objects = answers.take(rows), data.objects[rows]
    (value,), why = metric.measure(part)
    if why:
        return no_value(why)
    if metric.proportion:
        return from_interval(partial(proportion_interval, metric.per_image(part), objects))
    limits = metric.limits(answers.num_classes)
    if metric.mean_over_objects:
        return from_mean(metric.per_image(part), objects, *limits)
    bootstrap = data.bootstrap(objects)
    resampled = bootstrap.distributions([metric], part)[metric.name]
    if resampled.reason:
        return no_bounds(float(value), resampled.reason)
    return from_resamples(float(value), resampled.values, bootstrap.groups, limits)
