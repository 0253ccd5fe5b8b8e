"""Readouts: what each system answered, one row per image; metrics are computed from these and from nothing else.

Columns: id, group, label, true_box (as the shift moved it, where the data has boxes), box_inflation (where a shift
moved a box without a mask), and what the system declares:

probabilities  prediction, confidence (the largest), p_label (of the true class), sum_squares and, for at most
               `FULL_CLASSES` classes, all of them. The sums are what every metric needs, however many classes
log_odds       log p - log(1 - p) of the prediction, where the system knows logits
certainty      where the system has a measure of its own
samples        sample_entropy (mean entropy of the passes) and sample_dissent (share that votes otherwise)
boxes, box_variance
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roadworthy.core import manifests
from roadworthy.core.checked import checked
from roadworthy.core.errors import InputError
from roadworthy.core.manifests import NOTHING_RECORDED, own_node, read_receipt, receipt_path, write_receipt
from roadworthy.core.parquet import parquet_table
from roadworthy.core.types import Batch, Case
from roadworthy.engine.folder import write_parquet
from roadworthy.metrics import Answers
from roadworthy.uncertainty.measures import expected_entropy, variation_ratio

FULL_CLASSES = 128
NUMBERS = ("certainty", "sample_entropy", "sample_dissent", "box_inflation")
BOXES = ("true_box", "boxes", "box_variance")
CLASSIFIED = ("prediction", "confidence", "p_label", "sum_squares")
COLUMNS = ["id", "group", "label", *CLASSIFIED, "log_odds", *NUMBERS, *BOXES]
"""What metrics need; the probabilities stay on disk."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Readouts:
    """All rows of one case, in the order of the data set. What the system does not answer is None.

    classified       what a classifier answered;  certainty, sample_entropy, sample_dissent (N,)
    true_box, boxes, box_variance  (N, 4), the first as the shift moved it;  box_inflation (N,)
    """

    ids: tuple[str, ...]
    groups: tuple[str, ...]
    classified: Answers | None = None
    certainty: Floats | None = None
    sample_entropy: Floats | None = None
    sample_dissent: Floats | None = None
    true_box: Floats | None = None
    boxes: Floats | None = None
    box_variance: Floats | None = None
    box_inflation: Floats | None = None

    @property
    def answers(self) -> Answers:
        """What a classifier answered; an error where the system is none."""
        if self.classified is None:
            raise InputError("these readouts hold no classes: the system answers none")
        return self.classified

    def take(self, rows: NDArray[np.intp]) -> Readouts:
        """The same of some images, by their rows."""
        columns = {name: getattr(self, name) for name in (*NUMBERS, *BOXES)}
        return Readouts(
            tuple(self.ids[row] for row in rows),
            tuple(self.groups[row] for row in rows),
            None if self.classified is None else self.classified.take(rows),
            **{name: None if column is None else column[rows] for name, column in columns.items()},
        )


def part_name(chunk: int) -> str:
    """What the file of the readouts of one chunk of the data is called."""
    return f"part-{chunk:05d}.parquet"


def part_path(folder: Path, chunk: int) -> Path:
    """Where the readouts of one chunk of the data lie."""
    return folder / part_name(chunk)


def has_part(folder: Path, chunk: int) -> bool:
    """True where the readouts of a chunk are stored, whole as far as their receipt, or the manifest, tells."""
    path = part_path(folder, chunk)
    return path.is_file() and (receipt_path(path).is_file() or path.name in manifests.named_parts(folder))


def is_finished(folder: Path, node: str, parts: int) -> bool:
    """True where the case with the hash `node` is finished in a folder, with that many parts."""
    try:
        return len(manifests.read_manifest(folder, node)[1]) == parts
    except InputError:
        return False


