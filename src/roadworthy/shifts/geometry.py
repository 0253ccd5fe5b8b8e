"""Moving images together with their boxes, masks and depth.

One convention throughout: the pixel in row r and column c covers the square [c, c + 1] x [r, r + 1], its centre lies at
x = c + 0.5, y = r + 0.5, and an image spans [0, W] x [0, H]. Box edges and all matrices here are in these coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from roadworthy.core.boxes import tight_boxes
from roadworthy.core.types import Batch

Matrices = NDArray[np.float64]

TO_CENTRES = np.array([[1.0, 0.0, -0.5], [0.0, 1.0, -0.5], [0.0, 0.0, 1.0]])
FROM_CENTRES = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])


def rotations(angles: NDArray[np.float64], height: int, width: int) -> Matrices:
    """Turns about the image's centre, in radians, counter-clockwise as seen: (N,) -> (N, 3, 3).

    >>> quarter = rotations(np.array([np.pi / 2]), height=4, width=4)[0]
    >>> (quarter @ (4, 0, 1)).round(9).tolist()
    [0.0, 0.0, 1.0]
    """
    # One by one: numpy's vectorised functions may round an angle differently at another place of the batch.
    cosines, sines = (np.array([function(angle) for angle in angles.tolist()]) for function in (math.cos, math.sin))
    x, y = width / 2, height / 2
    matrices = np.zeros((len(angles), 3, 3))
    matrices[:, 0, 0] = matrices[:, 1, 1] = cosines
    matrices[:, 0, 1], matrices[:, 1, 0] = sines, -sines
    matrices[:, 0, 2] = x - cosines * x - sines * y
    matrices[:, 1, 2] = y + sines * x - cosines * y
    matrices[:, 2, 2] = 1.0
    return matrices


def perspectives(corners: NDArray[np.float64], height: int, width: int) -> Matrices:
    """The projective maps that take the image's corners to the ones given: (N, 4, 2) -> (N, 3, 3).

    Corners c0 to c3 are x, y from the top left one clockwise and form a convex shape. From the unit square, with
    d1 = c1 - c2, d2 = c3 - c2 and s = c0 - c1 + c2 - c3, the last row is (g, h, 1), g = (s x d2) / (d1 x d2),
    h = (d1 x s) / (d1 x d2); the columns above it are c1 - c0 + g c1, c3 - c0 + h c3 and c0.

    >>> moved = np.array([[[1.0, 1.0], [8.0, 0.0], [7.0, 4.0], [0.0, 4.0]]])
    >>> corner = perspectives(moved, height=4, width=8)[0] @ (8, 4, 1)
    >>> (corner / corner[2]).round(9).tolist()
    [7.0, 4.0, 1.0]
    """
    c0, c1, c2, c3 = corners[:, 0], corners[:, 1], corners[:, 2], corners[:, 3]
    side1, side2, skew = c1 - c2, c3 - c2, c0 - c1 + c2 - c3
    area = _cross(side1, side2)
    g, h = _cross(skew, side2) / area, _cross(side1, skew) / area
    matrices = np.empty((len(corners), 3, 3))
    matrices[:, :2, 0] = (c1 - c0 + g[:, None] * c1) / width
    matrices[:, :2, 1] = (c3 - c0 + h[:, None] * c3) / height
    matrices[:, :2, 2] = c0
    matrices[:, 2, 0], matrices[:, 2, 1], matrices[:, 2, 2] = g / width, h / height, 1.0
    return matrices


def warp_affine(batch: Batch, matrices: Matrices, border: int = cv2.BORDER_CONSTANT) -> Batch:
    """Move every image by its own affine matrix (N, 3, 3): pixels bilinear, masks and depth nearest, boxes too.

    Outside, an image is black, or what the `border` of OpenCV says; masks are always empty there and depth infinite.
    Where masks exist a box becomes the tight box of the moved mask, else the hull of its moved corners.

    >>> picture = np.zeros((1, 8, 8, 1), np.uint8); picture[0, 2, 3] = 200
    >>> batch = Batch(("a",), picture, np.zeros(1, np.int64), boxes=np.array([[3, 2, 4, 3]], np.float32))
    >>> right_by_two = np.array([[[1.0, 0, 2], [0, 1, 0], [0, 0, 1]]])
    >>> moved = warp_affine(batch, right_by_two)
    >>> int(moved.images[0, 2, 5, 0]), moved.boxes
    (200, array([[5., 2., 6., 3.]], dtype=float32))
    """
    return _warp(batch, matrices, cv2.warpAffine, rows=2, border=border)


def warp_perspective(batch: Batch, matrices: Matrices) -> Batch:
    """Move every image by its own projective matrix (N, 3, 3), otherwise like `warp_affine`.

    No part of the image may go behind the camera: its moved corners form a convex shape.

    >>> batch = Batch(("a",), np.full((1, 8, 8, 3), 9, np.uint8), np.zeros(1, np.int64))
    >>> corners = np.array([[[0.0, 0.0], [4.0, 0.0], [4.0, 8.0], [0.0, 8.0]]])
    >>> warp_perspective(batch, perspectives(corners, 8, 8)).images[0, 3, :, 0].tolist()
    [9, 9, 9, 9, 0, 0, 0, 0]
    """
    return _warp(batch, matrices, cv2.warpPerspective, rows=3)


def crop_and_resize(batch: Batch, tops: NDArray[np.int64], lefts: NDArray[np.int64], height: int, width: int) -> Batch:
    """Cut a window of `height` x `width` pixels out of every image at its own corner, scaled back to the full size.

    Pixels bilinear, masks and depth nearest; without masks a box edge x goes to (x - left) W / width exactly.

    >>> boxes = np.array([[10, 5, 37, 59]], np.float32)
    >>> batch = Batch(("a",), np.zeros((1, 64, 64, 3), np.uint8), np.zeros(1, np.int64), boxes=boxes)
    >>> crop_and_resize(batch, np.array([5]), np.array([10]), 54, 54).boxes
    array([[ 0.,  0., 32., 64.]], dtype=float32)
    """
    full_height, full_width = batch.images.shape[1:3]
    down, across = full_height / height, full_width / width
    matrices = np.zeros((len(batch), 3, 3))
    matrices[:, 0, 0], matrices[:, 1, 1], matrices[:, 2, 2] = across, down, 1.0
    matrices[:, 0, 2], matrices[:, 1, 2] = -across * lefts, -down * tops

    def move(source: NDArray[Any], target: NDArray[Any], row: int, interpolation: int) -> None:
        window = source[tops[row] : tops[row] + height, lefts[row] : lefts[row] + width]
        cv2.resize(window, (full_width, full_height), dst=target, interpolation=interpolation)

    return _move(batch, matrices, move, nearest=cv2.INTER_NEAREST_EXACT)


def moved_batch(
    batch: Batch,
    images: NDArray[np.uint8],
    *,
    masks: NDArray[np.bool_] | None,
    depth: NDArray[np.float32] | None,
    hulls: NDArray[np.float32] | None = None,
    inflation: NDArray[np.float32] | None = None,
) -> Batch:
    """The batch after its pixels moved, with its true boxes: those of the moved masks, or without masks the hulls.

    hulls      (N, 4), upright boxes around the moved boxes, given where the batch has boxes and no masks
    inflation  (N,), the area of each hull over that of the shape which the moved box is

    >>> batch = Batch(("a",), np.zeros((1, 4, 4, 1), np.uint8), np.zeros(1, np.int64), boxes=np.float32([[0, 0, 4, 4]]))
    >>> mask = np.zeros((1, 4, 4), bool); mask[0, 1, 2] = True
    >>> moved_batch(batch, batch.images, masks=mask, depth=None).boxes
    array([[2., 1., 3., 2.]], dtype=float32)
    """
    if batch.boxes is not None and masks is not None:
        hulls, inflation = tight_boxes(masks), None
    return batch.with_images(images, masks=masks, depth=depth, boxes=hulls, box_inflation=inflation)


def move_boxes(boxes: NDArray[np.float32], matrices: Matrices, height: int, width: int) -> NDArray[np.float32]:
    """The boxes after the image moved: (N, 4), (N, 3, 3) -> (N, 4) float32.

    The part of a box inside the image, its four corners moved, the smallest upright box around them, and of that the
    part inside the image. So the box of a turned object is at least as large as the object. A box of which nothing is
    left becomes NaN, and NaN (no box) stays NaN.

    >>> turn = rotations(np.array([np.pi / 2]), height=10, width=10)
    >>> move_boxes(np.array([[6, 1, 9, 2]], np.float32), turn, height=10, width=10)
    array([[1., 1., 2., 4.]], dtype=float32)
    """
    across, down = _moved_corners(boxes, matrices, height, width)
    around = np.stack([across.min(axis=1), down.min(axis=1), across.max(axis=1), down.max(axis=1)], axis=1)
    return _clipped(around, height, width)


def box_inflation(boxes: NDArray[np.float32], matrices: Matrices, height: int, width: int) -> NDArray[np.float32]:
    """How much larger the upright box around a moved box is than the moved box itself: (N, 4), (N, 3, 3) -> (N,).

    The area of the smallest upright box around the four moved corners over the area of the shape they span, before
    either is cut at the edge of the image: 1 where nothing turns. NaN where there is no box.

    >>> turn = rotations(np.array([np.pi / 4]), height=10, width=10)
    >>> box_inflation(np.array([[4, 4, 6, 6]], np.float32), turn, height=10, width=10)
    array([2.], dtype=float32)
    """
    across, down = _moved_corners(boxes, matrices, height, width)
    following = [1, 2, 3, 0]
    spanned = np.abs((across * down[:, following] - across[:, following] * down).sum(axis=1)) / 2
    return np.asarray(np.ptp(across, axis=1) * np.ptp(down, axis=1) / spanned, np.float32)


def box_areas(boxes: NDArray[np.floating[Any]], height: int, width: int) -> NDArray[np.float32]:
    """The area of the part of each box inside the image, (N, 4) -> (N,); NaN where there is none.

    >>> box_areas(np.float32([[-2, 0, 3, 4], [9, 9, 12, 12]]), height=8, width=8)
    array([12., nan], dtype=float32)
    """
    x0, y0, x1, y1 = _clipped(boxes, height, width).T
    return np.asarray((x1 - x0) * (y1 - y0), np.float32)


def copied(array: NDArray[Any] | None) -> NDArray[Any] | None:
    """A copy to write into, or None where there is no array."""
    return None if array is None else array.copy()


def _moved_corners(
    boxes: NDArray[np.float32], matrices: Matrices, height: int, width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x and y (N, 4) of the four moved corners of the part of each box inside the image."""
    inside = _clipped(boxes, height, width).astype(np.float64)
    x, y = inside[:, [0, 2, 2, 0]], inside[:, [1, 1, 3, 3]]
    m = matrices[:, :, :, None]
    depth = m[:, 2, 0] * x + m[:, 2, 1] * y + m[:, 2, 2]
    across = (m[:, 0, 0] * x + m[:, 0, 1] * y + m[:, 0, 2]) / depth
    down = (m[:, 1, 0] * x + m[:, 1, 1] * y + m[:, 1, 2]) / depth
    return across, down


