"""The images behind a figure: what each model answered to them, chosen and sorted, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roadworthy.core.files import inside
from roadworthy.core.manifests import MANIFEST, read_manifest
from roadworthy.core.parquet import parquet_rows, parquet_schema, parquet_table
from roadworthy.core.record import CaseRecord, RunRecord, recorded_files
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import UNDISTURBED
from roadworthy.engine.readouts import read_columns
from roadworthy.protocols import find_protocol
from roadworthy.protocols.base import Part
from roadworthy.protocols.behind import Behind, behind
from roadworthy.protocols.declared import declared_by

PAGE = 48
"""Images on a page."""
SHOWS = ("all", "wrong", "right")
SORTS = ("surest", "least sure", "as in the data")
MOST_MODELS = 8
"""Models whose answers stand side by side, at most."""
SYSTEMS = ("model", "monitor")
"""The kinds of systems whose cases are shown image by image."""

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """A case behind a row of a table: its hash, its record, and the source that it belongs to."""

    hash: str
    record: CaseRecord
    source: str

    @property
    def name(self) -> str:
        """The case in words."""
        stimulus = self.record.stimulus
        shown = "undisturbed" if stimulus.name == UNDISTURBED else f"{stimulus.name} {stimulus.level:g}"
        repeat = f", repeat {stimulus.repeat + 1}" if stimulus.repeat else ""
        return f"{self.record.system}, {shown}{repeat}"


@dataclass(frozen=True)
class RowImages:
    """The images behind a row: the cases it rests on, and which of their images it speaks of."""

    part: Part | None
    behind: Behind
    cases: tuple[Asked, ...]
    reason: str = ""


@dataclass(frozen=True)
class Answer:
    """What one system answered to one image; `right` is None where the image has no class that it could answer."""

    system: str
    prediction: str
    confidence: float | None
    right: bool | None
    box: tuple[float, ...] = ()


@dataclass(frozen=True)
class ShownImage:
    """An image of a case: its row in the data, its id, its true class, and all answers to it."""

    row: int
    id: str
    label: str
    answers: tuple[Answer, ...]
    box: tuple[float, ...] = ()


@dataclass(frozen=True)
class ImagesPage:
    """Some images of a case; `matching` of the `total` are chosen."""

    images: tuple[ShownImage, ...]
    matching: int
    total: int
    page: int
    pages: int
    can_be_right: bool


def row_images(
    run: Path, record: RunRecord, parts: Mapping[str, Sequence[Part]], table: str, row: Mapping[str, Any]
) -> RowImages:
    """What stands behind a row of a table of a run, as the protocol that declares the table says it."""
    declared = {spec.name: (owner, spec.key) for owner, specs in declared_by(parts).items() for spec in specs}
    owner, key = declared.get(table, ("", ()))
    if owner not in parts:
        return RowImages(None, Behind(()), (), "No single images stand behind this table: it is of all cases together.")
    source = str(row.get("source", ""))
    part = next((own for own in parts[owner] if own.source == source), None)
    if part is None and len(parts[owner]) == 1:
        part = parts[owner][0]
    if part is None:
        return RowImages(
            None, Behind(()), (), f"No single images stand behind this row: it names no source of {owner}."
        )
    chosen = behind(find_protocol(owner), part, row, key)
    cases = [Asked(case.hash, record.cases[case.hash], part.source) for case in chosen.cases]
    usable = tuple({case.hash: case for case in cases if _is_shown(run, case.record)}.values())
    if not usable:
        failed = next((case.record.reason for case in cases if case.record.status == "failed"), "")
        why = f"its case failed: {failed}" if failed else "it rests on no single case"
        return RowImages(part, chosen, (), f"No single images stand behind this row: {why}.")
    return RowImages(part, chosen, usable)


def _is_shown(run: Path, record: CaseRecord) -> bool:
    return record.kind in SYSTEMS and record.status == "done" and inside(run, record.folder).is_dir()


def has_classes(shift: str, level: float) -> bool:
    """Whether what was shown has the classes of the data: undisturbed data, and data under a shift; outliers have none.

    >>> has_classes("none", 0), has_classes("fog", 3), has_classes("scenery", 0)
    (True, True, False)
    """
    return shift == UNDISTURBED or (level > 0 and shift in SHIFTS)


class CaseAnswers:
    """The stored answers of a case, read column by column."""

    def __init__(self, run: Path, hash: str, record: CaseRecord) -> None:
        self.record, self._home, self._hash = record, inside(run, record.folder), hash
        files, arrays = recorded_files(run).files, [path.name for path in self._home.glob("*.npz")]
        names = {name: f"{record.folder}/{name}" for name in (MANIFEST, *arrays)}
        self._recorded = {name: files[own] for name, own in names.items() if own in files}
        self._tabular = not arrays  # which runs of schema 1 have
        parts = read_manifest(self._home, hash, recorded=self._recorded)[1] if self._tabular else {}
        self._parts = [(self._home / name, parts[name]) for name in sorted(parts)]

    def _read(self, *names: str) -> dict[str, NDArray[Any]]:
        return read_columns(self._home, self._hash, *names, recorded=self._recorded)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that are stored of it."""
        if not self._tabular:
            return frozenset(("id", "label"))
        return frozenset(parquet_schema(*self._parts[0]).names)

    def numbers(self, name: str) -> Floats | None:
        """A column of all images as numbers, (N,); None where there is none."""
        if name not in self.columns:
            return None
        return np.asarray(self._read(name)[name], np.float64)

    @cached_property
    def _starts(self) -> Rows:
        """The row that each part begins with, and the number of all rows."""
        counts = [parquet_rows(path, sha) for path, sha in self._parts]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._tabular else len(self._read("id")["id"])

    def taken(self, names: Sequence[str], rows: Rows) -> dict[str, list[Any]]:
        """Columns of some rows in the order given; only the parts that hold them are read."""
        wanted = [name for name in names if name in self.columns]
        if not self._tabular:
            read = self._read(*wanted)
            return {name: [read[name][row].item() for row in rows] for name in wanted}
        values: dict[str, dict[int, Any]] = {name: {} for name in wanted}
        of_part = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(of_part):
            here = rows[of_part == part]
            path, sha = self._parts[part]
            table = parquet_table(path, wanted, sha=sha).take(pa.array(here - self._starts[part]))
            for name in wanted:
                values[name] |= dict(zip(here.tolist(), table[name].to_pylist(), strict=True))
        return {name: [own[row] for row in rows.tolist()] for name, own in values.items()}


