"""Chance: the accuracy of answers that have nothing to do with the images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

SIGNIFICANCE = 0.01
"""The level of the one-sided test by which an accuracy is above chance."""
SHUFFLES = 999


@dataclass(frozen=True)
class ChanceTest:
    """How many of some images were answered right, the accuracy that chance gives, and the test of the first by it.

    `p` is the probability of at least as many right answers by chance; NaN where the images are too few to tell.
    """

    images: int
    right: int
    chance: float
    p: float

    @property
    def is_chance(self) -> bool:
        """True where the images are enough for the test and accuracy is not above chance."""
        return self.p > SIGNIFICANCE

    @property
    def is_above(self) -> bool:
        """True where accuracy is above chance."""
        return self.p <= SIGNIFICANCE


def compare_with_chance(
    labels: NDArray[np.int64], answers: NDArray[np.int64], classes: int, counts: NDArray[np.int64] | None = None
) -> ChanceTest:
    """Whether answered classes are right more often than by chance: a one-sided exact binomial test.

    labels, answers (N,): the true and the answered class of each image, or of `counts` (N,) images. Chance is what
    answers of the same frequencies would get if they had nothing to do with the labels, sum_k P(label k) P(answer k),
    and at least 1 / K: so always answering the commonest class is chance, too. It is 1 / K where all labels are one.

    Where one class is common, most answers are right by chance and the binomial test hardly sees the rest: a model that
    finds a fifth of the rare class is above chance all the same. So what it does not settle is decided by the same
    answers shuffled among the images (a permutation test), and they must be above 1 / K by the binomial test.

    >>> labels = np.repeat([0, 1], [80, 20])
    >>> result = compare_with_chance(labels, np.zeros(100, np.int64), 2)
    >>> result.right, round(result.chance, 2), result.is_chance
    (80, 0.8, True)
    >>> compare_with_chance(labels, labels, 2).is_above
    True
    """
    counts = np.ones(len(labels), np.int64) if counts is None else counts
    images, right = int(counts.sum()), int(counts[labels == answers].sum())
    shares = [np.bincount(column, counts, classes) / max(images, 1) for column in (labels, answers)]
    chance = 1 / classes
    if np.count_nonzero(shares[0]) > 1:
        chance = max(chance, float(shares[0] @ shares[1]))
    if not images or chance**images > SIGNIFICANCE:
        return ChanceTest(images, right, chance, math.nan)
    p = float(bdtrc(right - 1, images, chance))
    if p > SIGNIFICANCE and chance > 1 / classes:
        shuffled = _right_when_shuffled(np.repeat(labels, counts), np.repeat(answers, counts))
        p = max(float(bdtrc(right - 1, images, 1 / classes)), (1 + np.sum(shuffled >= right)) / (1 + SHUFFLES))
    return ChanceTest(images, right, chance, float(p))


def _right_when_shuffled(labels: NDArray[np.int64], answers: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many answers (N,) are right after each of `SHUFFLES` shuffles, always the same ones."""
    rng = np.random.default_rng(0)
    return np.array([np.count_nonzero(rng.permutation(answers) == labels) for _ in range(SHUFFLES)])
