"""Beside scenario based degradation: the scenarios in which a metric is worse than elsewhere, the surest first."""

from __future__ import annotations

from collections.abc import Iterator

from roadworthy.metrics import METRICS, Metric
from roadworthy.protocols.dependability.measures.base import Row, Search
from roadworthy.protocols.dependability.names import scenario_scope
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import SLICES
from roadworthy.statistics.degradation import worst_slices


class WorstSlices(Search):
    """The worst slices of every model, for every metric that is a mean over images."""

    tables = (SLICES,)

    def rows(self, data: StoredData) -> Iterator[Row]:
        """A row per slice; none where the data has no conditions."""
        for model in data.readouts if data.conditions else ():
            for metric in map(METRICS.get, data.settings.sliced):
                if not metric.measure(data.readouts[model].answers).reason:
                    yield from _slices(data, model, metric)


def _slices(data: StoredData, model: str, metric: Metric) -> Iterator[Row]:
    """The slices of one metric; one of which less is better is searched with its sign turned."""
    answers, choice = data.readouts[model].answers, data.settings.slices
    sign = 1.0 if metric.higher_is_better else -1.0
    low, high = sorted(sign * end for end in metric.limits(answers.num_classes))
    values, limits = sign * metric.per_image(answers), {"depth": choice.depth, "support": choice.support}
    worst = worst_slices(values, data.objects, data.conditions, low, high, **limits, limit=choice.limit)
    for part in worst.found:
        lo, hi = sorted((sign * part.interval.lo, sign * part.interval.hi))
        difference_lo, difference_hi = sorted((sign * part.lo, sign * part.hi))
        yield {
            "model": model,
            "metric": metric.name,
            "scenario": scenario_scope(part.scenario),
            "value": sign * part.interval.value,
            "lo": lo,
            "hi": hi,
            "elsewhere": sign * part.elsewhere,
            "difference": sign * part.difference,
            "difference_lo": difference_lo,
            "difference_hi": difference_hi,
            "p": part.p,
            "p_holm": part.p_holm,
            "n": part.interval.n,
            "groups": part.interval.groups,
            "looked_at": worst.looked_at,
            "too_small": worst.too_small,
        }
