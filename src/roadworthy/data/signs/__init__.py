"""The built-in data sets: drawn signs, road scenes, scenery and traffic cut-outs; nothing is downloaded or stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from roadworthy.data.signs.rows import VIEWS, Key, Turns, balanced
from roadworthy.data.signs.scenes import ROAD_LAYOUT, ROAD_SURFACE
from roadworthy.data.signs.traffic_pictures import draw_traffic
from roadworthy.data.signs.traffic_sets import TRAFFIC_SETS, TRAFFIC_VERSION, TrafficSet
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table

__all__ = ["BUILTIN", "PLACE_CONDITIONS", "SETS", "VIEWS", "VIEW_CONDITIONS", "BuiltinDataset", "balanced"]

VERSION = 1
"""Of the drawing: a change of any pixel is a new version, and so another fingerprint."""
SPLITS = ("test", "train")
SMALLEST, LARGEST, DEFAULT = 16, 4096, (64, 64)
MOST = 200_000

VIEW_CONDITIONS = {"weather": WEATHER, "time_of_day": TIME_OF_DAY, "distance": DISTANCE}
"""Conditions that differ between the views of one object, with their levels."""
PLACE_CONDITIONS = {"road_surface": ROAD_SURFACE, "road_layout": ROAD_LAYOUT}
"""Conditions of the place where the object is, the same in all its views."""


Draw = Callable[[str, Mapping[str, Any], np.random.Generator, np.random.Generator, Size], "Drawn"]
_Arrays = tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.float32] | None]
Drawn = tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.float32] | None]
"""Pixels (H, W, 3), the mask (H, W) of the object and, where the set has it, depth (H, W)."""


@dataclass(frozen=True)
class _Set:
    """A built-in set: its classes, how the rows of its table and its pictures are made, and what they hold."""

    class_names: tuple[str, ...]
    draw: Draw
    table: Callable[[Key, int, str], Table]
    version: int
    has_object: bool = True
    has_depth: bool = False


def _first_version(
    class_names: tuple[str, ...],
    draw: Callable[[str, Conditions, np.random.Generator, np.random.Generator, Size], Picture],
    has_object: bool = True,
) -> _Set:
    """A set without depth whose conditions are those of `VIEW_CONDITIONS` and `PLACE_CONDITIONS`."""

    def table(key: Key, n: int, prefix: str) -> Table:
        turns, streams = Turns(n, class_names), Streams(*key, "conditions")
        return turns.table(prefix, dict(turns.balanced_conditions(VIEW_CONDITIONS, PLACE_CONDITIONS, streams)))

    def draw_row(
        kind: str, row: Mapping[str, Any], instance: np.random.Generator, view: np.random.Generator, size: Size
    ) -> Drawn:
        return *draw(kind, Conditions(**row), instance, view, size), None

    return _Set(class_names, draw_row, table, VERSION, has_object)


def _traffic(traffic: TrafficSet) -> _Set:
    """A set of cut-outs with depth."""

    def draw_row(
        kind: str, row: Mapping[str, Any], instance: np.random.Generator, view: np.random.Generator, size: Size
    ) -> Drawn:
        return draw_traffic(row["object"], traffic.recording, row, instance, view, size)

    return _Set(traffic.class_names, draw_row, traffic.table, TRAFFIC_VERSION, has_depth=True)


SETS = {
    "signs": _first_version(SIGN_CLASSES, sign_crop),
    "scenes": _first_version(SCENE_CLASSES, road_scene),
    "scenery": _first_version(("scenery",), scenery, has_object=False),
}
"""The sets whose conditions are `VIEW_CONDITIONS` and `PLACE_CONDITIONS`."""
BUILTIN = {**SETS, **{name: _traffic(traffic) for name, traffic in TRAFFIC_SETS.items()}}
"""All built-in sets."""


class BuiltinDataset(OpenedDataset):
    """A data set that comes with the package, one of `BUILTIN`, such as `signs`. Its own seed decides the pixels.

    It holds `n` pictures, drawn when a batch is asked for. The same set, seed, split and size give the same pixels; a
    larger n adds to a smaller; `train` and `test` share no object. Boxes are (x0, y0, x1, y1) of the mask,
    tight; `scenery` has no object, so neither boxes nor masks. The traffic sets have depth (N, H, W), in metres.

    >>> signs = BuiltinDataset("signs", n=70)
    >>> batch = signs.batch(slice(0, 5))
    >>> batch.images.shape, set(batch.group), signs.class_names[0], sorted(batch.conditions)[:2]
    ((5, 64, 64, 3), {'test-0-00000'}, 'speed limit', ['distance', 'road_layout'])
    """

    def __init__(
        self, source: str, opening: Opening | None = None, *, n: int = 2100, seed: int = 0, split: str = "test"
    ) -> None:
        opening = opening or Opening(name=source)
        if source not in BUILTIN:
            raise UnknownName("builtin data set", source, BUILTIN)
        if not _is_whole(n) or not 1 <= n <= MOST:
            raise InputError(f"builtin:{source} draws n of at least 1 and at most {MOST:,} pictures, not n={n!r}")
        if not _is_whole(seed) or seed < 0:
            raise InputError(f"the seed of builtin:{source} is a whole number from 0 on, not {seed!r}")
        if split not in SPLITS:
            raise UnknownName(f"split of builtin:{source}", str(split), SPLITS)
        self._set = BUILTIN[source]
        self._key = ("builtin", self._set.version, source, seed, split)
        table = self._set.table(self._key, n, f"{split}-{seed}")
        self.table = table.limited(rows_over_classes(table, opening.limit, opening.seed))
        self.name, self.notes = opening.name, tuple(self.table.notes())
        self.class_names, self.channels = table.class_names, 3
        self.size = _checked(opening.choose_size(self.native_size()))
        self._store = self._room(len(self))
        opening.refuse_other_classes(self)

    def native_size(self) -> Size:
        """(H, W) unless another is asked for; pictures are drawn at the size asked for, never resized."""
        return DEFAULT

    def resized(self, size: Size) -> Self:
        """The same pictures, drawn at another size."""
        other = super().resized(size)
        other._store = other._room(len(other))
        return other

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """What decides the pixels of each row, instead of the pixels."""
        recipe = " ".join(map(str, self._key))
        return [recipe for _ in rows]

    def identity(self, rows: Sequence[int]) -> list[str]:
        """The recipe and the id of each row: one recipe draws the whole set."""
        return [f"{recipe} {self.ids[row]}" for recipe, row in zip(self.content(rows), rows, strict=True)]

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Some pictures, in the order given; a set of at most 2**24 pixels is drawn only once."""
        index = row_index(rows, len(self))
        images, masks, depth = self._draw(index) if self._store is None else self._drawn_once(index, *self._store)
        batch = deliver(self.table, index, images, None, np.array(self.size))
        if not self._set.has_object:
            return batch
        return batch.with_images(images, masks=masks, boxes=tight_boxes(masks), depth=depth)

    def _drawn_once(self, index: NDArray[np.int64], drawn: NDArray[np.bool_], *kept: NDArray[Any]) -> _Arrays:
        """Pictures of some rows from those that are kept; what is not `drawn` yet is drawn first."""
        new = np.unique(index[~drawn[index]])
        for store, values in zip(kept, self._draw(new), strict=False):
            store[new] = values
        drawn[new] = True
        images, masks, *depth = (store[index] for store in kept)
        return images, masks, depth[0] if depth else None

    def _draw(self, index: NDArray[np.int64]) -> _Arrays:
        """Pixels (N, H, W, 3), masks (N, H, W) and, where the set has it, depth (N, H, W) of some rows."""
        images = empty_images(len(index), self.size, 3)
        masks = np.empty((len(index), *self.size), dtype=np.bool_)
        depth = np.empty((len(index), *self.size), dtype=np.float32) if self._set.has_depth else None
        instances = Streams(*self._key, "instance").each(self.table.groups[row] for row in index)
        views = Streams(*self._key, "view").each(self.table.ids[row] for row in index)
        for position, (row, instance, view) in enumerate(zip(index.tolist(), instances, views, strict=True)):
            conditions = {name: column[row].item() for name, column in self.table.conditions.items()}
            kind = self.class_names[self.table.labels[row]]
            images[position], masks[position], metres = self._set.draw(kind, conditions, instance, view, self.size)
            if depth is not None:
                depth[position] = metres
        return images, masks, depth

    def _room(self, n: int) -> tuple[NDArray[Any], ...] | None:
        """Room for which of n pictures are drawn, for them, their masks and depth; None for over 2**24 pixels."""
        height, width = _checked(self.size)
        if n * height * width > 2**24:
            return None
        planes = np.bool_, np.float32
        more = [np.empty((n, height, width), dtype=kind) for kind in planes[: 1 + self._set.has_depth]]
        return np.zeros(n, dtype=np.bool_), empty_images(n, self.size, 3), *more


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _checked(size: Size) -> Size:
    if min(size) < SMALLEST:
        raise InputError(f"the built-in pictures are at least {SMALLEST}x{SMALLEST}, not {size[0]}x{size[1]}")
    if max(size) > LARGEST:
        raise InputError(f"the built-in pictures are at most {LARGEST}x{LARGEST}, not {size[0]}x{size[1]}")
    return size
