"""Training of a classifier that can be stopped at any instant, and ends with the same weights as if it had not been."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import DamagedFile, InputError, ModelError
from roadworthy.core.files import write_json
from roadworthy.core.hashing import digest, sealed, unsealed
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data import split_by_group
from roadworthy.data.parallel import Progress
from roadworthy.models.networks import load_weights, save_weights
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.torch_state import digest_tensors
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

WEIGHTS = "network.safetensors"
RECORD = "training.json"
CHECKPOINT = "checkpoint.safetensors"
HELD_OUT = 0.2
KEPT_EPOCHS = ("best", "last")
THREADS = 2
"""Threads of a training, whatever cores a machine has: the number decides the last bits of the weights."""
PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("constant", "cosine")
IN_MEMORY_BYTES = 4 * 2**30
DECODED_AT_ONCE = 1024
EVALUATED_AT_ONCE = 256

Reader = Callable[[NDArray[np.int64]], NDArray[np.uint8]]


def train_classifier(
    network: torch.nn.Module,
    data: Dataset,
    folder: Path,
    *,
    epochs: int,
    batch: int = 128,
    learning_rate: float = 1e-3,
    schedule: str = "constant",
    held_out: float = HELD_OUT,
    keep: str = "best",
    seed: int = 0,
    floor: float = 0.9,
    precision: str = "float32",
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a network that takes images (N, C, H, W) in 0-1 and answers logits (N, K); give its competence.

    Adam on the mean cross-entropy of all objects but the share `held_out` (groups never straddle). After each epoch the
    held-out images are answered, and the network ends with the weights of the epoch that had the highest accuracy on
    them (of equal ones, the lowest loss), or with those of the last epoch where `keep` is `last`. The competence is
    `{"clean_accuracy", "floor", "epochs", "best_epoch"}`, with `kept_epoch` in place of `best_epoch` for the last one.
    With `held_out` 0, which needs `keep` `last`, it trains on all images; then `training_accuracy`, measured on these
    very images, is in place of `clean_accuracy`. `schedule` is that of the learning rate: see `learning_rate_at`.

    `folder` gets `network.safetensors` and `training.json` (settings, every epoch). While it trains, it also holds
    `checkpoint.safetensors`: a call with the same network, data and settings goes on from there and ends with the same
    bits, on the same kind of machine. All randomness is keyed by (seed, epoch). `progress` is told of each image of
    `data` once per epoch. `threads` decides the last bits: None is the same number on every machine, `THREADS`.

    >>> from tempfile import TemporaryDirectory
    >>> from roadworthy.data import open_dataset
    >>> from roadworthy.models.networks import thesis_cnn
    >>> _ = import_torch().manual_seed(0)
    >>> bright = np.arange(40) % 2
    >>> images = np.repeat(bright * 255, 8 * 8 * 3).reshape(40, 8, 8, 3).astype(np.uint8)
    >>> with TemporaryDirectory() as folder:
    ...     data = open_dataset((images, bright, ["dark", "bright"]))
    ...     competence = train_classifier(thesis_cnn(2, 8), data, Path(folder), epochs=5, batch=8)
    >>> competence["epochs"], competence["clean_accuracy"]
    (5, 1.0)
    """
    if epochs < 1 or batch < 1:
        raise InputError(f"training needs at least one epoch and one image per batch, not {epochs} and {batch}")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise InputError(f"the learning rate must be above 0, not {learning_rate}")
    parse_choice("precision", precision, PRECISIONS)
    parse_choice("schedule", schedule, SCHEDULES)
    check_held_out("training", held_out, keep)
    settings = {"epochs": epochs, "batch": batch, "learning_rate": learning_rate, "seed": seed, "precision": precision}
    settings |= {} if schedule == "constant" else {"schedule": schedule}
    settings |= {} if keep == "best" else {"keep": keep}
    known = {"data": data.fingerprint(), "network": digest(digest_tensors(network.state_dict().items(), str(network)))}
    recipe: dict[str, Any] = {**known, **settings, "held_out": float(held_out), "threads": threads or THREADS}
    folder.mkdir(parents=True, exist_ok=True)
    advance = progress or (lambda images: None)
    record = finished_record(folder, recipe)
    if record is None:
        course = _Course(network, recipe, recipe["threads"])
        course.resume(folder)
        record = _run(course, data, folder, advance)
    else:
        advance(epochs * len(data))
    network.load_state_dict(load_weights(folder / WEIGHTS)[0])
    network.eval()
    return _competence(record, floor)


