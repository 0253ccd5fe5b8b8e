"""Fog and rain by their measured strength: a veil that grows with distance, in linear light, and streaks of rain.

Unlike the shifts `fog` and `rain`, which are patterns laid over a picture, these follow a formula with units: a visual
range in metres, rain in millimetres per hour. How far away a pixel is follows the four rules of `distances`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch
from roadworthy.core.validation import check_number
from roadworthy.shifts import raindrops
from roadworthy.shifts.distances import ThroughDistance, condition_numbers
from roadworthy.shifts.light import blend, linear_light, srgb_values

VISUAL_RANGE_LOSS = 3.912
"""-ln 0.02: at the visual range a black object against the sky keeps 2 % of its contrast."""
MOR_LOSS = 2.996
"""-ln 0.05: over the meteorological optical range light keeps 5 %."""
RANGES_OF_SIGHT = (1.0, 1e6)
DROP_LIGHT = 0.94
"""Light that a drop shows, as a share of that of the sky: it refracts a wide view of it (Garg and Nayar, 2007)."""


@registered(SHIFTS, "fog_veil")
class FogVeil(ThroughDistance):
    """Fog that thickens with distance, in linear light: L = L0 t + A (1 - t).

    t = exp(-3.912 d / V) for a `visual_range` of V metres (contrast 2 %), or exp(-2.996 d / MOR) for the meteorological
    optical range `mor` (5 %); exactly one of the two is given. d is the distance of the pixel by the rules of
    `roadworthy.shifts.distances`, and an image of which none is known is an error. A is the light of the grey
    `airlight` (sRGB, 0 to 255), the same in all channels. Nothing is random: the fog is even. At level 1 an object 30 m
    away keeps 68 % of its contrast, at level 2 31 %.

    >>> batch = Batch(("a",), np.zeros((1, 8, 8, 3), np.uint8), np.zeros(1, np.int64))
    >>> FogVeil(visual_range=100, distance=50).transmission(batch)[0].round(4).tolist()
    [[0.1414]]
    """

    visual_range: float | None = parameter(
        *(300.0, 100.0), default=None, neutral=math.inf, inverse=True, quantity="visual range", unit="m"
    )
    mor: float | None = parameter(
        default=None, neutral=math.inf, inverse=True, quantity="meteorological optical range", unit="m"
    )
    airlight: float = parameter(within=(0, 255), default=200.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {name: getattr(self, name) for name in ("visual_range", "mor") if getattr(self, name) is not None}
        if len(given) != 1:
            raise InputError(f"shift {self.name} needs either `visual_range` or `mor` in metres, and not both")
        for name, metres in given.items():
            check_number(f"shift {self.name}: {name}", metres, *RANGES_OF_SIGHT)

    @property
    def loss(self) -> float:
        """Light lost per metre, the k of t = exp(-k d)."""
        if self.mor is not None:
            return MOR_LOSS / self.mor
        assert self.visual_range is not None
        return VISUAL_RANGE_LOSS / self.visual_range

    def transmission(self, batch: Batch) -> list[NDArray[np.float64]]:
        """t of each image, (H, W), or (H, 1) or (1, 1) where columns do not differ."""
        return [np.exp(-self.loss * metres.astype(np.float64)) for metres in self.required_distances(batch)]

    def exact(self, batch: Batch) -> NDArray[np.float64]:
        """The pictures in the fog as sRGB values on [0, 255] that are not rounded, (N, H, W, C)."""
        airlight = float(linear_light(self.airlight))
        pictures = np.empty(batch.images.shape)
        for picture, image, kept in zip(pictures, batch.images, self.transmission(batch), strict=True):
            picture[:] = srgb_values(linear_light(image) * kept[..., None] + airlight * (1 - kept[..., None]))
        return pictures

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch in the fog: `exact`, rounded to whole values."""
        airlight, loss = np.float32(linear_light(self.airlight)), np.float32(-self.loss)
        images = np.ascontiguousarray(batch.images)
        veiled = np.empty_like(images)
        for image, target, metres in zip(images, veiled, self.required_distances(batch), strict=True):
            kept = np.exp(loss * metres)
            blend(image, kept, airlight * (1 - kept), target)
        return batch.with_images(veiled)


