"""A data set of MAITE as a data set: read once to know it, then image by image when a batch is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Opening, Size, deliver, empty_images, row_index
from roadworthy.data.images import resize
from roadworthy.data.parallel import Progress
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table, check_boxes_inside, checked_boxes, condition, some
from roadworthy.maite.reading import (
    Datum,
    Detections,
    PixelsSeen,
    class_of,
    is_dataset,
    names_of_classes,
    read_datum,
    single_box,
)

KIND = "maite"
"""The kind of live data and of live models."""
PLAIN = (str, bool, int, float, np.generic)


class Dataset(OpenedDataset):
    """A data set of MAITE, of image classification or of object detection with one object per image.

    data   what has `metadata`, `len` and items (image (C, H, W), target, metadata)
    range  `0-1` or `0-255`, where its float pixels do not tell (see `PixelsSeen.form`)
    group  the key of an item's metadata that names the physical object; without it every image is one

    Ids come from the items' metadata; all else there that is plain, a text or a number, becomes a condition. Class
    names come from `index2label`. Images that are not uint8 are rounded to the 256 values that shifts are defined for.
    A data set that gives another image when it is asked again is an `InputError`.
    """

    def __init__(
        self, data: Any, opening: Opening | None = None, *, range: str | None = None, group: str | None = None
    ) -> None:
        if not is_dataset(data):
            raise InputError(
                f"a data set of MAITE has metadata with an id, a length and items, which {type(data).__name__} has not"
            )
        self._data, opening = data, opening or Opening()
        self._identifier = str(data.metadata["id"])
        self.name = self._identifier if opening.name == "data" else opening.name
        rows = _Rows(group, f"data set {self.name}")
        for index in _indices(data):
            rows.add(self._read(index), self._what(index))
            if opening.progress is not None:
                opening.progress(1)
        self.form = rows.pixels.form(range, f"data set {self.name}")
        table, notes = rows.table(_class_names(data.metadata, rows, opening, self.name))
        self._rows = rows_over_classes(table, opening.limit, opening.seed)
        self.table = table.limited(self._rows)
        self._hashes = [rows.hashes[row] for row in self._rows]
        self._sizes = np.array(rows.sizes, np.int64).reshape(-1, 2)[self._rows]
        self.class_names, self.channels = table.class_names, rows.channels
        if self.table.boxes is not None:
            check_boxes_inside(self.table.boxes, self._sizes, self.ids)
        rounded = () if self.form.dtype == "uint8" else (f"{self.form.dtype} pixels were rounded to 256 values",)
        self.notes = (*notes, *rounded)
        self.size = opening.choose_size(self.native_size())
        self.model_settings = {KIND: {"range": self.form.model_range}}

    def _read(self, index: int) -> Datum:
        what = self._what(index)
        with foreign_code(
            lambda error: InputError(f"{what} cannot be read: {type(error).__name__}: {first_line(error)}")
        ):
            return read_datum(self._data[index], what)

    def _what(self, index: int) -> str:
        return f"item {index} of data set {self._identifier}"

    def native_size(self) -> Size | None:
        """(H, W) of the images; None where they differ."""
        first = self._sizes[0]
        return (int(first[0]), int(first[1])) if (self._sizes == first).all() else None

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Ask the data set for some images, in the order given."""
        index = row_index(rows, len(self))
        images = empty_images(len(index), self.size, self.channels)
        for target, row in enumerate(index.tolist()):
            images[target] = resize(self._image(row), self.size)
        return deliver(self.table, index, images, None, self._sizes[index])

    def _image(self, row: int) -> NDArray[np.uint8]:
        index = int(self._rows[row])
        datum = self._read(index)
        if _hash(datum.image) != self._hashes[row]:
            raise InputError(
                f"{self._what(index)} is another image than before: a data set for a test gives the same images "
                "whenever it is asked, so leave random changes to shifts"
            )
        return self.form.to_bytes(datum.image, self._what(index))

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """A hash of the stored numbers of each image, which were read when the data set was opened."""
        if progress is not None:
            progress(len(rows))
        return [self._hashes[row] for row in rows]


