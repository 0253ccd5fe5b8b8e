"""Beside scenario based degradation: what the first metric comes to in the field, by how often situations are met.

share = sum_s f_s [m_s >= threshold]        expected = sum_s f_s m_s / sum_s f_s over tested situations s
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from roadworthy.metrics import METRICS, Metric
from roadworthy.protocols.dependability.bounds import from_numbers
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results
from roadworthy.protocols.dependability.names import ALL, scenario_scope
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import DOMAIN
from roadworthy.statistics.degradation import domain_performance
from roadworthy.statistics.estimates import CONFIDENCE

DOMAIN_SHARE = Metric(
    "domain_share",
    label="Share of the field that meets the threshold",
    sentence="Share of the situations of the field, by their frequencies, in which a metric meets its threshold.",
    higher_is_better=True,
    percent=True,
)
DOMAIN_EXPECTED = Metric(
    "domain_expected",
    label="Expected in the field",
    sentence="Expected metric over the situations of the field, by their frequencies.",
    higher_is_better=True,
    percent=True,
    mean_over_objects=True,
)


class FieldPerformance(Measure):
    """The share of situations in the field in which the first metric meets its threshold, and its expectation."""

    metrics = (DOMAIN_SHARE, DOMAIN_EXPECTED)
    tables = (DOMAIN,)

    def metrics_of(self, settings: Settings) -> tuple[Metric, ...]:
        """Both; the expectation lies where the first metric of the study does, and is written like it."""
        first = METRICS.get(settings.metrics[0])
        expected = replace(DOMAIN_EXPECTED, range=first.range, percent=first.percent, digits=first.digits)
        return (DOMAIN_SHARE, expected)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images, where the study says how often situations are met."""
        return {metric.name: [ALL] for metric in self.metrics} if before.resolved.situations else {}

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Both figures, whose bounds hold for all situations together, and a row per situation."""
        situations, answers = data.resolved.situations, data.readouts[model].answers
        if not situations:
            return
        measured, threshold = METRICS.get(data.settings.metrics[0]), data.settings.threshold
        if why := measured.measure(answers).reason:
            results.missing |= {(model, own.name): why for own in self.metrics}
            return
        values, (low, high) = measured.per_image(answers), measured.limits(answers.num_classes)
        over = partial(domain_performance, values, data.objects, data.columns, situations, threshold, low, high)

        def share(confidence: float) -> tuple[float, float, float, str]:
            domain = over(confidence=confidence)
            why = f"{domain.untested:.1%} of the field is untested" if domain.untested else ""
            return domain.share, domain.share_lo, domain.share_hi, why

        def expected(confidence: float) -> tuple[float, float, float, str]:
            domain = over(confidence=confidence)
            why = "" if domain.untested < 1 else "no situation of the field was tested"
            return domain.expected, domain.expected_lo, domain.expected_hi, why

        results.add(model, ALL, DOMAIN_SHARE.name, data.objects, from_numbers(share, "simultaneous bounds"))
        results.add(model, ALL, DOMAIN_EXPECTED.name, data.objects, from_numbers(expected, "simultaneous bounds"))
        for frequency, part in over(confidence=CONFIDENCE).by_situation:
            row = {"model": model, "metric": measured.name, "threshold": threshold, "frequency": frequency}
            row |= {"situation": scenario_scope(part.scenario), "reason": "" if part.interval.n else "untested"}
            results.rows[DOMAIN].append(vars(part.interval) | row)
