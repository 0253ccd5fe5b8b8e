"""Bounds of the measures: every figure is a function of the confidence, made by one of these few."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Answers
from roadworthy.metrics.classification import OfRows
from roadworthy.protocols.estimates import Estimate, bootstrap_estimate
from roadworthy.statistics import GroupBootstrap, Interval, mean_interval

Bounded = Callable[[float], Estimate]
"""A value with the bounds that hold with a confidence."""


def no_value(reason: str) -> Bounded:
    """No value at any confidence, and the reason."""
    return lambda confidence: Estimate(math.nan, math.nan, math.nan, reason, "")


def counted(value: float, reason: str, method: str) -> Bounded:
    """A value that was counted, not estimated: both bounds are the value itself."""
    return lambda confidence: Estimate(value, value, value, reason, method)


def from_numbers(numbers: Callable[[float], tuple[float, float, float, str]], method: str) -> Bounded:
    """The value, its bounds and the reason that a function gives for a confidence."""

    def estimate(confidence: float) -> Estimate:
        value, lo, hi, reason = numbers(confidence)
        return Estimate(value, lo, hi, reason, method)

    return estimate


def from_interval(interval: Callable[[float], Interval], reason: str = "") -> Bounded:
    """The interval that a function gives for a confidence; `reason` stands before its own."""

    def estimate(confidence: float) -> Estimate:
        bounds = interval(confidence)
        reasons = "; ".join(filter(None, [reason, bounds.reason]))
        return Estimate(bounds.value, bounds.lo, bounds.hi, reasons, bounds.method)

    return estimate


def from_mean(values: NDArray[Any], objects: NDArray[np.intp], low: float, high: float, reason: str = "") -> Bounded:
    """The mean of values (n,) between `low` and `high`, bounded by the objects (n,) they come from."""
    if not len(values):
        return no_value(reason or "no images")
    inside = np.clip(values.astype(np.float64), low, high)
    return from_interval(partial(mean_interval, inside, objects, low, high), reason)


def from_resamples(
    value: float, of_rows: OfRows, answers: Answers, bootstrap: GroupBootstrap, limits: tuple[float, float]
) -> Bounded:
    """The value of a metric of answers, bounded by resampled objects; `limits` are its lowest and highest value."""
    resampled = np.concatenate([of_rows(answers, weights) for weights in bootstrap.chunks()])
    return lambda confidence: bootstrap_estimate(value, resampled, bootstrap.groups, confidence, limits)


def discounted(bounded: Bounded, coverage: float, reason: str) -> Bounded:
    """A figure times scenario coverage; no value where coverage is undefined, for the `reason` given."""
    if math.isnan(coverage):
        return no_value(reason or "scenario coverage is undefined")

    def estimate(confidence: float) -> Estimate:
        scaled = bounded(confidence).scaled(coverage)
        return replace(scaled, method=f"{scaled.method}, times coverage")

    return estimate
