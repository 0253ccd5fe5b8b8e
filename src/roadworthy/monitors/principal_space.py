"""The principal space of features around the origin of the last layer, and what leaves it: for ViM and Residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from roadworthy.core.errors import InputError
from roadworthy.models.signals import PART, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.last_layer import LastLayerMonitor
from roadworthy.monitors.learned import Floats
from roadworthy.monitors.whitening import SMALLEST_VARIANCE

NOTHING_LEFT = 1e-6
"""Residuals that are shorter than this share of the features are rounding."""


@dataclass(frozen=True)
class PrincipalSpace:
    """The strongest directions of training features around o = -W^+ b, the origin of the last layer z = W f + b.

    origin        o (D,);  directions: P, orthonormal (D, P)
    total_length  the sum of |f - o - P P^T (f - o)| over the training data
    """

    origin: Floats
    directions: Floats
    total_length: float

    @classmethod
    def of(
        cls, monitor: Monitor, data: str, head: tuple[Floats, Floats], rows: NDArray[np.float32], dimensions: int | None
    ) -> PrincipalSpace:
        """The space of features (n, D) of the data of that name, for the layer W (K, D) and b (K,).

        By default half of the directions are principal, or half as many as there are images where those are fewer.
        """
        weights, bias = head
        size = weights.shape[1]
        principal = min(size, len(rows)) // 2 if dimensions is None else dimensions
        if principal >= size:
            raise InputError(
                f"monitor {monitor.name}: dimensions must be from 0 to {size - 1} for this model, not {principal}"
            )
        origin = -np.linalg.pinv(weights) @ bias
        space = _strongest(rows, origin, principal)
        lengths = whole = 0.0
        for start in range(0, len(rows), PART):
            shifted = rows[start : start + PART].astype(np.float64) - origin
            lengths += float(residual_lengths(shifted, space).sum())
            whole += float(np.linalg.norm(shifted, axis=1).sum())
        if lengths <= NOTHING_LEFT * whole:
            raise InputError(
                f"monitor {monitor.name} cannot be built on {data}: no feature leaves the principal space; give it "
                f"fewer dimensions than {principal}, or more training images than {len(rows)}"
            )
        return cls(origin, space, lengths)


def residual_lengths(shifted: Floats, directions: Floats) -> Floats:
    """The lengths (n,) of rows (n, D) less their projection on a space (D, P).

    >>> residual_lengths(np.array([[3.0, 4.0]]), np.array([[1.0], [0.0]]))
    array([4.])
    """
    return np.asarray(np.linalg.norm(shifted - (shifted @ directions) @ directions.T, axis=1))


def _strongest(rows: NDArray[np.float32], origin: Floats, count: int) -> Floats:
    """The `count` strongest directions (D, at most count) of rows (n, D) around an origin, orthonormal."""
    size = len(origin)
    if len(rows) <= size:
        shifted = rows - origin
        values, vectors = np.linalg.eigh(shifted @ shifted.T)
        kept = slice(max(0, len(values) - count), None) if count else slice(0, 0)
        strong = values[kept] > SMALLEST_VARIANCE * max(values[-1], 0.0)
        return np.asarray(shifted.T @ (vectors[:, kept][:, strong] / np.sqrt(values[kept][strong])))
    squares = np.zeros((size, size))
    for start in range(0, len(rows), PART):
        shifted = rows[start : start + PART] - origin
        squares += shifted.T @ shifted
    if not count:
        return np.zeros((size, 0))
    return np.asarray(eigh(squares, subset_by_index=(size - count, size - 1), overwrite_a=True)[1])


@dataclass(frozen=True, kw_only=True)
class PrincipalSpaceMonitor(LastLayerMonitor):
    """A monitor that reads how much of the features leaves the principal space, of so many `dimensions`."""

    dimensions: int | None = None

    differs_from_paper: ClassVar[str] = (
        "half of the directions are principal unless the setting dimensions says otherwise; the published code takes "
        "1000 where features have 2048 values or more, else 512"
    )

    def __post_init__(self) -> None:
        if self.dimensions is not None:
            require_count(self, "dimensions", least=0)

    def principal_space(
        self, training: Training, head: tuple[Floats, Floats], rows: NDArray[np.float32]
    ) -> PrincipalSpace:
        """The space of the training features (n, D) for the last layer W (K, D) and b (K,)."""
        return PrincipalSpace.of(self, training.name, head, rows, self.dimensions)
