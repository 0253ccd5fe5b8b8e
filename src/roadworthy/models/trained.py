"""What networks share that a study trains before it tests them: their data, their seeds, their answers."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.roles import Buildable, Dataset, Model
from roadworthy.core.types import Artifact, Batch, Prediction
from roadworthy.core.validation import MOST_SEED, check_whole
from roadworthy.models.networks import load_weights
from roadworthy.models.signals import LearningData
from roadworthy.models.training import WEIGHTS

if TYPE_CHECKING:
    import torch

ONNX = "network.onnx"


class TrainedNetwork(Model, Buildable):
    """A network with a recipe: with its data the recipe's hash is known, `build` trains it, `load` opens it.

    A subclass says which `network` is trained, how it is built, and how a trained one is opened (`open`).

    Its `seed` follows from the study's, or from the one that is written for it (`own_seed`), from all else in its
    recipe, the repeat and the number of the member: see `Artifact.seeded`.
    """

    activity = "training"
    concurrent = True
    learns_from = frozenset({"train"})
    what: ClassVar[str]
    """What it is called in messages."""
    own_seed: int | None
    """The seed that is written for it; None: it takes the study's."""
    retrain: bool
    """Train another one for every repeat of a study."""

    def __init__(self) -> None:
        if self.own_seed is not None:
            check_whole(f"{self.what} {self.name}: seed", self.own_seed, 0, MOST_SEED)
        self._data: Dataset | None = None
        self._study_seed = 0
        self._forget()

    def _forget(self) -> None:
        """Drop what was opened and the members: they belong to other settings or other data."""
        self._model: Model | None = None
        self._index = 0, 0
        self._trainings: dict[tuple[int, int], Any] = {self._index: self}

    def on(self, train: Dataset, *, study_seed: int = 0) -> Self:
        """The same network bound to its training data, whose size it takes, and to the seed of the study."""
        bound = copy.copy(self)
        bound._data, bound.input_size, bound.learns_from = train, train.size, frozenset()
        bound._study_seed = study_seed
        bound._forget()
        return bound

    def with_data(self, data: Mapping[str, Dataset]) -> Self:
        """The network on the training data of a study."""
        return self.on(data["train"], study_seed=study_seed_of(data)) if self.learns_from else self

    @property
    def seed(self) -> int:
        """The seed of its training: of the first weights, the order of the images, the split, dropout."""
        return self.recipe.seed

    @property
    def base_seed(self) -> int:
        """What its seed follows from: the one that is written for it, else the study's."""
        return self._study_seed if self.own_seed is None else self.own_seed

    def _seeded(self, recipe: Artifact) -> Artifact:
        """A recipe of this network with the seed of its repeat and its member."""
        return recipe.seeded(self.base_seed, *self._index)

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
        """The network of a repeat: trained from a seed of its own where `retrain` is set, else always the same."""
        return self._trained_anew(repeat, 0) if self.retrain else self

    def member(self, number: int) -> Self:
        """The same network of the same repeat, trained from another seed; member 0 is the network itself."""
        return self._trained_anew(self._index[0], number)

    def _trained_anew(self, repeat: int, member: int) -> Self:
        index = repeat, member
        if index not in self._trainings:
            another = copy.copy(self)
            another._forget()
            another.retrain, another._index, another._trainings = False, index, self._trainings
            self._trainings[index] = another
        training: Self = self._trainings[index]
        return training

    def predict(self, batch: Batch) -> Prediction:
        """The answer of the trained network."""
        return self.opened().predict(batch)

    def features(self, batch: Batch, layer: str) -> Any:
        """Activations of the trained network; not of one that averages passes."""
        return self.opened().features(batch, layer)


def study_seed_of(data: Mapping[str, Dataset]) -> int:
    """The seed of the study that gives a network its data; 0 outside a study."""
    return data.seed if isinstance(data, LearningData) else 0
