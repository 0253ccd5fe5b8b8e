"""The training of one network for one task: early stopping, a budget, and the same bits after a kill."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.data.parallel import Progress
from roadworthy.models.networks import load_weights
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import (
    EVALUATED_AT_ONCE,
    WEIGHTS,
    Reader,
    TrainingCourse,
    decoded,
    diverged,
    finished_record,
    fits_in_memory,
    image_tensor,
)

if TYPE_CHECKING:
    import torch

Augment = Callable[[NDArray[np.uint8], Sequence[str], Streams], NDArray[np.uint8]]
"""Changes the images of a batch, (N, H, W, C), by their ids, before they are learned from."""
SHARED_BYTES = 2**29
SHARED_SETS = 4
"""How much of decoded data, and of how many data sets, stays in memory for the next network of a study."""


@dataclass(frozen=True)
class LearningPart:
    """Images to learn from, or to be judged by.

    labels       (N,) int64;  corners  (N, 4) float64, shares of the image's sides, where boxes are learned
    without_box  how many images of the data set are left out because they have no box
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    read: Reader
    corners: NDArray[np.float64] | None = None
    without_box: int = 0

    def __len__(self) -> int:
        return len(self.ids)


def class_part(data: Dataset) -> LearningPart:
    """All images of a data set with their labels."""
    return LearningPart(data.ids, data.labels, contents_of(data).read)


@dataclass(frozen=True)
class Contents:
    """What a training reads of a data set: a reader of its images, and its boxes (N, 4), NaN where there are none."""

    read: Reader
    boxes: NDArray[np.float64]
    bytes: int


_LAST_READ: dict[str, Contents] = {}
_LAST_READ_LOCK = threading.Lock()


def contents_of(data: Dataset) -> Contents:
    """The images and boxes of a data set, decoded once for all networks of a study that learn from it in turn.

    Those of the last data sets are held, by fingerprint, as far as `SHARED_BYTES` go.
    """
    key = data.fingerprint()
    with _LAST_READ_LOCK:
        known = _LAST_READ.pop(key, None)
    contents = known or _read_all(data)
    with _LAST_READ_LOCK:
        _LAST_READ[key] = contents
        while sum(held.bytes for held in _LAST_READ.values()) > SHARED_BYTES or len(_LAST_READ) > SHARED_SETS:
            del _LAST_READ[next(iter(_LAST_READ))]
    return contents


def _read_all(data: Dataset) -> Contents:
    keeps = fits_in_memory(data)
    images = np.empty((len(data) if keeps else 0, *data.size, data.channels), np.uint8)
    boxes = np.full((len(data), 4), np.nan)
    for rows, batch in decoded(data):
        if batch.boxes is not None:
            boxes[rows] = batch.boxes
        if keeps:
            images[rows] = batch.images
    if keeps:
        return Contents(lambda rows: images[rows], boxes, images.nbytes)
    return Contents(lambda rows: data.batch(rows.tolist()).images, boxes, boxes.nbytes)


class Task(ABC):
    """What a network learns: its loss, and the figure that chooses the epoch."""

    figure: ClassVar[str]
    """The name of the figure, in the history of the training and in the competence of the network."""

    @abstractmethod
    def targets(self, part: LearningPart) -> torch.Tensor:
        """What the network should answer to the images of a part, a row each."""

    @abstractmethod
    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss of the network's answers."""

    @abstractmethod
    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The figure of each image (N,), and the mean loss."""

    def facts(self) -> dict[str, Any]:
        """What else is worth knowing of how good the network is, such as what its figure is held against."""
        return {}


class ClassTask(Task):
    """Cross-entropy of logits (N, K); judged by whether the largest is the true class."""

    figure = "clean_accuracy"

    def targets(self, part: LearningPart) -> torch.Tensor:
        """The labels (N,)."""
        labels: torch.Tensor = import_torch().from_numpy(part.labels)
        return labels

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy."""
        loss: torch.Tensor = import_torch().nn.functional.cross_entropy(network(images), targets)
        return loss

    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """1 where the answer is right, else 0; and the mean loss."""
        logits = network(images)
        correct = (logits.argmax(1) == targets).float()
        return correct, import_torch().nn.functional.cross_entropy(logits, targets)


class TaskCourse(TrainingCourse):
    """The training of a network for one task.

    It ends after `epochs`, or with the epoch that uses up its `seconds` of processor time, or `patience` epochs after
    the best one, once that has reached the `floor` where the recipe has one: a network that has learned nothing yet may
    need a few epochs to begin.
    """

    kept = "network"
    weights = WEIGHTS
    optimizer_prefix = "optimizer/"

    def __init__(self, network: torch.nn.Module, task: Task, recipe: dict[str, Any]) -> None:
        streams = Streams("perception training", recipe["seed"])
        super().__init__({self.kept: network}, streams, recipe, recipe["threads"], lr=recipe["learning_rate"])
        self.network, self.task = self.networks[self.kept], task

    @property
    def kept_epoch(self) -> int:
        """The epoch with the highest figure on the validation images; of equal ones, the one with the lowest loss."""
        figure = self.task.figure
        best = min(self.history, key=lambda epoch: (-epoch[figure], epoch["loss"], epoch["epoch"]))
        return int(best["epoch"])

    @property
    def ended(self) -> bool:
        """Whether no epoch is left, no time, or the best one lies `patience` epochs back and is good enough."""
        if self.epoch >= self.recipe["epochs"] or self.budget_used:
            return True
        if not self.history or self.epoch - self.kept_epoch < self.recipe["patience"]:
            return False
        best = max(epoch[self.task.figure] for epoch in self.history)
        return bool(best >= self.recipe.get("floor", -math.inf))

    @property
    def budget_used(self) -> bool:
        """Whether the epochs so far took the processor time that the recipe allows, those before a kill included."""
        seconds = self.recipe.get("seconds")
        return seconds is not None and sum(epoch["seconds"] for epoch in self.history) >= seconds

    def outcome(self) -> dict[str, Any]:
        """Which epoch is the best."""
        return {"best_epoch": self.kept_epoch}


