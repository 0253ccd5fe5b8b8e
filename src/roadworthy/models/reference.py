"""Reference classifiers: networks that a study trains on its own data before it tests them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest
from roadworthy.core.registry import Registry, is_built_in
from roadworthy.core.roles import Dataset, Model, Trial
from roadworthy.core.types import Artifact, Batch
from roadworthy.core.validation import MOST_BATCH, MOST_EPOCHS, MOST_PASSES, MOST_THREADS, MOST_WIDTH, check_whole
from roadworthy.data.parallel import Progress
from roadworthy.models.identity import code_in_recipe
from roadworthy.models.networks import (
    export_onnx,
    lenet,
    resnet50,
    small_resnet,
    small_vgg,
    thesis_cnn,
    vgg16,
)
from roadworthy.models.onnx import OnnxModel
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.torch import TorchModel
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.trained import ONNX, TrainedNetwork
from roadworthy.models.training import HELD_OUT, SCHEDULES, THREADS, check_held_out, train_classifier
from roadworthy.models.trials import TRIED_BATCH, TRIED_STEPS, StepTimes, few_images

if TYPE_CHECKING:
    import torch

LARGEST = {"epochs": MOST_EPOCHS, "batch": MOST_BATCH, "width": MOST_WIDTH, "hidden": MOST_WIDTH, "passes": MOST_PASSES}
ALGORITHM = 1
"""Part of every recipe; a change of the training that gives other weights raises it."""


@dataclass(frozen=True)
class Architecture:
    """How a reference network is made, what it takes where a study says nothing, and what its answers hold.

    `make` is called with the number of classes, the size (height, width) and `channels`, and with those of `width`,
    `hidden` and `dropout` that it names; it returns a torch module from images (N, C, H, W) in 0-1 to logits (N, K).
    """

    make: Callable[..., torch.nn.Module]
    epochs: int
    dropout: float
    passes: int
    capabilities: frozenset[str]
    width: int = 32
    batch: int = 128

    @property
    def settings(self) -> set[str]:
        """Those of width, hidden and dropout that the network can be made with."""
        return {"width", "hidden", "dropout"} & set(inspect.signature(self.make).parameters)


_ANSWERS = frozenset({"probabilities", "logits", "features"})
_PASSES = frozenset({"probabilities", "log_odds", "samples", "certainty"})
_TORCH = _ANSWERS | {"input_gradient"}

ARCHITECTURES: Registry[Architecture] = Registry("architecture")
"""The reference networks by name."""
for _name, _architecture in {
    "baseline": Architecture(thesis_cnn, 4, 0.0, 1, _ANSWERS),
    "mc_dropout": Architecture(thesis_cnn, 8, 0.6, 20, _PASSES),
    "lenet": Architecture(lenet, 30, 0.0, 1, _TORCH, width=6, batch=32),
    "vgg": Architecture(small_vgg, 8, 0.5, 1, _TORCH, width=16),
    "resnet": Architecture(small_resnet, 8, 0.0, 1, _TORCH, width=16),
    "vgg16": Architecture(vgg16, 20, 0.5, 1, _TORCH, width=64),
    "resnet50": Architecture(resnet50, 20, 0.0, 1, _TORCH, width=64),
}.items():
    ARCHITECTURES.register(_name)(_architecture)

OPENERS: Registry[Callable[[Any, Path], Model]] = Registry("network_opener")
"""How a trained network is opened to answer, by architecture: called with the `ReferenceModel` and its folder; one that
is not here is run by torch. Those that average passes are in `roadworthy.uncertainty`, which registers them when it is
imported."""


class ReferenceModel(TrainedNetwork):
    """A small network with a recipe: `on` training data its fingerprint is known, `build` trains it, `load` opens it.

    spec      `baseline`: two convolutions and two linear layers, 4 epochs; `mc_dropout`: the same with dropout 0.6
              after each hidden layer, 8 epochs, the mean of 20 passes with dropout active; `lenet`: two
              convolutions and three linear layers, 128 neurons in the last hidden one; `vgg`, `resnet`: small ones
              for images of about 32x32; `vgg16`, `resnet50`: those networks fitted to small images, `vgg16` not as
              OD-test fits it (`models.networks` says how). These five run in torch and give gradients
    epochs, batch, learning_rate, width (filters), hidden (units), dropout, passes: as the architecture where not given
    schedule  of the learning rate: `constant`, or `cosine`, which falls to 0 over all epochs and is part of the recipe
    held_out  share of the training objects that the epoch is chosen by; 0 trains on all, and needs `keep` `last`
    keep      which epoch's weights: the `best` on held-out images, or the `last`; both are part of the recipe where
              they are not the default
    floor     clean accuracy below which rows that depend on it are marked undertrained; with `held_out` 0 it is
              the accuracy on the training images that is held against it
    retrain   train another one, from a seed of its own, for every repeat of a study
    seed      takes the place of the study's in the seed of the training, which follows from all of the recipe
    threads   of the training, part of the recipe where given

    >>> ReferenceModel("mc_dropout", epochs=2).settings()["dropout"]
    0.6
    """

    what = "reference network"

    def __init__(
        self,
        spec: str = "baseline",
        *,
        name: str | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        learning_rate: float = 1e-3,
        schedule: str = "constant",
        held_out: float = HELD_OUT,
        keep: str = "best",
        seed: int | None = None,
        width: int | None = None,
        hidden: int = 128,
        dropout: float | None = None,
        passes: int | None = None,
        floor: float = 0.9,
        retrain: bool = False,
        threads: int | None = None,
    ) -> None:
        if spec not in ARCHITECTURES:
            raise UnknownName("reference network", spec, ARCHITECTURES)
        default = ARCHITECTURES.get(spec)
        self.architecture, self.name = spec, name or spec
        self.epochs = default.epochs if epochs is None else epochs
        self.dropout = default.dropout if dropout is None else dropout
        self.passes = default.passes if passes is None else passes
        self.batch = default.batch if batch is None else batch
        self.learning_rate, self.schedule, self.own_seed = learning_rate, schedule, seed
        self.width = default.width if width is None else width
        self.hidden, self.floor, self.retrain, self.threads = hidden, floor, retrain, threads
        for setting, most in LARGEST.items():
            check_whole(f"reference network {self.name}: {setting}", getattr(self, setting), 1, most)
        parse_choice(f"schedule of reference network {self.name}", schedule, SCHEDULES)
        check_held_out(f"reference network {self.name}", held_out, keep)
        self.held_out, self.keep = float(held_out), keep
        if threads is not None:
            check_whole(f"reference network {self.name}: threads", threads, 1, MOST_THREADS)
        if not 0 <= self.dropout < 1:
            raise InputError(f"reference network {self.name}: dropout is at least 0 and below 1, not {self.dropout}")
        if spec == "mc_dropout" and not self.dropout:
            raise InputError(f"reference network {self.name}: mc_dropout needs a dropout above 0, or use baseline")
        if spec != "mc_dropout" and self.passes != 1:
            raise InputError(f"reference network {self.name}: a {spec} answers once; passes are for mc_dropout")
        if "dropout" not in default.settings and self.dropout:
            raise InputError(f"reference network {self.name}: a {spec} has no dropout")
        if "width" not in default.settings and self.width != default.width:
            other = {"vgg16": ": use vgg for another", "resnet50": ": use resnet for another"}.get(spec, "")
            raise InputError(f"reference network {self.name}: a {spec} has its own width{other}")
        self.capabilities = default.capabilities
        super().__init__()

    def _forget(self) -> None:
        super()._forget()
        self._untrained: Model | None = None

    def settings(self) -> dict[str, Any]:
        """Everything that decides the weights, but for the data and the seed."""
        names = ("architecture", "epochs", "batch", "learning_rate", "width", "hidden", "dropout", "floor")
        given: dict[str, Any] = {} if self.threads is None else {"threads": self.threads}
        for name, default in (("schedule", "constant"), ("held_out", HELD_OUT), ("keep", "best")):
            given |= {} if getattr(self, name) == default else {name: getattr(self, name)}
        given |= code_in_recipe(ARCHITECTURES.get(self.architecture).make)
        return {"algorithm": ALGORITHM, **{name: getattr(self, name) for name in names}, **given}

    def on(self, train: Dataset, *, study_seed: int = 0) -> Self:
        """The same model bound to its training data; classes and input size are the data's."""
        bound = super().on(train, study_seed=study_seed)
        bound.class_names, bound.num_classes = tuple(train.class_names), len(train.class_names)
        return bound

    @property
    def recipe(self) -> Artifact:
        """What is to be built: known, with its hash, before any training."""
        return self._seeded(Artifact("reference_classifier", self.settings(), (self.data.fingerprint(),)))

    @property
    def work(self) -> int:
        """How many images `build` reports to its progress."""
        return self.epochs * len(self.data)

    def fingerprint(self) -> str:
        """Hash of the recipe and the number of passes: the same before and after training."""
        return digest({"kind": "reference", "recipe": self.recipe.hash, "passes": self.passes})

    def build(self, workshop: Path, progress: Progress | None = None, store: Any = None) -> dict[str, Any]:
        """Train, or go on training, in a folder; write network.safetensors, network.onnx, training.json."""
        network = self.network()
        names = ("epochs", "batch", "learning_rate", "schedule", "held_out", "keep", "seed", "floor", "threads")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        competence = train_classifier(network, self.data, workshop, progress=progress, **settings)
        export_onnx(network, workshop / ONNX, self.data.size, self.data.channels)
        return competence

    def trial(self) -> Trial:
        """Train on a few batches and ask about one; answering after an epoch takes about a third of learning."""
        size = min(self.batch, TRIED_BATCH)
        few = self.on(few_images(self.data, TRIED_STEPS * size))
        few.epochs, few.batch, few.held_out, few.keep, few.threads = 1, size, 0.0, "last", 1
        times = StepTimes(self.threads or THREADS)
        with TemporaryDirectory() as home:
            few.build(Path(home), times)
            few.load(Path(home))
            shown = few.data.batch(slice(0, TRIED_BATCH))
            few.predict(shown)
            started = time.process_time()
            few.predict(shown)
        answered = (time.process_time() - started) / len(shown)
        return Trial(times.per_image(TRIED_STEPS) * (1 if self.held_out else 4 / 3), answered)

    @property
    def trial_key(self) -> tuple[Any, ...]:
        """All that the time of an image depends on; not its seed."""
        return digest(self.settings()), self.data.fingerprint(), self.passes

    def network(self) -> torch.nn.Module:
        """The network with the weights it starts from."""
        torch = import_torch()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            default = ARCHITECTURES.get(self.architecture)
            settings = {name: getattr(self, name) for name in default.settings}
            return default.make(self.num_classes, self.data.size, channels=self.data.channels, **settings)

    def open(self, home: Path) -> Model:
        """The trained network as its architecture is opened."""
        own = is_built_in(ARCHITECTURES.get(self.architecture).make)  # such an opener may not be imported yet
        opener = OPENERS.get(self.architecture) if own or self.architecture in OPENERS else open_torch
        return opener(self, home)

    def load(self, home: Path) -> None:
        """Open the trained network in `home`; from now on `predict` works."""
        super().load(home)
        self._untrained = None

    def form(self) -> dict[str, Any]:
        """What an adapter is told of the network: its input, its outputs and its name."""
        size, channels = self.data.size, self.data.channels
        return {"outputs": "logits", "size": size, "channels": channels, "classes": self.class_names, "name": self.name}

    def input_gradient(self, batch: Batch) -> Any:
        """Gradient of the trained network; of those that run in torch only."""
        return self.opened().input_gradient(batch)

    def untrained(self) -> Model:
        """What can be said before training of what `opened` will be: a torch network, or the model itself."""
        if "input_gradient" not in self.capabilities:
            return self
        self._untrained = self._untrained or _torch_model(self, self.network())
        return self._untrained


@OPENERS.register("baseline")
def open_baseline(model: ReferenceModel, home: Path) -> Model:
    """The plain network, run by ONNX Runtime."""
    return OnnxModel(home / ONNX, outputs="logits", range="0-1", classes=model.class_names, name=model.name)


@OPENERS.register("lenet")
@OPENERS.register("vgg")
@OPENERS.register("resnet")
@OPENERS.register("vgg16")
@OPENERS.register("resnet50")
def open_torch(model: ReferenceModel, home: Path) -> Model:
    """The network itself, run by torch, so that it gives gradients."""
    return _torch_model(model, model.trained(home))


def _torch_model(model: ReferenceModel, network: torch.nn.Module) -> TorchModel:
    return TorchModel(network.eval(), range="0-1", device="cpu", **model.form())
