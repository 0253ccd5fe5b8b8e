"""What loaders of well-known data sets share: where their files lie, their tables, errors that name the file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, RoadworthyError, first_line
from roadworthy.core.validation import require_file
from roadworthy.data.arrays import ArrayDataset, Pixels, labels_of
from roadworthy.data.base import Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.folder import check_folder
from roadworthy.data.table import Table, by_name, checked_boxes, condition, some


def find_home(root: Path, files: Sequence[str], folders: Sequence[str], what: str) -> Path:
    """The first folder, `root` or one below it named in `folders`, that holds all the files; none is an `InputError`.

    >>> find_home(Path(), ["nowhere.bin"], [], "CIFAR-10")
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: '.' does not hold CIFAR-10 in its usual layout: there is no nowhere.bin
    """
    check_folder(root)
    homes = [root, *(root / folder for folder in folders)]
    for home in homes:
        if all((home / name).exists() for name in files):
            return home
    nearest = max(homes, key=lambda home: sum((home / name).exists() for name in files))
    missing = [name for name in files if not (nearest / name).exists()]
    where = f", nor in {', '.join(folders)} below it" if folders else ""
    raise InputError(
        f"{str(root)!r} does not hold {what} in its usual layout: there is no {' or '.join(missing)}{where}"
    )


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Any error of a reader becomes one sentence that names the file."""
    try:
        yield
    except RoadworthyError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{what} {str(path)!r}: {error}") from error
    except OSError as error:
        raise InputError(f"{what} {str(path)!r} cannot be read: {error.strerror or first_line(error)}") from error
    except Exception as error:  # on a broken file, readers raise almost anything
        raise InputError(f"{what} {str(path)!r} cannot be read: {first_line(error)}") from error


def read_names(path: Path, what: str = "class names") -> list[str]:
    """The lines of a text file that are not blank, without blanks around them."""
    require_file(path, what)
    with naming(path, what):
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def read_table(path: Path, columns: Sequence[str], delimiter: str, what: str) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, which must have these columns; every row must be complete."""
    require_file(path, what)
    with naming(path, what), path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file, delimiter=delimiter, strict=True)
        missing = [name for name in columns if name not in (rows.fieldnames or ())]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}; the columns are {some(rows.fieldnames or (), 20)}")
        table = list(rows)
        for number, row in enumerate(table, start=1):
            if None in row or None in row.values():
                raise InputError(f"row {number} has more or fewer values than there are columns")
        return table


def whole_number(text: str, what: str) -> int:
    """A whole number, at least 0, from a cell of a table; anything else is an `InputError`."""
    if not text.strip().isdecimal() or len(text) > 18:
        raise InputError(f"{what} must be a whole number, not {text!r}")
    return int(text)


def numbered(count: int) -> tuple[str, ...]:
    """The ids of images that have no names: their numbers in the order of the files."""
    return tuple(map(str, range(count)))


def array_set(
    images: Pixels,
    labels: NDArray[Any],
    class_names: Sequence[str],
    opening: Opening,
    *,
    ids: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    conditions: Mapping[str, Sequence[Any] | NDArray[Any]] | None = None,
    notes: Iterable[str] = (),
) -> ArrayDataset:
    """A data set of images of one size (N, H, W, C), with labels (N,) that index `class_names`."""
    index, names = labels_of(labels.astype(np.int64), np.array(class_names, dtype=np.str_), opening.class_names)
    rows = numbered(len(index)) if ids is None else tuple(ids)
    table = Table(
        ids=rows,
        labels=index,
        class_names=names,
        groups=rows if groups is None else tuple(groups),
        conditions={name: condition(column) for name, column in (conditions or {}).items()},
    )
    return ArrayDataset(table, images, None, opening, [*table.notes(), *notes])


def file_set(
    ids: Sequence[str],
    paths: Sequence[Path],
    labels: Sequence[str],
    class_names: Sequence[str],
    opening: Opening,
    *,
    groups: Sequence[str] | None = None,
    boxes: Sequence[Sequence[float]] | None = None,
    conditions: Mapping[str, Sequence[Any]] | None = None,
    notes: Iterable[str] = (),
) -> FileDataset:
    """A data set of image files with the names of their classes, in the order given."""
    index, names = by_name(labels, opening.class_names or class_names)
    corners, box_notes = checked_boxes(boxes, ids) if boxes is not None and len(ids) else (None, [])
    table = Table(
        ids=tuple(ids),
        labels=index,
        class_names=names,
        groups=tuple(ids if groups is None else groups),
        boxes=corners,
        conditions={name: condition(column) for name, column in (conditions or {}).items()},
    )
    listing = Listing(table=table, paths=tuple(paths), notes=[*table.notes(), *box_notes, *notes])
    return FileDataset(listing, opening)
