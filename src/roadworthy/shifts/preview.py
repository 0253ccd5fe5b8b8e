"""Seeing and measuring a shift before it is used: contact sheets, and how similar the images stay at a level."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.random import Streams
from roadworthy.core.roles import Shift
from roadworthy.core.types import Batch, Images
from roadworthy.shifts.base import LUMA

SMALLEST, LARGEST = 96, 256
"""Thumbnails: smaller images are enlarged by a whole factor, larger ones shrunk."""
GAP, LINE_HEIGHT, FONT, FONT_SCALE = 4, 16, cv2.FONT_HERSHEY_SIMPLEX, 0.42
WHITE, INK = (255, 255, 255), (30, 30, 30)

WINDOW, WINDOW_SIGMA = 11, 1.5
STABILIZERS = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def contact_sheet(
    batch: Batch, shifts: Sequence[Shift], seed: int = 0, captions: Sequence[str] | None = None
) -> NDArray[np.uint8]:
    """A picture (H, W, 3) RGB: a row per image; the original, then the image under each shift.

    All levels of a shift draw the same random numbers here, so that neighbours differ in the level alone. A caption
    stands over each shift (default: name and level) and may have several lines.

    >>> from roadworthy.shifts import make_shift
    >>> batch = Batch(("a", "b"), np.zeros((2, 64, 64, 3), np.uint8), np.zeros(2, np.int64))
    >>> contact_sheet(batch, [make_shift("fog", level) for level in (1, 3, 5)]).shape
    (288, 532, 3)
    """
    if captions is not None and len(captions) != len(shifts):
        raise InputError(f"{len(captions)} captions for {len(shifts)} shifts: give one for each")
    titles = ["original", *(captions if captions is not None else [f"{shift.name} {shift.level}" for shift in shifts])]
    columns = [batch.images, *(shift(batch, Streams(seed, shift.name)).images for shift in shifts)]
    return picture_grid(titles, columns)


def picture_grid(titles: Sequence[str], columns: Sequence[Images]) -> NDArray[np.uint8]:
    """A picture (H, W, 3) RGB of columns of images, (N, H, W, C) each, under a title each of one or more lines.

    >>> black = np.zeros((1, 96, 96, 1), np.uint8)
    >>> picture_grid(["black", "white"], [black, black + 255]).shape
    (124, 204, 3)
    """
    rows, (height, width) = len(columns[0]), _thumbnail_size(*columns[0].shape[1:3])
    header = GAP + LINE_HEIGHT * max(len(title.splitlines()) for title in titles)
    shape = (header + rows * (height + GAP) + GAP, len(columns) * (width + GAP) + GAP, 3)
    sheet = np.full(shape, WHITE, dtype=np.uint8)
    for column, (title, images) in enumerate(zip(titles, columns, strict=True)):
        left = GAP + column * (width + GAP)
        _write(sheet, title, left, width)
        for row, image in enumerate(images):
            top = header + GAP + row * (height + GAP)
            sheet[top : top + height, left : left + width] = _thumbnail(image, height, width)
    return sheet


def level_similarity(batch: Batch, shift: Shift, seed: int = 0) -> float:
    """Mean structural similarity of the images with themselves under the shift: 1 = unchanged, near 0 = unrecognisable.

    >>> from roadworthy.shifts import make_shift
    >>> pictures = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    >>> batch = Batch(("a", "b", "c", "d"), pictures, np.zeros(4, np.int64))
    >>> level_similarity(batch, make_shift("fog", 1)) > level_similarity(batch, make_shift("fog", 5))
    True
    """
    if len(batch) == 0:
        raise InputError("no images to compare: give at least one")
    return float(structural_similarity(batch.images, shift(batch, Streams(seed, shift.name)).images).mean())


def structural_similarity(first: Images, second: Images) -> NDArray[np.float64]:
    """Structural similarity of image pairs on luma, (N, H, W, C) twice -> (N,).

    The mean over all pixels of (2 m1 m2 + c1) (2 s12 + c2) / ((m1^2 + m2^2 + c1) (s1^2 + s2^2 + c2)), with means m,
    variances s^2 and covariance s12 under an 11x11 Gaussian window of sigma 1.5 (edges mirrored), c1 = (0.01 * 255)^2
    and c2 = (0.03 * 255)^2.

    >>> pictures = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    >>> structural_similarity(pictures, pictures)
    array([1., 1.])
    """
    if first.shape != second.shape:
        raise InputError(f"images of shapes {first.shape} and {second.shape} cannot be compared: they must be equal")
    return np.array([_similarity(_luma(a), _luma(b)) for a, b in zip(first, second, strict=True)])


def _similarity(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        blurred = cv2.GaussianBlur(values, (WINDOW, WINDOW), WINDOW_SIGMA, borderType=cv2.BORDER_REFLECT)
        return np.asarray(blurred, dtype=np.float64)

    c1, c2 = STABILIZERS
    m1, m2 = mean(first), mean(second)
    v1, v2, covariance = mean(first * first) - m1 * m1, mean(second * second) - m2 * m2, mean(first * second) - m1 * m2
    similarity = (2 * m1 * m2 + c1) * (2 * covariance + c2) / ((m1 * m1 + m2 * m2 + c1) * (v1 + v2 + c2))
    return float(similarity.mean())


def _luma(image: Images) -> NDArray[np.float64]:
    return np.asarray(image[..., 0] if image.shape[-1] == 1 else image @ np.array(LUMA), dtype=np.float64)


def _thumbnail_size(height: int, width: int) -> tuple[int, int]:
    short, long = min(height, width), max(height, width)
    factor = LARGEST / long if long > LARGEST else min(-(-SMALLEST // short), LARGEST // long)
    return max(1, round(height * factor)), max(1, round(width * factor))


def _thumbnail(image: Images, height: int, width: int) -> NDArray[np.uint8]:
    interpolation = cv2.INTER_AREA if height < image.shape[0] else cv2.INTER_NEAREST_EXACT
    small = cv2.resize(image, (width, height), interpolation=interpolation).reshape(height, width, -1)
    return np.broadcast_to(small, (height, width, 3))


def _write(sheet: NDArray[np.uint8], text: str, left: int, width: int) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        (text_width, _), _ = cv2.getTextSize(line, FONT, FONT_SCALE, 1)
        scale = FONT_SCALE * min(1.0, width / max(text_width, 1))
        cv2.putText(sheet, line, (left, number * LINE_HEIGHT - 2), FONT, scale, INK, 1, cv2.LINE_AA)
