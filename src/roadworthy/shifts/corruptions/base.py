"""What the common corruptions share: parameters that lie between three published tables, and how they are checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter
from roadworthy.core.random import random_bytes
from roadworthy.core.roles import Shift
from roadworthy.core.validation import check_number
from roadworthy.shifts.base import Photometric

Triple = tuple[float, float, float]
"""A parameter at 32x32, at 64x64 and at 224x224."""

SIDES = (32, 64, 224)
"""Sides of the images of the published sets: CIFAR-10-C, Tiny ImageNet-C, ImageNet-C."""
SMALL, LARGE = SIDES[0], SIDES[-1]


@dataclass(frozen=True, kw_only=True)
class ThreeSizes(Shift):
    """A shift whose every parameter is a triple: its values in CIFAR-10-C, Tiny ImageNet-C and ImageNet-C.

    These are for images of 32, 64 and 224 pixels. Between two of the sizes a value lies on the straight line in the
    logarithm of the shorter side; beyond them it stays, except that parameters in `pixels` scale with the image. One
    number stands for three equal ones.
    """

    RANGES: ClassVar[Mapping[str, tuple[float, float]]]

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            value = getattr(self, name)
            triple = tuple(value) if isinstance(value, list | tuple) else (value,) * len(SIDES)
            if len(triple) != len(SIDES):
                raise InputError(
                    f"shift {self.name}: {name} must be one number, or three for images of 32, 64 and 224 pixels, "
                    f"not {value!r}"
                )
            for number in triple:
                check_number(f"shift {self.name}: {name}", number, low, high)
            object.__setattr__(self, name, triple)

    def sized(self, height: int, width: int) -> list[float]:
        """The numeric parameters for images of that size, in the order of the fields."""
        side = min(height, width)
        scales = {entry.name: beyond(side) if entry.metadata.get("pixels") else 1.0 for entry in fields(self)}
        return [between(getattr(self, name), side) * scales[name] for name in self.RANGES]


@dataclass(frozen=True, kw_only=True)
class Corruption(ThreeSizes, Photometric):
    """A corruption of the pixel values: boxes and masks stay as they are."""


def between(triple: Sequence[float], side: float) -> float:
    """The value for images of that shorter side s: a + t (b - a), t = log(s / u) / log(v / u).

    u and v are the two of the sizes 32, 64 and 224 that s lies between, a and b the values there; those of 32 and of
    224 hold beyond.

    >>> [between((1, 2, 5), side) for side in (10, 32, 64, 224, 500)]
    [1.0, 1.0, 2.0, 5.0, 5.0]
    >>> round(between((1, 2, 5), 32 * 2**0.5), 9)
    1.5
    """
    for low, high, u, v in zip(triple, triple[1:], SIDES, SIDES[1:], strict=False):
        if side < v:
            return low + math.log(max(side, u) / u) / math.log(v / u) * (high - low)
    return float(triple[-1])


def beyond(side: float) -> float:
    """How much larger than 224 pixels, or smaller than 32, an image is; 1 between them.

    >>> beyond(16), beyond(32), beyond(100), beyond(448)
    (0.5, 1.0, 1.0, 2.0)
    """
    return min(1.0, side / SMALL) * max(1.0, side / LARGE)


def severities(
    small: Sequence[float],
    middle: Sequence[float],
    large: Sequence[float],
    within: tuple[float, float],
    *,
    pixels: bool = False,
    neutral: float | None = None,
    inverse: bool = False,
) -> Any:
    """A parameter: five values at each of the three sizes, the least and largest it may be, whether it is in pixels.

    `neutral` and `inverse` as those of any `parameter`.

    >>> severities((0.4, 0.6, 0.7, 0.8, 1), (0.5, 0.75, 1, 1.25, 1.5), (1, 2, 3, 4, 6), (0, 64)).metadata["levels"][0]
    (0.4, 0.5, 1)
    """
    declared = parameter(*zip(small, middle, large, strict=True), within=within, neutral=neutral, inverse=inverse)
    return field(metadata={**declared.metadata, "pixels": pixels})


def standard_normal(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float32]:
    """Independent standard normal numbers (H, W), from 65,536 equally likely values."""
    words = random_bytes(rng, 2 * height * width).view("<u2")
    return _quantiles().take(words).reshape(height, width)


def as_bytes(image: Any) -> NDArray[np.uint8]:
    """A result of OpenCV as the array of bytes (uint8) that it is."""
    return np.asarray(image, np.uint8)


def surviving(kernel: NDArray[np.floating[Any]]) -> float:
    """Standard deviation of white noise after a blur by the kernel along both axes, as a share of that before.

    >>> surviving(np.array([[0.5], [0.5]]))
    0.5
    """
    return float((kernel**2).sum())


@cache
def _quantiles() -> NDArray[np.float32]:
    return np.asarray(ndtri((np.arange(2**16) + 0.5) / 2**16), np.float32)
