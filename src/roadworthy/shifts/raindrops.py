"""Rain in the air before a camera: how many drops of which size, how fast they fall, and the streaks that they leave.

Sources: drop sizes by Marshall and Palmer (1948), N(D) = 8000 exp(-L D) drops per cubic metre and millimetre of
diameter, L = 4.1 R^-0.21 per millimetre for R mm/h; their speed by Atlas, Srivastava and Sekhon (1973),
v(D) = 9.65 - 10.3 exp(-0.6 D) m/s; what a drop does to a pixel by Garg and Nayar (2007): while it is open, a pixel sees
the drop for the time that it takes to pass, and the scene for the rest.
"""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

Tile = NDArray[np.float32]

MOST_DROPS = 8000.0
"""Drops per cubic metre and millimetre of diameter, in the limit of small ones."""
SMALLEST, LARGEST = 0.5, 6.0
"""Diameters in millimetres of drops that leave a streak: smaller ones are mist, larger ones break up."""
NEAREST, FARTHEST = 0.4, 4.0
"""Metres from the camera within which drops leave streaks; those beyond are finer than a pixel and only veil."""
SCATTERING = 2.0
"""Light that a drop much larger than the wavelength takes away, as a share of what falls on its disc."""
TILE = 0.5
"""Side of a tile, in focal lengths."""
FINEST, COARSEST = 2048, 64
"""Texels per focal length of the finest and of the coarsest copy of a tile; every copy halves the one before."""
ROUNDNESS = 0.25
"""Standard deviation of a drop's soft outline in diameters: that of a disc."""


def size_slope(mm_per_h: float) -> float:
    """L = 4.1 R^-0.21 per millimetre: how fast large drops get rare.

    >>> round(size_slope(10), 3)
    2.528
    """
    return 4.1 * math.pow(mm_per_h, -0.21)


def fall_speed(diameters: ArrayLike) -> NDArray[np.float64]:
    """Metres per second of drops of that many millimetres.

    >>> fall_speed([1.0, 3.0]).round(2).tolist()
    [4.0, 7.95]
    """
    return np.asarray(9.65 - 10.3 * np.exp(-0.6 * np.asarray(diameters, np.float64)))


def extinction(mm_per_h: float) -> float:
    """Light lost per metre: twice the discs of all drops in a cubic metre, by the optics of drops larger than a wave.

    2 int pi D^2 / 4 N(D) dD = 8000 pi / L^3 square millimetres, which is 0.000365 R^0.63 per metre.

    >>> round(1000 * extinction(10), 2)
    1.56
    """
    if mm_per_h == 0:
        return 0.0
    return SCATTERING * math.pi / 2 * MOST_DROPS / size_slope(mm_per_h) ** 3 * 1e-6


@lru_cache(maxsize=24)
def streaks(mm_per_h: float, exposure: float, texels_per_focal: int) -> Tile:
    """A tile (S, S) of upright streaks, which repeats without a seam: the optical thickness of the drops in each texel.

    A share 1 - exp(-thickness) of the light of a texel comes from drops. Every drop spreads its disc, pi D^2 / 4,
    evenly over the way v(D) `exposure` that it falls while the shutter is open; a length l at the distance z is l / z
    focal lengths of the picture. S = 0.5 `texels_per_focal`; the tile is read-only.

    >>> streaks(10.0, 0.004, 128).shape
    (64, 64)
    """
    if texels_per_focal < FINEST:
        side = round(TILE * texels_per_focal)
        finest = streaks(mm_per_h, exposure, FINEST)
        tile = np.asarray(cv2.resize(finest, (side, side), interpolation=cv2.INTER_AREA), np.float32)
    else:
        tile = _drawn(mm_per_h, exposure)
    tile.flags.writeable = False
    return tile


def copy_for(pixels_per_focal: float) -> int:
    """Texels per focal length of the copy for images of that many pixels: the coarsest with a texel per pixel at least.

    >>> copy_for(256), copy_for(257), copy_for(10_000), copy_for(1)
    (256, 512, 2048, 64)
    """
    return int(min(max(2.0 ** math.ceil(math.log2(pixels_per_focal)), COARSEST), FINEST))


def _drawn(mm_per_h: float, exposure: float) -> Tile:
    """The finest tile: drops at random places, their streaks added up, edges wrapped around."""
    side = round(TILE * FINEST)
    tile = np.zeros((side, side), np.float32)
    rng = np.random.Generator(np.random.Philox(key=0))
    for diameter, distance, x, y in _drops(mm_per_h, rng).tolist():
        scale = FINEST / distance
        width = 1e-3 * diameter * scale
        length = float(fall_speed(diameter)) * exposure * scale
        disc = math.pi / 4 * width**2
        across, left = _bell(x * side, ROUNDNESS * width)
        along, top = _trail(y * side, length, ROUNDNESS * width)
        _add_wrapped(tile, np.float32(disc) * np.outer(along, across).astype(np.float32), top, left)
    return tile


def _drops(mm_per_h: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Diameter (mm), distance (m), x and y (shares of the tile) of the drops that leave a streak in a tile, (K, 4).

    Their number is the expected one, rounded; places are uniform in the space that the tile sees.
    """
    if mm_per_h == 0:
        return np.zeros((0, 4))
    slope = size_slope(mm_per_h)
    most, least = math.exp(-slope * SMALLEST), math.exp(-slope * LARGEST)
    near, far = NEAREST**3, FARTHEST**3
    count = round(MOST_DROPS / slope * (most - least) * TILE**2 * (far - near) / 3)
    draws = rng.random((count, 4))
    diameters = -np.log(most - (most - least) * draws[:, 0]) / slope
    distances = np.cbrt(near + (far - near) * draws[:, 1])
    return np.column_stack([diameters, distances, draws[:, 2:]])


def _bell(centre: float, sigma: float) -> tuple[NDArray[np.float64], int]:
    """A Gaussian of sum 1 as means over texels, and the first texel."""
    first, stop = math.floor(centre - 3 * sigma), math.ceil(centre + 3 * sigma)
    weights = np.diff(ndtr((np.arange(first, stop + 1) - centre) / sigma))
    return weights / weights.sum(), first


def _trail(start: float, length: float, sigma: float) -> tuple[NDArray[np.float64], int]:
    """The same Gaussian moved evenly over a length, of sum 1, and the first texel."""
    first, stop = math.floor(start - 3 * sigma), math.ceil(start + length + 3 * sigma)
    edges = np.arange(first, stop + 1, dtype=np.float64)
    weights = np.diff(_ramp((edges - start) / sigma) - _ramp((edges - start - length) / sigma))
    return weights / weights.sum(), first


def _ramp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The integral of the normal distribution function."""
    return np.asarray(x * ndtr(x) + np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def _add_wrapped(tile: Tile, patch: NDArray[np.float32], top: int, left: int) -> None:
    """Add a patch, with the part beyond an edge of the tile on its opposite side."""
    side = len(tile)
    rows, columns = patch.shape
    if min(top, left) >= 0 and max(top + rows, left + columns) <= side:
        tile[top : top + rows, left : left + columns] += patch
        return
    np.add.at(tile, np.ix_(np.arange(top, top + rows) % side, np.arange(left, left + columns) % side), patch)
