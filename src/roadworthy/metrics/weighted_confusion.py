"""Weighted confusion: what a classifier's mistakes cost where not all are equally severe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import call_on_rows
from roadworthy.metrics.correctness import confusion_matrix
from roadworthy.metrics.weighting import Floats, Weights, ratio, weighted_sum

Severity = float | str
"""A number of at least 0, or plus signs: + is 1, ++++ is 4."""


@dataclass(frozen=True)
class Confusion:
    """Images of one class taken for another, and what they cost together: count times severity."""

    label: int
    prediction: int
    count: int
    severity: float

    @property
    def cost(self) -> float:
        """Count times severity."""
        return self.count * self.severity


@dataclass(frozen=True)
class WeightedConfusion:
    """The normalised cost of mistakes, as a metric of answers: 0 without a mistake, 1 where all are the worst possible.

        M_confusion = sum_i s(y_i, prediction_i) / sum_i max_k s(y_i, k)

    severity (K, K): what it costs to take an image of a class (row) for another (column), 0 on the diagonal. Called
    with answers and optional weights like every metric; `GroupBootstrap.distribution(metric, answers)` and
    `bootstrap_interval` bound it. NaN where no shown class has a mistake that costs anything.

    >>> cost = WeightedConfusion(np.array([[0.0, 4.0], [1.0, 0.0]]))
    >>> cost(Answers.from_probabilities([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 0, 1]))
    0.5555555555555556
    """

    severity: NDArray[np.float64]

    def __post_init__(self) -> None:
        table = np.asarray(self.severity, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or not len(table):
            raise ValueError(f"a severity matrix has a row and a column per class, not {table.shape}")
        if not (np.isfinite(table).all() and table.min() >= 0):
            raise ValueError("severities must be finite and not negative")
        if np.diag(table).any():
            raise ValueError("a right answer costs nothing: the diagonal of a severity matrix must be 0")
        object.__setattr__(self, "severity", table)

    @overload
    def __call__(self, answers: Answers, weights: None = None) -> float: ...
    @overload
    def __call__(self, answers: Answers, weights: NDArray[np.floating[Any]]) -> float | Floats: ...
    def __call__(self, answers: Answers, weights: NDArray[np.floating[Any]] | None = None) -> float | Floats:
        """The cost: a float, or (B,) for weights (B, n)."""
        return call_on_rows(self.of_rows, answers, weights)

    def of_rows(self, answers: Answers, weights: Weights) -> Floats:
        """The cost for weights (B, n) that need no check."""
        if answers.num_classes != len(self.severity):
            raise ValueError(f"severities of {len(self.severity)} classes do not fit {answers.num_classes} classes")
        costs = self.severity[answers.label, answers.prediction]
        worst = self.severity.max(axis=1)[answers.label]
        return ratio(weighted_sum(weights, costs), weighted_sum(weights, worst))

    def reason(self, answers: Answers) -> str:
        """Why there is no value; empty where there is one."""
        if not len(answers):
            return "no images"
        return "" if self.severity[answers.label].any() else "no mistake of the classes shown costs anything"

    def most_expensive(self, answers: Answers, limit: int | None = None) -> list[Confusion]:
        """The confusions that cost anything, the most expensive first; of equals the lower class first.

        >>> cost = WeightedConfusion(np.array([[0.0, 4.0], [1.0, 0.0]]))
        >>> cost.most_expensive(Answers.from_probabilities([[0.2, 0.8], [0.6, 0.4]], [0, 1]), limit=1)
        [Confusion(label=0, prediction=1, count=1, severity=4.0)]
        """
        counts = confusion_matrix(answers)
        confusions = [
            Confusion(label, prediction, int(counts[label, prediction]), float(self.severity[label, prediction]))
            for label, prediction in np.argwhere(counts * self.severity > 0).tolist()
        ]
        return sorted(confusions, key=lambda confusion: -confusion.cost)[:limit]


def severity_matrix(
    class_names: Sequence[str], rows: Mapping[str, Severity | Mapping[str, Severity]], default: Severity | None = None
) -> NDArray[np.float64]:
    """A severity matrix (K, K) from a table by name: `rows[label][prediction]`, a number or plus signs.

    A row may be one severity for all its mistakes; the key `others` in a row stands for the predictions it does not
    name. `default` is for what is not named at all; without one, that is an error.

    >>> severity_matrix(["pedestrian", "vehicle"], {"pedestrian": {"vehicle": "++"}, "vehicle": "+"})
    array([[0., 2.],
           [1., 0.]])
    """
    names = list(class_names)
    if not names or len(set(names)) < len(names):
        raise ValueError("a severity matrix needs different class names, at least one")
    _require_known(rows, names, "the severities name")
    matrix = np.zeros((len(names), len(names)))
    for index, label in enumerate(names):
        row = rows.get(label, {})
        by_prediction = row if isinstance(row, Mapping) else {"others": row}
        _require_known(by_prediction, [*names, "others"], f"the severities of {label!r} name")
        if label in by_prediction and parse_severity(by_prediction[label]):
            raise ValueError(f"a right answer costs nothing: the severity of {label!r} taken for itself must be 0")
        for column, prediction in enumerate(names):
            if column != index:
                severity = by_prediction.get(prediction, by_prediction.get("others", default))
                if severity is None:
                    raise ValueError(f"no severity for {label!r} taken for {prediction!r}: name it, or give a default")
                matrix[index, column] = parse_severity(severity)
    return matrix


def parse_severity(value: Severity) -> float:
    """A severity as a number: plus signs are counted.

    >>> parse_severity("+++"), parse_severity(2.5)
    (3.0, 2.5)
    """
    if isinstance(value, str) and value and not value.strip("+"):
        return float(len(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"a severity is a number of at least 0, or plus signs such as ++, not {value!r}")


def _require_known(names: Mapping[str, object], known: Sequence[str], subject: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{subject} {name!r}, which is not a class; known are {', '.join(known)}")
