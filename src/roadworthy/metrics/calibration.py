"""Calibration: is a model right as often as its confidence promises?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import mean_metric, metric
from roadworthy.metrics.weighting import Floats, Weights, ratio, weighted_mean, weighted_sum

ECE_BINS = 10
"""Bins of the expected calibration error and of over- and underconfidence."""


class ConfidenceGaps(NamedTuple):
    """Over- and underconfidence, (B,) each."""

    over: Floats
    under: Floats


def confidence_gaps(answers: Answers, weights: Weights) -> ConfidenceGaps:
    """Positive and negative part of sum_{i in b} w_i (confidence_i - correct_i) / sum w, for weights (B, n)."""
    index = _bin_of(answers.confidence, ECE_BINS)
    gap = answers.confidence - answers.correct
    over, under = np.zeros((2, len(weights)))
    for filled in np.unique(index):
        inside = np.flatnonzero(index == filled)
        of_bin = weighted_sum(np.take(weights, inside, axis=1), gap[inside])
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
    index = _bin_of(answers.confidence, bins)
    inside = np.arange(bins)[:, None] == index
    return Reliability(
        edges=np.arange(bins + 1) / bins,
        count=inside.sum(axis=1),
        confidence=weighted_mean(inside.astype(np.float64), answers.confidence),
        accuracy=weighted_mean(inside.astype(np.float64), answers.correct),
    )


def _bin_of(confidence: Floats, bins: int) -> NDArray[np.intp]:
    if bins < 1:
        raise ValueError(f"at least one bin is needed, not {bins}")
    return np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
