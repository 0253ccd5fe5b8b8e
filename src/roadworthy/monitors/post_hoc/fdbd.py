"""fDBD: how far the features are from the decision boundaries, for their distance from the mean of all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.head import find_head
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.last_layer import LastLayerMonitor
from roadworthy.monitors.learned import Arrays, Floats, Learned

SHORTEST = 1e-10
"""A distance from the mean features that is shorter counts as this."""


def boundary_distances(features: ArrayLike, logits: ArrayLike, mean: ArrayLike, inverse_widths: ArrayLike) -> Floats:
    """sum_c (z_y - z_c) v_yc / |f - mean| with y = argmax z, of features (N, D) and logits (N, K): (N,).

    v (K, K) holds 1 / ((K - 1) |w_y - w_c|) and 0 for c = y: see `inverse_boundary_widths`.

    >>> boundary_distances([[3.0, 4.0]], [[2.0, 0.0]], [0.0, 0.0], inverse_boundary_widths(np.eye(2))).round(4)
    array([0.2828])
    """
    values, weights = np.asarray(logits, np.float64), np.asarray(inverse_widths, np.float64)
    ahead = values.max(axis=1, keepdims=True) - values
    away = np.linalg.norm(np.asarray(features, np.float64) - np.asarray(mean), axis=1)
    total = np.einsum("nk,nk->n", ahead, weights[values.argmax(axis=1)])
    return np.asarray(total / np.maximum(away, SHORTEST))


def inverse_boundary_widths(weights: ArrayLike) -> Floats:
    """1 / (m_p |w_p - w_c|) of the last layer's weights (K, D): (K, K), 0 where p and c have the same weights.

    m_p is the number of other classes that p has a boundary with: K - 1 where no two have the same weights.

    >>> inverse_boundary_widths([[3.0, 0.0], [0.0, 4.0]])
    array([[0. , 0.2],
           [0.2, 0. ]])
    """
    rows = np.asarray(weights, np.float64)
    widths = np.stack([np.linalg.norm(rows - row, axis=1) for row in rows])
    inverse = np.divide(1.0, widths, out=np.zeros_like(widths), where=widths > 0)
    return np.asarray(inverse / np.maximum((widths > 0).sum(axis=1, keepdims=True), 1))


@registered(MONITORS, "fdbd")
class Fdbd(LastLayerMonitor):
    """fDBD: mean over c != y of (z_y - z_c) / (|w_y - w_c| |f - m|), y the answered class (Liu & Qin 2024).

    (z_y - z_c) / |w_y - w_c| is the distance of the features from the boundary between y and c, f are the pooled
    features that go into the last linear layer, w_k its weights, z its logits, m the mean of all training features.
    """

    differs_from_paper: ClassVar[str] = (
        "a class whose weights equal those of the answered class has no boundary with it: it is left out of the mean"
    )

    def fit(self, training: Training) -> Arrays:
        """The mean features (D,) and the inverse widths (K, K)."""
        weights = find_head(training.model).weights
        if len(weights) < 2:
            raise InputError(
                f"monitor {self.name} needs a model of at least two classes: {training.model.name} has one"
            )
        total = np.sum([part.sum(axis=0, dtype=np.float64) for part in self.checked_features(training)], axis=0)
        return {"mean": total / len(training), "inverse_widths": inverse_boundary_widths(weights)}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The mean distance from the boundaries, for the distance from the mean, (N,)."""
        return boundary_distances(signals.features(), signals.logits, state["mean"], state["inverse_widths"])
