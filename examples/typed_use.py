"""Parts of Roadworthy in typed code: `make typing` holds this file against mypy and basedpyright, both strict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type

import numpy as np
from maite.protocols import ArrayLike, DatasetMetadata, DatumMetadata, ModelMetadata
from maite.protocols import image_classification as ic
from maite.protocols import object_detection as od
from maite.tasks import evaluate
from numpy.typing import NDArray

import roadworthy as rw
from roadworthy.maite import by_metric, by_shift
from roadworthy.shifts import fog

Floats = NDArray[np.float64]


def shifts(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    foggy = rw.shifts.fog(image, level=3, seed=0)
    assert_type(foggy, NDArray[np.uint8])
    assert_type(fog(foggy, factor=0.2), NDArray[np.uint8])
    moved = rw.shifts.rotation(image, degrees=20, boxes=[[4, 4, 20, 20]])
    assert_type(moved, rw.shifts.Moved)
    assert_type(rw.shifts.crop(image, 2, masks=image[..., 0] > 9).masks, NDArray[np.bool_] | None)
    transform = rw.shifts.Transform("snow", level=2.5, seed=1)
    assert_type(transform(image), NDArray[np.uint8])
    assert_type(transform(image=image, bboxes=[(4, 4, 20, 20, "stop")]), dict[str, Any])
    return moved.image


def metrics(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    assert_type(rw.metrics.accuracy(probabilities, labels), float)
    meter = rw.metrics.Accumulator(["accuracy", "ece"])
    meter.update(probabilities, labels, groups=[f"sign {label}" for label in labels])
    return meter.compute()["accuracy"].lo


class Signs:
    """A data set of MAITE."""

    metadata: DatasetMetadata = {"id": "signs", "index2label": {0: "stop", 1: "yield"}}

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], Floats, DatumMetadata]:
        return np.full((3, 32, 32), 60 * index, np.uint8), np.eye(2)[index // 2], {"id": index}


class Brightness:
    """A model of MAITE."""

    metadata: ModelMetadata = {"id": "brightness"}

    def __call__(self, batch: Sequence[ArrayLike]) -> Sequence[Floats]:
        shares = [float(np.asarray(image).mean()) / 255 for image in batch]
        return [np.array([1 - share, share]) for share in shares]


@dataclass
class Boxes:
    """What a detector finds."""

    boxes: Floats
    labels: NDArray[np.int64]
    scores: Floats


class Detector:
    """A detector of MAITE."""

    metadata: ModelMetadata = {"id": "detector"}

    def __call__(self, batch: Sequence[ArrayLike]) -> Sequence[Boxes]:
        return [Boxes(np.array([[2.0, 2, 9, 9]]), np.array([0]), np.ones(1)) for _ in batch]


class Scenes:
    """A data set of MAITE's object detection."""

    metadata: DatasetMetadata = {"id": "scenes"}

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], Boxes, DatumMetadata]:
        target = Boxes(np.array([[2.0, 2, 9, 9]]), np.array([0]), np.ones(1))
        return np.zeros((3, 32, 32), np.uint8), target, {"id": f"scene {index}"}


def components() -> None:
    """Every component is one of MAITE's, as its protocols say."""
    of_classes: list[ic.Augmentation] = [rw.maite.Augmentation("fog", level=3, seed=0), by_shift.Rotation(level=2)]
    of_boxes: list[od.Augmentation] = [rw.maite.Augmentation("fog", level=3, seed=0), by_shift.Rotation(level=2)]
    metrics_of_classes: list[ic.Metric] = [rw.maite.Metric(["accuracy", "ece"]), by_metric.Accuracy(group="id")]
    metrics_of_boxes: list[od.Metric] = [rw.maite.BoxMetric("iou"), by_metric.IouAt50()]
    model: ic.Model = Brightness()
    data: ic.Dataset = Signs()
    detector: od.Model = Detector()
    scenes: od.Dataset = Scenes()
    for augmentation, metric in zip(of_classes, metrics_of_classes, strict=True):
        print(evaluate(model=model, dataset=data, augmentation=augmentation, metric=metric, batch_size=2)[0])
    for moving, box_metric in zip(of_boxes, metrics_of_boxes, strict=True):
        print(evaluate(model=detector, dataset=scenes, augmentation=moving, metric=box_metric)[0])


if __name__ == "__main__":
    shifts(np.zeros((32, 32, 3), np.uint8))
    print(metrics(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 0])))
    components()
