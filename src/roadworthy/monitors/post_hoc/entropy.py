"""Entropy: how spread out the answer is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned


def negative_entropy(probabilities: ArrayLike) -> Floats:
    """sum_k p_k log p_k of probabilities (N, K), 0 log 0 = 0: (N,), from -log K to 0.

    >>> negative_entropy([[1.0, 0.0], [0.5, 0.5]]).round(4)
    array([ 0.    , -0.6931])
    """
    answers = np.asarray(probabilities, np.float64)
    logarithms = np.log(answers, out=np.zeros_like(answers), where=answers > 0)
    return np.asarray(np.einsum("nk,nk->n", answers, logarithms))


@registered(MONITORS, "entropy")
class Entropy(Monitor):
    """sum_k p_k log p_k: minus the entropy of the probabilities p (Shannon 1948)."""

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the entropy, (N,)."""
        return negative_entropy(signals.probabilities)
