"""The rows of the built-in sets: groups of views of one object, classes that take turns, conditions in balance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.random import Streams
from roadworthy.data.table import Table

VIEWS = 5
"""Pictures of one object: a group."""
Levels = Mapping[str, Sequence[str]]
"""Conditions by name, with their levels; a level that is named twice comes twice as often."""
Key = tuple[str | int, ...]


def balanced(levels: int, count: int, classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A level for each of `count` pictures of each class (count, classes), in blocks that hold every level once.

    So in any first part of a class the counts of two levels differ by at most one.

    >>> balanced(3, 6, 1, np.random.default_rng(0)).ravel().reshape(2, 3).sum(axis=1).tolist()
    [3, 3]
    """
    blocks = -(-count // levels)
    order = rng.random((blocks, classes, levels)).argsort(axis=2)
    return order.transpose(0, 2, 1).reshape(blocks * levels, classes)[:count]


@dataclass(frozen=True)
class Turns:
    """The first n pictures of a set in which classes take turns, one object of VIEWS pictures each.

    >>> turns = Turns(12, ("car", "bus"))
    >>> turns.group.tolist()[-3:], turns.label.tolist()[:6], turns.view.tolist()[:6]
    ([1, 2, 2], [0, 0, 0, 0, 0, 1], [0, 1, 2, 3, 4, 0])
    """

    n: int
    class_names: tuple[str, ...]

    @property
    def group(self) -> NDArray[np.int64]:
        """The number (n,) of each picture's object."""
        return np.arange(self.n) // VIEWS

    @property
    def view(self) -> NDArray[np.int64]:
        """The number (n,) of each picture among those of its object."""
        return np.arange(self.n) % VIEWS

    @property
    def label(self) -> NDArray[np.int64]:
        """The class (n,) of each picture."""
        return self.group % len(self.class_names)

    @property
    def turn(self) -> NDArray[np.int64]:
        """The number (n,) of each picture's object among those of its class."""
        return self.group // len(self.class_names)

    def of_views(self) -> tuple[int, NDArray[np.int64]]:
        """How many pictures a class has at most, and the number (n,) of each picture among those of its class."""
        return (int(self.turn[-1]) + 1) * VIEWS, self.turn * VIEWS + self.view

    def of_objects(self) -> tuple[int, NDArray[np.int64]]:
        """How many objects a class has at most, and the number (n,) of each picture's object among them."""
        return int(self.turn[-1]) + 1, self.turn

    def table(self, prefix: str, conditions: Mapping[str, NDArray[Any]]) -> Table:
        """The table of these pictures; ids and groups begin with `prefix`."""
        groups = [f"{prefix}-{number:05d}" for number in self.group.tolist()]
        ids = tuple(f"{name}/{number}" for name, number in zip(groups, self.view.tolist(), strict=True))
        return Table(ids, self.label, self.class_names, tuple(groups), conditions=dict(conditions))

    def balanced_conditions(
        self, of_views: Levels, of_objects: Levels, streams: Streams
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        """Name and values (n,) of conditions that differ between views, then of those that belong to an object."""
        for known, (count, index) in ((of_views, self.of_views()), (of_objects, self.of_objects())):
            for (name, levels), rng in zip(known.items(), streams.each(known), strict=True):
                drawn = balanced(len(levels), count, len(self.class_names), rng)
                yield name, np.array(levels)[drawn[index, self.label]]
