"""A perception network for one task, classes or boxes: its settings, the paper's values, the network as an artifact.

The paper is 'Prediction Accuracy and Reliability: Classification and Object Localization under Distribution Shift'
(Diet, Kassem Sbeyti, Karg, 2023).
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.files import write_json
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.roles import Buildable, Dataset, Model
from roadworthy.core.types import Artifact
from roadworthy.core.validation import MOST_BATCH, MOST_EPOCHS, MOST_THREADS, MOST_WIDTH, check_whole
from roadworthy.data import split_by_group
from roadworthy.data.parallel import Progress
from roadworthy.models import training as course
from roadworthy.models.identity import code_in_recipe
from roadworthy.models.networks import export_onnx
from roadworthy.models.onnx import OnnxModel
from roadworthy.models.perception.augment import augment
from roadworthy.models.perception.backbones import BACKBONES, CONTENT
from roadworthy.models.perception.box_targets import PARAMETRISATIONS, BoxTargets
from roadworthy.models.perception.network import perception_network
from roadworthy.models.perception.placements import PLACEMENTS
from roadworthy.models.perception.search import RANGES, NetworkSearch, SearchSettings, Values, check_optuna
from roadworthy.models.perception.training import BoxTask, box_part, localizer, no_boxes, start_at_mean
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.task_training import ClassTask, LearningPart, Task, best_epoch, class_part, train_task
from roadworthy.models.torch_state import digest_tensors
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.trained import ONNX, TrainedNetwork, study_seed_of
from roadworthy.models.training import SCHEDULES

if TYPE_CHECKING:
    import torch

TASKS = ("classes", "boxes")
LOSSES = ("mae", "mse", "iou", "diou")
BOX_FORM = "corners relative"
"""What every exported localizer answers, whatever its parametrisation."""
CHOSEN = "network.json"
"""The file of an artifact that holds what the network was made with, values that were searched included."""
SPLIT_SEED = 0
"""Where a study gives no validation data, the same objects are held out for every seed."""
ALGORITHM = 1
"""Part of every recipe; a change of the training that gives other weights raises it."""

DROPOUT_OF_CLASSES: Mapping[str, Mapping[str, float]] = {
    "last_layer": {"efficientnet": 0.1, "resnet": 0.2, "convnext": 0.05},
    "after_backbone": {"efficientnet": 0.3, "resnet": 0.35, "convnext": 0.15},
    "head": {"efficientnet": 0.05, "resnet": 0.1, "convnext": 0.05},
    "full": {"efficientnet": 0.05, "resnet": 0.05, "convnext": 0.05},
}
"""Table 4 of the paper: dropout rates for classification, by placement and family."""
DROPOUT_OF_BOXES = 0.05
LENGTHS: Mapping[bool, Mapping[str, Any]] = {
    True: {"epochs": 100, "batch": 32, "patience": 10, "schedule": "constant"},
    False: {"epochs": 8, "batch": 32, "patience": 8, "schedule": "cosine"},
}
"""Lengths of a training for big (True) and small backbones; the paper states none, so both are ours."""
SMALL_THREADS = 1
"""Threads that train a small backbone, unless others are asked for: two gain little, and two trainings more."""


def default_dropout(backbone: str, task: str, placement: str) -> float:
    """The paper's dropout rate; a small backbone takes that of its family.

    >>> default_dropout("resnet50", "classes", "after_backbone"), default_dropout("resnet50", "boxes", "full")
    (0.35, 0.05)
    """
    if placement == "none":
        return 0.0
    return (
        DROPOUT_OF_BOXES
        if task == "boxes"
        else DROPOUT_OF_CLASSES[placement].get(BACKBONES.get(backbone).family, DROPOUT_OF_BOXES)
    )


def default_learning_rate(backbone: str, task: str, placement: str) -> float:
    """The paper's learning rate for a big backbone; for a small one, which starts from nothing, ours: 0.002.

    Classes: 0.0001. Boxes: 0.0001 for ResNet-50 and for EfficientNet-B0 without dropout, else 0.001.

    >>> [default_learning_rate("efficientnet_b0", "boxes", placement) for placement in ("none", "head")]
    [0.0001, 0.001]
    """
    declared = BACKBONES.get(backbone)
    if not declared.big:
        return 2e-3
    slow = declared.family == "resnet" or (declared.family == "efficientnet" and placement == "none")
    return 1e-4 if task == "classes" or slow else 1e-3


@dataclass(frozen=True)
class TaskSettings:
    """What decides the weights of a network, but for its data and its seed; None takes the default of the backbone.

    backbone   one of `BACKBONES`;  task `classes` or `boxes`;  placement where dropout stands, one of `PLACEMENTS`
    boxes      how a box is written as four numbers: `corners`, `centre` or `anchor`;  loss `mae`, `mse`, `iou`, `diou`
    augment    AutoAugment's policy for CIFAR-10, for boxes without what moves pixels
    schedule   of the learning rate: `constant`, or `cosine`, which falls to 0 over all epochs
    patience   epochs after the best one before the training stops
    weights    a file that the backbone starts from
    floor      validation accuracy or IoU below which rows that depend on the network are marked undertrained
    """

    backbone: str
    task: str = "classes"
    placement: str = "none"
    dropout: float | None = None
    hidden: int | None = None
    width: int | None = None
    boxes: str = "corners"
    loss: str = "mae"
    learning_rate: float | None = None
    epochs: int | None = None
    batch: int | None = None
    patience: int | None = None
    schedule: str | None = None
    augment: bool = True
    weights: Path | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            raise UnknownName("backbone", self.backbone, BACKBONES)
        choices = {"task": TASKS, "placement": PLACEMENTS, "boxes": PARAMETRISATIONS, "loss": LOSSES}
        for setting, known in choices.items():
            parse_choice(setting, getattr(self, setting), known)
        if self.schedule is not None:
            parse_choice("schedule", self.schedule, SCHEDULES)
        whole = {"hidden": MOST_WIDTH, "width": MOST_WIDTH, "epochs": MOST_EPOCHS, "batch": MOST_BATCH}
        for setting, most in (whole | {"patience": MOST_EPOCHS}).items():
            if getattr(self, setting) is not None:
                check_whole(f"perception network: {setting}", getattr(self, setting), 1, most)
        if self.placement == "none" and self.dropout:
            raise InputError("a perception network without a placement of dropout takes no dropout: leave it out")
        if self.placement != "none" and self.dropout is not None and not 0 < self.dropout < 1:
            raise InputError(f"the dropout of a perception network lies between 0 and 1, not at {self.dropout}")
        if self.learning_rate is not None and not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"the learning rate must be above 0, not {self.learning_rate}")
        if self.floor is not None and not 0 <= self.floor <= 1:
            raise InputError(f"the floor of a perception network is a share from 0 to 1, not {self.floor}")

    def complete(self) -> TaskSettings:
        """The settings with a value for each that has a default."""
        where = self.backbone, self.task, self.placement
        defaults: dict[str, Any] = {
            "dropout": default_dropout(*where),
            "hidden": 128,
            "learning_rate": default_learning_rate(*where),
            "floor": 0.9 if self.task == "classes" else 0.6,
            **LENGTHS[BACKBONES.get(self.backbone).big],
        }
        return replace(self, **{name: value for name, value in defaults.items() if getattr(self, name) is None})

    def parameters(self) -> dict[str, Any]:
        """The settings as they stand in a recipe; a classifier has neither a form of boxes nor a loss of them."""
        values = asdict(self)
        values["weights"] = None if self.weights is None else _digest_weights(self.weights)
        for setting in ("boxes", "loss") if self.task == "classes" else ():
            del values[setting]
        return {"algorithm": ALGORITHM, **values, **code_in_recipe(type(BACKBONES.get(self.backbone)))}


def _digest_weights(weights: Path) -> str:
    file = weights / CONTENT if weights.is_dir() else weights
    if not file.is_file():
        raise InputError(f"there are no weights {file}: give a safetensors file, or a folder with {CONTENT}")
    return digest_file(file)


class TaskNetwork(TrainedNetwork):
    """A perception network that answers classes or boxes, trained by its study.

    Its validation data are those of the study, else 20 % of the objects of the training data. The artifact holds
    `network.safetensors`, `network.onnx` (logits, or relative corners), `training.json` and `network.json`.

    >>> TaskNetwork(TaskSettings("small_resnet", task="boxes")).settings.learning_rate
    0.002
    """

    what = "perception network"
    chooses_on_validation = True

    def __init__(
        self,
        settings: TaskSettings,
        *,
        name: str = "perception",
        seed: int | None = None,
        retrain: bool = False,
        threads: int | None = None,
        search: SearchSettings | None = None,
    ) -> None:
        if threads is not None:
            check_whole(f"perception network {name}: threads", threads, 1, MOST_THREADS)
        self.settings, self.family = settings.complete(), settings.backbone
        if threads is None and not BACKBONES.get(settings.backbone).big:
            threads = SMALL_THREADS
        self.name, self.own_seed, self.retrain, self.threads = name, seed, retrain, threads
        self.searched = () if search is None else searched_values(settings, name)
        if search is not None:
            check_optuna()
        self.search_settings = search
        self.search: NetworkSearch | None = None
        self.capabilities = self.answers()
        self._validation: Dataset | None = None
        super().__init__()

    def answers(self) -> frozenset[str]:
        """What it declares to answer."""
        return frozenset({"probabilities", "logits", "features"} if self.settings.task == "classes" else {"boxes"})

    def _forget(self) -> None:
        super()._forget()
        self._chosen: dict[str, Any] = {}

    def on(self, train: Dataset, validation: Dataset | None = None, *, study_seed: int = 0) -> Self:
        """The same network bound to its training data, and to validation data where there are some.

        Data that it cannot learn from is an `InputError`: of one class, or without boxes.
        """
        bound = super().on(train, study_seed=study_seed)
        bound._validation = validation
        if self.settings.task == "classes":
            bound.class_names, bound.num_classes = tuple(train.class_names), len(train.class_names)
            if bound.num_classes < 2:
                raise InputError(
                    f"{self.what} {self.name} cannot learn to tell classes from data of one class: use `task: boxes`"
                )
        else:
            for part in filter(None, (train, validation)):
                if part.batch([0]).boxes is None:
                    raise no_boxes(part)
        if self.search_settings is not None:
            bound.search = NetworkSearch(bound._plain(), self.search_settings, self.searched, bound.base_seed)
        return bound

    def with_data(self, data: Mapping[str, Dataset]) -> Self:
        """The network on the training and validation data of a study."""
        if not self.learns_from:
            return self
        return self.on(data["train"], data.get("validation"), study_seed=study_seed_of(data))

    def _plain(self) -> TaskNetwork:
        """The network without a search, bound to the same data."""
        plain = copy.copy(self)
        plain.search_settings, plain.search = None, None
        plain._forget()
        return plain

    @property
    def recipe(self) -> Artifact:
        """What is to be trained: known, with its hash, before any training; what is searched stands as the search."""
        parameters = self.settings.parameters() | ({} if self.threads is None else {"threads": self.threads})
        inputs = [self.data.fingerprint()] + ([] if self._validation is None else [self._validation.fingerprint()])
        requires: tuple[Buildable, ...] = ()
        if self.search is not None:
            parameters = {name: value for name, value in parameters.items() if name not in self.searched}
            inputs, requires = [*inputs, self.search.recipe.hash], (self.search,)
        return self._seeded(Artifact("task_network", parameters, tuple(inputs), requires=requires))

    @property
    def work(self) -> int:
        """How many images `build` reports to its progress."""
        return self.trial_work(None)

    def fingerprint(self) -> str:
        """Hash of the recipe: the same before and after training."""
        return digest({"kind": "task_network", "recipe": self.recipe.hash})

    def chosen(self) -> dict[str, Any]:
        """Learning rate, dropout and width of the head: as set, or as found by the search once that is known."""
        values = {name: getattr(self.settings, name) for name in ("learning_rate", "dropout", "hidden")}
        unknown = dict.fromkeys(self.searched if self.search is not None else ())
        best = dict(self.search.best) if self.search is not None else {}
        return values | unknown | best | self._chosen

    def network(self) -> torch.nn.Module:
        """The network with the weights it starts from; a localizer does not know the boxes of its data yet."""
        chosen, asked, random = self.chosen(), self.settings, import_torch().random
        if None in chosen.values():
            raise InputError(f"perception network {self.name} waits for its search: build and load that first")
        outputs = self.num_classes if asked.task == "classes" else 4
        with random.fork_rng(devices=[]):
            random.manual_seed(self.seed)
            network = perception_network(
                asked.backbone,
                outputs,
                size=self.data.size,
                channels=self.data.channels,
                hidden=chosen["hidden"],
                width=asked.width,
                placement=asked.placement,
                p=chosen["dropout"],
                weights=asked.weights,
            )
        if asked.task == "classes":
            return network
        unknown = (0.5, 0.5, 1.0, 1.0) if asked.boxes == "anchor" else None
        localizing: torch.nn.Module = localizer(network, BoxTargets(asked.boxes, unknown))
        return localizing

    def load(self, home: Path) -> None:
        """Open the trained network in `home`, made with the values that stand there."""
        self._chosen = json.loads((home / CHOSEN).read_text(encoding="utf-8"))
        super().load(home)

    def open(self, home: Path) -> Model:
        """The network without active dropout, run by ONNX Runtime."""
        if self.settings.task == "boxes":
            return OnnxModel(home / ONNX, boxes=BOX_FORM, range="0-1", name=self.name)
        return OnnxModel(home / ONNX, outputs="logits", range="0-1", classes=self.class_names, name=self.name)

    def build(self, workshop: Path, progress: Progress | None = None, store: Any = None) -> dict[str, Any]:
        """Train, or go on training, in a folder; give the competence."""
        record, network, left_out = self._train(workshop, progress or (lambda images: None))
        chosen = self.chosen()
        write_json(workshop / CHOSEN, chosen)
        task = self.settings.task
        output = "logits" if task == "classes" else "boxes"
        export_onnx(network, workshop / ONNX, self.data.size, self.data.channels, output=output)
        figure, epoch = FIGURES[task].figure, best_epoch(record)
        competence = {figure: epoch[figure], "floor": self.settings.floor, "epochs": len(record["history"])}
        without = {"images_without_box": left_out} if left_out else {}
        return {**competence, "best_epoch": epoch["epoch"], **chosen, "weights": count_weights(network), **without}

    def _train(self, folder: Path, progress: Progress) -> tuple[dict[str, Any], torch.nn.Module, int]:
        """The record of the training, the trained network, and how many images have no box."""
        network, asked, chosen = self.network(), self.settings, self.chosen()
        parts = self._parts()
        task: Task = ClassTask()
        if parts[0].corners is not None:
            targets = BoxTargets.of_training(asked.boxes, parts[0].corners)
            start_at_mean(network, targets, parts[0].corners)
            task = BoxTask(targets, asked.loss, self.data.size)
        geometry = "all" if asked.task == "classes" else "no geometry"
        recipe = {
            "network": digest(digest_tensors(network.state_dict().items(), str(network))),
            "data": list(self.recipe.inputs),
            "task": asked.task,
            "loss": "cross-entropy" if asked.task == "classes" else asked.loss,
            **{name: getattr(asked, name) for name in ("epochs", "batch", "patience", "schedule")},
            "learning_rate": chosen["learning_rate"],
            "augment": geometry if asked.augment else "none",
            "seed": self.seed,
            "threads": self.threads or course.THREADS,
        }
        change = partial(augment, geometric=asked.task == "classes") if asked.augment else None
        record = train_task(network, task, parts, folder, recipe, progress, augment=change)
        return record, network, sum(part.without_box for part in parts)

    def _parts(self) -> tuple[LearningPart, LearningPart]:
        """The images to train on, and those that choose the epoch."""
        if self._validation is None:
            held_out = (1 - course.HELD_OUT, course.HELD_OUT)
            train, validation = split_by_group(self.data, held_out, SPLIT_SEED)
        else:
            train, validation = self.data, self._validation  # type: ignore[assignment]
        read = class_part if self.settings.task == "classes" else box_part
        return read(train), read(validation)

    def trial_recipe(self) -> Artifact:
        """What the trials of a search train, without the values that it looks for."""
        plain = self._plain().recipe
        parameters = {name: value for name, value in plain.parameters.items() if name not in self.searched}
        return Artifact(plain.builder, parameters, plain.inputs)

    def trial_work(self, epochs: int | None) -> int:
        """How many images a training of so many epochs reports to its progress."""
        held_out = 0 if self._validation is None else len(self._validation)
        return (epochs or self.settings.epochs or 1) * (len(self.data) + held_out)

    def attempt(self, values: Values, epochs: int | None, folder: Path, progress: Callable[[int], None]) -> float:
        """Train with these values in a folder; give the accuracy or IoU on the validation data."""
        trial = self._plain()
        trial.settings = replace(self.settings, **values, epochs=epochs or self.settings.epochs)  # type: ignore[arg-type]
        record, _, _ = trial._train(folder, progress)
        return float(best_epoch(record)[FIGURES[self.settings.task].figure])

    def facts(self) -> dict[str, dict[str, Any]]:
        """What a report says of it, by task; values that are still to be searched are None.

        `search` is the hash of the search that finds them, where there is one.
        """
        boxes = self.settings.task == "boxes"
        known = {"passes": 1, "members": 1, "weights": self.weight_count()}
        form = {"boxes": self.settings.boxes if boxes else "", "loss": self.settings.loss if boxes else "cross-entropy"}
        search = {} if self.search is None else {"search": self.search.recipe.hash}
        return {self.settings.task: {**known, **form, **self.chosen(), "seed": self.seed, **search}}

    def weight_count(self) -> int | None:
        """How many weights are held; None while the width of the head is still searched."""
        return None if None in self.chosen().values() else count_weights(self.network())


FIGURES: Mapping[str, type[Task]] = {"classes": ClassTask, "boxes": BoxTask}


def count_weights(network: torch.nn.Module) -> int:
    """How many numbers a training of the network changes."""
    return sum(weight.numel() for weight in network.parameters())


def searched_values(settings: TaskSettings, name: str) -> tuple[str, ...]:
    """The values that a search looks for: those that the settings leave open; dropout only where some is placed.

    >>> searched_values(TaskSettings("small_resnet", hidden=64), "net")
    ('learning_rate',)
    """
    names = [value for value in RANGES if value != "dropout" or settings.placement != "none"]
    searched = tuple(value for value in names if getattr(settings, value) is None)
    if not searched:
        raise InputError(f"perception network {name} has nothing to search: leave learning_rate, dropout or hidden out")
    return searched
