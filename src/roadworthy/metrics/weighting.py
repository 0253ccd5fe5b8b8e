"""Weights: how often each image counts, as one row, or as one row per bootstrap resample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Weights = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]


def weight_rows(weights: ArrayLike | None, n: int) -> Weights:
    """Weights as rows (B, n): None is one row of ones, (n,) is one row; float32 and float64 stay as they are.

    >>> weight_rows(None, 3)
    array([[1., 1., 1.]])
    """
    if weights is None:
        return np.ones((1, n))
    table = np.asarray(weights)
    if table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float64)
    rows: Weights = table[None] if table.ndim == 1 else table
    if rows.ndim != 2 or rows.shape[1] != n:
        raise ValueError(f"weights must be ({n},) or (B, {n}), not {table.shape}")
    if rows.size and not (rows.min() >= 0 and rows.max() < np.inf):
        raise ValueError("weights must be finite and not negative")
    return rows


def weighted_sum(weights: Weights, values: NDArray[Any]) -> Floats:
    """Sum over i of weights[b, i] values[i], (B, n) and (n,) to (B,), in float64.

    Not a matrix product of BLAS, whose last bits depend on the number of threads.

    >>> weighted_sum(np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([0.5, 3.0]))
    array([0.5, 4. ])
    """
    total: Floats = np.einsum("bn,n->b", weights, values, dtype=np.float64)
    return total


def ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Floats:
    """Numerator by denominator, NaN where the denominator is 0.

    >>> ratio(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    array([0.5, nan])
    """
    result: Floats = np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0)
    return result


def weighted_mean(weights: Weights, values: NDArray[Any]) -> Floats:
    """Mean of values (n,) by weights (B, n): (B,), NaN where a row has no weight.

    >>> weighted_mean(np.array([[1.0, 3.0], [0.0, 0.0]]), np.array([1.0, 0.0]))
    array([0.25,  nan])
    """
    return ratio(weighted_sum(weights, values), weights.sum(axis=1, dtype=np.float64))
