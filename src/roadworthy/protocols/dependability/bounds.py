"""Bounds of the measures: every figure is a function of the confidence, made by one of these few."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.statistics import Estimate, mean_interval
from roadworthy.statistics.estimates import bootstrap_estimate, no_estimate

Bounded = Callable[[float], Estimate]
"""A value with the bounds that hold with a confidence."""


def no_value(reason: str) -> Bounded:
    """No value at any confidence, and the reason."""
    return lambda confidence: no_estimate(reason)


def no_bounds(value: float, reason: str) -> Bounded:
    """A value without bounds at any confidence, and the reason."""
    return lambda confidence: Estimate(value, reason=reason)


def counted(value: float, reason: str, method: str) -> Bounded:
    """A value that was counted, not estimated: both bounds are the value itself."""
    return lambda confidence: Estimate(value, value, value, method=method, reason=reason)


def from_numbers(numbers: Callable[[float], tuple[float, float, float, str]], method: str) -> Bounded:
    """The value, its bounds and the reason that a function gives for a confidence."""

    def estimate(confidence: float) -> Estimate:
        value, lo, hi, reason = numbers(confidence)
        return Estimate(value, lo, hi, method=method, reason=reason)

    return estimate


def from_interval(interval: Bounded, reason: str = "") -> Bounded:
    """The interval that a function gives for a confidence; `reason` stands before its own."""

    def estimate(confidence: float) -> Estimate:
        bounds = interval(confidence)
        return replace(bounds, reason="; ".join(filter(None, [reason, bounds.reason])))

    return estimate


def from_mean(values: NDArray[Any], objects: NDArray[np.intp], low: float, high: float, reason: str = "") -> Bounded:
    """The mean of values (n,) between `low` and `high`, bounded by the objects (n,) they come from."""
    if not len(values):
        return no_value(reason or "no images")
    inside = np.clip(values.astype(np.float64), low, high)
    return from_interval(partial(mean_interval, inside, objects, low, high), reason)


def from_resamples(value: float, resampled: NDArray[np.float64], groups: int, limits: tuple[float, float]) -> Bounded:
    """A value bounded by what it is in resamples of so many objects, (B,); it lies within the `limits`."""
    return lambda confidence: bootstrap_estimate(value, resampled, groups, confidence, limits)


def over_objects(bounded: Bounded, objects: NDArray[Any]) -> Bounded:
    """A figure over images that show these objects, (n,)."""
    n, groups = len(objects), len(np.unique(objects))
    return lambda confidence: bounded(confidence).over(n, groups)


def discounted(bounded: Bounded, coverage: float, reason: str) -> Bounded:
    """A figure times scenario coverage; no value where coverage is undefined, for the `reason` given."""
    if math.isnan(coverage):
        return no_value(reason or "scenario coverage is undefined")

    def estimate(confidence: float) -> Estimate:
        scaled = bounded(confidence).scaled(coverage)
        return replace(scaled, method=f"{scaled.method}, times coverage")

    return estimate
