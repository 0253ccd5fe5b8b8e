"""Views of arrays that stay on disk: rows converted when they are read, and several arrays one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.data.rows_on_disk import RowsOnDisk


class ConvertedRows:
    """Rows of another array, each block of them converted after it was read: (M, ...) becomes (M, *shape).

    >>> rows = ConvertedRows(np.arange(6, dtype=np.uint8).reshape(2, 3), (1, 3), lambda block: block[:, None, ::-1])
    >>> rows[np.array([1])].tolist()
    [[[5, 4, 3]]]
    """

    def __init__(
        self, rows: RowsOnDisk | NDArray[Any], shape: tuple[int, ...], convert: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> None:
        self._source, self._convert = rows, convert
        self.shape, self.dtype, self.ndim = (len(rows), *shape), rows.dtype, 1 + len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: NDArray[np.int64]) -> NDArray[Any]:
        return np.ascontiguousarray(self._convert(self._source[index]).reshape(len(index), *self.shape[1:]))

    def take(self, rows: NDArray[np.int64]) -> ConvertedRows:
        """Some of the rows, in the order given."""
        chosen = self._source[rows] if isinstance(self._source, np.ndarray) else self._source.take(rows)
        return ConvertedRows(chosen, self.shape[1:], self._convert)

    def reshape(self, shape: tuple[int, ...]) -> ConvertedRows:
        """The same values row by row in another form."""
        return ConvertedRows(self._source, shape[1:], self._convert)


class JoinedRows:
    """Several arrays whose rows have one shape, one after the other, as one array (N, ...)."""

    def __init__(
        self, parts: Sequence[RowsOnDisk | ConvertedRows | NDArray[Any]], rows: NDArray[np.int64] | None = None
    ) -> None:
        self._parts, self._rows = tuple(parts), rows
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        count = int(self._starts[-1]) if rows is None else len(rows)
        self.shape: tuple[int, ...] = (count, *parts[0].shape[1:])
        self.dtype, self.ndim = parts[0].dtype, len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: NDArray[np.int64]) -> NDArray[Any]:
        rows = np.asarray(index) if self._rows is None else self._rows[index]
        result = np.empty((len(rows), *self.shape[1:]), self.dtype)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(owner).tolist():
            chosen = owner == number
            result[chosen] = self._parts[number][rows[chosen] - self._starts[number]].reshape(-1, *self.shape[1:])
        return result

    def take(self, rows: NDArray[np.int64]) -> JoinedRows:
        """Some of the rows, in the order given."""
        return JoinedRows(self._parts, rows if self._rows is None else self._rows[rows])

    def reshape(self, shape: tuple[int, ...]) -> JoinedRows:
        """The same values row by row in another form."""
        joined = JoinedRows(self._parts, self._rows)
        joined.shape, joined.ndim = (self.shape[0], *shape[1:]), len(shape)
        return joined


LazyRows = RowsOnDisk | ConvertedRows | JoinedRows
"""An array (N, ...) of which rows are read, or made, when they are asked for."""
