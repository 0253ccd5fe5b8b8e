"""GradNorm: how much the last layer would change if the answer were pulled towards all classes alike."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned


def gradient_norm(features: ArrayLike, probabilities: ArrayLike) -> Floats:
    """|p - 1/K|_1 |f|_1 of features f (N, D) and probabilities p (N, K): (N,).

    KL(u || softmax(W f + b)) with u_k = 1/K has the gradient (p_k - 1/K) f_j by the weight W_kj: the sum of the
    absolute values over all k and j is the product of two sums.

    >>> gradient_norm([[1.0, -2.0]], [[1.0, 0.0]])
    array([3.])
    """
    answers = np.asarray(probabilities, np.float64)
    away = np.abs(answers - 1.0 / answers.shape[1]).sum(axis=1)
    return np.asarray(away * np.abs(np.asarray(features)).sum(axis=1, dtype=np.float64))


@registered(MONITORS, "gradnorm")
class GradNorm(Monitor):
    """GradNorm: |p - 1/K|_1 |f|_1, the L1 norm of d KL(uniform || p) / dW of the last layer (Huang et al. 2021).

    f are the pooled features that go into the last linear layer W f + b, p the probabilities of K classes. The norm has
    this closed form, so nothing is differentiated.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features", "probabilities"})

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The norm of the gradient, (N,)."""
        return gradient_norm(signals.features(), signals.probabilities)
