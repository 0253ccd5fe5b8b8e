"""Images with one bright box each, for networks that learn what it is or where it is."""

from __future__ import annotations

import numpy as np

from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table

SIDE = 16


def bright_boxes(n: int = 96, seed: int = 0, blank: int = 0, height: int = SIDE) -> ArrayDataset:
    """A red (class a) or blue (class b) rectangle on noise, two images to an object; the last `blank` have no box."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) // 2 % 2
    images = rng.integers(0, 60, (n, height, SIDE, 3), dtype=np.uint8)
    boxes = np.empty((n, 4), np.float32)
    for row, image in enumerate(images):
        x0, y0 = rng.integers(0, SIDE // 2, 2)
        width, tall = rng.integers(4, SIDE // 2 + 1, 2)
        image[y0 : y0 + tall, x0 : x0 + width, 2 * labels[row]] = 250
        boxes[row] = x0, y0, x0 + width, y0 + tall
    boxes[n - blank :] = np.nan
    ids = tuple(f"i{seed}-{row}" for row in range(n))
    groups = tuple(f"g{seed}-{row // 2}" for row in range(n))
    return ArrayDataset(Table(ids=ids, labels=labels, class_names=("a", "b"), groups=groups, boxes=boxes), images)
