"""What happens between an object and its image: light and weather, wear, the lens and the sensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import random_bytes
from roadworthy.data.signs.sprites import Colour, Matrix
from roadworthy.data.signs.textures import TILE, clouds, grey, streaks, window

Image = NDArray[np.float32]
"""(H, W, 3) RGB, 0 to 255."""
Plane = NDArray[np.float32]
"""(H, W), or (H,)."""
Floats = NDArray[np.float64]

WEATHER = ("clear", "cloudy", "rain", "fog")
TIME_OF_DAY = ("day", "dusk", "night")
DISTANCE = ("near", "middle", "far")

_SKY: dict[tuple[str, str], tuple[Colour, Colour, Colour]] = {
    ("day", "clear"): ((78, 138, 214), (186, 214, 238), (1.04, 1.0, 0.94)),
    ("day", "cloudy"): ((158, 168, 180), (206, 211, 216), (0.82, 0.83, 0.84)),
    ("day", "rain"): ((112, 120, 130), (158, 164, 170), (0.6, 0.62, 0.65)),
    ("day", "fog"): ((194, 198, 202), (206, 209, 212), (0.78, 0.79, 0.8)),
    ("dusk", "clear"): ((74, 86, 152), (252, 166, 92), (0.78, 0.6, 0.52)),
    ("dusk", "cloudy"): ((92, 90, 118), (212, 150, 118), (0.64, 0.52, 0.5)),
    ("dusk", "rain"): ((74, 75, 96), (150, 122, 116), (0.52, 0.46, 0.48)),
    ("dusk", "fog"): ((132, 120, 130), (188, 160, 142), (0.62, 0.54, 0.52)),
    ("night", "clear"): ((10, 13, 38), (38, 46, 84), (0.19, 0.21, 0.31)),
    ("night", "cloudy"): ((26, 25, 34), (72, 60, 54), (0.24, 0.22, 0.24)),
    ("night", "rain"): ((20, 21, 28), (56, 51, 50), (0.2, 0.2, 0.22)),
    ("night", "fog"): ((44, 45, 51), (82, 79, 78), (0.24, 0.24, 0.25)),
}
"""Colour of the sky above and at the horizon, and of the light on objects, by time of day and weather."""
_HAZE = {"clear": 0.04, "cloudy": 0.08, "rain": 0.3, "fog": 1.0}
_BEAM = {"day": 0.0, "dusk": 0.1, "night": 0.6}
_PATH = {"near": 0.12, "middle": 0.34, "far": 0.62}
_REACH = {"near": 1.0, "middle": 0.82, "far": 0.6}
_WARM_WHITE = (1.0, 0.96, 0.88)


@dataclass(frozen=True)
class Light:
    """The light of one picture.

    sky      its colour above and at the horizon, which is also the colour of haze
    ambient  factors of the light that falls on everything
    haze     how thick the air is;  beam: how much the camera car's own lamps add
    """

    time_of_day: str
    weather: str
    sky: tuple[Colour, Colour]
    ambient: Colour
    haze: float
    beam: float

    @property
    def lamps_are_lit(self) -> bool:
        """Street lamps and windows shine."""
        return self.time_of_day != "day"

    def shade(self, colour: Colour, nearness: float) -> Colour:
        """A colour as it looks in this light: lit = colour (ambient + beam), then mixed with haze.

        Nearness is 1 at the lower edge of the picture and 0 at the horizon, so depth goes as 1 / nearness.
        """
        beam = 0.6 * self.beam * nearness
        clear = math.exp(-0.22 * self.haze / max(nearness, 0.02))
        channels = zip(colour, self.ambient, self.sky[1], strict=True)
        red, green, blue = (clear * base * (lit + beam) + (1 - clear) * far for base, lit, far in channels)
        return red, green, blue

    def on_sign(self, distance: str, gain: float) -> Floats:
        """Factors (3,) of the light a sign sends back; its sheeting returns the beam of the lamps."""
        return gain * (np.array(self.ambient) + self.beam * _REACH[distance] * np.array(_WARM_WHITE))

    def on_body(self, distance: str, gain: float) -> Floats:
        """Factors (3,) of the light a road user sends back: no sheeting, so far less of the beam."""
        return gain * (np.array(self.ambient) + 0.6 * self.beam * _REACH[distance])

    def veil(self, distance: str) -> float:
        """The share of an object's colour that haze has replaced at that distance."""
        return 1 - math.exp(-_PATH[distance] * self.haze)


