"""From cuboids in metres to boxes in pixels: a pinhole camera with lens distortion, and the hull of what it sees.

A point p of the sensors' common frame (the lidar's, or the vehicle's) is q = R^T (p - t) in the camera's frame, whose
x axis points right, y down and z ahead. On the plane at distance 1 it lies at x = q_x / q_z, y = q_y / q_z. The lens
moves it there (model `plumb_bob`, coefficients k1, k2, p1, p2, k3; r^2 = x^2 + y^2):

    x' = x (1 + k1 r^2 + k2 r^4 + k3 r^6) + 2 p1 x y + p2 (r^2 + 2 x^2)
    y' = y (1 + k1 r^2 + k2 r^4 + k3 r^6) + p1 (r^2 + 2 y^2) + 2 p2 x y

and the camera matrix K gives the pixel (u, v, 1) = K (x', y', 1). K counts from the centre of the first pixel, boxes
from its outer edge, so that both coordinates grow by 0.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError

Points = NDArray[np.float64]

FARTHEST = 1e9
"""Metres and pixels beyond which nothing can be meant."""
NEAREST = 0.1
"""What lies closer than this to the plane of the camera, in metres, is cut away before the projection."""
_POINTS_PER_EDGE = 17
"""A lens bends edges: so many points stand for one. Without a lens an edge stays straight and its ends suffice."""
_SIGNS = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
_EDGES = np.array([(a, b) for a, b in combinations(range(8), 2) if np.count_nonzero(_SIGNS[a] != _SIGNS[b]) == 1])
_LENS = ("k1", "k2", "p1", "p2", "k3")


@dataclass(frozen=True)
class Camera:
    """A calibrated camera: K (3, 3), its pose (4, 4) from its own frame to the common one, its images' size.

    `lens` holds the coefficients k1, k2, p1, p2, k3 of the distortion that its images still have; it is empty where
    they are rectified.

    >>> camera = Camera(np.diag([100.0, 100.0, 1.0]), np.eye(4), width=200, height=100)
    >>> camera.pixels([[0.5, 0.25, 1.0]]).tolist()
    [[50.5, 25.5]]
    """

    matrix: Points
    pose: Points
    width: int
    height: int
    lens: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_numbers("the camera matrix", self.matrix, (3, 3))
        _check_numbers("the pose of the camera", self.pose, (4, 4))
        turn = self.pose[:3, :3]
        if max(np.abs(self.matrix).max(), np.abs(self.pose).max()) > FARTHEST:
            raise InputError(f"the numbers of the camera's matrix and pose must not exceed {FARTHEST:g}")
        if not np.allclose(turn @ turn.T, np.eye(3), atol=1e-3) or np.linalg.det(turn) < 0:
            raise InputError("the first three rows and columns of the pose of the camera must be a rotation")
        if not np.array_equal(self.matrix[2], [0, 0, 1]) or self.matrix[0, 0] <= 0 or self.matrix[1, 1] <= 0:
            raise InputError("the camera matrix must have positive focal lengths and the last row 0 0 1")
        if len(self.lens) not in (0, len(_LENS)) or not all(map(math.isfinite, self.lens)):
            raise InputError(f"the lens distortion must be the five numbers {', '.join(_LENS)}")

    def seen(self, points: ArrayLike) -> Points:
        """Points (N, 3) of the common frame in the camera's frame, in metres: right, down, ahead."""
        moved: Points = np.asarray(points, dtype=np.float64) - self.pose[:3, 3]
        return moved @ self.pose[:3, :3]

    def pixels(self, seen: ArrayLike) -> Points:
        """Where points (N, 3) of the camera's frame, all ahead of it, lie in its images: (N, 2) x, y from the edge.

        Beyond the angle at which the polynomial of the lens turns back towards the centre a point stays at that angle:
        it would otherwise appear a second time inside the image.
        """
        seen = np.asarray(seen, dtype=np.float64)
        flat = seen[:, :2] / seen[:, 2:]
        if self.lens:
            flat = _distorted(flat, self.lens)
        return np.asarray(flat @ self.matrix[:2, :2].T + self.matrix[:2, 2] + 0.5, dtype=np.float64)

    def horizon(self) -> float | None:
        """The row of the horizon straight ahead of the camera; None where it looks straight up or down.

        It assumes that the z axis of the common frame is vertical, so that far points on the road, and all that is as
        high as the camera, lie in that row.

        >>> ahead = np.array([[0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1.0]])
        >>> Camera(np.array([[100, 0, 99.5], [0, 100, 49.5], [0, 0, 1.0]]), ahead, width=200, height=100).horizon()
        50.0
        """
        _, down, ahead = self.pose[2, :3]
        if math.isclose(down, 0.0, abs_tol=1e-6):
            return None
        return float(self.pixels([[0.0, -ahead / down, 1.0]])[0, 1])


@dataclass(frozen=True)
class Projection:
    """How a cuboid appears in a camera: its box x0, y0, x1, y1 cut at the image, None where nothing of it is visible.

    share     the area of that box divided by the area of the box before it was cut at the image
    distance  metres from the camera to the cuboid's centre along the camera's axis, negative behind the camera
    ahead     False where all of the cuboid lies behind the camera
    """

    box: tuple[float, float, float, float] | None
    share: float
    distance: float
    ahead: bool