def write_part(folder: Path, chunk: int, batch: Batch, answer: Mapping[str, NDArray[Any]]) -> str:
    """Store the columns that a system answered to one chunk: an immutable part, with a receipt until all are there.

    Returns its SHA-256, by what was written and not by what lies on the disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    columns = {
        "id": pa.array(_text(batch.ids), pa.string()),
        "group": pa.array(_text(batch.group), pa.string()),
        "label": pa.array(batch.labels, pa.int32()),
    }
    columns |= {} if batch.boxes is None else {"true_box": _lists(batch.boxes.astype(np.float32))}
    if batch.box_inflation is not None:
        columns["box_inflation"] = pa.array(np.float64(batch.box_inflation), pa.float64())
    for name, values in answer.items():
        columns |= STORED_AS[name](values, batch) if name in STORED_AS else {name: _lists(values)}
    path = part_path(folder, chunk)
    sha = write_parquet(path, pa.table(columns))
    write_receipt(path, sha, own_node(folder))
    return sha


def _classified(probabilities: NDArray[np.float32], batch: Batch) -> dict[str, pa.Array]:
    answers = Answers.from_probabilities(probabilities, batch.labels)
    columns = {"prediction": pa.array(answers.prediction, pa.int32())}
    columns |= {name: pa.array(getattr(answers, name), pa.float64()) for name in CLASSIFIED[1:]}
    return columns | ({"probabilities": _lists(probabilities)} if probabilities.shape[1] <= FULL_CLASSES else {})


def _certain(certainty: NDArray[np.float32], batch: Batch) -> dict[str, pa.Array]:
    return {"certainty": pa.array(np.float64(certainty), pa.float64())}


def _sampled(samples: NDArray[np.float32], batch: Batch) -> dict[str, pa.Array]:
    numbers = {"sample_entropy": expected_entropy(samples), "sample_dissent": variation_ratio(samples)}
    return {name: pa.array(np.float64(values), pa.float64()) for name, values in numbers.items()}


STORED_AS: Mapping[str, Callable[[NDArray[Any], Batch], dict[str, pa.Array]]] = {
    "probabilities": _classified,
    "certainty": _certain,
    "samples": _sampled,
}
"""The columns that are stored as something else than what they are."""


def _lists(values: NDArray[Any]) -> pa.Array:
    """Rows (N, ...) as a column: of numbers or text, or of lists (of lists) of as many numbers each."""
    column = pa.array(_text(values.tolist()) if values.dtype.kind in "US" else np.ascontiguousarray(values).ravel())
    for size in values.shape[:0:-1]:
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def _text(values: Sequence[str]) -> list[str]:
    """File names may hold bytes that are no UTF-8; Arrow strings may not."""
    return [value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values]


def commit(folder: Path, case: Case, parts: int, classes: int, written: Mapping[Path, str] | None = None) -> str:
    """Declare a case finished with its first `parts`; `written`: see `manifests.commit`."""
    facts = {"stimulus": case.stimulus.config(), "recipe": dict(case.recipe), "case": case.hash, "classes": classes}
    return manifests.commit(folder, facts, [part_name(chunk) for chunk in range(parts)], written)


def read_case(folder: Path, node: str, recorded: Mapping[str, str] = NOTHING_RECORDED) -> Readouts:
    """All readouts of the finished case with the hash `node`; `recorded`: see `manifests.read_manifest`.

    They must be as they were written.
    """
    try:
        facts, parts = manifests.read_manifest(folder, node, ["classes"], recorded)
        table = pa.concat_tables([parquet_table(folder / name, COLUMNS, sha=parts[name]) for name in sorted(parts)])
        return _readouts(table, int(facts["classes"]))
    except (OSError, ValueError, TypeError, InputError, pa.ArrowException) as error:
        raise InputError(f"the readouts in {folder} cannot be read: {error}") from None


class GrowingCase:
    """The readouts of a case of which part after part is stored; each is read once."""

    def __init__(self, folder: Path, classes: int) -> None:
        self._folder, self._classes, self._tables = folder, classes, list[pa.Table]()

    def __len__(self) -> int:
        return len(self._tables)

    def grow(self) -> bool:
        """Read the next part; False where it is not stored yet."""
        if not has_part(self._folder, len(self)):
            return False
        path = part_path(self._folder, len(self))
        sha = read_receipt(path) or manifests.named_parts(self._folder).get(path.name)
        self._tables.append(parquet_table(path, COLUMNS, sha=sha))
        return True

    def readouts(self) -> Readouts:
        """The rows of the parts that were read."""
        return _readouts(pa.concat_tables(self._tables), self._classes)


def _readouts(table: pa.Table, classes: int) -> Readouts:
    known = set(table.column_names)
    numbers = {name: table[name].to_numpy() for name in NUMBERS if name in known}
    boxes = {name: _rows(table[name]) for name in BOXES if name in known}
    classified = None
    if "prediction" in known:
        classified = Answers(
            label=_class_numbers(table, "label"),
            prediction=_class_numbers(table, "prediction"),
            **{name: table[name].to_numpy() for name in CLASSIFIED[1:]},
            num_classes=classes,
            log_odds=table["log_odds"].to_numpy() if "log_odds" in known else None,
        )
    ids = tuple(table["id"].to_pylist())
    groups = ids if table["group"].equals(table["id"]) else tuple(table["group"].to_pylist())
    return Readouts(ids, groups, classified, **numbers, **boxes)


def _class_numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of classes by number; what is none, such as NaN, is an `InputError`."""
    values = table[name].to_numpy()
    if values.dtype.kind == "f" and not (np.abs(values.astype(np.float64)) < 2**53).all():
        raise InputError(
            f"the column {name} of stored readouts holds what is no number of a class: run the study again"
        )
    return np.asarray(values.astype(np.int64))


