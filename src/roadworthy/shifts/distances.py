"""How far away each pixel is: from a depth map, as stated, by the ground of the uncropped frame, or as declared.

Fog and rain hide what is far more than what is near. Four rules say how far that is, the first that applies to an
image is taken:

1. The batch has depth: metres for every pixel. The sky, infinitely far, counts as `sky_distance`.
2. The image has the condition `distance` in metres: all that it shows is that far.
3. The image is a cut-out whose place in its frame is known, from the conditions `frame_width`, `frame_height`,
   `crop_y0` and `crop_y1` of a curated manifest. Assumption: a flat road with nothing on it, and a level camera
   `camera_height` metres above it. Then a row of the frame below the horizon shows the ground at

       d(row) = camera_height focal / (row - horizon),   focal in pixels = `focal` x frame_width,

   and all above the horizon (houses, trees, the sky) counts as `background_distance`, which is also the farthest
   ground. The horizon is the condition `horizon` (a row of the frame), or where that is blank `horizon` x
   frame_height.
4. The whole image is `distance` metres away, where that is given.

What is known of an image comes before what is declared for all: a declared `distance` fills gaps and never replaces
what the data says of one of its images.

Boxes, masks and labels are not read. A veil that is thinner over the object than beside it would draw the true box
into the picture, where a network can find it. An object has an outline in the fog only where the data has depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

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
    """A shift that grows with the distance of what each pixel shows; boxes and masks stay as they are.

    distance             metres to everything in an image of which the data says nothing; None: not declared
    sky_distance         metres at which the sky of a depth map counts
    background_distance  metres to all above the horizon, and to the farthest ground, where there is no depth map
    camera_height        metres of the camera above the road
    focal                focal length in widths of the uncropped frame
    horizon              row of the horizon as a share of the frame's height, where a manifest does not say it
    """

    code_version: ClassVar[int] = 2

    distance: float | None = None
    sky_distance: float = parameter(within=(1, FARTHEST), default=1000.0)
    background_distance: float = parameter(within=(1, FARTHEST), default=100.0)
    camera_height: float = parameter(within=(0.1, 10), default=1.5)
    focal: float = parameter(within=(0.05, 100), default=0.8)
    horizon: float = parameter(within=(-10, 10), default=0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance is not None:
            check_number(f"shift {self.name}: distance", self.distance, 0, FARTHEST)

    @property
    def keeps_places(self) -> bool:
        """Always."""
        return True

    def distances(self, batch: Batch) -> list[Metres | None]:
        """Metres to what each image shows: (H, W) by depth, (H, 1) by the ground, else (1, 1); None: not known."""
        if batch.depth is not None:
            for image_id, depth in zip(batch.ids, batch.depth, strict=True):
                if not (depth >= 0).all():
                    raise InputError(
                        f"the depth of image {image_id!r} must be metres from 0 on, and infinite for the sky"
                    )
            sky = np.float32(self.sky_distance)
            return [np.where(np.isinf(depth), sky, depth).astype(np.float32) for depth in batch.depth]
        stated = condition_numbers(batch, "distance")
        framing = {name: condition_numbers(batch, name) for name in (*PLACE, "horizon")}
        is_placed = np.all([np.isfinite(framing[name]) for name in PLACE], axis=0)
        metres = list[Metres | None]()
        for row, image_id in enumerate(batch.ids):
            if np.isfinite(stated[row]):
                if stated[row] < 0:
                    raise InputError(f"image {image_id!r} shows what is at a negative distance: correct distance")
                metres.append(np.full((1, 1), stated[row], np.float32))
            elif is_placed[row]:
                metres.append(self._by_ground(batch, row, {name: float(framing[name][row]) for name in framing}))
            else:
                metres.append(None if self.distance is None else np.full((1, 1), self.distance, np.float32))
        return metres

    def required_distances(self, batch: Batch) -> list[Metres]:
        """As `distances`; an error that names the first image of which none is known."""
        distances = self.distances(batch)
        for image_id, metres in zip(batch.ids, distances, strict=True):
            if metres is None:
                raise InputError(
                    f"shift {self.name} needs to know how far away image {image_id!r} is: give the data a depth map, "
                    f"the column distance in metres or the columns {', '.join(PLACE)} of a curated manifest, or the "
                    "shift a `distance` in metres"
                )
        return [metres for metres in distances if metres is not None]

    def _by_ground(self, batch: Batch, row: int, framing: Mapping[str, float]) -> Metres:
        """The distances (H, 1) of rows of the ground."""
        height = batch.images.shape[1]
        top, scale = framing["crop_y0"], (framing["crop_y1"] - framing["crop_y0"]) / height
        if not scale > 0:
            raise InputError(
                f"the cut-out of image {batch.ids[row]!r} ends above its start: correct crop_y0 and crop_y1"
            )
        if not framing["frame_width"] > 0:
            raise InputError(f"the frame of image {batch.ids[row]!r} has no width: correct frame_width")
        horizon = framing["horizon"] if np.isfinite(framing["horizon"]) else self.horizon * framing["frame_height"]
        reach = self.camera_height * self.focal * framing["frame_width"]
        rows = top + scale * (np.arange(height) + 0.5)
        return ground_distances(rows, horizon, reach, self.background_distance)[:, None]


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
