"""Noise corruptions: every value of the image is drawn anew, given what it was.

All four are one mechanism: a table of P(noisy <= w | clean = v) for the 256 values v and w, turned into quantiles, from
which one random number per value picks. Probabilities are kept to 1/16384.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, pdtr

from roadworthy.core.parameters import registered
from roadworthy.core.random import random_bytes
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Images
from roadworthy.shifts.base import Paint
from roadworthy.shifts.corruptions.base import Corruption, Triple, severities

BITS = 14
CLEAN, UP_TO = np.arange(256.0)[:, None], np.arange(255.0)


@dataclass(frozen=True, kw_only=True)
class ValueNoise(Corruption):
    """Noise that acts on each value by itself, by one parameter."""

    @staticmethod
    @abstractmethod
    def probabilities(amount: float) -> NDArray[np.float64]:
        """P(noisy <= w | clean = v), (256, 255): v from 0 to 255, w from 0 to 254."""

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        (amount,) = self.sized(height, width)
        table = _quantile_table(type(self), amount)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            draws = random_bytes(rng, 2 * image.size).view("<u2") >> (16 - BITS)
            index = image.reshape(-1).astype(np.intp)
            index <<= BITS
            index |= draws
            np.take(table, index, out=target.reshape(-1), mode="clip")

        return paint


@lru_cache(maxsize=8)
def _quantile_table(kind: type[ValueNoise], amount: float) -> NDArray[np.uint8]:
    """Row v holds 2^BITS equally likely outcomes of the value v, in rising order; the rows lie end to end."""
    steps = np.zeros((256, 257), np.int64)
    steps[:, 1:256] = np.rint(kind.probabilities(amount) * 2**BITS)
    steps[:, 256] = 2**BITS
    return np.repeat(np.tile(np.arange(256, dtype=np.uint8), 256), np.diff(steps, axis=1).ravel())


@registered(SHIFTS, "c_gaussian_noise")
class GaussianNoise(ValueNoise):
    """Low light: img + 255 s n, n standard normal, s = `deviation`."""

    deviation: Triple = severities(
        (0.04, 0.06, 0.08, 0.09, 0.1),
        (0.04, 0.08, 0.12, 0.15, 0.18),
        (0.08, 0.12, 0.18, 0.26, 0.38),
        within=(0.001, 10),
        neutral=0,
    )
    # Normal around the clean value.
    probabilities = staticmethod(lambda amount: ndtr((UP_TO + 0.5 - CLEAN) / (255 * amount)))


@registered(SHIFTS, "c_shot_noise")
class ShotNoise(ValueNoise):
    """Few photons: 255 Poisson(p img / 255) / p, p = `photons` at white."""

    photons: Triple = severities(
        (500, 250, 100, 75, 50),
        (250, 100, 50, 30, 15),
        (60, 25, 12, 5, 3),
        within=(0.1, 100_000),
        neutral=math.inf,
        inverse=True,
    )
    # Poisson counts, as many as fit below the next value.
    probabilities = staticmethod(lambda amount: pdtr(np.ceil((UP_TO + 0.5) * amount / 255) - 1, CLEAN * amount / 255))


@registered(SHIFTS, "c_impulse_noise")
class ImpulseNoise(ValueNoise):
    """Bit errors: a share `amount` of all values becomes black or white, each as likely."""

    amount: Triple = severities(
        (0.01, 0.02, 0.03, 0.05, 0.07),
        (0.01, 0.02, 0.05, 0.08, 0.14),
        (0.03, 0.06, 0.09, 0.17, 0.27),
        within=(0, 1),
        neutral=0,
    )
    # Black, the clean value, or white.
    probabilities = staticmethod(lambda amount: amount / 2 + (1 - amount) * (UP_TO >= CLEAN))


@registered(SHIFTS, "c_speckle_noise")
class SpeckleNoise(ValueNoise):
    """Noise that grows with brightness: img (1 + s n), n standard normal, s = `deviation`."""

    deviation: Triple = severities(
        (0.06, 0.1, 0.12, 0.16, 0.2),
        (0.15, 0.2, 0.25, 0.3, 0.35),
        (0.15, 0.2, 0.35, 0.45, 0.6),
        within=(0.001, 10),
        neutral=0,
    )
    # Normal around the clean value, of a spread in proportion to it; black stays black.
    probabilities = staticmethod(lambda amount: ndtr((UP_TO + 0.5 - CLEAN) / np.maximum(CLEAN * amount, 1e-9)))
