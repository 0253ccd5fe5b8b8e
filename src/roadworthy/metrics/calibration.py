"""Calibration: is a model right as often as its confidence promises?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import Metric, mean_metric, metric
from roadworthy.metrics.binning import ECE_BINS, ProbabilityBins
from roadworthy.metrics.weighting import Floats, Weights, ratio, weighted_mean


class ConfidenceGaps(NamedTuple):
    """Over- and underconfidence, (B,) each."""

    over: Floats
    under: Floats


def confidence_gaps(answers: Answers, weights: Weights) -> ConfidenceGaps:
    """Positive and negative part of sum_{i in b} w_i (confidence_i - correct_i) / sum w, for weights (B, n)."""
    of_bins = answers.confidence_bins.sums(answers.confidence - answers.correct, weights)
    over, under = np.zeros((2, len(weights)))
    for of_bin in of_bins.T:
        over += np.maximum(of_bin, 0)
        under += np.maximum(-of_bin, 0)
    total = weights.sum(axis=1, dtype=np.float64)
    return ConfidenceGaps(ratio(over, total), ratio(under, total))


@metric(
    label="ECE",
    sentence="Expected calibration error: the gap between confidence and accuracy in ten bins of confidence, averaged "
    "by how many answers fall in each. 0 is perfect.",
    higher_is_better=False,
    shares=confidence_gaps,
)
def ece(gaps: ConfidenceGaps) -> Floats:
    """Expected calibration error: sum_b n_b/n |mean confidence_b - accuracy_b| over 10 bins of equal width.

    Bins are right-closed, (k/10, (k+1)/10], the first closed on both sides; a confidence of exactly 1 is in the last.
    Edges are k/10 in float64, compared with the stored confidence as float64: float32(0.3) = 0.30000001 is above 0.3.

    >>> ece(Answers.from_probabilities([[0.95, 0.05], [1.0, 0.0]], [0, 1]))
    0.475
    """
    return gaps.over + gaps.under


@mean_metric(
    label="Mean confidence",
    sentence="Average of the largest class probability.",
    higher_is_better=None,
    percent=True,
)
def mean_confidence(answers: Answers) -> Floats:
    """Mean of the largest probability.

    >>> mean_confidence(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    0.75
    """
    return answers.confidence


@metric(
    label="Overconfidence",
    sentence="The part of ECE from bins that promise more than they keep.",
    higher_is_better=False,
    shares=confidence_gaps,
)
def overconfidence(gaps: ConfidenceGaps) -> Floats:
    """The part of `ece` from bins that promise too much: sum_b n_b/n max(mean confidence_b - accuracy_b, 0).

    >>> round(overconfidence(Answers.from_probabilities([[0.8, 0.2], [0.4, 0.6]], [0, 0])), 6)
    0.3
    """
    return gaps.over


@metric(
    label="Underconfidence",
    sentence="The part of ECE from bins that keep more than they promise.",
    higher_is_better=False,
    shares=confidence_gaps,
)
def underconfidence(gaps: ConfidenceGaps) -> Floats:
    """The part of `ece` from bins that promise too little: sum_b n_b/n max(accuracy_b - mean confidence_b, 0).

    >>> round(underconfidence(Answers.from_probabilities([[0.8, 0.2], [0.4, 0.6]], [0, 0])), 6)
    0.1
    """
    return gaps.under


def _adaptive_ece(answers: Answers, weights: Weights) -> Floats:
    """Adaptive ECE (B,) for weights (B, n): sum_b n_b/n |mean confidence_b - accuracy_b| over bins of equal mass.

    Images are sorted by confidence, those of equal confidence as one block, which is never split: a block that reaches
    from mass a to mass b of the total W is in bin floor(10 (a + b) / (2 W)), the bin of its middle.
    """
    order = np.argsort(answers.confidence, kind="stable")
    confidence = answers.confidence[order]
    starts = np.flatnonzero(np.append(True, confidence[1:] != confidence[:-1]))
    sorted_weights = np.take(weights, order, axis=1).astype(np.float64)
    gap = confidence - answers.correct[order]
    mass, gaps = (np.add.reduceat(table, starts, axis=1) for table in (sorted_weights, sorted_weights * gap))
    total = mass.sum(axis=1)
    middle = np.cumsum(mass, axis=1) - mass / 2
    bin_position = ratio(ECE_BINS * middle, np.broadcast_to(total[:, None], middle.shape))
    index = np.minimum(np.nan_to_num(bin_position).astype(np.int64), ECE_BINS - 1)
    cells = (index + ECE_BINS * np.arange(len(weights))[:, None]).reshape(-1)
    of_bins = np.bincount(cells, gaps.reshape(-1), minlength=ECE_BINS * len(weights)).reshape(-1, ECE_BINS)
    return ratio(np.abs(of_bins).sum(axis=1), total)


ece_adaptive = Metric(
    "ece_adaptive",
    label="Adaptive ECE",
    sentence="Expected calibration error with ten bins of equally many answers in place of equal width; answers of "
    "equal confidence share a bin. 0 is perfect.",
    higher_is_better=False,
    of_answers=_adaptive_ece,
)
"""ECE with bins of equal mass; not registered, so that a study of classes has one ECE by default."""


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows, per bin of confidence; NaN where a bin is empty.

    edges (bins + 1,), count (bins,), confidence (bins,) mean confidence, accuracy (bins,)
    """

    edges: Floats
    count: NDArray[np.int64]
    confidence: Floats
    accuracy: Floats


def reliability(answers: Answers, bins: int = ECE_BINS) -> Reliability:
    """Count, mean confidence and accuracy in bins of equal width, closed as in `ece`.

    >>> reliability(Answers.from_probabilities([[0.95, 0.05], [1.0, 0.0]], [0, 1]), bins=2).accuracy
    array([nan, 0.5])
    """
    index = ProbabilityBins(answers.confidence, bins).index
    inside = np.arange(bins)[:, None] == index
    return Reliability(
        edges=np.arange(bins + 1) / bins,
        count=inside.sum(axis=1),
        confidence=weighted_mean(inside.astype(np.float64), answers.confidence),
        accuracy=weighted_mean(inside.astype(np.float64), answers.correct),
    )
