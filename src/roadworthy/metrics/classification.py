"""Classification: accuracy, ranking, proper scores and calibration of a classifier's answers.

Every metric is called as `metric(answers, weights=None)`. Without weights, or with weights (n,), it gives a float; with
weights (B, n), one row per bootstrap resample, it gives (B,). Weight w counts an image w times. A value that does not
exist is NaN, and `reason` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.answers import Answers as Answers
from roadworthy.metrics.ranges import SMALLEST_PROBABILITY, value_range
from roadworthy.metrics.ranking import binary_auroc, false_positive_rate
from roadworthy.metrics.weighting import Floats, Weights, ratio, weight_rows, weighted_sum

ECE_BINS = 10
"""Bins of the expected calibration error and of over- and underconfidence."""


OfRows = Callable[[Answers, Weights], Floats]


class Metric(Protocol):
    """A metric of answers: a float, or (B,) values for weights (B, n).

    `of_rows(answers, weights)` is the same for weights (B, n) that need no check, with at least one image.
    """

    of_rows: OfRows

    @overload
    def __call__(self, answers: Answers, weights: None = None) -> float: ...
    @overload
    def __call__(self, answers: Answers, weights: NDArray[np.floating]) -> float | Floats: ...


_METRICS: dict[str, Metric] = {}
_DIRECTIONS: dict[str, bool | None] = {}
_PER_IMAGE: dict[str, Callable[[Answers], Floats]] = {}


def call_on_rows(of_rows: OfRows, answers: Answers, weights: ArrayLike | None) -> float | Floats:
    """A metric defined on rows of weights (B, n), called without weights or with (n,): a float; with (B, n): (B,)."""
    rows = weight_rows(weights, len(answers))
    values = of_rows(answers, rows) if len(answers) else np.full(len(rows), np.nan)
    return values if np.ndim(weights) == 2 else float(values[0])  # type: ignore[arg-type]


def _metric(higher_is_better: bool | None) -> Callable[[OfRows], Metric]:
    """Decorator that lists the public form of a metric that is defined on rows of weights (B, n)."""

    def add(of_rows: OfRows) -> Metric:
        metric: Any = functools.wraps(of_rows)(lambda answers, weights=None: call_on_rows(of_rows, answers, weights))
        metric.of_rows = of_rows
        _METRICS[of_rows.__name__], _DIRECTIONS[of_rows.__name__] = metric, higher_is_better
        return cast(Metric, metric)

    return add


def _mean_metric(higher_is_better: bool | None) -> Callable[[Callable[[Answers], Floats]], Metric]:
    """Decorator that lists the metric which is the mean of a value per image (n,)."""

    def add(of_images: Callable[[Answers], Floats]) -> Metric:
        name = of_images.__name__
        _PER_IMAGE[name] = of_images
        of_rows = functools.wraps(of_images)(lambda answers, weights: _mean(weights, per_image(name, answers)))
        return _metric(higher_is_better)(of_rows)

    return add


def _mean(weights: Weights, values: NDArray[np.floating] | NDArray[np.bool_]) -> Floats:
    return ratio(weighted_sum(weights, values), weights.sum(axis=1, dtype=np.float64))


@_mean_metric(higher_is_better=True)
def accuracy(answers: Answers) -> Floats:
    """Share of images whose prediction is the label.

    >>> accuracy(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    0.5
    """
    return answers.correct.astype(np.float64)


@_metric(higher_is_better=True)
def auroc(answers: Answers, weights: Weights) -> Floats:
    """AUROC of confidence, correct predictions (the positive class) against incorrect ones; ties count half.

    P(c_i > c_j) + 1/2 P(c_i = c_j) for i correct, j incorrect. Does not exist where there is no incorrect or no correct
    prediction: NaN, never 0.5 or 1.

    >>> auroc(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    1.0
    >>> auroc(Answers.from_probabilities([[0.9, 0.1], [0.6, 0.4]], [0, 0]))
    nan
    """
    return np.asarray(binary_auroc(answers.confidence, answers.correct, weights))


@_mean_metric(higher_is_better=False)
def brier(answers: Answers) -> Floats:
    """Brier score summed over classes: mean of sum_k (p_k - [k = label])^2 = sum_k p_k^2 - 2 p_label + 1; 0 to 2.

    >>> round(brier(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])), 6)
    0.37
    """
    return answers.sum_squares - 2 * answers.p_label + 1


@_mean_metric(higher_is_better=False)
def brier_mean(answers: Answers) -> Floats:
    """Brier score averaged over classes: `brier` divided by the number of classes; 0 to 2/K.

    >>> round(brier_mean(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])), 6)
    0.185
    """
    return (answers.sum_squares - 2 * answers.p_label + 1) / answers.num_classes


@_metric(higher_is_better=False)
def ece(answers: Answers, weights: Weights) -> Floats:
    """Expected calibration error: sum_b n_b/n |mean confidence_b - accuracy_b| over 10 bins of equal width.

    Bins are right-closed, (k/10, (k+1)/10], the first closed on both sides; a confidence of exactly 1 is in the last.
    Edges are k/10 in float64, compared with the stored confidence as float64: float32(0.3) = 0.30000001 is above 0.3.

    >>> ece(Answers.from_probabilities([[0.95, 0.05], [1.0, 0.0]], [0, 1]))
    0.475
    """
    over, under = _confidence_gaps(answers, weights)
    return over + under


@_mean_metric(higher_is_better=False)
def nll(answers: Answers) -> Floats:
    """Negative log-likelihood in nats: mean of -log p_label, where p_label below 1e-12 is taken as 1e-12.

    >>> round(nll(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])), 6)
    0.510826
    """
    return -np.log(np.maximum(answers.p_label, SMALLEST_PROBABILITY))


@_mean_metric(higher_is_better=None)
def mean_confidence(answers: Answers) -> Floats:
    """Mean of the largest probability.

    >>> mean_confidence(Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    0.75
    """
    return answers.confidence


@_metric(higher_is_better=False)
def overconfidence(answers: Answers, weights: Weights) -> Floats:
    """The part of `ece` from bins that promise too much: sum_b n_b/n max(mean confidence_b - accuracy_b, 0).

    >>> round(overconfidence(Answers.from_probabilities([[0.8, 0.2], [0.4, 0.6]], [0, 0])), 6)
    0.3
    """
    return _confidence_gaps(answers, weights)[0]


@_metric(higher_is_better=False)
def underconfidence(answers: Answers, weights: Weights) -> Floats:
    """The part of `ece` from bins that promise too little: sum_b n_b/n max(accuracy_b - mean confidence_b, 0).

    >>> round(underconfidence(Answers.from_probabilities([[0.8, 0.2], [0.4, 0.6]], [0, 0])), 6)
    0.1
    """
    return _confidence_gaps(answers, weights)[1]


@_metric(higher_is_better=False)
def fpr95_right(answers: Answers, weights: Weights) -> Floats:
    """Share of wrong answers accepted where 95 % of the right answers (the positive class) are, by their confidence.

    The threshold is the highest confidence at or above which at least 95 % of the right answers lie; answers of equal
    confidence are accepted together, and nothing is interpolated. NaN where no answer is wrong, or none is right.

    >>> fpr95_right(Answers.from_probabilities([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.05, 0.95]], [0, 0, 0, 0]))
    0.5
    """
    return false_positive_rate(answers.confidence, answers.correct, weights)


METRICS: MappingProxyType[str, Metric] = MappingProxyType(_METRICS)
"""Every metric by the name it has in tables, criteria and reports."""

HIGHER_IS_BETTER: MappingProxyType[str, bool | None] = MappingProxyType(_DIRECTIONS)
"""The direction of every metric; None where neither is better in itself."""

MEANS = tuple(_PER_IMAGE)
"""The metrics that are the mean of a value per image; the others belong to the images together."""

RIGHT_AGAINST_WRONG = ("auroc", "fpr95_right")
"""The metrics that tell correct from incorrect predictions: they do not exist where one of the two is missing."""


def of_rows(names: Iterable[str], answers: Answers, weights: Weights) -> dict[str, Floats]:
    """Several metrics for weights (B, n) that need no check, each (B,); what they have in common is computed once.

    >>> of_rows(["ece", "accuracy"], Answers.from_probabilities([[0.95, 0.05], [1.0, 0.0]], [0, 1]), np.ones((1, 2)))
    {'ece': array([0.475]), 'accuracy': array([0.5])}
    """
    metric_names = list(names)
    gaps: dict[str, Floats] = {}
    if not {"ece", "overconfidence", "underconfidence"}.isdisjoint(metric_names):
        over, under = _confidence_gaps(answers, weights)
        gaps = {"ece": over + under, "overconfidence": over, "underconfidence": under}
    return {name: gaps[name] if name in gaps else METRICS[name].of_rows(answers, weights) for name in metric_names}


def per_image(name: str, answers: Answers) -> Floats:
    """The values (n,) whose mean is the metric, for the metrics in `MEANS`.

    Cut to the metric's range, which a value can leave only where probabilities are rounded.

    >>> per_image("accuracy", Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0]))
    array([1., 0.])
    """
    if name not in MEANS:
        raise ValueError(f"metric {name!r} is not a mean over images; those are {', '.join(MEANS)}")
    return np.clip(_PER_IMAGE[name](answers), *value_range(name, answers.num_classes))


def reason(name: str, answers: Answers) -> str | None:
    """Why a metric has no value for these answers; None where it has one.

    >>> reason("auroc", Answers.from_probabilities([[0.9, 0.1]], [0]))
    'no incorrect prediction'
    """
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}: known are {', '.join(METRICS)}")
    if len(answers) == 0:
        return "no images"
    if name in RIGHT_AGAINST_WRONG and answers.correct.all():
        return "no incorrect prediction"
    if name in RIGHT_AGAINST_WRONG and not answers.correct.any():
        return "no correct prediction"
    return None


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
        recall[:, index] = _mean(np.take(rows, shown, axis=1), answers.correct[shown])
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
        confidence=_mean(inside.astype(np.float64), answers.confidence),
        accuracy=_mean(inside.astype(np.float64), answers.correct),
    )


def _bin_of(confidence: Floats, bins: int) -> NDArray[np.intp]:
    if bins < 1:
        raise ValueError(f"at least one bin is needed, not {bins}")
    return np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")


def _confidence_gaps(answers: Answers, weights: Weights) -> tuple[Floats, Floats]:
    """Over- and underconfidence: positive and negative part of sum_{i in b} w_i (confidence_i - correct_i) / sum w."""
    index = _bin_of(answers.confidence, ECE_BINS)
    gap = answers.confidence - answers.correct
    over, under = np.zeros((2, len(weights)))
    for filled in np.unique(index):
        inside = np.flatnonzero(index == filled)
        of_bin = weighted_sum(np.take(weights, inside, axis=1), gap[inside])
        over += np.maximum(of_bin, 0)
        under += np.maximum(-of_bin, 0)
    total = weights.sum(axis=1, dtype=np.float64)
    return ratio(over, total), ratio(under, total)
