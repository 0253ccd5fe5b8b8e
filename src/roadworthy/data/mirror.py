"""Mirrored copies: a data set and, behind it, the same images with left and right exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Size, deliver, row_index
from roadworthy.data.parallel import Progress
from roadworthy.data.table import Table

SUFFIX = "/mirrored"


class Mirrored(OpenedDataset):
    """All images of a data set, then all of them mirrored: twice as many. A copy is in the group of its original.

    Boxes, masks and conditions are left behind.

    >>> from roadworthy.data import BuiltinDataset
    >>> signs = BuiltinDataset("signs", n=14)
    >>> both = Mirrored(signs)
    >>> len(both), both.ids[14] == signs.ids[0] + "/mirrored"
    (28, True)
    >>> bool((both.batch([14]).images == signs.batch([0]).images[:, :, ::-1]).all())
    True
    """

    def __init__(self, data: OpenedDataset) -> None:
        self.data = data
        self.name, self.class_names, self.size, self.channels = data.name, data.class_names, data.size, data.channels
        self.notes, self.bad_images = data.notes, data.bad_images
        self.table = Table(
            ids=(*data.ids, *(image_id + SUFFIX for image_id in data.ids)),
            labels=np.tile(data.labels, 2),
            class_names=data.class_names,
            groups=(*data.groups, *data.groups),
        )

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Decode some images, in the order given."""
        index = row_index(rows, len(self))
        images = self.data.batch((index % len(self.data)).tolist()).images.copy()
        mirrored = index >= len(self.data)
        images[mirrored] = images[mirrored][:, :, ::-1]
        return deliver(self.table, index, images, None, np.array(self.size))

    def native_size(self) -> Size | None:
        """(H, W) of the images as stored; None where they differ."""
        return self.data.native_size()

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """The hash of each original, marked where the row is its mirrored copy."""
        index = row_index(rows, len(self))
        originals = self.data.content((index % len(self.data)).tolist(), progress)
        marks = np.where(index >= len(self.data), SUFFIX, "").tolist()
        return [content + mark for content, mark in zip(originals, marks, strict=True)]

    def resized(self, size: Size) -> Self:
        """The same images, delivered at another size."""
        other = super().resized(size)
        other.data = self.data.resized(other.size)
        return other
