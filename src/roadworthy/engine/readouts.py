"""Readouts: what each system answered, one row per image; metrics are computed from these and from nothing else.

Columns: id, group, label, prediction, confidence (largest probability), p_label (probability of the true class),
sum_squares (of the probabilities), certainty (where the model has one of its own) and, for at most `FULL_CLASSES`
classes, all probabilities. The three sums are what every metric needs, so many classes cost no more than few.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
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


def write_part(folder: Path, chunk: int, batch: Batch, prediction: Prediction) -> None:
    """Store what a model answered to one chunk: an immutable part."""
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
    write_parquet(part_path(folder, chunk), pa.table(columns))


def _text(values: tuple[str, ...]) -> list[str]:
    """File names may hold bytes that are no UTF-8; Arrow strings may not."""
    return [value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values]


def commit(folder: Path, case: Case, parts: int, classes: int) -> None:
    """Declare a case finished: the manifest, written last, names every part with its hash."""
    paths = [part_path(folder, chunk) for chunk in range(parts)]
    write_json(
        folder / MANIFEST,
        {
            "protocol": case.protocol,
            "stimulus": case.stimulus.config(),
            "recipe": dict(case.recipe),
            "case": case.hash,
            "classes": classes,
            "parts": {path.name: digest_file(path) for path in paths},
        },
    )


def drop_damaged_parts(folder: Path) -> None:
    """Take back a finished case whose parts are not what its manifest says, so that they are made again."""
    if not is_committed(folder):
        return
    try:
        paths = {folder / name: sha for name, sha in _parts(folder).items()}
        damaged = [path for path, sha in paths.items() if not path.is_file() or digest_file(path) != sha]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        damaged = list(folder.glob("part-*"))
    else:
        if not damaged:
            return
    (folder / MANIFEST).unlink()
    for path in damaged:
        path.unlink(missing_ok=True)


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
