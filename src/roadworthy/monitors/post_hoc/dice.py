"""DICE: the energy of a last layer of which only the weights that matter are left."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.parameters import registered
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Learned
from roadworthy.monitors.post_hoc.shaping import ShapedMonitor

SPARSITIES = (10.0, 30.0, 50.0, 70.0, 90.0)
"""Percentiles of the contributions, as the paper tries them."""


def sparse_weights(weights: ArrayLike, mean: ArrayLike, percentile: float) -> NDArray[np.float32]:
    """Weights (K, D), 0 where their contribution w_kj mean_j is not above its percentile over all of them.

    >>> sparse_weights([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0], 50.0)
    array([[0., 0.],
           [3., 4.]], dtype=float32)
    """
    values = np.asarray(weights, np.float32)
    contributions = values * np.asarray(mean, np.float64)
    return np.asarray(np.where(contributions > np.percentile(contributions, percentile), values, 0), np.float32)


@registered(MONITORS, "dice")
class Dice(ShapedMonitor):
    """DICE: log sum_k exp (V f + b)_k, V the last layer's weights less those that contribute little (Sun & Li 2022).

    f are the pooled features that go into the last linear layer z = W f + b. The weight w_kj contributes w_kj m_j, m_j
    the mean of f_j over the training images; of all weights, those that contribute a percentile or less become 0.

    percentiles  of the contributions, from 0 to below 100, one or several. Several are tuned: against outliers, the one
                 of lowest cost; without, the highest at which at least 99 % of the training images keep their class
    """

    percentiles: tuple[float, ...] | float = SPARSITIES

    differs_from_paper: ClassVar[str] = (
        "the percentile is that of the lowest expected cost on the outliers it is calibrated with, or without any the "
        "highest at which 99 % of the training images keep their class; the paper chooses it on noise images"
    )

    def learn(self, weights: NDArray[np.float32], rows: NDArray[np.float32]) -> Arrays:
        """The mean features (D,)."""
        return {"mean": rows.mean(axis=0, dtype=np.float64)}

    def shaped_logits(self, features: NDArray[np.float32], state: Learned) -> NDArray[np.float32]:
        """Logits (N, G, K) of the sparse layers."""
        layers = state.cached("layers", lambda: self._layers(state))
        return np.asarray((features @ layers).reshape(len(features), len(self.grid), -1) + state["bias"])

    def _layers(self, state: Learned) -> NDArray[np.float32]:
        """All sparse weights side by side, (D, G K)."""
        layers = [sparse_weights(state["weights"], state["mean"], percentile) for percentile in self.grid]
        return np.ascontiguousarray(np.concatenate(layers).T)
