"""A mean over few independent units (trained networks) that are all measured on one sample of objects.

Two sources of chance then add: which units were made, and which objects they were measured on. The first is bounded by
`mean_interval` with a value per unit, whatever the distribution of units; the second by a bootstrap of objects. Their
squared distances add (MOVER: Zou and Donner 2008):

    lo = value - sqrt((value - lo_units)^2 + (value - lo_objects)^2),    hi likewise
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.intervals import mean_interval

LEAST_UNITS = 2
"""One unit says nothing of how units differ."""
MOST_UNITS = 1_000_000
"""A number of units that nobody will make: where even so many would not do, none is said to."""


def added_interval(
    value: float, one: tuple[float, float], other: tuple[float, float], limits: tuple[float, float]
) -> tuple[float, float]:
    """The interval of a value with two independent sources of chance from its interval by each, cut to `limits`.

    >>> added_interval(0.5, (0.2, 0.8), (0.1, 0.9), (0, 1))
    (0.0, 1.0)
    >>> lo, hi = added_interval(0.5, (0.47, 0.53), (0.46, 0.54), (0, 1))
    >>> round(lo, 9), round(hi, 9)
    (0.45, 0.55)
    """
    below, above = (math.hypot(value - one[side], value - other[side]) for side in (0, 1))
    return max(value - below, limits[0]), min(value + above, limits[1])


def nested_estimate(
    means: Sequence[float],
    within: Estimate,
    unit: str,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """The mean of the means (G,) of units, each between `limits`, with bounds for further units of their kind.

    within   the same mean bounded by objects, the units held fixed
    unit     what the units are called, in the plural

    `groups` counts units. There is no bound for one unit, nor where there is none by objects; `reason` says so.

    >>> within = Estimate(0.75, 0.74, 0.76, n=200, groups=120)
    >>> nested_estimate([0.75], within, "GANs").reason
    'a bound over GANs needs at least 2 of them, not 1'
    >>> several = nested_estimate([0.7, 0.8], within, "GANs")
    >>> several.value, several.groups, several.lo < 0.7 < 0.8 < several.hi
    (0.75, 2, True)
    """
    count = len(means)
    estimate = replace(within, value=float(np.mean(means)), groups=count, lo=math.nan, hi=math.nan)
    if count < LEAST_UNITS:
        return replace(estimate, reason=f"a bound over {unit} needs at least {LEAST_UNITS} of them, not {count}")
    if within.unbounded:
        return estimate
    over_units = mean_interval(means, range(count), *limits, confidence)
    lo, hi = added_interval(estimate.value, (over_units.lo, over_units.hi), (within.lo, within.hi), limits)
    return replace(estimate, lo=lo, hi=hi, method=f"{over_units.method} of {unit}, {within.method}")


def further_units(
    means: Sequence[float],
    within: Estimate,
    threshold: float,
    *,
    confidence: float = 0.95,
    limits: tuple[float, float] = (0.0, 1.0),
) -> float:
    """About how many further units would bring the bound of `nested_estimate` beyond the threshold, if all stayed.

    Units as the ones at hand are added in equal numbers of each. Infinite where no number would do: value and threshold
    are equal, or the objects alone leave it open.

    >>> within = Estimate(0.95, 0.94, 0.96, n=200, groups=120)
    >>> further_units([0.94, 0.96], within, 0.9)
    70
    >>> further_units([0.94, 0.96], within, 0.945)
    inf
    """
    value = float(np.mean(means))

    def bound(times: int) -> float:
        estimate = nested_estimate([*means] * times, within, "units", confidence=confidence, limits=limits)
        return estimate.lo if value > threshold else estimate.hi

    def settled(times: int) -> bool:
        return (bound(times) - threshold) * (value - threshold) > 0

    objects_alone = within.lo if value > threshold else within.hi
    if len(means) < LEAST_UNITS or not (objects_alone - threshold) * (value - threshold) > 0:
        return math.inf
    most = 1
    while not settled(most):
        most *= 2
        if most * len(means) > MOST_UNITS:
            return math.inf
    return (smallest_settled(settled, most // 2, most) - 1) * len(means)


def smallest_settled(settled: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number above `low` at which a condition holds that holds at `high`, and from some number on.

    >>> smallest_settled(lambda number: number * number > 50, 4, 16)
    8
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high
