"""What the families of shifts share: painting and moving, checks of parameters, a Gaussian, sizes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import check_ranges
from roadworthy.core.random import Streams
from roadworthy.core.roles import Shift
from roadworthy.core.types import Batch, Images

Paint = Callable[[Images, Images, np.random.Generator], object]

REFERENCE_SIZE = 64
"""Side of the images that parameters in pixels are for."""
PIXELS = "pixels at 64x64"
"""The unit of these parameters."""
LUMA = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in grey (ITU-R BT.601)."""
CUT_OFF = 3.0
"""Where a Gaussian ends, in sigma."""


@dataclass(frozen=True, kw_only=True)
class Ranged(Shift):
    """A shift whose numbers are checked against the ranges of its parameters."""

    def __post_init__(self) -> None:
        check_ranges("shift", self)


@dataclass(frozen=True, kw_only=True)
class Photometric(Ranged):
    """A shift of the pixel values: boxes and masks stay as they are."""

    @property
    def keeps_places(self) -> bool:
        """Always."""
        return True

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with every image painted anew from its own random stream."""
        images = np.ascontiguousarray(batch.images)
        painted = np.empty_like(images)
        paint = self._painter(*images.shape[1:])
        for image, target, rng in zip(images, painted, streams.each(batch.ids), strict=True):
            paint(image, target, rng)
        return batch.with_images(painted)

    @abstractmethod
    def _painter(self, height: int, width: int, channels: int) -> Paint:
        """The function `paint(image, target, rng)` for images of that shape."""


@dataclass(frozen=True, kw_only=True)
class Geometric(Ranged):
    """A shift of places: image, box and mask move together."""

    DRAWS: ClassVar[int]

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with every image moved by `DRAWS` uniform numbers of its own random stream."""
        draws = [rng.random(self.DRAWS) for rng in streams.each(batch.ids)]
        return self._move(batch, np.array(draws).reshape(len(batch), self.DRAWS))

    @abstractmethod
    def _move(self, batch: Batch, draws: NDArray[np.float64]) -> Batch:
        """The moved batch for draws (N, DRAWS) on [0, 1)."""


def unit(height: int, width: int) -> float:
    """Pixels of this image for one pixel of a 64x64 image."""
    return min(height, width) / REFERENCE_SIZE


def coloured(grey: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """(H, W) as (H, W, channels)."""
    return grey[:, :, None] if channels == 1 else np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), np.uint8)


@lru_cache(maxsize=64)
def gaussian(sigma: float) -> NDArray[np.float64]:
    """Weights (K, 1) of a Gaussian, cut off at 3 sigma, that sum to 1; a single 1 where sigma is 0."""
    reach = math.ceil(CUT_OFF * sigma)
    weights = np.array([math.exp(-0.5 * (x / sigma) ** 2) if x else 1.0 for x in range(-reach, reach + 1)])
    return np.asarray(weights / weights.sum()).reshape(-1, 1)
