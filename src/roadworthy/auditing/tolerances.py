"""When fresh answers agree with stored ones: to the bit on the same type of machine, else within what is declared here.

The same type of machine has the same processor, operating system and C library, and the same versions of what computes
(`COMPUTING`). Elsewhere `TOLERANCES` hold, by column of the readouts; whatever is not a number must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roadworthy.engine.readouts import column_rows

PROBABILITY = 1e-4
"""How far probabilities may differ on another type of machine."""
TOLERANCES: Mapping[str, float] = {
    "probabilities": PROBABILITY,
    "confidence": PROBABILITY,
    "p_label": PROBABILITY,
    "sum_squares": 2 * PROBABILITY,
    "certainty": 1e-3,
    "sample_entropy": 1e-3,
    "sample_dissent": 0.1,
    "true_box": 1e-3,
    "boxes": 1e-2,
    "box_inflation": 1e-3,
}
"""The largest absolute difference, by column; boxes are in pixels."""
OTHER_NUMBERS = 1e-3
"""The same for all other columns of numbers (log-odds, features), as a share of the largest absolute stored value."""
EXACT = ("id", "group", "label")
"""Columns that are equal on every machine."""
CLASS = "prediction"
"""The column of the class, which is equal unless the two best probabilities are closer than the tolerance."""
COMPUTING = ("roadworthy", "numpy", "scipy", "opencv-python-headless", "pillow", "onnx", "onnxruntime", "torch")
"""Packages whose version can change the bits of an answer."""


def declared() -> str:
    """The tolerances in words, for people."""
    by_tolerance: dict[float, list[str]] = {}
    for column, tolerance in TOLERANCES.items():
        by_tolerance.setdefault(tolerance, []).append(column)
    known = "; ".join(f"{', '.join(columns)} {tolerance:g}" for tolerance, columns in by_tolerance.items())
    return (
        f"{known}; other numbers {OTHER_NUMBERS:g} of the largest; {', '.join(EXACT)} equal; the same class unless its "
        f"margin is below {PROBABILITY:g}"
    )


def machine_differences(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """In what two environments differ that can change the bits of an answer; empty on the same type of machine.

    >>> old = {"processor": "A", "platform": "Linux-6.1-x86_64-with-glibc2.36", "packages": {"numpy": "2.0"}}
    >>> machine_differences(old, {**old, "platform": "Linux-6.9-x86_64-with-glibc2.36"})
    []
    >>> machine_differences(old, {**old, "processor": "B", "packages": {"numpy": "2.1"}})
    ['processor (A there, B here)', 'numpy (2.0 there, 2.1 here)']
    """
    pairs = [("processor", recorded.get("processor"), here.get("processor"))]
    pairs.append(("system", _system(recorded.get("platform")), _system(here.get("platform"))))
    packages, own = recorded.get("packages") or {}, here.get("packages") or {}
    pairs += [(name, packages.get(name), own.get(name)) for name in COMPUTING if name in packages]
    return [f"{name} ({_known(then)} there, {_known(now)} here)" for name, then, now in pairs if then != now]


def _system(platform: Any) -> str:
    """A platform without the release of its kernel, which changes no answer."""
    parts = re.fullmatch(r"([^-]+)-.*?-?((?:x86_64|AMD64|aarch64|arm64|i\d86|ppc64le|s390x|riscv64).*)", str(platform))
    return f"{parts[1]} {parts[2]}" if parts else str(platform)


def _known(value: Any) -> str:
    return "not known" if value in (None, "") else str(value)


@dataclass(frozen=True)
class RowDifference:
    """A column of a part in which fresh answers are not the stored ones: the rows, their ids, and by how much."""

    column: str
    rows: tuple[int, ...]
    ids: tuple[str, ...]
    largest: float | None = None

    def words(self) -> str:
        """In a few words: how many rows of which column, the first of them, and the largest difference."""
        count = len(self.rows)
        first = ", ".join(f"{row} ({name})" for row, name in zip(self.rows[:3], self.ids[:3], strict=False))
        more = ", ..." if count > 3 else ""
        by = "" if self.largest is None else f" by up to {self.largest:.3g}"
        return f"{self.column} differs in {count} row{'s' if count != 1 else ''}, {first}{more}{by}"


def part_differences(stored: pa.Table, fresh: pa.Table, *, exact: bool) -> list[RowDifference]:
    """Where the fresh answers to a chunk are not those that are stored: to the bit, or by the tolerances.

    A column that one of the two lacks, and another number of rows, differ in all rows.
    """
    ids = tuple(map(str, stored["id"].to_pylist())) if "id" in stored.column_names else ()
    every = tuple(range(max(stored.num_rows, fresh.num_rows)))
    if stored.num_rows != fresh.num_rows:
        return [RowDifference("the number of rows", every, ids)]
    names = [*stored.column_names, *(name for name in fresh.column_names if name not in stored.column_names)]
    differences = []
    for name in names:
        if name not in stored.column_names or name not in fresh.column_names:
            differences.append(RowDifference(name, every, ids))
            continue
        rows, largest = _different_rows(name, stored, fresh, exact)
        if len(rows):
            differences.append(RowDifference(name, tuple(rows.tolist()), tuple(ids[row] for row in rows), largest))
    return differences


def _different_rows(name: str, stored: pa.Table, fresh: pa.Table, exact: bool) -> tuple[NDArray[np.intp], float | None]:
    """The rows in which a column differs, and the largest difference where it holds numbers."""
    before, after = column_rows(stored[name]), column_rows(fresh[name])
    if before.shape != after.shape or before.dtype.kind != after.dtype.kind:
        return np.arange(stored.num_rows), None
    if before.dtype.kind not in "fiu":
        return np.flatnonzero(_any(before != after)), None
    if exact or name in EXACT:
        if before.dtype != after.dtype:
            return np.arange(stored.num_rows), _largest(before, after)
        unsigned = f"u{before.dtype.itemsize}"
        bits = [np.ascontiguousarray(own).view(unsigned) for own in (before, after)]
        return np.flatnonzero(_any(bits[0] != bits[1])), _largest(before, after)
    if name == CLASS:
        return np.flatnonzero((before != after) & ~_close_call(stored)), None
    with np.errstate(invalid="ignore"):
        distance = np.abs(before.astype(np.float64) - after.astype(np.float64))
    same = (before == after) | (np.isnan(before.astype(np.float64)) & np.isnan(after.astype(np.float64)))
    allowed = TOLERANCES.get(name)
    if allowed is None:
        finite = np.abs(before.astype(np.float64))
        allowed = OTHER_NUMBERS * float(np.max(finite[np.isfinite(finite)], initial=0.0))
    return np.flatnonzero(_any(~same & ~(distance <= allowed))), _largest(before, after)


def _largest(before: NDArray[Any], after: NDArray[Any]) -> float | None:
    with np.errstate(invalid="ignore"):
        distance = np.abs(before.astype(np.float64) - after.astype(np.float64))
    known = distance[np.isfinite(distance)]
    return float(known.max()) if known.size else None


def _any(different: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether anything in a row (N, ...) is different, (N,)."""
    flags = np.asarray(different)
    return np.asarray(flags.reshape(len(flags), -1).any(axis=1)) if flags.ndim > 1 else flags


def _close_call(stored: pa.Table) -> NDArray[np.bool_]:
    """The rows whose two best classes are closer than the tolerance; none where the probabilities are not stored."""
    if "probabilities" not in stored.column_names or not stored.num_rows:
        return np.zeros(stored.num_rows, bool)
    ordered = np.sort(column_rows(stored["probabilities"]).astype(np.float64), axis=1)
    return (
        np.asarray(ordered[:, -1] - ordered[:, -2] < PROBABILITY)
        if ordered.shape[1] > 1
        else np.zeros(len(ordered), bool)
    )


def same_machine(environments: Sequence[Mapping[str, Any]], here: Mapping[str, Any]) -> list[str]:
    """What differs between this machine and any of those that a run was made on."""
    return list(dict.fromkeys(words for own in environments for words in machine_differences(own, here)))
