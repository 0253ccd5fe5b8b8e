"""Answers: what a classifier answered for each image, reduced to the few numbers every metric needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.metrics.binning import ProbabilityBins
from roadworthy.metrics.ranking import Ranking, tied_share

TOLERANCE = 1e-3
"""How far a probability may lie outside [0, 1], or a row of probabilities from summing to 1, by rounding."""


@dataclass(frozen=True)
class Answers:
    """Sufficient statistics of n answers with K = `num_classes` classes; rows correspond across all fields.

    label        (n,) int64, the true class
    prediction   (n,) int64, the class of the largest probability, the lowest index where several are largest
    confidence   (n,) float64, the largest probability
    p_label      (n,) float64, the probability of the true class
    sum_squares  (n,) float64, the sum over classes of the squared probabilities
    log_odds     (n,) float64, log p - log(1 - p) of the prediction from logits; None where no logits are known

    >>> answers = Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], labels=[0, 0])
    >>> answers.prediction.tolist(), answers.confidence.tolist(), answers.correct.tolist()
    ([0, 1], [0.9, 0.6], [True, False])
    """

    label: NDArray[np.int64]
    prediction: NDArray[np.int64]
    confidence: NDArray[np.float64]
    p_label: NDArray[np.float64]
    sum_squares: NDArray[np.float64]
    num_classes: int
    log_odds: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.num_classes < 1:
            raise ValueError(f"answers need at least one class, not {self.num_classes}")
        for name in ("label", "prediction"):
            object.__setattr__(self, name, _class_indices(name, getattr(self, name), self.num_classes))
        for name in ("confidence", "p_label", "sum_squares"):
            column = np.asarray(getattr(self, name), dtype=np.float64)
            if column.size and not -TOLERANCE <= column.min() <= column.max() <= 1 + 3 * TOLERANCE:
                raise ValueError(f"{name} must lie within 0..1, not {column.min()}..{column.max()}")
            object.__setattr__(self, name, column)
        if self.log_odds is not None:
            object.__setattr__(self, "log_odds", np.asarray(self.log_odds, dtype=np.float64))
        columns = [self.label, self.prediction, self.confidence, self.p_label, self.sum_squares, self.score]
        if self.log_odds is not None and not np.isfinite(self.log_odds).all():
            raise ValueError("log_odds must be finite numbers")
        if any(column.shape != (len(self.label),) for column in columns):
            raise ValueError(f"answers need columns of one length, not {[column.shape for column in columns]}")

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, labels: ArrayLike) -> Self:
        """Reduce probabilities (n, K) and labels (n,); sums are taken in float64 whatever the type stored."""
        table: NDArray[Any] = np.asarray(probabilities)
        if table.ndim != 2 or table.dtype.kind not in "fiu":
            raise ValueError(f"probabilities must be numbers (n, K), not {table.dtype} {table.shape}")
        n, classes = table.shape
        label = _class_indices("label", labels, classes)
        if label.shape != (n,):
            raise ValueError(f"{n} rows of probabilities need {n} labels, not {label.shape}")
        if not np.isfinite(table).all():
            raise ValueError("probabilities must not be NaN or infinite")
        total = table.sum(axis=1, dtype=np.float64)
        if n and (table.min() < -TOLERANCE or np.abs(total - 1).max() > TOLERANCE):
            raise ValueError(
                f"rows of probabilities must be non-negative and sum to 1: smallest {table.min():.4g}, "
                f"sums {total.min():.4g}..{total.max():.4g}"
            )
        return cls(
            label=label,
            prediction=table.argmax(axis=1) if n else label,
            confidence=table.max(axis=1).astype(np.float64) if n else np.empty(0),
            p_label=table[np.arange(n), label].astype(np.float64),
            sum_squares=np.einsum("nk,nk->n", table, table, dtype=np.float64),
            num_classes=classes,
        )

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: NDArray[np.intp]) -> Self:
        """The answers to some images, by their rows."""
        names = ("label", "prediction", "confidence", "p_label", "sum_squares", "log_odds")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{name: column[rows] for name, column in columns.items() if column is not None})

    def forget(self) -> None:
        """Drop what was computed from the columns, about as many bytes as they have; it is computed again when needed.

        For who holds the answers of many cases at once.
        """
        for name in DERIVED:
            vars(self).pop(name, None)

    @property
    def score(self) -> NDArray[np.float64]:
        """(n,) float64: what answers are put in order by, from the least sure to the surest.

        The log-odds where they are known, else the confidence. Both put answers in the same order, but confidences that
        were rounded to 1, in single precision from 1 - 3e-8 on, are all equal.
        """
        return self.confidence if self.log_odds is None else self.log_odds

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) bool: the prediction is the label."""
        return np.equal(self.prediction, self.label)

    @cached_property
    def ranking(self) -> Ranking:
        """Right answers (the positive class) and wrong ones, in the order of their score."""
        return Ranking(self.score, self.correct)

    @cached_property
    def confidence_bins(self) -> ProbabilityBins:
        """The answers in bins of their confidence."""
        return ProbabilityBins(self.confidence)


DERIVED = ("correct", "ranking", "confidence_bins")
"""What answers keep of what was computed from their columns, until they forget it."""


def tied_answers(answers: Answers) -> float:
    """The share of pairs of a right and a wrong answer that are in no order for want of log-odds; NaN with log-odds."""
    return float("nan") if answers.log_odds is not None else tied_share(answers.confidence, answers.correct)


def answers_of(probabilities: ArrayLike, labels: ArrayLike | None) -> Answers:
    """Answers from what a user gives, probabilities (n, K) and labels (n,); what cannot be used is an `InputError`."""
    if labels is None:
        raise InputError("a metric of answers needs probabilities (n, K) and labels (n,)")
    try:
        return Answers.from_probabilities(probabilities, labels)
    except ValueError as error:
        raise InputError(str(error)) from None


def _class_indices(name: str, values: ArrayLike, num_classes: int) -> NDArray[np.int64]:
    column = np.asarray(values)
    if column.size and column.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold class indices, not {column.dtype}")
    if column.size and not 0 <= int(column.min()) <= int(column.max()) < num_classes:
        raise ValueError(f"{name} must lie within 0..{num_classes - 1}, not {column.min()}..{column.max()}")
    return column.astype(np.int64, copy=False)
