"""Textures that all drawings share, made once: soft clouds of noise, rain, the surfaces of roads."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import Streams

Texture = NDArray[np.float32]

TILE = 256
"""Side of every tile in texels; a tile repeats without a seam."""
TEXELS_PER_METRE = 16


@cache
def clouds() -> Texture:
    """Noise in six octaves (2 TILE, 2 TILE), mean 0 and variance 1: dirt, leaves, clouds. It repeats after TILE."""
    total = np.zeros((TILE, TILE), dtype=np.float32)
    for octave in range(2, 8):
        cells = _white("clouds", octave, 2**octave)
        wrapped = np.pad(cells, 2, mode="wrap")
        scale = TILE // 2**octave
        grown = cv2.resize(wrapped, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        total += np.float32(0.62**octave) * grown[2 * scale : 2 * scale + TILE, 2 * scale : 2 * scale + TILE]
    return _frozen(np.tile((total - total.mean()) / total.std(), (2, 2)))


@cache
def streaks() -> Texture:
    """Falling rain (2 TILE, 2 TILE), 0 to 1: thin slanting lines. It repeats after TILE."""
    canvas = np.zeros((3 * TILE, 3 * TILE), dtype=np.uint8)
    (rng,) = Streams("streaks").each(["rain"])
    for x, y, length, strength in rng.uniform((0, 0, 14, 60), (TILE, TILE, 40, 200), size=(260, 4)):
        for shift_x in range(0, 3 * TILE, TILE):
            for shift_y in range(0, 3 * TILE, TILE):
                start = (round((x + shift_x) * 16), round((y + shift_y) * 16))
                end = (round((x + shift_x + 0.22 * length) * 16), round((y + shift_y + length) * 16))
                cv2.line(canvas, start, end, strength, 1, cv2.LINE_AA, 4)
    tile = canvas[TILE : 2 * TILE, TILE : 2 * TILE].astype(np.float32) / 255
    return _frozen(np.tile(tile, (2, 2)))


@cache
def pavement(surface: str) -> Texture:
    """A road surface seen from above (TILE, TILE), factors of brightness around 1; 16 texels are one metre."""
    grain = _white(surface, 0, TILE)
    if surface == "cobbles":
        return _frozen(_cobbles(grain))
    if surface == "concrete":
        slabs = 1 + 0.05 * grain
        slabs[::64] = slabs[1::64] = 0.55
        slabs[:, ::56] = 0.6
        return _frozen(slabs)
    coarse = cv2.GaussianBlur(grain, (0, 0), 1.0)
    return _frozen(1 + 0.12 * grain + 0.12 * coarse)


def _cobbles(grain: Texture) -> Texture:
    """Stones of 8 by 6 texels in a broken bond, each of its own brightness, with dark joints."""
    rows, columns = np.indices((TILE, TILE))
    row = rows // 8
    column = (columns + 4 * (row % 2)) // 8 % (TILE // 8)
    stones = 1 + 0.2 * grain[row, column] + 0.04 * grain
    joint = (rows % 8 < 2) | ((columns + 4 * (row % 2)) % 8 < 2)
    return np.where(joint, 0.45, stones).astype(np.float32)


def _white(name: str, number: int, side: int) -> Texture:
    (rng,) = Streams("texture", name, number).each([name])
    return rng.standard_normal((side, side), dtype=np.float32)


def _frozen(texture: Texture) -> Texture:
    frozen = np.ascontiguousarray(texture, dtype=np.float32)
    frozen.flags.writeable = False
    return frozen


def grey(plane: Texture) -> Texture:
    """The same value in all three channels: (H, W) to (H, W, 3)."""
    return np.asarray(cv2.merge([plane, plane, plane]), dtype=np.float32)


def window(texture: Texture, x: float, y: float, texels: float, size: tuple[int, int]) -> Texture:
    """A part of a doubled tile, at (x, y) in 0 to 1, `texels` along the shorter side, as (H, W)."""
    step, sample = texels / min(size), cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    matrix = np.array([[step, 0, x * TILE], [0, step, y * TILE]])
    view = cv2.warpAffine(texture, matrix, size[::-1], flags=sample, borderMode=cv2.BORDER_REFLECT_101)
    return np.asarray(view, dtype=np.float32)
