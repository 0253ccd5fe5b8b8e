"""NECO: how much of the features lies in the few directions that training features collapse to."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import PART, Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.whitening import SMALLEST_VARIANCE

EXPLAINED = 0.9
"""Share of the variance of training features that the principal directions hold at least, by default."""
SHORTEST = 1e-10


def principal_share(standardised: ArrayLike, directions: ArrayLike) -> Floats:
    """|P^T h| / |h| of rows h (N, D) and orthonormal directions P (D, d): (N,), 0 where h is 0.

    >>> principal_share([[3.0, 4.0], [0.0, 0.0]], [[1.0], [0.0]])
    array([0.6, 0. ])
    """
    rows = np.asarray(standardised)
    inside = np.linalg.norm(rows @ np.asarray(directions, rows.dtype), axis=1)
    return np.asarray(inside / np.maximum(np.linalg.norm(rows, axis=1), SHORTEST), np.float64)


@registered(MONITORS, "neco")
class Neco(Monitor):
    """NECO: |P^T h| / |h| max_k z_k, P the principal directions of standardised features h (Ben Ammar et al. 2024).

    h = (f - mean) / deviation, over the training images, of the pooled features f that go into the last linear layer.

    dimensions   principal directions; by default the fewest that hold 90 % of the variance
    times_logit  False leaves the largest logit out
    """

    dimensions: int | None = None
    times_logit: bool = True

    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    differs_from_paper: ClassVar[str] = (
        "the ratio is multiplied by the largest logit unless times_logit is false; the published code leaves the logit "
        "out for ResNets, and divides by the length of features that are not standardised for some transformers"
    )

    def __post_init__(self) -> None:
        if self.dimensions is not None:
            require_count(self, "dimensions")

    def fit(self, training: Training) -> Arrays:
        """Mean (D,), one over the deviation (D,) and principal directions (D, d), in single precision."""
        rows = training.gather("features")
        mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        varies = deviation > SMALLEST_VARIANCE * np.maximum(1.0, np.abs(mean))
        inverse = np.divide(1.0, deviation, out=np.ones_like(deviation), where=varies)
        variances, directions = _principal(rows, mean, inverse)
        if not len(variances):
            raise InputError(f"monitor {self.name} cannot be built on {training.name}: its features never vary")
        held = np.cumsum(variances) / variances.sum()
        count = int(np.argmax(held >= EXPLAINED - 1e-12)) + 1 if self.dimensions is None else self.dimensions
        if count > len(variances):
            raise InputError(
                f"monitor {self.name}: dimensions must be from 1 to {len(variances)} for these features, not {count}"
            )
        state = {"mean": mean, "inverse_deviation": inverse, "directions": directions[:, :count]}
        return {name: np.ascontiguousarray(array, np.float32) for name, array in state.items()}

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the number of directions where it was found from the data."""
        if self.dimensions is not None:
            return ()
        return (f"{state['directions'].shape[1]} directions hold {EXPLAINED:.0%} of the variance of training features",)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The share of the features that is principal, times the largest logit, (N,)."""
        share = principal_share((signals.features() - state["mean"]) * state["inverse_deviation"], state["directions"])
        return share * signals.logits.max(axis=1) if self.times_logit else share


def _principal(rows: NDArray[np.float32], mean: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """Variances (d,), the largest first, and directions (D, d) of standardised rows (n, D), of those that vary."""
    count, size = rows.shape
    if count <= size:
        values = (rows - mean) * inverse
        variances, vectors = np.linalg.eigh(values @ values.T / count)
    else:
        squares = np.zeros((size, size))
        for start in range(0, count, PART):
            values = (rows[start : start + PART] - mean) * inverse
            squares += values.T @ values
        variances, vectors = np.linalg.eigh(squares / count)
    kept = np.flatnonzero(variances > SMALLEST_VARIANCE * max(variances[-1], SMALLEST_VARIANCE))[::-1]
    directions = vectors[:, kept] if count > size else values.T @ (vectors[:, kept] / np.sqrt(variances[kept] * count))
    return variances[kept], directions
