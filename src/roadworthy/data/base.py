"""What every opened data set offers beyond batches: notes, bad images, native size, parts, fingerprints of parts."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.fetching import local_copy
from roadworthy.core.hashing import digest
from roadworthy.core.remote import is_address
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch, Images
from roadworthy.core.validation import parse_size, read_classes, require_memory
from roadworthy.data.images import CONVERTED, resize_boxes
from roadworthy.data.parallel import Progress
from roadworthy.data.table import Indices, Table

Size = tuple[int, int]
Masks = NDArray[np.bool_]
COPIES = "copies of earlier images, each counted in the object of the image that it equals: "
"""How the note of a data set with copies begins (`leaks.counted_once`)."""
NO_CLASS = "(no class)"
"""The class of images that are outside whatever they show, and come without labels."""


@dataclass(frozen=True)
class Opening:
    """How a data set is opened: the options all kinds share.

    name           what the study calls it
    classes        class names in the order of the model's output, or a text file with one per line
    size           (H, W), or one number for both, of the images delivered; default: their own where all are equal
    fallback_size  used where they are not equal and no `size` is given
    on_bad_image   "error", or "skip": leave out what cannot be decoded and list it in `bad_images`
    limit          at most this many images, spread over classes and groups;  seed: which ones
    base           folder that relative paths start from
    progress       called now and then with how many more files were read
    unlabelled     whether a folder of images without subfolders is taken, all of them of the class `NO_CLASS`
    """

    name: str = "data"
    classes: Sequence[str] | str | Path | None = None
    size: Size | int | None = None
    fallback_size: Size | int | None = None
    on_bad_image: str = "error"
    limit: int | None = None
    seed: int = 0
    base: Path = Path()
    progress: Progress | None = None
    unlabelled: bool = False

    def __post_init__(self) -> None:
        if self.on_bad_image not in ("error", "skip"):
            raise InputError(f"on_bad_image is 'error' or 'skip', not {self.on_bad_image!r}")
        if self.limit is not None and (not isinstance(self.limit, int) or self.limit < 1):
            raise InputError(f"limit is a number of images, at least 1, not {self.limit!r}")
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise InputError(f"seed is a whole number, at least 0, not {self.seed!r}")
        if isinstance(self.classes, Mapping) or not isinstance(self.classes, Iterable | Path | None):
            raise InputError(f"classes is a list of names or a file that holds them, not {self.classes!r}")
        parse_size(self.size), parse_size(self.fallback_size)

    def path(self, source: str | Path) -> Path:
        """A path as the user wrote it, from `base`; of an address, that of its copy on this machine."""
        if is_address(source):
            return local_copy(source)
        path = Path(source)
        with suppress(RuntimeError):  # `~name` of an unknown user is taken as a plain name
            path = path.expanduser()
        return self.base / path

    @cached_property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names, where they were given, read from their file if need be."""
        if isinstance(self.classes, str | Path):
            return read_classes(self.path(self.classes))
        return None if self.classes is None else tuple(map(str, self.classes))

    def refuse_other_classes(self, dataset: Dataset) -> None:
        """An error where classes were given and the data set, which has its own, has others."""
        if self.class_names is not None and self.class_names != tuple(dataset.class_names):
            raise InputError(f"data set {dataset.name} has its own classes, and they are not those of `classes`")

    def choose_size(self, native: Size | None) -> Size:
        """The size of the images delivered, where `native` is the one they all have, if they do."""
        chosen = parse_size(self.size) or native or parse_size(self.fallback_size)
        if chosen is None:
            raise InputError(f"the images of {self.name} differ in size: give one for all with `size='HxW'`")
        return chosen


