"""Weather corruptions: snow, frost, fog, brightness, and spatter on the lens."""

from __future__ import annotations

import math
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import random_bytes
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Images
from roadworthy.shifts.base import LUMA, Paint, coloured, gaussian
from roadworthy.shifts.corruptions.base import (
    LARGE,
    Corruption,
    Pair,
    as_bytes,
    between,
    beyond,
    severities,
    standard_normal,
    surviving,
)
from roadworthy.shifts.corruptions.blur import blur_along
from roadworthy.shifts.corruptions.frost import frost

FAINTEST_CLOUD = 1 / 512
"""Finer clouds than those of this share of the coarsest are left out: less than half a grey level."""
WATER, MUD = (175, 238, 238), (63, 42, 20)
EMBOSS = np.array(((-2, -1, 0), (-1, 1, 1), (0, 1, 2)), np.float32)
"""Light from the upper left."""
DROP_RIM = 20.0
"""From that many pixels off its rim (at 224x224) a drop is flat."""
THINNEST_MUD = 0.8
PANE_SCALE: Pair = (0.2, 1.0)
"""How large a pane of frost is shown to an image of 32 and of 224 pixels; to larger ones it is enlarged."""


@registered(SHIFTS, "c_snow")
class Snow(Corruption):
    """Driving snow: k img + (1 - k) max(img, 1.5 grey + 127.5) + s + s turned by 180 degrees, k = `keep`.

    s: normal noise (`mean`, `spread`) on cells of `zoom` pixels, 0 below `threshold`, blurred along a steep line by
    half a Gaussian of `sigma` pixels that ends at 2 `radius`.
    """

    mean: Pair = severities((0.1, 0.1, 0.15, 0.25, 0.3), (0.1, 0.2, 0.55, 0.55, 0.55), within=(-5, 5))
    spread: Pair = severities((0.2, 0.2, 0.3, 0.3, 0.3), (0.3, 0.3, 0.3, 0.3, 0.3), within=(0, 5))
    zoom: Pair = severities((1, 1, 1.75, 2.25, 1.25), (3, 2, 4, 4.5, 2.5), within=(0.1, 64), pixels=True)
    threshold: Pair = severities((0.6, 0.5, 0.55, 0.6, 0.65), (0.5, 0.5, 0.9, 0.85, 0.85), within=(0, 5))
    radius: Pair = severities((8, 10, 10, 12, 14), (10, 12, 12, 12, 12), within=(0, 64), pixels=True)
    sigma: Pair = severities((3, 4, 4, 6, 12), (4, 4, 8, 8, 12), within=(0.01, 64), pixels=True)
    keep: Pair = severities((0.95, 0.9, 0.9, 0.85, 0.8), (0.8, 0.7, 0.7, 0.65, 0.55), within=(0, 1))

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        mean, spread, zoom, threshold, radius, sigma, keep = self.sized(height, width)
        rows, columns = (math.ceil(side / max(1.0, zoom)) for side in (height, width))
        paler = 1.5 * np.arange(256) + 127.5
        pale_values = np.minimum(paler, 255).astype(np.uint8)
        haze_values = np.rint(np.minimum((1 - keep) * paler, 255)).astype(np.uint8)
        flakes = np.empty((height, width), np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            degrees = 90 * rng.random() - 135
            noise = cv2.resize(mean + spread * standard_normal(rng, rows, columns), (width, height))
            _, thick = cv2.threshold(noise, threshold, 0, cv2.THRESH_TOZERO)
            blur_along(as_bytes(cv2.convertScaleAbs(thick, alpha=255)), flakes, radius, sigma, degrees)
            grey = image[:, :, 0] if channels == 1 else as_bytes(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))
            above = cv2.subtract(image, coloured(pale_values[grey], channels)).reshape(image.shape)
            cv2.addWeighted(image, keep, above, 1 - keep, 0, dst=target)
            falling = cv2.add(flakes, np.ascontiguousarray(flakes[::-1, ::-1]))
            cv2.add(target, coloured(as_bytes(cv2.add(falling, haze_values[grey])), channels), dst=target)

        return paint


