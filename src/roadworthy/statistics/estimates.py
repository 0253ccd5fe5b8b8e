"""Estimates: a measured value with its bounds, the same from statistics to the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.showing import card
from roadworthy.statistics.bootstrap import GroupBootstrap, bootstrap_interval, difference_interval

CONFIDENCE = 0.95
RESAMPLES = 1000
LEAST_BOOTSTRAP_GROUPS = 50
"""With fewer objects a bootstrap bound can miss far more often than it says (docs/metrics.md), so none is given."""


@dataclass(frozen=True)
class Estimate:
    """A value with its two-sided bounds, as a row of a table says it.

    n, groups  how many images it rests on, and how many independent objects these show
    sd         the standard deviation over repeats;  method: how it is bounded
    reason     why there is no value or no bound, where numbers are NaN; otherwise what is to be known of it
    """

    value: float
    lo: float = math.nan
    hi: float = math.nan
    _: KW_ONLY
    n: int = 0
    groups: int = 0
    sd: float = math.nan
    method: str = ""
    reason: str = ""

    @property
    def missing(self) -> bool:
        """Whether there is no value."""
        return math.isnan(self.value)

    @property
    def unbounded(self) -> bool:
        """Whether the value or one of its bounds is missing."""
        return math.isnan(self.value) or math.isnan(self.lo) or math.isnan(self.hi)

    def over(self, n: int, groups: int) -> Estimate:
        """The same estimate, resting on so many images of so many objects."""
        return replace(self, n=n, groups=groups)

    def scaled(self, factor: float) -> Estimate:
        """The estimate of a metric that is `factor` times this one."""
        return replace(self, value=factor * self.value, lo=factor * self.lo, hi=factor * self.hi, sd=factor * self.sd)

    def _repr_html_(self) -> str:
        """For a notebook: the value with its bounds, and what it rests on, or why there is none."""
        if self.missing:
            return card("no value", self.reason or "not measured")
        bounds = "no bounds" if self.unbounded else f"[{self.lo:.4g}, {self.hi:.4g}]"
        rests = f"{self.n:,} images of {self.groups:,} objects" + (f", {self.method}" if self.method else "")
        return card(f"{self.value:.4g} {bounds}", *filter(None, [rests if self.n else "", self.reason]))

    def row(self, where: Mapping[str, Any], metric: str) -> dict[str, Any]:
        """The estimate as a row of a table."""
        return {
            **where,
            "metric": metric,
            "value": self.value,
            "lo": self.lo,
            "hi": self.hi,
            "n": self.n,
            "groups": self.groups,
            "sd": self.sd,
            "method": self.method,
            "reason": self.reason,
        }


def no_estimate(reason: str) -> Estimate:
    """An estimate without a value, and why."""
    return Estimate(math.nan, reason=reason)


def failed_estimate(reason: str) -> Estimate:
    """An estimate without a value, because a case failed."""
    return no_estimate(f"case failed: {reason}")


def bootstrap_estimate(
    value: float,
    resampled: NDArray[np.float64],
    groups: int,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """A value with bounds from its values (B,) in resampled groups, or the reason why it has none."""
    lo, hi, reason = math.nan, math.nan, f"a bootstrap bound needs {LEAST_BOOTSTRAP_GROUPS} objects, not {groups}"
    if groups >= LEAST_BOOTSTRAP_GROUPS:
        lo, hi, reason = bootstrap_interval(value, resampled, groups, confidence, bounds)
    return Estimate(value, lo, hi, groups=groups, method="group bootstrap", reason=reason)


def paired_estimate(
    value: float, differences: NDArray[np.float64], sizes: NDArray[np.int64], confidence: float, room: float
) -> Estimate:
    """A paired difference with bounds from its values (B,) in resamples of groups of these sizes: `paired_interval`."""
    lo, hi, groups = math.nan, math.nan, len(sizes)
    reason = f"a bootstrap bound needs {LEAST_BOOTSTRAP_GROUPS} objects, not {groups}"
    if groups >= LEAST_BOOTSTRAP_GROUPS:
        lo, hi, reason = difference_interval(value, differences, groups, confidence, room=room, sizes=sizes)
    return Estimate(value, lo, hi, groups=groups, method="paired group bootstrap", reason=reason)


def bounding_bootstrap(groups: ArrayLike, resamples: int, seed: int) -> GroupBootstrap:
    """The bootstrap that bounds are taken from; a single resample where too few groups give none.

    >>> bounding_bootstrap(["a", "a", "b"], 1000, 0).resamples
    1
    """
    few = len(np.unique(np.asarray(groups))) < LEAST_BOOTSTRAP_GROUPS
    return GroupBootstrap(groups, resamples=1 if few else resamples, seed=seed)


def mean_defined(values: Sequence[float]) -> float:
    """The mean of the values that are defined; NaN where none is."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def standard_deviation(values: Sequence[float]) -> float:
    """The standard deviation over repeats of the values that are defined; NaN for fewer than two."""
    defined = [value for value in values if not math.isnan(value)]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else math.nan


def deviation_over_conditions(conditions: Sequence[Sequence[float]]) -> float:
    """The standard deviation of all values of several conditions, a sequence of repeats each, taken together.

    It says how much conditions differ from each other, and hardly shrinks with more repeats.

    >>> deviation_over_conditions([[0.9, 0.9], [0.5, 0.5]])
    0.23094010767585033
    """
    return standard_deviation([value for repeats in conditions for value in repeats])


def deviation_over_repeats(conditions: Sequence[Sequence[float]]) -> float:
    """The standard deviation over repeats of the mean over conditions: how much the average changes when repeated.

    Conditions that lack a value in some repeat are left out, so that all means are over the same conditions.

    >>> deviation_over_repeats([[0.9, 0.9], [0.5, 0.5]])
    0.0
    """
    complete = [repeats for repeats in conditions if not any(math.isnan(value) for value in repeats)]
    return standard_deviation([float(np.mean(values)) for values in zip(*complete, strict=True)])


def mean_rows(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean over rows (B,) of the values that are defined; NaN where none is."""
    if len(rows) == 1:
        return rows[0]
    stacked = np.stack(rows)
    defined = ~np.isnan(stacked)
    counts = defined.sum(axis=0)
    sums = np.where(defined, stacked, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)
