"""Exact nearest neighbours by blocked matrix products, in bounded memory, and the monitors that use them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count, require_layer
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.svm import SOLVED_EXACTLY, SvmMonitor

PANEL_BYTES = 2**26
"""Memory for the distances of one block of queries to all references."""
VALUES_AT_ONCE = 2**21
"""Values held at once in double precision."""
MOST_BYTES = (2**31 - 1) // (2 * 255**2)
UNIT_ROUNDOFF = 2.0**-24
SHORTEST = 1e-10
"""Features shorter than this are divided by it in place of their length."""


class Neighbours:
    """Exact Euclidean search among references (n, D) by |a - b|^2 = |a|^2 + |b|^2 - 2 a.b, the products as matrices.

    Bytes are multiplied as whole numbers, which is exact. Other values are centred and multiplied in single precision,
    which finds the candidates: all that its rounding error, at most (D + 16) u (|a|^2 + |b|^2), leaves open. Their
    distances are then taken in double precision from the differences. So the result is that of the definition, whatever
    the block size.

    >>> Neighbours(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])).distances(np.array([[3.0, 4.0]]), 2)
    array([[0., 5.]])
    """

    def __init__(self, references: ArrayLike) -> None:
        rows = np.asarray(references)
        if rows.ndim != 2 or 0 in rows.shape:
            raise InputError(f"a search for neighbours needs references (n, D), at least one, not {rows.shape}")
        self._search = _Bytes(rows) if rows.dtype == np.uint8 and rows.shape[1] <= MOST_BYTES else _Reals(rows)
        self.shape = rows.shape

    def distances(self, queries: ArrayLike, count: int) -> Floats:
        """Distances (N, count) of queries (N, D), of the references' type, to their nearest references, ascending."""
        rows = np.asarray(queries)
        if rows.ndim != 2 or rows.shape[1] != self.shape[1]:
            raise InputError(f"queries must be (N, {self.shape[1]}), not {rows.shape}")
        if not 1 <= count <= self.shape[0]:
            raise InputError(f"{count} neighbours were asked for among {self.shape[0]} references")
        distances = np.empty((len(rows), count))
        step = max(1, PANEL_BYTES // (4 * self.shape[0]))
        for start in range(0, len(rows), step):
            distances[start : start + step] = self._search.block(rows[start : start + step], count)
        return distances


class _Bytes:
    """Whole numbers from 0 to 255: 2 * 255^2 * D fits 32 bits, so sums and products are exact."""

    def __init__(self, references: NDArray[np.uint8]) -> None:
        self._columns = np.ascontiguousarray(references.T)
        self._squares = _squared_lengths(references)
        self._session = _product_session()

    def block(self, queries: NDArray[Any], count: int) -> Floats:
        if queries.dtype != np.uint8:
            raise InputError(f"queries must be uint8 as the references are, not {queries.dtype}")
        (panel,) = self._session.run(None, {"a": np.ascontiguousarray(queries), "b": self._columns})
        panel *= -2
        panel += self._squares
        nearest = np.sort(_smallest(panel, count), axis=1) + _squared_lengths(queries)[:, None].astype(np.int64)
        return np.sqrt(nearest.astype(np.float64))


class _Reals:
    """Values of any kind, in single precision."""

    def __init__(self, references: NDArray[Any]) -> None:
        self._references = np.ascontiguousarray(references, np.float32)
        self._centre = self._references.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._centred = self._references - self._centre
        self._squares = _squared_lengths(self._centred)

    def block(self, queries: NDArray[Any], count: int) -> Floats:
        queries = queries.astype(np.float32, copy=False)
        centred = queries - self._centre
        panel = (-2 * centred) @ self._centred.T
        panel += self._squares
        kth = _smallest(panel, count).max(axis=1)
        error = (self._centred.shape[1] + 16) * UNIT_ROUNDOFF * (_squared_lengths(centred) + self._squares.max())
        rows, columns = np.nonzero(panel <= (kth + 2 * error)[:, None])
        squared = self._exact(queries, rows, columns)
        return np.asarray(np.sqrt(_smallest_by_row(rows, squared, len(queries), count)))

    def _exact(self, queries: NDArray[np.float32], rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
        squared = np.empty(len(rows))
        step = max(1, VALUES_AT_ONCE // queries.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            difference = queries[rows[part]].astype(np.float64) - self._references[columns[part]]
            squared[part] = np.einsum("nd,nd->n", difference, difference)
        return squared


def _smallest(panel: NDArray[Any], count: int) -> NDArray[Any]:
    """The `count` smallest values (N, count) of each row, in any order.

    Columns are folded in half, the smaller value kept, while many are left: values up to the largest of the folded
    winners include the smallest of all, and few others, so that only these are sorted.
    """
    folded = panel
    while folded.shape[1] >= 32 * count:
        half = folded.shape[1] // 2
        rest = folded[:, 2 * half :]
        folded = np.minimum(folded[:, :half], folded[:, half : 2 * half])
        folded = np.concatenate([folded, rest], axis=1) if rest.size else folded
    smallest = np.partition(folded, count - 1, axis=1)[:, :count]
    if folded is panel:
        return smallest
    rows, columns = np.nonzero(panel <= smallest[:, -1:])
    return _smallest_by_row(rows, panel[rows, columns], len(panel), count)


def _smallest_by_row(rows: NDArray[np.intp], values: NDArray[Any], size: int, count: int) -> NDArray[Any]:
    """The `count` smallest values (size, count) of each row, ascending; `rows` ascends and says whose each value is."""
    starts = np.searchsorted(rows, np.arange(size))
    return np.asarray(values[np.lexsort((values, rows))][starts[:, None] + np.arange(count)])


def _product_session() -> Any:
    """Matrix products of bytes in 32-bit whole numbers, by ONNX Runtime."""
    node = onnx.helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    value = onnx.helper.make_tensor_value_info
    inputs = [value("a", onnx.TensorProto.UINT8, ["m", "d"]), value("b", onnx.TensorProto.UINT8, ["d", "n"])]
    graph = onnx.helper.make_graph([node], "products", inputs, [value("c", onnx.TensorProto.INT32, ["m", "n"])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _squared_lengths(rows: NDArray[Any]) -> NDArray[Any]:
    """Squared lengths (n,) of rows (n, D): whole numbers for bytes, else summed in double and given in single."""
    sum_type, result_type = (np.int32, np.int32) if rows.dtype == np.uint8 else (np.float64, np.float32)
    step = max(1, VALUES_AT_ONCE // rows.shape[1])
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    squares = [np.square(part, dtype=sum_type).sum(axis=1, dtype=sum_type) for part in parts]
    return np.concatenate(squares).astype(result_type)


def largest_products(queries: NDArray[np.float32], references: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The `count` largest inner products (N, count) of queries (N, D) with references (n, D), in any order.

    They are single precision, in bounded memory: blocks of queries, as in `Neighbours`.

    >>> np.sort(largest_products(np.eye(1, 2, dtype=np.float32), np.array([[1, 0], [3, 1], [2, 5]], np.float32), 2))
    array([[2., 3.]], dtype=float32)
    """
    products = np.empty((len(queries), count), np.float32)
    step = max(1, PANEL_BYTES // (4 * len(references)))
    for start in range(0, len(queries), step):
        panel = -queries[start : start + step] @ references.T
        products[start : start + step] = -_smallest(panel, count)
    return products


def search_of(state: Learned, name: str) -> Neighbours:
    """The search among the references that a monitor has learned; it is made once."""
    return state.cached("search", lambda: Neighbours(state[name].reshape(len(state[name]), -1)))


def check_count(monitor: Monitor, count: int, images: int) -> None:
    """Refuse a number of neighbours that the training data cannot give."""
    if count > images:
        raise InputError(f"monitor {monitor.name} with k={count} needs at least {count} training images, not {images}")


@registered(MONITORS, "knn_svm")
class KnnSvm(SvmMonitor):
    """K-NNSVM: a linear SVM on the sorted Euclidean distances to the k nearest training images, pixels from 0 to 1.

    Without outliers the score is minus the mean distance. Needs no model, but all training images in memory.
    """

    k: int = 1

    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    differs_from_paper: ClassVar[str] = f"{SOLVED_EXACTLY} minus the mean distance"

    def __post_init__(self) -> None:
        require_count(self, "k")

    def fit(self, training: Training) -> Arrays:
        """The training images (n, H, W, C) as they are."""
        check_count(self, self.k, len(training))
        return {"images": training.gather("images")}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Distances (N, k), ascending."""
        images, known = signals.images, state["images"]
        if images.shape[1:] != known.shape[1:]:
            raise InputError(
                f"monitor {self.name} was built on images {known.shape[1:]}, not {images.shape[1:]}: resize them"
            )
        return search_of(state, "images").distances(images.reshape(len(images), -1), self.k) / 255.0

    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """Minus the mean distance."""
        return np.asarray(-rows.mean(axis=1, dtype=np.float64))


@registered(MONITORS, "deep_knn")
class DeepKnn(Monitor):
    """Deep nearest neighbours: minus the distance to the k-th nearest training image, in features f / |f|."""

    k: int = 50
    layer: str | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    differs_from_paper: ClassVar[str] = (
        "k is 50 whatever the data; the paper chooses it for each data set (50 for CIFAR-10, 200 for CIFAR-100, 1000 "
        "for ImageNet)"
    )

    def __post_init__(self) -> None:
        require_count(self, "k")
        require_layer(self, self.layer)

    def fit(self, training: Training) -> Arrays:
        """Normalised features (n, D)."""
        check_count(self, self.k, len(training))
        parts = training.parts(f"features:{self.layer or ''}")
        return {"features": np.concatenate([normalised(rows) for (rows,) in parts])}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the distance to the k-th nearest, (N,)."""
        return -search_of(state, "features").distances(normalised(signals.features(self.layer)), self.k)[:, -1]


def normalised(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """f / |f| of features (N, D), summed in double precision; features that are 0 stay 0.

    >>> normalised(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    length = np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(features / np.maximum(length, SHORTEST), np.float32)