def _warp(
    batch: Batch, matrices: Matrices, warp: Callable[..., object], rows: int, border: int = cv2.BORDER_CONSTANT
) -> Batch:
    height, width = batch.images.shape[1:3]
    steps = (TO_CENTRES @ matrices @ FROM_CENTRES)[:, :rows]
    # OpenCV moves four channels nearly twice as fast as three.
    before, after = np.empty((2, height, width, 4), np.uint8)

    def move(source: NDArray[Any], target: NDArray[Any], row: int, interpolation: int) -> None:
        if source.shape[2:] == (3,):
            cv2.cvtColor(source, cv2.COLOR_RGB2RGBA, dst=before)
            warp(before, steps[row], (width, height), dst=after, flags=interpolation, borderMode=border)
            cv2.cvtColor(after, cv2.COLOR_RGBA2RGB, dst=target)
        else:
            filled = border if source.ndim == 3 else cv2.BORDER_CONSTANT
            value = math.inf if source.dtype == np.float32 else 0
            size = (width, height)
            warp(source, steps[row], size, dst=target, flags=interpolation, borderMode=filled, borderValue=value)

    return _move(batch, matrices, move, nearest=cv2.INTER_NEAREST)


Move = Callable[[NDArray[Any], NDArray[Any], int, int], None]
"""`move(source, target, row, interpolation)` moves an image (H, W, C), or a mask or depth (H, W), of one row."""