@registered(SHIFTS, "c_frost")
class Frost(Corruption):
    """Ice on the lens: `keep` img + `ice` frost, frost a random window of one of five drawn panes, maybe mirrored.

    A pane is shown at its own size to a 224x224 image and at a fifth of it to a 32x32 one, as the published sets do.
    """

    code_version: ClassVar[int] = 2

    keep: Pair = severities((1, 1, 0.9, 0.85, 0.75), (1, 0.8, 0.7, 0.65, 0.6), within=(0, 1), neutral=1)
    ice: Pair = severities((0.2, 0.3, 0.4, 0.4, 0.45), (0.4, 0.6, 0.7, 0.7, 0.75), within=(0, 2), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        keep, ice = self.sized(height, width)
        side = min(height, width)
        enlarged = max(1.0, side / LARGE)
        rows, columns = (math.ceil(length / enlarged) for length in (height, width))
        panes = frost(rows, columns, between(PANE_SCALE, side) * beyond(side) / enlarged, channels)
        down, right = panes[0].shape[0] - rows, panes[0].shape[1] - columns

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            which, y, x, turn = rng.random(4).tolist()
            top, left = int(down * y), int(right * x)
            window = panes[int(len(panes) * which)][top : top + rows, left : left + columns]
            upright, mirrored = divmod(int(4 * turn), 2)
            seen = np.ascontiguousarray(window[:: -1 if upright else 1, :: -1 if mirrored else 1])
            if enlarged > 1:
                seen = as_bytes(cv2.resize(seen, (width, height))).reshape(image.shape)
            cv2.addWeighted(image, keep, seen, ice, 0, dst=target)

        return paint


@registered(SHIFTS, "c_fog")
class Fog(Corruption):
    """Banks of fog: (img + d clouds) m / (m + d 255), d = `density`, m the largest value of the image.

    clouds span 0 to 255: noise on a grid that doubles again and again, each time `decay`^2 times weaker.
    """

    density: Pair = severities((0.2, 0.5, 0.75, 1, 1.5), (1.5, 2, 2.5, 2.5, 3), within=(0, 100), neutral=0)
    decay: Pair = severities((3, 3, 2.5, 2, 1.75), (2, 2, 1.7, 1.5, 1.4), within=(1, 10))

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        density, decay = self.sized(height, width)
        doublings = max(1, (max(height, width) - 1).bit_length())
        grids = [
            [-(-(side - 1) // 2**shrink) + 1 for side in (height, width)] for shrink in range(doublings - 1, -1, -1)
        ]
        weights = [decay ** (-2 * octave) for octave in range(len(grids))]
        octaves = [(*grid, weight) for grid, weight in zip(grids, weights, strict=True) if weight >= FAINTEST_CLOUD]
        fog = np.empty((height, width), np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            clouds: cv2.typing.MatLike = np.zeros((1, 1), np.float32)
            for rows, columns, weight in octaves:
                noise = random_bytes(rng, rows * columns).reshape(rows, columns)
                clouds = cv2.addWeighted(_scaled(clouds, 2, rows, columns), 1, noise, weight, 0, dtype=cv2.CV_32F)
            clouds = _scaled(clouds, 2 ** (doublings - len(octaves)), height, width)
            cv2.normalize(clouds, fog, 0, 255, cv2.NORM_MINMAX, cv2.CV_8U)
            white = float(image.max()) / 255
            share = white / (white + density) if white else 0.0
            cv2.addWeighted(image, share, coloured(fog, channels), share * density, 0, dst=target)

        return paint


@registered(SHIFTS, "c_brightness")
class Brightness(Corruption):
    """Overexposure: the largest channel v of a pixel becomes min(255, v + 255 b), b = `amount`; its hue stays."""

    amount: Pair = severities((0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5), within=(0, 1), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        (amount,) = self.sized(height, width)
        values = np.arange(256)
        lifted = np.minimum(255, values + 255 * amount)
        gain = np.asarray(lifted / np.maximum(values, 1), np.float32)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            value = _brightest(image)
            bright = cv2.multiply(image, cv2.merge([cv2.LUT(value, gain)] * channels), dtype=cv2.CV_8U)
            target[...] = bright.reshape(image.shape)
            target[value == 0] = round(lifted[0])

        return paint


@registered(SHIFTS, "c_spatter")
class Spatter(Corruption):
    """Drops on the lens, where smooth normal noise exceeds `threshold`: `liquid` is water or mud.

    The noise (`mean`, `spread`) is Gaussian-blurred by `sigma` pixels. Water adds up to `strength` of a pale turquoise,
    brightest where a drop is lit; mud covers with brown, its rim blurred by `strength` pixels. Between the two
    published sizes it is the spread of the blurred noise that is interpolated, so that drops cover a like share.
    """

    mean: Pair = severities((0.62, 0.65, 0.65, 0.65, 0.65), (0.65, 0.65, 0.65, 0.65, 0.67), within=(-5, 5))
    spread: Pair = severities((0.1, 0.1, 0.3, 0.1, 0.1), (0.3, 0.3, 0.3, 0.3, 0.4), within=(0, 5))
    sigma: Pair = severities((0.7, 0.8, 1, 0.7, 0.5), (4, 3, 2, 1, 1), within=(0.01, 64), pixels=True)
    threshold: Pair = severities((0.7, 0.7, 0.69, 0.69, 0.68), (0.69, 0.68, 0.68, 0.65, 0.65), within=(-5, 5))
    strength: Pair = severities((0.5, 0.5, 0.5, 0.6, 0.6), (0.6, 0.6, 0.5, 1.5, 1.5), within=(0, 64))
    liquid: str = parameter("water", "water", "water", "mud", "mud", default="water")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.liquid not in ("water", "mud"):
            raise InputError(f"shift {self.name}: liquid must be water or mud, not {self.liquid!r}")

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        mean, _, sigma, threshold, strength = self.sized(height, width)
        kernel = np.asarray(gaussian(sigma), np.float32)
        smooth = [spread * surviving(gaussian(width)) for spread, width in zip(self.spread, self.sigma, strict=True)]
        spread = between((smooth[0], smooth[1]), min(height, width)) / surviving(kernel)
        tint = MUD if self.liquid == "mud" else WATER
        colour = np.array(tint if channels == 3 else [np.dot(LUMA, tint)], np.float32)
        unit = min(height, width) / LARGE

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            noise = mean + spread * standard_normal(rng, height, width)
            layer = cv2.sepFilter2D(noise, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
            if self.liquid == "mud":
                cover = _mud(layer > threshold, strength)
                base = image * (1 - cover)
            else:
                cover = strength * _water(np.where(layer < threshold, 0, layer), DROP_RIM * unit)
                base = image.astype(np.float32)
            np.copyto(target, np.rint(np.clip(base + cover * colour, 0, 255)), casting="unsafe")

        return paint


def _scaled(points: cv2.typing.MatLike, factor: int, rows: int, columns: int) -> cv2.typing.MatLike:
    """Values between points of a grid that is `factor` times as fine; the first points of both grids coincide."""
    inverse = np.array(((1 / factor, 0, 0), (0, 1 / factor, 0)))
    sample = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(points, inverse, (columns, rows), flags=sample, borderMode=cv2.BORDER_REPLICATE)


def _mud(wet: NDArray[np.bool_], blur: float) -> NDArray[np.float32]:
    """How much of each pixel is covered (H, W, 1): the blurred drops, nothing where they are thin."""
    kernel = gaussian(blur)
    thickness = cv2.sepFilter2D(wet.astype(np.float32), cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.threshold(thickness, THINNEST_MUD, 0, cv2.THRESH_TOZERO)[1], np.float32)[:, :, None]


def _water(layer: NDArray[np.float32], rim: float) -> NDArray[np.float32]:
    """How bright each pixel shines (H, W, 1), from 0 to 1: drops, embossed by the distance to their rim."""
    liquid = cv2.convertScaleAbs(layer, alpha=255)
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    height = cv2.equalizeHist(cv2.blur(np.minimum(distance, max(rim, 1.0)), (3, 3)).astype(np.uint8))
    lit = cv2.blur(cv2.filter2D(height, cv2.CV_8U, EMBOSS), (3, 3))
    shine = cv2.multiply(liquid, lit, dtype=cv2.CV_32F)
    return np.asarray(shine / max(float(shine.max()), 1.0), np.float32)[:, :, None]


def _brightest(image: Images) -> Images:
    """The largest channel of each pixel (H, W)."""
    if image.shape[2] == 1:
        return image[:, :, 0]
    red, green, blue = cv2.split(image)
    return as_bytes(cv2.max(cv2.max(red, green), blue))
