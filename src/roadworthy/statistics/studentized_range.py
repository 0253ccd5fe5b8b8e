"""The studentized range: tail and quantiles for many values at once, as post hoc comparisons need them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, log_ndtr, logsumexp

Floats = NDArray[np.float64]

NODES = 513
"""Nodes of the trapezoid rule over the logarithm of the scale; it converges exponentially."""
MOST_EXACT = 129
"""Quantiles for more degrees of freedom than this are interpolated from as many (cubic, on logarithms)."""
LARGEST_RANGE = 40.0
LOG_NEGLIGIBLE = 40.0


def range_tail(q: ArrayLike, means: int, df: ArrayLike) -> Floats:
    """P(Q > q) for the range of k = `means` standard normal values over an independent estimate of their scale.

        P(Q > q) = integral f(s) R(q s) ds,  s = sqrt(chi^2_df / df)
        R(w) = k integral phi(z) (Phi(z)^(k-1) - (Phi(z) - Phi(z - w))^(k-1)) dz

    `q` and `df` broadcast. Right to about 1e-8. 500 times as fast as `scipy.stats.studentized_range` for 40 values,
    quantiles 60 to 230 times: figures compare thousands of pairs.

    >>> range_tail([3.0, 4.0], 3, 10).round(6)
    array([0.134983, 0.043349])
    """
    q, df = np.broadcast_arrays(np.asarray(q, dtype=np.float64), np.asarray(df, dtype=np.float64))
    if means < 2 or not (df > 0).all() or not (q >= 0).all():
        raise ValueError("a studentized range needs two means or more, positive degrees of freedom and q >= 0")
    width = np.sqrt(LOG_NEGLIGIBLE / df)
    low, high = -width - LOG_NEGLIGIBLE / df, width
    step = (high - low) / (NODES - 1)
    log_scale = low[..., None] + step[..., None] * np.arange(NODES)
    half = df[..., None] / 2
    log_density = math.log(2) + half * np.log(half) - gammaln(half) + 2 * half * (log_scale - np.exp(2 * log_scale) / 2)
    ranges = q[..., None] * np.exp(log_scale)
    log_tail = np.where(ranges < LARGEST_RANGE, _log_normal_range(means)(np.minimum(ranges, LARGEST_RANGE)), -np.inf)
    return np.asarray(np.minimum(step * np.exp(log_density + log_tail).sum(axis=-1), 1.0))


def range_quantile(confidence: float, means: int, df: ArrayLike) -> Floats:
    """The q with P(Q <= q) = `confidence`, for each of the degrees of freedom.

    >>> range_quantile(0.95, 3, [10, 20]).round(3)
    array([3.877, 3.578])
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    degrees = np.asarray(df, dtype=np.float64)
    unique, back = np.unique(degrees, return_inverse=True)
    if len(unique) <= MOST_EXACT:
        return np.asarray(_solve(confidence, means, unique)[back].reshape(degrees.shape))
    knots = np.geomspace(unique[0], unique[-1], MOST_EXACT)
    smooth = CubicSpline(np.log(knots), np.log(_solve(confidence, means, knots)))
    return np.asarray(np.exp(smooth(np.log(degrees))))


def _solve(confidence: float, means: int, df: Floats) -> Floats:
    """Quantiles by false position (Illinois) on the logarithm of the tail, all degrees of freedom at once."""
    target = math.log(1 - confidence)

    def excess(q: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(range_tail(q, means, df)), -700) - target

    low, high = np.zeros_like(df), np.full_like(df, 4.0)
    at_low, at_high = np.full_like(df, -target), excess(high)
    while (at_high > 0).any():
        low, at_low = np.where(at_high > 0, high, low), np.where(at_high > 0, at_high, at_low)
        high = np.where(at_high > 0, 2 * high, high)
        at_high = excess(high)
    for _ in range(100):
        between = (low * at_high - high * at_low) / (at_high - at_low)
        value = excess(between)
        below = value > 0
        low, at_low = np.where(below, between, low), np.where(below, value, at_low / 2)
        high, at_high = np.where(below, high, between), np.where(below, at_high / 2, value)
        if np.abs(value).max() < 1e-10:
            break
    return between


@lru_cache(maxsize=32)
def _log_normal_range(means: int) -> CubicSpline:
    """log R(w) for w from 0 to 40: the range of `means` standard normal values exceeds w."""
    w = np.linspace(0, LARGEST_RANGE, 1001)
    largest = np.arange(-9, 30, 0.04)
    log_cdf = log_ndtr(largest)
    constant = math.log(means * 0.04) - largest**2 / 2 - math.log(2 * math.pi) / 2 + (means - 1) * log_cdf
    with np.errstate(divide="ignore"):
        none_below = np.log1p(-np.exp(np.minimum(log_ndtr(largest - w[:, None]) - log_cdf, 0)))
        log_tail = logsumexp(constant + np.log(-np.expm1((means - 1) * none_below)), axis=1)
    return CubicSpline(w, np.minimum(log_tail, 0))
