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
    Triple,
    as_bytes,
    between,
    beyond,
    severities,
    standard_normal,
    surviving,
)
from roadworthy.shifts.corruptions.blur import blur_along, enlarging
from roadworthy.shifts.corruptions.frost import frost

WATER, MUD = (175, 238, 238), (63, 42, 20)
EMBOSS = np.array(((-2, -1, 0), (-1, 1, 1), (0, 1, 2)), np.float32)
"""Light from the upper left."""
DROP_RIM = 20.0
"""From that many pixels off its rim a drop is flat, at all of the published sizes."""
THINNEST_MUD = 0.8
PANE_SCALE = (0.2, 0.3, 1.0)
"""How large a pane of frost is shown to an image of 32, 64 and 224 pixels; to larger ones it is enlarged."""


@registered(SHIFTS, "c_snow")
class Snow(Corruption):
    """Driving snow: k img + (1 - k) max(img, 1.5 grey + 127.5) + s + s turned by 180 degrees, k = `keep`.

    s: normal noise (`mean`, `spread`) on cells of `zoom` pixels, 0 below `threshold`, blurred along a steep line by
    half a Gaussian of `sigma` pixels that ends at 2 `radius`.
    """

    code_version: ClassVar[int] = 2

    mean: Triple = severities(
        (0.1, 0.1, 0.15, 0.25, 0.3), (0.1, 0.1, 0.15, 0.25, 0.3), (0.1, 0.2, 0.55, 0.55, 0.55), within=(-5, 5)
    )
    spread: Triple = severities(
        (0.2, 0.2, 0.3, 0.3, 0.3), (0.2, 0.2, 0.3, 0.3, 0.3), (0.3, 0.3, 0.3, 0.3, 0.3), within=(0, 5)
    )
    zoom: Triple = severities(
        (1, 1, 1.75, 2.25, 1.25), (1, 1, 1.75, 2.25, 1.25), (3, 2, 4, 4.5, 2.5), within=(0.1, 64), pixels=True
    )
    threshold: Triple = severities(
        (0.6, 0.5, 0.55, 0.6, 0.65), (0.6, 0.5, 0.55, 0.6, 0.65), (0.5, 0.5, 0.9, 0.85, 0.85), within=(0, 5)
    )
    radius: Triple = severities(
        (8, 10, 10, 12, 14), (8, 10, 10, 12, 14), (10, 12, 12, 12, 12), within=(0, 64), pixels=True
    )
    sigma: Triple = severities((3, 4, 4, 6, 12), (3, 4, 4, 6, 12), (4, 4, 8, 8, 12), within=(0.01, 64), pixels=True)
    keep: Triple = severities(
        (0.95, 0.9, 0.9, 0.85, 0.8), (0.8, 0.8, 0.7, 0.65, 0.6), (0.8, 0.7, 0.7, 0.65, 0.55), within=(0, 1)
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        mean, spread, zoom, threshold, radius, sigma, keep = self.sized(height, width)
        coarse = max(1.0, zoom)
        rows, columns = (math.ceil(side / coarse) for side in (height, width))
        down, right = (enlarging(coarse, side)[0] for side in (height, width))
        step = np.array(((right, 0, 0), (0, down, 0)))
        sample = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        paler = 1.5 * np.arange(256) + 127.5
        pale_values = np.minimum(paler, 255).astype(np.uint8)
        haze_values = np.rint(np.minimum((1 - keep) * paler, 255)).astype(np.uint8)
        flakes = np.empty((height, width), np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            degrees = 90 * rng.random() - 135
            cells = mean + spread * standard_normal(rng, rows, columns)
            noise = cv2.warpAffine(cells, step, (width, height), flags=sample, borderMode=cv2.BORDER_REPLICATE)
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

    A pane is shown at its own size to a 224x224 image, at .3 of it to a 64x64 one and at .2 to a 32x32 one, as in the
    published sets.
    """

    code_version: ClassVar[int] = 2

    keep: Triple = severities(
        (1, 1, 0.9, 0.85, 0.75), (1, 0.9, 0.8, 0.75, 0.7), (1, 0.8, 0.7, 0.65, 0.6), within=(0, 1), neutral=1
    )
    ice: Triple = severities(
        (0.2, 0.3, 0.4, 0.4, 0.45), (0.3, 0.4, 0.45, 0.5, 0.55), (0.4, 0.6, 0.7, 0.7, 0.75), within=(0, 2), neutral=0
    )

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

    clouds are a square window of a map that repeats itself, of a power of two of pixels, and 0 to 255 over all of it.
    From one point on, points midway between four neighbours are added again and again, each the mean of these and a
    uniform random number, whose range shrinks by `decay`^2 when the distance halves (diamond and square).
    """

    code_version: ClassVar[int] = 2

    density: Triple = severities(
        (0.2, 0.5, 0.75, 1, 1.5), (0.4, 0.7, 1, 1.5, 2), (1.5, 2, 2.5, 2.5, 3), within=(0, 100), neutral=0
    )
    decay: Triple = severities((3, 3, 2.5, 2, 1.75), (3, 3, 2.5, 2, 1.75), (2, 2, 1.7, 1.5, 1.4), within=(1, 10))

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        density, decay = self.sized(height, width)
        doublings = (max(height, width) - 1).bit_length()
        fog = np.empty((2**doublings, 2**doublings), np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            cv2.normalize(_clouds(rng, doublings, decay), fog, 0, 255, cv2.NORM_MINMAX, cv2.CV_8U)
            white = float(image.max()) / 255
            share = white / (white + density) if white else 0.0
            cv2.addWeighted(image, share, coloured(fog[:height, :width], channels), share * density, 0, dst=target)

        return paint


@registered(SHIFTS, "c_brightness")
class Brightness(Corruption):
    """Overexposure: the largest channel v of a pixel becomes min(255, v + 255 b), b = `amount`; its hue stays."""

    amount: Triple = severities(
        (0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5), (0.1, 0.2, 0.3, 0.4, 0.5), within=(0, 1), neutral=0
    )

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
    brightest where a drop is lit; mud covers with brown, its rim blurred by `strength` pixels. Between the
    published sizes it is the spread of the blurred noise that is interpolated, so that drops cover a like share.
    """

    code_version: ClassVar[int] = 2

    mean: Triple = severities(
        (0.62, 0.65, 0.65, 0.65, 0.65), (0.62, 0.65, 0.65, 0.65, 0.65), (0.65, 0.65, 0.65, 0.65, 0.67), within=(-5, 5)
    )
    spread: Triple = severities(
        (0.1, 0.1, 0.3, 0.1, 0.1), (0.1, 0.1, 0.3, 0.1, 0.1), (0.3, 0.3, 0.3, 0.3, 0.4), within=(0, 5)
    )
    sigma: Triple = severities(
        (0.7, 0.8, 1, 0.7, 0.5), (0.7, 0.8, 1, 0.7, 0.5), (4, 3, 2, 1, 1), within=(0.01, 64), pixels=True
    )
    threshold: Triple = severities(
        (0.7, 0.7, 0.69, 0.69, 0.68), (0.7, 0.7, 0.69, 0.68, 0.67), (0.69, 0.68, 0.68, 0.65, 0.65), within=(-5, 5)
    )
    strength: Triple = severities(
        (0.5, 0.5, 0.5, 0.6, 0.6), (0.6, 0.6, 0.6, 0.6, 0.6), (0.6, 0.6, 0.5, 1.5, 1.5), within=(0, 64)
    )
    liquid: str = parameter("water", "water", "water", "mud", "mud", default="water")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.liquid not in ("water", "mud"):
            raise InputError(f"shift {self.name}: liquid must be water or mud, not {self.liquid!r}")

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        mean, _, sigma, threshold, strength = self.sized(height, width)
        kernel = np.asarray(gaussian(sigma), np.float32)
        side = min(height, width)
        smooth = [spread * surviving(gaussian(width)) for spread, width in zip(self.spread, self.sigma, strict=True)]
        spread = between(smooth, side) / surviving(kernel)
        tint = MUD if self.liquid == "mud" else WATER
        colour = np.array(tint if channels == 3 else [np.dot(LUMA, tint)], np.float32)
        rim = DROP_RIM * beyond(side)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            noise = mean + spread * standard_normal(rng, height, width)
            layer = cv2.sepFilter2D(noise, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
            if self.liquid == "mud":
                cover = _mud(layer > threshold, strength)
                base = image * (1 - cover)
            else:
                cover = strength * _water(np.where(layer < threshold, 0, layer), rim)
                base = image.astype(np.float32)
            np.copyto(target, np.rint(np.clip(base + cover * colour, 0, 255)), casting="unsafe")

        return paint


def _clouds(rng: np.random.Generator, doublings: int, decay: float) -> NDArray[np.float32]:
    """A map of clouds (2^d, 2^d) whose opposite edges meet, its first point 0."""
    points = np.zeros((1, 1), np.float32)
    for doubling in range(doublings):
        side, largest = len(points), decay ** (-2 * doubling)
        noise = random_bytes(rng, 3 * side * side).reshape(3, side, side) * np.float32(largest / 127.5)
        noise -= np.float32(largest)
        finer = np.empty((2 * side, 2 * side), np.float32)
        corners = np.asarray(cv2.copyMakeBorder(points, 0, 1, 0, 1, cv2.BORDER_WRAP))
        across, along = corners[:-1, :-1] + corners[:-1, 1:], corners[:-1, :-1] + corners[1:, :-1]
        middles = (across + corners[1:, :-1] + corners[1:, 1:]) / 4 + noise[0]
        around = np.asarray(cv2.copyMakeBorder(middles, 1, 0, 1, 0, cv2.BORDER_WRAP))
        finer[::2, ::2], finer[1::2, 1::2] = points, middles
        finer[::2, 1::2] = (across + around[:-1, 1:] + middles) / 4 + noise[1]
        finer[1::2, ::2] = (along + around[1:, :-1] + middles) / 4 + noise[2]
        points = finer
    return points


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
