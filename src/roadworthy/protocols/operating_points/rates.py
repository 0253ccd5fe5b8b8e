"""Rates at a threshold: what is accepted and wrong, rejected and right; with bounds by objects, and as curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Metric
from roadworthy.protocols.operating_points.metrics import ACCEPTED_ERROR, ACCEPTED_WRONG, REJECTED, REJECTED_RIGHT
from roadworthy.protocols.operating_points.thresholds import Decided, Flags, Floats, Shown
from roadworthy.statistics import Estimate, proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, no_estimate, standard_deviation


def flags(decided: Decided, metric: Metric) -> Flags:
    """Which images (n,) count for a rate that is a share of all images.

    >>> shown = Shown(np.array([0.9, 0.5, 0.4]), np.array([True, False, False]), np.array(["a", "b", "c"]))
    >>> flags(shown.decided(0.5), ACCEPTED_WRONG), flags(shown.decided(0.5), REJECTED_RIGHT)
    (array([ True, False, False]), array([False, False,  True]))
    """
    accepted, wrong = decided.accepted, decided.wrong
    return {ACCEPTED_WRONG: accepted & wrong, REJECTED_RIGHT: ~accepted & ~wrong, REJECTED: ~accepted}[metric]


def shares(conditions: Sequence[Sequence[Decided]], metric: Metric) -> Floats:
    """Per image (n,), the share of repeats in which it counts, averaged over conditions."""
    by_condition = [np.mean([flags(decided, metric) for decided in own], axis=0) for own in conditions]
    return np.asarray(np.mean(by_condition, axis=0), np.float64)


def inside_estimate(
    conditions: Sequence[Sequence[Decided]],
    objects: NDArray[np.int64],
    metric: Metric,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """A rate of in-distribution images over conditions, a sequence of repeats each, bounded by their objects (n,).

    Neither repeats nor conditions raise n. The share of wrong answers among accepted ones is that of all repeats and
    conditions together; where nothing is accepted there is none.
    """
    groups = len(np.unique(objects))
    if not groups:
        return no_estimate("there is no image")
    if metric is ACCEPTED_ERROR:
        estimate = _accepted_error(conditions, objects, confidence)
        return estimate.over(len(objects), groups) if estimate.missing else estimate
    repeats = [float(flags(decided, metric).mean()) for decided in conditions[0]]
    sd = standard_deviation(repeats) if len(conditions) == 1 else math.nan
    estimate = proportion_interval(shares(conditions, metric), objects, confidence)
    return replace(estimate, sd=sd)


def _accepted_error(conditions: Sequence[Sequence[Decided]], objects: NDArray[np.int64], confidence: float) -> Estimate:
    every = [decided for own in conditions for decided in own]
    images = int(np.logical_or.reduce([decided.accepted for decided in every]).sum())
    if not images:
        return no_estimate("nothing is accepted")
    wrong = np.concatenate([decided.wrong[decided.accepted] for decided in every])
    of_objects = np.concatenate([objects[decided.accepted] for decided in every])
    repeats = [float(one.wrong[one.accepted].mean()) for one in conditions[0] if one.accepted.any()]
    sd = standard_deviation(repeats) if len(conditions) == 1 else math.nan
    return replace(proportion_interval(wrong.astype(np.float64), of_objects, confidence), n=images, sd=sd)


def outside_estimate(repeats: Sequence[Decided], confidence: float = CONFIDENCE) -> Estimate:
    """The share of outliers that are accepted, over repeats, bounded by their objects."""
    accepted = np.concatenate([decided.accepted for decided in repeats])
    groups = np.concatenate([decided.groups for decided in repeats])
    if not len(accepted):
        return no_estimate("there is no outlier")
    by_repeat = [float(decided.accepted.mean()) for decided in repeats]
    estimate = proportion_interval(accepted.astype(np.float64), groups, confidence)
    return replace(estimate, n=len(repeats[0].accepted), sd=standard_deviation(by_repeat))


def curves(shown: Shown, thresholds: Floats) -> tuple[Floats, Floats, Floats]:
    """Shares of all images at thresholds (T,): accepted and wrong, rejected and right, rejected; each (T,).

    >>> shown = Shown(np.array([0.9, 0.5, 0.4]), np.array([True, False, True]), np.array(["a", "b", "c"]))
    >>> [rate.round(3).tolist() for rate in curves(shown, np.array([0.4, 0.5, 1.0]))]
    [[0.667, 0.333, 0.0], [0.0, 0.0, 0.333], [0.0, 0.333, 1.0]]
    """
    order = np.argsort(shown.scores, kind="stable")
    below = np.searchsorted(shown.scores[order], thresholds, side="left")
    wrong_below = np.append(0, np.cumsum(shown.wrong[order]))[below]
    n = len(order)
    return (shown.wrong.sum() - wrong_below) / n, (below - wrong_below) / n, below / n
