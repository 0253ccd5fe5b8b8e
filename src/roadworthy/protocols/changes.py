"""What a protocol says of two systems that were shown the same images, condition by condition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.metrics import Metric
from roadworthy.statistics import Estimate, mcnemar, mean_interval, paired_interval, paired_p, sign_flip_p
from roadworthy.statistics.estimates import LEAST_BOOTSTRAP_GROUPS, no_estimate
from roadworthy.statistics.nested import nested_estimate
from roadworthy.statistics.paired import PairedChange, p_by_interval
from roadworthy.statistics.ranked import Cells, ranked_estimate, ranked_p
from roadworthy.verdict import Measurement

if TYPE_CHECKING:
    from roadworthy.protocols.base import StoredCase

SIGN_FLIP_STEPS = 50
"""Differences are rounded to this many steps of the largest, so that all flips can be counted exactly."""
P_STEPS = 14
"""How closely p by an interval is looked for: to .2 % at p of 1e-12, to less where p is larger."""
NEARLY_1 = 1 - 1e-6
"""A p of sign flips above this is 1 but for rounding: no interval has a confidence of 0."""
FLIPS_AND_INTERVAL = "sign flips and interval by group"
OTHER_IMAGES = "other images: they cannot be paired"
SAME_CASES = "the same cases: nothing is estimated"
"""The method of a change between two systems that gave their answers once: the stored cases of both are the same."""
SAME_ANSWERS = "equal in every resample: a bootstrap does not bound how the two could differ on other objects"


def not_paired(names: Sequence[object], shown: Sequence[Mapping[Any, object]], condition: object) -> str:
    """Why a condition of two systems cannot be paired, or an empty text; `shown` says how each was shown them.

    >>> not_paired(("old", "new"), ({"fog": "thick"}, {"rain": ""}), "fog")
    'new was not shown it'
    """
    for name, conditions in zip(names, shown, strict=True):
        if condition not in conditions:
            return f"{name} was not shown it"
    return "" if shown[0][condition] == shown[1][condition] else "shown with other parameters or other code"


def worsened(measured: Measurement, changes: Sequence[PairedChange], metric: Metric, confidence: float) -> Measurement:
    """What a criterion against a baseline is judged by: how much worse a metric became in a condition.

    measured   what the system says of the condition by itself;  changes   of all conditions, as a comparison gives them

    The change of the condition is the one whose `columns` are those of the measurement, the model apart; a reason why
    there is none may be that of several conditions. Positive is worse.
    """
    condition = _without_model(measured.where)
    exact = [one for one in changes if _without_model(one.columns) == condition]
    wider = [one for one in changes if one.reason and _without_model(one.columns).items() <= condition.items()]
    change = next(iter([*exact, *wider]), None)
    why = "" if change is None else change.reason if math.isnan(change.lo) or math.isnan(change.hi) else ""
    if change is None:
        why = "it is not compared for such conditions"
    elif not why and change.confidence != confidence:
        why = f"its change is not bounded with a confidence of {confidence:g}"
    unknown = f"not compared with the baseline: {why}" if why else ""
    if change is None:
        return Measurement(measured.where, no_estimate(unknown), unit=measured.unit)
    worse = -1.0 if metric.higher_is_better else 1.0
    bounds = (math.nan, math.nan) if unknown else sorted([worse * change.lo + 0.0, worse * change.hi + 0.0])
    counts: dict[str, Any] = {"n": change.n, "groups": change.groups, "method": change.method}
    estimate = Estimate(worse * change.change + 0.0, *bounds, **counts, reason=unknown or change.reason)
    return Measurement(measured.where, estimate, unit=measured.unit)


def _without_model(where: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in where.items() if name not in ("source", "model")}


def same_cases(before: Sequence[StoredCase], after: Sequence[StoredCase]) -> bool:
    """Whether two systems were asked in the same cases, by all that decides an answer: the model's weights, too."""
    hashes = [sorted(case.hash for case in own) for own in (before, after)]
    return hashes[0] == hashes[1] and all(hashes[0]) and bool(hashes[0])


