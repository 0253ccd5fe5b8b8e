"""Bounds of figures of a ranking (AUROC, FPR95): by objects, which may have images on both sides.

AUROC A is a mean of placements over either side: the share of the other side that an image is in the right order with.
Its variance is DeLong's with whole objects as clusters (Obuchowski 1997). Where the rarer side has k objects of equal
size, k = (sum s)^2 / sum s^2, the bounds are all values no farther from A than chance explains, as Wilson's of a share:

    |A - a| <= t_{k-1} sqrt(v(a) / N),    N = v(A) / variance

v(a) = a - 2 T(z_a, 1/sqrt 3) - a^2 (Owen's T) is the variance of one placement where scores are normal, and N says for
how many images of both sides the sample counts, at most 1 / (1/m + 1/n), and no more than its objects where nothing
varies. Near 1 the observed variance is far too small most of the time; v(a) grows towards the lower bound.

FPR95 is a share of negatives at a threshold that is itself estimated. The share at this threshold has the bounds of
`mean_interval`; the threshold those of a quantile by order statistics (binomial, with the effective number of
positives); the distances of both add in squares. Nothing is assumed of scores. Beyond the last positive nothing is
known: the upper bound is then 1.

A mean, or a difference, of several figures of the same objects (repeats, conditions, two models) has the bounds of
MOVER (Zou and Donner 2008), with the correlations that the objects show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betainc, ndtr, ndtri, owens_t, stdtrit

from roadworthy.metrics.ranking import RankedImages
from roadworthy.statistics.estimates import CONFIDENCE, Estimate
from roadworthy.statistics.intervals import interval_of_objects
from roadworthy.statistics.paired import p_by_interval

Floats = NDArray[np.float64]
Kept = NDArray[np.float32]

LEAST_RARE_OBJECTS = 6
"""With fewer objects on the rarer side a figure of a ranking has no bounds (docs/metrics.md)."""
SMALLEST_P = 1e-6
"""Bounds at a higher confidence rest on tails of which nobody knows how good they are."""
METHOD = "DeLong by objects"
RATE_METHOD = "order statistics by objects"


@dataclass(frozen=True, kw_only=True)
class RankedFigure:
    """A figure of one ranking, and what its bounds need.

    influence  (G,) float32, by how much each object moves the value;  rare: how many objects the rarer side has
    """

    value: float
    influence: Kept
    rare: int
    _known: dict[float, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)

    method = ""

    def limits(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Its bounds; the whole range where the rarer side has too few objects."""
        if self.rare < LEAST_RARE_OBJECTS:
            return 0.0, 1.0
        if confidence not in self._known:
            lo, hi = self._limits(confidence)
            self._known[confidence] = max(0.0, min(lo, self.value)), min(1.0, max(hi, self.value))
        return self._known[confidence]

    def _limits(self, confidence: float) -> tuple[float, float]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Area(RankedFigure):
    """AUROC, which counts for `effective` images of both sides.

    even  how many objects of equal size the rarer side counts for, (sum s)^2 / sum s^2 of its images per object
    """

    effective: float
    even: float

    method = METHOD

    def _limits(self, confidence: float) -> tuple[float, float]:
        reach = float(stdtrit(self.even - 1, (1 + confidence) / 2)) / math.sqrt(self.effective)
        distances = (_AREAS - self.value) / _DEVIATIONS
        lo, hi = np.interp([-reach, reach], distances, _AREAS)
        return float(lo), float(hi)


@dataclass(frozen=True, kw_only=True)
class Rate(RankedFigure):
    """The share of negatives accepted with a share `at` of the positives.

    means, sizes  (objects,) of the negatives: the share that is accepted, and how many there are
    rates         (positives,) with a threshold at each positive, lowest score first
    effective     for how many independent positives they count
    """

    means: Kept
    sizes: Kept
    rates: Kept
    effective: float
    at: float

    method = RATE_METHOD

    def _limits(self, confidence: float) -> tuple[float, float]:
        means, sizes = self.means.astype(np.float64), self.sizes.astype(np.float64)
        at_threshold = interval_of_objects(means, sizes, confidence)
        tails = (1 + confidence) / 2, (1 - confidence) / 2
        ranks = [_quantile_rank(self.effective, 1 - self.at, tail) for tail in tails]
        count, images = len(self.rates), len(self.rates) / self.effective
        first = math.floor(ranks[0] * images + 1e-9) if ranks[0] >= 1 else 0
        last = math.ceil(ranks[1] * images - 1e-9)
        most = float(self.rates[first - 1]) if first else 1.0
        least = float(self.rates[last - 1]) if last <= count else 0.0
        below = math.hypot(self.value - at_threshold[0], max(self.value - least, 0.0))
        above = math.hypot(at_threshold[1] - self.value, max(most - self.value, 0.0))
        return self.value - below, self.value + above


