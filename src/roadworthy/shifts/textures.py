"""Procedural snow and rain: grey textures that tile without a seam, made by code once and the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

Texture = NDArray[np.uint8]

UNITS = 256
"""Side of a texture in units. A unit is a pixel of a 64x64 image, so the texture is four such images wide and high."""
FINEST, COARSEST = 4.0, 0.125
"""Texels per unit of the finest and of the coarsest copy."""
TEXELS_PER_PIXEL = 1.5
"""A copy is fine enough for an image when a pixel spans at least this many texels."""
SMOOTHING = 1.0
"""Blur of every copy in texels, so that its nearest texel is a fair sample of the area of a pixel."""


def snow(texels_per_unit: float) -> Texture:
    """Snow: round soft flakes, many far and small, few near and large.

    Each of the 1400 flakes is a exp(-d^2 / (2 r^2)), d the distance to its centre; in units, radius r = 0.35 to 1.1
    (small ones more often) and amplitude a = 80 to 255. Returns (S, S) uint8, read-only, S = 256 texels_per_unit.

    >>> snow(1).shape, snow(2).shape
    ((256, 256), (512, 512))
    """
    return _copy(_flake, 1400, texels_per_unit)


def rain(texels_per_unit: float) -> Texture:
    """Rain: upright streaks with a soft edge, thin and of many lengths.

    Each of the 1500 streaks is a exp(-x^2 / (2 w^2)) sqrt(sin(pi y / l)), 0 <= y <= l; in units, width w = 0.3 to 0.6,
    length l = 8 to 26 and amplitude a = 90 to 255. Returns (S, S) uint8, read-only, S = 256 texels_per_unit.

    >>> rain(1).shape, rain(2).shape
    ((256, 256), (512, 512))
    """
    return _copy(_streak, 1500, texels_per_unit)


def resolution_for(pixels_per_unit: float) -> float:
    """Texels per unit of the coarsest copy that is fine enough for images of that many pixels per unit.

    >>> resolution_for(64 / 64), resolution_for(32 / 64), resolution_for(224 / 64), resolution_for(1 / 64)
    (2.0, 1.0, 4.0, 0.125)
    """
    needed = 2.0 ** math.ceil(math.log2(TEXELS_PER_PIXEL * pixels_per_unit))
    return min(max(needed, COARSEST), FINEST)


Grain = Callable[[np.random.Generator], NDArray[np.float64]]


@cache
def _copy(grain: Grain, count: int, texels_per_unit: float) -> Texture:
    """The texture at a resolution: texels are means over their area, then smoothed; it tiles like the finest."""
    side, margin = round(UNITS * texels_per_unit), math.ceil(3 * SMOOTHING)
    coarse = cv2.resize(_scatter(grain, count), (side, side), interpolation=cv2.INTER_AREA)
    smooth = cv2.GaussianBlur(np.pad(coarse, margin, mode="wrap"), (2 * margin + 1, 2 * margin + 1), SMOOTHING)
    copy = np.array(smooth[margin:-margin, margin:-margin], dtype=np.uint8, order="C")
    copy.flags.writeable = False
    return copy


@cache
def _scatter(grain: Grain, count: int) -> Texture:
    """The finest texture: grains at random places, edges wrapped around; the brightest wins where they overlap."""
    side = round(UNITS * FINEST)
    canvas = np.zeros((2 * side, 2 * side), dtype=np.uint8)
    rng = np.random.Generator(np.random.Philox(key=0))
    for _ in range(count):
        top, left = rng.integers(0, side, size=2)
        patch = np.rint(grain(rng)).astype(np.uint8)
        window = canvas[top : top + patch.shape[0], left : left + patch.shape[1]]
        np.maximum(window, patch, out=window)
    return np.asarray(canvas.reshape(2, side, 2, side).max(axis=(0, 2)))


def _flake(rng: np.random.Generator) -> NDArray[np.float64]:
    size, brightness = rng.random(2)
    profile = _bell(FINEST * (0.35 + 0.75 * size**2))
    return np.asarray((80 + 175 * brightness) * np.outer(profile, profile))


def _streak(rng: np.random.Generator) -> NDArray[np.float64]:
    width, length, brightness = rng.random(3)
    texels = round(FINEST * (8 + 18 * length))
    along = np.sqrt(np.sin(np.pi * (np.arange(texels) + 0.5) / texels))
    return np.asarray((90 + 165 * brightness) * np.outer(along, _bell(FINEST * (0.3 + 0.3 * width))))


def _bell(radius: float) -> NDArray[np.float64]:
    reach = math.ceil(3 * radius)
    return np.asarray(np.exp(-0.5 * (np.arange(-reach, reach + 1) / radius) ** 2))
