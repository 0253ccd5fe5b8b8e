"""What a localizer learns: parts of data with boxes, the loss of boxes, and the mean box to start from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.models.perception.box_targets import BoxTargets, relative_corners, sides
from roadworthy.models.task_training import LearningPart, Task, contents_of
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch


def box_part(data: Dataset) -> LearningPart:
    """The images of a data set that have a box; a box without area is an `InputError` that names its image."""
    contents = contents_of(data)
    kept = np.flatnonzero(np.isfinite(contents.boxes).all(axis=1))
    if not kept.size:
        raise no_boxes(data)
    corners = relative_corners(contents.boxes[kept], data.size)
    ids = tuple(data.ids[row] for row in kept)
    for flat in np.flatnonzero((corners[:, 2:] <= corners[:, :2]).any(axis=1))[:1]:
        raise InputError(f"image {ids[flat]} of {data.name} has a box without area: fix it or leave the image out")
    return LearningPart(ids, data.labels[kept], lambda rows: contents.read(kept[rows]), corners, len(data) - len(kept))


def no_boxes(data: Dataset) -> InputError:
    """What is said of data that a localizer cannot learn from."""
    return InputError(f"data set {data.name} has no boxes, which a localizer learns from: give columns x0, y0, x1, y1")


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
