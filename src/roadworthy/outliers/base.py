"""What all outliers share: a data set whose images are painted when a batch is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import code_of
from roadworthy.core.hashing import digest
from roadworthy.core.parameters import check_ranges
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset, Outliers
from roadworthy.core.types import Batch, Images
from roadworthy.data.base import OpenedDataset, Size, deliver, row_index
from roadworthy.data.parallel import Progress
from roadworthy.data.subset import Subset
from roadworthy.data.table import Table

CLASS_NAMES = ("outlier",)

Rows = NDArray[np.int64]
Paint = Callable[[OpenedDataset, Rows, Streams], Images]
"""`paint(source, rows, streams)`: the outliers (N, H, W, C) made of those rows of the source."""


class OutlierSet(OpenedDataset):
    """Outliers made of the images of `source`, row by row; nothing is computed before a batch is asked for.

    Ids are `<name>/<id of the source>`. Groups are those of the source unless others are given: outliers of one object
    are no more independent than its images. Every label is 0, the one class `outlier`. Boxes, masks and conditions of
    the source say nothing of an outlier and are left behind.
    """

    def __init__(
        self,
        source: OpenedDataset,
        maker: Outliers,
        paint: Paint,
        seed: int,
        *,
        name: str | None = None,
        channels: int | None = None,
        groups: Sequence[str] | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self.source, self.maker, self.seed = source, maker, seed
        self.name, self.notes = name or maker.name, tuple(notes)
        self.class_names, self.size, self.channels = CLASS_NAMES, source.size, channels or source.channels
        self._paint = paint
        self.table = Table(
            ids=prefixed(self.name, source.ids),
            labels=np.zeros(len(source), dtype=np.int64),
            class_names=CLASS_NAMES,
            groups=source.groups if groups is None else tuple(groups),
        )

    @cached_property
    def recipe(self) -> str:
        """SHA-256 of all that decides a pixel: the source's content, the maker's name, parameters and code, seed."""
        maker, code = self.maker, code_of(type(self.maker))
        made = {"source": self.source.fingerprint(), "maker": maker.name, "parameters": maker.parameters()}
        return digest({**made, "seed": self.seed, **({"code": code} if code else {})})

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Paint some outliers, in the order given."""
        index = row_index(rows, len(self))
        images = self._paint(self.source, index, Streams("outliers", self.recipe))
        return deliver(self.table, index, images, None, np.array(self.size))

    def native_size(self) -> Size | None:
        """(H, W) of the source's images as stored; None where they differ."""
        return self.source.native_size()

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """The recipe and the id of each row, which decide its pixels."""
        return [f"{self.recipe} {self.ids[row]}" for row in rows]

    def resized(self, size: Size) -> Self:
        """Outliers made of the source's images at another size."""
        other = super().resized(size)
        other.source = self.source.resized(other.size)
        other.__dict__.pop("recipe", None)
        return other


@dataclass(frozen=True, kw_only=True)
class Painted(Outliers):
    """Outliers that are painted image by image over the tested data: `paint` is all that a subclass adds."""

    def __post_init__(self) -> None:
        check_ranges("outliers", self)

    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> OutlierSet:
        """As many outliers as the data has images, of their size, channels and groups."""
        return OutlierSet(opened(data), self, self.paint, seed)

    @abstractmethod
    def paint(self, source: OpenedDataset, rows: Rows, streams: Streams) -> Images:
        """Outliers (N, H, W, C) for those rows; randomness comes from `streams.each` of the source's ids alone."""


def pixels(source: OpenedDataset, rows: Rows) -> Images:
    """The images of some rows, (N, H, W, C), contiguous."""
    return np.ascontiguousarray(source.batch(rows.tolist()).images)


def ids_of(source: OpenedDataset, rows: Rows) -> list[str]:
    """The ids of some rows."""
    return [source.ids[row] for row in rows.tolist()]


def opened(data: Dataset) -> OpenedDataset:
    """The data set as one of ours."""
    return data if isinstance(data, OpenedDataset) else Subset(data, range(len(data)))


def prefixed(name: str, texts: Iterable[str]) -> tuple[str, ...]:
    """`name/text` for each.

    >>> prefixed("swirl", ["a", "b"])
    ('swirl/a', 'swirl/b')
    """
    return tuple(f"{name}/{text}" for text in texts)
