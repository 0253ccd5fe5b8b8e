"""A cut-out of a larger picture with one object: where camera, ground and horizon then are, in metres.

A camera at height h over a flat road sees the ground at distance d in the direction h / d below the horizon. A cut-out
shows directions of which one shorter side spans `unit`, so one metre at distance d is 1 / (d unit) shorter sides long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.data.signs.camera import Floats
from roadworthy.data.signs.scenes import HALF_ROAD, Camera

REFERENCE = 2.5
"""Metres to the ground at nearness 1; so nearness is REFERENCE / distance."""
FAR = 300.0
"""Metres to the woods on the horizon: no ground is seen beyond them."""


@dataclass(frozen=True)
class CropCamera(Camera):
    """A camera that looks at a cut-out; lengths as in `Camera`, in shorter sides of the picture.

    height     of the camera over the road, in metres
    curvature  half of one over the radius of the road's curve, in 1 / metres; positive to the right
    """

    height: float
    curvature: float

    def ground(self, nearness: float, aside: float) -> tuple[float, float]:
        """The point of the ground that many metres right of the road's middle, along its curve."""
        x, y = super().ground(nearness, aside)
        return x + self.zoom * self.curvature * REFERENCE / nearness, y

    def along(self, nearness: Floats, aside: Floats) -> Floats:
        """The same as `ground`, for points (M,): (M, 2)."""
        x = self.vanish + nearness * (self.foot - self.vanish + aside * (self.half_road / HALF_ROAD))
        x += self.zoom * self.curvature * REFERENCE / nearness
        return np.stack([x, self.horizon + (self.bottom - self.horizon) * nearness], axis=1)

    def ground_row(self, distance: float) -> float:
        """The height in the picture of the ground at that distance."""
        return self.horizon + self.zoom * self.height / distance

    def ground_distance(self, rows: Floats) -> Floats:
        """Metres (H,) to the ground seen at these heights (H,): height zoom / (row - horizon), infinite above."""
        below = rows - self.horizon
        with np.errstate(divide="ignore"):
            return np.where(below > 0, self.height * self.zoom / np.maximum(below, 0), np.inf)


@dataclass(frozen=True)
class Stance:
    """Where an object is: metres from the camera, and metres right of the road's middle."""

    distance: float
    aside: float


def aimed(
    stance: Stance, ground_point: tuple[float, float], unit: float, height: float, curvature: float
) -> CropCamera:
    """The camera that sees the ground under an object at a point (x, y) of the picture.

    It stands in the right lane, `height` metres over the road, and one shorter side of the picture spans `unit` of its
    directions (1 is 45 degrees).

    >>> camera = aimed(Stance(20, -1.0), (0.1, 0.3), unit=0.2, height=1.4, curvature=0.002)
    >>> [round(value, 6) for value in camera.ground(REFERENCE / 20, -1.0)], camera.ground_row(20)
    ([0.1, 0.3], 0.3)
    """
    zoom = 1 / unit
    lane = HALF_ROAD / 2
    horizon = ground_point[1] - zoom * height / stance.distance
    vanish = ground_point[0] - zoom * ((stance.aside - lane) / stance.distance + curvature * stance.distance)
    return CropCamera(
        horizon=horizon,
        vanish=vanish,
        foot=vanish - lane * zoom / REFERENCE,
        half_road=HALF_ROAD * zoom / REFERENCE,
        bottom=horizon + zoom * height / REFERENCE,
        zoom=zoom,
        height=height,
        curvature=curvature,
    )


def picture_rows(size: tuple[int, int]) -> NDArray[np.float64]:
    """The heights (H,) of the middles of all rows, in shorter sides from the picture's centre."""
    return np.asarray((np.arange(size[0]) + (0.5 - size[0] / 2)) / min(size))