def placement_variance(area: ArrayLike) -> Floats:
    """The variance of one placement where scores of both sides are normal with one variance: 0 at an AUROC of 0 and 1.

        v(a) = a - 2 T(z_a, 1/sqrt 3) - a^2,    a = Phi(z_a), T Owen's function

    It is P(two images of one side both beat one of the other) - a^2.

    >>> float(placement_variance(0.5).round(4))
    0.0833
    """
    a = np.asarray(area, dtype=np.float64)
    a = np.minimum(a, 1 - a)
    return np.asarray(np.maximum(a - 2 * owens_t(ndtri(a), 1 / math.sqrt(3)) - a * a, 0.0))


_AREAS = ndtr(np.linspace(-5, 5, 2001))
_DEVIATIONS = np.sqrt(placement_variance(_AREAS))


def _quantile_rank(count: float, share: float, chance: float) -> float:
    """The rank i of `count` independent values of which P(i-th smallest < quantile of this share) is this chance.

    The i-th smallest has Beta(i, count - i + 1) below it. 0 where even the smallest is not so likely to lie below, and
    more than `count` where even the largest is likelier to.
    """

    def excess(rank: float) -> float:
        return float(betainc(rank, count - rank + 1, share)) - chance

    if excess(1e-9) < 0:
        return 0.0
    return count + 1 if excess(count) > 0 else float(brentq(excess, 1e-9, count, xtol=1e-6))


def ranked_figure(images: RankedImages, objects: ArrayLike, count: int | None = None) -> RankedFigure:
    """A figure of a ranking, with what its bounds need, from its images and the index of the object of each (n,).

    `count` is the number G of objects that figures to be compared rest on; both sides must have an image.

    >>> from roadworthy.metrics.ranking import Ranking
    >>> scores, positive = np.arange(40.0), np.arange(40) % 4 > 0
    >>> figure = ranked_figure(Ranking(scores, positive).area_by_image(), np.arange(40))
    >>> lo, hi = figure.limits()
    >>> round(figure.value, 3), round(lo, 3), round(hi, 3)
    (0.55, 0.321, 0.756)
    """
    index = np.asarray(objects)
    number = int(index.max()) + 1 if count is None else count
    sides = images.positive, ~images.positive
    held = [np.bincount(index[side], minlength=number) for side in sides]
    shown, images_of = [int((own > 0).sum()) for own in held], [int(own.sum()) for own in held]

    def moved(side: int, centre: float) -> Floats:
        """By how much objects move the mean of a side; with the factor of a variance that is estimated from k."""
        own, k = sides[side], shown[side]
        sums = np.bincount(index[own], images.placed[own] - centre, number) / images_of[side]
        return np.asarray(sums * math.sqrt(k / max(k - 1, 1)))

    rare, even = min(shown), min(float(own.sum() ** 2 / (own**2).sum()) for own in held)
    if images.rates is None or images.at is None:
        influence = moved(0, images.value) + moved(1, images.value)
        variance, expected = float((influence**2).sum()), float(placement_variance(images.value))
        counted = shown if variance <= 0 or expected <= 0 else images_of
        effective = 1 / sum(1 / own for own in counted)
        if variance > 0:
            effective = min(expected / variance, effective) if expected > 0 else effective
        kept = influence.astype(np.float32)
        return Area(value=images.value, influence=kept, rare=rare, even=max(even, 2.0), effective=effective)
    accepted = float(images.placed[images.positive].mean())
    moved_share = moved(0, accepted)
    variance = float((moved_share**2).sum())
    effective = accepted * (1 - accepted) / variance if variance > 0 else shown[0]
    means = np.bincount(index[sides[1]], images.placed[sides[1]], number)[held[1] > 0] / held[1][held[1] > 0]
    influence = moved(1, images.value) - _slope(images.value, images.at, images_of[1]) * moved_share
    return Rate(
        value=images.value,
        influence=influence.astype(np.float32),
        rare=rare,
        means=means.astype(np.float32),
        sizes=held[1][held[1] > 0].astype(np.float32),
        rates=images.rates.astype(np.float32),
        effective=float(np.clip(effective, shown[0], images_of[0])),
        at=images.at,
    )