def read_columns(
    folder: Path,
    node: str,
    *names: str,
    parts: Sequence[int] | None = None,
    recorded: Mapping[str, str] = NOTHING_RECORDED,
) -> dict[str, NDArray[Any]]:
    """Columns of a finished case by name, an array (N, ...) each; of all its rows, or of those of some parts.

    `id`, `group` and `label` are columns too. `node` is the hash of the case; what is read must be as it was written.
    """
    try:
        if not any(folder.glob("part-*.parquet")) and any(folder.glob("*.npz")):
            return _columns_of_first_schema(folder, node, names, recorded)
        shas = manifests.read_manifest(folder, node, recorded=recorded)[1]
        known = sorted(shas)
        chosen = known if parts is None else [known[part] for part in parts]
        tables = [parquet_table(folder / name, names, sha=shas[name]) for name in chosen]
        return {name: np.concatenate([column_rows(table[name]) for table in tables]) for name in names}
    except (OSError, ValueError, LookupError, TypeError, RecursionError, BadZipFile, pa.ArrowException) as error:
        raise InputError(f"the readouts in {folder} cannot be read: {error}") from None


def _columns_of_first_schema(
    folder: Path, node: str, names: Sequence[str], recorded: Mapping[str, str]
) -> dict[str, NDArray[Any]]:
    """Columns of what runs of schema 1 kept as arrays, some of them under another name.

    What an artifact kept is named by its manifest, all else by run.json; the folder has the name of the node.
    """
    named = (
        manifests.read_manifest(folder, node, recorded=recorded)[1]
        if (folder / manifests.FORMER_MANIFEST).is_file()
        else {}
    )
    pieces = []
    for path in sorted(folder.glob("*.npz")):
        sha = recorded.get(path.name, named.get(path.name))
        with checked(path, sha) as content, np.load(_opened(content), allow_pickle=False) as file:
            known = {name: next(n for n in (name, f"{name}s", "rows") if n in file) for name in names}
            pieces.append({name: np.atleast_1d(file[former]) for name, former in known.items()})
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def _opened(content: bytes | Path) -> BytesIO | Path:
    return BytesIO(content) if isinstance(content, bytes) else content


def column_rows(column: pa.ChunkedArray) -> NDArray[Any]:
    """(N, ...) of a column, as it was given to `_lists`."""
    values, kind, shape = column.combine_chunks(), column.type, [len(column)]
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = values.flatten()
        shape.append(len(inner) // max(1, len(values)))
        values, kind = inner, kind.value_type
    if pa.types.is_string(kind):
        return np.array(values.to_pylist(), np.str_).reshape(shape)
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)


def _rows(column: pa.ChunkedArray) -> Floats:
    """(N, D) of a column of lists."""
    return np.asarray(column_rows(column), np.float64)
