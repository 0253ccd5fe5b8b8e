"""SHE: how much the features resemble those of training images of the answered class, as a Hopfield energy."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned


def hopfield_energy(features: ArrayLike, answers: NDArray[np.integer[Any]], patterns: ArrayLike) -> Floats:
    """f . m_y of features (N, D), answered classes y (N,) and a pattern m_k of each class (K, D): (N,).

    >>> hopfield_energy([[1.0, 2.0]], np.array([1]), [[9.0, 9.0], [3.0, 4.0]])
    array([11.])
    """
    own = np.asarray(patterns, np.float64)[answers]
    return np.asarray(np.einsum("nd,nd->n", np.asarray(features, np.float64), own))


@registered(MONITORS, "she")
class She(Monitor):
    """SHE: f . m_y, m_y the mean features of correct training images of the answered class y (Zhang et al. 2023).

    f are the pooled features that go into the last linear layer; a training image is correct where the model answers
    its label. A class without a correct image has the pattern 0, so that its answers score 0: the least where features
    are not negative. A note says which.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"features", "probabilities"})
    differs_from_paper: ClassVar[str] = (
        "a class without a correct training image has the pattern 0; the paper has none for it"
    )

    def fit(self, training: Training) -> Arrays:
        """The mean features of each class (K, D), zeros where there is no correct image."""
        sums, counts = np.zeros((0, 0)), np.zeros(training.model.num_classes)
        for features, probabilities, labels in training.parts("features", "probabilities", "labels"):
            if not len(sums):
                sums = np.zeros((len(counts), features.shape[1]))
            correct = probabilities.argmax(axis=1) == labels
            members = (labels[correct] == np.arange(len(counts))[:, None]).astype(np.float64)
            sums += members @ features[correct].astype(np.float64)
            counts += members.sum(axis=1)
        return {"patterns": sums / np.maximum(counts, 1)[:, None], "images": counts}

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the classes without a pattern."""
        empty = np.flatnonzero(state["images"] == 0).tolist()
        return (f"classes without a correct training image have no pattern: {empty}",) if empty else ()

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The inner product with the pattern of the answered class, (N,)."""
        return hopfield_energy(signals.features(), signals.probabilities.argmax(axis=1), state["patterns"])
