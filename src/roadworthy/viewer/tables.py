"""Pages of stored tables: sorted and filtered where they lie, with no more than the rows of a page held in full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.files import inside
from roadworthy.core.parquet import UnreadableParquet, parquet_blocks, parquet_schema
from roadworthy.core.record import recorded_hash

CHOICES = 60
"""Values of a column that a filter offers, at most."""
ROWS = 100
"""Rows on a page."""
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TableQuery:
    """What a table is asked for: words that cells hold, values of columns, an order, a page."""

    words: str = ""
    where: tuple[tuple[str, str], ...] = ()
    """Columns, each with the text that its cells are to be equal to."""
    sort: str = ""
    descending: bool = False
    page: int = 1


@dataclass(frozen=True)
class TablePage:
    """Some rows of a table: the number of each in the file, and its cells by column."""

    columns: tuple[str, ...]
    numeric: frozenset[str]
    rows: tuple[tuple[int, Mapping[str, Any]], ...]
    matching: int
    total: int
    page: int
    pages: int


class StoredTable:
    """A table of a run, read in blocks."""

    def __init__(self, run: Path, name: str) -> None:
        self.name, self._path = name, inside(run, "tables", f"{name}.parquet")
        if not self._path.is_file():
            raise InputError(f"the run has no table {name!r}")
        self._sha = recorded_hash(run, f"tables/{name}.parquet")
        with self._reading():
            schema = parquet_schema(self._path, self._sha)
        self.columns = tuple(schema.names)
        self.numeric = frozenset(field.name for field in schema if _is_number(field.type))

    def _reading(self) -> _Reading:
        return _Reading(self.name)

    def page(self, query: TableQuery, size: int = ROWS) -> TablePage:
        """The rows that match, in the order that is asked for: one page of them."""
        total, chosen = self._choose(query)
        matching = total if chosen is None else len(chosen)
        pages = max(1, -(-matching // size))
        page = min(max(1, query.page), pages)
        first, last = (page - 1) * size, min(page * size, matching)
        wanted = np.arange(first, last) if chosen is None else chosen[first:last]
        return TablePage(self.columns, self.numeric, tuple(self._take(wanted)), matching, total, page, pages)

    def row(self, number: int) -> Mapping[str, Any]:
        """One row by its number in the file; an `InputError` where there is none."""
        taken = [*self._take(np.array([number], np.int64))]
        if not taken:
            raise InputError(f"table {self.name} has no row {number}")
        return taken[0][1]

    def choices(self, columns: Sequence[str], most: int = CHOICES) -> dict[str, list[str]]:
        """The different values of columns as texts, in order; without columns that have one value or very many."""
        wanted = [name for name in columns if name in self.columns]
        known: dict[str, set[Any]] = {name: set() for name in wanted}
        for block in self._blocks(wanted) if wanted else ():
            for name in [*known]:
                known[name] |= set(pc.unique(block.column(name)).to_pylist()) - {None}
                if len(known[name]) > most:
                    del known[name]
        return {
            name: [cell_text(v) for v in sorted(values, key=_order)]
            for name, values in known.items()
            if len(values) > 1
        }

    def count(self) -> int:
        """How many rows there are."""
        return sum(block.num_rows for block in self._blocks(self.columns[:1]))

    def _choose(self, query: TableQuery) -> tuple[int, Rows | None]:
        """How many rows there are, and the numbers of those that match in their order; None for all as they are."""
        where = [(name, text) for name, text in query.where if name in self.columns and text]
        sort = query.sort if query.sort in self.columns else ""
        if not where and not sort and not query.words:
            return self.count(), None
        read = (
            self.columns if query.words else tuple(dict.fromkeys([*(name for name, _ in where), *filter(None, [sort])]))
        )
        total, numbers, keys = 0, [], []
        for block in self._blocks(read):
            texts = {name: _texts(block.column(name)) for name in read} if query.words else {}
            mask = np.ones(block.num_rows, np.bool_)
            for name, text in where:
                mask &= _equals(block.column(name), text)
            for word in query.words.split():
                mask &= np.logical_or.reduce([_holds(column, word) for column in texts.values()])
            numbers.append(total + np.flatnonzero(mask))
            if sort:
                keys.append(block.column(sort).filter(pa.array(mask)))
            total += block.num_rows
        chosen = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
        if sort and len(chosen):
            order = pc.sort_indices(
                pa.chunked_array(keys), sort_keys=[("", "descending" if query.descending else "ascending")]
            )
            chosen = chosen[order.to_numpy()]
        return total, chosen

    def _take(self, wanted: Rows) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Rows by their numbers, in the order given."""
        held: dict[int, Mapping[str, Any]] = {}
        start = 0
        for block in self._blocks(self.columns):
            here = wanted[(wanted >= start) & (wanted < start + block.num_rows)]
            if len(here):
                rows = block.take(pa.array(here - start)).to_pylist()
                held |= dict(zip(here.tolist(), rows, strict=True))
            start += block.num_rows
            if len(held) == len(wanted):
                break
        return ((number, held[number]) for number in wanted.tolist() if number in held)

    def _blocks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._reading():
            yield from parquet_blocks(self._path, columns, sha=self._sha)


class _Reading:
    """Turns what a broken file raises into one sentence."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UnreadableParquet | pa.ArrowException | OSError):
            raise InputError(f"table {self._name} cannot be read: {error}") from None


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _texts(column: pa.Array) -> pa.Array:
    """A column as texts in small letters; of lists and the like, empty ones."""
    try:
        return pc.utf8_lower(column.cast(pa.string()))
    except pa.ArrowException:
        return pa.array([""] * len(column))


def _holds(texts: pa.Array, text: str) -> NDArray[np.bool_]:
    matches = pc.match_substring(texts, text.lower())
    return np.asarray(pc.fill_null(matches, False).to_numpy(zero_copy_only=False), np.bool_)


def _equals(column: pa.Array, text: str) -> NDArray[np.bool_]:
    """Which cells are shown as this text."""
    kinds = {value: cell_text(value) == text for value in pc.unique(column).to_pylist()}
    return np.array([kinds[value] for value in column.to_pylist()], np.bool_)


def cell_text(value: Any) -> str:
    """A cell as people read it: numbers with six digits at most.

    >>> cell_text(0.98979591), cell_text(1200), cell_text(None), cell_text(float("nan")), cell_text("fog")
    ('0.989796', '1200', '', '', 'fog')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