def train_task(
    network: torch.nn.Module,
    task: Task,
    parts: tuple[LearningPart, LearningPart],
    folder: Path,
    recipe: dict[str, Any],
    progress: Progress,
    *,
    augment: Augment | None = None,
) -> dict[str, Any]:
    """Train a network on the first part, judged by the second after every epoch; give the record of the training.

    recipe   epochs, batch, learning_rate, schedule, seed, patience, threads, and whatever else decides the weights: a
             folder that holds the training of another recipe is an error. Where it has a `floor`, patience begins with
             the first epoch that reaches it. Where it has `seconds` of processor time, the training ends with the
             epoch that uses them up; what it learned then depends on the speed of the machine
    augment  what changes the images of each batch before they are learned from

    Adam, its learning rate by the schedule. `folder` gets `network.safetensors`, the weights of the best epoch, and
    `training.json`; while it trains, a checkpoint of every epoch, from which a call with the same recipe goes on and
    ends with the same bits. The network ends with the weights of the best epoch, in eval mode.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = len(parts[0]) + len(parts[1])
    record = finished_record(folder, recipe)
    if record is None:
        course = TaskCourse(network, task, recipe)
        course.resume(folder)
        progress(course.epoch * images)
        record = _run(course, parts, folder, progress, augment)
    else:
        progress(len(record["history"]) * images)
    progress((recipe["epochs"] - len(record["history"])) * images)
    network.load_state_dict(load_weights(folder / WEIGHTS)[0])
    network.eval()
    return record


def best_epoch(record: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the epoch that is kept, from the record of a training."""
    figures: dict[str, Any] = record["history"][record["best_epoch"] - 1]
    return figures


def _run(
    course: TaskCourse,
    parts: tuple[LearningPart, LearningPart],
    folder: Path,
    progress: Progress,
    augment: Augment | None,
) -> dict[str, Any]:
    train, validation = parts
    with course.own_torch():
        targets, judged = course.task.targets(train), course.task.targets(validation)
        while not course.ended:
            started = time.process_time()
            try:
                training_loss = _train_epoch(course, train, targets, progress, augment)
                figure, loss = _judge(course, validation, judged, progress)
            except FloatingPointError as error:
                raise diverged(course, folder, str(error)) from None
            spent = {"seconds": time.process_time() - started} if "seconds" in course.recipe else {}
            course.close_epoch(training_loss=training_loss, **{course.task.figure: figure}, loss=loss, **spent)
            course.save(folder)
    return course.finish(folder)


def _train_epoch(
    course: TaskCourse, part: LearningPart, targets: torch.Tensor, progress: Progress, augment: Augment | None
) -> float:
    """One pass over the training images in an order of its own; the mean loss."""
    from roadworthy.models.fast_dropout import FastDropout

    torch, recipe, total = import_torch(), course.recipe, 0.0
    streams = Streams("augmentation", recipe["seed"], course.epoch + 1)
    batches = course.batches(len(part), recipe["batch"])
    for number, rows in enumerate(batches):
        course.set_learning_rate((course.epoch + number / len(batches)) / recipe["epochs"])
        images = part.read(rows)
        if augment is not None:
            images = augment(images, [part.ids[row] for row in rows], streams)
        with FastDropout():
            loss = course.task.loss(course.network, image_tensor(torch, images), targets[torch.from_numpy(rows)])
        value = course.step(course.kept, loss)
        if not math.isfinite(value):
            raise FloatingPointError(f"the training loss became {value}")
        total += value * len(rows)
        progress(len(rows))
    return total / len(part)


def _judge(course: TaskCourse, part: LearningPart, targets: torch.Tensor, progress: Progress) -> tuple[float, float]:
    """The mean figure and the mean loss of images that were not trained on."""
    torch = import_torch()
    course.network.eval()
    figure = total = 0.0
    with torch.inference_mode():
        for start in range(0, len(part), EVALUATED_AT_ONCE):
            rows = np.arange(start, min(start + EVALUATED_AT_ONCE, len(part)))
            figures, loss = course.task.judge(
                course.network, image_tensor(torch, part.read(rows)), targets[torch.from_numpy(rows)]
            )
            figure += float(figures.double().sum())
            total += float(loss) * len(rows)
            progress(len(rows))
    if not math.isfinite(total):
        raise FloatingPointError(f"the loss on validation images became {total}")
    return figure / len(part), total / len(part)
