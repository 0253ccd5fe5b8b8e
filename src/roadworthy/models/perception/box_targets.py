"""Three ways to write a box as the four numbers that a network learns, and the way back to corners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

PARAMETRISATIONS = ("corners", "centre", "anchor")
LARGEST_LOG_SIZE = 10.0
"""Logarithms of sizes are held within this distance of 0, so that no network answers an infinite box."""

Boxes = NDArray[Any]


def relative_corners(boxes: Boxes, size: tuple[int, int]) -> NDArray[np.float64]:
    """Boxes (N, 4) in pixels of images of `size` (H, W) as shares of their width and height.

    >>> relative_corners(np.array([[8.0, 4.0, 16.0, 12.0]]), (16, 32)).tolist()
    [[0.25, 0.25, 0.5, 0.75]]
    """
    return np.asarray(boxes, np.float64) / sides(size)


def sides(size: tuple[int, int]) -> NDArray[np.float64]:
    """What relative corners x0, y0, x1, y1 are multiplied by to be in pixels: (4,) width, height, width, height."""
    height, width = size
    return np.array([width, height, width, height], np.float64)


@dataclass(frozen=True)
class BoxTargets:
    """How a box is written as a network's four outputs; all lengths are shares of the image's width and height.

    corners  x0, y0, x1, y1
    centre   c_x = (x0 + x1) / 2, c_y, w = x1 - x0, h
    anchor   t_x = (c_x - c_xa) / w_a, t_y = (c_y - c_ya) / h_a, t_w = log(w / w_a), t_h = log(h / h_a)
             with the anchor c_xa, c_ya, w_a, h_a, which is the mean box of the training data

    >>> targets = BoxTargets("anchor", (0.5, 0.5, 0.4, 0.2))
    >>> rows = targets.encode(np.array([[0.3, 0.4, 0.7, 0.6], [0.5, 0.4, 0.9, 0.6]]))
    >>> abs(rows.round(6)).tolist(), targets.decode(rows).round(6).tolist()
    ([[0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0]], [[0.3, 0.4, 0.7, 0.6], [0.5, 0.4, 0.9, 0.6]])
    """

    parametrisation: str
    anchor: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        parse_choice("boxes", self.parametrisation, PARAMETRISATIONS)
        if (self.parametrisation == "anchor") != (self.anchor is not None):
            raise InputError("an anchor box is given for the parametrisation `anchor` and for no other")
        if self.anchor is not None and not (np.isfinite(self.anchor).all() and min(self.anchor[2:]) > 0):
            raise InputError(f"the anchor box must have a width and a height above 0, not {self.anchor}")

    @classmethod
    def of_training(cls, parametrisation: str, corners: Boxes) -> BoxTargets:
        """The parametrisation for training boxes: relative corners (N, 4), whose mean box is the anchor."""
        if parametrisation != "anchor":
            return cls(parametrisation)
        if not len(corners):
            raise InputError("an anchor needs at least one training box")
        x0, y0, x1, y1 = np.asarray(corners, np.float64).mean(axis=0).tolist()
        return cls(parametrisation, ((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0))

    def encode(self, corners: Boxes) -> NDArray[np.float64]:
        """What the network should answer, (N, 4), to boxes (N, 4) of relative corners.

        With an anchor, a box without width or height cannot be written: an `InputError`.
        """
        exact: NDArray[np.float64] = np.asarray(corners, np.float64)
        if self.parametrisation == "corners":
            return exact
        centres, extents = (exact[:, :2] + exact[:, 2:]) / 2, exact[:, 2:] - exact[:, :2]
        if self.anchor is None:
            return np.concatenate([centres, extents], axis=1)
        if (extents <= 0).any():
            raise InputError("a box without width or height has no logarithm: use another parametrisation than anchor")
        anchor = np.array(self.anchor)
        return np.concatenate([(centres - anchor[:2]) / anchor[2:], np.log(extents / anchor[2:])], axis=1)

    def decode(self, rows: Boxes) -> NDArray[np.float64]:
        """The relative corners (N, 4) that answers (N, 4) of a network stand for: the inverse of `encode`."""
        exact: NDArray[np.float64] = np.asarray(rows, np.float64)
        if self.parametrisation == "corners":
            return exact
        centres, extents = exact[:, :2], exact[:, 2:]
        if self.anchor is not None:
            anchor = np.array(self.anchor)
            centres = centres * anchor[2:] + anchor[:2]
            extents = np.exp(np.clip(extents, -LARGEST_LOG_SIZE, LARGEST_LOG_SIZE)) * anchor[2:]
        return np.concatenate([centres - extents / 2, centres + extents / 2], axis=1)

    def decode_pixels(self, rows: Boxes, size: tuple[int, int]) -> NDArray[np.float64]:
        """The corners (N, 4) in pixels of images of `size` (H, W) that answers (N, 4) stand for.

        >>> BoxTargets("centre").decode_pixels(np.array([[0.5, 0.5, 0.5, 1.0]]), (10, 20)).tolist()
        [[5.0, 0.0, 15.0, 10.0]]
        """
        return self.decode(rows) * sides(size)

    def decoder(self) -> torch.nn.Module:
        """`decode` as a torch module, the last one of an exported network.

        >>> torch = import_torch()
        >>> BoxTargets("centre").decoder()(torch.tensor([[0.5, 0.5, 0.5, 1.0]])).tolist()
        [[0.25, 0.0, 0.75, 1.0]]
        """
        decoder: torch.nn.Module = _decoder(self.parametrisation, self.anchor)
        return decoder


def _decoder(parametrisation: str, anchor: Sequence[float] | None) -> Any:
    torch = import_torch()
    if parametrisation == "corners":
        return torch.nn.Identity()

    class Decoder(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Centre and size, or offsets from an anchor, to corners."""

        def __init__(self) -> None:
            super().__init__()
            self.anchored = anchor is not None
            if anchor is not None:
                self.register_buffer("anchor_centre", torch.tensor(anchor[:2], dtype=torch.float32))
                self.register_buffer("anchor_size", torch.tensor(anchor[2:], dtype=torch.float32))

        def forward(self, rows: Any) -> Any:
            centres, extents = rows[:, :2], rows[:, 2:]
            if self.anchored:
                centres = centres * self.anchor_size + self.anchor_centre
                extents = extents.clamp(-LARGEST_LOG_SIZE, LARGEST_LOG_SIZE).exp() * self.anchor_size
            return torch.cat([centres - extents / 2, centres + extents / 2], dim=1)

    return Decoder()
