"""Data sets made of others: some rows, a few images spread over all classes, splits by object, mirrored copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Size, deliver, identities, row_index
from roadworthy.data.parallel import Progress
from roadworthy.data.table import Table

MIRRORED = "/mirrored"
"""How the id and the content of a mirrored copy end."""


class Subset(OpenedDataset):
    """Some rows of a data set, in the order given, as a data set.

    >>> from roadworthy.data import BuiltinDataset
    >>> signs = BuiltinDataset("signs", n=30)
    >>> part = Subset(signs, [4, 2])
    >>> part.ids == (signs.ids[4], signs.ids[2]), part.batch([1]).ids == signs.batch([2]).ids
    (True, True)
    """

    def __init__(self, dataset: Dataset, rows: Sequence[int], name: str | None = None) -> None:
        index = row_index(rows, len(dataset))
        self.dataset = dataset
        self.name = name or dataset.name
        self.class_names, self.size, self.channels = dataset.class_names, dataset.size, dataset.channels
        if isinstance(dataset, OpenedDataset):
            table, self.notes, self.bad_images = dataset.table, dataset.notes, dataset.bad_images
        else:
            table = Table(dataset.ids, np.asarray(dataset.labels, np.int64), dataset.class_names, dataset.groups)
        self.table, self._rows = table.take(index), index

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Decode some images, in the order given."""
        return self.dataset.batch(self._rows[row_index(rows, len(self))].tolist())

    def native_size(self) -> Size | None:
        """(H, W) of the whole set's images as stored; None where they differ."""
        return self.dataset.native_size() if isinstance(self.dataset, OpenedDataset) else self.dataset.size

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """A hash of each row; of a data set that is not ours, its fingerprint and the row's index."""
        inner = self._rows[row_index(rows, len(self))].tolist()
        if isinstance(self.dataset, OpenedDataset):
            return self.dataset.content(inner, progress)
        whole = self.dataset.fingerprint()
        return [f"{whole} {row}" for row in inner]

    def identity(self, rows: Sequence[int]) -> list[str]:
        """What tells its images apart in the data set below."""
        if isinstance(self.dataset, OpenedDataset):
            return self.dataset.identity(self._rows[row_index(rows, len(self))].tolist())
        return self.content(rows)

    def resized(self, size: Size) -> Self:
        """The same rows, delivered at another size."""
        other = super().resized(size)
        if isinstance(self.dataset, OpenedDataset):
            other.dataset = self.dataset.resized(other.size)
        elif other.size != self.dataset.size:
            raise InputError(
                f"data set {self.name} delivers {self.dataset.size}, not {other.size}: "
                "its class must deliver the size of the study"
            )
        return other


class Mirrored(OpenedDataset):
    """All images of a data set, then all of them mirrored: twice as many. A copy is in the group of its original.

    It has no boxes, masks or conditions.

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
            ids=(*data.ids, *(image_id + MIRRORED for image_id in data.ids)),
            labels=np.tile(data.labels, 2),
            class_names=data.class_names,
            groups=(*data.groups, *data.groups),
            over_classes=data.table.over_classes,
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
        return self._marked(rows, self.data.content(self._originals(rows), progress))

    def identity(self, rows: Sequence[int]) -> list[str]:
        """What tells the original apart, marked where the row is its mirrored copy."""
        return self._marked(rows, self.data.identity(self._originals(rows)))

    def _originals(self, rows: Sequence[int]) -> list[int]:
        return [int(row) for row in row_index(rows, len(self)) % len(self.data)]

    def _marked(self, rows: Sequence[int], originals: Sequence[str]) -> list[str]:
        index = row_index(rows, len(self))
        marks = np.where(index >= len(self.data), MIRRORED, "").tolist()
        return [content + mark for content, mark in zip(originals, marks, strict=True)]

    def resized(self, size: Size) -> Self:
        """The same images, delivered at another size."""
        other = super().resized(size)
        other.data = self.data.resized(other.size)
        return other


class Regrouped(Subset):
    """A data set with other groups (N,), one for each image, and a note more; all else stays."""

    def __init__(self, data: Dataset, groups: Sequence[str], note: str) -> None:
        super().__init__(data, range(len(data)))
        self.table = replace(self.table, groups=tuple(groups))
        self.notes = (*self.notes, note)

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Decode some images, in the order given."""
        index = row_index(rows, len(self))
        return replace(super().batch(index.tolist()), group=tuple(self.groups[row] for row in index))


def rows_over_classes(table: Table, limit: int | None, seed: int) -> NDArray[np.int64]:
    """Rows, in order, of at most `limit` images: as many of each class as can be, of as many groups as can be.

    Every class gives one image in turn, until it has no more; within it, images are drawn in rounds (`object_rounds`).
    The seed and the names of images and groups decide which; a larger limit adds to a smaller. Such images show
    another mix of classes than the whole: see `Table.limited`.
    """
    n = len(table.ids)
    if limit is None or limit >= n:
        return np.arange(n, dtype=np.int64)
    rounds, drawn = object_rounds(table.ids, table.groups, "limit", seed, labels=table.labels)
    within_class = _rank(table.labels, rounds, drawn)
    return np.sort(np.lexsort((table.labels, drawn, within_class))[:limit])


