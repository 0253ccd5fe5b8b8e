"""Overlap of boxes: how well a predicted box covers the true one, as numbers per image.

A box is x0, y0, x1, y1 in pixels, the right and the bottom edge exclusive. A box whose corners are crossed (x1 < x0 or
y1 < y0) has no pixel: its area is 0.
"""

from __future__ import annotations

import numpy as np

from roadworthy.metrics.weighting import Floats


def box_areas(boxes: Floats) -> Floats:
    """The areas (n,) of boxes (n, 4) in square pixels, (x1 - x0) (y1 - y0); 0 where corners are crossed.

    >>> box_areas(np.array([[0.0, 0.0, 4.0, 2.0], [4.0, 0.0, 0.0, 2.0]]))
    array([8., 0.])
    """
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
    areas: Floats = sides[:, 0] * sides[:, 1]
    return areas


def intersection_over_union(true: Floats, boxes: Floats) -> Floats:
    """IoU (n,) of boxes (n, 4) with the true ones (n, 4): area of the intersection by area of the union; 0 to 1.

    Where the intersection has no area the IoU is 0. So a box without area has an IoU of 0 with every box, also with one
    that is identical to it.

    >>> true = np.array([[0.0, 0.0, 4.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
    >>> intersection_over_union(true, np.array([[2.0, 0.0, 6.0, 4.0], [1.0, 1.0, 1.0, 1.0]])).round(4)
    array([0.3333, 0.    ])
    """
    first, last = np.maximum(true[:, :2], boxes[:, :2]), np.minimum(true[:, 2:], boxes[:, 2:])
    intersection = box_areas(np.concatenate([first, last], axis=1))
    union = box_areas(true) + box_areas(boxes) - intersection
    overlap: Floats = np.divide(intersection, union, out=np.zeros(len(true)), where=intersection > 0)
    return overlap


def distance_iou(true: Floats, boxes: Floats) -> Floats:
    """Distance-IoU (n,) of boxes (n, 4) with the true ones (n, 4); -1 to 1.

        DIoU = IoU - d^2 / c^2

    d is the distance of the centres ((x0 + x1) / 2, (y0 + y1) / 2), c the diagonal of the smallest upright box that
    holds all four corners. Where all of them are one point, c is 0 and nothing is subtracted.

    >>> distance_iou(np.array([[0.0, 0.0, 4.0, 4.0]]), np.array([[2.0, 0.0, 6.0, 4.0]])).round(4)
    array([0.2564])
    """
    corners = np.stack([true[:, :2], true[:, 2:], boxes[:, :2], boxes[:, 2:]])
    centre_step = (corners[0] + corners[1] - corners[2] - corners[3]) / 2
    diagonal = corners.max(axis=0) - corners.min(axis=0)
    distance_squared, diagonal_squared = (centre_step**2).sum(axis=1), (diagonal**2).sum(axis=1)
    far = np.divide(distance_squared, diagonal_squared, out=np.zeros(len(true)), where=diagonal_squared > 0)
    result: Floats = intersection_over_union(true, boxes) - far
    return result
