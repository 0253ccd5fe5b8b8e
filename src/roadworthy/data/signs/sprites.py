"""Pictures of single objects (a sign's face, a car), drawn once from vector shapes and then placed in any view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]
Points = Sequence[tuple[float, float]] | NDArray[np.float64]
Matrix = NDArray[np.float64]
Drawing = Callable[["Pen"], None]

DRAWINGS: dict[str, Drawing] = {}
"""Every object that can be placed, by name; each is drawn within -1 to 1, x to the right and y down."""

MARGIN = 1.06
SMALLEST, LARGEST = 8, 512
_SHIFT = 6
_ANGLES = np.linspace(0, 2 * np.pi, 72, endpoint=False)
_CIRCLE = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)


class Pen:
    """Draws anti-aliased shapes on a canvas (H, W, 3 or 4) uint8; (0, 0) is its centre, `scale` pixels are one unit."""

    def __init__(self, canvas: NDArray[np.uint8], scale: float) -> None:
        self.canvas = canvas
        self.scale = scale
        height, width = canvas.shape[:2]
        self._step = scale * (1 << _SHIFT)
        self._origin = np.array([width / 2 - 0.5, height / 2 - 0.5]) * (1 << _SHIFT)

    def polygon(self, points: Points, colour: Colour) -> None:
        """Fill the polygon with these corners (M, 2)."""
        self._fill([self._fixed(points)], colour)

    def polygons(self, parts: Sequence[Points] | NDArray[np.float64], colour: Colour) -> None:
        """Fill several polygons that do not overlap and have equally many corners."""
        self._fill(list(self._fixed(np.asarray(parts, dtype=np.float64))), colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Fill a circle."""
        self.polygon(ellipse(x, y, radius, radius), colour)

    def stroke(self, points: Points, width: float, colour: Colour) -> None:
        """A line with round ends along the points."""
        thickness = max(1, round(width * self.scale))
        cv2.polylines(self.canvas, [self._fixed(points)], False, (*colour, 255), thickness, cv2.LINE_AA, _SHIFT)

    def _fill(self, corners: Sequence[NDArray[np.int32]], colour: Colour) -> None:
        cv2.fillPoly(self.canvas, corners, (*colour, 255), cv2.LINE_AA, _SHIFT)

    def _fixed(self, points: Points) -> NDArray[np.int32]:
        fixed: NDArray[np.float64] = np.asarray(points, dtype=np.float64) * self._step + self._origin
        return np.rint(fixed).astype(np.int32)


class CoverPen(Pen):
    """A pen that also notes which pixels the polygons it fills cover."""

    def __init__(self, canvas: NDArray[np.uint8], scale: float) -> None:
        super().__init__(canvas, scale)
        self._cover = np.zeros(canvas.shape[:2], dtype=np.uint8)

    def _fill(self, corners: Sequence[NDArray[np.int32]], colour: Colour) -> None:
        super()._fill(corners, colour)
        cv2.fillPoly(self._cover, corners, (255.0,), cv2.LINE_AA, _SHIFT)

    def put(self, plane: NDArray[np.float32], value: float) -> None:
        """Write a value into a plane (H, W) wherever at least half of a pixel was covered since the last call."""
        plane[self._cover >= 128] = value
        self._cover[:] = 0


def ellipse(x: float, y: float, wide: float, high: float) -> NDArray[np.float64]:
    """Corners (72, 2) of an ellipse with these half axes."""
    return np.asarray(np.array((x, y)) + np.array((wide, high)) * _CIRCLE)


def rectangle(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
    """Corners of a rectangle.

    >>> rectangle(0, 0, 2, 1)
    [(0, 0), (2, 0), (2, 1), (0, 1)]
    """
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def arc(x: float, y: float, wide: float, high: float, first: float, last: float) -> list[tuple[float, float]]:
    """Points along an ellipse from one angle to another, in degrees: 0 is right, 90 is down."""
    angles = np.deg2rad(np.linspace(first, last, 24))
    return [(x + wide * float(np.cos(angle)), y + high * float(np.sin(angle))) for angle in angles]


@lru_cache(maxsize=1024)
def picture(name: str, side: int) -> NDArray[np.uint8]:
    """The drawing of that name as (side, side, 4) uint8, colours multiplied by opacity; -MARGIN to MARGIN each way."""
    fine = max(4 * side, 128)
    canvas = np.zeros((fine, fine, 4), dtype=np.uint8)
    DRAWINGS[name](Pen(canvas, fine / 2 / MARGIN))
    small = np.asarray(cv2.resize(canvas, (side, side), interpolation=cv2.INTER_AREA), dtype=np.uint8)
    small.flags.writeable = False
    return small


def placed(name: str, matrix: Matrix, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The drawing as seen through `matrix`, which takes its coordinates to pixels (H, W): (H, W, 4) as `picture`."""
    side = SMALLEST
    while side < LARGEST and side < 2 * MARGIN * np.hypot(matrix[0, 0], matrix[1, 0]) * 0.9:
        side *= 2
    step = 2 * MARGIN / side
    to_units = np.array([[step, 0, step / 2 - MARGIN], [0, step, step / 2 - MARGIN], [0, 0, 1]])
    view = cv2.warpPerspective(picture(name, side), matrix @ to_units, size[::-1], flags=cv2.INTER_LINEAR)
    return np.asarray(view, dtype=np.uint8)
