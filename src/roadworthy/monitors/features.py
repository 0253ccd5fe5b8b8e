"""Monitors of a network's features: Mahalanobis, ViM and ReAct. By default what goes into the last linear layer."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import PART, Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_layer
from roadworthy.monitors.confidence import energy
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.last_layer import LastLayerMonitor
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.principal_space import PrincipalSpaceMonitor, residual_lengths
from roadworthy.monitors.whitening import FeatureMoments, class_distances


@registered(MONITORS, "mahalanobis")
class Mahalanobis(Monitor):
    """-min_k (f - m_k)^T S^+ (f - m_k): class means m_k, one covariance S shared by all classes, of features f.

    It is the method's plain form, one layer and the image as it is; `mahalanobis_full` is the whole. S^+ leaves out
    directions without variance. Where there are more images than features, sums are made batch by batch, so memory does
    not grow with the data; else the images are kept, which are the fewer.
    """

    layer: str | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "neither the input perturbation nor the ensemble of layers of the paper: it is the distance of the unchanged "
        "image in one layer; mahalanobis_full has both; directions without variance are left out"
    )

    def __post_init__(self) -> None:
        require_layer(self, self.layer)

    def fit(self, training: Training) -> Arrays:
        """Whitened class means (K, R) and the whitening (D, R): distances are Euclidean behind it."""
        refusal = f"monitor {self.name} cannot be built on {training.name}"
        return FeatureMoments.of(training, self.layer).class_gaussians(refusal)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the squared distance from the nearest class mean, (N,)."""
        return -class_distances(signals.features(self.layer), state)


@registered(MONITORS, "vim")
class Vim(PrincipalSpaceMonitor):
    """log sum_k exp z_k - a |R^T (f - o)|: the energy less the length of what leaves the principal space.

    o = -W^+ b is the origin of the last layer z = W f + b; R spans all but the `dimensions` strongest directions of the
    training features around o; a = mean max_k z_k / mean |R^T (f - o)|. By default half of the directions are
    principal, or half as many as there are images where those are fewer. They are what is kept, P: R^T (f - o) is as
    long as what P P^T (f - o) leaves of f - o.
    """

    def fit(self, training: Training) -> Arrays:
        """The origin (D,), the principal space (D, P), a, and the last layer."""
        weights, bias, rows = self.head_and_features(training)
        space = self.principal_space(training, (weights, bias), rows)
        largest = 0.0
        for start in range(0, len(rows), PART):
            values = rows[start : start + PART].astype(np.float64)
            largest += float((values @ weights.T + bias).max(axis=1).sum())
        scale = np.asarray(largest / space.total_length)
        return {"origin": space.origin, "principal": space.directions, "scale": scale, "weights": weights, "bias": bias}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy less the scaled length of the residual, (N,)."""
        values = signals.features().astype(np.float64)
        virtual = state["scale"] * residual_lengths(values - state["origin"], state["principal"])
        return np.asarray(energy(values @ state["weights"].T + state["bias"]) - virtual)


@registered(MONITORS, "react")
class React(LastLayerMonitor):
    """log sum_k exp (W min(f, c) + b)_k: the energy, features f cut at c, their `quantile` over the training data."""

    quantile: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.quantile <= 1:
            raise InputError(
                f"monitor {self.name}: the quantile is a share above 0 and at most 1, not {self.quantile!r}"
            )

    def fit(self, training: Training) -> Arrays:
        """The cut c and the last layer."""
        weights, bias, values = self.head_and_features(training)
        cut = np.asarray(np.quantile(values, self.quantile, overwrite_input=True), np.float64)
        return {"cut": cut, "weights": weights, "bias": bias}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy of the cut features, (N,)."""
        values = np.minimum(signals.features().astype(np.float64), state["cut"])
        return energy(values @ state["weights"].T + state["bias"])