def _move(batch: Batch, matrices: Matrices, move: Move, nearest: int) -> Batch:
    """The batch with images, masks and depth moved by `move` and boxes by their masks, else by the matrices."""
    height, width = batch.images.shape[1:3]

    def moved(sources: NDArray[Any], interpolation: int) -> NDArray[Any]:
        targets = np.empty(sources.shape, sources.dtype)
        for row, (source, target) in enumerate(zip(np.ascontiguousarray(sources), targets, strict=True)):
            move(source, target, row, interpolation)
        return targets

    images = moved(batch.images, cv2.INTER_LINEAR)
    masks = None if batch.masks is None else moved(batch.masks.view(np.uint8), nearest).view(np.bool_)
    depth = None if batch.depth is None else moved(batch.depth, nearest)
    if batch.boxes is None or masks is not None:
        return moved_batch(batch, images, masks=masks, depth=depth)
    hulls = move_boxes(batch.boxes, matrices, height, width)
    inflation = box_inflation(batch.boxes, matrices, height, width)
    return moved_batch(batch, images, masks=masks, depth=depth, hulls=hulls, inflation=inflation)


def _clipped(boxes: NDArray[np.floating[Any]], height: int, width: int) -> NDArray[np.float32]:
    """The part of each box inside the image, NaN where there is none."""
    clipped: NDArray[np.float32] = np.clip(boxes, 0, (width, height, width, height)).astype(np.float32)
    empty = ~((clipped[:, 2] > clipped[:, 0]) & (clipped[:, 3] > clipped[:, 1]))
    clipped[empty] = np.nan
    return clipped


def _cross(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
