"""Data sets with other classes: the labels in the order of other class names, some classes alone, classes renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Size, row_index
from roadworthy.data.parallel import Progress
from roadworthy.data.subset import Subset
from roadworthy.data.table import Table, some


class Relabelled(OpenedDataset):
    """The images of a data set, labelled by class name in the order of `class_names`.

    Row i has the label j with class_names[j] = the name of its class; `rename` gives classes another name first, and
    several may get the same one. A class that has images and is not in `class_names` is an `InputError`. Ids, groups,
    pixels, boxes, masks and conditions stay, in the same order.

    >>> from roadworthy.data import open_dataset
    >>> data = open_dataset((np.zeros((3, 8, 8, 3), np.uint8), np.array([0, 1, 1]), ["stop", "yield"]))
    >>> Relabelled(data, ["yield", "parking", "stop"]).labels.tolist()
    [2, 0, 0]
    >>> Relabelled(data, ["sign"], rename={"stop": "sign", "yield": "sign"}).batch([0, 2]).labels.tolist()
    [0, 0]
    """

    def __init__(self, data: Dataset, class_names: Sequence[str], *, rename: Mapping[str, str] | None = None) -> None:
        opened = data if isinstance(data, OpenedDataset) else Subset(data, range(len(data)))
        renamed, ordered = rename or {}, tuple(class_names)
        for name in renamed:
            if name not in opened.class_names:
                raise UnknownName(f"class of {opened.name}", name, opened.class_names)
        index_of = {name: index for index, name in enumerate(ordered)}
        targets = [renamed.get(name, name) for name in opened.class_names]
        for label in np.unique(opened.labels).tolist():
            if targets[label] not in index_of:
                raise UnknownName(f"class in data set {opened.name}", targets[label], ordered)
        self.data = opened
        self.name, self.size, self.channels, self.class_names = opened.name, opened.size, opened.channels, ordered
        labels = np.array([index_of.get(name, -1) for name in targets], dtype=np.int64)[opened.labels]
        table = opened.table
        self.table = Table(table.ids, labels, ordered, table.groups, table.boxes, table.conditions, table.over_classes)
        outdated = set(table.notes())
        self.notes = (*self.table.notes(), *(note for note in opened.notes if note not in outdated))
        self.bad_images = opened.bad_images

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Decode some images, in the order given."""
        index = row_index(rows, len(self))
        batch = self.data.batch(index.tolist())
        return batch.with_images(batch.images, labels=self.table.labels[index])

    def native_size(self) -> Size | None:
        """(H, W) of the images as stored; None where they differ."""
        return self.data.native_size()

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """A hash of the stored pixels of each row: that of the data set below."""
        return self.data.content(rows, progress)

    def identity(self, rows: Sequence[int]) -> list[str]:
        """What tells its images apart in the data set below."""
        return self.data.identity(rows)

    def resized(self, size: Size) -> Self:
        """The same images and labels, delivered at another size."""
        other = super().resized(size)
        other.data = self.data.resized(other.size)
        return other


@dataclass(frozen=True)
class ClassSelection:
    """Which classes of a data set are kept, and what they are called: the options `only`, `without` and `rename`.

    only      the classes that are kept;  without: those that are left out. One of the two at most
    rename    other names for classes; several may get the same one, and a class that is not named stays as it is

    `only` and `without` speak of classes by the names that the data has, before `rename`. Classes stay in the order of
    the data; where several become one, the first of them counts.

    >>> from roadworthy.data import open_dataset
    >>> signs = open_dataset((np.zeros((3, 8, 8, 3), np.uint8), np.array([0, 1, 2]), ["stop", "30", "50"]))
    >>> ClassSelection(without=["stop"]).of(signs).class_names
    ('30', '50')
    >>> ClassSelection(rename={"30": "limit", "50": "limit"}).of(signs).labels.tolist()
    [0, 1, 1]
    """

    only: Sequence[str] | None = None
    without: Sequence[str] | None = None
    rename: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.only is not None and self.without is not None:
            raise InputError("`only` names the classes that are kept, `without` those left out: give one of the two")
        for option in ("only", "without"):
            names = getattr(self, option)
            if names is not None:
                object.__setattr__(self, option, _listed(option, names))
        if self.rename is not None:
            if not isinstance(self.rename, Mapping):
                raise InputError(f"rename maps class names to class names, {{theirs: ours}}, not {self.rename!r}")
            pairs = {_class_name("rename", old): _class_name("rename", new) for old, new in self.rename.items()}
            object.__setattr__(self, "rename", pairs)

    def __bool__(self) -> bool:
        """Whether it changes anything."""
        return any(getattr(self, option.name) is not None for option in fields(self))

    def of(self, data: OpenedDataset) -> OpenedDataset:
        """The data set with the classes that are kept, renamed and numbered anew; the same where nothing is asked."""
        if not self:
            return data
        renamed = self.rename or {}
        for name in (*(self.only or ()), *(self.without or ()), *renamed):
            if name not in data.class_names:
                raise UnknownName(f"class of {data.name}", name, data.class_names)
        kept = [name for name in data.class_names if self._keeps(name)]
        rows = np.flatnonzero(np.isin(data.labels, [data.class_names.index(name) for name in kept]))
        if not rows.size:
            raise InputError(f"data set {data.name} has no image of the classes that are left: keep others")
        new_names = tuple(dict.fromkeys(renamed.get(name, name) for name in kept))
        selected = Relabelled(Subset(data, rows.tolist()), new_names, rename=renamed)
        outdated = set(data.table.notes()) - set(selected.table.notes())
        selected.notes = tuple(note for note in selected.notes if note not in outdated)
        if len(kept) < len(data.class_names):
            classes = some(name for name in data.class_names if name not in kept)
            selected.notes += (f"{len(data) - len(rows)} of {len(data)} images are left out, of the classes {classes}",)
        return selected

    def _keeps(self, name: str) -> bool:
        return name in self.only if self.only is not None else name not in (self.without or ())


def _listed(option: str, names: Any) -> tuple[str, ...]:
    """Class names as a study gives them, each once; anything else is an error."""
    if isinstance(names, str | Mapping) or not isinstance(names, Sequence) or not names:
        raise InputError(f"{option} is a list of class names, at least one, not {names!r}")
    return tuple(dict.fromkeys(_class_name(option, name) for name in names))


def _class_name(option: str, name: Any) -> str:
    """A class name, or a whole number as text: YAML reads 14 as a number, and `no` as false."""
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InputError(f"{option} holds class names, not {name!r}: put the name between quotes")
    return str(name)
