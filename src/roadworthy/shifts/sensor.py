"""Faults of a camera, as shifts named `sensor_...`: broken pixels, rows, columns and channels, empty and old frames.

Boxes, masks and depth say where the object is, not what is left of it: they stay, but where a fault moves the pixels.
`keeps_label` is False where nothing of the picture is left by which its label could be told: one value everywhere, one
value in every row, rows that land anywhere, or another picture.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.roles import SHIFTS, Dataset
from roadworthy.core.types import Batch, Images
from roadworthy.shifts.base import REFERENCE_SIZE, Paint, Photometric, Ranged, unit
from roadworthy.shifts.geometry import box_areas, copied, moved_batch

MOSAIC = (((0, 0),), ((0, 1), (1, 0)), ((1, 1),))
"""Row and column, within each square of 2x2 pixels, of the red, green and blue pixels of a colour sensor."""
ANYWHERE = 0.5
"""A reach of half the width, either way, is all of it."""
THIN_BLOCK = 4
"""Rows, at 64x64, of a block that shows too little to tell a picture by."""


@registered(SHIFTS, "sensor_pixel_faults")
class PixelFaults(Photometric):
    """Dead and hot pixels: each pixel is faulty with chance `share`, and then black or white, as likely.

    All channels of a pixel fail together. Places are drawn anew for every image, as if each were cut out of another
    part of the sensor.
    """

    share: float = parameter(
        *(0.01, 0.03, 0.06, 0.1, 0.2), within=(0, 1), neutral=0, quantity="faulty pixels", unit="of all pixels"
    )

    @property
    def keeps_label(self) -> bool:
        """As long as a pixel may be sound."""
        return self.share < 1

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        faulty = round(self.share * 2**16)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            np.copyto(target, image)
            draws = random_bytes(rng, 2 * height * width).view("<u2").reshape(height, width)
            target[draws < faulty] = 255
            target[draws < faulty // 2] = 0

        return paint


@dataclass(frozen=True, kw_only=True)
class UniformFrame(Photometric):
    """A frame that fades to black or white: every pixel keeps 1 - f of its distance from it, rounded, f = `loss`.

    It keeps its label as long as the picture's 255 steps leave at least one: black and white can still be told apart.
    """

    VALUE: ClassVar[int]
    loss: float

    @property
    def keeps_label(self) -> bool:
        """As long as black and white are not the same value."""
        return len(np.unique(self._values())) > 1

    def _values(self) -> NDArray[np.uint8]:
        """What each of the 256 values becomes."""
        distances = np.rint((1 - self.loss) * np.abs(np.arange(256) - self.VALUE))
        return np.asarray(np.abs(self.VALUE - distances), np.uint8)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        values = self._values()
        return lambda image, target, rng: cv2.LUT(image, values, dst=target)


@registered(SHIFTS, "sensor_black_frame")
class BlackFrame(UniformFrame):
    """A black frame: (1 - f) img, f = `loss`; at f = 1 the shutter is closed, below a faint picture is left."""

    VALUE: ClassVar[int] = 0
    loss: float = parameter(0.8, 0.9, 0.95, 0.98, 1.0, within=(0, 1), neutral=0)


@registered(SHIFTS, "sensor_white_frame")
class WhiteFrame(UniformFrame):
    """A white frame: 255 - (1 - f) (255 - img), f = `loss`; at f = 1 every pixel is saturated."""

    VALUE: ClassVar[int] = 255
    loss: float = parameter(0.8, 0.9, 0.95, 0.98, 1.0, within=(0, 1), neutral=0)


@registered(SHIFTS, "sensor_shifted_rows")
class ShiftedRows(Ranged):
    """Rows out of step: blocks of `rows` rows (pixels at 64x64) move sideways and wrap around.

    Every block moves by whole pixels, uniform within `reach` of the width either way. Mask and depth move with the
    rows. The box becomes the tight box of the moved mask; without masks the smallest one around all parts of the moved
    box, and its area over that of the box is the inflation. At a reach of 0.5 a block lands anywhere: then the label is
    lost, where blocks have at most 4 rows at 64x64.
    """

    rows: float = parameter(16, 12, 8, 4, 2, within=(0.1, REFERENCE_SIZE))
    reach: float = parameter(0.1, 0.2, 0.3, 0.4, ANYWHERE, within=(0, ANYWHERE), neutral=0)

    @property
    def keeps_label(self) -> bool:
        """As long as blocks are thick, or do not land anywhere."""
        return self.rows > THIN_BLOCK or self.reach < ANYWHERE

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with the rows of every image, mask and depth moved by draws of the image's own random stream."""
        height, width, channels = batch.images.shape[1:]
        block = max(1, round(self.rows * unit(height, width)))
        furthest = round(self.reach * width)
        images = np.empty(batch.images.shape, np.uint8)
        masks, depth, hulls = copied(batch.masks), copied(batch.depth), copied(batch.boxes)
        first, columns = np.arange(height)[:, None] * width, np.arange(width)
        for row, rng in enumerate(streams.each(batch.ids)):
            draws = rng.random(-(-height // block))
            moves = np.repeat((draws * (2 * furthest + 1)).astype(np.int64) - furthest, block)[:height]
            source = first + (columns - moves[:, None]) % width
            pixels = np.ascontiguousarray(batch.images[row]).reshape(-1, channels)
            images[row] = pixels.take(source.ravel(), axis=0).reshape(height, width, channels)
            for array in (masks, depth):
                if array is not None:
                    array[row] = array[row].take(source)
            if hulls is not None:
                hulls[row] = _box_of_moved_rows(hulls[row], moves, width)
        inflation = None
        if batch.boxes is not None and hulls is not None:
            inflation = box_areas(hulls, height, width) / box_areas(batch.boxes, height, width)
        return moved_batch(batch, images, masks=masks, depth=depth, hulls=hulls, inflation=inflation)


@registered(SHIFTS, "sensor_smeared_rows")
class SmearedRows(Photometric):
    """Smeared rows: in a `share` of the rows, drawn at random, the pixel at `start` of the width fills the rest.

    Where all rows are smeared from their first pixel on, each is of one colour and the label is lost.
    """

    share: float = parameter(
        *(0.2, 0.4, 0.6, 0.8, 1.0), within=(0, 1), neutral=0, quantity="smeared rows", unit="of all rows"
    )
    start: float = parameter(0.6, 0.45, 0.3, 0.15, 0.0, within=(0, 1))

    @property
    def keeps_label(self) -> bool:
        """As long as a row has more than one colour."""
        return self.share < 1 or self.start > 0

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        count, first = part_of(height, self.share), min(width - 1, int(self.start * width))

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            np.copyto(target, image)
            rows = rng.permutation(height)[:count]
            target[rows, first:] = image[rows, first][:, None]

        return paint


@registered(SHIFTS, "sensor_stuck_columns")
class StuckColumns(Photometric):
    """Stuck columns: a `share` of the columns, drawn at random, show one grey value each, uniform on 0..255."""

    share: float = parameter(
        *(0.05, 0.15, 0.3, 0.5, 0.8), within=(0, 1), neutral=0, quantity="stuck columns", unit="of all columns"
    )

    @property
    def keeps_label(self) -> bool:
        """As long as a column is sound."""
        return self.share < 1

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        count = part_of(width, self.share)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            np.copyto(target, image)
            columns = rng.permutation(width)[:count]
            target[:, columns] = random_bytes(rng, count)[:, None]

        return paint


@registered(SHIFTS, "sensor_missing_channel")
class MissingChannel(Photometric):
    """A channel fails: red, green or blue, drawn at random, becomes (1 - f) of itself, f = `loss`.

    A grey image is taken for what a colour sensor reads before colours are made of it: of each square of 2x2 pixels the
    upper left one is red, the lower right one blue, the other two green, and the pixels of the channel fade.
    """

    loss: float = parameter(0.2, 0.4, 0.6, 0.8, 1.0, within=(0, 1), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        values = np.rint((1 - self.loss) * np.arange(256)).astype(np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            np.copyto(target, image)
            channel = int(3 * rng.random())
            if channels == 3:
                target[..., channel] = values.take(image[..., channel])
                return
            for row, column in MOSAIC[channel]:
                target[row::2, column::2] = values.take(image[row::2, column::2])

        return paint


@registered(SHIFTS, "sensor_half_frame")
class HalfFrame(Photometric):
    """A frame that ends early: the lower `missing` share of its rows was never read and is black."""

    missing: float = parameter(
        *(0.2, 0.35, 0.5, 0.65, 0.8), within=(0, 1), neutral=0, quantity="missing rows", unit="of all rows"
    )

    @property
    def keeps_label(self) -> bool:
        """As long as a row was read."""
        return self.missing < 1

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        read = height - part_of(height, self.missing)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            target[:read], target[read:] = image[:read], 0

        return paint


@dataclass(frozen=True, kw_only=True)
class EarlierFrame(Ranged):
    """A fault that shows an earlier frame: the image `lag` rows before in the data set; before the first is the last.

    In a data set of at most `lag` images, the image itself is never taken: counting goes on among the others. The
    shift must know the data: `over(data)`. Label, box, mask and depth stay those of the image that should be shown.
    """

    _data: ClassVar[Dataset | None] = None
    lag: int

    def over(self, data: Dataset) -> Self:
        """The fault in the frames of this data; an error where it has no other frame."""
        if self._data is data:
            return self
        if len(data) < 2:
            raise InputError(
                f"shift {self.name} shows another frame of the data, and {data.name} has one image only: give it more"
            )
        bound = copy.copy(self)
        object.__setattr__(bound, "_data", data)
        bound.__dict__.pop("_places", None)
        return bound

    @cached_property
    def _places(self) -> dict[str, int]:
        """The row of every image of the data by its id."""
        return {} if self._data is None else {image_id: row for row, image_id in enumerate(self._data.ids)}

    def earlier(self, batch: Batch) -> Images:
        """The earlier frame of every image of the batch, (N, H, W, C)."""
        if self._data is None:
            raise InputError(f"shift {self.name} shows other frames of the data: call `over(data)` first")
        unknown = [image_id for image_id in batch.ids if image_id not in self._places]
        if unknown:
            raise InputError(f"shift {self.name}: image {unknown[0]!r} is not in data set {self._data.name}")
        count = len(self._data)
        steps = 1 + (self.lag - 1) % (count - 1)
        images = self._data.batch([(self._places[image_id] - steps) % count for image_id in batch.ids]).images
        if images.shape != batch.images.shape:
            raise InputError(
                f"shift {self.name}: frames of {self._data.name} have shape {images.shape[1:]}, and the images to show "
                f"{batch.images.shape[1:]}: give images of the same data"
            )
        return images


@registered(SHIFTS, "sensor_frozen_frame")
class FrozenFrame(EarlierFrame):
    """A frozen frame: the image `lag` rows before in the data set is shown again, under the label of this one."""

    lag: int = parameter(*(1, 2, 5, 10, 30), within=(1, 10**6), whole=True, quantity="age of the frame", unit="frames")

    @property
    def keeps_label(self) -> bool:
        """Never: it is another picture, though it may by chance show the same."""
        return False

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with the pixels of the earlier frames."""
        return batch.with_images(np.array(self.earlier(batch)))


@registered(SHIFTS, "sensor_torn_frame")
class TornFrame(EarlierFrame):
    """A torn frame: the lower `share` of its rows is still that of the image `lag` rows before in the data set."""

    share: float = parameter(
        *(0.2, 0.35, 0.5, 0.65, 0.8), within=(0, 1), neutral=0, quantity="rows of another frame", unit="of all rows"
    )
    lag: int = parameter(1, 2, 5, 10, 30, within=(1, 10**6), whole=True)

    @property
    def keeps_label(self) -> bool:
        """As long as a row is of the image itself."""
        return self.share < 1

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with the lower rows of the earlier frames."""
        height = batch.images.shape[1]
        own = height - part_of(height, self.share)
        return batch.with_images(np.concatenate([batch.images[:, :own], self.earlier(batch)[:, own:]], axis=1))


def part_of(total: int, share: float) -> int:
    """How many of `total` rows or columns a share is: the nearest, none only for 0 and all only for 1.

    So the fault is never quite absent and, below 1, never total; of a single row, less than all is none.

    >>> part_of(64, 0.2), part_of(10, 0.01), part_of(10, 0.99), part_of(10, 1), part_of(10, 0), part_of(1, 0.8)
    (13, 1, 9, 10, 0, 0)
    """
    if share in (0, 1):
        return int(share) * total
    return min(max(1, math.floor(share * total + 0.5)), total - 1)


def _box_of_moved_rows(box: NDArray[np.float32], moves: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """The smallest box around a box (4,) whose rows moved sideways by `moves` (H,), wrapped around; NaN: no box."""
    height = len(moves)
    x0, y0, x1, y1 = np.clip(box.astype(np.float64), 0, (width, height, width, height))
    rows = np.arange(height)
    inside = moves[(rows + 1 > y0) & (rows < y1)]
    if not (x1 > x0 and inside.size):
        return np.full(4, np.nan, np.float32)
    starts = (x0 + inside) % width
    ends = starts + (x1 - x0)
    wrapped = (ends > width).any()
    left, right = (0.0, float(width)) if wrapped else (starts.min(), ends.max())
    return np.array([left, y0, right, y1], np.float32)
