"""Light as pixels hold it: sRGB values to linear light and back, and blending in linear light.

Weather mixes light, and light adds up in linear units, not in the values of pixels. The curve is that of IEC 61966-2-1:
with s = v / 255, the light is s / 12.92 up to s = 0.04045 and ((s + 0.055) / 1.055)^2.4 above it.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.types import Images

WHITE = 255.0
LINEAR_END, SLOPE, OFFSET, EXPONENT = 0.04045, 12.92, 0.055, 2.4
"""Where the curve leaves the straight line, the slope of that line, and the offset and exponent of the power above."""
BINS = 2**16
"""Steps of light in the table that finds the nearest pixel value: so fine that none holds two borders."""


def linear_light(values: ArrayLike) -> NDArray[np.float64]:
    """The light on [0, 1] of sRGB values on [0, 255], of any shape.

    >>> linear_light([0, 10, 128, 255]).round(6).tolist()
    [0.0, 0.003035, 0.215861, 1.0]
    """
    shares = np.asarray(values, np.float64) / WHITE
    curved = ((shares + OFFSET) / (1 + OFFSET)) ** EXPONENT
    return np.where(shares <= LINEAR_END, shares / SLOPE, curved)


def srgb_values(light: ArrayLike) -> NDArray[np.float64]:
    """The sRGB values on [0, 255], not rounded, of light on [0, 1]: the inverse of `linear_light`.

    >>> srgb_values(linear_light([0, 10, 128, 255])).round(9).tolist()
    [0.0, 10.0, 128.0, 255.0]
    """
    amounts = np.asarray(light, np.float64)
    curved = (1 + OFFSET) * amounts ** (1 / EXPONENT) - OFFSET
    return np.asarray(WHITE * np.where(amounts <= LINEAR_END / SLOPE, SLOPE * amounts, curved))


def blend(image: Images, kept: NDArray[np.float32], added: NDArray[np.float32], target: Images) -> None:
    """Write `kept` L0 + `added` as sRGB values, rounded to the nearest, into `target`; L0 is the light of `image`.

    image, target  (H, W, C) uint8;  kept, added  shares of light on [0, 1], (H, W) or anything that broadcasts to it

    >>> picture, blended = np.full((1, 1, 1), 255, np.uint8), np.empty((1, 1, 1), np.uint8)
    >>> blend(picture, np.float32([[0.5]]), np.float32([[0.0]]), blended)
    >>> int(blended[0, 0, 0])
    188
    """
    light = np.asarray(cv2.LUT(image, _light_table()), np.float32).reshape(image.shape)
    light *= kept[..., None]
    light += added[..., None]
    lowest, border = _nearest_tables()
    bins = np.minimum(light * np.float32(BINS), BINS - 1).astype(np.uint16)
    values = lowest.take(bins)
    np.add(values, light >= border.take(values), out=target, casting="unsafe")


@cache
def _light_table() -> NDArray[np.float32]:
    return linear_light(np.arange(256)).astype(np.float32).reshape(1, 256)


@cache
def _nearest_tables() -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """The value nearest to the lower end of every bin of light, and for each value the light at which it ends."""
    borders = linear_light(np.arange(255) + 0.5).astype(np.float32)
    lower_ends = np.arange(BINS) / BINS
    lowest = np.searchsorted(borders, lower_ends.astype(np.float32), side="right").astype(np.uint8)
    return lowest, np.append(borders, np.float32(np.inf))
