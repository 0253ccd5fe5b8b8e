"""Digital corruptions: contrast, elastic transform, pixelate, JPEG compression and saturation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import registered
from roadworthy.core.random import Streams, random_bytes
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch, Images
from roadworthy.shifts.base import Paint, gaussian
from roadworthy.shifts.corruptions.base import (
    Corruption,
    ThreeSizes,
    Triple,
    as_bytes,
    between,
    beyond,
    severities,
    surviving,
)
from roadworthy.shifts.geometry import copied, moved_batch

Floats = NDArray[np.float32]


@registered(SHIFTS, "c_contrast")
class Contrast(Corruption):
    """Flat light: m + k (img - m), m the mean of each channel, k = `keep`."""

    keep: Triple = severities(
        (0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05), (0.4, 0.3, 0.2, 0.1, 0.05), within=(0, 1), neutral=1
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        (keep,) = self.sized(height, width)
        values = np.arange(256.0).reshape(1, 256, 1)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            means = np.array(cv2.mean(image)[:channels])
            cv2.LUT(image, np.rint(means + keep * (values - means)).astype(np.uint8), dst=target)

        return paint


@registered(SHIFTS, "c_elastic_transform")
class ElasticTransform(ThreeSizes):
    """A wavy pane: the image is skewed, then img(p + u(p)), u a smooth random field; edges mirrored.

    Three corners of a square around the centre, a third of the shorter side away from it along either axis, jump by up
    to `skew` pixels along either axis: the image follows them. u is uniform noise within `push` pixels, blurred by a
    Gaussian of `sigma` pixels. Between the published sizes it is the spread of u that is interpolated. The parameters
    at 224 pixels are those of the package imagecorruptions, without a skew.

    Mask and depth move with the image: a pixel takes those of the point that it shows. The box becomes the tight box of
    the moved mask; without masks the smallest one around all pixels that show a point inside it, NaN where none does,
    and its area over the number of those pixels is the inflation.
    """

    code_version: ClassVar[int] = 2

    push: Triple = severities(
        (0, 1.6, 2.56, 3.2, 3.2),
        (0, 3.2, 6.4, 6.4, 10.24),
        (14, 18.2, 23.8, 28, 33.6),
        (0, 1000),
        pixels=True,
        neutral=0,
    )
    sigma: Triple = severities(
        (0, 6.4, 1.92, 1.28, 0.96), (0, 19.2, 5.12, 1.92, 1.92), [2.24] * 5, (0, 500), pixels=True
    )
    skew: Triple = severities(
        (2.56, 2.24, 1.92, 1.6, 0.96), (5.12, 3.84, 3.84, 1.92, 1.28), [0] * 5, (0, 500), pixels=True, neutral=0
    )

    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The batch with every image, mask, depth and box moved by a field from the image's own random stream."""
        images = np.ascontiguousarray(batch.images)
        moved = np.empty_like(images)
        masks, depth, hulls = copied(batch.masks), copied(batch.depth), copied(batch.boxes)
        inflation = None if hulls is None else np.full(len(batch), np.nan, np.float32)
        height, width = images.shape[1:3]
        draw_skew, draw_points = self._skewer(height, width), self._point_sampler(height, width)
        sample = cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR
        for row, rng in enumerate(streams.each(batch.ids)):
            x, y = draw_points(rng)
            matrix = draw_skew(rng)
            image = images[row]
            if matrix is not None:
                image = as_bytes(
                    cv2.warpAffine(image, matrix, (width, height), flags=sample, borderMode=cv2.BORDER_REFLECT_101)
                )
            cv2.remap(image, x, y, cv2.INTER_LINEAR, dst=moved[row], borderMode=cv2.BORDER_REFLECT)
            if matrix is not None:
                x, y = _through(matrix, x, y)
            for array in (masks, depth):
                if array is not None:
                    array[row] = array[row][_shown(y, height), _shown(x, width)]
            if hulls is not None and inflation is not None:
                hulls[row], inflation[row] = _box_around(_folded(x, width), _folded(y, height), hulls[row])
        return moved_batch(batch, moved, masks=masks, depth=depth, hulls=hulls, inflation=inflation)

    def _skewer(self, height: int, width: int) -> Callable[[np.random.Generator], NDArray[np.float64] | None]:
        """The function that draws the map from a point of the skewed image to that of the image (2, 3); None: none."""
        skew = self.sized(height, width)[2]
        if not skew:
            return lambda rng: None
        centre, arm = np.array((width // 2, height // 2)), max(1, min(height, width) // 3)
        corners = np.array(centre + arm * np.array(((1, 1), (1, -1), (-1, -1))), np.float32)

        def draw(rng: np.random.Generator) -> NDArray[np.float64]:
            jumps = skew * (2 * rng.random((3, 2)) - 1)
            return np.asarray(cv2.getAffineTransform(np.asarray(corners + jumps, np.float32), corners))

        return draw

    def _point_sampler(self, height: int, width: int) -> Callable[[np.random.Generator], Floats]:
        """The function that draws x and y of the point each pixel shows, (2, H, W), pixel centres at whole numbers."""
        side = min(height, width)
        kernel = np.asarray(gaussian(self.sized(height, width)[1]), np.float32)
        pushes = zip(self.push, self.sigma, strict=True)
        spread = between([push * surviving(gaussian(sigma)) for push, sigma in pushes], side) * beyond(side)
        largest = spread / surviving(kernel)
        rest = np.stack(np.meshgrid(np.arange(width), np.arange(height))).astype(np.float32)

        def sample_points(rng: np.random.Generator) -> Floats:
            words = random_bytes(rng, 4 * height * width).view("<u2").reshape(2, height, width)
            pushes = words * np.float32(largest / 32767.5) - np.float32(largest)
            for push in pushes:
                cv2.sepFilter2D(push, cv2.CV_32F, kernel, kernel, dst=push, borderType=cv2.BORDER_REFLECT)
            return np.asarray(rest + pushes, np.float32)

        return sample_points


@registered(SHIFTS, "c_pixelate")
class Pixelate(Corruption):
    """Low resolution: shrunk to `share` of each side (whole pixels, rounded down) by means over cells, enlarged again.

    A cell is made of whole pixels, those whose centre lies in it, and a pixel takes the colour of its cell.
    """

    code_version: ClassVar[int] = 2

    share: Triple = severities(
        (0.95, 0.9, 0.85, 0.75, 0.65),
        (0.9, 0.8, 0.7, 0.6, 0.5),
        (0.6, 0.5, 0.4, 0.3, 0.25),
        within=(0.001, 1),
        neutral=1,
    )

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        (share,) = self.sized(height, width)
        rows, columns = (_cells(side, max(1, int(side * share))) for side in (height, width))
        areas = np.diff(rows)[:, None, None] * np.diff(columns)[:, None]

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            sums = cv2.integral(image).reshape(height + 1, width + 1, channels)[rows][:, columns]
            cells = np.diff(np.diff(sums, axis=0), axis=1)
            means = ((cells + areas // 2) // areas).astype(np.uint8)
            cv2.resize(means, (width, height), dst=target, interpolation=cv2.INTER_NEAREST_EXACT)

        return paint


@registered(SHIFTS, "c_jpeg_compression")
class JpegCompression(Corruption):
    """A poor recording: stored as JPEG of that `quality` (whole number, 1 to 100) and read again."""

    quality: Triple = severities((80, 65, 58, 50, 40), (65, 58, 50, 40, 25), (25, 18, 15, 10, 7), within=(1, 100))

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        (quality,) = self.sized(height, width)
        settings = [cv2.IMWRITE_JPEG_QUALITY, round(quality)]

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            shown = image if channels == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
            stored = cv2.imencode(".jpg", shown, settings)[1]
            read = as_bytes(cv2.imdecode(stored, cv2.IMREAD_UNCHANGED))
            np.copyto(target, read[:, :, None] if channels == 1 else cv2.cvtColor(read, cv2.COLOR_BGR2RGB))

        return paint


@registered(SHIFTS, "c_saturate")
class Saturate(Corruption):
    """Colours too pale or too strong: saturation s becomes min(1, `factor` s + `offset`), hue and brightness stay.

    s = (v - w) / v of the largest and smallest channel v and w of a pixel; grey counts as red. Levels 1 and 2 take
    colour away, 3 to 5 add it. Images of one channel stay as they are.
    """

    factor: Triple = severities(
        (0.3, 0.1, 1.5, 2, 2.5), (0.3, 0.1, 2, 5, 30), (0.3, 0.1, 2, 5, 20), within=(0, 1000), neutral=1
    )
    offset: Triple = severities((0, 0, 0, 0.1, 0.2), (0, 0, 0, 0.1, 0.2), (0, 0, 0, 0.1, 0.2), within=(0, 1), neutral=0)

    def _painter(self, height: int, width: int, channels: int) -> Paint:
        if channels == 1:
            return lambda image, target, rng: np.copyto(target, image)
        factor, offset = self.sized(height, width)
        table, tint = _saturation_gain(factor, offset), 1 - min(1.0, offset)

        def paint(image: Images, target: Images, rng: np.random.Generator) -> None:
            red, green, blue = cv2.split(image)
            most, least = as_bytes(cv2.max(cv2.max(red, green), blue)), as_bytes(cv2.min(cv2.min(red, green), blue))
            gain = np.asarray(table.take(most.astype(np.intp) << 8 | least), np.float32)
            value = cv2.merge([most] * 3)
            lost = cv2.multiply(cv2.subtract(value, image), cv2.merge([gain] * 3), dtype=cv2.CV_8U)
            cv2.subtract(value, lost, target)
            if offset:
                target[..., 1:][most == least] = np.rint(tint * most[most == least])[:, None]

        return paint


@lru_cache(maxsize=8)
def _saturation_gain(factor: float, offset: float) -> Floats:
    """By how much v - channel grows, at the index 256 v + w of a pixel's largest and smallest channel."""
    most, least = np.arange(256.0)[:, None], np.arange(256.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = (most - least) / most
        gain = np.minimum(1, factor * saturation + offset) / saturation
    return np.where(most > least, gain, 0).astype(np.float32).ravel()


def _cells(side: int, count: int) -> NDArray[np.intp]:
    """Where each of `count` equal cells of a side begins, and the last ends, in pixels by their centres."""
    return (2 * np.arange(count + 1) * side - count) // (2 * count) + 1


def _through(matrix: NDArray[np.float64], x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Which points of the image the points (x, y) of the skewed one show, both mirrored at the edges as OpenCV does."""
    height, width = x.shape
    points = np.stack((_folded(x, width) - 0.5, _folded(y, height) - 0.5, np.ones_like(x)))
    across, down = np.tensordot(matrix, points, axes=1).astype(np.float32)
    return _turned(across, width - 1), _turned(down, height - 1)


def _turned(coordinates: Floats, last: int) -> Floats:
    """Coordinates of points, mirrored at the centres of the first and the last pixel into [0, last]."""
    return np.asarray(last - np.abs(last - np.abs(coordinates) % max(1, 2 * last)))


def _folded(coordinates: Floats, size: int) -> Floats:
    """Coordinates of points, mirrored at the edges into [0, size]; a pixel's centre lies at its index + 0.5."""
    return np.asarray(size - np.abs(size - np.abs(coordinates + np.float32(0.5)) % (2 * size)))


def _shown(coordinates: Floats, size: int) -> NDArray[np.intp]:
    return np.minimum(_folded(coordinates, size).astype(np.intp), size - 1)


def _box_around(x: Floats, y: Floats, box: Floats) -> tuple[tuple[float, float, float, float], float]:
    """The smallest box around the pixels whose points (x, y) lie inside a box, and its area in those pixels."""
    rows, columns = np.nonzero((x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3]))
    if not len(rows):
        return (math.nan,) * 4, math.nan
    x0, y0, x1, y1 = (float(edge) for edge in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1))
    return (x0, y0, x1, y1), (x1 - x0) * (y1 - y0) / len(rows)
