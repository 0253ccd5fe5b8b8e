"""Whether an ONNX file scores and decides as the monitor in Python does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAME = 1e-4
"""How far two scores may be apart, as a share of their scale."""
BEYOND_ALL = 1e29
"""Scores beyond this stand for 'never inside' and say nothing of the scale of the others."""


def score_limits(scores: ArrayLike) -> NDArray[np.float64]:
    """How far from each score (N,) another way to compute it may be: 1e-4 of its scale.

    The scale is the larger one of the score's own absolute value and the median of those that are not 0; 1 where all
    are 0.

    >>> score_limits([0.0, 1.0, -3.0, -5.0])
    array([0.0003, 0.0003, 0.0003, 0.0005])
    """
    sizes = np.abs(np.asarray(scores, np.float64))
    usual = sizes[(sizes > 0) & (sizes < BEYOND_ALL)]
    return np.asarray(SAME * np.maximum(sizes, np.median(usual) if usual.size else 1.0))


@dataclass(frozen=True)
class Agreement:
    """Two ways to score and decide about the same images, beside each other.

    difference  the largest one of two scores, as a share of their scale
    flipped     images on which the decisions differ;  wrong: those of them whose score is not within its limit of the
                threshold, so that rounding does not explain it
    """

    images: int
    difference: float
    flipped: int
    wrong: int

    @property
    def holds(self) -> bool:
        """Whether scores are the same within 1e-4 of their scale, and decisions wherever rounding leaves no doubt."""
        return self.difference <= SAME and not self.wrong

    def sentence(self) -> str:
        """What the comparison came to; decisions that differ at the threshold stand apart from others.

        >>> Agreement(208, 1e-7, 2, 0).sentence()
        'compared on 208 images: scores differ by up to 1e-07 of their scale; 2 decisions differ, where the score lies \
at the threshold (within 0.0001 of its scale)'
        >>> Agreement(208, 0.0, 0, 0).sentence()
        'compared on 208 images: scores differ by up to 0 of their scale; no decision differs'
        """
        at_threshold = self.flipped - self.wrong
        parts = []
        if at_threshold:
            parts.append(
                f"{_decisions(at_threshold)}, where the score lies at the threshold (within {SAME:g} of its scale)"
            )
        if self.wrong:
            parts.append(f"{_decisions(self.wrong)} where the score does not lie at the threshold")
        return (
            f"compared on {self.images} images: scores differ by up to {self.difference:.1g} of their scale; "
            f"{'; '.join(parts) or 'no decision differs'}"
        )


def _decisions(number: int) -> str:
    return "1 decision differs" if number == 1 else f"{number} decisions differ"


def compare_decisions(scores: ArrayLike, expected: ArrayLike, accepted: ArrayLike, thresholds: ArrayLike) -> Agreement:
    """Compare scores and decisions (N,) with the scores that are expected and the thresholds (N,) of the images.

    >>> compare_decisions([1.0, 2.0], [1.0, 2.0], [False, True], [1.5, 1.5]).holds
    True
    >>> compare_decisions([1.0, 2.0], [1.0, 2.0], [True, True], [1.5, 1.5])
    Agreement(images=2, difference=0.0, flipped=1, wrong=1)
    """
    known, cuts = np.asarray(expected, np.float64), np.asarray(thresholds, np.float64)
    values, limits = np.asarray(scores, np.float64), score_limits(expected)
    differences = np.abs(values - known) / (limits / SAME)
    largest = np.inf if np.isnan(differences).any() else float(differences.max(initial=0.0))
    flipped = np.asarray(accepted, bool) != (known >= cuts)
    wrong = flipped & (np.abs(known - cuts) > limits)
    return Agreement(len(known), largest, int(flipped.sum()), int(wrong.sum()))
