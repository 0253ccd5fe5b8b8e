"""The CIFAR-10 policy of AutoAugment (Cubuk et al., 2019), with and without its geometric operations.

An image meets one of 25 sub-policies, drawn with equal chances. A sub-policy is two operations in order, each carried
out with a probability of its own and a magnitude m of 0 to 9, which is a position in the range of the operation:

    shear       0.3 m / 9 of the image's side, the sign drawn
    translate   150/331 m / 9 of the image's side, the sign drawn
    rotate      30 m / 9 degrees, the sign drawn
    solarize    pixels of at least 256 (1 - m / 9) are inverted
    posterize   8 - 4 m / 9 bits, rounded
    contrast, colour, brightness, sharpness   the factor 0.1 + 1.8 m / 9, where 1 changes nothing
    invert, equalize, auto_contrast           no magnitude

The policy was learned with translations of up to 150 pixels of images of 331. What a geometric operation uncovers is
grey (128).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import Streams

Image = NDArray[np.uint8]

HIGHEST = 9
FILL = (128, 128, 128)
GEOMETRIC = frozenset({"shear_y", "translate_x", "translate_y", "rotate"})

POLICY: tuple[tuple[tuple[str, float, int], tuple[str, float, int]], ...] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("auto_contrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("colour", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("colour", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("auto_contrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("colour", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("auto_contrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("colour", 0.9, 9), ("equalize", 0.6, 6)),
    (("auto_contrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("colour", 0.7, 0)),
    (("solarize", 0.4, 5), ("auto_contrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("auto_contrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("auto_contrast", 0.9, 1)),
)
"""The sub-policies: two operations each, with probability and magnitude."""

GREYS = np.arange(256, dtype=np.float64)
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13


def augment(images: Image, ids: Iterable[str], streams: Streams, *, geometric: bool = True) -> Image:
    """Images (N, H, W, C), changed one by one by the policy; the input is left as it is.

    `ids` are the names of the images, which decide the random stream of each; without `geometric`, an operation that
    moves pixels is left out, and the other operation of its sub-policy is kept, so boxes stay where they are.

    >>> images = np.full((2, 8, 8, 3), 100, np.uint8)
    >>> changed = augment(images, ["a", "b"], Streams("augmentation", 0, 1))
    >>> changed.shape, bool((augment(images[1:], ["b"], Streams("augmentation", 0, 1))[0] == changed[1]).all())
    ((2, 8, 8, 3), True)
    """
    changed = images.copy()
    for row, rng in enumerate(streams.each(ids)):
        draws = rng.random(5)
        for number, (operation, probability, magnitude) in enumerate(POLICY[int(draws[0] * len(POLICY))]):
            if draws[1 + number] < probability and (geometric or operation not in GEOMETRIC):
                sign = -1 if draws[3 + number] < 0.5 else 1
                changed[row] = apply(operation, changed[row], magnitude, sign)
    return changed


def apply(operation: str, image: Image, magnitude: int, sign: int = 1) -> Image:
    """One operation of the policy on one image (H, W, C); `sign` turns the direction of the geometric ones.

    >>> apply("invert", np.full((1, 1, 3), 55, np.uint8), 0).tolist()
    [[[200, 200, 200]]]
    """
    return OPERATIONS[operation](image, magnitude, sign).reshape(image.shape)


def _table(values: NDArray[np.float64]) -> Image:
    """Grey levels 0 to 255, in float, as a table of bytes; cut off below, as Pillow does, and clipped."""
    return np.clip(values, 0, 255).astype(np.uint8)


def _look_up(image: Image, tables: Image) -> Image:
    """Every pixel replaced by a table (256,) for all channels, or (256, C), a column each."""
    shaped = tables if tables.ndim == 1 else np.ascontiguousarray(tables)[None]
    return np.asarray(cv2.LUT(image, shaped), np.uint8)


def _factor(magnitude: int) -> float:
    return 0.1 + 1.8 * magnitude / HIGHEST


def _grey(image: Image) -> Image:
    """The brightness (H, W) of an image of 1 or 3 channels."""
    return image[..., 0] if image.shape[-1] == 1 else np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)


def _invert(image: Image, magnitude: int, sign: int) -> Image:
    return 255 - image


def _brightness(image: Image, magnitude: int, sign: int) -> Image:
    return _look_up(image, _table(GREYS * _factor(magnitude)))


def _contrast(image: Image, magnitude: int, sign: int) -> Image:
    """Away from, or towards, the mean brightness of the image, which is rounded to a grey level."""
    mean = float(np.floor(_grey(image).mean() + 0.5))
    return _look_up(image, _table(mean + (GREYS - mean) * _factor(magnitude)))


def _colour(image: Image, magnitude: int, sign: int) -> Image:
    """Away from, or towards, the grey image; an image of one channel stays as it is."""
    if image.shape[-1] == 1:
        return image
    factor = _factor(magnitude)
    grey = cv2.cvtColor(_grey(image), cv2.COLOR_GRAY2RGB)
    return np.asarray(cv2.addWeighted(image, factor, grey, 1 - factor, 0), np.uint8)


def _sharpness(image: Image, magnitude: int, sign: int) -> Image:
    """Away from, or towards, the image smoothed by a 3x3 kernel; the outermost pixels stay as they are."""
    if min(image.shape[:2]) < 3:
        return image
    factor = _factor(magnitude)
    smooth = image.copy()
    inner = cv2.filter2D(image, -1, SMOOTH).reshape(image.shape)
    smooth[1:-1, 1:-1] = inner[1:-1, 1:-1]
    return np.asarray(cv2.addWeighted(image, factor, smooth, 1 - factor, 0), np.uint8)


def _posterize(image: Image, magnitude: int, sign: int) -> Image:
    dropped = round(4 * magnitude / HIGHEST)
    return image & np.uint8(256 - 2**dropped)


def _solarize(image: Image, magnitude: int, sign: int) -> Image:
    return _look_up(image, np.where(256 * (1 - magnitude / HIGHEST) > GREYS, GREYS, 255 - GREYS).astype(np.uint8))


def _auto_contrast(image: Image, magnitude: int, sign: int) -> Image:
    """Each channel stretched from its darkest and brightest level to 0 and 255; one of a single level stays."""
    low, high = image.min(axis=(0, 1)).astype(np.float64), image.max(axis=(0, 1)).astype(np.float64)
    extent = np.where(high > low, high - low, 255)
    start = np.where(high > low, low, 0)
    return _look_up(image, _table((GREYS[:, None] - start) * 255 / extent))


def _equalize(image: Image, magnitude: int, sign: int) -> Image:
    """Each channel mapped so that its levels are about equally frequent; one of a single level stays.

    step = floor((pixels - those of the brightest level) / 255), level -> floor((step / 2 + pixels below it) / step)
    """
    tables = np.empty((256, image.shape[-1]), np.uint8)
    for channel in range(image.shape[-1]):
        counts = np.bincount(image[..., channel].ravel(), minlength=256)
        occupied = np.flatnonzero(counts)
        step = int(counts.sum() - counts[occupied[-1]]) // 255
        below = np.cumsum(counts) - counts
        tables[:, channel] = GREYS if len(occupied) < 2 or not step else np.clip((step // 2 + below) // step, 0, 255)
    return _look_up(image, tables)


def _moved(image: Image, matrix: NDArray[np.float64]) -> Image:
    height, width = image.shape[:2]
    fill = FILL[: image.shape[-1]]
    moved = cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderValue=fill)
    return np.asarray(moved, np.uint8)


def _shear_y(image: Image, magnitude: int, sign: int) -> Image:
    """Each column moved down by a share of its distance from the middle."""
    slope = sign * 0.3 * magnitude / HIGHEST
    return _moved(image, np.array([[1, 0, 0], [slope, 1, -slope * (image.shape[1] - 1) / 2]]))


def _translate_x(image: Image, magnitude: int, sign: int) -> Image:
    return _moved(image, np.array([[1, 0, _distance(magnitude, sign, image.shape[1])], [0, 1, 0]]))


def _translate_y(image: Image, magnitude: int, sign: int) -> Image:
    return _moved(image, np.array([[1, 0, 0], [0, 1, _distance(magnitude, sign, image.shape[0])]]))


def _distance(magnitude: int, sign: int, side: int) -> float:
    """A translation in whole pixels."""
    return float(sign * round(150 / 331 * side * magnitude / HIGHEST))


def _rotate(image: Image, magnitude: int, sign: int) -> Image:
    height, width = image.shape[:2]
    middle, degrees = ((width - 1) / 2, (height - 1) / 2), sign * 30 * magnitude / HIGHEST
    return _moved(image, np.asarray(cv2.getRotationMatrix2D(middle, degrees, 1), np.float64))


OPERATIONS: dict[str, Callable[[Image, int, int], Image]] = {
    "invert": _invert,
    "brightness": _brightness,
    "contrast": _contrast,
    "colour": _colour,
    "sharpness": _sharpness,
    "posterize": _posterize,
    "solarize": _solarize,
    "auto_contrast": _auto_contrast,
    "equalize": _equalize,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "rotate": _rotate,
}
