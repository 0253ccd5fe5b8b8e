"""A tiny drawn set of six traffic signs, so that everything can be tried without any data."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.base import Opening
from roadworthy.data.table import Table

CLASSES = ("no entry", "parking", "priority", "speed limit", "stop", "yield")
VIEWS = 5
"""Images of one sign: a group."""

_SUPER = 4
_RED, _BLUE, _YELLOW, _WHITE, _BLACK = (190, 25, 35), (20, 80, 170), (245, 200, 30), (240, 240, 240), (25, 25, 25)
_LIGHT = {"day": 1.0, "dusk": 0.65, "night": 0.35}
_DISTANCE = {"near": (0.38, 0.46), "middle": (0.27, 0.36), "far": (0.17, 0.25)}

Canvas = NDArray[np.uint8]
Colour = tuple[int, int, int]
Shape = tuple[NDArray[np.float64], Colour]
"""Corners (M, 2) in units of the sign's radius, and what fills them."""


def drawn_signs(n: int = 300, size: int = 64, seed: int = 0, opening: Opening | None = None) -> ArrayDataset:
    """`n` drawn signs with boxes, masks, groups (five views of one sign) and conditions (time_of_day, distance).

    The same n, size and seed give the same pixels; a larger n adds to a smaller.

    >>> signs = drawn_signs(12, size=32)
    >>> len(signs), signs.size, len(set(signs.groups)), signs.class_names[:2]
    (12, (32, 32), 3, ('no entry', 'parking'))
    """
    if not isinstance(n, int) or n < 1 or size < 16:
        raise InputError(f"drawn signs need n of at least 1 and a size of at least 16, not n={n}, size={size}")
    groups = [f"sign-{row // VIEWS}" for row in range(n)]
    ids = tuple(f"{group}/{row % VIEWS}" for row, group in enumerate(groups))
    labels = np.array([row // VIEWS % len(CLASSES) for row in range(n)], dtype=np.int64)
    signs = dict.fromkeys(groups)
    wear = {sign: rng.uniform(0.8, 1.0) for sign, rng in zip(signs, Streams("wear", seed).each(signs), strict=True)}
    views = [
        _view(rng, CLASSES[label], wear[group], size)
        for rng, label, group in zip(Streams("drawn", seed).each(ids), labels, groups, strict=True)
    ]
    table = Table(
        ids=ids,
        labels=labels,
        class_names=CLASSES,
        groups=tuple(groups),
        boxes=np.array([_box(mask) for _, mask, _, _ in views], dtype=np.float32),
        conditions={
            "time_of_day": np.array([light for *_, light, _ in views]),
            "distance": np.array([distance for *_, distance in views]),
        },
    )
    images, masks = np.stack([view[0] for view in views]), np.stack([view[1] for view in views])
    return ArrayDataset(table, images, masks, opening)


def _view(rng: np.random.Generator, name: str, wear: float, size: int) -> tuple[Canvas, NDArray[np.bool_], str, str]:
    """One picture of one sign: pixels, mask, time of day and distance."""
    side = size * _SUPER
    light, distance = str(rng.choice(list(_LIGHT))), str(rng.choice(list(_DISTANCE)))
    radius = rng.uniform(*_DISTANCE[distance]) * side
    centre = rng.uniform(radius, side - radius, size=2)
    angle = np.deg2rad(rng.uniform(-8, 8))
    squeeze = rng.uniform(0.85, 1.0)
    turn = np.array([[np.cos(angle) * squeeze, -np.sin(angle)], [np.sin(angle) * squeeze, np.cos(angle)]])
    canvas, mask = _background(rng, side), np.zeros((side, side), dtype=np.uint8)
    for place, (points, colour) in enumerate(_SHAPES[name]):
        corners = np.rint((points * radius) @ turn.T + centre).astype(np.int32)
        cv2.fillPoly(canvas, [corners], tuple(wear * value for value in colour))
        if place == 0:
            cv2.fillPoly(mask, [corners], 255)
    brightness = _LIGHT[light] * rng.uniform(0.85, 1.1)
    small = cv2.resize(canvas, (size, size), interpolation=cv2.INTER_AREA) * brightness
    small += rng.normal(0, 3, small.shape)
    covered = cv2.resize(mask, (size, size), interpolation=cv2.INTER_AREA) >= 128
    return np.clip(np.rint(small), 0, 255).astype(np.uint8), covered, light, distance


def _background(rng: np.random.Generator, side: int) -> Canvas:
    """Sky over trees, walls or road, in soft patches."""
    colours = np.array([(150, 180, 215), (95, 115, 80), (135, 125, 115), (90, 90, 95)], dtype=np.float64)
    patches = colours[rng.integers(0, len(colours), size=(3, 3))] + rng.normal(0, 12, (3, 3, 3))
    patches[0] = colours[0] + rng.normal(0, 12, 3)
    soft = cv2.resize(patches, (side, side), interpolation=cv2.INTER_CUBIC)
    return np.clip(soft, 0, 255).astype(np.uint8)


def _box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _polygon(corners: int, first: float, radius: float = 1.0) -> NDArray[np.float64]:
    """A regular polygon, its first corner at that angle in degrees (0 = right, 90 = down)."""
    angles = np.deg2rad(first + 360 * np.arange(corners) / corners)
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _bar(x0: float, y0: float, x1: float, y1: float) -> NDArray[np.float64]:
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])


def _text(text: str, wide: float, high: float, colour: Colour) -> list[Shape]:
    """Letters from bars, centred on the sign, each in a cell of that size."""
    bars: list[Shape] = []
    stroke = 0.3 * wide
    for place, letter in enumerate(text):
        left, right = (place - len(text) / 2 + 0.1) * wide, (place - len(text) / 2 + 0.9) * wide
        middle, top = (left + right - stroke) / 2, -high / 2
        bar = {
            "top": _bar(left, top, right, top + stroke),
            "middle": _bar(left, -stroke / 2, right, stroke / 2),
            "bottom": _bar(left, -top - stroke, right, -top),
            "upper left": _bar(left, top, left + stroke, stroke / 2),
            "lower left": _bar(left, -stroke / 2, left + stroke, -top),
            "upper right": _bar(right - stroke, top, right, stroke / 2),
            "lower right": _bar(right - stroke, -stroke / 2, right, -top),
            "stem": _bar(middle, top, middle + stroke, -top),
        }
        bars += [(bar[name], colour) for name in _BARS[letter]]
    return bars


_BARS = {
    "S": ("top", "upper left", "middle", "lower right", "bottom"),
    "T": ("top", "stem"),
    "O": ("top", "bottom", "upper left", "lower left", "upper right", "lower right"),
    "P": ("top", "middle", "upper left", "lower left", "upper right"),
}
_SHAPES: dict[str, list[Shape]] = {
    "stop": [(_polygon(8, 22.5), _WHITE), (_polygon(8, 22.5, 0.93), _RED), *_text("STOP", 0.4, 0.62, _WHITE)],
    "yield": [(_polygon(3, 90), _RED), (_polygon(3, 90, 0.62), _WHITE)],
    "no entry": [(_polygon(48, 0), _RED), (_bar(-0.7, -0.17, 0.7, 0.17), _WHITE)],
    "parking": [(_bar(-0.7, -0.7, 0.7, 0.7), _BLUE), *_text("P", 0.8, 1.1, _WHITE)],
    "speed limit": [(_polygon(48, 0), _RED), (_polygon(48, 0, 0.78), _WHITE), *_text("SO", 0.55, 0.85, _BLACK)],
    "priority": [(_polygon(4, 0), _WHITE), (_polygon(4, 0, 0.72), _YELLOW)],
}