@cache
def light_of(time_of_day: str, weather: str) -> Light:
    """The light at that time in that weather."""
    above, horizon, ambient = _SKY[time_of_day, weather]
    return Light(time_of_day, weather, (above, horizon), ambient, _HAZE[weather], _BEAM[time_of_day])


@dataclass(frozen=True)
class Wear:
    """The age of one sign: how far its colours have faded, and where the dirt sits on it."""

    fading: float
    dirt: float
    x: float
    y: float
    turn: float

    @staticmethod
    def draw(rng: np.random.Generator) -> Wear:
        """Most signs are little worn, some much."""
        fading, dirt = 0.5 * rng.random() ** 2, rng.random() ** 2.5
        return Wear(fading, dirt, rng.uniform(0.25, 0.75), rng.uniform(0.25, 0.75), rng.uniform(0, 6.28))

    def faded(self) -> Floats:
        """The matrix (3, 4) that takes colour and opacity to the faded colour: greyer and paler."""
        mixed = (1 - self.fading) * np.eye(3) + self.fading / 6
        return np.hstack([mixed, np.full((3, 1), self.fading * 98 / 255)])

    def cover(self, matrix: Matrix, size: tuple[int, int]) -> Plane:
        """The share (H, W) of each pixel that dirt hides; the dirt moves with the sign, seen through `matrix`."""
        cosine, sine = 42 * math.cos(self.turn), 42 * math.sin(self.turn)
        to_tile = np.array([[cosine, -sine, 2 * self.x * TILE], [sine, cosine, 2 * self.y * TILE], [0, 0, 1]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        seen = to_tile @ np.linalg.inv(matrix)
        noise = _floats(cv2.warpPerspective(clouds(), seen, size[::-1], None, flags, cv2.BORDER_REFLECT_101))
        noise += np.float32(1.5 * self.dirt - 1.9)
        noise *= np.float32(0.5)
        return np.asarray(noise.clip(0, np.float32(0.25 + 0.5 * self.dirt)), dtype=np.float32)


NEW = Wear(fading=0, dirt=0, x=0.5, y=0.5, turn=0)
"""No wear at all."""
_DIRT = np.array((78, 68, 54))


def _floats(values: Any) -> Image:
    return np.asarray(values, dtype=np.float32)


@dataclass(frozen=True)
class Seen:
    """An object before it is laid over a picture.

    pixels  (H, W, 4), colours multiplied by opacity;  matrix: the one it was placed with
    wear    its age
    glow    factors (3,) of its light;  relief: factors (H, W) of how that is spread
    """

    pixels: NDArray[np.uint8]
    matrix: Matrix
    wear: Wear
    glow: Floats
    relief: Plane


def overlay(image: Image, seen: Seen, light: Light, veil: float) -> None:
    """Lay an object over the picture, in place.

    With opacity a, colours f, dirt's cover c, glow g, relief s and the veil v, the share of its colour that haze has
    replaced: image (1 - a) + (1 - v) g s ((1 - c) faded(f) + c a dirt) + v a haze.
    """
    layer = seen.pixels.astype(np.float32)
    opacity = layer[..., 3] * np.float32(1 / 255)
    dirty = seen.wear.cover(seen.matrix, (image.shape[0], image.shape[1])) * seen.relief
    clean = seen.relief - dirty
    lit = ((1 - veil) * seen.glow)[:, None]
    colours = _floats(cv2.transform(layer, _floats(lit * seen.wear.faded())))
    colours *= grey(clean)
    hidden = np.stack([lit[:, 0] * _DIRT, veil * np.array(light.sky[1])], axis=1)
    colours += _floats(cv2.transform(cv2.merge([opacity * dirty, opacity]), _floats(hidden)))
    image *= 1 - grey(opacity)
    image += colours


def relief(rng: np.random.Generator, size: tuple[int, int], light: Light) -> Plane:
    """Factors (H, W) of uneven light over an object: a slope, and in sunshine soft shadows of leaves."""
    slope_x, slope_y = rng.uniform(-0.18, 0.18, 2).astype(np.float32)
    factors = (1 + slope_y * _ramp(size[0]))[:, None] * (1 + slope_x * _ramp(size[1]))
    x, y, chance = rng.random(3)
    if light.time_of_day == "day" and light.weather == "clear" and chance < 0.3:
        factors *= 1 - np.float32(0.34) * np.clip(window(clouds(), x, y, 90, size) * np.float32(1.6), 0, 1)
    return _floats(factors)


@cache
def _ramp(length: int) -> Plane:
    return np.linspace(-1, 1, length, dtype=np.float32)


def rain(image: Image, rng: np.random.Generator) -> None:
    """Streaks of falling rain, in place."""
    x, y = rng.random(2)
    strength = rng.uniform(20, 44)
    falling = window(streaks(), x, y, 120, (image.shape[0], image.shape[1]))
    falling *= np.float32(strength + 0.16 * cv2.mean(image)[1])
    image += grey(falling)


@dataclass(frozen=True)
class Lens:
    """Sharpness: how far the picture is shrunk and enlarged again, then blurred and smeared sideways, in pixels."""

    shrink: float
    blur: float
    smear: float

    @staticmethod
    def draw(rng: np.random.Generator, distance: str, time_of_day: str) -> Lens:
        """A far object covers few pixels; a dark picture is exposed longer."""
        shrink = {"near": 1.0, "middle": rng.uniform(0.75, 1.0), "far": rng.uniform(0.48, 0.8)}[distance]
        smear = rng.uniform(0, 0.6) + (rng.uniform(0, 0.7) if time_of_day == "night" else 0)
        return Lens(shrink, rng.uniform(0.3, 0.65), smear)


def photograph(image: Image, rng: np.random.Generator, lens: Lens, time_of_day: str) -> NDArray[np.uint8]:
    """The picture as a camera stores it: blurred, exposed, tinted, noisy, 8 bits."""
    height, width = image.shape[:2]
    if lens.shrink < 1:
        small = (max(1, round(width * lens.shrink)), max(1, round(height * lens.shrink)))
        image = _floats(cv2.resize(cv2.resize(image, small, interpolation=cv2.INTER_AREA), (width, height)))
    image = _floats(cv2.GaussianBlur(image, (0, 0), sigmaX=math.hypot(lens.blur, lens.smear), sigmaY=lens.blur))
    gain = rng.uniform(0.85, 1.15) * rng.uniform(0.96, 1.04, 3)
    noise, black = rng.uniform(*_NOISE[time_of_day]), rng.uniform(0, 8)
    draws = random_bytes(rng, image.size).reshape(image.shape)
    shown = _floats(cv2.transform(image, _floats(np.diag(gain))))
    shown += _floats(cv2.LUT(draws, _floats(noise * _NORMAL + black)))
    return np.asarray(cv2.convertScaleAbs(np.maximum(shown, 0, out=shown)), dtype=np.uint8)


_NOISE = {"day": (1.5, 5.0), "dusk": (2.5, 7.0), "night": (4.0, 10.0)}
_NORMAL = np.array([NormalDist().inv_cdf((value + 0.5) / 256) for value in range(256)])
"""The standard normal value of each of 256 equally likely draws."""