def beside(record: RunRecord, run: Path, case: Asked) -> list[tuple[str, CaseRecord]]:
    """The case itself, then what other models answered to the same stimulus, each by its hash."""
    shown, own = case.record.stimulus.value().hash, (case.hash, case.record)
    others = [
        (hash_, other)
        for hash_, other in record.cases.items()
        if hash_ != case.hash
        and other.kind == "model"
        and other.stimulus.data == case.record.stimulus.data
        and _is_shown(run, other)
        and other.stimulus.value().hash == shown
    ]
    return [own, *sorted(others, key=lambda pair: pair[1].system)][:MOST_MODELS]


def images_page(
    run: Path,
    record: RunRecord,
    images: RowImages,
    case: Asked,
    *,
    show: str = SHOWS[0],
    sort: str = SORTS[0],
    page: int = 1,
    label: str = "",
) -> ImagesPage:
    """A page of the images of a case behind a row: chosen by the row, and by whether the answer is right."""
    own, names = CaseAnswers(run, case.hash, case.record), record.sources[case.source].data.class_names
    total = len(own)
    known = has_classes(case.record.stimulus.name, case.record.stimulus.level)
    labels, predictions = own.numbers("label"), own.numbers("prediction")
    confidences = own.numbers("confidence")
    mask = np.ones(total, np.bool_)
    chosen = images.behind
    for wanted, column in ((chosen.label or label, labels), (chosen.prediction, predictions)):
        if wanted and column is not None and wanted in names:
            mask &= column == names.index(wanted)
    if chosen.confidence is not None and confidences is not None:
        low, high = chosen.confidence
        mask &= ((confidences > low) | ((low <= 0) & (confidences == 0))) & (confidences <= high)
    if chosen.image is not None or chosen.condition is not None:
        ids = own.taken(["id"], np.arange(total))["id"]
        if chosen.image is not None:
            mask &= np.array([image == chosen.image for image in ids], np.bool_)
        if images.part is not None and (rows := chosen.in_condition(images.part, ids)) is not None:
            mask &= np.isin(np.arange(total), rows)
    can_be_right = known and labels is not None and predictions is not None
    if can_be_right and show != SHOWS[0]:
        mask &= (labels == predictions) == (show == "right")
    rows = np.flatnonzero(mask).astype(np.int64)
    if confidences is not None and sort != SORTS[2]:
        order = np.argsort(-confidences[rows] if sort == SORTS[0] else confidences[rows], kind="stable")
        rows = rows[order]
    pages = max(1, -(-len(rows) // PAGE))
    page = min(max(1, page), pages)
    shown = rows[(page - 1) * PAGE : page * PAGE]
    return ImagesPage(tuple(_shown(run, record, case, own, shown, known)), len(rows), total, page, pages, can_be_right)


COLUMNS = ("id", "label", "prediction", "confidence", "true_box", "boxes")


def _shown(run: Path, record: RunRecord, case: Asked, own: CaseAnswers, rows: Rows, known: bool) -> list[ShownImage]:
    """Some rows with the answers of all models to them."""
    names = record.sources[case.source].data.class_names
    systems = []
    for hash_, other in beside(record, run, case):
        answers = own if hash_ == case.hash else CaseAnswers(run, hash_, other)
        if len(answers) == len(own):
            systems.append((other.system, answers.taken(COLUMNS, rows)))
    values = systems[0][1]
    shown = []
    for index, row in enumerate(rows.tolist()):
        label = values["label"][index] if known else None
        given = [
            _answer(system, columns, index, label, names)
            for system, columns in systems
            if columns["id"][index] == values["id"][index]
        ]
        true_box = _box(values, "true_box", index)
        shown.append(
            ShownImage(
                row,
                str(values["id"][index]),
                _class_name(label, names),
                tuple(answer for answer in given if answer is not None),
                true_box,
            )
        )
    return shown


def _answer(
    system: str, columns: Mapping[str, list[Any]], index: int, label: int | None, names: Sequence[str]
) -> Answer | None:
    """What a system said of one image; None where it answers neither classes nor boxes."""
    box = _box(columns, "boxes", index)
    if "prediction" not in columns:
        return Answer(system, "", None, None, box) if box else None
    prediction = columns["prediction"][index]
    right = None if label is None else prediction == label
    return Answer(system, _class_name(prediction, names), columns["confidence"][index], right, box)


def _class_name(number: Any, names: Sequence[str]) -> str:
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else ""


def _box(columns: Mapping[str, list[Any]], name: str, index: int) -> tuple[float, ...]:
    """The corners of a box; empty where an image has none."""
    box = columns[name][index] if name in columns else None
    if not isinstance(box, list) or len(box) != 4 or not np.isfinite(np.array(box, np.float64)).all():
        return ()
    return tuple(float(corner) for corner in box)
