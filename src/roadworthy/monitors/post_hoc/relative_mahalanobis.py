"""Relative Mahalanobis: the distance from the nearest class, less that from all training images."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_layer
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.whitening import FeatureMoments


@registered(MONITORS, "relative_mahalanobis")
class RelativeMahalanobis(Monitor):
    """-min_k (f - m_k)^T S^+ (f - m_k) + (f - m)^T S_0^+ (f - m): Mahalanobis less that of all (Ren et al. 2021).

    f are features, by default those that go into the last linear layer; m_k class means and S the covariance around
    them, shared by all classes, as in `mahalanobis`; m and S_0 the mean and the covariance of all training images.

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> train, _, test, outliers = toy_data()
    >>> fitted = RelativeMahalanobis().build(ToyModel(), train)
    >>> inside, outside = (fitted.represent(ToyModel(), data.batch(slice(None))) for data in (test, outliers))
    >>> bool(inside.min() > outside.max())
    True
    """

    layer: str | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "directions without variance are left out: inverses of both covariances are pseudo-inverses"
    )

    def __post_init__(self) -> None:
        require_layer(self, self.layer)

    def fit(self, training: Training) -> Arrays:
        """The whitening (D, R) of classes and that of all images, (D, R_0), and the whitened means of both."""
        moments = FeatureMoments.of(training, self.layer)
        whitening, whitening_all = moments.within_classes(), moments.of_all()
        if not whitening.size:
            raise InputError(
                f"monitor {self.name} cannot be built on {training.name}: the features of a class never vary"
            )
        return {
            "origin": moments.origin,
            "whitening": whitening,
            "means": moments.class_means @ whitening,
            "whitening_all": whitening_all,
            "mean_all": moments.mean @ whitening_all,
        }

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the squared distance from the nearest class mean, plus that from the mean of all, (N,)."""
        shifted = signals.features(self.layer) - state["origin"]
        from_class = cdist(shifted @ state["whitening"], state["means"], "sqeuclidean").min(axis=1)
        from_all = np.square(shifted @ state["whitening_all"] - state["mean_all"]).sum(axis=1)
        return np.asarray(from_all - from_class)
