"""Margin: how far the first answer is ahead of the second."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned


def probability_margin(probabilities: ArrayLike) -> Floats:
    """The largest less the second largest of probabilities (N, K), K at least 2: (N,), from 0 to 1.

    >>> probability_margin([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]])
    array([0.25, 0.  ])
    """
    answers = np.asarray(probabilities, np.float64)
    last = answers.shape[1] - 1
    ranked = np.partition(answers, (last - 1, last), axis=1)
    return np.asarray(ranked[:, last] - ranked[:, last - 1])


@registered(MONITORS, "margin")
class Margin(Monitor):
    """p_(1) - p_(2): the largest less the second largest probability (Scheffer et al. 2001)."""

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The margin, (N,)."""
        return probability_margin(signals.probabilities)
