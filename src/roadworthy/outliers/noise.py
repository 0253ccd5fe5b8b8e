"""Images of pure noise, uniform and normal: the easiest outliers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from roadworthy.core.protocols import OUTLIERS, Dataset
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.outliers.base import OutlierSet, Painted, Rows, check_number, ids_of, opened, prefixed

STEPS = 2**16
"""Equally likely draws that stand for a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class NoiseImages(Painted):
    """Every pixel and channel drawn on its own: only the number, size and channels of the data count.

    No two images have anything in common, so each is its own group.
    """

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many noise images as the data has images, of their size and channels."""
        return OutlierSet(opened(data), self, self.paint, seed, groups=prefixed(self.name, data.ids))

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """Noise (N, H, W, C), from one random stream per image."""
        images = np.empty((len(rows), *source.size, source.channels), np.uint8)
        for image, rng in zip(images, streams.each(ids_of(source, rows)), strict=True):
            image.reshape(-1)[:] = self._values(rng, image.size)
        return images

    @abstractmethod
    def _values(self, rng: np.random.Generator, count: int) -> NDArray[np.uint8]: ...


@OUTLIERS.register("uniform_noise")
@dataclass(frozen=True, kw_only=True)
class UniformNoise(NoiseImages):
    """Every value uniform on 0..255.

    >>> from roadworthy.data import open_dataset
    >>> data = open_dataset((np.zeros((2, 8, 8, 3), np.uint8), np.array([0, 1])))
    >>> noise = UniformNoise().make(data, seed=0)
    >>> noise.ids, noise.batch([0]).images.shape
    (('uniform_noise/0', 'uniform_noise/1'), (1, 8, 8, 3))
    """

    name: ClassVar[str] = "uniform_noise"

    def _values(self, rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
        return random_bytes(rng, count)


@OUTLIERS.register("normal_noise")
@dataclass(frozen=True, kw_only=True)
class NormalNoise(NoiseImages):
    """Every value round(m + s z), z standard normal, m = `mean`, s = `deviation`; below 0 it is 0, above 255 it is 255.

    z takes the 65,536 equally likely values Phi^-1((k + 0.5) / 65536): within 4.4 deviations of the mean.
    """

    name: ClassVar[str] = "normal_noise"

    mean: float = 128.0
    deviation: float = 64.0

    def __post_init__(self) -> None:
        check_number(self, "mean", self.mean, 0, 255)
        check_number(self, "deviation", self.deviation, 0.1, 1000)

    def _values(self, rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
        draws = random_bytes(rng, 2 * count).view("<u2")
        return np.take(_normal_values(float(self.mean), float(self.deviation)), draws, mode="clip")


@lru_cache(maxsize=8)
def _normal_values(mean: float, deviation: float) -> NDArray[np.uint8]:
    """The value (65536,) that each draw stands for."""
    quantiles = ndtri((np.arange(STEPS) + 0.5) / STEPS)
    return np.asarray(np.clip(np.rint(mean + deviation * quantiles), 0, 255), dtype=np.uint8)