def rows_in_rounds(dataset: Dataset, purpose: str, seed: int) -> NDArray[np.int64]:
    """All rows in the order in which a limit takes them: one image of every object in a random order, then a second of
    each in that order, and so on. The first n rows are n objects drawn at random, however many images each has.

    >>> from roadworthy.data import BuiltinDataset
    >>> signs = BuiltinDataset("signs", n=70)
    >>> len({*signs.groups}), len({signs.groups[row] for row in rows_in_rounds(signs, "limit", 0)[:14]})
    (14, 14)
    """
    rounds, drawn = object_rounds(dataset.ids, dataset.groups, purpose, seed)
    return np.lexsort((drawn, rounds))


def object_rounds(
    ids: Sequence[str], groups: Sequence[str], purpose: str, seed: int, labels: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For every image the round (N,) in which its object gives it, and the draw of its object (N,), uniform on [0, 1).

    A draw of images would take an object the sooner the more images it has, and what is then said of objects would be
    said of those with many. With labels (N,), an object of several classes gives the images of each class by itself.
    Names decide, never the order of the rows.
    """
    names, group = _numbered(groups)
    drawn = np.array([rng.random() for rng in Streams(purpose, seed).each(names)])
    image_drawn = np.zeros(len(ids))
    if len(names) < len(ids):
        image_drawn = np.array([rng.random() for rng in Streams(f"{purpose}: images", seed).each(ids)])
    of = group if labels is None else group * (int(labels.max()) + 1) + labels
    return _rank(of, image_drawn), drawn[group]


def _rank(of: NDArray[np.int64], *by: NDArray[Any]) -> NDArray[np.int64]:
    """The rank of every row among the rows with its value in `of`, ordered by the keys, the first key first."""
    order = np.lexsort((*by[::-1], of))
    starts = np.flatnonzero(np.diff(of[order], prepend=-1))
    rank = np.empty(len(of), dtype=np.int64)
    rank[order] = np.arange(len(of)) - np.repeat(starts, np.diff(starts, append=len(of)))
    return rank


def split_by_group(dataset: Dataset, fractions: Sequence[float], seed: int = 0) -> tuple[Subset, ...]:
    """Parts of about these fractions that share no group, so that no object is both trained and tested on.

    Class by class, groups are put in a random order and dealt out along it, so each part has about its fraction of
    every class. The seed and the names of groups decide, never the order of the images; a group of several classes is
    dealt out with the first of them.

    >>> from roadworthy.data import BuiltinDataset
    >>> train, test = split_by_group(BuiltinDataset("signs", n=700), (0.8, 0.2))
    >>> len(train) + len(test), set(train.groups) & set(test.groups)
    (700, set())
    """
    if not fractions or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
        raise InputError(f"fractions must be positive and add up to 1, not {list(fractions)}")
    names, group = _numbered(dataset.groups)
    counts, drawn = np.bincount(group), np.array([rng.random() for rng in Streams("split", seed).each(names)])
    label_of = np.full(len(names), len(dataset.class_names))
    np.minimum.at(label_of, group, dataset.labels)
    part_of = np.empty(len(names), dtype=np.int64)
    for label in np.unique(label_of):
        members = np.flatnonzero(label_of == label)
        members = members[np.argsort(drawn[members])]
        middle = np.cumsum(counts[members]) - counts[members] / 2
        part_of[members] = np.searchsorted(np.cumsum(fractions)[:-1], middle / counts[members].sum(), side="right")
    parts = [np.flatnonzero(part_of[group] == part) for part in range(len(fractions))]
    if not all(rows.size for rows in parts):
        raise InputError(f"{len(names)} groups are too few to split by {list(fractions)}: a part would be empty")
    return tuple(Subset(dataset, rows.tolist()) for rows in parts)


def in_random_order(dataset: Dataset, seed: int) -> Subset:
    """The same images, group after group in a random order; those of a group stay as they are, like frames of a film.

    The seed and what the images of a group show (`identities`) decide the order. What groups and files are called, and
    in which order they lie, does not: nobody can choose by names which objects come first.

    >>> from roadworthy.data import BuiltinDataset
    >>> signs = BuiltinDataset("signs", n=30)
    >>> sorted(in_random_order(signs, 0).ids) == sorted(signs.ids)
    True
    """
    names, group = _numbered(dataset.groups)
    shown: list[list[str]] = [[] for _ in names]
    for number, identity in zip(group.tolist(), identities(dataset), strict=True):
        shown[number].append(identity)
    objects = [digest(sorted(images)) for images in shown]
    drawn = np.array([rng.random() for rng in Streams("visit", seed).each(objects)])
    return Subset(dataset, np.lexsort((group, drawn[group])).tolist())


def leading_rows(groups: Sequence[str], share: float) -> NDArray[np.bool_]:
    """Which rows (N,) are in the leading part of a data set: about `share` of them, no group cut in two.

    Groups are taken whole, in the order of their first row, until they hold that share of the rows; there is always a
    row in the leading part. Where every row is a group of its own, it is the first round(share N) rows.

    >>> leading_rows(["a", "b", "c", "d", "a"], 0.6)
    array([ True,  True, False, False,  True])
    """
    names, group = _numbered(groups)
    images = np.bincount(group, minlength=len(names))
    before = np.cumsum(images) - images
    return np.asarray(before[group] < max(1, round(share * len(group))))


def _numbered(groups: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct groups, and the number (N,) of each row's."""
    number: dict[str, int] = {}
    codes = np.array([number.setdefault(group, len(number)) for group in groups], dtype=np.int64)
    return list(number), codes