def of_same_cases(change: PairedChange) -> PairedChange:
    """The change of figures that both sides read from the same cases: 0, known for every image there could be.

    A change that is not 0 stays as it is: something else than the answers differs.

    >>> of_same_cases(PairedChange("fog", 1, "ece", change=0.0, lo=-0.1, hi=0.1, p=1.0)).hi
    0.0
    """
    if change.change != 0:
        return change
    return replace(change, lo=0.0, hi=0.0, p=1.0, method=SAME_CASES, reason="")


def worse_of_same_cases(measured: Measurement) -> Measurement:
    """What a criterion against a baseline is judged by where both runs read the same cases: see `of_same_cases`."""
    if measured.estimate.value != 0:
        return measured
    return replace(measured, estimate=replace(measured.estimate, lo=0.0, hi=0.0, method=SAME_CASES, reason=""))


def by_mcnemar(change: PairedChange, before: ArrayLike, after: ArrayLike, objects: ArrayLike) -> PairedChange:
    """Add the test of which images (n,) were right before and after; images of one object stay together."""
    test = mcnemar(after, before, objects, change.confidence)
    change = replace(change, n=test.n, groups=test.groups, method=test.method, p=test.p)
    change = replace(change, change=test.difference, lo=test.lo, hi=test.hi)
    if test.groups == test.n:
        return change
    differences = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    return by_flips(change, test.p, partial(mean_interval, differences, objects, -1, 1))


def by_flips(change: PairedChange, flips_p: float, interval: Callable[[float], Estimate]) -> PairedChange:
    """Add p of a mean over objects: the larger one of sign flips and of the `interval` of a confidence.

    Flips alone are exact where swapping the systems changes nothing but chance. Where one fails on whole objects and
    the other on single images, they find a difference of means that is none; the interval does not.
    """
    change = replace(change, method=FLIPS_AND_INTERVAL, p=flips_p)
    if math.isnan(flips_p) or flips_p > NEARLY_1:
        return change

    def bounds(confidence: float) -> tuple[float, float]:
        estimate = interval(confidence)
        return estimate.lo, estimate.hi

    return replace(change, p=p_by_interval(bounds, flips_p, steps=P_STEPS))


def flip_p(differences: ArrayLike) -> float:
    """Two-sided p of the sum of differences (G,), one per object, by flipping their signs; see `SIGN_FLIP_STEPS`.

    >>> round(flip_p([0.2, 0.2, 0.2, 0.2, 0.2, 0.2]), 6)
    0.03125
    """
    sums = np.asarray(differences, dtype=np.float64)
    steps = np.rint(sums / max(float(np.abs(sums).max()), 1e-300) * SIGN_FLIP_STEPS)
    return sign_flip_p(int(steps.sum()), np.abs(steps))


def by_shares(
    change: PairedChange, before: ArrayLike, after: ArrayLike, objects: ArrayLike, repeats: int = 1
) -> PairedChange:
    """Add the test of a share of images, of which each (n,) counts in so many of its `repeats`: a whole number of them.

    With one repeat it is McNemar's test; otherwise the signs of paired differences are flipped object by object, and
    the interval is asked, too.
    """
    values = [np.asarray(own, np.float64) for own in (before, after)]
    change = replace(change, before=float(values[0].mean()), after=float(values[1].mean()))
    if repeats == 1:
        return by_mcnemar(change, values[0], values[1], objects)
    names, index = np.unique(np.asarray(objects), return_inverse=True)
    differences = values[1] - values[0]
    interval = partial(mean_interval, differences.clip(-1, 1), index, -1, 1)
    bounds = interval(change.confidence)
    sums = np.bincount(index, np.rint(differences * repeats), len(names))
    change = replace(change, n=len(index), groups=len(names), change=change.after - change.before)
    change = replace(change, lo=bounds.lo, hi=bounds.hi)
    return by_flips(change, sign_flip_p(int(sums.sum()), np.abs(sums)), interval)


