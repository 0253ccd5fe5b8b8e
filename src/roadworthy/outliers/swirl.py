"""Images turned the more the nearer to their centre: the colours stay about where they were, the shapes do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.protocols import OUTLIERS
from roadworthy.core.random import Streams
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.outliers.base import Painted, Rows, check_number, pixels
from roadworthy.shifts.base import unit


@OUTLIERS.register("swirl")
@dataclass(frozen=True, kw_only=True)
class Swirl(Painted):
    """A whirl: the pixel at distance r from the centre is turned by a(r) = s 10^(-3 r / R) radians.

    s = `strength` is the turn at the centre in radians; at R = `radius`, in pixels of a 64x64 image, a thousandth of it
    is left. Bilinear; beyond its edge the image is mirrored.
    """

    name: ClassVar[str] = "swirl"

    strength: float = 10.0
    radius: float = 100.0

    def __post_init__(self) -> None:
        check_number(self, "strength", self.strength, -100, 100)
        check_number(self, "radius", self.radius, 1, 10_000)

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """The images (N, H, W, C), swirled."""
        images = pixels(source, rows)
        swirled = np.empty_like(images)
        whole, fraction = _places(float(self.strength), float(self.radius), *source.size)
        for image, target in zip(images, swirled, strict=True):
            cv2.remap(image, whole, fraction, cv2.INTER_LINEAR, dst=target, borderMode=cv2.BORDER_REFLECT)
        return swirled


@lru_cache(maxsize=8)
def _places(strength: float, radius: float, height: int, width: int) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """Where every pixel comes from, as OpenCV wants it: whole pixels (H, W, 2) and the rest in 1/32 (H, W)."""
    y, x = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2]).reshape(2, 1, 1)
    turn = strength * 10 ** (-3 * np.hypot(x, y) / (radius * unit(height, width)))
    from_x = x * np.cos(turn) - y * np.sin(turn) + (width - 1) / 2
    from_y = x * np.sin(turn) + y * np.cos(turn) + (height - 1) / 2
    whole, fraction = cv2.convertMaps(from_x.astype(np.float32), from_y.astype(np.float32), cv2.CV_16SC2)
    return np.asarray(whole, np.int16), np.asarray(fraction, np.uint16)