def _slope(rate: float, at: float, negatives: int) -> float:
    """How much the rate rises with the share of positives accepted, along a ROC curve of normal scores."""
    rate = float(np.clip(rate, 0.5 / (negatives + 1), 1 - 0.5 / (negatives + 1)))
    return math.exp((float(ndtri(at)) ** 2 - float(ndtri(rate)) ** 2) / 2)


Cells = Sequence[Sequence[RankedFigure]]
"""The figures of every case, in each of its repeats."""


def ranked_estimate(cells: Cells, baseline: Cells = (), confidence: float = CONFIDENCE) -> Estimate:
    """The mean over cells of figures of the same objects, or how much larger it is than that of a baseline.

    With d_c the distance of a bound of each figure, w_c its weight (negative at the baseline) and u_c its influences at
    length 1, the bounds lie |sum w_c d_c u_c| away: MOVER with the correlations that objects show. What both sides of a
    difference share cancels but for one part in k + 1: one more object may tell them apart. A figure that no object
    moves counts in full. With fewer than 6 objects on the rarer side a figure may lie anywhere in its range; where more
    than half of either side are such figures there is no bound, and a reason.
    """
    value = mean_of_cells(cells) - (mean_of_cells(baseline) if baseline else 0.0)
    method = ("paired " if baseline else "") + cells[0][0].method
    for side in filter(len, (cells, baseline)):
        rare = [min(one.rare for one in cell) for cell in side]
        few = [count for count in rare if count < LEAST_RARE_OBJECTS]
        if 2 * len(few) > len(rare):
            cases = "" if len(rare) == 1 else f" in {len(few)} of {len(rare)} cases"
            least = f"a bound of a ranking needs {LEAST_RARE_OBJECTS} objects on the rarer side"
            return Estimate(value, method=method, reason=f"{least}, not {min(few)}{cases}")
    span = (-1.0, 1.0) if baseline else (0.0, 1.0)
    below = _distance(cells, 0, baseline, 1, confidence)
    above = _distance(cells, 1, baseline, 0, confidence)
    return Estimate(value, max(value - below, span[0]), min(value + above, span[1]), method=method)


def ranked_p(cells: Cells, baseline: Cells) -> float:
    """Two-sided p of a difference: the 1 - confidence at which its bounds just reach 0, and never below 0.000001."""

    def interval(confidence: float) -> tuple[float, float]:
        estimate = ranked_estimate(cells, baseline, confidence)
        return estimate.lo, estimate.hi

    return p_by_interval(interval, SMALLEST_P)


def mean_of_cells(cells: Cells) -> float:
    """The mean over cells of the mean over the repeats of each."""
    return float(np.mean([np.mean([one.value for one in cell]) for cell in cells]))


def _distance(cells: Cells, end: int, baseline: Cells, other_end: int, confidence: float) -> float:
    """How far away a bound lies that is one end of the figures' and the other end of the baseline's."""
    moved, still = _moved(cells, end, confidence)
    if not baseline:
        return math.hypot(float(np.linalg.norm(moved)), still)
    of_baseline, still_there = _moved(baseline, other_end, confidence)
    shared = float(moved @ of_baseline)
    counts = [one.rare for side in (cells, baseline) for cell in side for one in cell]
    rare = min(count for count in counts if count >= LEAST_RARE_OBJECTS)
    shared *= rare / (rare + 1) if shared > 0 else 1.0
    squares = float(moved @ moved) + float(of_baseline @ of_baseline) - 2 * shared
    return math.sqrt(max(squares, 0.0) + still**2 + still_there**2)


def _moved(cells: Cells, end: int, confidence: float) -> tuple[Floats, float]:
    """The mean over figures of distances along what objects do to them, (G,); and of those that no object moves."""
    moved, still = np.zeros(len(cells[0][0].influence)), 0.0
    for cell in cells:
        for one in cell:
            distance = abs(one.limits(confidence)[end] - one.value) / (len(cells) * len(cell))
            influence = one.influence.astype(np.float64)
            length = float(np.linalg.norm(influence))
            if length > 0 and one.rare >= LEAST_RARE_OBJECTS:
                moved += distance / length * influence
            else:
                still += distance
    return moved, still
