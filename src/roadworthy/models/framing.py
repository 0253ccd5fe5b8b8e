"""Bringing images to a model's size the way Pillow does it: resized, then cut out of the middle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from roadworthy.core.errors import InputError
from roadworthy.core.types import Images

METHODS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Ways of Pillow to resize, by its own numbers."""


@dataclass(frozen=True)
class Frame:
    """How Pillow brings an image to a model's size: it is resized, then a part of its middle is cut out.

    resize   (H, W), or one number for the shorter side, the other in proportion
    method   one of `METHODS`
    crop     (H, W) of the part that is cut out, no larger than what is resized; None: all of it
    rounds   whether half a pixel beside that part is rounded, as torchvision and timm do, or dropped

    >>> frame = Frame(4, "bilinear", (3, 3))
    >>> frame(np.zeros((2, 8, 16, 3), np.uint8)).shape, str(frame)
    ((2, 3, 3, 3), 'shorter side to 4 (bilinear), middle 3x3')
    """

    resize: int | tuple[int, int]
    method: str = "bilinear"
    crop: tuple[int, int] | None = None
    rounds: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS.values():
            raise InputError(f"unknown way to resize {self.method!r}: use {', '.join(METHODS.values())}")
        if self.crop is not None and any(part > side for part, side in zip(self.crop, self.before_crop, strict=True)):
            raise InputError(f"the part {_shown(self.crop)} does not fit into an image of {_shown(self.before_crop)}")

    @property
    def before_crop(self) -> tuple[int, int]:
        """(H, W) to which it resizes a square image."""
        return (self.resize, self.resize) if isinstance(self.resize, int) else self.resize

    def __call__(self, images: Images) -> Images:
        """Images (N, H, W, C) uint8 at the size of the model."""
        height, width = self._resized(*images.shape[1:3])
        top, left, rows, columns = self._window(height, width)
        out = np.empty((len(images), rows, columns, images.shape[-1]), np.uint8)
        method = self._method()
        for image, target in zip(images, out, strict=True):
            pixels = image[..., 0] if image.shape[-1] == 1 else np.ascontiguousarray(image)
            resized = np.asarray(Image.fromarray(pixels).resize((width, height), method))
            target[...] = resized[top : top + rows, left : left + columns].reshape(target.shape)
        return out

    def matrices(self, height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What it does along the height and along the width of an image, as matrices (new, old)."""
        new_height, new_width = self._resized(height, width)
        top, left, rows, columns = self._window(new_height, new_width)
        down = _pillow_matrix(height, new_height, self.method)[top : top + rows]
        across = _pillow_matrix(width, new_width, self.method)[left : left + columns]
        return down, across

    def settings(self) -> dict[str, Any]:
        """Everything that changes an image, as plain values."""
        resize = self.resize if isinstance(self.resize, int) else list(self.resize)
        crop = None if self.crop is None else list(self.crop)
        return {"resize": resize, "method": self.method, "crop": crop, "rounds": self.rounds}

    def __str__(self) -> str:
        to = f"shorter side to {self.resize}" if isinstance(self.resize, int) else f"resized to {_shown(self.resize)}"
        return f"{to} ({self.method}){'' if self.crop is None else f', middle {_shown(self.crop)}'}"

    def _method(self) -> Image.Resampling:
        return Image.Resampling[self.method.upper()]

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.resize, int):
            return self.resize
        if height <= width:
            return self.resize, int(self.resize * width / height)
        return int(self.resize * height / width), self.resize

    def _window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Top, left, height and width of the part that is cut out of a resized image."""
        if self.crop is None:
            return 0, 0, height, width
        offset = [side - part for side, part in zip((height, width), self.crop, strict=True)]
        top, left = (round(free / 2) if self.rounds else free // 2 for free in offset)
        return top, left, *self.crop


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@cache
def _pillow_matrix(old: int, new: int, method: str) -> NDArray[np.float64]:
    """(new, old): resizing along one axis as a matrix, read off Pillow by resizing the identity."""
    rows = Image.fromarray(np.eye(old, dtype=np.float32)).resize((old, new), Image.Resampling[method.upper()])
    return np.asarray(rows, np.float64)
