"""OD-test in words: the ranking of monitors, what it rests on and what it does not say, from the stored tables."""

from __future__ import annotations

import math
from collections.abc import Iterator

from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.od_test.facts import Lost, OdTestFacts
from roadworthy.protocols.od_test.metrics import METRICS
from roadworthy.protocols.od_test.names import ACCURACY, ALL, FAR, NEAR
from roadworthy.report.facts import Facts, bounded
from roadworthy.report.frame import undertrained_words
from roadworthy.report.words import listing, number, plural
from roadworthy.statistics import Estimate

FLOOR = "random"
"""The monitor that is blind to the image."""
BEST = 3


def metric_words(metric: str) -> Metric:
    """A metric as OD-test means it.

    >>> metric_words("expected_cost").label, metric_words("fpr95_in").label
    ('Expected cost', 'FPR95-in: outliers accepted')
    """
    return find_metric(metric, METRICS)


def better(metric: str) -> str:
    """`higher` or `lower`, whichever is better.

    >>> better("expected_cost"), better("auroc")
    ('lower', 'higher')
    """
    return "lower" if metric_words(metric).higher_is_better is False else "higher"


def cost_text(value: float) -> str:
    """Three digits of a cost; n/a where it is not known."""
    return "n/a" if math.isnan(value) else f"{value:.3g}"


def sentences(test: OdTestFacts) -> Iterator[str]:
    """What came out, in sentences."""
    judged = test.judged
    best = _best(test)
    if best:
        first = f"{better(judged).removesuffix('er')}est mean {metric_words(judged).label.lower()}"
        yield f"The {first}: {listing(best)}. Guessing gives {number(judged, test.chance)}."
    else:
        yield (
            f"No monitor is ranked: none has a value for all of {plural(test.expected, 'triple')}, and means over "
            "different triples do not compare."
        )
    poor = [m.label for m in test.ranked if m.label != FLOOR and not _beats(test.mean(m.label, judged), test)]
    if poor:
        reached = number(judged, test.chance)
        yield f"Not clearly better than guessing (the interval reaches {reached}): {listing(poor)}."
    means = [test.mean(method.label, judged) for method in test.ranked[:2]]
    if len(means) > 1 and means[0].lo <= means[1].value <= means[0].hi:
        yield (
            "The second lies within the interval of the first: another choice of data sets could order them otherwise."
        )
    leader = test.ranked[0].label if test.ranked else ""
    counted = {source.name for source in test.counted}
    own = [(k, c) for k, c in test.triples.items() if k[1] == leader and k[0] in counted and not c.missing]
    worst = min(own, key=lambda entry: entry[1].value, default=None)
    if worst is not None:
        (source, monitor, valid_set, test_set), cell = worst
        yield (
            f"The lowest accuracy of a single triple of the best monitor: {number(ACCURACY, cell.value)} for {source}, "
            f"calibrated with {valid_set} and tested with {test_set} ({monitor})."
        )
    if test.has_near:
        near, far = test.mean(leader, distance=NEAR), test.mean(leader, distance=FAR)
        if not near.missing and not far.missing:
            yield (
                f"Of {leader}: {number(ACCURACY, near.value)} on outliers near to their source, "
                f"{number(ACCURACY, far.value)} on far ones."
            )
    yield from _troubles(test)


def _best(test: OdTestFacts) -> list[str]:
    judged = test.judged
    return [f"{m.label} {bounded(judged, test.mean(m.label, judged))}" for m in test.ranked[:BEST]]


def _beats(cell: Estimate, test: OdTestFacts) -> bool:
    """Whether a mean is better than guessing by its interval."""
    return cell.lo > test.chance if better(test.judged) == "higher" else cell.hi < test.chance


def _troubles(test: OdTestFacts) -> Iterator[str]:
    """Every monitor that failed, or has no value for single triples, and why."""
    yield from (f"{label} {why}" for label, why in test.failures.items())
    single: dict[str, list[Lost]] = {}
    for lost in test.lost:
        if ALL not in (lost.monitor, lost.valid_set, lost.test_set):
            single.setdefault(lost.monitor, []).append(lost)
    for label, (first, *others) in single.items():
        yield (
            f"{label} has no value for {plural(1 + len(others), 'triple')}{', the first' if others else ''} at "
            f"{first.source}, {first.valid_set} to {first.test_set}: {first.reason}"
        )


def headline(test: OdTestFacts, facts: Facts) -> list[str]:
    """Lines for a terminal: the best monitors, what has no value, each monitor that failed, undertrained networks."""
    judged = test.judged
    missing = sum(lost.triples for lost in test.lost)
    left = f"; {plural(missing, 'triple')} without a value" if missing else ""
    counts = len(test.counted) == len(test.sources)
    what = "ranked all the same, as there is no other" if counts else "left out of the ranking and of means"
    weak = [f"Undertrained, {what}: {undertrained_words(facts)}"] if facts.undertrained else []
    return [
        f"Mean {metric_words(judged).label.lower()} over {plural(test.expected, 'triple')} "
        f"(guessing {number(judged, test.chance)}): "
        f"{', '.join(_best(test)) or 'no monitor has a value for every triple, so none is ranked'}",
        f"Monitors: {len(test.methods)}, {len(test.ranked)} of them ranked{left}",
        *_troubles(test),
        *test.ties,
        *weak,
    ]
