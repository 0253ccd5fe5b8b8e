"""Decisions: what it is worth that a monitor flags some images, counted against what it should have flagged.

The positive images are those that should be rejected: OOD images where detection is judged, wrong answers where the
whole system is. A flagged image is one the monitor rejects. So a true positive is a rejection that was right, a false
positive a false alarm, and a false negative a danger that was let through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.base import Metric
from roadworthy.metrics.weighting import Floats, ratio, weight_rows, weighted_sum


@dataclass(frozen=True)
class DecisionCounts:
    """How many decisions were right and wrong, each an array of one shape: () for one count, (B,) for B resamples.

    tp  positive and flagged;  fp  negative and flagged;  tn  negative and accepted;  fn  positive and accepted
    """

    tp: Floats
    fp: Floats
    tn: Floats
    fn: Floats

    def __post_init__(self) -> None:
        cells = [np.asarray(getattr(self, name), dtype=np.float64) for name in ("tp", "fp", "tn", "fn")]
        if len({cell.shape for cell in cells}) > 1:
            raise ValueError(f"counts must be of one shape, not {', '.join(str(cell.shape) for cell in cells)}")
        if not all((cell >= 0).all() for cell in cells):
            raise ValueError("counts must not be negative")
        for name, cell in zip(("tp", "fp", "tn", "fn"), cells, strict=True):
            object.__setattr__(self, name, cell)

    @property
    def positive(self) -> Floats:
        """How many images should be flagged."""
        return self.tp + self.fn

    @property
    def negative(self) -> Floats:
        """How many images should be accepted."""
        return self.fp + self.tn

    @property
    def flagged(self) -> Floats:
        """How many images are flagged."""
        return self.tp + self.fp

    @property
    def accepted(self) -> Floats:
        """How many images are accepted."""
        return self.tn + self.fn

    @property
    def total(self) -> Floats:
        """How many images there are."""
        return self.positive + self.negative


def decision_counts(positive: ArrayLike, flagged: ArrayLike, weights: ArrayLike | None = None) -> DecisionCounts:
    """The four counts of decisions: positive (N,) and flagged (N,) are True or False per image.

    Without weights, or with weights (N,), each count has the shape (); with weights (B, N) the shape (B,).

    >>> counts = decision_counts([True, True, False, False], [True, False, True, False])
    >>> [float(cell) for cell in (counts.tp, counts.fp, counts.tn, counts.fn)]
    [1.0, 1.0, 1.0, 1.0]
    """
    should, does = checked_flags(positive=positive, flagged=flagged)
    rows = weight_rows(weights, len(should))
    cells = [weighted_sum(rows, cell) for cell in (should & does, ~should & does, ~should & ~does, should & ~does)]
    return DecisionCounts(*(cells if _in_rows(weights) else [np.asarray(cell[0]) for cell in cells]))


def _in_rows(weights: ArrayLike | None) -> bool:
    return weights is not None and np.ndim(weights) == 2


def checked_flags(**flags: ArrayLike) -> list[NDArray[np.bool_]]:
    """Arrays (N,) of True and False by name, all of one length; anything else is a `ValueError` that names it."""
    arrays = {name: np.asarray(values) for name, values in flags.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or (array.dtype != np.bool_ and not np.isin(array, (0, 1)).all()):
            raise ValueError(f"{name} must hold True or False for each image")
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise ValueError(f"there must be a value per image in each of these: {lengths}")
    return [array.astype(np.bool_) for array in arrays.values()]


def mcc(counts: DecisionCounts) -> Floats:
    """Matthews' correlation between what should be flagged and what is.

        MCC = (tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn))

    1 is perfect, 0 no better than chance, -1 always wrong. A monitor that decides the same about every image says as
    much as chance does: 0, as is usual. NaN where there is one kind of image only (scikit-learn gives 0 there too).

    >>> round(float(mcc(DecisionCounts(90, 5, 95, 10))), 4), float(mcc(DecisionCounts(0, 0, 100, 100)))
    (0.8511, 0.0)
    """
    numerator = counts.tp * counts.tn - counts.fp * counts.fn
    decided = np.sqrt(counts.flagged * counts.accepted)
    return ratio(numerator, np.where(decided > 0, decided, 1.0) * np.sqrt(counts.negative * counts.positive))


def fpr(counts: DecisionCounts) -> Floats:
    """False positive rate fp / (fp + tn): the share of negative images that are flagged; NaN without any.

    >>> float(fpr(DecisionCounts(90, 5, 95, 10)))
    0.05
    """
    return ratio(counts.fp, counts.negative)


def fnr(counts: DecisionCounts) -> Floats:
    """False negative rate fn / (tp + fn): the share of positive images that are accepted; NaN without any.

    >>> float(fnr(DecisionCounts(90, 5, 95, 10)))
    0.1
    """
    return ratio(counts.fn, counts.positive)


def precision(counts: DecisionCounts) -> Floats:
    """Precision tp / (tp + fp): the share of flagged images that are positive; NaN where none is flagged.

    >>> float(precision(DecisionCounts(90, 10, 90, 10)))
    0.9
    """
    return ratio(counts.tp, counts.flagged)


def recall(counts: DecisionCounts) -> Floats:
    """Recall tp / (tp + fn) = 1 - FNR: the share of positive images that are flagged; NaN without any.

    >>> float(recall(DecisionCounts(90, 5, 95, 10)))
    0.9
    """
    return ratio(counts.tp, counts.positive)


def f1_micro(counts: DecisionCounts) -> Floats:
    """F1 of both classes counted together, (tp + tn) / N: for two classes the share of right decisions.

    >>> float(f1_micro(DecisionCounts(90, 5, 95, 10)))
    0.925
    """
    return ratio(counts.tp + counts.tn, counts.total)


def f1_weighted(counts: DecisionCounts) -> Floats:
    """F1 of flagged and of accepted images, weighed by how many images are positive and negative.

        F1 = (P 2 tp / (2 tp + fp + fn) + (N - P) 2 tn / (2 tn + fp + fn)) / N

    with P positive images of N. NaN without any image.

    >>> round(float(f1_weighted(DecisionCounts(90, 5, 95, 10))), 4)
    0.925
    """
    wrong = counts.fp + counts.fn
    parts = [
        support * np.nan_to_num(ratio(2 * right, 2 * right + wrong))
        for support, right in ((counts.positive, counts.tp), (counts.negative, counts.tn))
    ]
    return ratio(parts[0] + parts[1], counts.total)


def balanced_accuracy(counts: DecisionCounts) -> Floats:
    """The mean of the shares of positive images flagged and of negative images accepted; NaN without either kind.

    >>> round(float(balanced_accuracy(DecisionCounts(90, 5, 95, 10))), 3)
    0.925
    """
    return (recall(counts) + 1 - fpr(counts)) / 2


DECISION_FUNCTIONS: dict[str, Callable[[DecisionCounts], Floats]] = {
    function.__name__: function
    for function in (mcc, fpr, fnr, precision, recall, f1_weighted, f1_micro, balanced_accuracy)
}
"""From the name of a metric to its function of counts."""
DECISION_METRICS = (
    Metric(
        "mcc",
        label="MCC",
        sentence="Matthews' correlation between the images that should be rejected and those that are. 1 is perfect, 0 "
        "no better than chance, -1 always wrong. Higher is better.",
        higher_is_better=True,
        range=(-1.0, 1.0),
    ),
    Metric(
        "fpr",
        label="False positive rate",
        sentence="Share of the images that should be accepted but are rejected: false alarms. Lower is better.",
        higher_is_better=False,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "fnr",
        label="False negative rate",
        sentence="Share of the images that should be rejected but are accepted: dangers let through. Lower is better.",
        higher_is_better=False,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "precision",
        label="Precision",
        sentence="Share of the rejected images that should be rejected. It depends on how many there are of either "
        "kind. Higher is better.",
        higher_is_better=True,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "recall",
        label="Recall",
        sentence="Share of the images that should be rejected and are. Higher is better.",
        higher_is_better=True,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "f1_weighted",
        label="F1, weighted",
        sentence="F1 of the rejected and of the accepted images, weighed by how many images should be rejected and "
        "accepted. Higher is better.",
        higher_is_better=True,
    ),
    Metric(
        "f1_micro",
        label="F1, micro",
        sentence="F1 of both classes counted together: for two classes the share of right decisions. Higher is better.",
        higher_is_better=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "balanced_accuracy",
        label="Balanced accuracy",
        sentence="Mean of two shares: images that should be rejected and are, images that should be accepted and are. "
        "0.5 is guessing. Higher is better.",
        higher_is_better=True,
    ),
)
"""In the order of the report: metrics of decisions, not of answers."""


def why_undefined(
    metric: str, counts: DecisionCounts, *, positive: str = "OOD image", negative: str = "ID image"
) -> str:
    """Why a metric of decisions has no value for these counts (of shape ()), as one clause; empty where it has one.

    `positive` and `negative` name an image of either kind, as the view of the caller means it: `wrong answer` and
    `right answer` where the system is judged.

    >>> why_undefined("recall", DecisionCounts(0, 5, 95, 0))
    'there is no OOD image'
    >>> why_undefined("mcc", DecisionCounts(90, 5, 95, 10))
    ''
    """
    if metric not in DECISION_FUNCTIONS:
        raise ValueError(f"{metric!r} is not a metric of decisions: known are {', '.join(DECISION_FUNCTIONS)}")
    if counts.tp.ndim:
        raise ValueError("a reason belongs to one set of counts, not to resamples of it")
    if not counts.total:
        return "there are no images"
    absent = {
        f"there is no {positive}": (counts.positive, ("mcc", "fnr", "recall", "balanced_accuracy")),
        f"there is no {negative}": (counts.negative, ("mcc", "fpr", "balanced_accuracy")),
        "no image is rejected": (counts.flagged, ("precision",)),
    }
    return next((clause for clause, (count, metrics) in absent.items() if metric in metrics and not count), "")


def class_mcc(
    label: ArrayLike, answer: ArrayLike, classes: int, weights: ArrayLike | None = None
) -> np.float64 | Floats:
    """Matthews' correlation of many classes (Gorodkin 2004) between label (N,) and answer (N,).

        MCC = (c s - sum_k p_k t_k) / sqrt((s^2 - sum_k p_k^2) (s^2 - sum_k t_k^2))

    with c right answers of s images, p_k answers and t_k labels of class k. Labels are 0 to `classes` - 1; an answer
    that a monitor cancelled is the class `classes`, which is never right. NaN where all labels or all answers are of
    one class. Weights (B, N) give (B,), otherwise one number.

    >>> round(float(class_mcc([0, 0, 1, 1], [0, 0, 1, 2], classes=2)), 4)
    0.6708
    """
    labels, answers = checked_classes(label, classes), checked_classes(answer, classes + 1)
    if labels.shape != answers.shape:
        raise ValueError(f"there must be a label and an answer per image, not {len(labels)} and {len(answers)}")
    rows = weight_rows(weights, len(labels)).astype(np.float64)
    right, by_answer, by_label = class_sums(labels, answers, classes)
    values = class_mcc_of_sums(rows @ right, rows @ by_answer, rows @ by_label)
    return values if _in_rows(weights) else np.float64(values[0])


def class_sums(
    label: NDArray[np.int64], answer: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """What `class_mcc` adds up over images: right (N,), one column per class of the answers and of the labels."""
    columns = np.arange(classes + 1)
    by_answer, by_label = ((values[:, None] == columns).astype(np.int64) for values in (answer, label))
    return (label == answer).astype(np.int64), by_answer, by_label


def class_mcc_of_sums(right: Floats, by_answer: Floats, by_label: Floats) -> Floats:
    """`class_mcc` (B,) from sums over images: right answers (B,), answers and labels of each class (B, K)."""
    total = by_label.sum(axis=1)
    covariance = right * total - (by_answer * by_label).sum(axis=1)
    spread_answer, spread_label = (total**2 - (by_class**2).sum(axis=1) for by_class in (by_answer, by_label))
    return ratio(covariance, np.sqrt(spread_answer) * np.sqrt(spread_label))


def checked_classes(values: ArrayLike, count: int) -> NDArray[np.int64]:
    """Class indices (N,) from 0 to `count` - 1; anything else is a `ValueError`."""
    indices = np.asarray(values)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ValueError(f"classes must be whole numbers, one per image, not {indices.dtype} {indices.shape}")
    if indices.size and not (indices.min() >= 0 and indices.max() < count):
        raise ValueError(f"classes must lie between 0 and {count - 1}, not {indices.min()} to {indices.max()}")
    return indices.astype(np.int64)


CLASS_METRICS = (
    Metric(
        "class_mcc_alone",
        label="Class MCC of the model alone",
        sentence="Matthews' correlation of many classes between labels and the model's answers, without a monitor. 1 "
        "is perfect, 0 no better than chance. Higher is better.",
        higher_is_better=True,
        range=(-1.0, 1.0),
    ),
    Metric(
        "class_mcc",
        label="Class MCC with the monitor",
        sentence="Matthews' correlation of many classes between labels and answers, where an answer the monitor "
        "cancels is a further class that is never right. Higher is better.",
        higher_is_better=True,
        range=(-1.0, 1.0),
    ),
    Metric(
        "relative_change",
        label="Relative change of class MCC",
        sentence="(Class MCC with the monitor - class MCC of the model alone) / class MCC of the model alone. Below 0 "
        "the monitor makes it worse. Higher is better.",
        higher_is_better=True,
        range=(-np.inf, np.inf),
        percent=True,
    ),
    Metric(
        "relative_change_perfect",
        label="Relative change with a perfect monitor",
        sentence="The same with a monitor that rejects the wrong answers and no other: hardly more can be reached on "
        "these images. It is small, since a cancelled answer is of one more class that is never right.",
        higher_is_better=None,
        range=(-np.inf, np.inf),
        percent=True,
    ),
)
STREAM_METRICS = (
    Metric(
        "stream_change",
        label="Relative change of the stream's MCC",
        sentence="A figure of ours, of streams with labels on both sides: (MCC with the monitor - MCC of the model "
        "alone) / MCC of the model alone, between what is done with each image and what is wanted: the label where the "
        "answer is right, to cancel it where it is wrong. Below 0 the monitor makes it worse. Higher is better.",
        higher_is_better=True,
        range=(-np.inf, np.inf),
        percent=True,
    ),
    Metric(
        "stream_change_perfect",
        label="The same with a perfect monitor",
        sentence="This change with a monitor that rejects the wrong answers and no other: its MCC is 1, which is all "
        "that can be reached.",
        higher_is_better=None,
        range=(-np.inf, np.inf),
        percent=True,
    ),
)
EFFECT_METRICS = (
    Metric(
        "safety_gain",
        label="Safety gain",
        sentence="Share of all images with a wrong answer that the monitor rejects. Higher is better; it cannot exceed "
        "the share of wrong answers.",
        higher_is_better=True,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "residual_hazard",
        label="Residual hazard",
        sentence="Share of all images with a wrong answer that the monitor accepts. Lower is better.",
        higher_is_better=False,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
    Metric(
        "availability_cost",
        label="Availability cost",
        sentence="Share of all images with a right answer that the monitor rejects. Lower is better.",
        higher_is_better=False,
        percent=True,
        mean_over_objects=True,
        proportion=True,
    ),
)
