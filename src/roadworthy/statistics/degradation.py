"""Scenario-based degradation: how a metric falls in parts of the operating domain, with intervals that count objects."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, ndtri

from roadworthy.statistics.intervals import Interval, mean_interval

Floats = NDArray[np.float64]
Scenario = dict[str, str]
Columns = Mapping[str, ArrayLike]

MISSING = -1
SMALLEST_P = 1e-12
MOST_SLICES = 100_000
"""Conjunctions of conditions that are looked at, at most."""


@dataclass(frozen=True)
class ScenarioValue:
    """A metric's mean over the images of one scenario, a conjunction of conditions; `{}` is all of them."""

    scenario: Scenario
    interval: Interval


@dataclass(frozen=True)
class Slice:
    """A scenario in which a metric is worse than elsewhere.

    interval    the metric inside;  elsewhere  its mean over all other images
    difference  inside minus elsewhere, with its interval lo to hi
    p           one-sided, of the hypothesis that it is no worse inside;  p_holm  corrected for all slices looked at
    """

    scenario: Scenario
    interval: Interval
    elsewhere: float
    difference: float
    lo: float
    hi: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class Slices:
    """The worst slices, the smallest p first, and how many were looked at in all."""

    found: tuple[Slice, ...]
    looked_at: int
    too_small: int


@dataclass(frozen=True)
class FailureTime:
    """Mean time (or distance) between failures with its interval; `hi` is infinite where nothing failed.

    dispersion  how much more the failures of sequences differ than chance would let them, at least 1
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

    >>> found = scenario_values([1, 1, 0, 0], [0, 1, 2, 3], {"weather": ["dry", "dry", "rain", "rain"]}, 0, 1)
    >>> [(part.scenario, part.interval.value) for part in found]
    [({'weather': 'dry'}, 1.0), ({'weather': 'rain'}, 0.0)]
    """
    per_image, objects = _checked(values, groups)
    names, codes, kinds = _encoded(conditions, len(per_image))
    if not 0 <= k <= len(names):
        raise ValueError(f"k must lie between 0 and the number of conditions, {len(names)}, not {k}")
    result = []
    for members in combinations(range(len(names)), k):
        for cell in product(*(range(len(kinds[member])) for member in members)):
            inside = _inside(codes, members, cell)
            if inside.any():
                interval = mean_interval(per_image[inside], objects[inside], low, high, confidence)
                result.append(ScenarioValue(_named(names, kinds, members, cell), interval))
    return result


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

        MTBF = T / r,   r + 1 and r events of a Poisson process bound it: T' / gamma'^-1, both divided by the dispersion

    positions (n,): time or distance of each reading within its sequence;  failed (n,) bool;  sequences (n,): the drives.
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
        why = "two readings of a sequence have one position" if len(gaps) else "no sequence has two readings"
        raise ValueError(f"{why}: time between failures needs a time or distance that grows along a sequence")
    count = int(drive[-1]) + 1
    exposure = np.bincount(drive, minlength=count).astype(np.float64) * 0
    np.add.at(exposure, drive[1:][same], gaps)
    exposure += np.median(gaps)
    starts = fails & ~np.concatenate([[False], fails[:-1] & same])
    failures = np.bincount(drive, starts, count)
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


def worst_slices(
    values: ArrayLike,
    groups: ArrayLike,
    conditions: Columns,
    low: float,
    high: float,
    *,
    depth: int = 2,
    support: int = 10,
    limit: int = 20,
    confidence: float = 0.95,
) -> Slices:
    """The scenarios of up to `depth` conditions in which a metric is worse (lower) than elsewhere.

    values (n,): the metric per image, in [low, high], more being better. Every conjunction that at least `support` objects
    show, inside and elsewhere, is looked at: no greedy search can miss one. p is the 1 - confidence at which the upper
    bound of the difference d = inside - elsewhere just reaches 0,

        hi(d) = d + sqrt((hi(inside) - inside)^2 + (elsewhere - lo(elsewhere))^2)

    with the bounds of `mean_interval` (Newcombe's hybrid), and is corrected by Holm's method for all slices looked at,
    also those not listed. A slice is left out of the list where a slice of fewer of its conditions is listed and as bad:
    the more general one says it all.

    >>> rain = ["rain"] * 30 + ["dry"] * 90
    >>> result = worst_slices([0] * 20 + [1] * 100, range(120), {"weather": rain, "car": ["a", "b"] * 60}, 0, 1, depth=1)
    >>> result.found[0].scenario, result.looked_at, result.found[0].p_holm < 0.001
    ({'weather': 'rain'}, 4, True)
    """
    per_image, objects = _checked(values, groups)
    names, codes, kinds = _encoded(conditions, len(per_image))
    if depth < 1 or support < 2 or limit < 1:
        raise ValueError(f"depth and limit of at least 1 and a support of at least 2 are needed, not {depth}, {limit}, {support}")
    candidates, too_small = _candidates(per_image, objects, codes, kinds, min(depth, len(names)), support)
    candidates.sort(key=lambda candidate: candidate[0])
    shown = list[tuple[tuple[int, ...], tuple[int, ...]]]()
    slices = list[Slice]()
    worst_so_far = 0.0
    for rank, (score, members, cell) in enumerate(candidates):
        if len(slices) == limit or score >= 0:
            break
        inside = _inside(codes, members, cell)
        if any(set(zip(*more, strict=True)) <= set(zip(members, cell, strict=True)) and
               per_image[_inside(codes, *more)].mean() <= per_image[inside].mean() for more in shown):
            continue
        bounds = _difference_bounds(per_image, objects, inside, low, high)
        p = _one_sided_p(lambda level: bounds(level)[1])
        worst_so_far = max(worst_so_far, min(1.0, p * (len(candidates) - len(slices))))
        difference = float(per_image[inside].mean() - per_image[~inside].mean())
        lo, hi = bounds(confidence)
        slices.append(
            Slice(
                scenario=_named(names, kinds, members, cell),
                interval=mean_interval(per_image[inside], objects[inside], low, high, confidence),
                elsewhere=float(per_image[~inside].mean()),
                difference=difference,
                lo=lo,
                hi=hi,
                p=p,
                p_holm=worst_so_far,
            )
        )
        shown.append((members, cell))
    return Slices(tuple(slices), looked_at=len(candidates), too_small=too_small)
