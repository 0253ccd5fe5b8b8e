"""The built-in data sets: drawn signs, road scenes with one object, and scenery; nothing is downloaded or stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.boxes import tight_boxes
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.random import Streams
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Opening, Size, deliver, empty_images, row_index
from roadworthy.data.parallel import Progress
from roadworthy.data.signs.camera import DISTANCE, TIME_OF_DAY, WEATHER
from roadworthy.data.signs.pictures import (
    SCENE_CLASSES,
    SIGN_CLASSES,
    Conditions,
    Picture,
    road_scene,
    scenery,
    sign_crop,
)
from roadworthy.data.signs.scenes import ROAD_LAYOUT, ROAD_SURFACE
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table

VERSION = 1
"""Of the drawing: a change of any pixel is a new version, and so another fingerprint."""
VIEWS = 5
"""Pictures of one object: a group."""
SPLITS = ("test", "train")
SMALLEST, DEFAULT = 16, (64, 64)
MOST = 200_000

VIEW_CONDITIONS = {"weather": WEATHER, "time_of_day": TIME_OF_DAY, "distance": DISTANCE}
"""Conditions that differ between the views of one object, with their levels."""
PLACE_CONDITIONS = {"road_surface": ROAD_SURFACE, "road_layout": ROAD_LAYOUT}
"""Conditions of the place where the object is, the same in all its views."""


@dataclass(frozen=True)
class _Set:
    class_names: tuple[str, ...]
    draw: Callable[[str, Conditions, np.random.Generator, np.random.Generator, Size], Picture]
    has_object: bool


SETS = {
    "signs": _Set(SIGN_CLASSES, sign_crop, True),
    "scenes": _Set(SCENE_CLASSES, road_scene, True),
    "scenery": _Set(("scenery",), scenery, False),
}


class BuiltinDataset(OpenedDataset):
    """A data set that comes with the package: `signs`, `scenes` or `scenery`. Its own seed decides the pixels.

    It holds `n` pictures, drawn when a batch is asked for. The same set, seed, split and size give the same pixels; a
    larger n adds to a smaller; `train` and `test` share no object. Boxes are (x0, y0, x1, y1) of the mask,
    tight; `scenery` has no object, so neither boxes nor masks.

    >>> signs = BuiltinDataset("signs", n=70)
    >>> batch = signs.batch(slice(0, 5))
    >>> batch.images.shape, set(batch.group), signs.class_names[0], sorted(batch.conditions)[:2]
    ((5, 64, 64, 3), {'test-0-00000'}, 'speed limit', ['distance', 'road_layout'])
    """

    def __init__(
        self, source: str, opening: Opening | None = None, *, n: int = 2100, seed: int = 0, split: str = "test"
    ) -> None:
        opening = opening or Opening(name=source)
        if source not in SETS:
            raise UnknownName("builtin data set", source, SETS)
        if not _is_whole(n) or not 1 <= n <= MOST:
            raise InputError(f"builtin:{source} draws n of at least 1 and at most {MOST:,} pictures, not n={n!r}")
        if not _is_whole(seed) or seed < 0:
            raise InputError(f"the seed of builtin:{source} is a whole number from 0 on, not {seed!r}")
        if split not in SPLITS:
            raise UnknownName(f"split of builtin:{source}", str(split), SPLITS)
        self._set = SETS[source]
        self._key = ("builtin", VERSION, source, seed, split)
        table = _table(self._set.class_names, self._key, n, prefix=f"{split}-{seed}")
        self.table = table.take(rows_over_classes(table, opening.limit, opening.seed))
        self.name, self.notes = opening.name, tuple(self.table.notes())
        self.class_names, self.channels = table.class_names, 3
        self.size = _checked(opening.choose_size(self.native_size()))
        self._store = _store(len(self), self.size)
        opening.refuse_other_classes(self)

    def native_size(self) -> Size:
        """(H, W) unless another is asked for; pictures are drawn at the size asked for, never resized."""
        return DEFAULT

    def resized(self, size: Size) -> Self:
        """The same pictures, drawn at another size."""
        other = super().resized(size)
        other._store = _store(len(other), _checked(other.size))
        return other

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """What decides the pixels of each row, instead of the pixels."""
        recipe = " ".join(map(str, self._key))
        return [recipe for _ in rows]

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Some pictures, in the order given; a set that fits into 64 MiB is drawn only once."""
        index = row_index(rows, len(self))
        if self._store is None:
            images, masks = self._draw(index)
        else:
            all_images, all_masks, drawn = self._store
            new = np.unique(index[~drawn[index]])
            all_images[new], all_masks[new] = self._draw(new)
            drawn[new] = True
            images, masks = all_images[index], all_masks[index]
        batch = deliver(self.table, index, images, None, np.array(self.size))
        return batch.with_images(images, masks=masks, boxes=tight_boxes(masks)) if self._set.has_object else batch

    def _draw(self, index: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Pixels (N, H, W, 3) and masks (N, H, W) of some rows."""
        images = empty_images(len(index), self.size, 3)
        masks = np.empty((len(index), *self.size), dtype=np.bool_)
        instances = Streams(*self._key, "instance").each(self.table.groups[row] for row in index)
        views = Streams(*self._key, "view").each(self.table.ids[row] for row in index)
        for position, (row, instance, view) in enumerate(zip(index.tolist(), instances, views, strict=True)):
            conditions = Conditions(**{name: str(column[row]) for name, column in self.table.conditions.items()})
            kind = self.class_names[self.table.labels[row]]
            images[position], masks[position] = self._set.draw(kind, conditions, instance, view, self.size)
        return images, masks


def _store(n: int, size: Size) -> tuple[NDArray[Any], ...] | None:
    """Room for n pictures, their masks and which of them are drawn, or None where it would be more than 64 MiB."""
    if n * size[0] * size[1] * 4 > 64 * 2**20:
        return None
    return empty_images(n, size, 3), np.empty((n, *size), dtype=np.bool_), np.zeros(n, dtype=np.bool_)


def balanced(levels: int, count: int, classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A level for each of `count` pictures of each class (count, classes), in blocks that hold every level once.

    So in any first part of a class the counts of two levels differ by at most one.

    >>> balanced(3, 6, 1, np.random.default_rng(0)).ravel().reshape(2, 3).sum(axis=1).tolist()
    [3, 3]
    """
    blocks = -(-count // levels)
    order = rng.random((blocks, classes, levels)).argsort(axis=2)
    return order.transpose(0, 2, 1).reshape(blocks * levels, classes)[:count]


def _table(class_names: tuple[str, ...], key: tuple[str | int, ...], n: int, prefix: str) -> Table:
    """Ids, labels, groups and conditions of n pictures; classes take turns, one object each."""
    rows = np.arange(n)
    group, view = rows // VIEWS, rows % VIEWS
    label, turn = group % len(class_names), group // len(class_names)
    turns = int(turn[-1]) + 1
    conditions: dict[str, NDArray[Any]] = {}
    streams = Streams(*key, "conditions")
    for known, count, index in ((VIEW_CONDITIONS, turns * VIEWS, turn * VIEWS + view), (PLACE_CONDITIONS, turns, turn)):
        for (name, levels), rng in zip(known.items(), streams.each(known), strict=True):
            conditions[name] = np.array(levels)[balanced(len(levels), count, len(class_names), rng)[index, label]]
    groups = [f"{prefix}-{number:05d}" for number in group.tolist()]
    ids = tuple(f"{name}/{number}" for name, number in zip(groups, view.tolist(), strict=True))
    return Table(ids, label.astype(np.int64), class_names, tuple(groups), conditions=conditions)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked(size: Size) -> Size:
    if min(size) < SMALLEST:
        raise InputError(f"the built-in pictures are at least {SMALLEST}x{SMALLEST}, not {size[0]}x{size[1]}")
    return size
