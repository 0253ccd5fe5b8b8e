"""Frost, drawn by code: four panes of ice that tile without a seam, the same every time.

The published corruption shows windows of five photographs of frozen panes. None of them is here. What is here are facts
about them, in `PANES`: how bright, in what colour, and how strong the grain of each size is. Clouds and crystals drawn
by code are given that spread of brightness and that grain, so that they disturb an image as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from roadworthy.shifts.base import LUMA
from roadworthy.shifts.corruptions.base import as_bytes

SIDE = 640
"""Side of a pane in pixels of a 224x224 image."""
PERCENTS = (0.1, 1, 5, 25, 50, 75, 95, 99, 99.9)
FINEST = 0.5
"""The first octave of grain is what a Gaussian blur of that many pixels takes away; each further one doubles it."""
ROUNDS = 6
"""How often grain and brightness are set in turn: each disturbs the other a little."""

BLADES = 4
"""Blades of a crystal, fanned out from one point."""

Light = NDArray[np.float64]


@dataclass(frozen=True)
class Pane:
    """What a frozen pane looks like.

    `brightness`: the percentiles `PERCENTS` of the grey values. `grain`: standard deviation of the grey values in each
    octave, from pixel to pixel first; the last is what remains. `colour`: red, green and blue where the grey value is
    the mean; `gain`: by how much they rise with it; `tint`: by how much with a second pattern of the same kind.
    `crystals`: how many, how long in pixels at the most, and how many times as long as wide. `uneven`: how much more
    they stand out in some places than in others.
    """

    brightness: tuple[float, ...]
    grain: tuple[float, ...]
    colour: tuple[float, float, float]
    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    tint: tuple[float, float, float] = (0.0, 0.0, 0.0)
    crystals: tuple[int, float, float] = (2000, 100, 8)
    uneven: float = 0.0


WHITE = Pane(
    brightness=(108, 140, 163, 191, 205, 217, 229, 236, 243),
    grain=(3.6, 4.3, 4.4, 4.2, 3.5, 2.7, 2.1, 11.7),
    colour=(198, 202, 212),
    crystals=(2000, 130, 6),
)
PANES = (
    Pane(  # turquoise, with clouds of other hues
        brightness=(90, 96, 102, 115, 126, 140, 163, 178, 194),
        grain=(3.5, 3.6, 3.0, 2.1, 1.9, 2.4, 2.9, 12.7),
        colour=(77, 148, 164),
        gain=(1.41, 0.86, 0.66),
        tint=(-0.55, 0.2, 0.45),
        crystals=(2000, 90, 14),
    ),
    WHITE,
    WHITE,
    Pane(  # grey, with small glints
        brightness=(55, 82, 109, 140, 157, 173, 198, 226, 251),
        grain=(6.8, 7.5, 6.9, 5.3, 4.0, 2.7, 1.8, 13.0),
        colour=(144, 159, 172),
        crystals=(4000, 50, 4),
    ),
    Pane(  # dark, with feathers
        brightness=(33, 43, 55, 83, 107, 135, 180, 214, 246),
        grain=(8.9, 8.2, 8.0, 7.8, 7.5, 6.7, 4.7, 18.2),
        colour=(102, 113, 125),
        uneven=0.5,
    ),
)
"""One is drawn at random; the white one counts twice, as two of the five photographs are the same."""


@lru_cache(maxsize=4)
def frost(height: int, width: int, scale: float, channels: int) -> tuple[NDArray[np.uint8], ...]:
    """The panes at `scale` times their size, so far continued that a window of (H, W) fits anywhere: read-only.

    Returns (S + H, S + W, channels) uint8 each, S = 640 `scale` rounded; one channel is the grey value.

    >>> [pane.shape for pane in frost(32, 48, 0.2, 3)][0]
    (160, 176, 3)
    """
    side = max(1, round(SIDE * scale))
    textures = {}
    for pane in set(PANES):
        # Plain interpolation, as in the published sets: where a pane shrinks, its grain stays.
        tile = as_bytes(cv2.resize(_tile(pane), (side, side), interpolation=cv2.INTER_LINEAR))
        if channels == 1:
            tile = np.rint(tile @ np.array(LUMA))[:, :, None].astype(np.uint8)
        textures[pane] = np.pad(tile, ((0, height), (0, width), (0, 0)), mode="wrap")
        textures[pane].flags.writeable = False
    return tuple(textures[pane] for pane in PANES)


@cache
def _tile(pane: Pane) -> NDArray[np.uint8]:
    """A pane, (S, S, 3)."""
    rng = np.random.Generator(np.random.Philox(key=PANES.index(pane)))
    frequencies = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE))
    clouds, crystals = _clouds(rng, frequencies), _crystals(rng, *pane.crystals)
    thickness = np.maximum(0, 1 + pane.uneven * np.roll(clouds, SIDE // 2, axis=1))
    light = clouds + 5 * thickness * (crystals - crystals.mean())
    octaves = _octaves(frequencies, len(pane.grain))
    for _ in range(ROUNDS):
        light = _with_brightness(_with_grain(light, pane.grain, octaves), pane.brightness)
    light -= light.mean()
    other = np.roll(light, (SIDE // 2, SIDE // 3), axis=(0, 1))
    colours = [c + g * light + t * other for c, g, t in zip(pane.colour, pane.gain, pane.tint, strict=True)]
    return np.asarray(np.rint(np.clip(np.stack(colours, axis=2), 0, 255)), np.uint8)


def _octaves(frequencies: Light, count: int) -> list[Light]:
    """How much of each term of the spectrum lies in each octave; they sum to 1."""
    kept = [np.exp(-2 * (math.pi * FINEST * 2**k * frequencies) ** 2) for k in range(count - 1)]
    one, nothing = np.ones_like(frequencies), np.zeros_like(frequencies)
    return [wide - narrow for wide, narrow in zip([one, *kept], [*kept, nothing], strict=True)]


def _with_grain(light: Light, grain: tuple[float, ...], octaves: list[Light]) -> Light:
    """The picture (S, S) with its octaves made so strong."""
    spectrum = np.fft.rfft2(light)
    spectrum[0, 0] = 0
    power = spectrum.real**2 + spectrum.imag**2
    power[:, 1:-1] *= 2  # the half that a real picture's spectrum leaves out
    spreads = [math.sqrt(np.vdot(power * octave, octave)) / SIDE**2 for octave in octaves]
    transfer = np.zeros_like(power)
    for wanted, spread, octave in zip(grain, spreads, octaves, strict=True):
        transfer += wanted / spread * octave
    return np.asarray(np.fft.irfft2(spectrum * transfer, s=light.shape))


def _with_brightness(light: Light, percentiles: tuple[float, ...]) -> Light:
    """The picture (S, S) with its values, in their order, spread by these percentiles."""
    order = np.argsort(light, axis=None)
    normal = ndtri((np.arange(light.size) + 0.5) / light.size)
    spread = np.empty(light.size)
    spread[order] = np.interp(normal, ndtri(np.array(PERCENTS) / 100), percentiles)
    return spread.reshape(light.shape)


def _clouds(rng: np.random.Generator, frequencies: Light) -> Light:
    """Noise (S, S) of standard deviation 1 whose octaves are equally strong."""
    spectrum = np.fft.rfft2(rng.normal(size=(SIDE, SIDE))) / np.maximum(frequencies, 1 / SIDE)
    spectrum[0, 0] = 0
    clouds = np.fft.irfft2(spectrum, s=(SIDE, SIDE))
    return np.asarray(clouds / clouds.std())


def _crystals(rng: np.random.Generator, count: int, longest: float, slenderness: float) -> Light:
    """Fans of blades of ice (S, S), from 0 to 1: each lies on those before, and small ones are the most frequent."""
    length = longest * np.maximum(rng.random((count, 1)) ** 3, 0.03) * rng.uniform(0.4, 1, (count, BLADES))
    angle = 2 * math.pi * rng.random((count, 1)) + rng.normal(0, 0.6, (count, BLADES))
    along = length[..., None] * np.stack((np.cos(angle), np.sin(angle)), axis=2)
    across = along[..., ::-1] * (1, -1) / (2 * slenderness)
    start = SIDE * rng.random((count, 1, 2))
    tips = (start + 0 * along, start + along / 2 + across, start + along, start + along / 2 - across)
    corners = np.stack(tips, axis=2).reshape(-1, 4, 2)
    corners -= corners.min(axis=1, keepdims=True) // SIDE * SIDE
    points, values = np.rint(8 * corners).astype(np.int32), rng.integers(256, size=len(corners)).tolist()
    canvas = np.zeros((SIDE, SIDE), np.uint8)
    for blade, value, (wide, high) in zip(points, values, (corners.max(axis=1) >= SIDE).tolist(), strict=True):
        for x in range(1 + wide):
            for y in range(1 + high):
                seen = blade - np.array((8 * SIDE * x, 8 * SIDE * y), np.int32)
                cv2.fillConvexPoly(canvas, seen, value, cv2.LINE_AA, 3)
    return np.asarray(canvas / 255)