def check_held_out(what: str, held_out: float, keep: str) -> None:
    """Refuse a share of images to hold out that is none, and one of 0 where the best epoch is to be kept.

    >>> check_held_out("training", 0.0, "last")
    """
    parse_choice(f"keep of {what}", keep, KEPT_EPOCHS)
    if not (math.isfinite(held_out) and 0 <= held_out < 1):
        raise InputError(f"{what}: held_out is a share of the training objects, at least 0 and below 1, not {held_out}")
    if not held_out and keep != "last":
        raise InputError(
            f"{what}: with held_out 0 no image is left to choose the best epoch by: say keep: last, or hold some out"
        )


def _competence(record: dict[str, Any], floor: float) -> dict[str, Any]:
    """How good the network of a finished training is: by held-out images, or where there are none, by its own."""
    kept = "best_epoch" if "best_epoch" in record else "kept_epoch"
    epochs, epoch = record["history"], record["history"][record[kept] - 1]
    figure = "accuracy" if "accuracy" in epoch else "training_accuracy"
    name = "clean_accuracy" if figure == "accuracy" else figure
    return {name: epoch[figure], "floor": floor, "epochs": len(epochs), kept: epoch["epoch"]}


@contextmanager
def own_torch(threads: int) -> Iterator[None]:
    """Inside, torch has so many threads; their number and its random state are put back afterwards."""
    torch = import_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


