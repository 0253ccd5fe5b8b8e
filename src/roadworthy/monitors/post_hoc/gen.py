"""GEN: a generalised entropy of the largest probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned


def generalised_entropy(probabilities: ArrayLike, gamma: float = 0.1, largest: int = 100) -> Floats:
    """sum over the `largest` p_k of p_k^gamma (1 - p_k)^gamma, of probabilities (N, K): (N,).

    With a small gamma the smallest differences from 0 and 1 count, where single precision is coarse: 1 - p of the
    largest p is the sum of the others, which is exact however close to 1 it is.

    >>> generalised_entropy([[0.5, 0.5], [1.0, 0.0]], gamma=0.5)
    array([1., 0.])
    """
    ranked = np.sort(np.asarray(probabilities, np.float64), axis=1)
    others = 1 - ranked
    others[:, -1] = ranked[:, :-1].sum(axis=1)
    kept = slice(max(0, ranked.shape[1] - largest), None)
    return np.asarray(((ranked[:, kept] * np.maximum(others[:, kept], 0.0)) ** gamma).sum(axis=1))


@registered(MONITORS, "gen")
class Gen(Monitor):
    """GEN: -sum over the M largest probabilities p_k of p_k^gamma (1 - p_k)^gamma (Liu et al. 2023).

    gamma    from 0 to 1, both left out;  largest: M, all probabilities where there are fewer
    """

    gamma: float = 0.1
    largest: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.gamma < 1:
            raise InputError(f"monitor {self.name}: gamma is a number above 0 and below 1, not {self.gamma!r}")
        require_count(self, "largest")

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the generalised entropy, (N,)."""
        return -generalised_entropy(signals.probabilities, self.gamma, self.largest)
