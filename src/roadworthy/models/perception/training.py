"""The training of one network for one task, classes or boxes: early stopping, and the same bits after a kill."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.data.parallel import Progress
from roadworthy.models.networks import load_weights
from roadworthy.models.perception.augment import augment
from roadworthy.models.perception.box_targets import BoxTargets, relative_corners, sides
from roadworthy.models.torch import import_torch
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
    return LearningPart(data.ids, data.labels, _contents(data).read)


def box_part(data: Dataset) -> LearningPart:
    """The images of a data set that have a box; a box without area is an `InputError` that names its image."""
    contents = _contents(data)
    kept = np.flatnonzero(np.isfinite(contents.boxes).all(axis=1))
    if not kept.size:
        raise no_boxes(data)
    corners = relative_corners(contents.boxes[kept], data.size)
    ids = tuple(data.ids[row] for row in kept)
    for flat in np.flatnonzero((corners[:, 2:] <= corners[:, :2]).any(axis=1))[:1]:
        raise InputError(f"image {ids[flat]} of {data.name} has a box without area: fix it or leave the image out")
    return LearningPart(ids, data.labels[kept], lambda rows: contents.read(kept[rows]), corners, len(data) - len(kept))


@dataclass(frozen=True)
class _Contents:
    """What a training reads of a data set: a reader of its images, and its boxes (N, 4), NaN where there are none."""

    read: Reader
    boxes: NDArray[np.float64]
    bytes: int


_LAST_READ: dict[str, _Contents] = {}
_LAST_READ_LOCK = threading.Lock()


def _contents(data: Dataset) -> _Contents:
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


def _read_all(data: Dataset) -> _Contents:
    keeps = fits_in_memory(data)
    images = np.empty((len(data) if keeps else 0, *data.size, data.channels), np.uint8)
    boxes = np.full((len(data), 4), np.nan)
    for rows, batch in decoded(data):
        if batch.boxes is not None:
            boxes[rows] = batch.boxes
        if keeps:
            images[rows] = batch.images
    if keeps:
        return _Contents(lambda rows: images[rows], boxes, images.nbytes)
    return _Contents(lambda rows: data.batch(rows.tolist()).images, boxes, boxes.nbytes)


def no_boxes(data: Dataset) -> InputError:
    """What is said of data that a localizer cannot learn from."""
    return InputError(f"data set {data.name} has no boxes, which a localizer learns from: give columns x0, y0, x1, y1")


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


class BoxTask(Task):
    """A loss of boxes; judged by IoU.

    MAE and MSE compare the four numbers that the network answers with the target in the same parametrisation, so only
    the labels of the training data change with it. IoU and DIoU compare decoded boxes in pixels.
    """

    figure = "iou"

    def __init__(self, targets: BoxTargets, loss: str, size: tuple[int, int]) -> None:
        from roadworthy.models.perception import losses

        self.box_targets, self.size, self._losses = targets, size, losses
        self.encoded, self._loss = loss in losses.ENCODED_LOSSES, losses.LOSS_FUNCTIONS[loss]
        self._sides = import_torch().from_numpy(sides(size)).float()

    def targets(self, part: LearningPart) -> torch.Tensor:
        """(N, 8): the encoded box, then its corners in pixels."""
        if part.corners is None:
            raise InputError("a localizer learns from boxes, and these images were read without them")
        rows = np.concatenate([self.box_targets.encode(part.corners), part.corners * sides(self.size)], axis=1)
        tensor: torch.Tensor = import_torch().from_numpy(rows.astype(np.float32))
        return tensor

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean of the chosen loss."""
        return self._measured(network, network.network(images), targets)

    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The IoU of each box, and the mean loss."""
        answers = network.network(images)
        pixels = network.decoder(answers) * self._sides
        return self._losses.box_iou(pixels, targets[:, 4:]), self._measured(network, answers, targets)

    def _measured(self, network: Any, answers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.encoded:
            return self._loss(answers, targets[:, :4])
        return self._loss(network.decoder(answers) * self._sides, targets[:, 4:])


def localizer(network: torch.nn.Module, targets: BoxTargets) -> Any:
    """A network that answers four numbers (N, 4), with the decoding of its parametrisation behind it."""
    torch = import_torch()

    class Localizer(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Images to relative corners; `network` answers the encoded box, `decoder` decodes it."""

        def __init__(self) -> None:
            super().__init__()
            self.network, self.decoder = network, targets.decoder()

        def forward(self, images: Any) -> Any:
            return self.decoder(self.network(images))

    return Localizer()


def start_at_mean(network: Any, targets: BoxTargets, corners: NDArray[np.float64]) -> None:
    """Let a localizer start from the mean box of its training data, relative corners (N, 4), and hold its anchor.

    From boxes that share nothing with the true ones, the IoU loss has no gradient.
    """
    torch = import_torch()
    network.decoder = targets.decoder()
    last = [module for module in network.network.modules() if isinstance(module, torch.nn.Linear)][-1]
    mean = targets.encode(corners.mean(axis=0, keepdims=True))[0]
    with torch.no_grad():
        last.bias.copy_(torch.from_numpy(mean.astype(np.float32)))


class TaskCourse(TrainingCourse):
    """The training of a network for one task; it ends after `epochs`, or `patience` epochs after the best one."""

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
        """Whether no epoch is left, or the best one lies `patience` epochs back."""
        if self.epoch >= self.recipe["epochs"]:
            return True
        return bool(self.history) and self.epoch - self.kept_epoch >= self.recipe["patience"]

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
) -> dict[str, Any]:
    """Train a network on the first part, judged by the second after every epoch; give the record of the training.

    recipe   epochs, batch, learning_rate, schedule, seed, patience, augment (`none`, `all` or `no geometry`), threads,
             and whatever else decides the weights: a folder that holds the training of another recipe is an error

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
        record = _run(course, parts, folder, progress)
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
    course: TaskCourse, parts: tuple[LearningPart, LearningPart], folder: Path, progress: Progress
) -> dict[str, Any]:
    train, validation = parts
    with course.own_torch():
        targets, judged = course.task.targets(train), course.task.targets(validation)
        while not course.ended:
            try:
                training_loss = _train_epoch(course, train, targets, progress)
                figure, loss = _judge(course, validation, judged, progress)
            except FloatingPointError as error:
                raise diverged(course, folder, str(error)) from None
            course.close_epoch(training_loss=training_loss, **{course.task.figure: figure}, loss=loss)
            course.save(folder)
    return course.finish(folder)


def _train_epoch(course: TaskCourse, part: LearningPart, targets: torch.Tensor, progress: Progress) -> float:
    """One pass over the training images in an order of its own; the mean loss."""
    from roadworthy.models.fast_dropout import FastDropout

    torch, recipe, total = import_torch(), course.recipe, 0.0
    streams = Streams("augmentation", recipe["seed"], course.epoch + 1)
    batches = course.batches(len(part), recipe["batch"])
    for number, rows in enumerate(batches):
        course.set_learning_rate((course.epoch + number / len(batches)) / recipe["epochs"])
        images = part.read(rows)
        if recipe["augment"] != "none":
            ids = [part.ids[row] for row in rows]
            images = augment(images, ids, streams, geometric=recipe["augment"] == "all")
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
