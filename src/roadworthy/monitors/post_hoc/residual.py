"""Residual: how much of the features leaves the space in which training features lie."""

from __future__ import annotations

import numpy as np

from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.principal_space import PrincipalSpaceMonitor, residual_lengths


@registered(MONITORS, "residual")
class Residual(PrincipalSpaceMonitor):
    """-|R^T (f - o)|: minus the length of what leaves the principal space, ViM without logits (Wang et al. 2022).

    f are the pooled features that go into the last linear layer z = W f + b, o = -W^+ b its origin; R spans all but the
    `dimensions` strongest directions of the training features around o, as in `vim`: by default half are principal.

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> train, _, test, outliers = toy_data()
    >>> fitted = Residual().build(ToyModel(), train)
    >>> inside, outside = (fitted.represent(ToyModel(), data.batch(slice(None))) for data in (test, outliers))
    >>> bool(inside.mean() > outside.mean())
    True
    """

    def fit(self, training: Training) -> Arrays:
        """The origin (D,) and the principal space (D, P)."""
        weights, bias, rows = self.head_and_features(training)
        space = self.principal_space(training, (weights, bias), rows)
        return {"origin": space.origin, "principal": space.directions}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the length of the residual, (N,)."""
        shifted = signals.features().astype(np.float64) - state["origin"]
        return -residual_lengths(shifted, state["principal"])
