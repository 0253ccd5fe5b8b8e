"""PixelCNN++ that a monitor trains on images of at most 32 pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.models.task_training import LearningPart, Task
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import DECODED_AT_ONCE, image_tensor
from roadworthy.monitors.networks.base import OwnNetwork

if TYPE_CHECKING:
    import torch

LARGEST_SIDE = 32
"""Larger images are reduced so that their longer side has so many pixels, as in OD-test."""
FIRST_IMAGES = 64
"""Images that the gains and biases of the network are chosen from before it is trained."""


def reduced_size(size: tuple[int, int]) -> tuple[int, int]:
    """The (height, width) that images are reduced to.

    >>> reduced_size((28, 28)), reduced_size((96, 48))
    ((28, 28), (32, 16))
    """
    longest = max(size)
    if longest <= LARGEST_SIDE:
        return size
    height, width = (max(1, round(side * LARGEST_SIDE / longest)) for side in size)
    return height, width


def reduced(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images (N, H, W, C) at their reduced size, each pixel the mean of those that it stands for."""
    height, width = reduced_size((images.shape[1], images.shape[2]))
    if (height, width) == images.shape[1:3]:
        return images
    resized = [cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA) for image in images]
    return np.asarray(resized, np.uint8).reshape(len(images), height, width, images.shape[3])


def make_density(settings: Mapping[str, Any]) -> torch.nn.Module:
    """The network of these settings: channels, filters, blocks, mixtures and dropout."""
    import_torch()
    from roadworthy.models.density.pixelcnn import pixelcnn

    return pixelcnn(
        settings["channels"],
        filters=settings["filters"],
        blocks=settings["blocks"],
        mixtures=settings["mixtures"],
        dropout=settings["dropout"],
    )


class DensityTask(Task):
    """The likelihood of an image; judged by the share of the bits of independent pixels that is saved."""

    figure = "bits_saved"

    def __init__(self, parts: tuple[LearningPart, LearningPart]) -> None:
        from roadworthy.models.density.baseline import independent_bits

        train, held_out = (_all_images(part) for part in parts)
        self.baseline = independent_bits(train, held_out)

    def targets(self, part: LearningPart) -> torch.Tensor:
        """Nothing: an image is its own target."""
        rows: torch.Tensor = import_torch().zeros(len(part))
        return rows

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean bits per dimension."""
        return self._bits(network, images).mean()

    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """1 - bits / those of independent pixels, of each image, and the mean bits per dimension."""
        bits = self._bits(network, images)
        return 1 - bits / self.baseline, bits.mean()

    def facts(self) -> dict[str, Any]:
        """Bits per dimension of independent pixels."""
        return {"independent_bits": self.baseline}

    def _bits(self, network: Any, images: torch.Tensor) -> torch.Tensor:
        from roadworthy.models.density.logistics import bits_per_dimension

        return bits_per_dimension(network(images), images)


class DensityNetwork(OwnNetwork):
    """A PixelCNN++ of the training images; its settings are those of `make_density`, and `images`, at most so many."""

    kind = "density"
    objective: ClassVar[Mapping[str, str]] = {"": "likelihood"}

    def make(self) -> torch.nn.Module:
        """The network before training, its gains and biases chosen from the first images, as the paper does."""
        network, torch_ = make_density(self.settings), import_torch()
        from roadworthy.models.density.pixelcnn import initialise

        first = self.parts()[0]
        initialise(network, image_tensor(torch_, first.read(np.arange(min(FIRST_IMAGES, len(first))))))
        return network

    def task(self, parts: tuple[LearningPart, LearningPart]) -> Task:
        """The likelihood."""
        return DensityTask(parts)

    def parts(self) -> tuple[LearningPart, LearningPart]:
        """The images to learn from, and those that choose the epoch, reduced, each spread evenly over its part."""
        first, second = (_reduced_part(part, self.images / len(self.train)) for part in super().parts())
        return first, second

    @property
    def images(self) -> int:
        """How many images an epoch shows it."""
        most = self.settings["images"]
        return len(self.train) if most is None else min(most, len(self.train))


def _reduced_part(part: LearningPart, share: float) -> LearningPart:
    """This share of the images, spread evenly, at their reduced size."""
    count = max(1, round(share * len(part)))
    chosen = np.linspace(0, len(part) - 1, count).round().astype(np.int64)
    ids = tuple(part.ids[row] for row in chosen)
    return replace(part, ids=ids, labels=part.labels[chosen], read=partial(_read_reduced, part, chosen))


def _all_images(part: LearningPart) -> NDArray[np.uint8]:
    """All images of a part, read some at a time: they may be larger before they are reduced."""
    starts = range(0, len(part), DECODED_AT_ONCE)
    rows = (np.arange(start, min(start + DECODED_AT_ONCE, len(part))) for start in starts)
    return np.concatenate([part.read(some) for some in rows])


def _read_reduced(part: LearningPart, chosen: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    return reduced(part.read(chosen[rows]))
