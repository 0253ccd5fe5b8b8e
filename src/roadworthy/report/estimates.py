"""Estimates of a large table by their key: columns of numbers, of which an `Estimate` is made when it is asked for.

A run of 20 models under 5,000 conditions has two million rows; as Python values they take gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roadworthy.statistics import Estimate

Key = tuple[Any, ...]
NUMBERS = ("value", "lo", "hi", "sd")
COUNTS = ("n", "groups")
TEXTS = ("method", "reason")


class Extent(NamedTuple):
    """The lowest and highest of some measured values, and of these with their bounds."""

    low: float
    high: float
    lowest_end: float
    highest_end: float


@dataclass(frozen=True)
class Axis:
    """One part of a key: its values, in the order in which they first occur, and the index of each row's value."""

    values: tuple[Any, ...]
    codes: npt.NDArray[np.int32]

    @cached_property
    def index(self) -> Mapping[Any, int]:
        """The index of every value."""
        return {value: index for index, value in enumerate(self.values)}


def axis(column: Any) -> Axis:
    """The axis of a column of an Arrow table, of texts as they are or as a dictionary."""
    plain = column.combine_chunks()
    if pa.types.is_dictionary(plain.type) and not plain.null_count:
        codes, known = plain.indices.to_numpy(), plain.dictionary.to_pylist()
        order, codes = _by_occurrence(codes)
        return Axis(tuple(known[code] for code in order), codes)
    if pa.types.is_dictionary(plain.type):
        plain = plain.cast(plain.type.value_type)
    encoded = pc.dictionary_encode(plain, null_encoding="encode")
    return Axis(tuple(encoded.dictionary.to_pylist()), encoded.indices.to_numpy().astype(np.int32))


def _by_occurrence(values: npt.NDArray[Any]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """The distinct values of whole numbers in the order in which they first occur, and the index of each row's."""
    distinct, start, codes = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(start)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    return distinct[order].tolist(), rank[codes]


def joined(first: Axis, second: Axis, make: Any) -> Axis:
    """One axis of two: its values are made of the pairs that occur."""
    pairs, codes = _by_occurrence(first.codes.astype(np.int64) * len(second.values) + second.codes)
    values = (divmod(pair, len(second.values)) for pair in pairs)
    return Axis(tuple(make(first.values[a], second.values[b]) for a, b in values), codes)


class EstimateTable(Mapping[Key, Estimate]):
    """The estimates of an Arrow table by a key of several axes; of rows with one key the last counts.

    >>> columns = {"model": ["a", "b"], "metric": ["ece", "ece"], "value": [0.1, None], "lo": [0.0, None]}
    >>> table = pa.table(columns | {"hi": [0.2, None], "n": [9, 9], "groups": [3, 3]})
    >>> cells = EstimateTable(table, [axis(table["model"]), axis(table["metric"])])
    >>> cells["a", "ece"].hi, cells["b", "ece"].missing, ("c", "ece") in cells, len(cells)
    (0.2, True, False, 2)
    >>> cells.extent(1, "ece"), [key for key, _ in cells.lacking()]
    (Extent(low=0.1, high=0.1, lowest_end=0.0, highest_end=0.2), [('b', 'ece')])
    """

    def __init__(self, table: Any, axes: Sequence[Axis]) -> None:
        self.axes = tuple(axes)
        self._numbers = {
            name: table[name].to_numpy().astype(float) for name in (*NUMBERS, *COUNTS) if name in table.column_names
        }
        self._texts = {name: axis(table[name]) for name in TEXTS if name in table.column_names}
        for name in COUNTS:
            self._numbers[name] = np.nan_to_num(self._numbers[name])
        combined = np.zeros(table.num_rows, np.int64)
        for own in self.axes:
            combined = combined * len(own.values) + own.codes
        self._distinct, last = np.unique(combined[::-1], return_index=True)
        self._rows = table.num_rows - 1 - last
        absent = np.full(table.num_rows, np.nan)
        self._columns = tuple(self._numbers.get(name, absent) for name in (*NUMBERS, *COUNTS))

    def _row(self, key: Key) -> int:
        code = 0
        for own, value in zip(self.axes, key, strict=True):
            code = code * len(own.values) + own.index[value]
        index = int(self._distinct.searchsorted(code))
        if index == len(self._distinct) or self._distinct[index] != code:
            raise KeyError(key)
        return int(self._rows[index])

    def _estimate(self, row: int) -> Estimate:
        value, lo, hi, sd, n, groups = (column.item(row) for column in self._columns)
        method, reason = (self._text(name, row) for name in TEXTS)
        return Estimate(value, lo, hi, n=int(n), groups=int(groups), sd=sd, method=method, reason=reason)

    def _text(self, name: str, row: int) -> str:
        own = self._texts.get(name)
        return (own.values[own.codes.item(row)] or "") if own else ""

    def _key(self, row: int) -> Key:
        return tuple(own.values[own.codes[row]] for own in self.axes)

    def __getitem__(self, key: Key) -> Estimate:
        return self._estimate(self._row(key))

    def __iter__(self) -> Iterator[Key]:
        return (self._key(row) for row in sorted(self._rows.tolist()))

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, axis_index: int, value: Any) -> Iterator[tuple[Key, float]]:
        """The keys and plain values of the rows that have a value on an axis, in their order."""
        own = self.axes[axis_index]
        rows = np.flatnonzero(own.codes == own.index.get(value, -1))
        return ((self._key(row), float(self._numbers["value"][row])) for row in rows.tolist())

    def extent(self, axis_index: int, value: Any) -> Extent | None:
        """How far the measured values reach that have a value on an axis; None where there are none."""
        own = self.axes[axis_index]
        rows = (own.codes == own.index.get(value, -1)) & ~np.isnan(self._numbers["value"])
        if not rows.any():
            return None
        values = self._numbers["value"][rows]
        ends = np.concatenate([values, self._numbers["lo"][rows], self._numbers["hi"][rows]])
        reach = (values.min(), values.max(), np.nanmin(ends), np.nanmax(ends))
        return Extent(*(float(end) for end in reach))

    def lacking(self) -> Iterator[tuple[Key, Estimate]]:
        """The estimates that have no value or no bounds, in the order of their rows."""
        rows = np.flatnonzero(np.isnan(self._numbers["value"]) | np.isnan(self._numbers["lo"]))
        return ((self._key(row), self._estimate(row)) for row in rows.tolist())


def no_estimates(axes: int = 3) -> EstimateTable:
    """A table without rows, whose keys have so many axes."""
    columns = ("value", "lo", "hi", *COUNTS)
    nothing = Axis((), np.array([], np.int32))
    return EstimateTable(pa.table({name: pa.array([], pa.float64()) for name in columns}), axes * [nothing])


def estimates_by(table: Any, *columns: str) -> EstimateTable:
    """The estimates of an Arrow table by some of its columns; a table without rows may lack them."""
    if not table.num_rows:
        return no_estimates(len(columns))
    return EstimateTable(table, [axis(table[name]) for name in columns])
