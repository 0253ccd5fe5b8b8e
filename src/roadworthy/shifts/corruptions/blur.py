"""Blur corruptions: out of focus, behind frosted glass, in motion, and two that are plainer."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import registered
from roadworthy.core.random import random_bytes
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Images
from roadworthy.shifts.base import Paint, gaussian
from roadworthy.shifts.corruptions.base import SIDES, Corruption, Triple, beyond, severities

STEEPEST_MOTION = 45.0
"""Largest angle of motion blur with the horizontal, in degrees, either way, uniform."""
LONGEST_TRAIL = 4.0
"""Where the trail of a motion ends at the latest, in sigma."""
WIDEST_DIRECT = 11
"""Wider kernels are applied by Fourier transforms: of bytes in single precision, of wider numbers in double precision,
which is exact to the last digit and three times as fast in OpenCV 5."""


@registered(SHIFTS, "c_defocus_blur")
class DefocusBlur(Corruption):
    """Out of focus: the mean over a disc of `radius` pixels, its rim softened by a Gaussian of `softness` pixels.

    Discs of about a pixel are not interpolated by their radius, since one of less than a pixel with a hard rim does
    nothing: between 32 and 64 pixels the weights of both discs are mixed, below 32 those of the first and the image.
    """

    code_version: ClassVar[int] = 3

    radius: Triple = severities(
        (0.3, 0.4, 0.5, 1, 1.5), (0.5, 1, 1.5, 2.5, 3), (3, 4, 6, 8, 10), within=(0, 64), pixels=True
    )
    softness: Triple = severities(
        (0.4, 0.5, 0.6, 0.2, 0.1), (0.6, 0.1, 0.1, 0.01, 0.1), (0.1, *[0.5] * 4), within=(0.01, 16), pixels=True
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        side = min(height, width)
        kernel = disc(*self.sized(height, width))
        if side < SIDES[1]:
            discs = [disc(*at) for at in zip(self.radius[:2], self.softness[:2], strict=True)]
            reach = max(len(own) // 2 for own in discs)
            rims = [reach - len(own) // 2 for own in discs]
            small, middle = (
                np.asarray(cv2.copyMakeBorder(own, rim, rim, rim, rim, cv2.BORDER_CONSTANT, value=0), np.float32)
                for own, rim in zip(discs, rims, strict=True)
            )
            untouched = np.zeros_like(small)
            untouched[reach, reach] = 1
            towards, share = math.log(max(side, SIDES[0]) / SIDES[0]) / math.log(SIDES[1] / SIDES[0]), beyond(side)
            kernel = share * ((1 - towards) * small + towards * middle) + (1 - share) * untouched
        if len(kernel) <= WIDEST_DIRECT:
            return lambda image, target, rng: cv2.filter2D(image, cv2.CV_8U, kernel, dst=target)
        return lambda image, target, rng: cv2.filter2D(image.astype(np.uint16), cv2.CV_8U, kernel, dst=target)


@registered(SHIFTS, "c_glass_blur")
class GlassBlur(Corruption):
    """Frosted glass: Gaussian blur of `sigma`, pixels replaced by near ones, the same blur again.

    In each of `iterations` rounds every pixel (r, c) in turn, from the last to the first, takes the colour that
    (r + i, c + j) has by then, i and j uniform whole numbers from -`reach` to `reach` - 1. The published corruption is
    written as an exchange of the two, but the other pixel keeps its colour: some colours double and others are lost.
    Boxes, masks and depth stay: pixels go astray either way, by a few pixels, and the object as a whole does not move.
    """

    code_version: ClassVar[int] = 2

    sigma: Triple = severities(
        (0.05, 0.25, 0.4, 0.25, 0.4),
        (0.1, 0.5, 0.6, 0.7, 0.9),
        (0.7, 0.9, 1, 1.1, 1.5),
        within=(0, 32),
        pixels=True,
        neutral=0,
    )
    reach: Triple = severities((1, 1, 1, 1, 1), (1, 1, 1, 2, 2), (1, 2, 2, 3, 4), within=(1, 32), pixels=True)
    iterations: Triple = severities((1, 1, 1, 2, 2), (1, 1, 2, 1, 2), (2, 1, 3, 2, 2), within=(0, 20), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        sigma, reach, rounds = self.sized(height, width)
        kernel, span = gaussian(sigma), 2 * max(1, round(reach))
        flat = np.arange(height * width)
        inner = flat.reshape(height, width)[span // 2 + 1 :, span // 2 + 1 :]
        inner = inner[: max(0, height - span), : max(0, width - span)].ravel()

        def softened(image: Images) -> Images:
            """The image blurred, fractions cut off as in the published sets: felt where sigma is small."""
            soft = cv2.sepFilter2D(image, cv2.CV_32F, kernel, kernel, delta=1e-3, borderType=cv2.BORDER_REPLICATE)
            return soft.reshape(image.shape).astype(np.uint8)

        def scattered(rng: np.random.Generator) -> NDArray[np.intp]:
            """For every pixel the one whose colour it gets."""
            colours = flat
            for _ in range(round(rounds)):
                words = random_bytes(rng, 4 * len(inner)).view("<u2").reshape(2, -1)
                down, right = (words.astype(np.intp) * span >> 16) - span // 2
                colours = colours.take(taken_in_turn(flat, inner, inner + down * width + right))
            return colours

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            shuffled = softened(image).reshape(-1, channels).take(scattered(rng), axis=0)
            target[...] = softened(shuffled.reshape(image.shape))

        return paint


@registered(SHIFTS, "c_motion_blur")
class MotionBlur(Corruption):
    """Camera in motion: a trail of half a Gaussian, `sigma` pixels, cut off at 2 `radius`, at up to 45 degrees.

    Boxes, masks and depth stay where the trail starts, which is where it is strongest.
    """

    radius: Triple = severities(
        (6, 6, 6, 8, 9), (10, 10, 10, 10, 12), (10, 15, 15, 15, 20), within=(0, 64), pixels=True, neutral=0
    )
    sigma: Triple = severities(
        (1, 1.5, 2, 2, 2.5), (1, 1.5, 2, 2.5, 3), (3, 5, 8, 12, 15), within=(0.01, 64), pixels=True
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        radius, sigma = self.sized(height, width)
        return lambda image, target, rng: blur_along(
            image, target, radius, sigma, STEEPEST_MOTION * (2 * rng.random() - 1)
        )


@registered(SHIFTS, "c_zoom_blur")
class ZoomBlur(Corruption):
    """Driving forwards: the mean of the image and `layers` copies, enlarged about the centre by 1 to `largest`.

    A copy shows the middle window of whole pixels, so that its centre may lie up to a pixel off that of the image. Box
    and mask stay: the copy of scale 1 counts twice and is the sharpest.
    """

    largest: Triple = severities(
        (1.06, 1.11, 1.15, 1.2, 1.25),
        (1.06, 1.11, 1.15, 1.2, 1.25),
        (1.11, 1.15, 1.2, 1.24, 1.3),
        within=(1, 10),
        neutral=1,
    )
    layers: Triple = severities((7, 12, 16, 21, 26), (7, 12, 16, 21, 26), (12, 16, 11, 13, 11), within=(1, 100))

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        largest, layers = self.sized(height, width)
        count = round(layers)
        steps = [_enlarged(zoom, height, width) for zoom in np.linspace(1, largest, count).tolist()[1:]]
        sample = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        layer, total = np.empty((height, width, channels), np.uint8), np.empty((height, width, channels), np.float32)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            np.multiply(image, 2, out=total, casting="unsafe", dtype=np.float32)
            for step in steps:
                cv2.warpAffine(image, step, (width, height), dst=layer, flags=sample, borderMode=cv2.BORDER_REPLICATE)
                cv2.accumulate(layer, total)
            cv2.convertScaleAbs(total, dst=target, alpha=1 / (count + 1))

        return paint


@registered(SHIFTS, "c_gaussian_blur")
class GaussianBlur(Corruption):
    """Gaussian blur of standard deviation `sigma` pixels, cut off at 3 sigma, edges repeated."""

    sigma: Triple = severities(
        (0.4, 0.6, 0.7, 0.8, 1), (0.5, 0.75, 1, 1.25, 1.5), (1, 2, 3, 4, 6), within=(0, 64), pixels=True, neutral=0
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        (sigma,) = self.sized(height, width)
        kernel = gaussian(sigma)
        edge = cv2.BORDER_REPLICATE
        return lambda image, target, rng: cv2.sepFilter2D(image, cv2.CV_8U, kernel, kernel, target, borderType=edge)


@lru_cache(maxsize=32)
def disc(radius: float, softness: float) -> NDArray[np.float32]:
    """Weights (K, K) of a disc that sum to 1: the whole pixels within the radius, softened by a Gaussian.

    The Gaussian reaches one pixel, from radius 8 on two.

    >>> (5 * disc(1, 0.01)).round().astype(int).tolist()[1:4]
    [[0, 0, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 0, 0]]
    """
    window = 3 if radius <= 8 else 5
    reach = math.floor(radius) + window // 2
    offsets = np.arange(-reach, reach + 1)
    inside = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float32)
    soft = cv2.GaussianBlur(inside, (window, window), softness, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(soft / soft.sum(), np.float32)


def blur_along(image: Images, target: Images, radius: float, sigma: float, degrees: float) -> None:
    """Write to `target` the image blurred along a line: sum_i k_i img(p + i d), k_i ~ exp(-i^2 / (2 sigma^2)).

    d is the direction, positions go to the nearest pixel, i runs from 0 to 2 `radius`; edges are repeated.

    >>> picture = np.zeros((1, 5, 1), np.uint8); picture[0, 3] = 100
    >>> trail = np.empty_like(picture); blur_along(picture, trail, radius=0.5, sigma=9.0, degrees=0.0)
    >>> trail[0, :, 0].tolist()
    [0, 0, 50, 50, 0]
    """
    last = min(round(2 * radius), math.ceil(LONGEST_TRAIL * sigma))
    down, right = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    rows, columns = ([math.ceil(i * step - 0.5) for i in range(last + 1)] for step in (down, right))
    top, left = min(rows), min(columns)
    kernel = np.zeros((max(rows) - top + 1, max(columns) - left + 1), np.float32)
    for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
        kernel[row - top, column - left] += math.exp(-0.5 * (i / sigma) ** 2)
    kernel /= kernel.sum()
    cv2.filter2D(image, cv2.CV_8U, kernel, dst=target, anchor=(-left, -top), borderType=cv2.BORDER_REPLICATE)


def taken_in_turn(flat: NDArray[np.intp], pixels: NDArray[np.intp], sources: NDArray[np.intp]) -> NDArray[np.intp]:
    """Whose colour every pixel of `flat` (0 to N - 1) has after each of `pixels`, the last first, took its source's.

    A source behind its pixel took its colour earlier, so its own source counts, and so on until one lies before or has
    none: chains of pixels, followed by all at once in steps that double.

    >>> taken_in_turn(np.arange(5), np.array([1, 2, 3]), np.array([2, 3, 0])).tolist()
    [0, 0, 0, 0, 4]
    """
    origin, last = flat.copy(), flat.copy()
    origin[pixels] = sources
    last[pixels] = np.maximum(pixels, sources)
    while not np.array_equal(last, further := last.take(last)):
        last = further
    return origin.take(last)


def _enlarged(zoom: float, height: int, width: int) -> NDArray[np.float64]:
    """From a pixel of the enlarged image to the point it shows (2, 3)."""
    (across, left), (down, top) = (enlarging(zoom, side) for side in (width, height))
    return np.array(((across, 0, left), (0, down, top)))


def enlarging(zoom: float, side: int) -> tuple[float, int]:
    """Step and start of the middle window of side / zoom pixels, rounded up, on the enlarged image.

    >>> enlarging(2, 10), enlarging(1, 10)
    ((0.4444444444444444, 2), (1.0, 0))
    """
    shown = math.ceil(side / zoom)
    return (shown - 1) / max(1, round(shown * zoom) - 1), (side - shown) // 2