def by_bootstrap(
    change: PairedChange,
    before: ArrayLike,
    after: ArrayLike,
    *,
    room: float = math.inf,
    sizes: ArrayLike | None = None,
) -> PairedChange:
    """Add the test by the metric's values (B,) before and after in resamples that draw the same objects for both.

    room   how far two values can lie apart;  sizes   how many images each object has: see `paired_interval`

    Where both are equal in every resample nothing speaks for a change (p is 1), and without `room` nothing bounds it.
    """
    change = replace(change, change=change.after - change.before)
    if change.groups < LEAST_BOOTSTRAP_GROUPS:
        return replace(change, reason=f"a bootstrap bound needs {LEAST_BOOTSTRAP_GROUPS} objects, not {change.groups}")
    if math.isnan(change.before) or math.isnan(change.after):
        return replace(change, reason="undefined for one of the two")
    values = change.after, change.before, after, before, change.groups
    lo, hi, no_interval = paired_interval(*values, change.confidence, room=room, sizes=sizes)
    p, no_p = paired_p(*values, room=room, sizes=sizes)
    if np.array_equal(before, after, equal_nan=True) and change.change == 0:
        p, no_p, no_interval = 1.0, "", no_interval and SAME_ANSWERS
    return replace(change, lo=lo, hi=hi, p=p, method="paired group bootstrap", reason=no_interval or no_p)


def by_ranked(change: PairedChange, before: Cells, after: Cells) -> PairedChange:
    """Add the test of a figure of a ranking from what bounds it before and after, on the same objects."""
    change = replace(change, change=change.after - change.before)
    if not before or not after or math.isnan(change.change):
        return replace(change, reason="undefined for one of the two")
    bounded = ranked_estimate(after, before, change.confidence)
    if bounded.reason:
        return replace(change, reason=bounded.reason)
    return replace(change, lo=bounded.lo, hi=bounded.hi, p=ranked_p(after, before), method=bounded.method)


def by_units(
    by_objects: PairedChange,
    differences: Sequence[float],
    unit: str,
    interval_by_objects: Callable[[float], tuple[float, float, str]],
    smallest_p: float,
) -> PairedChange:
    """The test of a mean over few independent units, such as GANs, both systems measured on each of them.

    by_objects   the change with the units held fixed;  smallest_p: below which p cannot be told
    differences  after - before of every unit, (G,);  unit: what they are called, in the plural
    interval_by_objects  from a confidence to lo, hi of the change with the units held fixed, or a reason

    Bounds are for further units of their kind (`statistics.nested`); p is the 1 - confidence at which they reach 0.
    """
    change = replace(by_objects, groups=len(differences), lo=math.nan, hi=math.nan, p=math.nan, method="")

    def bounded(confidence: float) -> Estimate:
        lo, hi, reason = interval_by_objects(confidence)
        lo, hi = (change.change, change.change) if reason else (lo, hi)  # at a confidence that asks for nearly nothing
        within = Estimate(change.change, lo, hi, method=by_objects.method)
        return nested_estimate(differences, within, unit, confidence=confidence, limits=(-1.0, 1.0))

    def interval(confidence: float) -> tuple[float, float]:
        estimate = bounded(confidence)
        return estimate.lo, estimate.hi

    if not any(differences) and by_objects.reason == SAME_ANSWERS:
        return replace(by_objects, groups=len(differences))
    if by_objects.reason:
        return change
    estimate = bounded(change.confidence)
    if estimate.reason:
        return replace(change, reason=estimate.reason)
    p = p_by_interval(interval, smallest_p)
    return replace(change, lo=estimate.lo, hi=estimate.hi, p=p, method=estimate.method)
