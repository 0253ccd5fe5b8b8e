"""Proper scores: how good the probabilities are, as a mean over images that is best for the true ones."""

from __future__ import annotations

import math

import numpy as np

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import mean_metric
from roadworthy.metrics.weighting import Floats

SMALLEST_PROBABILITY = 1e-12
"""NLL takes a smaller probability of the true class as this: one image costs at most 27.6 nats, never infinity."""


@mean_metric(
    label="Brier score",
    sentence="Squared error of the probabilities, summed over classes, averaged over images. 0 is perfect, 2 worst.",
    higher_is_better=False,
    range=(0.0, 2.0),
)
def brier(answers: Answers) -> Floats:
    """Brier score summed over classes: mean of sum_k (p_k - [k = label])^2 = sum_k p_k^2 - 2 p_label + 1; 0 to 2.

    >>> round(brier(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])), 6)
    0.37
    """
    return answers.sum_squares - 2 * answers.p_label + 1


@mean_metric(
    label="Brier score per class",
    sentence="The Brier score divided by the number of classes.",
    higher_is_better=False,
    range=lambda num_classes: (0.0, 2.0 / num_classes),
    digits=4,
    multiple_of=brier,
    factor=lambda num_classes: 1 / num_classes,
)
def brier_mean(answers: Answers) -> Floats:
    """Brier score averaged over classes: `brier` divided by the number of classes; 0 to 2/K.

    >>> round(brier_mean(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])), 6)
    0.185
    """
    return (answers.sum_squares - 2 * answers.p_label + 1) / answers.num_classes


@mean_metric(
    label="NLL",
    sentence="Negative log-likelihood of the true class in nats: punishes confident mistakes hardest. 0 is perfect.",
    higher_is_better=False,
    range=(0.0, -math.log(SMALLEST_PROBABILITY)),
    mean_over_objects=False,
)
def nll(answers: Answers) -> Floats:
    """Negative log-likelihood in nats: mean of -log p_label, where p_label below 1e-12 is taken as 1e-12.

    Its range is so wide that the bounds of a mean over objects would say nothing: objects are resampled.

    >>> round(nll(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])), 6)
    0.510826
    """
    return -np.log(np.maximum(answers.p_label, SMALLEST_PROBABILITY))
