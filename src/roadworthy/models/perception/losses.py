"""Losses of box regression. Imports torch: for use by the training, which imports it when it is needed."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

ENCODED_LOSSES = frozenset({"mae", "mse"})
"""Those that compare what the network answers with the encoded target; the others compare decoded boxes."""


def box_iou(boxes: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Intersection over union (N,) of boxes (N, 4) of corners x0, y0, x1, y1, row by row.

    IoU = |A and B| / |A or B|

    A box whose corners are crossed or whose side is 0 has no area; where neither box has an area, IoU is 0. Values and
    gradients are finite for all finite boxes.

    >>> box_iou(torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0, 2.0]])).tolist()
    [0.3333333432674408]
    """
    shared = _area(torch.maximum(boxes[:, :2], true[:, :2]), torch.minimum(boxes[:, 2:], true[:, 2:]))
    own, other = _area(boxes[:, :2], boxes[:, 2:]), _area(true[:, :2], true[:, 2:])
    overlap = torch.where((own > 0) & (other > 0), shared, torch.zeros_like(shared))
    return _ratio(overlap, own + other - overlap)


def box_diou(boxes: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Distance-IoU (N,) of boxes (N, 4), row by row: IoU - rho^2 / c^2.

    rho is the distance of the centres, c the diagonal of the smallest box that holds all corners of both. Where both
    boxes are the same point, the distance counts 0.

    >>> box_diou(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([[1.0, 1.0, 2.0, 2.0]])).tolist()
    [-0.25]
    """
    corners = torch.stack([boxes[:, :2], boxes[:, 2:], true[:, :2], true[:, 2:]])
    diagonal = (corners.amax(dim=0) - corners.amin(dim=0)).square().sum(dim=1)
    centres = (boxes[:, :2] + boxes[:, 2:] - true[:, :2] - true[:, 2:]) / 2
    return box_iou(boxes, true) - _ratio(centres.square().sum(dim=1), diagonal)


def iou_loss(boxes: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """The mean of 1 - IoU over decoded boxes (N, 4) in pixels.

    >>> iou_loss(torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[0.0, 0.0, 2.0, 1.0]])).item()
    0.5
    """
    return 1 - box_iou(boxes, true).mean()


def diou_loss(boxes: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """The mean of 1 - DIoU over decoded boxes (N, 4) in pixels.

    >>> diou_loss(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([[1.0, 1.0, 2.0, 2.0]])).item()
    1.25
    """
    return 1 - box_diou(boxes, true).mean()


LOSS_FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mae": F.l1_loss,
    "mse": F.mse_loss,
    "iou": iou_loss,
    "diou": diou_loss,
}


def _area(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The area (N,) between corners (N, 2); 0 where one side is not above 0."""
    extents = (high - low).clamp(min=0)
    return extents[:, 0] * extents[:, 1]


def _ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """above / below, and 0 where below is 0, with finite gradients there too."""
    exists = below > 0
    return torch.where(exists, above / torch.where(exists, below, torch.ones_like(below)), torch.zeros_like(above))
