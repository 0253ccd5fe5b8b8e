"""Readouts: what each system answered, one row per image; metrics are computed from these and from nothing else.

Columns: id, group, label, prediction, confidence (largest probability), p_label (probability of the true class),
sum_squares (of the probabilities), certainty (where the model has one of its own) and, for at most `FULL_CLASSES`
classes, all probabilities. The three sums are what every metric needs, so many classes cost no more than few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.files import has_receipt, json_bytes, receipt_path, write_receipt
from roadworthy.core.hashing import digest_file
from roadworthy.core.types import Batch, Case, Prediction
from roadworthy.engine.folder import write_json, write_parquet
from roadworthy.metrics.classification import Answers

FULL_CLASSES = 128
MANIFEST = "manifest.json"
COLUMNS = ["id", "group", "label", "prediction", "confidence", "p_label", "sum_squares", "certainty"]
"""What metrics need; the probabilities stay on disk."""


@dataclass(frozen=True)
class Readouts:
    """All rows of one case, in the order of the data set."""

    ids: tuple[str, ...]
    groups: tuple[str, ...]
    answers: Answers
    certainty: NDArray[np.float64] | None = None


def part_path(folder: Path, chunk: int) -> Path:
    """Where the readouts of one chunk of the data lie."""
    return folder / f"part-{chunk:05d}.parquet"


def has_part(folder: Path, chunk: int) -> bool:
    """True where the readouts of a chunk are stored, whole as far as their receipt tells."""
    path = part_path(folder, chunk)
    return path.is_file() and receipt_path(path).is_file()


def write_part(folder: Path, chunk: int, batch: Batch, prediction: Prediction) -> None:
    """Store what a model answered to one chunk: an immutable part, with a receipt until its case is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    answers = Answers.from_probabilities(prediction.probabilities, batch.labels)
    classes = prediction.probabilities.shape[1]
    columns: dict[str, pa.Array] = {
        "id": pa.array(_text(batch.ids), pa.string()),
        "group": pa.array(_text(batch.group), pa.string()),
        "label": pa.array(answers.label, pa.int32()),
        "prediction": pa.array(answers.prediction, pa.int32()),
        "confidence": pa.array(answers.confidence, pa.float64()),
        "p_label": pa.array(answers.p_label, pa.float64()),
        "sum_squares": pa.array(answers.sum_squares, pa.float64()),
    }
    if prediction.certainty is not None:
        columns["certainty"] = pa.array(prediction.certainty.astype(np.float64), pa.float64())
    if classes <= FULL_CLASSES:
        flat = pa.array(np.ascontiguousarray(prediction.probabilities, dtype=np.float32).ravel(), pa.float32())
        columns["probabilities"] = pa.FixedSizeListArray.from_arrays(flat, classes)
    path = part_path(folder, chunk)
    write_parquet(path, pa.table(columns))
    write_receipt(path)


def _text(values: tuple[str, ...]) -> list[str]:
    """File names may hold bytes that are no UTF-8; Arrow strings may not."""
    return [value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values]


def commit(folder: Path, case: Case, parts: int, classes: int) -> None:
    """Declare a case finished: the manifest, written last, names every part with its hash."""
    paths = [part_path(folder, chunk) for chunk in range(parts)]
    hashes = {path.name: digest_file(path) for path in paths}
    write_json(folder / MANIFEST, _manifest(case, classes, hashes))
    _drop_receipts(folder, hashes)


def _manifest(case: Case, classes: int, parts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "stimulus": case.stimulus.config(),
        "recipe": dict(case.recipe),
        "case": case.hash,
        "classes": classes,
        "parts": dict(parts),
    }


def drop_damaged(folder: Path, case: Case, parts: int, classes: int) -> None:
    """Take back what is not as it was written, so that it is made again; only for who holds the lock.

    A part counts where its hash is the one in the manifest of its finished case, or in its receipt. A manifest that is
    not what this case's would be is taken back alone: it is written again.
    """
    finished = is_committed(folder)
    known: Mapping[str, str] = {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        known = _parts(folder) if finished else {}
    whole: dict[str, str] = {}
    for path in (part_path(folder, chunk) for chunk in range(parts)):
        if not path.is_file():
            continue
        found = digest_file(path)
        if found == known.get(path.name) or has_receipt(path, found):
            whole[path.name] = found
        else:
            path.unlink()
    if not finished:
        return
    if (folder / MANIFEST).read_bytes() == json_bytes(_manifest(case, classes, whole)):
        _drop_receipts(folder, whole)
        return
    for name in whole:
        write_receipt(folder / name)
    (folder / MANIFEST).unlink()


def _drop_receipts(folder: Path, parts: Iterable[str]) -> None:
    """Of a finished case: the hashes are in its manifest."""
    for name in parts:
        receipt_path(folder / name).unlink(missing_ok=True)


def _parts(folder: Path) -> dict[str, str]:
    """The parts that a manifest names, with their hashes; a name that leads elsewhere is a `ValueError`."""
    parts: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["parts"]
    odd = [name for name in parts if not re.fullmatch(r"part-\d+\.parquet", name)]
    if odd:
        raise ValueError(f"{odd[0]!r} is no part")
    return parts


def is_committed(folder: Path) -> bool:
    """True where a case is finished."""
    return (folder / MANIFEST).is_file()


def read_case(folder: Path) -> Readouts:
    """All readouts of a finished case."""
    try:
        tables = [pq.ParquetFile(folder / name).read(columns=COLUMNS) for name in sorted(_parts(folder))]
        table = pa.concat_tables(tables)
        classes = int(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["classes"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, pa.ArrowException) as error:
        raise InputError(f"the readouts in {folder} cannot be read: {error}") from None
    certainty = table["certainty"].to_numpy() if "certainty" in table.column_names else None
    return Readouts(
        ids=tuple(table["id"].to_pylist()),
        groups=tuple(table["group"].to_pylist()),
        answers=Answers(
            label=table["label"].to_numpy().astype(np.int64),
            prediction=table["prediction"].to_numpy().astype(np.int64),
            confidence=table["confidence"].to_numpy(),
            p_label=table["p_label"].to_numpy(),
            sum_squares=table["sum_squares"].to_numpy(),
            num_classes=classes,
        ),
        certainty=certainty,
    )
