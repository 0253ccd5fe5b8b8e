"""Monitors of one forward pass: what the answer itself says of the image."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.random import Streams
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned

SMALLEST = float(np.finfo(np.float32).tiny)
"""What a probability of 0 counts as in a divergence."""


def energy(logits: ArrayLike, temperature: float = 1.0) -> Floats:
    """T log sum_k exp(z_k / T) of logits (N, K): (N,), the negative of the free energy.

    >>> energy([[0.0, 0.0]]).round(4)
    array([0.6931])
    """
    values = np.asarray(logits, np.float64) / temperature
    top = values.max(axis=1)
    return np.asarray(temperature * (top + np.log(np.exp(values - top[:, None]).sum(axis=1))))


@registered(MONITORS, "msp")
class Msp(Monitor):
    """PbThreshold: the largest softmax probability."""

    def read(self, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """The largest probability, (N,)."""
        return np.asarray(signals.probabilities.max(axis=1))


@registered(MONITORS, "max_logit")
class MaxLogit(Monitor):
    """The largest logit."""

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def read(self, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """The largest logit, (N,)."""
        return np.asarray(signals.logits.max(axis=1))


@registered(MONITORS, "energy")
class Energy(Monitor):
    """T log sum_k exp(z_k / T) of the logits z."""

    temperature: float = 1.0

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    differs_from_paper: ClassVar[str] = (
        "the score of a network as it is; the fine-tuning of the paper, which pulls the energies of both sides apart,"
        " is not part of it"
    )

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise InputError(f"monitor {self.name}: the temperature is a number above 0, not {self.temperature!r}")

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy, (N,)."""
        return energy(signals.logits, self.temperature)


@registered(MONITORS, "kl_matching")
class KlMatching(Monitor):
    """-min_k KL(p(x) || d_k), where d_k is the mean answer to training images that the model takes for class k.

    A class that the model never answers has no d_k; a note says which.
    """

    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "templates are means over training images, those of the paper over validation images; a class that is never "
        "answered has none"
    )

    def fit(self, training: Training) -> Arrays:
        """The mean answers (K, K), zeros where a class is never answered."""
        classes = training.model.num_classes
        sums, counts = np.zeros((classes, classes)), np.zeros(classes, np.int64)
        for (answers,) in training.parts("probabilities"):
            taken_for = answers.argmax(axis=1)
            np.add.at(sums, taken_for, answers.astype(np.float64))
            np.add.at(counts, taken_for, 1)
        return {"templates": sums / np.maximum(counts, 1)[:, None]}

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the classes without a template."""
        unanswered = np.flatnonzero(~state["templates"].any(axis=1)).tolist()
        return (f"classes that the model never answers have no template: {unanswered}",) if unanswered else ()

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the least divergence from a template, (N,)."""
        answers, templates = signals.probabilities.astype(np.float64), state["templates"]
        log_answers = np.log(np.maximum(answers, SMALLEST))
        log_templates = np.log(np.maximum(templates[templates.any(axis=1)], SMALLEST))
        own = np.einsum("nk,nk->n", answers, log_answers)
        return np.asarray((np.einsum("nk,ck->nc", answers, log_templates) - own[:, None]).max(axis=1))


@registered(MONITORS, "random")
class Random(Monitor):
    """The floor: a uniform random score per image id, blind to the image."""

    seed: int = 0

    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def read(self, signals: Signals, state: Learned) -> NDArray[Any]:
        """A uniform number per image id, (N,)."""
        return np.array([rng.random() for rng in Streams("random monitor", self.seed).each(signals.batch.ids)])
