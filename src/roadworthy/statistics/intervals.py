"""Intervals for means and proportions whose independent unit is the group, and how many more groups would settle it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from roadworthy.statistics.estimates import Estimate

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-9
"""A mean this close to the worst value, as a share of the range, has the worst value as its bound."""
MOST_KEPT_GROUPS = 100
"""The bounds of means over at most so many groups are kept."""


def wilson(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval: all p with |successes/n - p| <= z sqrt(p (1 - p) / n).

    `successes` and `n` need not be integers (an effective sample size). The lower bound is exactly 0 at no success, the
    upper exactly 1 at n successes.

    >>> tuple(round(bound, 4) for bound in wilson(8, 10))
    (0.4902, 0.9433)
    >>> wilson(10, 10)[1]
    1.0
    """
    if not (0 < n < math.inf and 0 <= successes <= n):
        raise ValueError(f"Wilson's interval needs 0 <= successes <= n and n > 0, not {successes} of {n}")
    z_squared = _normal_quantile(confidence) ** 2
    success, failure = successes / n, (n - successes) / n
    half_width = math.sqrt(z_squared * success * failure / n + z_squared**2 / (4 * n * n))
    lo = success**2 / (success + z_squared / (2 * n) + half_width)
    hi = 1 - failure**2 / (failure + z_squared / (2 * n) + half_width)
    return lo, hi


