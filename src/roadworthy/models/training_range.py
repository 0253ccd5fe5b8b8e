"""Which range of pixels an estimator of scikit-learn was trained on, seen in what it keeps of its training data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from roadworthy.core.errors import InputError

INNER = ("best_estimator_", "calibrated_classifiers_", "estimators_", "estimator_", "estimator", "transformer_list")
"""Attributes that hold estimators which see the same input, a list of them or one."""
KEPT = (
    *("mean_", "data_max_", "max_abs_", "center_", "_fit_X", "support_vectors_", "theta_", "centroids_", "means_"),
    *("xbar_", "cluster_centers_"),
)
"""Attributes that hold training data, or statistics of it, in its own unit."""
MOST_OF_ONE = 1.0 + 1e-6
LEAST_OF_255 = 1.5
"""What lies above was not scaled to 1; images whose every mean lies below would be black."""


def range_seen_in(estimator: Any, name: str) -> tuple[str, str]:
    """`0-255` or `0-1`, and the attribute that shows it; an `InputError` that asks for it where nothing does.

    >>> from sklearn.preprocessing import StandardScaler
    >>> range_seen_in(StandardScaler().fit([[0, 10], [250, 30]]), "scaler")
    ('0-255', 'StandardScaler.mean_')
    """
    for owner, attribute, values in _statistics(estimator):
        largest = float(values.max(initial=0.0))
        if not np.isfinite(values).all() or values.min(initial=0.0) < 0 or MOST_OF_ONE < largest < LEAST_OF_255:
            break
        return ("0-255" if largest >= LEAST_OF_255 else "0-1"), f"{type(owner).__name__}.{attribute}"
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
    thresholds = getattr(getattr(estimator, "tree_", None), "threshold", None)
    if thresholds is not None and (thresholds >= 0).any():
        yield estimator, "tree_.threshold", thresholds[thresholds >= 0]  # leaves have -2
    binned = getattr(getattr(estimator, "_bin_mapper", None), "bin_thresholds_", None)
    if isinstance(binned, Sequence) and any(len(part) for part in binned):
        yield estimator, "bin_thresholds_", np.concatenate([np.asarray(part, np.float64) for part in binned])
    for attribute in INNER:
        inner = getattr(estimator, attribute, None)
        members = np.asarray(inner, object).ravel() if isinstance(inner, list | np.ndarray) else [inner]
        for member in list(members)[:1]:
            yield from _statistics(member, depth - 1)
