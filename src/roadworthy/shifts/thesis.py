"""Ten image transformations: noise, grey, snow, rain, fog, perspective, blur, rotation, crop, reflection.

They follow section 3.1.1 of the robustness thesis; levels are those of its table 12, for 64x64 images. Parameters in
pixels scale with min(H, W) / 64. What the text leaves open is decided by the constants below.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import random_bytes
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch, Images
from roadworthy.core.validation import check_number
from roadworthy.shifts import geometry, textures
from roadworthy.shifts.base import (
    CUT_OFF,
    LUMA,
    PIXELS,
    REFERENCE_SIZE,
    Geometric,
    Paint,
    Photometric,
    coloured,
    gaussian,
    unit,
)

ZOOM_RANGE = (0.8, 1.6)
"""Scale at which a snow or rain texture is seen, uniform."""
SNOW_TILT, RAIN_TILT = 180.0, 20.0
"""Largest turn of the texture in degrees, either way, uniform."""
FOG_GRID = 16
"""Cells of fog noise along the shorter side of the image."""
FOG_SIGMA = 1.6
"""Blur of the fog noise in cells."""
FOG_RANGE = (144, 255)
"""Darkest and brightest grey of the fog."""
GLARE_SOFTNESS = 0.25
"""Blur of the reflected square as a share of its side."""
STRONGEST_PERSPECTIVE = 0.66
"""From 2/3 on the four corners need not form a convex shape, and no perspective gives that."""


@registered(SHIFTS, "noise")
class Noise(Photometric):
    """Sensor noise: (1 - f) img + f n, n uniform on 0..255 for every pixel and channel, f = `factor`."""

    factor: float = parameter(0.2, 0.35, 0.4, 0.45, 0.5, within=(0, 1), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            noise = random_bytes(rng, height * width * channels).reshape(height, width, channels)
            cv2.addWeighted(image, 1 - self.factor, noise, self.factor, 0, dst=target)

        return paint


@registered(SHIFTS, "grey")
class Grey(Photometric):
    """Loss of colour: (1 - f) img + f grey, grey = 0.299 R + 0.587 G + 0.114 B, f = `factor`.

    Images of one channel are grey already and stay as they are.
    """

    factor: float = parameter(0.2, 0.4, 0.6, 0.8, 1.0, within=(0, 1), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        weights = LUMA if channels == 3 else (1.0,)
        mix = (1 - self.factor) * np.eye(channels) + self.factor * np.outer(np.ones(channels), weights)
        return lambda image, target, rng: cv2.transform(image, mix, dst=target)


@dataclass(frozen=True, kw_only=True)
class Precipitation(Photometric):
    """What falls between camera and scene: min(255, img + sum_k i_k t_k).

    Every entry i_k of `intensities` adds the texture once, each time cropped, scaled and rotated anew (t_k). The crop
    lies inside the texture where it fits, and continues on its opposite side where it does not.
    """

    TILT: ClassVar[float]

    intensities: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.intensities, list | tuple):
            raise InputError(f"shift {self.name}: intensities must be a list of numbers, not {self.intensities!r}")
        object.__setattr__(self, "intensities", tuple(self.intensities))
        for intensity in self.intensities:
            check_number(f"shift {self.name}: each of the intensities", intensity, 0, 10)

    @staticmethod
    @abstractmethod
    def _texture(texels_per_unit: float) -> textures.Texture: ...

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        texels_per_unit = textures.resolution_for(unit(height, width))
        texture = self._texture(texels_per_unit)
        texels_per_pixel = texels_per_unit / unit(height, width)
        side, tilt, (smallest, largest) = texture.shape[0], math.radians(self.TILT), ZOOM_RANGE
        across, down = (width - 1) / 2, (height - 1) / 2
        diagonal = math.hypot(across, down)
        sample = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        view, veil = np.empty((2, height, width), np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            veil.fill(0)
            draws = rng.random((len(self.intensities), 4)).tolist()
            for intensity, (right, lower, turn, zoom) in zip(self.intensities, draws, strict=True):
                step = texels_per_pixel / (smallest + (largest - smallest) * zoom)
                angle = tilt * (2 * turn - 1)
                a, b = step * math.cos(angle), step * math.sin(angle)
                margin = step * diagonal
                x, y = margin + (side - 2 * margin) * right, margin + (side - 2 * margin) * lower
                crop = np.array(((a, -b, x - a * across + b * down), (b, a, y - b * across - a * down)))
                cv2.warpAffine(texture, crop, (width, height), dst=view, flags=sample, borderMode=cv2.BORDER_WRAP)
                cv2.addWeighted(veil, 1, view, intensity, 0, dst=veil)
            cv2.add(image, coloured(veil, channels), dst=target)

        return paint


@registered(SHIFTS, "snow")
class Snow(Precipitation):
    """Falling snow: soft white flakes, `textures.snow` turned by any angle."""

    TILT: ClassVar[float] = SNOW_TILT
    intensities: tuple[float, ...] = parameter(
        (1.0,), (1.0, 1.0), (1.5, 1.5), (1.5, 1.5, 1.0), (1.5, 1.5, 1.5), neutral=()
    )
    _texture = staticmethod(textures.snow)


@registered(SHIFTS, "rain")
class Rain(Precipitation):
    """Falling rain: bright streaks, `textures.rain` turned by up to 20 degrees from upright."""

    TILT: ClassVar[float] = RAIN_TILT
    intensities: tuple[float, ...] = parameter(
        (0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.4, 0.4), (0.5, 0.4, 0.2), neutral=()
    )
    _texture = staticmethod(textures.rain)


@registered(SHIFTS, "fog")
class Fog(Photometric):
    """Fog: (1 - f) img + f fog, f = `factor`.

    fog is uniform noise on a grid of 16 cells along the shorter side, Gaussian-blurred, stretched to span light grey to
    white, and scaled up to the image: soft clouds, the same in all channels.
    """

    factor: float = parameter(0.3, 0.4, 0.5, 0.6, 0.7, within=(0, 1), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        cell = min(height, width) / FOG_GRID
        rows, columns = round(height / cell), round(width / cell)
        kernel = gaussian(FOG_SIGMA)
        clouds, fog = np.empty((rows, columns), np.uint8), np.empty((height, width), np.uint8)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            noise = random_bytes(rng, rows * columns).reshape(rows, columns)
            blurred = cv2.sepFilter2D(noise, cv2.CV_32F, kernel, kernel)
            cv2.normalize(blurred, clouds, FOG_RANGE[0], FOG_RANGE[1], cv2.NORM_MINMAX, cv2.CV_8U)
            cv2.resize(clouds, (width, height), dst=fog, interpolation=cv2.INTER_LINEAR)
            cv2.addWeighted(image, 1 - self.factor, coloured(fog, channels), self.factor, 0, dst=target)

        return paint


@registered(SHIFTS, "perspective")
class Perspective(Geometric):
    """Seen at an angle: the corners move inwards at random, then the image is rescaled to fill the frame again.

    corner' = centre + (corner - centre) (1 - strength u) / scale, u uniform on [0, 1), one for x and one for y of each
    corner. In table 12 scale = 1 - strength / 2, the mean of 1 - strength u: on average the image keeps its size.
    """

    DRAWS: ClassVar[int] = 8

    strength: float = parameter(0.2, 0.3, 0.4, 0.5, 0.6, within=(0, STRONGEST_PERSPECTIVE), neutral=0)
    scale: float = parameter(0.9, 0.85, 0.8, 0.75, 0.7, within=(0.1, 10), neutral=1)

    def _move(self, batch: Batch, draws: NDArray[np.float64]) -> Batch:
        height, width = batch.images.shape[1:3]
        centre = np.array((width / 2, height / 2))
        outwards = centre * ((-1, -1), (1, -1), (1, 1), (-1, 1))
        corners = centre + outwards * (1 - self.strength * draws.reshape(-1, 4, 2)) / self.scale
        return geometry.warp_perspective(batch, geometry.perspectives(corners, height, width))


@registered(SHIFTS, "blur")
class Blur(Photometric):
    """Out of focus: Gaussian blur, standard deviation `sigma` pixels at 64x64, cut off at 3 sigma, edges mirrored."""

    sigma: float = parameter(
        *(1.5, 2.0, 2.5, 3.0, 3.5), within=(0, REFERENCE_SIZE), neutral=0, quantity="blur", unit=PIXELS
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        kernel = gaussian(self.sigma * unit(height, width))

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            # Not GaussianBlur: with wide kernels it is six times slower and off by up to two grey levels.
            cv2.sepFilter2D(image, cv2.CV_8U, kernel, kernel, dst=target, borderType=cv2.BORDER_REFLECT_101)

        return paint


@registered(SHIFTS, "rotation")
class Rotation(Geometric):
    """A turned sign or camera: rotation about the centre by an angle uniform in [-degrees, degrees]."""

    DRAWS: ClassVar[int] = 1

    degrees: float = parameter(
        *(10.0, 15.0, 20.0, 25.0, 30.0), within=(0, 180), neutral=0, quantity="rotation", unit="degrees"
    )

    def _move(self, batch: Batch, draws: NDArray[np.float64]) -> Batch:
        angles = math.radians(self.degrees) * (2 * draws[:, 0] - 1)
        return geometry.warp_affine(batch, geometry.rotations(angles, *batch.images.shape[1:3]))


@registered(SHIFTS, "crop")
class Crop(Geometric):
    """A badly placed cut-out: a random window of `size` / 64 of each side (whole pixels, rounded down), scaled back."""

    DRAWS: ClassVar[int] = 2

    size: float = parameter(
        *(62, 60, 58, 56, 54), within=(1, REFERENCE_SIZE), neutral=REFERENCE_SIZE, quantity="window", unit=PIXELS
    )

    def _move(self, batch: Batch, draws: NDArray[np.float64]) -> Batch:
        height, width = batch.images.shape[1:3]
        rows, columns = (max(1, int(side * self.size / REFERENCE_SIZE)) for side in (height, width))
        corners = (draws * (height - rows + 1, width - columns + 1)).astype(np.int64)
        return geometry.crop_and_resize(batch, corners[:, 0], corners[:, 1], rows, columns)


@registered(SHIFTS, "reflection")
class Reflection(Photometric):
    """Glare: min(255, img + blob), the blob a white square of side `size` (pixels at 64x64), Gaussian-blurred.

    Its blur is a quarter of its side; it lies at a random place where the unblurred square is inside the image.
    """

    size: float = parameter(
        *(8, 12, 16, 20, 24), within=(0.1, REFERENCE_SIZE), neutral=0, quantity="glare", unit=PIXELS
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        side = self.size * unit(height, width)
        blob = coloured(_soft_square(side), channels)
        reach = blob.shape[0] // 2

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            np.copyto(target, image)
            down, across = rng.random(2).tolist()
            y, x = int(side / 2 + (height - side) * down), int(side / 2 + (width - side) * across)
            top, left = max(0, y - reach), max(0, x - reach)
            window = target[top : y + reach + 1, left : x + reach + 1]
            part = blob[top - y + reach :, left - x + reach :][: window.shape[0], : window.shape[1]]
            cv2.add(window, part, dst=window)

        return paint


@lru_cache(maxsize=64)
def _soft_square(side: float) -> NDArray[np.uint8]:
    """A white square of side s, Gaussian-blurred, in closed form (K, K), K odd, its centre in the middle.

    255 p(x) p(y) with p(x) = (erf((s/2 + x) / (sqrt(2) sigma)) + erf((s/2 - x) / (sqrt(2) sigma))) / 2, sigma = s/4.
    """
    sigma = GLARE_SOFTNESS * side
    reach, width = math.ceil(side / 2 + CUT_OFF * sigma), math.sqrt(2) * sigma
    positions = range(-reach, reach + 1)
    profile = [(math.erf((side / 2 + x) / width) + math.erf((side / 2 - x) / width)) / 2 for x in positions]
    return np.asarray(np.rint(255 * np.outer(profile, profile)), np.uint8)
