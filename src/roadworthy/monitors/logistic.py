"""Logistic regression between in-distribution images and outliers: few columns, a unique solution, no random start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.errors import InputError
from roadworthy.monitors.learned import Floats
from roadworthy.monitors.threshold import side_weights

MOST_STEPS = 100
SMALL_STEP = 1e-10
"""Newton's method ends where no weight moves farther than this share of the largest."""


@dataclass(frozen=True)
class Logistic:
    """w . x + bias, the log odds of being in-distribution. weights are (D,)."""

    weights: Floats
    bias: float

    def __call__(self, rows: ArrayLike) -> Floats:
        """The log odds (N,) of rows (N, D)."""
        return np.asarray(np.einsum("nd,d->n", np.asarray(rows, np.float64), self.weights) + self.bias)


def fit_logistic(inside: ArrayLike, outside: ArrayLike, *, prior: float = 0.5, cost: float = 1.0) -> Logistic:
    """The logistic regression between rows (n, D) and (m, D): sum_i c_i log(1 + exp(-y_i f(x_i))) + |w|^2 / 2.

    f(x) = w . x + b on columns standardised over both sides, y = 1 inside and -1 outside. Without c_i it would be
    scikit-learn's `LogisticRegression` with C = 1; c_i lets both sides weigh the same, unless `prior` and `cost` say
    otherwise, and has the mean 1. The weights returned are those of the columns as they are.

    >>> fit_logistic([[3.0], [4.0]], [[-2.0], [-1.0]])([[2.0], [5.0]]).round(1)
    array([0.4, 1.6])
    """
    sides = [np.asarray(rows, np.float64) for rows in (inside, outside)]
    rows = np.concatenate(sides)
    if not all(map(len, sides)) or not np.isfinite(rows).all():
        raise InputError("a logistic regression needs finite rows of both sides, in-distribution and outliers")
    counts = [len(side) for side in sides]
    share = np.array(side_weights(prior, cost))
    case_weights = np.repeat(share / share.sum() * len(rows) / np.array(counts), counts)
    target = np.repeat([1.0, 0.0], counts)
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
    design = np.column_stack([(rows - mean) / scale, np.ones(len(rows))])
    vector = _newton(design, target, case_weights)
    weights = vector[:-1] / scale
    return Logistic(weights, float(vector[-1] - weights @ mean))


def _newton(design: Floats, target: Floats, case_weights: Floats) -> Floats:
    """The minimum by Newton's method, each step halved until the objective falls; the last column has no penalty."""
    penalty = np.append(np.ones(design.shape[1] - 1), 0.0)

    def objective(vector: Floats) -> float:
        odds = design @ vector
        return float(case_weights @ (np.logaddexp(0.0, odds) - target * odds) + (penalty * vector) @ vector / 2)

    vector = np.zeros(design.shape[1])
    value = objective(vector)
    for _ in range(MOST_STEPS):
        probability = 1 / (1 + np.exp(-np.clip(design @ vector, -700, 700)))
        slope = design.T @ (case_weights * (probability - target)) + penalty * vector
        curvature = (design.T * (case_weights * probability * (1 - probability))) @ design + np.diag(penalty)
        step = np.linalg.solve(curvature + 1e-12 * np.eye(len(vector)), slope)
        while objective(vector - step) > value and np.abs(step).max() > SMALL_STEP:
            step = step / 2
        vector = vector - step
        value = objective(vector)
        if np.abs(step).max() <= SMALL_STEP * max(1.0, np.abs(vector).max()):
            break
    return vector
