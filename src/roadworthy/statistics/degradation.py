"""Scenario-based degradation: how a metric falls in parts of the domain, with intervals that count objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from roadworthy.metrics.coverage import Columns, Scenario
from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.expectation import share_met, situation_confidence
from roadworthy.statistics.intervals import mean_interval
from roadworthy.statistics.slices import Conjunctions, checked_values, condition_column

Floats = NDArray[np.float64]

MOST_SITUATIONS = 100_000
"""Situations of the field that frequencies of conditions can make, at most."""


@dataclass(frozen=True)
class ScenarioValue:
    """A metric's mean over the images of one scenario, a conjunction of conditions; `{}` is all of them."""

    scenario: Scenario
    interval: Estimate


@dataclass(frozen=True)
class FailureTime:
    """Mean time (or distance) between failures with its interval; `hi` is infinite where nothing failed.

    dispersion  how much more the failures of sequences differ than chance explains, at least 1
    """

    value: float
    lo: float
    hi: float
    failures: int
    exposure: float
    sequences: int
    dispersion: float
    reason: str = ""


@dataclass(frozen=True)
class DomainPerformance:
    """What to expect over an operational domain whose situations have known frequencies.

    share      frequency of the situations whose metric meets the threshold; untested ones do not count as meeting it
    expected   mean of the metric over tested situations, by frequency
    untested   frequency of situations that no image shows: 0 in the lower bounds, all met in the upper ones
    by_situation  every situation with its frequency and the metric's interval, all of which hold together
    """

    share: float
    share_lo: float
    share_hi: float
    expected: float
    expected_lo: float
    expected_hi: float
    untested: float
    by_situation: tuple[tuple[float, ScenarioValue], ...]


def scenario_values(
    values: ArrayLike,
    groups: ArrayLike,
    conditions: Columns,
    low: float,
    high: float,
    *,
    k: int = 1,
    confidence: float = 0.95,
) -> list[ScenarioValue]:
    """A metric per combination of values of every k conditions (1: each value, 2: each pair), where images show it.

    values (n,): the metric per image, in [low, high], such as right or wrong;  groups (n,): the objects. Images without
    a value of a condition (None, NaN, empty) are left out where that condition counts.

    >>> parts = scenario_values([1, 1, 0, 0], [0, 1, 2, 3], {"weather": ["dry", "dry", "rain", "rain"]}, 0, 1)
    >>> [(part.scenario, part.interval.value) for part in parts]
    [({'weather': 'dry'}, 1.0), ({'weather': 'rain'}, 0.0)]
    """
    table = Conjunctions(values, groups, conditions)
    if not 0 <= k <= len(table.names):
        raise ValueError(f"k must lie between 0 and the number of conditions, {len(table.names)}, not {k}")
    scenarios = []
    for members in combinations(range(len(table.names)), k):
        for cell in product(*(range(table.sizes[member]) for member in members)):
            inside = table.inside(members, cell)
            if inside.any():
                interval = mean_interval(*table.part(inside), low, high, confidence)
                scenarios.append(ScenarioValue(table.named(members, cell), interval))
    return scenarios


def discounted(value: float, coverage: float) -> float:
    """A metric of which more is better, from 0 up, discounted for scenarios without data: value times coverage.

    `coverage` is M_scene, so that what has not been shown counts as failed.

    >>> discounted(0.9, 0.5)
    0.45
    """
    if not 0 <= coverage <= 1 or value < 0:
        raise ValueError(f"a value from 0 up and a coverage from 0 to 1 are needed, not {value} and {coverage}")
    return value * coverage


def time_between_failures(
    positions: ArrayLike, failed: ArrayLike, sequences: ArrayLike, confidence: float = 0.95
) -> FailureTime:
    """Mean time between failures: exposure by failures, for readings along a time (or distance) axis.

        MTBF = T / r,   lo = T/d / G(r/d + 1, 1 - a),   hi = T/d / G(r/d, a)

    with exposure T, failures r, a = (1 - confidence) / 2, dispersion d and G the quantile of the gamma distribution:
    for d = 1 the exact bounds of a Poisson process.

    positions (n,): time or distance of each reading in its sequence;  failed (n,) bool;  sequences (n,): the drives.
    Consecutive failed readings of a sequence are one failure. A sequence is exposed from its first to its last reading
    and one median step. The dispersion is Pearson's chi-square of the failures of the sequences by its degrees of
    freedom; drives that differ make the interval wider.

    >>> drive = time_between_failures([0, 1, 2, 3, 4, 5], [0, 1, 1, 0, 1, 0], ["a"] * 6)
    >>> drive.value, drive.failures, drive.exposure
    (3.0, 2, 6.0)
    """
    time, fails = np.asarray(positions, dtype=np.float64), np.asarray(failed).astype(bool)
    drive = np.unique(np.asarray(sequences), return_inverse=True)[1]
    if time.ndim != 1 or fails.shape != time.shape or drive.shape != time.shape:
        raise ValueError(f"positions, failed and sequences must be of one length, not {time.shape}, {fails.shape}")
    if not np.isfinite(time).all():
        raise ValueError("positions must be finite numbers")
    order = np.lexsort((time, drive))
    time, fails, drive = time[order], fails[order], drive[order]
    same = drive[1:] == drive[:-1]
    gaps = np.diff(time)[same]
    if not len(gaps) or gaps.min() <= 0:
        reason = "two readings of a sequence have one position" if len(gaps) else "no sequence has two readings"
        raise ValueError(f"{reason}: time between failures needs a time or distance that grows along a sequence")
    count = int(drive[-1]) + 1
    exposure = np.bincount(drive[1:][same], gaps, count) + np.median(gaps)
    starts = fails & ~np.concatenate([[False], fails[:-1] & same])
    failures = np.bincount(drive[starts], minlength=count).astype(np.float64)
    total, events = float(exposure.sum()), float(failures.sum())
    dispersion = _dispersion(failures, exposure)
    tail = (1 - confidence) / 2
    effective = events / dispersion
    most = float(gammaincinv(effective + 1, 1 - tail))
    fewest = float(gammaincinv(effective, tail)) if events else 0.0
    scale = total / dispersion
    return FailureTime(
        value=total / events if events else math.inf,
        lo=scale / most,
        hi=scale / fewest if fewest else math.inf,
        failures=int(events),
        exposure=total,
        sequences=count,
        dispersion=dispersion,
        reason="" if events else "no failure",
    )


