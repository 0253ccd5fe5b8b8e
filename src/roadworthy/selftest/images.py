"""The fixed images that shifts and makers of outliers are asked about, and how disturbed ones are summarised.

They are made of whole numbers alone, so that they are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

COUNT, SIDE = 4, 32
BLOCKS = 4
"""A summary holds the mean of so many times so many blocks."""
TOLERANCE = 1.0
"""Grey values by which the blocks of a disturbed image may differ in the mean on another type of machine."""


def pixels() -> NDArray[np.uint8]:
    """(4, 32, 32, 3): slopes, a disc and stripes, another mixture in every image."""
    image, row, column, channel = np.indices((COUNT, SIDE, SIDE, 3))
    slope = (row * (3 + image) + column * (5 - image) + 40 * channel) % 256
    inside = (row - 15) ** 2 + (column - 13 - image) ** 2 < 90
    stripes = np.where((row + 2 * column) // 4 % 2 == 0, 40, 210)
    return np.where(inside, stripes, slope).astype(np.uint8)


def dataset() -> Any:
    """The images as a data set of two classes."""
    from roadworthy.data.arrays import ArrayDataset
    from roadworthy.data.table import Table

    ids = tuple(f"image {row}" for row in range(COUNT))
    table = Table(ids=ids, labels=np.arange(COUNT) % 2, class_names=("even", "odd"), groups=ids)
    return ArrayDataset(table, pixels())


def mean_sizes(changes: NDArray[np.int16]) -> list[float]:
    """The mean size of the change of a pixel, of each image and channel."""
    return [round(size, 2) for size in np.abs(changes).mean(axis=(1, 2)).ravel().tolist()]


def block_means(images: NDArray[np.uint8]) -> list[float]:
    """The mean of each block of each image and channel, and last the mean change of a pixel from its neighbour."""
    n, height, width, channels = images.shape
    parts = images.reshape(n, BLOCKS, height // BLOCKS, BLOCKS, width // BLOCKS, channels).astype(np.float64)
    roughness = np.abs(np.diff(images.astype(np.float64), axis=2)).mean()
    return [*np.round(parts.mean(axis=(2, 4)).ravel(), 2).tolist(), round(float(roughness), 2)]
