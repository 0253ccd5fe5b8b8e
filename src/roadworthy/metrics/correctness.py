"""Correctness: how many answers are right, over all images and class by class."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import mean_metric
from roadworthy.metrics.weighting import Floats, weight_rows, weighted_mean


@mean_metric(
    label="Accuracy",
    sentence="Share of images whose predicted class is the true one.",
    higher_is_better=True,
    percent=True,
    proportion=True,
)
def accuracy(answers: Answers) -> Floats:
    """Share of images whose prediction is the label.

    >>> accuracy(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    0.5
    """
    return answers.correct.astype(np.float64)


def recall_per_class(answers: Answers, weights: ArrayLike | None = None) -> Floats:
    """Share of the images of each class that are recognised: (K,), or (B, K) for weights (B, n).

    NaN for a class that no image shows.

    >>> recall_per_class(Answers.from_probabilities([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.0, 1.0, 0.0]], [0, 0, 1]))
    array([0.5, 1. , nan])
    """
    rows = weight_rows(weights, len(answers))
    recall = np.full((len(rows), answers.num_classes), np.nan)
    for index in np.unique(answers.label):
        shown = np.flatnonzero(answers.label == index)
        recall[:, index] = weighted_mean(np.take(rows, shown, axis=1), answers.correct[shown])
    return recall if np.ndim(weights) == 2 else recall[0]  # type: ignore[arg-type]


def confusion_matrix(answers: Answers) -> NDArray[np.int64]:
    """Number of images of each class (row) that were taken for each class (column): (K, K).

    >>> confusion_matrix(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    array([[1, 1],
           [0, 0]])
    """
    classes = answers.num_classes
    cells = np.bincount(answers.label * classes + answers.prediction, minlength=classes * classes)
    return cells.reshape(classes, classes).astype(np.int64)