class _Rows:
    """What is kept of the items of a data set when they are read: all but their pixels."""

    def __init__(self, group: str | None, what: str) -> None:
        self.group, self.what = group, what
        self.ids: list[str] = []
        self.groups: list[str] = []
        self.labels: list[int] = []
        self.boxes: list[NDArray[np.float64]] = []
        self.hashes: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.further: list[Mapping[str, Any]] = []
        self.pixels = PixelsSeen(set())
        self.channels = self.num_classes = 0

    def add(self, datum: Datum, what: str) -> None:
        """Take one more item."""
        what = f"{what}, id {datum.id!r}"
        channels, height, width = datum.image.shape
        if self.ids and channels != self.channels:
            raise InputError(f"{what} has {channels} channels, the images before {self.channels}")
        self.pixels.add(datum.image, what)
        self.channels = channels
        self._add_target(datum.target, what)
        self.ids.append(datum.id)
        self.hashes.append(_hash(datum.image))
        self.sizes.append((height, width))
        self.further.append({str(key): value for key, value in datum.metadata.items() if key not in ("id", self.group)})
        self.groups.append(datum.id if self.group is None else _group_of(datum, self.group, what))

    def _add_target(self, target: Any, what: str) -> None:
        if isinstance(target, Detections):
            label, box = single_box(target, what)
            self.boxes.append(box)
            classes = max(self.num_classes, label + 1)
        else:
            label, classes = class_of(target, what)
            if self.labels and (classes != self.num_classes or self.boxes):
                raise InputError(f"{what} has a target of {classes} classes, unlike the items before")
        if len(self.boxes) not in (0, len(self.labels) + 1):
            raise InputError(f"{what} has a box, and items before have none")
        self.labels.append(label)
        self.num_classes = classes

    def table(self, class_names: Sequence[str] | None) -> tuple[Table, list[str]]:
        """All that is known of the images, and what a reader should know of it."""
        conditions, left_out = _conditions(self.further)
        notes = [f"metadata that is neither text nor number was left out: {some(left_out)}"] if left_out else []
        boxes = None
        if self.boxes:
            boxes, of_boxes = checked_boxes(np.stack(self.boxes), self.ids)
            notes += of_boxes
        names = tuple(class_names or map(str, range(self.num_classes)))
        labels = np.array(self.labels, np.int64)
        try:
            table = Table(tuple(self.ids), labels, names, tuple(self.groups), boxes, conditions)
        except InputError as error:
            raise InputError(f"{self.what}: {error}") from None
        return table, [*notes, *table.notes()]


def _group_of(datum: Datum, key: str, what: str) -> str:
    """The physical object of an item, by a key of its metadata."""
    if not isinstance(datum.metadata.get(key), str | int | np.integer):
        raise InputError(f"{what}: its metadata names no object under {key!r}")
    return str(datum.metadata[key])


def _conditions(further: Sequence[Mapping[str, Any]]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Columns of the metadata that are plain everywhere, and the keys of those that are not."""
    keys = list(dict.fromkeys(key for row in further for key in row))
    columns = {key: [row.get(key) for row in further] for key in keys}
    plain = {
        key: [cell.item() if isinstance(cell, np.generic) else cell for cell in column]
        for key, column in columns.items()
        if all(cell is None or isinstance(cell, PLAIN) for cell in column)
    }
    return {key: condition(column) for key, column in plain.items()}, [key for key in keys if key not in plain]


def _class_names(metadata: Mapping[str, Any], rows: _Rows, opening: Opening, name: str) -> Sequence[str] | None:
    """The names of the classes by the data set, or as the user gives them where it names none.

    A target of image classification has a number for every class, so there must be as many names.
    """
    own, count = names_of_classes(metadata, rows.num_classes, f"data set {name}"), rows.num_classes
    for source, names in (("its index2label", own), ("`classes`", opening.class_names)):
        if names is not None and not rows.boxes and len(names) != count:
            raise InputError(f"data set {name} has targets of {count} classes, and {source} names {len(names)}")
    if own is not None and opening.class_names is not None and own != opening.class_names:
        raise InputError(f"data set {name} has its own classes, and they are not those of `classes`")
    return own or opening.class_names


def _indices(data: Any) -> range:
    if not len(data):
        raise InputError(f"data set {data.metadata['id']} holds no image")
    return range(len(data))


def _hash(image: NDArray[Any]) -> str:
    sha = hashlib.sha256(f"{image.dtype.str} {image.shape}".encode())
    sha.update(np.ascontiguousarray(image).data)
    return sha.hexdigest()


def open_data(data: Any, opening: Opening) -> Dataset:
    """A live object as a data set of MAITE."""
    return Dataset(data, opening)
