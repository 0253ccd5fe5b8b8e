"""Data sets of arrays: those that the caller has, or those of a NumPy `.npz` file, whose large ones stay on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.core.validation import plain_array, require_file, require_memory
from roadworthy.data.base import OpenedDataset, Opening, Size, deliver, empty_images, row_index
from roadworthy.data.images import resize, resize_mask
from roadworthy.data.parallel import Progress
from roadworthy.data.row_views import LazyRows
from roadworthy.data.rows_on_disk import is_plain, rows_on_disk
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table, by_name, check_boxes_inside, checked_boxes, condition, index_labels, some

RESERVED = ("images", "labels", "class_names", "id", "boxes", "masks", "group", "track", "meta")
"""Arrays with a meaning; every other one of length N is an operating condition."""
PIXELS = ("images", "masks")
"""Arrays that may stay on disk: all that grows with the size of the images."""
HASHED_TOGETHER = 1024
Pixels = NDArray[Any] | LazyRows


class ArrayDataset(OpenedDataset):
    """Images (N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8 and masks (N, H, W), nonzero = object, or rows on disk."""

    def __init__(
        self,
        table: Table,
        images: Pixels,
        masks: Pixels | None = None,
        opening: Opening | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        opening = opening or Opening()
        images = checked_images(images)
        if len(images) != len(table.ids):
            raise InputError(f"the data set has {len(images)} images but {len(table.ids)} labels")
        if masks is not None and (masks.shape != images.shape[:3] or masks.dtype.kind not in "biu"):
            raise InputError(f"masks must be bool or whole numbers {images.shape[:3]}, not {masks.dtype} {masks.shape}")
        rows = rows_over_classes(table, opening.limit, opening.seed)
        whole = len(rows) == len(images)
        self._images = images if whole else _taken(images, rows)
        self._masks = masks if whole or masks is None else _taken(masks, rows)
        self._stored = np.array(images.shape[1:3], dtype=np.int64)
        self._hashes = np.zeros((len(rows), hashlib.sha256().digest_size), np.uint8)
        self._is_hashed = np.zeros(len(rows), np.bool_)
        self.name, self.notes, self.table = opening.name, tuple(notes), table.limited(rows)
        self.class_names, self.channels = table.class_names, images.shape[3]
        if self.table.boxes is not None:
            check_boxes_inside(self.table.boxes, self._stored[None], self.ids)
        self.size = opening.choose_size(self.native_size())

    def native_size(self) -> Size:
        """(H, W) of the arrays."""
        return self._images.shape[1], self._images.shape[2]

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """A copy of some images, in the order given."""
        index = row_index(rows, len(self))
        images = self._images[index]
        masks = None if self._masks is None else self._masks[index] != 0
        if self.size != self.native_size():
            images = _resized(resize, images, empty_images(len(images), self.size, self.channels))
            if masks is not None:
                masks = _resized(resize_mask, masks, np.empty((len(masks), *self.size), np.bool_))
        return deliver(self.table, index, images, masks, self._stored)

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """SHA-256 of the values of each image (and its mask)."""
        index = np.asarray(rows, np.int64)
        missing = index[~self._is_hashed[index]]
        for start in range(0, len(missing), HASHED_TOGETHER):
            self._hash(missing[start : start + HASHED_TOGETHER])
        return [digest.tobytes().hex() for digest in self._hashes[index]]

    def _hash(self, index: NDArray[np.int64]) -> None:
        images, prefix = self._images[index], f"{self._images.shape[1:]}".encode()
        masks = None if self._masks is None else self._masks[index] != 0
        for number, row in enumerate(index):
            sha = hashlib.sha256(prefix)
            sha.update(np.ascontiguousarray(images[number]).data)
            if masks is not None:
                sha.update(np.ascontiguousarray(masks[number]).data)
            self._hashes[row] = np.frombuffer(sha.digest(), np.uint8)
        self._is_hashed[index] = True


def _taken(pixels: Pixels, rows: NDArray[np.int64]) -> Pixels:
    return pixels[rows] if isinstance(pixels, np.ndarray) else pixels.take(rows)


def checked_images(images: Pixels) -> Pixels:
    """Images as (N, H, W, 1 or 3) uint8; others are an `InputError` that says how to convert them.

    >>> checked_images(np.zeros((2, 28, 28), dtype=np.uint8)).shape
    (2, 28, 28, 1)
    """
    if images.ndim == 3:
        images = images.reshape((*images.shape, 1))
    if images.ndim == 4 and images.shape[3] not in (1, 3) and images.shape[1] in (1, 3):
        raise InputError(
            f"images are {images.shape}, channels first; store them as (N, H, W, C): images.transpose(0, 2, 3, 1)"
        )
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape[1:3]:
        raise InputError(f"images must have shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), not {images.shape}")
    if images.dtype != np.uint8:
        raise InputError(f"images must be uint8, 0 to 255, not {images.dtype}; scale and round them first")
    return images


def _resized(resizing: Callable[[Any, Size], Any], sources: NDArray[Any], result: NDArray[Any]) -> NDArray[Any]:
    """The result, every row of it filled with its resized source."""
    for row, source in enumerate(sources):
        result[row] = resizing(source, (result.shape[1], result.shape[2]))
    return result


class NpzDataset(ArrayDataset):
    """Arrays `images` (uint8, N H W [C]) and `labels` (N,); maybe `class_names`, `id`, `boxes`, `masks`, conditions.

    `group` (N,) names the physical object; `track` (N,) does so within a class.
    """

    def __init__(self, path: str | Path, opening: Opening | None = None) -> None:
        opening = opening or Opening()
        file = opening.path(path)
        arrays = _read(file)
        try:
            table, notes = _table(arrays, opening.class_names)
            super().__init__(table, arrays["images"], arrays.get("masks"), opening, notes)
        except InputError as error:
            raise InputError(f"data file {str(file)!r}: {error}") from error


def from_arrays(
    images: NDArray[Any], labels: Sequence[Any] | NDArray[Any], class_names: Sequence[str] | None, opening: Opening
) -> ArrayDataset:
    """A data set from arrays in memory."""
    arrays = {"images": np.asarray(images), "labels": np.asarray(labels)}
    if class_names is not None:
        arrays["class_names"] = np.asarray(class_names, dtype=np.str_)
    table, notes = _table(arrays, opening.class_names)
    return ArrayDataset(table, arrays["images"], None, opening, notes)


def _read(path: Path) -> dict[str, Any]:
    """Every array of the file, each decompressed once; large ones of pixels as rows on disk."""
    require_file(path, "data file")
    try:
        with path.open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it holds a single array; save it with numpy.savez_compressed")
            members = {name: _member(file.zip, name) for name in file.files}
            packed = [member for name, member in members.items() if name not in PIXELS or not is_plain(member)]
            require_memory(sum(member.file_size for member in packed), f"data file {str(path)!r}")
            on_disk = {name: rows_on_disk(file.zip, members[name], path) for name in PIXELS if name in members}
            read = [member for name, member in members.items() if on_disk.get(name) is None]
            require_memory(sum(member.file_size for member in read), f"data file {str(path)!r}")
            return {name: on_disk.get(name) or plain_array(file[name], name) for name in members}
    except InputError:
        raise
    except Exception as error:  # on a broken file, zipfile and numpy raise almost anything
        reason = str(error) or type(error).__name__
        if "Object arrays" in reason:
            reason = "it holds an array of Python objects; store text as a str array"
        elif "pickled" in reason:
            reason = "it is not an .npz file"
        raise InputError(f"data file {str(path)!r} cannot be read: {reason}") from error


def _member(archive: ZipFile, name: str) -> ZipInfo:
    """The member that NumPy reads for a name."""
    return archive.getinfo(name if name in archive.namelist() else f"{name}.npy")


def _table(arrays: dict[str, Any], classes: Sequence[str] | None) -> tuple[Table, list[str]]:
    for required in ("images", "labels"):
        if required not in arrays:
            raise InputError(f"there is no array {required!r}; the arrays are {some(arrays, 20)}")
    n = len(checked_images(arrays["images"]))
    for name in ("labels", "id", "group", "track"):
        if name in arrays and arrays[name].shape != (n,):
            raise InputError(f"{name} must have shape ({n},) as there are {n} images, not {arrays[name].shape}")
    ids = tuple(map(str, arrays["id"].tolist())) if "id" in arrays else tuple(map(str, range(n)))
    labels, class_names = labels_of(arrays["labels"], arrays.get("class_names"), classes)
    boxes, notes = checked_boxes(arrays["boxes"], ids) if "boxes" in arrays else (None, [])
    others = {name: array for name, array in arrays.items() if name not in RESERVED}
    conditions = {name: array for name, array in others.items() if array.shape == (n,) and array.dtype.kind in "biufU"}
    unused = [name for name in others if name not in conditions]
    if unused:
        notes.append(f"arrays that are not conditions (numbers or text of length {n}) are not used: {some(unused, 20)}")
    table = Table(
        ids=ids,
        labels=labels,
        class_names=class_names,
        groups=_groups(arrays, ids, [class_names[label] for label in labels]),
        boxes=boxes,
        conditions={name: condition(array) for name, array in conditions.items()},
    )
    return table, table.notes() + notes


def labels_of(
    labels: NDArray[Any], class_names: NDArray[Any] | None, classes: Sequence[str] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Labels as indices (N,), and the class names: those of the file, in the order of `classes` where given."""
    if labels.dtype.kind not in "iuU":
        raise InputError(f"labels must be whole numbers or class names, not {labels.dtype}")
    if class_names is not None and (class_names.ndim != 1 or class_names.dtype.kind != "U"):
        raise InputError(f"class_names must be a list of text, not {class_names.dtype} {class_names.shape}")
    label_names: Sequence[str] | None = classes if class_names is None else class_names.tolist()
    texts = list(map(str, labels.tolist()))
    if label_names is None or labels.dtype.kind == "U":
        index, names = index_labels(texts, label_names)
    else:
        index, names = labels.astype(np.int64), tuple(label_names)
        if index.size and (index.min() < 0 or index.max() >= len(names)):
            raise InputError(f"labels are {index.min()} to {index.max()}, but there are {len(names)} class names")
    return (index, names) if classes is None else by_name([names[label] for label in index], classes)


def _groups(arrays: dict[str, NDArray[Any]], ids: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    if "group" in arrays:
        return tuple(map(str, arrays["group"].tolist()))
    if "track" in arrays:
        return tuple(f"{label}/{track}" for label, track in zip(labels, arrays["track"].tolist(), strict=True))
    return tuple(ids)
