"""What changed between two models at their thresholds, on the same images: each is rejected by its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roadworthy.metrics import Metric
from roadworthy.protocols.changes import OTHER_IMAGES, by_shares
from roadworthy.protocols.ood import gan_bounds
from roadworthy.protocols.operating_points.metrics import ACCEPTED_ERROR
from roadworthy.protocols.operating_points.rates import flags
from roadworthy.protocols.operating_points.thresholds import Decided
from roadworthy.statistics import Estimate, mean_interval
from roadworthy.statistics.nested import nested_estimate
from roadworthy.statistics.paired import PairedChange, p_by_interval

SMALLEST_P = 1e-6
"""The smallest p value that is looked for where GANs are the unit."""


def outside_change(change: PairedChange, before: Sequence[Decided], after: Sequence[Decided]) -> PairedChange:
    """Add the test of the share of accepted outliers of one set, repeats of each."""
    groups = [np.concatenate([decided.groups for decided in own]) for own in (before, after)]
    accepted = [np.concatenate([decided.accepted for decided in own]) for own in (before, after)]
    if not np.array_equal(groups[0], groups[1]):
        return replace(change, reason=OTHER_IMAGES)
    return by_shares(change, accepted[0], accepted[1], groups[0])


def gan_change(
    change: PairedChange, before: Sequence[Sequence[Decided]], after: Sequence[Sequence[Decided]]
) -> PairedChange:
    """Add the test of the share of accepted images of a configuration of GANs, a sequence of repeats for each GAN.

    GANs are the unit: their differences, and the images of each, are both sources of chance (`statistics.nested`).
    """
    by_images = outside_change(change, [one for own in before for one in own], [one for own in after for one in own])
    sides = [[float(np.mean([one.accepted.mean() for one in own])) for own in some] for some in (before, after)]
    differences = [later - earlier for earlier, later in zip(*sides, strict=True)]
    accepted = [np.concatenate([one.accepted for own in some for one in own]) for some in (before, after)]
    per_image = accepted[1].astype(np.float64) - accepted[0]
    objects = np.concatenate([one.groups for own in before for one in own])

    def bounded(confidence: float) -> Estimate:
        within = mean_interval(per_image, objects, -1, 1, confidence)
        return nested_estimate(differences, within, gan_bounds.GANS, confidence=confidence, limits=(-1.0, 1.0))

    def interval(confidence: float) -> tuple[float, float]:
        estimate = bounded(confidence)
        return estimate.lo, estimate.hi

    estimate = bounded(change.confidence)
    change = replace(by_images, groups=len(differences), lo=estimate.lo, hi=estimate.hi, method=estimate.method)
    if estimate.unbounded:
        return replace(change, p=math.nan, reason=estimate.reason)
    if not per_image.any():
        return replace(change, p=1.0)
    return replace(change, p=p_by_interval(interval, SMALLEST_P))


def inside_change(
    change: PairedChange, metric: Metric, before: Sequence[Decided], after: Sequence[Decided]
) -> PairedChange:
    """Add the test of a rate of in-distribution images, repeats of each; that among accepted ones cannot be paired."""
    if metric is ACCEPTED_ERROR:
        return replace(change, reason="it is over the images that each accepts, which are not the same")
    sides = [np.mean([flags(decided, metric) for decided in own], axis=0) for own in (before, after)]
    return by_shares(change, sides[0], sides[1], before[0].groups, math.lcm(len(before), len(after)))
