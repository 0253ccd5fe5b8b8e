"""Monitors of one forward pass: what the answer itself says of the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.protocols import Dataset, Model
from roadworthy.core.random import Streams
from roadworthy.core.types import Batch
from roadworthy.monitors.base import MONITORS, Arrays, Floats, Monitor, in_batches, logits_of, over

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


@MONITORS.register("msp")
@dataclass(frozen=True, kw_only=True)
class Msp(Monitor):
    """PbThreshold: the largest softmax probability."""

    name: ClassVar[str] = "msp"

    def read(self, model: Model, batch: Batch) -> NDArray[np.float32]:
        """(N,)."""
        return np.asarray(model.answer(batch, len(batch)).probabilities.max(axis=1))


@MONITORS.register("max_logit")
@dataclass(frozen=True, kw_only=True)
class MaxLogit(Monitor):
    """The largest logit."""

    name: ClassVar[str] = "max_logit"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def read(self, model: Model, batch: Batch) -> NDArray[np.float32]:
        """(N,)."""
        return np.asarray(logits_of(model, batch).max(axis=1))


@MONITORS.register("energy")
@dataclass(frozen=True, kw_only=True)
class Energy(Monitor):
    """T log sum_k exp(z_k / T) of the logits z."""

    temperature: float = 1.0

    name: ClassVar[str] = "energy"
    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    differs_from_paper: ClassVar[str] = (
        "the score of a network as it is; the fine-tuning of the paper, which pulls the energies of both sides apart,"
        " is not part of it"
    )

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise InputError(f"monitor {self.name}: the temperature is a number above 0, not {self.temperature!r}")

    def read(self, model: Model, batch: Batch) -> Floats:
        """(N,)."""
        return energy(logits_of(model, batch), self.temperature)


@MONITORS.register("kl_matching")
@dataclass(frozen=True, kw_only=True)
class KlMatching(Monitor):
    """-min_k KL(p(x) || d_k), where d_k is the mean answer to training images that the model takes for class k.

    A class that the model never answers has no d_k; a note says which.
    """

    name: ClassVar[str] = "kl_matching"
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "templates are means over training images, those of the paper over validation images; a class that is never "
        "answered has none"
    )

    def fit(self, model: Model, data: Dataset) -> Arrays:
        """The mean answers (classes answered, K)."""
        sums = np.zeros((model.num_classes, model.num_classes))
        counts = np.zeros(model.num_classes, np.int64)
        for batch in over(data):
            answers = in_batches(model, batch, self.batch_size, lambda b: model.answer(b, len(b)).probabilities)
            taken_for = answers.argmax(axis=1)
            np.add.at(sums, taken_for, answers.astype(np.float64))
            np.add.at(counts, taken_for, 1)
        never = np.flatnonzero(counts == 0)
        if len(never):
            self.fitted.notes = (f"classes that model {model.name} never answers have no template: {never.tolist()}",)
        return {"templates": sums[counts > 0] / counts[counts > 0, None]}

    def read(self, model: Model, batch: Batch) -> Floats:
        """(N,)."""
        answers = np.asarray(model.answer(batch, len(batch)).probabilities, np.float64)
        log_answers = np.log(np.maximum(answers, SMALLEST))
        log_templates = np.log(np.maximum(self.state["templates"], SMALLEST))
        own = np.einsum("nk,nk->n", answers, log_answers)
        return np.asarray((np.einsum("nk,ck->nc", answers, log_templates) - own[:, None]).max(axis=1))


@MONITORS.register("random")
@dataclass(frozen=True, kw_only=True)
class Random(Monitor):
    """The floor: a uniform random score per image id, blind to the image."""

    seed: int = 0

    name: ClassVar[str] = "random"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    batch_size: ClassVar[int | None] = None

    def read(self, model: Model, batch: Batch) -> NDArray[Any]:
        """(N,)."""
        return np.array([rng.random() for rng in Streams("random monitor", self.seed).each(batch.ids)])