@registered(SHIFTS, "rainfall")
class Rainfall(ThroughDistance):
    """Rain of `mm_per_h`: streaks of the drops near the camera, over a veil of those far away, in linear light.

        L = (1 - a) (L0 t + A (1 - t)) + a 0.94 A,   t = exp(-k d),   a = 1 - exp(-o thickness)

    The thickness is that of the streaks of `raindrops.streaks`: drop sizes by Marshall and Palmer, each streak as long
    as the drop falls in `exposure` seconds, nearer ones larger, longer and rarer. o is the `opacity`: 1 is the physics
    of drops lit by an even sky, whose streaks an image of this size hardly shows; more stands for drops that are lit
    brighter than the scene behind them. Streaks lean by `angle` degrees from upright (to the right at
    the bottom), and by up to `jitter` more or less, uniform, image by image. k is `raindrops.extinction`. d is the
    distance of the pixel by the rules of `roadworthy.shifts.distances`; where none is known, there is no veil. A is the
    light of the grey `airlight` (sRGB, 0 to 255): the sky, which drops show too. Drops are brighter than most of a
    scene; before a bright sky they darken a little.

    A cut-out shows rain as large as its frame does: from the conditions frame_width, crop_x0 and crop_x1 of a curated
    manifest, else the image is taken for a cut-out of `view` of the frame's width. Assumptions: the camera stands
    still and behind no windscreen, all is in focus, the road stays dry. Level 1 is the end of what meteorologists call
    slight rain, level 2 that of heavy rain.
    """

    mm_per_h: float = parameter(2.5, 50.0, within=(0, 300), neutral=0, quantity="rain", unit="mm/h")
    exposure: float = parameter(within=(1e-5, 0.1), default=0.005)
    opacity: float = parameter(within=(0, 100), default=8.0)
    angle: float = parameter(within=(-90, 90), default=10.0)
    jitter: float = parameter(within=(0, 90), default=10.0)
    view: float = parameter(within=(0.001, 1), default=0.25)
    airlight: float = parameter(within=(0, 255), default=190.0)

    def streak_shares(self, batch: Batch, streams: Streams) -> Iterator[NDArray[np.float32]]:
        """The share a of light that comes from streaks, (H, W) for each image, from its own random stream."""
        height, width = batch.images.shape[1:3]
        for scale, rng in zip(self._pixels_per_focal(batch), streams.each(batch.ids), strict=True):
            right, lower, turn = rng.random(3).tolist()
            copy = raindrops.copy_for(scale)
            tile = raindrops.streaks(self.mm_per_h, self.exposure, copy)
            step, lean = copy / scale, math.radians(self.angle + self.jitter * (2 * turn - 1))
            a, b = step * math.cos(lean), step * math.sin(lean)
            x, y = (
                len(tile) * right - a * width / 2 + b * height / 2,
                len(tile) * lower - b * width / 2 - a * height / 2,
            )
            window = np.array(((a, -b, x), (b, a, y)))
            sample = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
            seen = cv2.warpAffine(tile, window, (width, height), flags=sample, borderMode=cv2.BORDER_WRAP)
            yield -np.expm1(np.float32(-self.opacity) * np.asarray(seen, np.float32))

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch in the rain."""
        sky, loss = np.float32(linear_light(self.airlight)), np.float32(-raindrops.extinction(self.mm_per_h))
        images = np.ascontiguousarray(batch.images)
        rainy = np.empty_like(images)
        layers = zip(images, rainy, self.distances(batch), self.streak_shares(batch, streams), strict=True)
        for image, target, metres, share in layers:
            through = 1 - share
            kept = through if metres is None else through * np.exp(loss * metres)
            blend(image, kept, sky * (through - kept) + np.float32(DROP_LIGHT) * sky * share, target)
        return batch.with_images(rainy)

    def _pixels_per_focal(self, batch: Batch) -> list[float]:
        """The focal length in pixels of each image."""
        width = batch.images.shape[2]
        columns = [condition_numbers(batch, name) for name in ("frame_width", "crop_x0", "crop_x1")]
        frame, left, right = columns
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(np.isfinite(frame + left + right), (right - left) / frame, self.view)
        for image_id, share in zip(batch.ids, shares.tolist(), strict=True):
            if not 0 < share < math.inf:
                raise InputError(
                    f"the cut-out of image {image_id!r} has no width: correct crop_x0, crop_x1, frame_width"
                )
        return [self.focal * width / share for share in shares.tolist()]
