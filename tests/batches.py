"""Batches of drawn pictures with boxes and masks."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from roadworthy.core.types import Batch


def pictures(n: int, height: int = 64, width: int = 64, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Smooth random colours with a bright disc: something between noise and a photograph."""
    rng = np.random.default_rng(seed)
    images = np.empty((n, height, width, channels), np.uint8)
    y, x = np.mgrid[:height, :width]
    for image in images:
        smooth = ndimage.gaussian_filter(rng.random((height, width, channels)), (height / 16, width / 16, 0))
        smooth = (smooth - smooth.min()) / max(np.ptp(smooth), 1e-9)
        centre, radius = rng.uniform(0.3, 0.7, 2), rng.uniform(0.15, 0.3)
        disc = np.hypot((y + 0.5) / height - centre[0], (x + 0.5) / width - centre[1]) < radius
        image[:] = np.rint(200 * smooth)
        image[disc] = rng.integers(0, 256, channels)
    return images


def make_batch(images: np.ndarray, **columns: np.ndarray) -> Batch:
    n = len(images)
    return Batch(tuple(f"img{i}" for i in range(n)), images, np.arange(n, dtype=np.int64), **columns)


def labelled(n: int, height: int, width: int, channels: int, seed: int = 0) -> Batch:
    """Pictures with boxes and masks that fill them."""
    rng = np.random.default_rng(seed)
    left, top = rng.integers(0, width, n), rng.integers(0, height, n)
    right, bottom = (rng.integers(start + 1, stop + 1) for start, stop in ((left, width), (top, height)))
    boxes = np.stack([left, top, right, bottom], axis=1).astype(np.float32).reshape(n, 4)
    return make_batch(pictures(n, height, width, channels, seed), boxes=boxes, masks=filled(boxes, height, width))


def filled(boxes: np.ndarray, height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return (
        np.stack(
            [(x >= x0) & (x < x1) & (y >= y0) & (y < y1) for x0, y0, x1, y1 in boxes] or [np.zeros((0, height, width))]
        ).reshape(-1, height, width)
        == 1
    )


def same(a: Batch, b: Batch) -> None:
    np.testing.assert_array_equal(a.images, b.images)
    np.testing.assert_array_equal(a.boxes, b.boxes)
    np.testing.assert_array_equal(a.masks, b.masks)
