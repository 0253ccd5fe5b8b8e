"""Bounds that stay valid however often one looks at them: tests by betting on groups, and what these leave possible.

Groups (objects) come one after the other as independent draws. Group g has n_g images with values in [0, 1] that add up
to S_g; the mean over images is mu = E[S_g] / E[n_g], and no group has more than G images, a number fixed in advance.
Against mu <= m a gambler bets on X_g = S_g - n_g m, which is at least -G m and not positive on average. With a share
theta of the capital at stake,

    K_n(m) = prod_g (1 + theta X_g / (G m))

is never negative and does not grow on average, so that it ever reaches 1/alpha with probability alpha at most (Ville's
inequality): whatever n, and whenever one stops. The capital here is the mean over a few fixed shares theta
(`SHARES`), which needs no tuning and is again such a process. Every factor falls as m rises, so the m that are
rejected are all those below one bound. Values are mirrored for the other side.

The method is that of Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting (2024), with a
group's sum in the place of a single value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from roadworthy.statistics.estimates import CONFIDENCE, Estimate

Floats = NDArray[np.float64]

METHOD = "anytime betting"
SHARES: Floats = np.concatenate([[0.9], 2.0 ** -np.arange(1.0, 9.0)])
"""The shares of the capital at stake, each with the same part of it: from nearly all to 1/256."""
TOLERANCE = 1e-7
"""How near to its bound a bound is computed, as a share of the range, on the safe side."""
SMALLEST = 1e-12
"""Bounds nearer to the end of the range are that end."""


@dataclass(frozen=True)
class GroupBets:
    """What is bet on: the sums (g,) and sizes (g,) of groups in the order of their visit, values in [0, 1].

    largest   the most images that a group can have, fixed before any value was known
    """

    sums: Floats
    sizes: Floats
    largest: int

    def __post_init__(self) -> None:
        if len(self.sizes) and self.sizes.max() > self.largest:
            raise ValueError(f"a group has {self.sizes.max():g} images, more than the {self.largest} fixed in advance")

    def mirrored(self) -> GroupBets:
        """The same groups with every value v as 1 - v."""
        return replace(self, sums=self.sizes - self.sums)

    def first(self, groups: int) -> GroupBets:
        """The first so many groups."""
        return replace(self, sums=self.sums[:groups], sizes=self.sizes[:groups])

    def log_capital(self, mean: float) -> Floats:
        """The logarithm of the capital against `mu <= mean` after each group, (g,); it starts with 1.

        >>> bets = GroupBets(np.ones(3), np.ones(3), 1)
        >>> np.exp(bets.log_capital(1.0)).round(3)
        array([1., 1., 1.])
        """
        if mean <= 0:
            disproved = np.cumsum(self.sums > 0) > 0
            return np.where(disproved, math.inf, 0.0)
        stakes = (self.sums / mean - self.sizes) / self.largest
        logs = np.cumsum(np.log1p(np.multiply.outer(stakes, SHARES)), axis=0)
        highest = logs.max(axis=1, initial=-math.inf)
        mixed = np.exp(logs - highest[:, None]).mean(axis=1)
        return np.asarray(highest + np.log(mixed))

    def evidence(self, mean: float) -> float:
        """The highest logarithm of the capital against `mu <= mean` so far; 0 before the first group."""
        return float(self.log_capital(mean).max(initial=0.0))

    def lower_bound(self, alpha: float, tolerance: float = TOLERANCE) -> float:
        """The highest m for which `mu <= m` is rejected: below it no mean is possible any more, but with rate alpha.

        >>> GroupBets(np.ones(100), np.ones(100), 1).lower_bound(0.025) > 0.93
        True
        >>> GroupBets(np.zeros(9), np.ones(9), 1).lower_bound(0.025)
        0.0
        """

        def excess(mean: float) -> float:
            return self.evidence(mean) + math.log(alpha)

        if not len(self.sums) or not self.sums.any():
            return 0.0
        low = 0.5 * float(self.sums.sum() / self.sizes.sum())
        while excess(low) < 0:
            low /= 2
            if low < SMALLEST:
                return 0.0
        bound = float(brentq(excess, low, 1.0, xtol=tolerance))
        while excess(bound) < 0:
            bound = max(low, bound - 2 * tolerance)
        return bound


def group_bets(
    values: Floats, groups: Sequence[Any] | NDArray[Any], largest: int, low: float, high: float
) -> GroupBets:
    """The bets on values (n,) in [low, high], whose groups come in the order of their first image.

    >>> group_bets(np.array([1.0, 0.0, 1.0]), ["b", "b", "a"], 2, 0.0, 1.0).sums
    array([1., 1.])
    """
    per_image = np.asarray(values, np.float64)
    if per_image.size and not (low <= per_image.min() and per_image.max() <= high):
        raise ValueError(f"values must lie in [{low}, {high}], not {per_image.min()}..{per_image.max()}")
    _, firsts, inverse = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    rank = np.empty(len(firsts), np.int64)
    rank[np.argsort(firsts)] = np.arange(len(firsts))
    index = rank[inverse]
    sums = np.bincount(index, (per_image - low) / (high - low), len(firsts))
    sizes = np.bincount(index, minlength=len(firsts)).astype(np.float64)
    return GroupBets(sums.astype(np.float64), sizes, largest)


def side_rate(confidence: float) -> float:
    """The rate of error of each side of a two-sided bound."""
    return (1 - confidence) / 2


def can_decide(bets: GroupBets, threshold: float, confidence: float) -> bool:
    """Whether the capital against a threshold in [0, 1], from below or above, has ever reached 1/alpha.

    Bounds that exclude the threshold need this; it is much quicker to know.
    """
    needed = -math.log(side_rate(confidence))
    return bets.evidence(threshold) >= needed or bets.mirrored().evidence(1 - threshold) >= needed


def anytime_interval(
    values: Floats,
    groups: Sequence[Any] | NDArray[Any],
    largest: int,
    low: float = 0.0,
    high: float = 1.0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The mean of values (n,), with bounds that hold at all times at once with the given confidence.

    Each side misses with a rate of (1 - confidence) / 2, as elsewhere. Bounds only ever get narrower: what was excluded
    after some group stays excluded. Where they exclude everything, there are none, and the reason says so.

    >>> anytime_interval(np.array([1.0] * 90 + [0.0] * 10), np.arange(100), 1).method
    'anytime betting'
    """
    n = len(values)
    if not n:
        return Estimate(math.nan, method=METHOD, reason="no images")
    return bounded_mean(group_bets(values, groups, largest, low, high), low, high, confidence)


def bounded_mean(bets: GroupBets, low: float, high: float, confidence: float, tolerance: float = TOLERANCE) -> Estimate:
    """The estimate from bets on values that were in [low, high] before they were brought to [0, 1]."""
    alpha, room = side_rate(confidence), high - low
    lo = low + room * bets.lower_bound(alpha, tolerance)
    hi = high - room * bets.mirrored().lower_bound(alpha, tolerance)
    value = low + room * float(bets.sums.sum() / bets.sizes.sum())
    counted: dict[str, Any] = {"n": int(bets.sizes.sum()), "groups": len(bets.sizes), "method": METHOD}
    if lo > hi:
        reason = "earlier and later groups contradict each other: no value is left possible"
        return Estimate(value, **counted, reason=reason)
    return Estimate(value, lo, hi, **counted)
