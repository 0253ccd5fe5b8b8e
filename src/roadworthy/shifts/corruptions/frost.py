"""Frost, drawn by code: a coloured texture of ice crystals that tiles without a seam, the same every time."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.shifts.corruptions.base import as_bytes

SIDE = 768
"""Side of the texture in pixels of a 224x224 image."""
CRYSTALS = 260
ICE = (0.78, 0.94, 1.0)
"""Red, green and blue of ice, relative to its brightness."""
DARKEST, BRIGHTEST = 40.0, 235.0


@lru_cache(maxsize=8)
def frost(height: int, width: int, unit: float, channels: int) -> NDArray[np.uint8]:
    """The texture at `unit` times its size, so far continued that a window of (H, W) fits anywhere: read-only.

    Returns (S + H, S + W, channels) uint8, S = 768 `unit` rounded; one channel is the mean of the three.

    >>> frost(32, 48, 1 / 7, 3).shape
    (142, 158, 3)
    """
    side = max(1, round(SIDE * unit))
    interpolation = cv2.INTER_AREA if side < SIDE else cv2.INTER_LINEAR
    tile = as_bytes(cv2.resize(_tile(), (side, side), interpolation=interpolation))
    if channels == 1:
        tile = np.rint(tile.mean(axis=2, keepdims=True)).astype(np.uint8)
    texture = np.pad(tile, ((0, height), (0, width), (0, 0)), mode="wrap")
    texture.flags.writeable = False
    return texture


@cache
def _tile() -> NDArray[np.uint8]:
    """A pale veil with brighter crystals on it, (S, S, 3)."""
    rng = np.random.Generator(np.random.Philox(key=0))
    veil = _veil(rng)
    canvas = np.zeros((2 * SIDE, 2 * SIDE), np.uint8)
    for _ in range(CRYSTALS):
        left, top, angle = rng.random(3) * (SIDE, SIDE, 2 * math.pi)
        _grow(canvas, rng, (left + SIDE / 2, top + SIDE / 2), angle, length=rng.uniform(50, 190), depth=2)
    crystals = canvas.reshape(2, SIDE, 2, SIDE).max(axis=(0, 2)).astype(np.float64)
    glow = _wrapped_blur(crystals, 5.0)
    light = 0.62 * veil + 0.42 * _wrapped_blur(crystals, 0.7) / 255 + 0.45 * glow / 255
    light = DARKEST + (BRIGHTEST - DARKEST) * np.clip(light, 0, 1)
    tints = [light**gamma * 255 ** (1 - gamma) * share for gamma, share in zip((1.15, 1.05, 1.0), ICE, strict=True)]
    return np.asarray(np.rint(np.stack(tints, axis=2)), np.uint8)


def _veil(rng: np.random.Generator) -> NDArray[np.float64]:
    """Soft clouds from 0 to 1 in four octaves."""
    total = np.zeros((SIDE, SIDE))
    for octave, share in enumerate((0.45, 0.3, 0.15, 0.1)):
        cells = 6 * 2**octave
        noise = np.pad(rng.random((cells, cells)), 2, mode="wrap")
        scale = SIDE // cells
        large = cv2.resize(noise, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        total += share * large[2 * scale : 2 * scale + SIDE, 2 * scale : 2 * scale + SIDE]
    low, high = total.min(), total.max()
    return np.asarray((total - low) / (high - low))


def _grow(
    canvas: NDArray[np.uint8],
    rng: np.random.Generator,
    start: tuple[float, float],
    angle: float,
    length: float,
    depth: int,
) -> None:
    """A stem that bends a little, with shorter twigs on both sides, and twigs on these: a fern of ice."""
    bend, brightness = rng.normal(0, 0.012), int(rng.integers(110, 256))
    x, y = start
    step = 5.0 if depth else length
    twig_angle = math.radians(rng.uniform(38, 62))
    for travelled in np.arange(0, length, step).tolist():
        ahead = x + step * math.cos(angle), y + step * math.sin(angle)
        fade = 1 - 0.6 * travelled / length if depth else 0.7
        first, last = ((round(8 * px), round(8 * py)) for px, py in ((x, y), ahead))
        cv2.line(canvas, first, last, int(brightness * fade), 2 if depth == 2 else 1, cv2.LINE_AA, 3)
        if depth and travelled > step:
            for side in (-1, 1):
                twig = 0.45 * (length - travelled) * rng.uniform(0.3, 1)
                if twig > 2 * step:
                    _grow(canvas, rng, ahead, angle + side * twig_angle, min(twig, 60), depth - 1)
        (x, y), angle = ahead, angle + bend * step


def _wrapped_blur(image: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    margin = math.ceil(4 * sigma)
    blurred = cv2.GaussianBlur(np.pad(image, margin, mode="wrap"), (0, 0), sigma)
    return np.asarray(blurred[margin:-margin, margin:-margin])