def domain_performance(
    values: ArrayLike,
    groups: ArrayLike,
    conditions: Columns,
    frequencies: Sequence[tuple[Mapping[str, str], float]],
    threshold: float,
    low: float,
    high: float,
    *,
    confidence: float = 0.95,
) -> DomainPerformance:
    """The share of the expected situations in which a metric (more being better) meets a threshold.

        share = sum_s f_s [m_s >= threshold],   expected = sum_s f_s m_s / sum_s f_s  over tested situations

    frequencies: each situation (the same conditions in all, each with a value) and how often it occurs in the field, in
    any unit; `independent_frequencies` makes them from the frequencies of single conditions. The bounds hold together
    with `confidence`: each situation's interval has 1 - (1 - confidence) / S for S tested situations (Bonferroni). An
    untested situation fails in the lower bounds and succeeds in the upper ones.

    >>> domain = domain_performance([1] * 50 + [0] * 50, range(100), {"weather": ["dry"] * 50 + ["rain"] * 50},
    ...     [({"weather": "dry"}, 0.7), ({"weather": "rain"}, 0.2), ({"weather": "snow"}, 0.1)], 0.8, 0, 1)
    >>> round(domain.share, 6), round(domain.share_lo, 6), round(domain.share_hi, 6), round(domain.untested, 6)
    (0.7, 0.7, 0.8, 0.1)
    """
    per_image, objects = checked_values(values, groups)
    weights = np.array([weight for _, weight in frequencies], dtype=np.float64)
    if not len(weights) or not np.isfinite(weights).all() or weights.min() < 0 or not weights.sum():
        raise ValueError("field frequencies must be numbers of at least 0, one of them above")
    names = list(frequencies[0][0])
    if any(set(situation) != set(names) for situation, _ in frequencies):
        raise ValueError(f"all situations must name the same conditions, {', '.join(names)}")
    if len({tuple(situation[name] for name in names) for situation, _ in frequencies}) < len(frequencies):
        raise ValueError("a situation is listed twice in the field frequencies")
    columns = {name: condition_column(conditions, name, len(per_image)) for name in names}
    inside = [
        np.logical_and.reduce([columns[name] == situation[name] for name in names]) for situation, _ in frequencies
    ]
    tested = np.array([part.any() for part in inside])
    per_situation = situation_confidence(confidence, int(tested.sum()))
    intervals = [mean_interval(per_image[part], objects[part], low, high, per_situation) for part in inside]
    value, lo, hi = (np.array([getattr(interval, name) for interval in intervals]) for name in ("value", "lo", "hi"))
    shares = weights / weights.sum()
    met = share_met(shares, intervals, threshold).share
    untested = float(shares[~tested].sum())
    known = float(shares[tested].sum())
    return DomainPerformance(
        share=met.value,
        share_lo=met.lo,
        share_hi=met.hi,
        expected=float((shares * value)[tested].sum()) / known if known else math.nan,
        expected_lo=float((shares * lo)[tested].sum()) + untested * low,
        expected_hi=float((shares * hi)[tested].sum()) + untested * high,
        untested=untested,
        by_situation=tuple(
            (float(share), ScenarioValue(dict(situation), interval))
            for share, (situation, _), interval in zip(shares, frequencies, intervals, strict=True)
        ),
    )


def independent_frequencies(marginals: Mapping[str, Mapping[str, float]]) -> list[tuple[Scenario, float]]:
    """Frequencies of all situations from those of each condition, taken as independent: the product.

    >>> independent_frequencies({"weather": {"dry": 0.8, "rain": 0.2}, "light": {"day": 1.0}})
    [({'weather': 'dry', 'light': 'day'}, 0.8), ({'weather': 'rain', 'light': 'day'}, 0.2)]
    """
    if not marginals or not all(marginals.values()):
        raise ValueError("every condition needs the frequency of at least one value")
    number = math.prod(len(values) for values in marginals.values())
    if number > MOST_SITUATIONS:
        raise ValueError(f"{number:,} situations; at most {MOST_SITUATIONS:,}: name fewer conditions or values")
    cells = product(*(values.items() for values in marginals.values()))
    return [
        (dict(zip(marginals, (value for value, _ in cell), strict=True)), math.prod(share for _, share in cell))
        for cell in cells
    ]


def _dispersion(failures: Floats, exposure: Floats) -> float:
    """Pearson's chi-square of failures in proportion to exposure, by its degrees of freedom; at least 1."""
    if len(failures) < 2 or not failures.sum():
        return 1.0
    expected = failures.sum() * exposure / exposure.sum()
    return max(1.0, float(((failures - expected) ** 2 / expected).sum()) / (len(failures) - 1))
