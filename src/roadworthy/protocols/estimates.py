"""Estimates: a measured value with its bounds, as every protocol's tables and criteria give it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.statistics import bootstrap_interval
from roadworthy.verdict import Measurement

CONFIDENCE = 0.95
RESAMPLES = 1000
LEAST_BOOTSTRAP_GROUPS = 50
"""With fewer objects a bootstrap bound can miss far more often than it says (docs/metrics.md), so none is given."""


@dataclass(frozen=True)
class Estimate:
    """A value with its bounds and all that a table row says of it."""

    value: float
    lo: float = math.nan
    hi: float = math.nan
    reason: str = ""
    method: str = ""
    sd: float = math.nan

    def scaled(self, factor: float) -> Estimate:
        """The estimate of a metric that is `factor` times this one."""
        value, lo, hi, sd = (factor * number for number in (self.value, self.lo, self.hi, self.sd))
        return Estimate(value, lo, hi, self.reason, self.method, sd)

    def row(self, where: Mapping[str, Any], metric: str, n: int, groups: int) -> dict[str, Any]:
        """The estimate as a row of a table."""
        return {
            **where,
            "metric": metric,
            "value": self.value,
            "lo": self.lo,
            "hi": self.hi,
            "n": n,
            "groups": groups,
            "sd": self.sd,
            "method": self.method,
            "reason": self.reason,
        }

    def measurement(self, where: Mapping[str, Any], metric: str, n: int, groups: int) -> Measurement:
        """The estimate as a criterion judges it."""
        value, lo, hi, proportion = self.value, self.lo, self.hi, metric == "accuracy"
        return Measurement(where, value, lo, hi, n, groups, self.method, proportion, self.reason)


def failed_estimate(reason: str) -> Estimate:
    """An estimate without a value, because a case failed."""
    return Estimate(math.nan, reason=f"case failed: {reason}")


def bootstrap_estimate(
    value: float,
    resampled: NDArray[np.float64],
    groups: int,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """A value with bounds from resampled groups, or the reason why it has none."""
    return Estimate(value, *bootstrap_bounds(value, resampled, groups, confidence, bounds), "group bootstrap")


def bootstrap_bounds(
    value: float, resampled: NDArray[np.float64], groups: int, confidence: float, bounds: tuple[float, float]
) -> tuple[float, float, str]:
    """Bounds from resampled groups, or the reason why there are none."""
    if groups < LEAST_BOOTSTRAP_GROUPS:
        return math.nan, math.nan, f"a bootstrap bound needs {LEAST_BOOTSTRAP_GROUPS} objects, not {groups}"
    return bootstrap_interval(value, resampled, groups, confidence, bounds)


def mean_defined(values: Sequence[float]) -> float:
    """The mean of the values that are defined; NaN where none is."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def standard_deviation(values: Sequence[float]) -> float:
    """The standard deviation over repeats of the values that are defined; NaN for fewer than two."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else math.nan


def mean_rows(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean over rows (B,) of the values that are defined; NaN where none is."""
    if len(rows) == 1:
        return rows[0]
    stacked = np.stack(rows)
    defined = ~np.isnan(stacked)
    counts = defined.sum(axis=0)
    sums = np.where(defined, stacked, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)