def proportion_interval(values: ArrayLike, groups: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Interval of a proportion from values in [0, 1] per image: right or wrong, or shares over repeats or levels.

    Wilson's where every group is one image and every value 0 or 1; otherwise that of `mean_interval`.

    >>> interval = proportion_interval([1, 1, 1, 0], ["a", "b", "c", "d"])
    >>> interval.method, interval.value, round(interval.lo, 4)
    ('wilson', 0.75, 0.3006)
    >>> frames = proportion_interval([1, 1, 1, 1, 1, 1], ["sign 1"] * 3 + ["sign 2"] * 3)
    >>> frames.groups, frames.lo == wilson(2, 2)[0]
    (2, True)
    """
    per_image, inverse, count = _checked(values, groups, 0.0, 1.0)
    n = len(per_image)
    if n == count and n > 0 and bool(np.isin(per_image, (0.0, 1.0)).all()):
        successes = float(per_image.sum())
        return Estimate(successes / n, *wilson(successes, n, confidence), n=n, groups=n, method="wilson")
    return _mean_interval(per_image, inverse, count, 0.0, 1.0, confidence)


def mean_interval(values: ArrayLike, groups: ArrayLike, low: float, high: float, confidence: float = 0.95) -> Estimate:
    """Interval of the mean of values that lie in [low, high], whatever their distribution within and between groups.

    The lower bound is the (1 - confidence)/2 quantile of the mean over resampled groups to which one more is added, as
    large as the others (their size-weighted mean size) and at `low` throughout: the phantom group. With E_g independent
    and exponential, s_g sizes and m_g means of the groups, s_0 the phantom's size:

        R = (sum_g E_g s_g m_g + E_0 s_0 low) / (sum_g E_g s_g + E_0 s_0),    P(R <= lo) = (1 - confidence)/2

    The upper bound mirrors it. For groups of equal size that are wholly right or wholly wrong this is the
    Clopper-Pearson interval of the groups; the less groups differ, the narrower it gets. Repeating images leaves it
    unchanged. Where all values are `high` (or `low`) the bound is Wilson's with n = (sum s)^2 / sum s^2 groups, and
    never beyond that otherwise. Use it for paired differences too: values a - b in [-1, 1].

    >>> interval = mean_interval([0.2, 0.1, 0.4, 0.3], ["a", "a", "b", "b"], low=0, high=2)
    >>> interval.value, 0 < interval.lo < 0.25 < interval.hi < 2
    (0.25, True)
    """
    per_image, inverse, count = _checked(values, groups, low, high)
    return _mean_interval(per_image, inverse, count, low, high, confidence)


def interval_of_objects(means: Floats, sizes: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """The bounds of `mean_interval` from the means (G,) of groups, in [0, 1], and their sizes.

    >>> interval_of_objects(np.ones(20), np.full(20, 5.0))[0] == wilson(20, 20)[0]
    True
    """
    return _lower_bound(means, sizes, confidence), 1 - _lower_bound(1 - means, sizes, confidence)


def further_groups(
    value: float, threshold: float, groups: int, lo: float, hi: float, *, confidence: float = 0.95, proportion: bool
) -> int | None:
    """How many further independent groups would bring the bound beyond the threshold if the value stayed.

    The bound is the one between value and threshold. For a proportion Wilson's interval is solved for the smallest n:
    exact where [lo, hi] is Wilson's of `groups`; otherwise a group counts for as much as it did in [lo, hi]. For other
    metrics the distance of the bound shrinks with the square root of the number of groups. 0 where the bound is there
    already; None where value and threshold are equal, or a number is missing.

    >>> lo, hi = wilson(97, 100)
    >>> further_groups(0.97, 0.95, 100, lo, hi, proportion=True)
    357
    >>> further_groups(0.25, 0.5, 100, -0.25, 0.75, proportion=False)
    301
    """
    bound = lo if value > threshold else hi
    if not all(math.isfinite(x) for x in (value, threshold, bound)) or value == threshold or groups < 1:
        return None
    if (bound - threshold) * (value - threshold) > 0:
        return 0
    if proportion:
        return max(_wilson_groups(value, threshold, groups, bound, confidence) - groups, 1)
    return max(math.floor(groups * ((value - bound) / (value - threshold)) ** 2) + 1 - groups, 1)


def _wilson_groups(value: float, threshold: float, groups: int, bound: float, confidence: float) -> int:
    z_squared = _normal_quantile(confidence) ** 2
    effective = z_squared * bound * (1 - bound) / (value - bound) ** 2
    per_group = 1.0 if math.isclose(effective, groups, rel_tol=1e-9) or effective <= 0 else effective / groups
    needed = math.floor(z_squared * threshold * (1 - threshold) / (value - threshold) ** 2 / per_group)
    side = 0 if value > threshold else 1

    def beyond(count: int) -> bool:
        n = count * per_group
        return (wilson(min(value * n, n), n, confidence)[side] - threshold) * (value - threshold) > 0

    return next((count for count in range(max(needed - 1, 1), needed + 2) if beyond(count)), needed + 2)


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    return float(ndtri((1 + confidence) / 2))


def _checked(values: ArrayLike, groups: ArrayLike, low: float, high: float) -> tuple[Floats, NDArray[Any], int]:
    """Values sorted by group (so that their order cannot matter), the group index of each, and the number of groups."""
    per_image = np.asarray(values, dtype=np.float64)
    names = np.asarray(groups)
    if per_image.ndim != 1 or names.shape != per_image.shape:
        raise ValueError(f"an interval needs a value and a group per image, not {per_image.shape} and {names.shape}")
    if not low < high:
        raise ValueError(f"values must have room: low {low} is not below high {high}")
    if per_image.size and not (low <= per_image.min() and per_image.max() <= high):
        raise ValueError(f"values must lie in [{low}, {high}], not {per_image.min()}..{per_image.max()}")
    if names.dtype.kind == "i" and bool((names[1:] > names[:-1]).all()):
        return per_image, np.arange(len(names)), len(names)
    inverse, count = _numbered(names)
    if count == len(names):  # one image each: their groups alone decide the order
        order = np.empty(count, np.intp)
        order[inverse] = np.arange(count)
    else:
        order = np.lexsort((per_image, inverse))
    return per_image[order], inverse[order], count


def _numbered(names: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
    """The rank of each row's name among all that there are, and how many there are.

    >>> _numbered(np.array(["b", "a", "b"]))
    (array([1, 0, 1]), 2)
    """
    if names.dtype.kind == "i" and names.size and 0 <= names.min() <= names.max() < len(names):
        counts = np.bincount(names)
        if counts.all():  # numbered already, as they are for every figure of a table
            return names.astype(np.intp, copy=False), len(counts)
    unique, inverse = np.unique(names, return_inverse=True)
    return inverse, len(unique)


def _mean_interval(
    per_image: Floats, inverse: NDArray[Any], count: int, low: float, high: float, confidence: float
) -> Estimate:
    n = len(per_image)
    if n == 0:
        return Estimate(math.nan, method="phantom group", reason="no images")
    sizes = np.bincount(inverse, minlength=count).astype(np.float64)
    means = np.bincount(inverse, (per_image - low) / (high - low), count) / sizes
    lo, hi = interval_of_objects(means, sizes, confidence)
    return Estimate(
        value=float(per_image.sum() / n),
        lo=low + (high - low) * lo,
        hi=high - (high - low) * (1 - hi),
        n=n,
        groups=count,
        method="phantom group",
    )


def _lower_bound(means: Floats, sizes: Floats, confidence: float) -> float:
    """The lower bound of the mean of groups whose means lie in [0, 1].

    That of few groups is kept: tables, criteria and a check of both ask for the same ones.
    """
    if len(means) > MOST_KEPT_GROUPS:
        return _solved_lower_bound(means, sizes, confidence)
    return _kept_lower_bound(means.tobytes(), sizes.tobytes(), confidence)


@lru_cache(maxsize=10_000)
def _kept_lower_bound(means: bytes, sizes: bytes, confidence: float) -> float:
    return _solved_lower_bound(np.frombuffer(means), np.frombuffer(sizes), confidence)


def _solved_lower_bound(means: Floats, sizes: Floats, confidence: float) -> float:
    shares = sizes / sizes.sum()
    effective_groups = 1 / float((shares**2).sum())
    best = wilson(effective_groups, effective_groups, confidence)[0]
    if means.min() >= 1:
        return best
    mean = float((means * shares).sum())
    if mean < NEGLIGIBLE:
        return 0.0
    kinds, kind_shares, times = _kinds(means, shares)
    of_group, share = np.append(kinds, 0.0), np.append(kind_shares, 1 / effective_groups)
    counts = np.append(times, 1).astype(np.float64)

    quantile, saddle = _normal_quantile(confidence), 0.0

    def excess(bound: float) -> float:
        nonlocal saddle
        coefficients = share * (of_group - bound)
        saddle = _saddlepoint(coefficients, counts, saddle)
        return _score_not_positive(coefficients, counts, saddle) + quantile

    lowest, highest = mean * NEGLIGIBLE, mean * (1 - NEGLIGIBLE)
    sd = math.sqrt(float((shares**2 * (means - mean) ** 2).sum()) + (mean / effective_groups) ** 2)
    near = _secant(excess, mean - quantile * sd, mean - 0.95 * quantile * sd, lowest, highest)
    if near is not None:
        return min(best, near)
    return 0.0 if excess(lowest) >= 0 else min(best, float(brentq(excess, lowest, highest, xtol=1e-9)))


def _kinds(means: Floats, shares: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """The distinct pairs of mean and share, in order, and how many groups are of each."""
    if shares.min() == shares.max():
        kinds, times = np.unique(means, return_counts=True)
        return kinds, np.full(len(kinds), shares[0]), times
    pairs, times = np.unique(means + 1j * shares, return_counts=True)
    return pairs.real, pairs.imag, times


def _secant(function: Callable[[float], float], a: float, b: float, lowest: float, highest: float) -> float | None:
    """A root from two guesses near it; None where a step leaves the range or a few steps do not settle it."""
    if not (lowest < a < highest and lowest < b < highest):
        return None
    at_a, at_b = function(a), function(b)
    for _ in range(6):
        if at_a == at_b:
            return None
        a, b, at_a = b, b - at_b * (b - a) / (at_b - at_a), at_b
        if not lowest < b < highest:
            return None
        if abs(b - a) <= 1e-6:
            return b
        at_b = function(b)
    return None


def _score_not_positive(coefficients: Floats, counts: Floats, saddle: float) -> float:
    """The normal score of P(sum_i a_i X_i <= 0) for independent X_i ~ Gamma(counts_i, 1), coefficients a of both signs.

    Saddlepoint approximation (Barndorff-Nielsen's r*) from K(t) = -sum_i counts_i log(1 - a_i t); for the beta
    distributions it replaces here its quantiles are right to 0.001, on the safe side, for any number of groups.
    """
    cumulant = -float((counts * np.log1p(-saddle * coefficients)).sum())
    curvature = float((counts * (coefficients / (1 - saddle * coefficients)) ** 2).sum())
    w = math.copysign(math.sqrt(max(-2 * cumulant, 0.0)), saddle)
    u = saddle * math.sqrt(curvature)
    if abs(w) < 1e-6:
        return 0.0
    return w + math.log(u / w) / w


def _saddlepoint(coefficients: Floats, counts: Floats, start: float) -> float:
    """The t between 1/min a and 1/max a where K'(t) = sum_i counts_i a_i / (1 - a_i t) is 0: Newton, bracketed."""
    left, right = 1 / float(coefficients.min()), 1 / float(coefficients.max())
    t = start if left < start < right else 0.0
    for _ in range(200):
        terms = coefficients / (1 - t * coefficients)
        weighted = counts * terms
        slope, curvature = float(weighted.sum()), float(np.einsum("i,i->", weighted, terms))
        left, right = (left, t) if slope > 0 else (t, right)
        newton = t - slope / curvature
        following = newton if left < newton < right else (left + right) / 2
        if abs(following - t) <= 1e-6 * abs(following):
            return following
        t = following
    return t
