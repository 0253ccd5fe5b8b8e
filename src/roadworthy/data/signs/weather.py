"""Light and weather of the traffic pictures: snowfall, drops on the lens, clouds in the sky."""

from __future__ import annotations

import math
from functools import cache

import cv2
import numpy as np

from roadworthy.core.random import Streams
from roadworthy.data.signs.camera import Floats, Image, Light, Plane, light_of
from roadworthy.data.signs.crops import REFERENCE
from roadworthy.data.signs.sprites import Colour, Pen, ellipse
from roadworthy.data.signs.textures import TILE, Texture, clouds, grey, window

EXTINCTION = {
    "clear": 0.0004,
    "partly cloudy": 0.0005,
    "overcast": 0.001,
    "rain": 0.006,
    "snow": 0.009,
    "fog": 0.03,
    "snowfall": 0.02,
    "drifting snow": 0.035,
    "heavy rain": 0.014,
}
"""How much of the light haze takes away per metre, by weather."""
_BASE = {"partly cloudy": "clear", "overcast": "cloudy", "snow": "cloudy", "heavy rain": "rain"}
_BASE |= {"snowfall": "cloudy", "drifting snow": "fog"}
_BEAM = {"day": 0.0, "dusk": 0.4, "night": 2.6}
_PALE: dict[str, Colour] = {"day": (206, 210, 216), "dusk": (170, 160, 164), "night": (64, 62, 68)}
_SNOWY = ("snow", "snowfall", "drifting snow")
FLAKES = {"snow": (0.35, 1), "snowfall": (0.8, 2), "drifting snow": (0.6, 2)}
"""How opaque the flakes are, and in how many layers they fall, by weather."""


@cache
def traffic_light_of(time_of_day: str, weather: str) -> Light:
    """The light of that hour and weather, whose haze and beam go by metres (`REFERENCE` metres are nearness 1)."""
    base = light_of(time_of_day, _BASE.get(weather, weather))
    haze = EXTINCTION[weather] * REFERENCE / 0.22
    sky = (_PALE[time_of_day], _PALE[time_of_day]) if weather in _SNOWY else base.sky
    return Light(time_of_day, weather, sky, base.ambient, haze, _BEAM[time_of_day])


def veil(weather: str, metres: float) -> float:
    """The share of a colour that haze has replaced at that distance: 1 - exp(-extinction metres).

    >>> round(veil("fog", 100), 3)
    0.95
    """
    return 1 - math.exp(-EXTINCTION[weather] * metres)


def on_object(light: Light, metres: float, gain: float, returns: float) -> Floats:
    """Factors (3,) of the light an object sends back; `returns` is 1 for a sign's sheeting, less for paint."""
    beam = min(0.75, returns * light.beam * 4 / metres)
    return gain * (np.array(light.ambient) + beam * np.array((1.0, 0.96, 0.88)))


def cloudy_sky(image: Image, depth: Plane, light: Light, rng: np.random.Generator) -> None:
    """White clouds in the sky, where depth is infinite, in place."""
    x, y = rng.random(2)
    cover = np.clip(window(clouds(), x, y, 70, (depth.shape[0], depth.shape[1])) * np.float32(0.8), 0, 0.9)
    cover *= np.isinf(depth)
    white = np.array((238, 240, 244)) * (0.35 + 0.65 * float(np.mean(light.ambient)))
    share = grey(cover.astype(np.float32))
    image += share * (white.astype(np.float32) - image)


@cache
def _flakes() -> Texture:
    """Falling snow (2 TILE, 2 TILE), 0 to 1: soft round and slightly drawn-out flakes. It repeats after TILE."""
    canvas = np.zeros((3 * TILE, 3 * TILE), dtype=np.uint8)
    (rng,) = Streams("flakes").each(["snow"])
    for x, y, radius, strength in rng.uniform((0, 0, 0.8, 120), (TILE, TILE, 2.6, 255), size=(420, 4)):
        for shift_x in range(0, 3 * TILE, TILE):
            for shift_y in range(0, 3 * TILE, TILE):
                centre = (round((x + shift_x) * 16), round((y + shift_y) * 16))
                axes = (round(radius * 16), round(1.5 * radius * 16))
                cv2.ellipse(canvas, centre, axes, 15, 0, 360, strength, -1, cv2.LINE_AA, 4)
    tile = cv2.GaussianBlur(canvas, (0, 0), 0.7)[TILE : 2 * TILE, TILE : 2 * TILE].astype(np.float32) / 255
    texture = np.ascontiguousarray(np.tile(tile, (2, 2)), dtype=np.float32)
    texture.flags.writeable = False
    return texture


def snowfall(image: Image, weather: str, light: Light, rng: np.random.Generator) -> None:
    """Flakes between camera and scene, in place: a fine layer, and in heavy snowfall a coarse one before it."""
    opacity, layers = FLAKES[weather]
    white = np.float32(250 * (0.3 + 0.7 * float(np.mean(light.ambient)) + 0.1 * light.beam))
    for texels in (150, 80)[:layers]:
        x, y = rng.random(2)
        cover = window(_flakes(), x, y, texels, (image.shape[0], image.shape[1])) * np.float32(opacity)
        image += grey(cover) * (np.minimum(white, 250) - image)


def snow_caps(image: Image, mask: np.ndarray[tuple[int, int], np.dtype[np.bool_]], depth: int, light: Light) -> None:
    """Snow on top of an object, in place: on pixels of its mask (H, W) that have its upper edge within `depth`."""
    lower = np.zeros_like(mask)
    lower[depth:] = mask[:-depth]
    cap = (mask & ~lower).astype(np.float32) * np.float32(0.8)
    white = (np.array((240, 243, 248)) * light.ambient).astype(np.float32)
    image += grey(cap) * (white - image)


def wet_lens(image: Image, rng: np.random.Generator, drops: int) -> Image:
    """The picture through water drops on the lens: within a drop it is blurred, moved up and a little brighter."""
    height, width = image.shape[:2]
    side = min(height, width)
    cover = np.zeros((height, width), dtype=np.uint8)
    pen = Pen(cover, side)
    for x, y, radius, tall in rng.uniform((-0.5, -0.5, 0.035, 1.0), (0.5, 0.5, 0.1, 1.5), size=(drops, 4)):
        pen.polygon(ellipse(x * width / side, y * height / side, radius, radius * tall), (255, 0, 0))
    share = cv2.GaussianBlur(cover, (0, 0), max(0.012 * side, 0.4)).astype(np.float32) * np.float32(0.85 / 255)
    blurred = cv2.GaussianBlur(image, (0, 0), 0.045 * side)
    moved = np.roll(blurred, max(1, side // 12), axis=0) * np.float32(1.06) + np.float32(6)
    return np.asarray(image + grey(share) * (moved - image), dtype=np.float32)
