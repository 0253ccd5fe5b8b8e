"""Networks that a monitor trains for itself: artifacts with a recipe, a checkpoint, a competence and a floor."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.competence import competence_of
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Buildable, Dataset
from roadworthy.core.types import Artifact
from roadworthy.core.validation import MOST_BATCH, MOST_EPOCHS, check_whole
from roadworthy.data import split_by_group
from roadworthy.models.networks import load_weights
from roadworthy.models.task_training import LearningPart, Task, best_epoch, class_part, train_task
from roadworthy.models.torch_state import digest_tensors
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import HELD_OUT, WEIGHTS, own_torch

if TYPE_CHECKING:
    import torch

ALGORITHM = 1
"""Part of every recipe; a change of the training that gives other weights raises it."""
THREADS = 1
"""Small networks train on one thread, several at a time."""
SPLIT_SEED = 0


@dataclass(frozen=True)
class Budget:
    """How long a network is trained, and what is asked of it.

    epochs, batch, learning_rate, schedule (`constant` or `cosine`)
    patience  epochs after the best one that end the training, once that one has reached the floor
    seconds  of processor time: the training ends with the epoch that uses these up; None: it is not timed, and has the
             same bits on every machine of a kind
    floor    of the competence figure; below it, what depends on the network is marked undertrained

    >>> Budget(epochs=3, batch=64, learning_rate=1e-3, floor=0.9).seconds is None
    True
    """

    epochs: int
    batch: int
    learning_rate: float
    floor: float
    schedule: str = "cosine"
    patience: int = MOST_EPOCHS
    seconds: float | None = None

    @property
    def is_patient(self) -> bool:
        """Whether its patience can end a training before its last epoch."""
        return self.patience < self.epochs

    def check(self, owner: str) -> None:
        """Refuse what no training can keep to; `owner` names who asks for it."""
        check_whole(f"{owner}: epochs", self.epochs, 1, MOST_EPOCHS)
        check_whole(f"{owner}: batch", self.batch, 1, MOST_BATCH)
        for name in ("learning_rate", "seconds"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{owner}: {name} is a number above 0, not {value!r}")
        if not -1 <= self.floor <= 1:
            raise InputError(f"{owner}: the floor is a number from -1 to 1, not {self.floor!r}")


class OwnNetwork(Buildable):
    """A network that a monitor trains for itself: Adam on 80 % of the objects, the epoch kept by the other 20 %.

    A subclass says which `network` is trained for which `task`. Monitors that need the same one share it, since its
    recipe names only what decides its weights: settings, data and seed, which follows from all of these, from the seed
    of the study unless one is given, and from an index. `arrays` are the weights, once it is loaded; a
    fit keeps them in its state, so that a fitted monitor needs nothing else.
    """

    kind: ClassVar[str]
    objective: ClassVar[Mapping[str, str]] = {}
    """What such networks are trained to make small or large, in words, by their setting `loss`."""
    activity = "training"
    threads = THREADS

    def __init__(
        self,
        settings: Mapping[str, Any],
        budget: Budget,
        train: Dataset,
        *,
        outliers: Dataset | None = None,
        seed: int | None = None,
        index: int = 0,
    ) -> None:
        self.settings, self.budget, self.train, self.outliers = settings, budget, train, outliers
        self.own_seed, self.index, self.study_seed = seed, index, 0
        self.competence: dict[str, Any] = {}
        self._arrays: dict[str, NDArray[Any]] | None = None

    @abstractmethod
    def make(self) -> torch.nn.Module:
        """The network, its weights drawn from torch's present random state."""

    @abstractmethod
    def task(self, parts: tuple[LearningPart, LearningPart]) -> Task:
        """What it learns, from these parts."""

    def parts(self) -> tuple[LearningPart, LearningPart]:
        """The images to learn from, and those that choose the epoch; no object is in both."""
        train, held_out = split_by_group(self.train, (1 - HELD_OUT, HELD_OUT), SPLIT_SEED)
        return class_part(train), class_part(held_out)

    def network(self) -> torch.nn.Module:
        """The network with the weights it starts from."""
        with own_torch(self.threads):
            import_torch().manual_seed(self.recipe.seed)
            return self.make()

    @cached_property
    def recipe(self) -> Artifact:
        """What is to be built: known, with its hash, before any training."""
        data = [part.fingerprint() for part in (self.train, self.outliers) if part is not None]
        parameters = {"algorithm": ALGORITHM, **self.settings, **asdict(self.budget)}
        if self.budget.is_patient:
            parameters["patience_from"] = "floor"
        recipe = Artifact(f"{PREFIX}{self.kind}", parameters, tuple(data))
        return recipe.seeded(self.study_seed if self.own_seed is None else self.own_seed, self.index)

    @property
    def work(self) -> int:
        """How many images its training counts."""
        return self.budget.epochs * self.images

    @property
    def images(self) -> int:
        """How many images an epoch shows it."""
        return len(self.train)

    def build(self, workshop: Path, progress: Callable[[int], None], store: Any = None) -> dict[str, Any]:
        """Train it, or go on training it, in a folder; give its competence."""
        network, parts, budget = self.network(), self.parts(), self.budget
        task = self.task(parts)
        recipe = {
            "network": digest(digest_tensors(network.state_dict().items(), str(network))),
            "recipe": self.recipe.hash,
            **{name: value for name, value in asdict(budget).items() if name != "floor" and value is not None},
            **({"floor": budget.floor} if budget.is_patient else {}),
            "seed": self.recipe.seed,
            "threads": self.threads,
        }
        record = train_task(network, task, parts, workshop, recipe, progress)
        epoch, epochs = best_epoch(record), len(record["history"])
        weights = sum(weight.numel() for weight in network.parameters())
        competence = {task.figure: epoch[task.figure], "floor": budget.floor, "loss": epoch["loss"]}
        competence |= {"epochs": epochs, "best_epoch": epoch["epoch"], "weights": weights, **task.facts()}
        stopped = budget.seconds is not None and epochs < budget.epochs and epochs - epoch["epoch"] < budget.patience
        return competence | ({"stopped": f"after {epochs} of {budget.epochs} epochs by its budget"} if stopped else {})

    def load(self, home: Path) -> None:
        """Read the weights of the trained network in `home`."""
        tensors, _ = load_weights(home / WEIGHTS)
        self._arrays = {name: np.asarray(tensor.numpy()) for name, tensor in tensors.items()}

    @property
    def loaded(self) -> bool:
        """True once its weights are there."""
        return self._arrays is not None

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights by their name in the network; an error before `load`."""
        if self._arrays is None:
            raise ModelError(f"the {self.kind} network is not trained yet: build it, then load it")
        return self._arrays


PREFIX = "network:"
"""What begins the name of the builder of such a network."""
CROSS_ENTROPY = "cross-entropy"


def objective_of(builder: str, parameters: Mapping[str, Any]) -> str:
    """What a network was trained with, in words, by its stored recipe; the name of its builder where nothing is known.

    >>> objective_of("network:autoencoder", {"loss": "mse"}), objective_of("reference_classifier", {})
    ('squared error', 'cross-entropy')
    """
    if builder == "reference_classifier":
        return CROSS_ENTROPY
    kinds = {f"{PREFIX}{kind.kind}": kind for kind in OwnNetwork.__subclasses__()}
    known = kinds[builder].objective if builder in kinds else {}
    return known.get(str(parameters.get("loss", "")), builder.removeprefix(PREFIX))


def weakest(competences: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of the competences of several networks, the figure and floor of the one that is furthest below its floor.

    >>> weakest({"a": {"clean_accuracy": 0.95, "floor": 0.9}, "b": {"clean_accuracy": 0.8, "floor": 0.9}})
    {'clean_accuracy': 0.8, 'floor': 0.9}
    """
    known = {role: competence_of(stored) for role, stored in competences.items()}
    margins = {role: one.value - one.floor for role, one in known.items() if one is not None}
    if not margins:
        return {}
    role = min(margins, key=lambda name: margins[name])
    one = known[role]
    assert one is not None
    return {one.figure: competences[role][one.figure], "floor": one.floor}


def with_weights(network: torch.nn.Module, arrays: Mapping[str, NDArray[Any]], prefix: str) -> torch.nn.Module:
    """A network with the weights that a fitted monitor keeps under names that begin with a prefix, in eval mode."""
    torch = import_torch()
    tensors = {
        name.removeprefix(prefix): torch.from_numpy(np.array(array))
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    network.load_state_dict(tensors)
    return network.eval()


def kept_weights(networks: Mapping[str, OwnNetwork]) -> dict[str, NDArray[Any]]:
    """The weights of trained networks as a fit keeps them: by `<role>/<name>`."""
    return {f"{role}/{name}": array for role, network in networks.items() for name, array in network.arrays.items()}
