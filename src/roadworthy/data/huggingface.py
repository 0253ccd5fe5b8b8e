"""Data sets of the library `datasets`: a folder made by `save_to_disk`, a `Dataset`, or a stream that is read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from roadworthy.core.errors import InputError, MissingExtra, UnknownName, first_line, foreign_code
from roadworthy.core.remote import is_address
from roadworthy.data.base import OpenedDataset, Opening
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.folder import check_folder
from roadworthy.data.images import read
from roadworthy.data.manifest import table_of
from roadworthy.data.pixels import PictureRows
from roadworthy.data.table import some

MARKS = ("dataset_info.json", "dataset_dict.json")
"""Files that a folder made by `save_to_disk` has, one of them."""
LABEL_NAMES = ("label", "labels", "class", "target")
"""Columns that count as the label where none is a `ClassLabel`."""
WHOLE, SPLITS, STREAM = ("Dataset",), ("DatasetDict", "IterableDatasetDict"), ("IterableDataset",)
SCALARS = (str, int, float, bool, np.generic, type(None))


def is_huggingface(value: object) -> bool:
    """Whether an object is a data set of the library `datasets`, told without importing it."""
    return _kind_of(value) != ""


def _kind_of(value: object) -> str:
    names = [c.__name__ for c in type(value).__mro__ if c.__module__.partition(".")[0] == "datasets"]
    return next((name for name in names if name in (*WHOLE, *SPLITS, *STREAM)), "")


def is_saved_folder(folder: Path) -> bool:
    """Whether a folder was made by `save_to_disk`."""
    return any((folder / name).is_file() for name in MARKS)


def open_huggingface(
    source: str | Path | Any,
    opening: Opening | None = None,
    *,
    split: str | None = None,
    image: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> OpenedDataset:
    """Hugging Face `datasets`: a folder made by `save_to_disk`, a `Dataset` object, or a stream, which is read once.

    split  which one, where there are several (default: test)
    image, label, group  names of columns; by default the one of type `Image` and the one of type `ClassLabel`
    """
    opening = opening or Opening()
    data = _loaded(opening.path(source)) if isinstance(source, str | Path) else source
    if _kind_of(data) in SPLITS:
        data = data[_split_name(list(data), split)]
    elif split is not None and str(getattr(data, "split", None)) != split:
        raise InputError(f"the data has no splits, so there is none called {split!r}: leave `split` out")
    if _kind_of(data) in STREAM:
        return _from_stream(data, opening, image, label, group)
    if _kind_of(data) not in WHOLE:
        raise InputError(f"a huggingface data set is a folder or an object of `datasets`, not {type(data).__name__}")
    return _from_rows(data, opening, image, label, group)


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("Hugging Face data sets", "datasets") from None
    return datasets


def _loaded(folder: Path) -> Any:
    check_folder(folder)
    if not is_saved_folder(folder):
        raise InputError(
            f"{str(folder)!r} is not a data set of `datasets`, saved by its `save_to_disk`: there is no {MARKS[0]}"
        )
    library = _library()
    with foreign_code(lambda error: InputError(f"data set {str(folder)!r} cannot be read: {first_line(error)}")):
        return library.load_from_disk(str(folder))


def _split_name(splits: Sequence[str], asked: str | None) -> str:
    if asked is not None and asked not in splits:
        raise UnknownName("split of the data", asked, splits)
    chosen = asked or ("test" if "test" in splits else splits[0] if len(splits) == 1 else None)
    if chosen is None:
        raise InputError(f"the data has the splits {some(splits)}: name one, as in `split: {splits[0]}`")
    return chosen


@dataclass(frozen=True)
class Columns:
    """Which columns hold what: the image, the label with the names of its classes, and all that are scalars."""

    image: str
    label: str
    group: str | None
    label_names: Sequence[str] | None
    unused: tuple[str, ...]

    def table(self, cells: Mapping[str, Sequence[Any]], ids: Sequence[str], opening: Opening) -> Any:
        """The table of the rows with these cells, and notes."""
        named = {name: column for name, column in cells.items() if name not in (self.image, self.label, self.group)}
        named["label"] = cells[self.label]
        if self.group is not None:
            named["group"] = cells[self.group]
        table, notes = table_of(named, ids, opening.class_names, self.label_names)
        if self.unused:
            notes.append(f"columns that are not numbers or text are not used: {some(self.unused, 20)}")
        return table, notes


def choose_columns(
    features: Mapping[str, Any], image: str | None, label: str | None, group: str | None
) -> tuple[Columns, list[str]]:
    """The columns by their types, or as named, and those to be read as cells; what is not clear is an `InputError`."""
    types = {name: type(feature).__name__ for name, feature in features.items()}
    for name in (image, label, group):
        if name is not None and name not in types:
            raise UnknownName("column of the data", name, types)
    pictures = [name for name, kind in types.items() if kind == "Image"]
    classes = [name for name, kind in types.items() if kind == "ClassLabel"]
    plain = [name for name, kind in types.items() if kind in ("Value", "ClassLabel")]
    classes = classes or [name for name in LABEL_NAMES if name in plain][:1]
    chosen_image = _only("image", pictures, image, types)
    if types[chosen_image] != "Image":
        raise InputError(f"the column {chosen_image!r} is {types[chosen_image]}, not an `Image`: cast it to one first")
    chosen_label = _only("label", classes, label, types)
    if chosen_label not in plain:
        raise InputError(f"the column {chosen_label!r} is {types[chosen_label]}, not a class: name another as `label`")
    if group is not None and group not in plain:
        raise InputError(f"the column {group!r} is {types[group]}, not numbers or text: name another as `group`")
    names = getattr(features[chosen_label], "names", None)
    boxes = [name for name in ("box",) if name in types]
    cells = [*plain, *(name for name in boxes if name not in plain)]
    unused = tuple(name for name in types if name not in (*cells, chosen_image))
    return Columns(chosen_image, chosen_label, group, names, unused), cells


def _only(what: str, candidates: Sequence[str], asked: str | None, types: Mapping[str, str]) -> str:
    if asked is not None:
        return asked
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise InputError(f"the data has several columns for the {what}, {some(candidates)}: name one as `{what}`")
    listed = ", ".join(f"{name} ({kind})" for name, kind in types.items())
    raise InputError(f"the data has no column for the {what}: name one as `{what}`; the columns are {listed}")


def _texts(features: Mapping[str, Any], name: str, cells: list[Any], chosen: Columns) -> list[Any]:
    """The cells of a column; those of a class that is not the label by name."""
    names = getattr(features[name], "names", None)
    if names is None or name == chosen.label:
        return cells
    return [names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else None for cell in cells]


@dataclass(frozen=True)
class _StoredImage:
    """The image of a row of a `Dataset`."""

    rows: Any
    row: int
    column: str

    def read(self) -> bytes:
        """Its bytes, as stored or from the file that the row names."""
        with foreign_code(lambda error: InputError(f"image {str(self)!r} cannot be read: {first_line(error)}")):
            return encoded(self.rows[self.row][self.column], str(self))

    def __str__(self) -> str:
        return f"{self.column} of row {self.row}"


def encoded(cell: Any, name: str, may_be_file: bool = True) -> bytes:
    """The bytes of a picture as `datasets` stores it: a mapping of `bytes` and `path`, one of which may be missing.

    Where the bytes are missing and it `may_be_file`, the file at the path is read.
    """
    content = cell.get("bytes") if isinstance(cell, Mapping) else cell
    if isinstance(content, bytes) and content:
        return content
    path = cell.get("path") if isinstance(cell, Mapping) else None
    if not isinstance(path, str) or not path:
        raise InputError(f"image {name!r} cannot be read: the row holds none")
    if not may_be_file:
        raise InputError(f"image {name!r} cannot be read: the row holds no bytes, only the path {path}")
    if is_address(path) or "://" in path:
        raise InputError(f"image {name!r} cannot be read: {path} is not a file of this machine")
    return read(path)


def _from_rows(data: Any, opening: Opening, image: str | None, label: str | None, group: str | None) -> OpenedDataset:
    library = _library()
    features = dict(data.features)
    chosen, names = choose_columns(features, image, label, group)
    with foreign_code(lambda error: InputError(f"data set {opening.name}: {first_line(error)}")):
        plain = data.with_format(None)
        cells = {name: _texts(features, name, list(plain[name]), chosen) for name in names}
        pictures = plain.select_columns([chosen.image]).cast_column(chosen.image, library.Image(decode=False))
    table, notes = chosen.table(cells, [str(row) for row in range(len(data))], opening)
    if data.format["type"] is not None:
        notes.append(f"the format {data.format['type']!r} that was set is not applied: images are read as stored")
    sources = tuple(_StoredImage(pictures, row, chosen.image) for row in range(len(data)))
    return FileDataset(Listing(table, sources, notes=notes), opening)


def _from_stream(data: Any, opening: Opening, image: str | None, label: str | None, group: str | None) -> OpenedDataset:
    library = _library()
    what = f"data set {opening.name}"
    pictures = PictureRows(what)
    cells: dict[str, list[Any]] = {}
    with foreign_code(lambda error: InputError(f"{what} cannot be read: {first_line(error)}")):
        data = data.with_format(None)
        rows: Iterable[Mapping[str, Any]] = data
        if data.features is None:
            first = next(iter(data), None)
            features = _guessed(first or {})
        else:
            features = dict(data.features)
        chosen, names = choose_columns(features, image, label, group)
        if data.features is not None:
            rows = data.cast_column(chosen.image, library.Image(decode=False))
        for number, row in enumerate(_counted(rows, opening)):
            name = f"{chosen.image} of row {number}"
            picture = row.get(chosen.image)
            is_stored = isinstance(picture, Mapping | bytes | type(None))
            pictures.add(encoded(picture, name) if is_stored else picture, name)
            for column in names:
                cell = row.get(column)
                cells.setdefault(column, []).append(cell.item() if isinstance(cell, np.generic) else cell)
    if not len(pictures):
        raise InputError(f"{what}: the stream holds no images")
    cells = {name: _texts(features, name, column, chosen) for name, column in cells.items()}
    table, notes = chosen.table(cells, [str(row) for row in range(len(pictures))], opening)
    return pictures.dataset(table, opening, notes)


def _counted(rows: Iterable[Any], opening: Opening) -> Iterator[Any]:
    for row in rows:
        yield row
        if opening.progress is not None:
            opening.progress(1)


class Value:
    """The type of a column that holds numbers or text, where a stream does not say so itself."""


def _guessed(row: Mapping[str, Any]) -> dict[str, Any]:
    """The types of columns by the values of the first row."""
    library = _library()
    guesses: dict[str, Any] = {}
    for name, cell in row.items():
        is_stored = isinstance(cell, Mapping) and {"bytes", "path"} >= set(cell) and bool(cell)
        if isinstance(cell, Image.Image) or is_stored or name in ("image", "img"):
            guesses[name] = library.Image()
        else:
            guesses[name] = Value() if isinstance(cell, SCALARS) else cell
    return guesses