def cuboid_corners(centre: ArrayLike, size: ArrayLike, yaw: float) -> Points:
    """The corners (8, 3) of a cuboid with that centre and `size` along its own x, y, z, turned by `yaw` about z.

    >>> cuboid_corners((10, 0, 0), (4, 2, 2), math.pi / 2).round(6)[0].tolist()
    [11.0, -2.0, -1.0]
    """
    if max(np.abs(np.asarray(value, dtype=np.float64)).max() for value in (centre, size, yaw)) > FARTHEST:
        raise InputError(f"the place, size and angle of a cuboid must not exceed {FARTHEST:g}")
    corners = _SIGNS * np.asarray(size, dtype=np.float64) / 2
    turn = np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])
    return np.asarray(corners @ turn.T + np.asarray(centre, dtype=np.float64), dtype=np.float64)


def project_cuboid(camera: Camera, corners: Points) -> Projection:
    """The hull of the projected edges of a cuboid with corners (8, 3) as `cuboid_corners` gives them.

    The edges are cut at `NEAREST` ahead of the camera, so that a cuboid beside the camera gives a large box, never a
    mirrored one. The hull of a cuboid holds more than the object in it: such a box is too large, most of all for
    objects that stand at an angle, and a user who needs tight boxes corrects them.
    """
    seen = camera.seen(corners)
    distance = float(seen[:, 2].mean())
    on_edges = _cut_edges(seen, _POINTS_PER_EDGE if camera.lens else 2)
    if not len(on_edges):
        return Projection(box=None, share=0.0, distance=distance, ahead=False)
    pixels = camera.pixels(on_edges)
    low, high = pixels.min(axis=0), pixels.max(axis=0)
    limit = np.array([camera.width, camera.height], dtype=np.float64)
    first, last = np.clip(low, 0, limit), np.clip(high, 0, limit)
    if not np.all(last > first):
        return Projection(box=None, share=0.0, distance=distance, ahead=True)
    share = float(np.prod((last - first) / (high - low)))
    box = (float(first[0]), float(first[1]), float(last[0]), float(last[1]))
    return Projection(box=box, share=share, distance=distance, ahead=True)


def rotation_of(quaternion: ArrayLike) -> Points:
    """The rotation (3, 3) of a quaternion w, x, y, z, which need not have length 1.

    >>> rotation_of((1, 0, 0, 1)).round(6).tolist()
    [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(np.asarray(quaternion, dtype=np.float64)))
    if not math.isfinite(length) or length == 0:
        raise InputError("a quaternion must be four finite numbers that are not all 0")
    w, x, y, z = np.asarray(quaternion, dtype=np.float64) / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _cut_edges(corners: Points, points_per_edge: int) -> Points:
    """Points (N, 3) along the parts of a cuboid's edges that lie ahead of the camera; none where no part does."""
    start, end = corners[_EDGES[:, 0]], corners[_EDGES[:, 1]]
    ahead = np.maximum(start[:, 2], end[:, 2]) >= NEAREST
    start, end = start[ahead], end[ahead]
    rise = end[:, 2] - start[:, 2]
    crossing = (NEAREST - start[:, 2]) / np.where(rise == 0, 1.0, rise)
    first = np.where(start[:, 2] < NEAREST, crossing, 0.0)
    last = np.where(end[:, 2] < NEAREST, crossing, 1.0)
    along = np.linspace(first, last, points_per_edge)[:, :, None]
    return np.asarray(start + along * (end - start), dtype=np.float64).reshape(-1, 3)


def _distorted(flat: Points, lens: tuple[float, ...]) -> Points:
    """Points (N, 2) on the plane at distance 1, as the lens moves them."""
    k1, k2, p1, p2, k3 = lens
    radius = np.linalg.norm(flat, axis=1, keepdims=True)
    flat = flat * np.minimum(1.0, _turning_radius(lens) / np.maximum(radius, 1e-12))
    x, y = flat[:, 0], flat[:, 1]
    squared = x * x + y * y
    radial = 1 + squared * (k1 + squared * (k2 + squared * k3))
    return np.stack(
        [
            x * radial + 2 * p1 * x * y + p2 * (squared + 2 * x * x),
            y * radial + p1 * (squared + 2 * y * y) + 2 * p2 * x * y,
        ],
        axis=1,
    )


@cache
def _turning_radius(lens: tuple[float, ...]) -> float:
    """The smallest radius at which the radial part r + k1 r^3 + k2 r^5 + k3 r^7 stops growing; infinite where none."""
    k1, k2, _, _, k3 = lens
    roots = np.roots([7 * k3, 5 * k2, 3 * k1, 1.0])
    squares = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and root.real > 0]
    return math.sqrt(min(squares)) if squares else math.inf


def _check_numbers(name: str, values: Any, shape: tuple[int, ...]) -> None:
    if np.shape(values) != shape or not np.all(np.isfinite(values)):
        raise InputError(f"{name} must be {shape[0]} rows of {shape[1]} finite numbers")
