"""What networks share that a study trains before it tests them: their data, their members by seed, their answers."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.roles import Buildable, Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.networks import load_weights
from roadworthy.models.training import WEIGHTS

if TYPE_CHECKING:
    import torch

ONNX = "network.onnx"


class TrainedNetwork(Model, Buildable):
    """A network with a recipe: with its data the recipe's hash is known, `build` trains it, `load` opens it.

    A subclass says which `network` is trained, how it is built, and how a trained one is opened (`open`).
    """

    activity = "training"
    concurrent = True
    learns_from = frozenset({"train"})
    what: ClassVar[str]
    """What it is called in messages."""
    seed: int
    retrain: bool
    """Train another one (seed + repeat) for every repeat of a study."""

    def __init__(self) -> None:
        self._data: Dataset | None = None
        self._forget()

    def _forget(self) -> None:
        """Drop what was opened and the members: they belong to other settings or other data."""
        self._model: Model | None = None
        self._members: dict[int, Any] = {0: self}

    def on(self, train: Dataset) -> Self:
        """The same network bound to its training data, whose size it takes."""
        bound = copy.copy(self)
        bound._data, bound.input_size, bound.learns_from = train, train.size, frozenset()
        bound._forget()
        return bound

    def with_data(self, data: Mapping[str, Dataset]) -> Self:
        """The network on the training data of a study."""
        return self.on(data["train"]) if self.learns_from else self

    @property
    def data(self) -> Dataset:
        """The training data; an error where there is none yet."""
        if self._data is None:
            raise InputError(f"{self.what} {self.name} needs training data: give data.train in the study")
        return self._data

    @abstractmethod
    def network(self) -> torch.nn.Module:
        """The network with the weights it starts from."""

    @abstractmethod
    def open(self, home: Path) -> Model:
        """The trained network in `home` as a model that answers."""

    def trained(self, home: Path) -> torch.nn.Module:
        """The network with the weights stored in `home`, in eval mode."""
        network = self.network()
        network.load_state_dict(load_weights(home / WEIGHTS)[0])
        return network.eval()

    def load(self, home: Path) -> None:
        """Open the trained network in `home`; from now on `predict` works."""
        self._model = self.open(home)

    @property
    def loaded(self) -> bool:
        """True once `predict` works."""
        return self._model is not None

    def opened(self) -> Model:
        """The trained network itself, with all that its adapter gives; an error before `load`."""
        if self._model is None:
            raise ModelError(f"{self.what} {self.name} is not trained yet: build it, then load it")
        return self._model

    def untrained(self) -> Model:
        """What can be said before training of what `opened` will be: the model itself, unless more is known."""
        return self

    def for_repeat(self, repeat: int) -> Self:
        """The member of a repeat: trained with seed + repeat where `retrain` is set, else always the same."""
        return self.member(repeat) if self.retrain else self

    def member(self, repeat: int) -> Self:
        """The same network trained from another seed, seed + repeat."""
        if repeat not in self._members:
            trained_anew = copy.copy(self)
            trained_anew.seed, trained_anew.retrain = self.seed + repeat, False
            trained_anew._forget()
            self._members[repeat] = trained_anew
        member: Self = self._members[repeat]
        return member

    def predict(self, batch: Batch) -> Prediction:
        """The answer of the trained network."""
        return self.opened().predict(batch)

    def features(self, batch: Batch, layer: str) -> Any:
        """Activations of the trained network; not of one that averages passes."""
        return self.opened().features(batch, layer)
