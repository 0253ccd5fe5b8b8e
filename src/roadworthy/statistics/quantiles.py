"""Quantiles with bounds that hold for any distribution: two of the sorted values themselves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from roadworthy.statistics.estimates import CONFIDENCE, Estimate, no_estimate

METHOD = "order statistics"
FEWEST_BLOCKS = 5
"""With fewer blocks, nothing can be said of how much these differ."""


def quantile_estimate(values: ArrayLike, share: float, confidence: float = CONFIDENCE, block: int = 1) -> Estimate:
    """The quantile that a `share` of the distribution of values (N,) lies below, with its bounds.

    block   values that follow each other in time may resemble each other within blocks of so many; 1: independent

    Of N independent values, the number at or below the quantile is binomial, whatever the distribution. So the l-th
    smallest value lies above the quantile with a chance of P(B < l), and the u-th smallest below it with P(B >= u),
    B ~ Bin(N, share): the bounds are the largest l and the smallest u for which each of the two is at most
    (1 - confidence) / 2. Equal values make the bounds wider than they need to be, never narrower.

    With blocks, N values are worth n = N / d independent ones, where d (at least 1) is the variance between blocks of
    the number of values at or below the quantile, divided by the binomial one; the ranks are those of n values, as
    shares of N. It was simulated for slow spells: docs/monitoring.md. Where there are too few values, no bounds are
    given, and the reason says so.

    >>> estimate = quantile_estimate(range(1, 101), 0.5)
    >>> estimate.value, estimate.lo, estimate.hi
    (50.5, 40.0, 61.0)
    >>> quantile_estimate(range(100), 0.99).reason
    'bounds of the 99 % quantile at a confidence of 95 % take at least 368 values, not 100'
    """
    in_time = np.asarray(values, np.float64)
    count, ordered = len(in_time), np.sort(in_time)
    if not count:
        return no_estimate("no value was measured")
    value = float(np.quantile(ordered, share))
    estimate = Estimate(value, n=count, groups=count, method=METHOD)
    worth = _independent(in_time <= value, block)
    needed = fewest_for_bounds(share, confidence)
    what = f"bounds of the {100 * share:g} % quantile at a confidence of {100 * confidence:g} % take at least "
    if count < needed:
        return replace(estimate, reason=f"{what}{needed:,} values, not {count:,}")
    if block > 1 and count < FEWEST_BLOCKS * block:
        return replace(estimate, reason=f"bounds take at least {FEWEST_BLOCKS * block:,} values, not {count:,}")
    if worth < needed:
        spells = f"the slow ones of {count:,} come together, so that these are worth {worth:,}"
        return replace(estimate, reason=f"{what}{needed:,} independent values: {spells}")
    low, high = bounding_ranks(worth, share, confidence)
    first, last = max(low * count // worth, 1), min(-(-high * count // worth), count)
    return replace(estimate, lo=float(ordered[first - 1]), hi=float(ordered[last - 1]))


def _independent(below: NDArray[np.bool_], block: int) -> int:
    """How many independent values flags (N,) are worth, by how much their sums vary between blocks."""
    blocks = len(below) // block
    sums = below[: blocks * block].reshape(blocks, block).sum(axis=1)
    share = float(below.mean())
    if block == 1 or blocks < FEWEST_BLOCKS or not 0 < share < 1:
        return len(below)
    return int(len(below) / max(1.0, float(sums.var(ddof=1)) / (block * share * (1 - share))))


def bounding_ranks(count: int, share: float, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """The ranks (from 1) of the sorted values that bound a quantile; 0 or count + 1 where there is no such value.

    >>> bounding_ranks(1000, 0.95), bounding_ranks(1000, 0.99), bounding_ranks(5, 0.5)
    ((936, 964), (983, 997), (0, 6))
    """
    tail = (1 - confidence) / 2
    below = np.append(0.0, bdtr(np.arange(count), count, share))  # P(B < rank), from rank 0 on
    enough = np.flatnonzero(1 - below <= tail)
    return int(np.flatnonzero(below <= tail)[-1]), int(enough[0]) if enough.size else count + 1


def fewest_for_bounds(share: float, confidence: float = CONFIDENCE) -> int:
    """The fewest values of which a quantile has bounds on both sides.

    >>> fewest_for_bounds(0.5), fewest_for_bounds(0.95), fewest_for_bounds(0.99)
    (6, 72, 368)
    """
    return math.ceil(math.log((1 - confidence) / 2) / math.log(max(share, 1 - share)))
