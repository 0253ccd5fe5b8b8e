"""How far away each pixel is: from a depth map, from the ground plane of the uncropped frame, or as declared.

Fog and rain hide what is far more than what is near. Three rules say how far that is, the first that applies to an
image is taken:

1. The batch has depth: metres for every pixel. The sky, infinitely far, counts as `sky_distance`.
2. The image is a cut-out whose place in its frame is known, from the conditions `frame_width`, `frame_height`,
   `crop_y0` and `crop_y1` of a curated manifest. Assumption: a flat road and a level camera `camera_height` metres
   above it. Then a row of the frame below the horizon shows the ground at

       d(row) = camera_height focal / (row - horizon),   focal in pixels = `focal` x frame_width,

   and all above the horizon (houses, trees, the sky) counts as `background_distance`, which is also the farthest
   ground. The horizon is the condition `horizon` (a row of the frame), or where that is blank `horizon` x
   frame_height. The object has one distance: the condition `distance` in metres, else that of its foot, the lower edge
   of its box, but at most `object_distance`, which also stands for an object whose foot lies above the horizon (a sign,
   a traffic light). The object is its mask, else its box.
3. The whole image is `distance` metres away, where that is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter
from roadworthy.core.types import Batch
from roadworthy.core.validation import check_number
from roadworthy.shifts.base import Ranged

FARTHEST = 1e6
"""Metres that a parameter may be, at most."""
PLACE = ("frame_width", "frame_height", "crop_y0", "crop_y1")
"""Conditions that say where in its frame a cut-out lies."""

Metres = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ThroughDistance(Ranged):
    """A shift that grows with the distance of what each pixel shows.

    distance             metres to everything in an image of which nothing else is known; None: not declared
    sky_distance         metres at which the sky of a depth map counts
    background_distance  metres to all above the horizon, and to the farthest ground, where there is no depth map
    object_distance      metres to an object without a stated distance, at most, and where its foot is above the horizon
    camera_height        metres of the camera above the road
    focal                focal length in widths of the uncropped frame
    horizon              row of the horizon as a share of the frame's height, where a manifest does not say it
    """

    distance: float | None = None
    sky_distance: float = parameter(within=(1, FARTHEST), default=1000.0)
    background_distance: float = parameter(within=(1, FARTHEST), default=100.0)
    object_distance: float = parameter(within=(0.1, FARTHEST), default=40.0)
    camera_height: float = parameter(within=(0.1, 10), default=1.5)
    focal: float = parameter(within=(0.05, 100), default=0.8)
    horizon: float = parameter(within=(-10, 10), default=0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance is not None:
            check_number(f"shift {self.name}: distance", self.distance, 0, FARTHEST)

    def distances(self, batch: Batch) -> list[Metres | None]:
        """Metres to what each image shows: (H, W), or (H, 1) or (1, 1) where columns do not differ; None: not known."""
        if batch.depth is not None:
            for image_id, depth in zip(batch.ids, batch.depth, strict=True):
                if not (depth >= 0).all():
                    raise InputError(
                        f"the depth of image {image_id!r} must be metres from 0 on, and infinite for the sky"
                    )
            sky = np.float32(self.sky_distance)
            return [np.where(np.isinf(depth), sky, depth).astype(np.float32) for depth in batch.depth]
        declared = None if self.distance is None else np.full((1, 1), self.distance, np.float32)
        framing = {name: condition_numbers(batch, name) for name in (*PLACE, "horizon", "distance")}
        known = np.all([np.isfinite(framing[name]) for name in PLACE], axis=0)
        return [
            self._by_ground(batch, row, {name: float(column[row]) for name, column in framing.items()})
            if known[row]
            else declared
            for row in range(len(batch))
        ]

    def required_distances(self, batch: Batch) -> list[Metres]:
        """As `distances`; an error that names the first image of which none is known."""
        distances = self.distances(batch)
        for image_id, metres in zip(batch.ids, distances, strict=True):
            if metres is None:
                raise InputError(
                    f"shift {self.name} needs to know how far away image {image_id!r} is: give the data a depth map or "
                    f"the columns {', '.join(PLACE)} of a curated manifest, or the shift a `distance` in metres"
                )
        return [metres for metres in distances if metres is not None]

    def _by_ground(self, batch: Batch, row: int, framing: Mapping[str, float]) -> Metres:
        """The distances (H, 1) of rows of the ground, or (H, W) with an object before it."""
        height, width = batch.images.shape[1:3]
        top, scale = framing["crop_y0"], (framing["crop_y1"] - framing["crop_y0"]) / height
        if not scale > 0:
            raise InputError(
                f"the cut-out of image {batch.ids[row]!r} ends above its start: correct crop_y0 and crop_y1"
            )
        if not framing["frame_width"] > 0:
            raise InputError(f"the frame of image {batch.ids[row]!r} has no width: correct frame_width")
        if framing["distance"] < 0:
            raise InputError(f"the object of image {batch.ids[row]!r} is at a negative distance: correct distance")
        horizon = framing["horizon"] if np.isfinite(framing["horizon"]) else self.horizon * framing["frame_height"]
        reach = self.camera_height * self.focal * framing["frame_width"]
        ground = ground_distances(top + scale * (np.arange(height) + 0.5), horizon, reach, self.background_distance)[
            :, None
        ]
        covered = _object_pixels(batch, row)
        if covered is None:
            return ground
        foot = top + scale * _foot(batch, row)
        by_foot = ground_distances(np.array([foot]), horizon, reach, self.object_distance)[0]
        metres = framing["distance"] if np.isfinite(framing["distance"]) else by_foot
        return np.where(covered, np.float32(metres), np.broadcast_to(ground, (height, width)))


def ground_distances(rows: NDArray[np.float64], horizon: float, reach: float, farthest: float) -> Metres:
    """min(`reach` / (row - horizon), `farthest`) metres, and `farthest` from the horizon up; (R,) -> (R,) float32.

    `reach` is the camera's height in metres times its focal length in pixels.

    >>> ground_distances(np.array([400.0, 310.0, 300.5, 300.0, 100.0]), horizon=300, reach=1500, farthest=1000)
    array([  15.,  150., 1000., 1000., 1000.], dtype=float32)
    """
    below = rows - horizon
    with np.errstate(divide="ignore"):
        ground = np.where(below > 0, reach / below, np.inf)
    return np.minimum(ground, farthest).astype(np.float32)


def condition_numbers(batch: Batch, name: str) -> NDArray[np.float64]:
    """A condition of the images as numbers (N,), NaN where it is blank, text or not there."""
    column = batch.conditions.get(name)
    if column is None or column.dtype.kind not in "iuf":
        return np.full(len(batch), np.nan)
    return np.asarray(column, np.float64)


def _object_pixels(batch: Batch, row: int) -> NDArray[np.bool_] | None:
    """Which pixels (H, W) show the object: its mask, else its box; None where there is neither."""
    if batch.masks is not None:
        return np.asarray(batch.masks[row]) if batch.masks[row].any() else None
    if batch.boxes is None or not np.isfinite(batch.boxes[row]).all():
        return None
    x0, y0, x1, y1 = batch.boxes[row].tolist()
    y, x = (np.arange(side) + 0.5 for side in batch.images.shape[1:3])
    return np.asarray(((y >= y0) & (y < y1))[:, None] & ((x >= x0) & (x < x1)))


def _foot(batch: Batch, row: int) -> float:
    """The lower edge of the object in rows of the image: that of its mask, else of its box."""
    if batch.masks is not None:
        return float(np.flatnonzero(batch.masks[row].any(axis=1))[-1] + 1)
    assert batch.boxes is not None
    return float(batch.boxes[row, 3])
