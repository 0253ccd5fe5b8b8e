"""Data sets that are held in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Opening, Size, deliver, empty_images, row_index
from roadworthy.data.images import resize, resize_mask
from roadworthy.data.parallel import Progress
from roadworthy.data.subset import spread
from roadworthy.data.table import Table, check_boxes_inside


class ArrayDataset(OpenedDataset):
    """Images (N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8 and masks (N, H, W), nonzero = object, in memory."""

    def __init__(
        self,
        table: Table,
        images: NDArray[np.uint8],
        masks: NDArray[np.generic] | None = None,
        opening: Opening | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        opening = opening or Opening()
        images = checked_images(images)
        if len(images) != len(table.ids):
            raise InputError(f"the data set has {len(images)} images but {len(table.ids)} labels")
        if masks is not None and (masks.shape != images.shape[:3] or masks.dtype.kind not in "biu"):
            raise InputError(f"masks must be bool or whole numbers {images.shape[:3]}, not {masks.dtype} {masks.shape}")
        rows = spread(table, opening.limit, opening.seed)
        whole = len(rows) == len(images)
        self._images = images if whole else images[rows]
        self._masks = None if masks is None else (masks if whole else masks[rows]) != 0
        self._stored = np.array(images.shape[1:3], dtype=np.int64)
        self._hashes: dict[int, str] = {}
        self.name, self.notes, self.table = opening.name, tuple(notes), table.take(rows)
        self.class_names, self.channels = table.class_names, images.shape[3]
        if self.table.boxes is not None:
            check_boxes_inside(self.table.boxes, self._stored[None], self.ids)
        self.size = opening.choose_size(self.native_size())

    def native_size(self) -> Size:
        """(H, W) of the arrays."""
        return self._images.shape[1], self._images.shape[2]

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """A copy of some images, in the order given."""
        index = row_index(rows, len(self))
        images = self._images[index]
        masks = None if self._masks is None else self._masks[index]
        if self.size != self.native_size():
            images = _resized(images, self.size)
            masks = None if masks is None else _resized_masks(masks, self.size)
        return deliver(self.table, index, images, masks, self._stored)

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """SHA-256 of the values of each image (and its mask)."""
        for row in rows:
            if row not in self._hashes:
                sha = hashlib.sha256(f"{self._images.shape[1:]}".encode())
                sha.update(np.ascontiguousarray(self._images[row]).data)
                if self._masks is not None:
                    sha.update(np.ascontiguousarray(self._masks[row]).data)
                self._hashes[row] = sha.hexdigest()
        return [self._hashes[row] for row in rows]


def checked_images(images: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Images as (N, H, W, 1 or 3) uint8, or an `InputError` that says how to make them so.

    >>> checked_images(np.zeros((2, 28, 28), dtype=np.uint8)).shape
    (2, 28, 28, 1)
    """
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and images.shape[3] not in (1, 3) and images.shape[1] in (1, 3):
        raise InputError(
            f"images are {images.shape}, channels first; store them as (N, H, W, C): images.transpose(0, 2, 3, 1)"
        )
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape[1:3]:
        raise InputError(f"images must have shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), not {images.shape}")
    if images.dtype != np.uint8:
        raise InputError(f"images must be uint8, 0 to 255, not {images.dtype}; scale and round them first")
    return images  # type: ignore[return-value]


def _resized(images: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    result = empty_images(len(images), size, images.shape[3])
    for row, image in enumerate(images):
        result[row] = resize(image, size)
    return result


def _resized_masks(masks: NDArray[np.bool_], size: Size) -> NDArray[np.bool_]:
    result = np.empty((len(masks), *size), dtype=np.bool_)
    for row, mask in enumerate(masks):
        result[row] = resize_mask(mask, size)
    return result
