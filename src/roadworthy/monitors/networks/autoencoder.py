"""Autoencoders that a monitor trains: plain ones with either loss, and a variational one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.models.autoencoders import autoencoder, reconstruction_errors, variational_losses
from roadworthy.models.task_training import LearningPart, Task
from roadworthy.models.torch_tensors import import_torch
from roadworthy.models.training import DECODED_AT_ONCE
from roadworthy.monitors.networks.base import OwnNetwork

if TYPE_CHECKING:
    import torch

VARIATIONAL = "vae"


def make_autoencoder(settings: Any) -> torch.nn.Module:
    """The network of these settings: loss, width, most_width, bottleneck, channels and size (height, width)."""
    return autoencoder(
        settings["channels"],
        tuple(settings["size"]),
        width=settings["width"],
        most_width=settings["most_width"],
        bottleneck=settings["bottleneck"],
        variational=settings["loss"] == VARIATIONAL,
    )


class ReconstructionTask(Task):
    """Reconstruct an image; judged by the share of the squared error of the mean image that is explained."""

    figure = "explained"

    def __init__(self, loss: str, parts: tuple[LearningPart, LearningPart]) -> None:
        self.loss_name = loss
        self.baseline = mean_image_error(*parts)
        if self.baseline <= 0:
            raise InputError("an autoencoder cannot be trained on images that are all the same: give others")

    def targets(self, part: LearningPart) -> torch.Tensor:
        """Nothing: an image is its own target."""
        rows: torch.Tensor = import_torch().zeros(len(part))
        return rows

    def loss(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss."""
        return self._losses(network, images).mean()

    def judge(self, network: Any, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """1 - squared error / that of the mean image, of each image, and the mean loss."""
        squared = reconstruction_errors(network(images), images, "mse")
        return 1 - squared / self.baseline, self._losses(network, images).mean()

    def facts(self) -> dict[str, Any]:
        """The squared error of the mean image."""
        return {"mean_image_error": self.baseline}

    def _losses(self, network: Any, images: torch.Tensor) -> torch.Tensor:
        if self.loss_name == VARIATIONAL:
            return variational_losses(network, images)
        return reconstruction_errors(network(images), images, self.loss_name)


def mean_image_error(train: LearningPart, held_out: LearningPart) -> float:
    """The squared error per value, pixels from 0 to 1, of held-out images against the mean training image."""
    mean = np.zeros(())
    for start in range(0, len(train), DECODED_AT_ONCE):
        rows = np.arange(start, min(start + DECODED_AT_ONCE, len(train)))
        mean = mean + train.read(rows).sum(axis=0, dtype=np.float64) / len(train)
    total = 0.0
    for start in range(0, len(held_out), DECODED_AT_ONCE):
        rows = np.arange(start, min(start + DECODED_AT_ONCE, len(held_out)))
        total += float(np.square((held_out.read(rows) - mean) / 255).mean(axis=(1, 2, 3)).sum())
    return total / len(held_out)


class AutoencoderNetwork(OwnNetwork):
    """An autoencoder of the training images; its settings are those of `make_autoencoder`."""

    kind = "autoencoder"
    objective: ClassVar[Mapping[str, str]] = {
        "mse": "squared error",
        "bce": "binary cross-entropy of pixels",
        VARIATIONAL: "variational bound",
    }

    def make(self) -> torch.nn.Module:
        """The network before training."""
        return make_autoencoder(self.settings)

    def task(self, parts: tuple[LearningPart, LearningPart]) -> Task:
        """Reconstruction, with the loss of the settings."""
        return ReconstructionTask(self.settings["loss"], parts)