class OpenedDataset(Dataset):
    """A data set with known rows: `table`, `notes` (what was left out or looks wrong) and `bad_images` (id, reason)."""

    table: Table
    notes: tuple[str, ...] = ()
    bad_images: tuple[tuple[str, str], ...] = ()
    model_settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """By kind of live model, settings that follow from this data where the user gives none: the range of pixels."""
    _fingerprint: str | None = None

    def __len__(self) -> int:
        return len(self.table.ids)

    @property
    def ids(self) -> tuple[str, ...]:
        """Every image id; unique."""
        return self.table.ids

    @property
    def labels(self) -> NDArray[np.int64]:
        """Every label."""
        return self.table.labels

    @property
    def groups(self) -> tuple[str, ...]:
        """The physical object of every image."""
        return self.table.groups

    @abstractmethod
    def native_size(self) -> Size | None:
        """(H, W) of the images as stored; None where they differ."""

    @abstractmethod
    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """A hash of the stored pixels of each row; decodes what was not decoded yet and names what cannot be."""

    def identity(self, rows: Sequence[int]) -> list[str]:
        """What tells the images of the rows apart: equal where the stored pixels are; nothing is decoded for it."""
        return self.content(rows)

    def verify_all(self, progress: Progress | None = None) -> None:
        """Decode every image once and raise an `InputError` that names those that cannot be; later calls are free."""
        self.content(range(len(self)), progress)

    def fingerprint(self) -> str:
        """A hash of ids, stored pixels, labels, groups, boxes, masks, conditions, order and size; decodes all once."""
        if self._fingerprint is None:
            self._fingerprint = self.fingerprint_of(range(len(self)))
        return self._fingerprint

    def fingerprint_of(self, rows: Sequence[int]) -> str:
        """The fingerprint of a part; equal content has an equal one, wherever it comes from."""
        table = self.table.take(np.asarray(rows, dtype=np.int64))
        return digest(
            {"table": table.digest(), "content": self.content(rows), "size": self.size, "channels": self.channels}
        )

    def resized(self, size: Size) -> Self:
        """The same data set, delivered at another size."""
        other = copy.copy(self)
        other.size, other._fingerprint = parse_size(size) or self.size, None
        return other


def row_index(rows: slice | Sequence[int] | NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The requested rows as indices (M,) into n rows."""
    if isinstance(rows, slice):
        return np.arange(n, dtype=np.int64)[rows]
    index = np.asarray(rows)
    if index.size and index.dtype.kind not in "iu":
        raise TypeError(f"rows must be whole numbers, not {index.dtype}")
    index = index.astype(np.int64).reshape(-1)
    if index.size and (index.min() < 0 or index.max() >= n):
        raise IndexError(f"rows {index.min()} to {index.max()} of a data set of {n} images")
    return index


def empty_images(count: int, size: Size, channels: int) -> NDArray[np.uint8]:
    """An empty array for images (N, H, W, C); more than the memory can hold is an `InputError`."""
    require_memory(count * size[0] * size[1] * channels, f"a batch of {count} images of {size[0]}x{size[1]}")
    return np.empty((count, *size, channels), dtype=np.uint8)


def deliver(table: Table, index: Indices, images: Images, masks: Masks | None, stored: Indices) -> Batch:
    """The batch of the rows `index`, whose stored sizes are `stored` (N or 1, 2)."""
    size = (images.shape[1], images.shape[2])
    boxes = None if table.boxes is None else resize_boxes(table.boxes[index], stored, size)
    return Batch(
        ids=tuple(table.ids[row] for row in index),
        images=images,
        labels=table.labels[index],
        boxes=boxes,
        masks=masks,
        conditions={name: column[index] for name, column in table.conditions.items()},
        group=tuple(table.groups[row] for row in index),
    )


def image_notes(data: Dataset | None) -> list[str]:
    """The notes of a data set on pictures that are converted when they are read, and on copies, if there are any."""
    return [note for note in getattr(data, "notes", ()) if note.startswith((CONVERTED, COPIES))]


def contents(data: Dataset) -> list[str]:
    """A hash of every image; of a data set that cannot tell them apart, its fingerprint for each of them."""
    return data.content(range(len(data))) if isinstance(data, OpenedDataset) else [data.fingerprint()] * len(data)


def identities(data: Dataset) -> list[str]:
    """What tells images apart: a hash of the content of each; where a recipe draws them, the recipe with their id."""
    if isinstance(data, OpenedDataset):
        return data.identity(range(len(data)))
    whole = data.fingerprint()
    return [f"{whole} {name}" for name in data.ids]
