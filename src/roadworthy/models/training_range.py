"""Which range of pixels an estimator of scikit-learn was trained on, seen in what it keeps of its training data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from roadworthy.core.errors import InputError

INNER = ("best_estimator_", "calibrated_classifiers_", "estimators_", "estimator_", "estimator", "transformer_list")
"""Attributes that hold estimators which see the same input, a list of them or one."""
EXTREMES = frozenset({"data_max_", "max_abs_", "_fit_X", "support_vectors_"})
"""Attributes that hold training data or its maxima."""
KEPT = (
    *("mean_", "data_max_", "max_abs_", "center_", "_fit_X", "support_vectors_", "theta_", "centroids_", "means_"),
    *("xbar_", "cluster_centers_"),
)
"""Attributes that hold training data, or statistics of it, in its own unit."""
MOST_OF_ONE = 1.0 + 1e-6
LEAST_EXTREME, LEAST_MIDDLE, MOST_OF_255 = 128.0, 20.0, 255.0
"""Data in 0-255 has values above the first and means, centres or thresholds above the second; data in 0-16 has not."""


def range_seen_in(estimator: Any, name: str) -> tuple[str, str]:
    """`0-255` or `0-1`, and the attribute that shows it; an `InputError` that asks for it where nothing does.

    >>> from sklearn.preprocessing import StandardScaler
    >>> range_seen_in(StandardScaler().fit([[0, 10], [250, 30]]), "scaler")
    ('0-255', 'StandardScaler.mean_')
    """
    for owner, attribute, values in _statistics(estimator):
        largest = float(values.max(initial=0.0))
        if not np.isfinite(values).all() or values.min(initial=0.0) < 0:
            break
        least = LEAST_EXTREME if attribute in EXTREMES else LEAST_MIDDLE
        if largest <= MOST_OF_ONE or least < largest <= MOST_OF_255:
            return ("0-1" if largest <= MOST_OF_ONE else "0-255"), f"{type(owner).__name__}.{attribute}"
        break
    raise InputError(
        f"model {name} does not tell which numbers it was trained on: say `range='0-255'` for pixels as they are, "
        "`range='0-1'` for pixels divided by 255, or MEAN/STD"
    )


def _statistics(estimator: Any, depth: int = 4) -> Iterator[tuple[Any, str, np.ndarray[Any, Any]]]:
    """What an estimator, and those inside it that see the same input, keep of the training data."""
    if depth == 0 or estimator is None or isinstance(estimator, str):
        return
    if hasattr(estimator, "steps"):  # a pipeline: what comes after its first step sees other numbers
        parts = [part for _, part in estimator.steps if part not in (None, "passthrough")]
        yield from _statistics(parts[0] if parts else None, depth - 1)
        return
    for attribute in KEPT:
        values = getattr(estimator, attribute, None)
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiu" and values.size:
            yield estimator, attribute, values
    trees = [part.tree_ for part in (estimator, *_members(estimator, "estimators_")) if hasattr(part, "tree_")]
    thresholds = [tree.threshold[tree.feature >= 0] for tree in trees]  # leaves have no feature
    if any(len(part) for part in thresholds):
        yield estimator, "tree_.threshold", np.concatenate(thresholds)
    binned = getattr(getattr(estimator, "_bin_mapper", None), "bin_thresholds_", None)
    if isinstance(binned, Sequence) and any(len(part) for part in binned):
        yield estimator, "bin_thresholds_", np.concatenate([np.asarray(part, np.float64) for part in binned])
    for attribute in INNER:
        for member in _members(estimator, attribute)[:1]:
            yield from _statistics(member, depth - 1)


def _members(estimator: Any, attribute: str) -> list[Any]:
    """The estimators that an attribute holds, a list of them or one."""
    inner = getattr(estimator, attribute, None)
    return list(np.asarray(inner, object).ravel()) if isinstance(inner, list | np.ndarray) else [inner]
