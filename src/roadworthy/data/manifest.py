"""A CSV or Parquet table with a row per image."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.fetching import fetch_beside
from roadworthy.core.validation import require_file
from roadworthy.data.arrays import labels_of
from roadworthy.data.base import Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.table import Table, checked_boxes, condition, index_labels, some

MOST_COLUMNS = 10_000
CORNERS = ("x0", "y0", "x1", "y1")
RESERVED = ("path", "label", "id", "group", "mask", "box", *CORNERS)
"""Columns with a meaning; every other one is an operating condition."""

Columns = Mapping[str, Sequence[Any]]


class ManifestDataset(FileDataset):
    """Images named in a table: `path` and `label`, maybe `id`, `group`, `mask`, `box` or `x0 y0 x1 y1`, conditions.

    Paths start from the manifest's folder; absolute ones and `..` are fine.
    """

    def __init__(self, path: str | Path, opening: Opening | None = None) -> None:
        opening = opening or Opening()
        super().__init__(read_manifest(opening.path(path), opening.class_names), opening)


def read_manifest(path: Path, classes: Sequence[str] | None = None) -> Listing:
    """The rows of a manifest, in its order; every error names the manifest."""
    require_file(path, "manifest")
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    fetch_beside(path, (str(cell) for name in ("path", "mask") for cell in columns.get(name, ()) if not _blank(cell)))
    try:
        return _listing(columns, path.parent, classes)
    except InputError as error:
        raise InputError(f"manifest {str(path)!r}: {error}") from error


def _listing(columns: Columns, folder: Path, classes: Sequence[str] | None) -> Listing:
    if len(columns) > MOST_COLUMNS:
        raise InputError(f"there are {len(columns):,} columns; at most {MOST_COLUMNS:,} are read")
    for required in ("path", "label"):
        if required not in columns:
            alone = next((mark for mark in (";", "\t") if len(columns) == 1 and mark in next(iter(columns))), None)
            hint = f": separate them by commas, not by {alone!r}" if alone else ""
            raise InputError(f"there is no column {required!r}; the columns are {some(columns, 20)}{hint}")
        _complete(required, columns[required])
    paths = [str(cell) for cell in columns["path"]]
    masks = columns.get("mask")
    if masks is not None and all(_blank(cell) for cell in masks):
        masks = None
    table, notes = table_of(columns, paths, classes)
    return Listing(
        table=table,
        paths=tuple(folder / cell for cell in paths),
        masks=None if masks is None else tuple(folder / str(cell) for cell in _complete("mask", masks)),
        notes=notes,
    )


def table_of(
    columns: Columns, names: Sequence[str], classes: Sequence[str] | None, label_names: Sequence[str] | None = None
) -> tuple[Table, list[str]]:
    """What columns say of images, and notes: `label`, maybe `id` (default: `names`), `group`, boxes.

    All other columns are conditions. With `label_names` labels are numbers that index these; else they are names or
    numbers: see `index_labels`.
    """
    ids = tuple(str(cell) for cell in _complete("id", columns.get("id", names)))
    cells = _complete("label", columns["label"])
    if any(isinstance(cell, float) for cell in cells):
        raise InputError("labels are fractions; store class names or whole numbers")
    if label_names is None:
        labels, class_names = index_labels([str(cell) for cell in cells], classes)
    else:
        labels, class_names = labels_of(np.array(cells), np.array(label_names, dtype=np.str_), classes)
    boxes, notes = _boxes(columns, ids)
    groups = columns.get("group", ids)
    single = sum(_blank(cell) for cell in groups)
    if single:
        notes.append(f"{single} images have no group and count as an object of their own")
    table = Table(
        ids=ids,
        labels=labels,
        class_names=class_names,
        groups=tuple(name if _blank(cell) else str(cell) for name, cell in zip(ids, groups, strict=True)),
        boxes=boxes,
        conditions={name: condition(cells) for name, cells in columns.items() if name not in RESERVED},
    )
    return table, table.notes() + notes


def _boxes(columns: Columns, ids: Sequence[str]) -> tuple[Any, list[str]]:
    corners = [name for name in CORNERS if name in columns]
    if "box" in columns and corners:
        raise InputError(f"there is a column 'box' and also {some(corners)}: keep one of the two")
    if "box" in columns:
        cells: list[Sequence[Any]] = [_corners(cell, name) for cell, name in zip(columns["box"], ids, strict=True)]
    elif len(corners) == 4:
        cells = list(zip(*(columns[name] for name in CORNERS), strict=True))
    elif corners:
        raise InputError(f"a box needs the columns x0, y0, x1 and y1; there is only {some(corners)}")
    else:
        return None, []
    try:
        numbers = [[np.nan if _blank(value) else float(value) for value in row] for row in cells]
    except (TypeError, ValueError) as error:
        raise InputError(f"a box holds something that is not a number: {error}") from error
    if all(np.isnan(row).all() for row in numbers):
        return None, []
    return checked_boxes(numbers, ids)


def _corners(cell: Any, name: str) -> Sequence[Any]:
    if _blank(cell):
        return (None,) * 4
    values = cell.replace(",", " ").split() if isinstance(cell, str) else cell
    values = list(values) if isinstance(values, Iterable) else []
    if len(values) != 4:
        raise InputError(f"box {cell!r} of image {name!r} must be four numbers: x0 y0 x1 y1")
    return values


def _blank(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and np.isnan(cell))


def _complete(name: str, cells: Sequence[Any]) -> Sequence[Any]:
    blank = [row for row, cell in enumerate(cells, start=1) if _blank(cell)]
    if blank:
        raise InputError(f"column {name!r} is empty in {len(blank)} of {len(cells)} rows, first in row {blank[0]}")
    return cells


def _read_csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            rows = [line for line in lines if line]
    except OSError as error:
        raise InputError(f"manifest {str(path)!r} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"manifest {str(path)!r} is not a valid UTF-8 CSV file: {error}") from error
    if len(set(header)) != len(header):
        raise InputError(f"manifest {str(path)!r} has two columns of one name: {some(header, 20)}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise InputError(
                f"manifest {str(path)!r} has {len(row)} values in row {number}, but {len(header)} columns; "
                "values are separated by commas, those that hold one are quoted"
            )
    return {name: [row[column] for row in rows] for column, name in enumerate(header)}


def _read_parquet(path: Path) -> Columns:
    from roadworthy.core.parquet import UnreadableParquet, arrow_errors, parquet_table

    try:
        table = parquet_table(path)
        if len(set(table.column_names)) != len(table.column_names):
            raise UnreadableParquet(f"it has two columns of one name: {some(table.column_names, 20)}")
        with arrow_errors():
            return {name: table.column(name).to_pylist() for name in table.column_names}
    except UnreadableParquet as error:
        raise InputError(f"manifest {str(path)!r} is not a readable Parquet file: {error}") from error