class TrainingCourse(ABC):
    """A training under way: networks with an Adam each, and everything that an interrupted one needs to go on.

    `kept` names the network whose weights are kept: those of the epoch `kept_epoch`, in the file `weights`.
    """

    kept: ClassVar[str]
    weights: ClassVar[str]
    first_epoch: ClassVar[int] = 1
    optimizer_prefix: ClassVar[str] = "optimizer/{part}/"

    def __init__(
        self, networks: Mapping[str, Any], streams: Streams, recipe: dict[str, Any], threads: int, **adam: Any
    ) -> None:
        torch = import_torch()
        self.networks = {part: net.to(memory_format=torch.channels_last) for part, net in networks.items()}
        self.optimizers = {
            part: torch.optim.Adam(net.parameters(), fused=True, **adam) for part, net in self.networks.items()
        }
        self.streams, self.recipe, self.threads = streams, recipe, threads
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Any] = {}

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return int(self.history[-1]["epoch"]) if self.history else 0

    @property
    @abstractmethod
    def kept_epoch(self) -> int:
        """The epoch whose weights are kept, of those so far."""

    @abstractmethod
    def outcome(self) -> dict[str, Any]:
        """What the record says of the epochs so far, beside their history."""

    def record(self) -> dict[str, Any]:
        """What is known so far."""
        return {"recipe": self.recipe, **self.outcome(), "history": self.history}

    @contextmanager
    def parts_of(self, data: Dataset) -> Iterator[list[tuple[NDArray[np.int64], Reader]]]:
        """Labels and reader of the images to train on, then of those held out where the recipe says that some are.

        Torch has its threads inside.
        """
        share = self.recipe["held_out"]
        parts = split_by_group(data, (1 - share, share), self.recipe["seed"]) if share else (data,)
        with self.own_torch():
            yield [(part.labels, image_reader(part)) for part in parts]

    def own_torch(self) -> AbstractContextManager[None]:
        """Inside, torch has the threads of this training; its random state is put back afterwards."""
        return own_torch(self.threads)

    def batches(self, images: int, size: int) -> list[NDArray[np.int64]]:
        """The rows of so many images in the next epoch's own order, at most `size` at a time, and all set to train."""
        (rng,) = self.streams.each([f"epoch {self.epoch + 1}"])
        order = rng.permutation(images)
        import_torch().manual_seed(int(rng.integers(2**63)))
        for network in self.networks.values():
            network.train()
        return np.array_split(order, -(-images // size))

    def set_learning_rate(self, share: float) -> None:
        """The learning rate of a step, by the share of all epochs that lies behind it: see `learning_rate_at`."""
        rate = learning_rate_at(share, self.recipe["learning_rate"], self.recipe.get("schedule", "constant"))
        for group in self.optimizers[self.kept].param_groups:
            group["lr"] = rate

    def step(self, part: str, loss: Any) -> float:
        """Move one network against the gradient of its loss; give the loss."""
        self.optimizers[part].zero_grad()
        loss.backward()
        self.optimizers[part].step()
        return float(loss.detach())

    def close_epoch(self, **figures: Any) -> None:
        """Note how an epoch ended, and its weights where they are the ones to keep."""
        self.history.append({"epoch": len(self.history) + self.first_epoch, **figures})
        if self.kept_epoch == self.epoch:
            self.best = {name: value.clone() for name, value in self.networks[self.kept].state_dict().items()}

    def save(self, folder: Path) -> None:
        """Write the checkpoint."""
        tensors = {f"best/{name}": value for name, value in self.best.items()}
        for part, network in self.networks.items():
            prefix, states = self.optimizer_prefix.format(part=part), self.optimizers[part].state_dict()["state"]
            tensors |= {f"{part}/{name}": value for name, value in network.state_dict().items()}
            tensors |= {f"{prefix}{i}/{name}": value for i, state in states.items() for name, value in state.items()}
        save_weights(folder / CHECKPOINT, tensors, {"training": json.dumps(self.record())})

    def resume(self, folder: Path) -> None:
        """Go on from the checkpoint, where there is one; another training's is an error."""
        path = folder / CHECKPOINT
        if not path.exists():
            return
        tensors, notes = load_weights(path)
        stored = json.loads(notes.get("training", "{}"))
        if stored.get("recipe") != self.recipe:
            raise other_training(path)
        self.restore(stored)
        self.best = _under("best/", tensors)
        for part, network in self.networks.items():
            network.load_state_dict(_under(f"{part}/", tensors))
            _restore(self.optimizers[part], _under(self.optimizer_prefix.format(part=part), tensors))

    def restore(self, record: dict[str, Any]) -> None:
        """Take over what the record of a checkpoint says of the training so far."""
        self.history = record["history"]

    def keep(self, folder: Path) -> Path:
        """Write the weights that are kept; give their file."""
        save_weights(folder / self.weights, self.best)
        return folder / self.weights

    def finish(self, folder: Path) -> dict[str, Any]:
        """Write the weights that are kept and the record, and drop the checkpoint; give the record."""
        self.keep(folder)
        record = self.record()
        write_json(folder / RECORD, sealed(record))
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return record


def learning_rate_at(share: float, rate: float, schedule: str) -> float:
    """The learning rate once a share of the training is done: `constant`, or `cosine`, rate (1 + cos(pi share)) / 2.

    >>> [learning_rate_at(share, 0.001, "cosine") for share in (0.0, 0.5)], learning_rate_at(0.5, 0.001, "constant")
    ([0.001, 0.0005], 0.001)
    """
    return rate if schedule == "constant" else rate * (1 + math.cos(math.pi * share)) / 2


class _Course(TrainingCourse):
    """The training of a classifier."""

    kept = "network"
    weights = WEIGHTS
    optimizer_prefix = "optimizer/"

    def __init__(self, network: torch.nn.Module, recipe: dict[str, Any], threads: int) -> None:
        streams = Streams("training", recipe["seed"])
        super().__init__({self.kept: network}, streams, recipe, threads, lr=recipe["learning_rate"])
        self.network = self.networks[self.kept]

    @property
    def kept_epoch(self) -> int:
        if self._keeps_last:
            return self.epoch
        best = min(self.history, key=lambda epoch: (-epoch["accuracy"], epoch["loss"], epoch["epoch"]))
        return int(best["epoch"])

    @property
    def _keeps_last(self) -> bool:
        return bool(self.recipe.get("keep") == "last")

    def outcome(self) -> dict[str, Any]:
        return {"kept_epoch" if self._keeps_last else "best_epoch": self.kept_epoch}


def _run(course: _Course, data: Dataset, folder: Path, advance: Progress) -> dict[str, Any]:
    """Train what is left, then write the weights of the epoch that is kept and the record."""
    torch = import_torch()
    advance(course.epoch * len(data))
    with course.parts_of(data) as ((labels, read), *held_out):
        while course.epoch < course.recipe["epochs"]:
            try:
                figures = {"training_loss": _train_epoch(torch, course, read, labels, len(data.class_names), advance)}
                for held_out_labels, read_held_out in held_out:
                    accuracy, loss = _evaluate(torch, course, read_held_out, held_out_labels, "held-out", advance)
                    figures |= {"accuracy": accuracy, "loss": loss}
                if not held_out:
                    own, _ = _evaluate(torch, course, read, labels, "training", lambda images: None)
                    figures |= {"training_accuracy": own}
            except FloatingPointError as error:
                raise diverged(course, folder, str(error)) from None
            course.close_epoch(**figures)
            course.save(folder)
    return course.finish(folder)


def _train_epoch(
    torch: Any, course: _Course, read: Reader, labels: NDArray[np.int64], classes: int, advance: Progress
) -> float:
    """One pass over the training images in an order of its own; the mean loss."""
    from roadworthy.models.fast_dropout import FastDropout

    total = 0.0
    batches = course.batches(len(labels), course.recipe["batch"])
    for number, rows in enumerate(batches):
        course.set_learning_rate((course.epoch + number / len(batches)) / course.recipe["epochs"])
        with _autocast(torch, course), FastDropout():
            answer = course.network(image_tensor(torch, read(rows)))
            if answer.shape != (len(rows), classes):
                raise ModelError(
                    f"the network answers {tuple(answer.shape)} to {len(rows)} images of {classes} classes: "
                    f"it must answer {(len(rows), classes)}"
                )
            loss = torch.nn.functional.cross_entropy(answer.float(), torch.from_numpy(labels[rows]))
        value = course.step(course.kept, loss)
        if not math.isfinite(value):
            raise FloatingPointError(f"the training loss became {value}")
        total += value * len(rows)
        advance(len(rows))
    return total / len(labels)


def _evaluate(
    torch: Any, course: _Course, read: Reader, labels: NDArray[np.int64], which: str, advance: Progress
) -> tuple[float, float]:
    """Accuracy and mean loss on the images of a part, held out or trained on, with dropout off."""
    course.network.eval()
    correct, total = 0, 0.0
    with torch.inference_mode(), _autocast(torch, course):
        for start in range(0, len(labels), EVALUATED_AT_ONCE):
            rows = np.arange(start, min(start + EVALUATED_AT_ONCE, len(labels)))
            answer, target = course.network(image_tensor(torch, read(rows))).float(), torch.from_numpy(labels[rows])
            total += float(torch.nn.functional.cross_entropy(answer, target, reduction="sum"))
            correct += int((answer.argmax(1) == target).sum())
            advance(len(rows))
    if not math.isfinite(total):
        raise FloatingPointError(f"the loss on {which} images became {total}")
    return correct / len(labels), total / len(labels)


def image_reader(data: Dataset) -> Reader:
    """Rows to images (N, H, W, C) uint8: from memory where all fit, else decoded each time."""
    if not fits_in_memory(data):
        return lambda rows: data.batch(rows.tolist()).images
    images = np.empty((len(data), *data.size, data.channels), np.uint8)
    for rows, batch in decoded(data):
        images[rows] = batch.images
    return lambda rows: images[rows]


def fits_in_memory(data: Dataset) -> bool:
    """Whether all images of a data set may be held at once."""
    return len(data) * math.prod(data.size) * data.channels <= IN_MEMORY_BYTES


def decoded(data: Dataset) -> Iterator[tuple[slice, Batch]]:
    """All images of a data set in their order, some at a time, each time with their rows."""
    for start in range(0, len(data), DECODED_AT_ONCE):
        rows = slice(start, start + DECODED_AT_ONCE)
        yield rows, data.batch(rows)


def image_tensor(torch: Any, images: NDArray[np.uint8]) -> Any:
    """(N, C, H, W) in 0-1; the channels stay last in memory."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)


def _autocast(torch: Any, course: _Course) -> Any:
    return torch.autocast("cpu", torch.bfloat16, enabled=course.recipe["precision"] == "bfloat16")


def finished_record(folder: Path, recipe: dict[str, Any]) -> dict[str, Any] | None:
    """The record of a training that has ended in this folder; another one's is an error."""
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        record = unsealed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{path} is damaged ({error}): delete {folder} to train again") from None
    if record.get("recipe") != recipe:
        raise other_training(path)
    return record


def other_training(path: Path) -> InputError:
    """What is said of a folder that holds the checkpoint or record of another training."""
    return InputError(f"{path} is of another training (network, data or settings differ): delete it or choose a folder")


class Diverged(ModelError):
    """A training whose loss is no number any more."""


def diverged(course: TrainingCourse, folder: Path, what: str) -> Diverged:
    """Keep the best epoch so far and say what happened."""
    kept = "no epoch was completed"
    if course.best:
        which = "the last complete one" if course.recipe.get("keep") == "last" else "the best so far"
        kept = f"epoch {course.kept_epoch}, {which}, is kept in {course.keep(folder)}"
    epochs = course.recipe["epochs"]
    return Diverged(f"{what} in epoch {course.epoch + 1} of {epochs}: lower the learning rate; {kept}")


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors whose names start so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _restore(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Make an optimizer remember tensors, by `<number of the weight>/<name>`.

    Each takes the memory layout of its weight: fused Adam walks through both as they lie in memory.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        index, _, field = name.partition("/")
        weight = weights[int(index)]
        fits = value.shape == weight.shape
        state.setdefault(int(index), {})[field] = import_torch().empty_like(weight).copy_(value) if fits else value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
