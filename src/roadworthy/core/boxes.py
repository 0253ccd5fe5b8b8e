"""Boxes of masks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def tight_boxes(masks: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The tight boxes (N, 4) of masks (N, H, W): x0 the first column of the mask, x1 the last one + 1, y0 and y1 alike.

    A mask without a pixel has no box: NaN.

    >>> mask = np.zeros((1, 4, 6), dtype=bool)
    >>> mask[0, 1:3, 2:6] = True
    >>> tight_boxes(mask).tolist()
    [[2.0, 1.0, 6.0, 3.0]]
    """
    boxes = np.full((len(masks), 4), np.nan, dtype=np.float32)
    for box, mask in zip(boxes, masks, strict=True):
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        if columns.size:
            box[:] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return boxes
