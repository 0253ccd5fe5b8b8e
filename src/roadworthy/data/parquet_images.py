"""Parquet tables that hold the bytes of their images, as Hugging Face writes them or as plain binary columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.data.base import OpenedDataset, Opening
from roadworthy.data.huggingface import LABEL_NAMES, encoded
from roadworthy.data.manifest import ManifestDataset, table_of
from roadworthy.data.pixels import PictureRows
from roadworthy.data.table import natural_key, some, stems

if TYPE_CHECKING:
    import pyarrow as pa


def open_parquet(
    source: str | Path,
    opening: Opening | None = None,
    *,
    image: str | None = None,
    label: str | None = None,
    group: str | None = None,
    split: str | None = None,
) -> OpenedDataset:
    """A Parquet file, or a folder of them, with the bytes of images in a column; with a column `path`, a manifest.

    image, label, group  names of columns; by default the one that holds bytes, and `label`
    split  which part of a folder, where it has several: `test` stands for `test-00000-of-00002.parquet` and so on
    """
    from roadworthy.core.parquet import UnreadableParquet, parquet_schema

    opening = opening or Opening()
    path = opening.path(source)
    files = _files(path, split)
    try:
        schema = parquet_schema(files[0])
        if image is None and not _byte_columns(schema) and len(files) == 1 and label is None and group is None:
            return ManifestDataset(source, opening)
        return _open(files, schema, opening, image, label, group)
    except UnreadableParquet as error:
        raise InputError(f"data file {str(files[0])!r} is not a readable Parquet file: {error}") from error


def _files(path: Path, split: str | None) -> list[Path]:
    """The file, or those of a folder that belong to one part of it, in natural order."""
    if not path.is_dir():
        if split is not None:
            raise InputError(f"data file {str(path)!r} has no splits: leave `split` out")
        return [path]
    files = sorted(path.glob("*.parquet"), key=lambda file: natural_key(file.name))
    if not files:
        raise InputError(f"folder {str(path)!r} holds no .parquet files")
    parts = stems(file.name for file in files)
    if split is None:
        if len(parts) > 1:
            raise InputError(f"folder {str(path)!r} holds {', '.join(parts)}: name one as `split`")
        return files
    if split not in parts:
        raise UnknownName(f"split of folder {str(path)!r}", split, parts)
    return [file for file in files if stems([file.name]) == [split]]


def _open(
    files: Sequence[Path], schema: pa.Schema, opening: Opening, image: str | None, label: str | None, group: str | None
) -> OpenedDataset:
    if len(set(schema.names)) < len(schema.names):
        raise InputError(f"data file {str(files[0])!r} has two columns of one name: {some(schema.names, 20)}")
    chosen_image = _chosen("image", image, _byte_columns(schema), schema)
    names = _class_names(schema)
    labels = [*names] or [name for name in LABEL_NAMES if name in schema.names][:1]
    chosen_label = _chosen("label", label, labels, schema)
    columns = [field.name for field in schema if _is_plain(field.type) or field.name == "box"]
    if chosen_label not in columns:
        raise InputError(f"the column {chosen_label!r} is {schema.field(chosen_label).type}, not a class")
    if group is not None and group not in columns:
        raise InputError(f"there is no column {group!r} of numbers or text; the columns are {some(schema.names, 20)}")
    pictures = PictureRows(f"data file {files[0].name}")
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    for file, row in _rows(files, schema, chosen_label, [chosen_image, *columns]):
        name = f"{file.name}: {chosen_image} of row {len(pictures)}"
        pictures.add(_content(row[chosen_image], name), name)
        for column in columns:
            cells[column].append(row[column])
        if opening.progress is not None:
            opening.progress(1)
    if not len(pictures):
        raise InputError(f"data file {str(files[0])!r} holds no images")
    given = {name: column for name, column in cells.items() if name not in (chosen_label, group)}
    given["label"] = cells[chosen_label]
    if group is not None:
        given["group"] = cells[group]
    ids = [str(row) for row in range(len(pictures))]
    table, notes = table_of(given, ids, opening.class_names, names.get(chosen_label))
    unused = [name for name in schema.names if name not in columns and name != chosen_image]
    if unused:
        notes.append(f"columns that are not numbers or text are not used: {some(unused, 20)}")
    return pictures.dataset(table, opening, notes)


def _content(cell: Any, name: str) -> bytes:
    """The bytes of a picture; none where the cell is empty, which counts as a picture that cannot be read."""
    parts = cell.values() if isinstance(cell, Mapping) else (cell,)
    return encoded(cell, name, may_be_file=False) if any(parts) else b""


def _rows(
    files: Sequence[Path], schema: pa.Schema, label: str, columns: Sequence[str]
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The rows of all files, each with its file; files must have the same columns and the same classes."""
    from roadworthy.core.parquet import arrow_errors, parquet_images, parquet_schema

    for file in files:
        own = parquet_schema(file)
        if own.names != schema.names:
            raise InputError(f"data file {str(file)!r} has other columns than {files[0].name}")
        if own.field(label).type != schema.field(label).type or _class_names(own) != _class_names(schema):
            raise InputError(f"data file {str(file)!r} has other classes than {files[0].name}: give one of the two")
        for block in parquet_images(file, columns):
            with arrow_errors():
                yield from ((file, row) for row in block.to_pylist())


def _chosen(what: str, asked: str | None, candidates: Sequence[str], schema: pa.Schema) -> str:
    if asked is not None:
        if asked not in schema.names:
            raise InputError(f"there is no column {asked!r} for the {what}; the columns are {some(schema.names, 20)}")
        return asked
    if len(candidates) != 1:
        problem = f"several columns for the {what}, {some(candidates)}" if candidates else f"no column for the {what}"
        raise InputError(f"the table has {problem}: name one as `{what}`; the columns are {some(schema.names, 20)}")
    return candidates[0]


def _byte_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _holds_bytes(field.type)]


def _holds_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_struct(kind):
        return any(field.name == "bytes" and _holds_bytes(field.type) for field in kind)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_plain(kind: pa.DataType) -> bool:
    from pyarrow import types

    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(is_text or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """The names of classes by column, where Hugging Face wrote them into the file."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        names = {name: feature["names"] for name, feature in features.items() if feature.get("_type") == "ClassLabel"}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {
        name: list(values)
        for name, values in names.items()
        if isinstance(values, list) and all(isinstance(value, str) for value in values) and name in schema.names
    }
