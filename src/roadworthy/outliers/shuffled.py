"""Images whose pixels are in random order: the colours of the data without their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.protocols import OUTLIERS
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.outliers.base import Painted, Rows, ids_of, pixels


@OUTLIERS.register("shuffled")
@dataclass(frozen=True, kw_only=True)
class Shuffled(Painted):
    """The pixels of each image in an order of its own; a pixel keeps its colour.

    >>> from roadworthy.data import open_dataset
    >>> pictures = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    >>> made = Shuffled().make(open_dataset((pictures, np.array([0, 1]))), seed=0).batch([0]).images[0]
    >>> sorted(made.reshape(-1, 3).tolist()) == pictures[0].reshape(-1, 3).tolist()
    True
    """

    name: ClassVar[str] = "shuffled"

    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """The images (N, H, W, C) with their pixels in random order."""
        images = pixels(source, rows)
        for image, rng in zip(images, streams.each(ids_of(source, rows)), strict=True):
            order = random_order(rng, image.shape[0] * image.shape[1])
            if image.shape[2] == 1:
                image[:] = image.reshape(-1)[order].reshape(image.shape)
            else:  # A colour that is one word moves at once.
                words = cv2.cvtColor(image, cv2.COLOR_RGB2RGBA).view(np.uint32).reshape(-1)
                moved = words[order].view(np.uint8).reshape(*image.shape[:2], 4)
                cv2.cvtColor(moved, cv2.COLOR_RGBA2RGB, dst=image)
        return images


def random_order(rng: np.random.Generator, count: int) -> NDArray[np.intp]:
    """A permutation of 0..count-1: the places sorted by a random number of 16 bits each.

    Two places draw the same number with probability 2^-16 and then keep their order, so a pair does so with probability
    1/2 + 2^-17 instead of 1/2.

    >>> sorted(random_order(np.random.Generator(np.random.Philox(0)), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return np.argsort(random_bytes(rng, 2 * count).view("<u2"), kind="stable")
