"""Images of two halves, each of another class: what each half shows is known, the whole does not exist."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.protocols import OUTLIERS, Dataset, Outliers
from roadworthy.core.random import Streams
from roadworthy.core.types import Images
from roadworthy.data.base import OpenedDataset
from roadworthy.outliers.base import OutlierSet, Rows, opened, pixels


@OUTLIERS.register("mixed")
@dataclass(frozen=True, kw_only=True)
class Mixed(Outliers):
    """The left half of an image beside the right half of a random one of another class, cut at column W // 2.

    Each image gives its left half once. The group is that of the left half.

    >>> from roadworthy.data import open_dataset
    >>> pictures = np.stack([np.full((4, 4, 1), 10), np.full((4, 4, 1), 20)]).astype(np.uint8)
    >>> made = Mixed().make(open_dataset((pictures, np.array([0, 1]))), seed=0).batch([0, 1]).images
    >>> made[0, 0, :, 0].tolist(), made[1, 0, :, 0].tolist()
    ([10, 10, 20, 20], [20, 20, 10, 10])
    """

    name: ClassVar[str] = "mixed"

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many mixed images as the data has images."""
        if data.size[1] < 2:
            raise InputError(f"mixed outliers need images at least 2 pixels wide; those of {data.name} are {data.size}")
        return OutlierSet(opened(data), self, partial(_joined, partners(data, seed)), seed)


def partners(data: Dataset, seed: int) -> Rows:
    """For every image the row (N,) of one of another class, each equally likely; the data's order plays no part."""
    labels, ids = np.asarray(data.labels), data.ids
    order = np.array(sorted(range(len(ids)), key=lambda row: (labels[row], ids[row])))
    starts, ends = (np.searchsorted(labels[order], labels, side=side) for side in ("left", "right"))
    others = len(ids) - (ends - starts)
    if not others.all():
        raise InputError(
            f"mixed outliers need images of at least two classes; those of {data.name} are all of class "
            f"{data.class_names[labels[0]]!r}"
        )
    drawn = np.array([rng.random() for rng in Streams("partners", seed).each(ids)])
    place = (drawn * others).astype(np.int64)
    return np.asarray(order[np.where(place < starts, place, place + ends - starts)], dtype=np.int64)


def _joined(partner: Rows, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
    both = pixels(source, np.concatenate([rows, partner[rows]]))
    images, others = both[: len(rows)], both[len(rows) :]
    middle = images.shape[2] // 2
    images[:, :, middle:] = others[:, :, middle:]
    return images
