"""DOCTOR: the odds that an answer is wrong, from the probabilities alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned

VARIANTS = ("alpha", "beta")


@registered(MONITORS, "doctor")
class Doctor(Monitor):
    """-(1 - g) / g with g = sum_k p_k^2 (alpha), or -(1 - m) / m with m = max_k p_k (beta).

    1 - g is the chance that a class drawn by p differs from another one drawn by p, 1 - m the chance that the answer is
    wrong, where p is the truth; the ratio is the odds. A perfectly certain answer scores 0.

    variant      alpha or beta
    temperature  p_k is taken to the power 1 / T and divided by the sum, which for a softmax is one at temperature T; a
                 probability of 0 stays 0
    """

    variant: str = "alpha"
    temperature: float = 1.0

    differs_from_paper: ClassVar[str] = (
        "the input perturbation of the paper, for models whose gradient is known, is not part of it: it is the form "
        "for black boxes; the temperature acts on probabilities, which for a softmax is the same as on logits"
    )

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise UnknownName(f"variant of monitor {self.name}", str(self.variant), VARIANTS)
        value = self.temperature
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
            raise InputError(f"monitor {self.name}: the temperature is a number above 0, not {value!r}")

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the odds, (N,)."""
        odds = error_odds(signals.probabilities, self.temperature)
        return 0.0 - odds[VARIANTS.index(self.variant)]


def error_odds(probabilities: ArrayLike, temperature: float = 1.0) -> tuple[Floats, Floats]:
    """(1 - g) / g with g = sum_k p_k^2, and (1 - m) / m with m = max_k p_k, of probabilities (N, K): (N,) each.

    What is left to 1 is summed from the smaller probabilities, so that odds far below the rounding of 1 are told apart:
    1 - m is the sum of all but the largest, 1 - g = 2 sum_{j < k} p_j p_k.

    >>> alpha, beta = error_odds([[0.5, 0.5], [0.8, 0.2], [1.0, 0.0]])
    >>> alpha.round(4), beta.round(4)
    (array([1.    , 0.4706, 0.    ]), array([1.  , 0.25, 0.  ]))
    """
    ascending = np.sort(np.asarray(probabilities, np.float64), axis=1)
    scaled = (ascending / ascending[:, -1:]) ** (1.0 / temperature)
    sums_below = np.cumsum(scaled[:, :-1], axis=1)
    pairs = 2.0 * (scaled[:, 1:] * sums_below).sum(axis=1)
    return np.asarray(pairs / (scaled**2).sum(axis=1)), np.asarray(scaled[:, :-1].sum(axis=1))
