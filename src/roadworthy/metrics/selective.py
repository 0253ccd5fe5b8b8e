"""Risk and coverage: how often accepted answers are wrong, depending on how many are accepted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.metrics.answers import Answers, tied_answers
from roadworthy.metrics.base import Metric
from roadworthy.metrics.decisions import checked_flags
from roadworthy.metrics.weighting import Floats, Weights, ratio, weight_rows

AURC = Metric(
    "aurc",
    label="AURC",
    sentence="Area under risk and coverage: the share of wrong answers among the accepted ones, averaged over how many "
    "are accepted, highest scores first. Lower is better.",
    higher_is_better=False,
)


@dataclass(frozen=True)
class RiskCoverage:
    """The curve of risk over coverage, a point per distinct score from the highest to the lowest; all arrays (J,).

    coverage   share of images whose score is at least `threshold`
    risk       share of wrong answers among these
    threshold  the lowest score that is accepted: images below it are rejected
    area       AURC, the mean of the risk over the ranks of all images
    """

    coverage: Floats
    risk: Floats
    threshold: Floats
    area: float


def risk_coverage(scores: ArrayLike, wrong: ArrayLike) -> RiskCoverage:
    """Risk and coverage of every threshold on scores (N,), with wrong (N,) True where an accepted answer is a mistake.

        risk(t) = #{wrong, score >= t} / #{score >= t},   AURC = mean over images i of risk(score_i)

    Images of equal score are accepted together. Without any image the curve is empty and the area NaN.

    >>> curve = risk_coverage([0.9, 0.8, 0.8, 0.1], [False, False, True, True])
    >>> curve.coverage, curve.threshold, curve.risk.round(3)
    (array([0.25, 0.75, 1.  ]), array([0.9, 0.8, 0.1]), array([0.   , 0.333, 0.5  ]))
    >>> round(curve.area, 4)
    0.2917
    """
    (mistakes,) = checked_flags(wrong=wrong)
    ranked = _Ranked(scores, mistakes)
    accepted = np.cumsum(ranked.sizes)
    risk = ratio(np.cumsum(ranked.block_losses), accepted)
    area = float((ranked.sizes * risk).sum() / accepted[-1]) if len(accepted) else float("nan")
    coverage = accepted / accepted[-1] if len(accepted) else accepted
    return RiskCoverage(coverage, risk, ranked.thresholds, area)


def weighted_aurc(scores: ArrayLike, wrong: ArrayLike, weights: ArrayLike) -> Floats:
    """The area (B,) of `risk_coverage` for weights (B, N) of the images; NaN where a row has no weight.

    >>> weighted_aurc([0.9, 0.8], [False, True], [[1, 1], [0, 2]])
    array([0.25, 1.  ])
    """
    (mistakes,) = checked_flags(wrong=wrong)
    return weighted_risk_area(scores, mistakes, weights)


def weighted_risk_area(scores: ArrayLike, losses: ArrayLike, weights: ArrayLike) -> Floats:
    """The area (B,) under risk and coverage where each image has a loss (N,), for weights (B, N) of the images.

        risk(t) = mean loss of the images with score >= t,   area = mean over images i of risk(score_i)

    Images of equal score are accepted together. With losses 0 and 1 it is AURC. NaN where a row has no weight.

    >>> weighted_risk_area([0.9, 0.8], [0.25, 0.75], [[1, 1], [0, 2]])
    array([0.375, 0.75 ])
    """
    ranked = _Ranked(scores, losses)
    return ranked.areas(weight_rows(weights, len(ranked.order)))


def _aurc_of_confidence(answers: Answers, weights: Weights) -> Floats:
    return weighted_risk_area(answers.score, ~answers.correct, weights)


class_aurc = Metric(
    "class_aurc",
    label="AURC of classes",
    sentence="Area under risk and coverage of the confidence: the share of wrong classes among the answers kept, "
    "averaged over how many are kept, the most confident first. Lower is better.",
    higher_is_better=False,
    of_answers=_aurc_of_confidence,
    ties=tied_answers,
)
"""AURC of the confidence of a classifier: `weighted_risk_area` of `Answers.score`, with loss 1 where it is wrong."""


class _Ranked:
    """Images from the highest score to the lowest, those of equal score as one block."""

    def __init__(self, scores: ArrayLike, losses: ArrayLike) -> None:
        values, lost = np.asarray(scores, dtype=np.float64), np.asarray(losses, dtype=np.float64)
        if values.ndim != 1 or values.shape != lost.shape:
            raise ValueError(f"there must be a score per image, not scores {values.shape} of {lost.shape} images")
        if np.isnan(values).any() or not np.isfinite(lost).all():
            raise ValueError("scores must not be NaN, and losses must be finite numbers")
        self.order = np.argsort(-values, kind="stable")
        ordered, self.losses = values[self.order], lost[self.order]
        self.starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.arange(0)
        self.thresholds = ordered[self.starts]
        self.sizes = self._by_block(np.ones(len(ordered)))
        self.block_losses = self._by_block(self.losses)

    def _by_block(self, values: Floats) -> Floats:
        summed: Floats = np.add.reduceat(values, self.starts, axis=-1) if len(self.starts) else values
        return summed

    def areas(self, rows: Weights) -> Floats:
        if not len(self.order):
            return np.full(len(rows), np.nan)
        weights = np.take(rows, self.order, axis=1).astype(np.float64)
        accepted, lost = weights, weights * self.losses
        if len(self.starts) < len(self.order):
            accepted, lost = self._by_block(accepted), self._by_block(lost)
        reached = np.cumsum(accepted, axis=1)
        np.cumsum(lost, axis=1, out=lost)
        np.divide(lost, reached, out=lost, where=reached > 0)
        return ratio(np.einsum("bj,bj->b", accepted, lost), reached[:, -1])
