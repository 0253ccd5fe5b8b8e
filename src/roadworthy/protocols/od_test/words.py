"""OD-test in words: the ranking of monitors, what it rests on and what it does not say, from the stored tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.findings import Order, RankInterval
from roadworthy.protocols.od_test.metrics import METRICS
from roadworthy.protocols.od_test.names import ACCURACY, ALL, FAR, GAP, NEAR, SETTLED, TWO_DATASETS
from roadworthy.protocols.od_test.ranking import Lost
from roadworthy.report.facts import Facts, bounded
from roadworthy.report.frame import undertrained_words
from roadworthy.report.words import NO_BREAK as NO_BREAK
from roadworthy.report.words import listing, number, plural
from roadworthy.statistics import Estimate

FLOOR = "random"
"""The monitor that is blind to the image."""
BEST = 3
MOST_NAMED = 6
"""Of more names the first are given and the others counted."""


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
    poor = [m.label for m in test.ranked if m.label != FLOOR and not beats_guessing(test.mean(m.label, judged), test)]
    if poor:
        reached = number(judged, test.chance)
        yield f"Not clearly better than guessing (the interval reaches {reached}): {listing(poor)}."
    leader = test.ranked[0].label if test.ranked else ""
    yield from _second(test, leader)
    yield from _promised(test, leader)
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


def _second(test: OdTestFacts, leader: str) -> Iterator[str]:
    """Whether another monitor may be as good as the first."""
    order = test.findings.order
    if order is not None and order.is_known and leader:
        others = open_against(test, order, leader)
        if others:
            yield (
                f"Not to be told apart from {leader}: {some_of(others)}. New draws of the sources, models and sets at "
                "hand put either first."
            )
        elif len(test.ranked) > 1:
            yield (
                f"{leader} is before every other monitor in at least {100 * SETTLED:.0f} % of the draws of sources, "
                "models and sets."
            )
        return
    means = [test.mean(method.label, test.judged) for method in test.ranked[:2]]
    if len(means) > 1 and means[0].lo <= means[1].value <= means[0].hi:
        yield (
            "The second lies within the interval of the first: another choice of data sets could order them otherwise."
        )


def open_against(test: OdTestFacts, order: Order, leader: str) -> list[str]:
    """The ranked monitors whose order with another one is not settled."""
    return [m.label for m in test.ranked if m.label != leader and order.is_open(leader, m.label)]


def some_of(names: Sequence[str]) -> str:
    """Names as a person lists them; the first ones and how many more, where there are many.

    >>> some_of(["a", "b"]), some_of([*"abcdefgh"])
    ('a and b', 'a, b, c, d, e and 3 others')
    """
    if len(names) <= MOST_NAMED:
        return listing(names)
    return f"{', '.join(names[: MOST_NAMED - 1])} and {plural(len(names) - MOST_NAMED + 1, 'other')}"


def resamples(order: Order) -> int:
    """How many resamples held a triple."""
    return max((row.resamples for row in order.ranks.values()), default=0)


def unstable_reason(order: Order) -> str:
    """Why nothing is known of the stability of a ranking."""
    if len(order.ranks) < 2:
        return "there are fewer than two ranked monitors to compare"
    return next(iter(order.ranks.values())).reason


def rank_text(row: RankInterval) -> str:
    """The interval of a rank.

    >>> rank_text(RankInterval(2, 1.0, 3.5, 0, 1, 2, 1771)), rank_text(RankInterval(1, 1.0, 1.0, 0, 2, 0, 1771))
    ('1 to 3.5', '1')
    """
    return f"{row.lo:g}" if row.lo == row.hi else f"{row.lo:g} to {row.hi:g}"


def _promised(test: OdTestFacts, leader: str) -> Iterator[str]:
    """What the best monitor would have reached with two data sets."""
    gaps = test.findings.gaps
    if gaps is not None and not gaps.mean(leader, GAP).missing:
        two, gap = gaps.mean(leader, TWO_DATASETS).value, gaps.mean(leader, GAP).value
        yield (
            f"Tested with the kind of outliers that it was calibrated with, {leader} reaches "
            f"{number(ACCURACY, two)}, {points(gap)} than with other kinds."
        )


def points(gap: float) -> str:
    """A difference of two accuracies.

    >>> points(0.123).replace(NO_BREAK, " "), points(-0.02).replace(NO_BREAK, " ")
    ('12.3 points more', '2.0 points less')
    """
    return f"{number('accuracy_drop', abs(gap))} {'more' if gap >= 0 else 'less'}"


def _best(test: OdTestFacts) -> list[str]:
    judged = test.judged
    return [f"{m.label} {bounded(judged, test.mean(m.label, judged))}" for m in test.ranked[:BEST]]


def beats_guessing(cell: Estimate, test: OdTestFacts) -> bool:
    """Whether a mean is better than guessing by its interval."""
    return cell.lo > test.chance if better(test.judged) == "higher" else cell.hi < test.chance


def _troubles(test: OdTestFacts) -> Iterator[str]:
    """Every monitor that failed, is undertrained, or has no value for single triples, and why."""
    yield from (f"{label} {why}" for label, why in test.failures.items())
    yield from (
        f"{label} has networks of its own below their floor at {listing(names)}: no rank, and means over several "
        "sources are without these"
        for label, names in test.undertrained_monitors.items()
    )
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
