"""Crossings: the lowest severity at which a metric is beyond a threshold, with bounds that need no model of it.

A curve is measured on a grid of severities g_0 = 0 < g_1 < ... < g_m (0 is undisturbed data), each value f(g) with
bounds [L(g), U(g)] of confidence 1 - a. The threshold t is to be met from above here: f >= t (`at_least`); a metric
that must stay below it (`at_most`) is the same, mirrored. The crossing s* lies between g_k, the last severity of the
grid before the metric is beyond t for the first time, and g_k+1, the first where f < t.

    lo = the last severity of the initial run of the grid in which L >= t        (0 where there is none)
    hi = the first severity of the final run of the grid in which U < t          (infinite where there is none)

Why [lo, hi] holds s* with a chance of at least 1 - a, whatever the shape of the curve, however values at different
severities hang together (they are of the same images), and however fine the grid is:

    lo > g_k  would mean that the initial run reaches g_k+1, so L(g_k+1) >= t > f(g_k+1): the lower bound at this one
              severity is wrong, which has a chance of at most a / 2.
    hi <= g_k would mean that g_k is in the final run, so U(g_k) < t <= f(g_k): the upper bound at this one severity is
              wrong, which has a chance of at most a / 2.

Neither depends on how many severities there are: g_k and g_k+1 are not chosen by looking at the data, but by the truth.
So each bound alone holds with a chance of 1 - a / 2, and where the metric never crosses within the grid, lo is such a
one-sided bound.

Where the grid was made finer between two severities after a first look (`looks` = 2), s* may be missed in the first
look or in the second. Then bounds of confidence 1 - a / 2 at every severity keep the chance at 1 - a.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from roadworthy.statistics.estimates import Estimate

METHOD = "inverted bounds"


@dataclass(frozen=True)
class Crossing:
    """A crossing and what is to be known of it.

    severity  the estimate; infinite beyond the last severity, 0 where undisturbed data is beyond the threshold
    before    the last severity of the grid before the first crossing of the measured curve
    after     the first behind it; NaN where there is none
    back_at   the first severity where the metric surely meets the threshold again after surely missing it; else NaN
    """

    severity: Estimate
    before: float = math.nan
    after: float = math.nan
    back_at: float = math.nan


def pointwise_confidence(confidence: float, looks: int = 1) -> float:
    """The confidence at every severity that gives that of the crossing.

    >>> pointwise_confidence(0.95), round(pointwise_confidence(0.95, looks=2), 6)
    (0.95, 0.975)
    """
    return 1 - (1 - confidence) / looks


def first_crossing(severities: Sequence[float], curve: Sequence[Estimate], threshold: float, sign: int = 1) -> Crossing:
    """The first crossing of a curve on a grid that starts at 0; see the module.

    sign  1 where the metric is to be at least the threshold, -1 where at most

    The estimate is where the straight lines between the measured values cross the threshold first.

    >>> curve = [Estimate(v, v - 0.04, v + 0.04, n=9, groups=9) for v in (0.99, 0.95, 0.91, 0.85, 0.7)]
    >>> point = first_crossing([0, 1, 2, 3, 4], curve, 0.9)
    >>> round(point.severity.value, 3), point.severity.lo, point.severity.hi, point.before, point.after
    (2.167, 1, 3, 2, 3)
    >>> first_crossing([0, 1], curve[:2], 0.9).severity.reason
    'beyond level 1'
    """
    if len(severities) != len(curve) or len(curve) < 2 or severities[0] != 0:
        raise ValueError("a crossing needs a grid of severities that starts at 0, and a value at each")
    if any(lower >= upper for lower, upper in pairwise(severities)):
        raise ValueError(f"severities must rise, not {list(severities)}")
    missing = next((cell for cell in curve if cell.unbounded), None)
    if missing is not None:
        return Crossing(Estimate(math.nan, n=missing.n, groups=missing.groups, reason=missing.reason or "no bounds"))
    margins = [sign * (cell.value - threshold) for cell in curve]
    safe = [sign * ((cell.lo if sign > 0 else cell.hi) - threshold) >= 0 for cell in curve]
    lost = [sign * ((cell.hi if sign > 0 else cell.lo) - threshold) < 0 for cell in curve]
    lo = severities[_leading(safe) - 1] if safe[0] else 0.0
    final = _leading(lost[::-1])
    hi = severities[len(lost) - final] if final else math.inf
    crossed = next((index for index, margin in enumerate(margins) if margin < 0), None)
    bounded = Estimate(math.inf, lo, hi, n=curve[0].n, groups=min(cell.groups for cell in curve), method=METHOD)
    back_at = _back_at(severities, safe, lost)
    if crossed is None:
        estimate = replace(bounded, reason=f"beyond level {severities[-1]:g}")
        return Crossing(estimate, before=severities[-1], back_at=back_at)
    if crossed == 0:
        estimate = replace(bounded, value=0.0, reason="beyond the threshold already undisturbed")
        return Crossing(estimate, after=0.0, back_at=back_at)
    before, after = severities[crossed - 1], severities[crossed]
    share = margins[crossed - 1] / (margins[crossed - 1] - margins[crossed])
    reason = "" if math.isnan(back_at) else f"not monotone: it meets the threshold again at {back_at:g}"
    estimate = replace(bounded, value=before + share * (after - before), reason=reason)
    return Crossing(estimate, before, after, back_at)


def _leading(flags: Sequence[bool]) -> int:
    """How many are true before the first that is not."""
    return next((index for index, flag in enumerate(flags) if not flag), len(flags))


def _back_at(severities: Sequence[float], safe: Sequence[bool], lost: Sequence[bool]) -> float:
    """The first severity that surely meets the threshold after one that surely does not; NaN where there is none."""
    first = next((index for index, flag in enumerate(lost) if flag), len(lost))
    return next((severities[index] for index in range(first, len(safe)) if safe[index]), math.nan)
