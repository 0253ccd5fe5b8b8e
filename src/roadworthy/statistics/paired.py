"""Paired tests: is one model better than another on the same images, and what of many such questions at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

from roadworthy.statistics.bootstrap import paired_interval
from roadworthy.statistics.estimates import CONFIDENCE
from roadworthy.statistics.intervals import mean_interval

Floats = NDArray[np.float64]

SMALLEST_P = 1e-12
"""The sum over a Fourier transform is exact to about 1e-14: a p value of sign flips below this would be rounding."""
LEAST_SHOWN_P = 0.001
REGRESSION, IMPROVEMENT, BELOW_MARGIN, NO_DIFFERENCE, NOT_COMPARED = RESULTS = (
    "regression",
    "improvement",
    "clear, but below the margin",
    "no clear difference",
    "not compared",
)
"""What a comparison of two models can come to, condition by condition; the most important first."""


@dataclass(frozen=True)
class PairedChange:
    """One metric under one condition, of two systems that were shown the same images.

    `change` is after - before with its interval `lo` to `hi` at a `confidence` (95 %); `p` is two-sided, by `method`,
    over `n` images of so many `groups` (objects). What is not known is NaN, and `reason` says why. `columns` is the
    condition as a criterion names it, column by column.
    """

    condition: str
    level: float
    metric: str
    before: float = math.nan
    after: float = math.nan
    change: float = math.nan
    lo: float = math.nan
    hi: float = math.nan
    p: float = math.nan
    n: int = 0
    groups: int = 0
    method: str = ""
    reason: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class McNemar:
    """Two models on the same n images of so many `groups` (objects).

    `only_a` images are right for a alone, `only_b` for b alone. `difference` is the accuracy of a less that of b, with
    its interval `lo` to `hi`; `p` is two-sided, by `method`. Without a single image that tells them apart p is 1.
    """

    n: int
    groups: int
    only_a: int
    only_b: int
    difference: float
    lo: float
    hi: float
    p: float
    method: str


def mcnemar(
    a_right: ArrayLike, b_right: ArrayLike, groups: ArrayLike | None = None, confidence: float = 0.95
) -> McNemar:
    """McNemar's test of equal accuracy, exact, with images of one object kept together.

    Where every image is its own object, the images that one model alone gets right are split like fair coins:

        p = min(1, 2 P(X <= min(only_a, only_b))),   X ~ Binomial(only_a + only_b, 1/2)

    Otherwise d_g = (right for a) - (right for b) within object g, and p is the share of all ways to flip the signs of
    the d_g (to swap the models, object by object) that bring |sum d_g| to what was seen or more. The share is exact,
    not drawn, from the characteristic function prod cos(d_g t). With one image each it is the binomial test above.
    This is exact where the two models are of one kind (two seeds, two versions), so that swapping them changes nothing
    but chance. The interval of the difference is `mean_interval` of the differences per image: wider, since it holds
    also where equally accurate models fail in different ways, one on whole objects and one on single frames.
    statsmodels has the test for single images, with the same p, and none for objects.

    >>> result = mcnemar([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1])
    >>> result.only_a, result.only_b, result.difference, result.p
    (6, 0, 0.75, 0.03125)
    >>> mcnemar([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1], groups=list("aaabbbcc")).p
    0.5
    """
    a, b = np.asarray(a_right), np.asarray(b_right)
    names = np.arange(len(a)) if groups is None else np.asarray(groups)
    if a.ndim != 1 or not a.size or a.shape != b.shape or names.shape != a.shape:
        raise ValueError(f"paired answers need one row per image, not shapes {a.shape}, {b.shape} and {names.shape}")
    if not (np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all()):
        raise ValueError("paired answers must be right (1) or wrong (0) for every image")
    difference = a.astype(np.int64) - b.astype(np.int64)
    unique, index = np.unique(names, return_inverse=True)
    of_group = np.abs(np.bincount(index, difference, len(unique)).astype(np.int64))
    only_a, only_b = int((difference > 0).sum()), int((difference < 0).sum())
    interval = mean_interval(difference, names, -1, 1, confidence)
    if len(unique) == len(a):
        p, method = float(min(2 * bdtr(min(only_a, only_b), only_a + only_b, 0.5), 1.0)), "McNemar, exact binomial"
    else:
        p, method = sign_flip_p(int(difference.sum()), of_group), "McNemar, sign flips by group"
    return McNemar(len(a), len(unique), only_a, only_b, float(difference.mean()), interval.lo, interval.hi, p, method)


def sign_flip_p(total: int, sizes: ArrayLike) -> float:
    """The share of sign patterns with |sum of +-sizes| >= |total|, sizes whole numbers >= 0; exact, not below 1e-12.

    >>> round(sign_flip_p(4, [1, 1, 2]), 12)
    0.25
    >>> sign_flip_p(0, [])
    1.0
    """
    steps, times = np.unique(np.asarray(sizes, dtype=np.int64), return_counts=True)
    if (steps < 0).any() or abs(total) > int((steps * times).sum()):
        raise ValueError(f"the sizes must be >= 0 and able to sum to {total}")
    steps, times = steps[steps > 0], times[steps > 0]
    if total == 0:
        return 1.0
    reach = int((steps * times).sum())
    angles = np.pi * np.arange(reach + 1) / (reach + 1)
    characteristic = np.exp(1j * angles * reach)
    for step, count in zip(steps, times, strict=True):
        characteristic *= np.cos(angles * step) ** count
    share = np.fft.fft(characteristic).real / (reach + 1)
    extreme = np.abs(2 * np.arange(reach + 1) - reach) >= abs(total)
    fewest = max(2.0 ** (1 - int(times.sum())), SMALLEST_P)
    return float(min(max(share[extreme].sum(), fewest), 1.0))


def paired_p(
    value_a: float,
    value_b: float,
    distribution_a: ArrayLike,
    distribution_b: ArrayLike,
    groups_count: int,
    *,
    room: float = math.inf,
    sizes: ArrayLike | None = None,
) -> tuple[float, str]:
    """Two-sided p of the difference a - b of any metric from the resamples of one group bootstrap.

    It is the 1 - confidence at which `paired_interval` just reaches 0, so that p < 0.05 exactly where the 95 % interval
    leaves 0 out. It is never below 1 / (B + 1), with B the number of resamples in which both models have a value: B
    draws cannot tell rarer events apart. Gives (p, reason); p is NaN where the interval does not exist.

    >>> a = np.linspace(0.4, 0.6, 1000)
    >>> p, reason = paired_p(0.5, 0.4, a, np.full(1000, 0.4), groups_count=100)
    >>> round(p, 4), reason
    (0.0209, '')
    >>> paired_p(0.5, 0.1, a, np.full(1000, 0.1), groups_count=100)[0] == 1 / 1001
    True
    >>> paired_p(0.5, 0.5, a, a, groups_count=100)
    (nan, 'all resamples are equal')
    """

    measured = value_a, value_b, distribution_a, distribution_b, groups_count

    def interval(confidence: float) -> tuple[float, float]:
        lo, hi, why = paired_interval(*measured, confidence, room=room, sizes=sizes)
        return (value_a - value_b, value_a - value_b) if why else (lo, hi)

    reason = paired_interval(*measured, room=room, sizes=sizes)[2]
    if reason:
        return math.nan, reason
    return p_by_interval(interval, smallest_paired_p(distribution_a, distribution_b)), ""


def smallest_paired_p(distribution_a: ArrayLike, distribution_b: ArrayLike) -> float:
    """1 / (B + 1) for B resamples in which both have a value: B draws cannot tell rarer events apart.

    >>> smallest_paired_p([0.1, 0.2, math.nan], [0.1, 0.2, 0.3]) == 1 / 3
    True
    """
    differences = np.asarray(distribution_a, dtype=np.float64) - np.asarray(distribution_b, dtype=np.float64)
    return 1 / (1 + int((~np.isnan(differences)).sum()))


def p_by_interval(interval: Callable[[float], tuple[float, float]], smallest: float, *, steps: int = 30) -> float:
    """The 1 - confidence at which the interval (lo, hi) of a confidence just reaches 0; never below `smallest`.

    Halving the range `steps` times leaves an error of log(smallest) / 2^steps in log p, upwards.

    >>> round(p_by_interval(lambda confidence: (0.9 - confidence, 1.0), 0.001), 6)
    0.1
    """

    def leaves_zero_out(p: float) -> bool:
        lo, hi = interval(1 - p)
        return not lo <= 0 <= hi

    low, high = math.log(smallest), 0.0
    if leaves_zero_out(smallest):
        return smallest
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if leaves_zero_out(math.exp(middle)) else (middle, high)
    return math.exp(high)


def holm(p_values: ArrayLike) -> Floats:
    """Holm's (1979) adjusted p values: smallest first, p_(i) times the number not yet rejected, never falling.

        adjusted_(i) = min(1, max_{j <= i} (m - j + 1) p_(j))

    All below alpha are significant at a family-wise error of alpha. NaN (no test) stays NaN and does not count.
    These are the numbers of `statsmodels.stats.multitest`, without its 70 MB and the second that its import takes.

    >>> holm([0.01, 0.04, 0.03, float("nan")])
    array([0.03, 0.06, 0.06,  nan])
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1) | np.isnan(p)).all():
        raise ValueError("Holm's correction needs a list of p values between 0 and 1 (NaN where there is no test)")
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted


def holm_divisor(claims: int, count: Callable[[int], int]) -> int:
    """The divisor d of alpha with which Holm's correction of so many claims ends: those with p <= alpha/d are made.

    `count(d)` is how many claims reach alpha/d. From d = claims on, each claim that is made takes one off the divisor,
    until no further one reaches it. So claims can be judged by bounds at a stricter confidence, without p values.

    >>> p = [0.01, 0.04, 0.03, 0.005]
    >>> divisor = holm_divisor(4, lambda d: sum(value <= 0.05 / d for value in p))
    >>> divisor, [value <= 0.05 / divisor for value in p]
    (2, [True, False, False, True])
    """
    made = 0
    while True:
        divisor = max(claims - made, 1)
        now = count(divisor)
        if now <= made:
            return divisor
        made = now


def p_text(p: float) -> str:
    """A p value as people read it: two digits without the leading zero, and `< .001` for all that is below.

    >>> p_text(0.04321), p_text(0.25), p_text(1.0), p_text(3.5e-11)
    ('.043', '.25', '1', '< .001')
    """
    if p < LEAST_SHOWN_P:
        return f"< {LEAST_SHOWN_P:g}".replace("0.", ".")
    return f"{p:.2g}".removeprefix("0")
