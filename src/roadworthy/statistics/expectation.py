"""Expected situations: what a metric comes to over all of them, by how often they occur, and in which it is enough.

Situations that were shown on the same images belong together: an object counts once, with its values in all of them.
Samples of other images are independent, unless objects are in several of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.statistics.estimates import Estimate
from roadworthy.statistics.intervals import mean_interval, proportion_interval, wilson

Floats = NDArray[np.float64]
Status = Literal["met", "missed", "undecided"]

MET: Status = "met"
MISSED: Status = "missed"
UNDECIDED: Status = "undecided"
STATUSES: tuple[Status, ...] = (MET, MISSED, UNDECIDED)
DIGITS = 12
"""Weighted sums are rounded to so many digits, so that neither their order nor a split weight shows in a bound."""
JOINT, SQUARED = "simultaneous bounds", "squared and added"
"""How intervals are bounded that hold together, and how those of independent samples are combined."""
SHARED_OBJECTS = "objects are in several samples, so that their bounds are added up"


@dataclass(frozen=True)
class SituationSample:
    """Situations shown on the same images.

    shares (K,)      how often each occurs, of all situations
    values (K, n)    the metric of every situation and image;  groups (n,): the objects
    """

    shares: Floats
    values: Floats
    groups: NDArray[np.object_]

    @property
    def share(self) -> float:
        """How often its situations occur, taken together."""
        return float(self.shares.sum())

    def per_image(self) -> Floats:
        """(n,) the mean over its situations of the values of each image, by how often they occur."""
        weighted = self.shares @ self.values / self.share
        return np.asarray(np.round(weighted, DIGITS))


@dataclass(frozen=True)
class ShareMet:
    """The share of expected situations that meet a threshold, and what is shown of each situation.

    share      value: situations whose metric meets it; lo: those shown to; hi: all but those shown to miss it
    missed     the share of situations that are shown to miss it;  undecided: of those where neither is shown
    statuses   of the situations, in their order
    """

    share: Estimate
    missed: float
    undecided: float
    statuses: tuple[Status, ...]


def expected_value(
    samples: Sequence[SituationSample],
    low: float,
    high: float,
    *,
    proportion: bool = False,
    counts: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """The mean of a metric over expected situations, by how often they occur: E = sum_k w_k m_k.

    samples      the situations, by the images that they were shown on; shares add up to 1
    low, high    the range of the metric;  proportion: whether each image counts 0 or 1
    counts (K,)  how often each situation, sample by sample, was observed, where shares are estimated by that

    Within a sample the value of an image is sum_k w_k v_ik / W with W = sum_k w_k; its mean m has the bounds l, u of
    `mean_interval` (`proportion_interval` where each image counts 0 or 1), which count objects. Samples j that share no
    object are independent, and their distances are squared and added (Zou and Donner 2008):

        lo = E - sqrt(sum_j W_j^2 (m_j - l_j)^2),    hi = E + sqrt(sum_j W_j^2 (u_j - m_j)^2)

    Where an object is in two of J samples, each has the confidence 1 - (1 - confidence) / J and lo = sum_j W_j l_j,
    which holds whatever their dependence. Counted frequencies are one more independent sample, of weight 1: each
    observation has the measured value of its situation. With a single situation the estimate is that situation's own.

    >>> day = SituationSample(np.array([0.75, 0.15]), np.array([[1.0, 1, 1, 1], [1, 1, 0, 0]]), np.array([*"abcd"]))
    >>> night = SituationSample(np.array([0.1]), np.array([[1.0, 0.0]]), np.array([*"ef"]))
    >>> round(expected_value([day, night], 0, 1).value, 12)
    0.875
    """
    weights = [sample.share for sample in samples]
    if not samples or min(weights) <= 0 or abs(sum(weights) - 1) > 1e-6:
        raise ValueError(f"expected situations need shares above 0 that add up to 1, not {weights}")
    names = [np.unique(sample.groups) for sample in samples]
    objects = len(np.unique(np.concatenate(names)))
    shared = objects < sum(len(own) for own in names)
    within = joint_confidence(confidence, len(samples)) if shared else confidence

    def interval(sample: SituationSample) -> Estimate:
        values = sample.per_image().clip(low, high)
        if proportion:
            return proportion_interval(values, sample.groups, within)
        return mean_interval(values, sample.groups, low, high, within)

    parts = [interval(sample) for sample in samples]
    terms = [(1.0, _sum_of_bounds(parts, weights))] if shared else [*zip(weights, parts, strict=True)]
    value = math.fsum(weight * part.value for weight, part in terms)
    if counts is not None:
        values = [sample.values for sample in samples]
        terms.append((1.0, _by_observations(values, counts, low, high, confidence)))
    estimate = terms[0][1] if len(terms) == 1 else _squared_and_added(value, terms)
    value, lo, hi = (min(max(end, low), high) for end in (estimate.value, estimate.lo, estimate.hi))
    return replace(estimate, value=value, lo=lo, hi=hi, n=sum(part.n for part in parts), groups=objects)


def _squared_and_added(value: float, terms: Sequence[tuple[float, Estimate]]) -> Estimate:
    """A value that is known as well as independent terms are, each an estimate and the weight of its distances."""
    below = math.hypot(*(weight * (part.value - part.lo) for weight, part in terms))
    above = math.hypot(*(weight * (part.hi - part.value) for weight, part in terms))
    first = terms[0][1]
    return Estimate(value, value - below, value + above, method=f"{first.method}, {SQUARED}", reason=first.reason)


def _sum_of_bounds(parts: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """The weighted sum of estimates whose bounds hold together."""
    value, lo, hi = (
        math.fsum(weight * getattr(part, end) for weight, part in zip(weights, parts, strict=True))
        for end in ("value", "lo", "hi")
    )
    return Estimate(value, lo, hi, method=f"{parts[0].method}, {JOINT}", reason=SHARED_OBJECTS)


def _by_observations(
    values: Sequence[Floats], counts: ArrayLike, low: float, high: float, confidence: float
) -> Estimate:
    """The mean of the measured values of observed situations, as a sample of situations: how sure the counts are."""
    means = np.concatenate([own.mean(axis=1) for own in values])
    observed = np.repeat(means, np.asarray(counts, dtype=np.int64)).clip(low, high)
    return mean_interval(observed, np.arange(len(observed)), low, high, confidence)


def share_met(
    shares: ArrayLike,
    estimates: Sequence[Estimate],
    threshold: float,
    sign: int = 1,
    *,
    counts: ArrayLike | None = None,
    confidence: float = 0.95,
) -> ShareMet:
    """The share of situations whose metric is at least (`sign` +1) or at most (-1) a threshold.

        share = sum_k w_k [m_k meets t],   lo = sum of w_k shown to meet t,   hi = 1 - sum of w_k shown to miss t

    estimates    of the situations, with bounds of `situation_confidence`; one without bounds is undecided
    counts (K,)  how often each situation was observed, where `shares` are estimated by that: lo and hi are then
                 Wilson's bounds for how many observations are of such situations, with half of 1 - `confidence`

    >>> good, bad, open_ = Estimate(0.99, 0.97, 1.0), Estimate(0.5, 0.4, 0.6), Estimate(0.92, 0.85, 0.95)
    >>> result = share_met([0.7, 0.1, 0.2], [good, bad, open_], 0.9)
    >>> [round(end, 6) for end in (result.share.lo, result.share.value, result.share.hi, result.missed)]
    [0.7, 0.9, 0.9, 0.1]
    >>> result.statuses
    ('met', 'missed', 'undecided')
    """
    weights = np.asarray(shares, dtype=np.float64)
    statuses = tuple(status_of(estimate, threshold, sign) for estimate in estimates)
    meets = [not estimate.missing and sign * (estimate.value - threshold) >= 0 for estimate in estimates]

    def total(chosen: Sequence[bool]) -> float:
        return float(np.round(weights[np.array(chosen, dtype=bool)].sum(), DIGITS))

    met, missed = ([status == wanted for status in statuses] for wanted in (MET, MISSED))
    lo, hi = total(met), float(np.round(1 - total(missed), DIGITS))
    if counts is not None:
        observed, half = np.asarray(counts, dtype=np.int64), joint_confidence(confidence, 2)
        lo = wilson(int(observed[met].sum()), int(observed.sum()), half)[0]
        hi = wilson(int(observed.sum() - observed[missed].sum()), int(observed.sum()), half)[1]
    share = Estimate(min(total(meets), 1.0), lo, min(hi, 1.0), method=JOINT)
    undecided = total([status == UNDECIDED for status in statuses])
    return ShareMet(share, total(missed), undecided, statuses)


def status_of(estimate: Estimate, threshold: float, sign: int = 1) -> Status:
    """Whether bounds show that a threshold is met, that it is missed, or neither.

    >>> status_of(Estimate(0.9, 0.9, 1.0), 0.9), status_of(Estimate(0.1, 0.0, 0.2), 0.1, sign=-1)
    ('met', 'undecided')
    """
    if estimate.unbounded:
        return UNDECIDED
    safe, other = (estimate.lo, estimate.hi) if sign > 0 else (estimate.hi, estimate.lo)
    if sign * (safe - threshold) >= 0:
        return MET
    return MISSED if sign * (other - threshold) < 0 else UNDECIDED


def joint_confidence(confidence: float, statements: int) -> float:
    """The confidence of each of several statements, with which all hold together (Bonferroni).

    >>> round(joint_confidence(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - confidence) / statements


def situation_confidence(confidence: float, situations: int, *, counted: bool = False) -> float:
    """The confidence of the bounds of each of so many situations, with which all statements on them hold together.

    Where frequencies are `counted`, half of the error is left for them.

    >>> round(situation_confidence(0.95, 5), 6), round(situation_confidence(0.95, 5, counted=True), 6)
    (0.99, 0.995)
    """
    return joint_confidence(confidence, max(situations, 1) * (2 if counted else 1))
