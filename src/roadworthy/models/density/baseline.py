"""What a density model must beat: every pixel position and channel by itself, with the frequencies of its values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError

VALUES = 256
PSEUDO_COUNT = 0.5
"""What each of the 256 values is counted beyond the training images (Jeffreys)."""
AT_ONCE = 1024
"""Images that are counted at a time: each of their values takes eight bytes."""


def independent_bits(training: NDArray[np.uint8], test: NDArray[np.uint8]) -> float:
    """Bits per dimension of test images under independent pixels, both uint8 (N, H, W, C).

    p_d(k) = (training images with value k at dimension d + 1/2) / (training images + 256 / 2);
    bits = mean over test images and dimensions of -log2 p_d(value)

    >>> dark = np.zeros((128, 1, 1, 1), np.uint8)
    >>> round(independent_bits(dark, dark), 3), round(float(np.log2(256 / 128.5)), 3)
    (0.994, 0.994)
    """
    for name, images in (("training", training), ("test", test)):
        if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
            raise InputError(f"the {name} images must be uint8 (N, H, W, C), not {images.dtype} {images.shape}")
    if training.shape[1:] != test.shape[1:]:
        raise InputError(f"training images are {training.shape[1:]} and test images {test.shape[1:]}: make them equal")
    dimensions = training[0].size
    offsets = np.arange(dimensions) * VALUES

    def cells(images: NDArray[np.uint8]) -> Iterator[NDArray[np.int64]]:
        for start in range(0, len(images), AT_ONCE):
            yield images[start : start + AT_ONCE].reshape(-1, dimensions) + offsets

    counts = np.full(dimensions * VALUES, PSEUDO_COUNT)
    for part in cells(training):
        counts += np.bincount(part.ravel(), minlength=len(counts))
    bits = np.log2(len(training) + VALUES * PSEUDO_COUNT) - np.log2(counts)
    return float(sum(bits[part].sum() for part in cells(test)) / test.size)
