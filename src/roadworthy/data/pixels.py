"""Pictures as objects of other libraries, turned into uint8 exactly or refused; and data sets made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Opening, Size, deliver, empty_images, row_index
from roadworthy.data.files import FileDataset, Listing
from roadworthy.data.images import StoredForm, conversion_note, pillow_form, pillow_pixels, resize
from roadworthy.data.parallel import Progress
from roadworthy.data.spool import Spool, SpooledImage
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table, check_boxes_inside

EXACT = 1e-3
"""How far a value times 255 may lie from a whole number to count as one of 256 levels."""


def as_pixels(value: Any, name: str) -> NDArray[np.uint8]:
    """A picture (H, W, 1 or 3) uint8 from a Pillow image, an array or a tensor; what is not one is an `InputError`.

    Arrays and tensors are uint8, or floats from 0 to 1 that are whole levels of 255, grey (H, W) or with their channels
    first or last. The message calls the picture `name`.

    >>> as_pixels(np.full((3, 4, 5), 0.2), "row 0")[0, 0].tolist()
    [51, 51, 51]
    >>> as_pixels(np.full((4, 5, 3), 7), "row 0")
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: row 0: its values are int64: give uint8, 0 to 255, or floats from 0 to 1
    """
    if isinstance(value, Image.Image):
        return pillow_pixels(value, name)
    channels_first = hasattr(value, "detach")
    if channels_first:  # a torch tensor
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise InputError(f"{name}: a picture is a Pillow image, an array or a tensor, not {type(value).__name__}")
    return np.ascontiguousarray(_levels(_channels_last(value, channels_first, name), name))


def _channels_last(array: NDArray[Any], channels_first: bool, name: str) -> NDArray[Any]:
    if array.ndim == 2 and array.size:
        return array[..., None]
    if array.ndim != 3 or not array.size:
        raise InputError(f"{name}: a picture has shape (H, W), (H, W, C) or (C, H, W), not {array.shape}")
    first, last = array.shape[0] in (1, 3), array.shape[2] in (1, 3)
    if not first and not last:
        raise InputError(f"{name}: a picture has 1 or 3 channels, first or last; its shape is {array.shape}")
    return array.transpose(1, 2, 0) if first and (channels_first or not last) else array


def _levels(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """The values as uint8, unchanged or times 255."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise InputError(f"{name}: its values are {array.dtype}: give uint8, 0 to 255, or floats from 0 to 1")
    if not np.isfinite(array).all():
        raise InputError(f"{name}: its values are not all finite numbers")
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1 + EXACT / 255:
        raise InputError(
            f"{name}: its values are from {low:.4g} to {high:.4g}, as after Normalize: leave it out, since the adapter "
            "of the model normalises (`range=`), and give uint8 or floats from 0 to 1"
        )
    levels = array.astype(np.float64) * 255
    if np.abs(levels - np.round(levels)).max() > EXACT:
        raise InputError(
            f"{name}: its values lie between the 256 levels of a stored picture: leave out what computes with floats "
            "(Normalize, Resize or augmentation after ToTensor), or do it before, on the picture"
        )
    return np.round(levels).astype(np.uint8)


class PixelDataset(OpenedDataset):
    """Decoded pictures of any sizes in a spool, a row each; grey where all of them are, else RGB.

    Its fingerprint is that of the same pictures in arrays.
    """

    def __init__(
        self, table: Table, spool: Spool, shapes: Sequence[tuple[int, int, int]], opening: Opening, notes: Iterable[str]
    ) -> None:
        rows = rows_over_classes(table, opening.limit, opening.seed)
        self._spool, self._rows = spool, rows
        self._shapes = np.array(shapes, dtype=np.int64).reshape(-1, 3)[rows]
        self.channels = int(self._shapes[:, 2].max())
        self.name, self.notes, self.table = opening.name, tuple(notes), table.limited(rows)
        self.class_names = table.class_names
        self._hashes: dict[str, str] = {}
        if self.table.boxes is not None:
            check_boxes_inside(self.table.boxes, self._shapes[:, :2], self.ids)
        self.size = opening.choose_size(self.native_size())

    def native_size(self) -> Size | None:
        """(H, W) of the pictures as read; None where they differ."""
        height, width = self._shapes[0, :2].tolist()
        return (height, width) if (self._shapes[:, :2] == self._shapes[0, :2]).all() else None

    def _pixels(self, row: int) -> NDArray[np.uint8]:
        content = self._spool.read(int(self._rows[row]))
        picture = np.frombuffer(content, np.uint8).reshape(self._shapes[row])
        return picture if picture.shape[2] == self.channels else np.repeat(picture, self.channels, axis=2)

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Some pictures, in the order given."""
        index = row_index(rows, len(self))
        images = empty_images(len(index), self.size, self.channels)
        for position, row in enumerate(index.tolist()):
            images[position] = resize(self._pixels(row), self.size)
        return deliver(self.table, index, images, None, self._shapes[index, :2])

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """SHA-256 of the values of each picture."""
        for row in rows:
            if self.ids[row] not in self._hashes:
                pixels = self._pixels(row)
                sha = hashlib.sha256(f"{pixels.shape}".encode())
                sha.update(np.ascontiguousarray(pixels).data)
                self._hashes[self.ids[row]] = sha.hexdigest()
        return [self._hashes[self.ids[row]] for row in rows]


class PictureRows:
    """Pictures read one after the other, once: encoded ones as they are, all others as pixels; kept in a spool."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._spool = Spool(what)
        self._shapes: list[tuple[int, int, int]] = []
        self._names: list[str] = []
        self._forms: list[StoredForm] = []

    def __len__(self) -> int:
        return len(self._spool)

    def add(self, picture: bytes | Any, name: str) -> None:
        """Keep the bytes of an image file, or the pixels of a picture as an object: see `as_pixels`."""
        if isinstance(picture, bytes):
            self._spool.add(picture)
        else:
            pixels = as_pixels(picture, name)
            self._shapes.append((pixels.shape[0], pixels.shape[1], pixels.shape[2]))
            form = pillow_form(picture, name) if isinstance(picture, Image.Image) else StoredForm()
            self._forms.append(replace(form, grey=pixels.shape[2] == 1))
            self._spool.add(pixels.tobytes())
        self._names.append(name)
        if self._shapes and len(self._shapes) != len(self._names):
            raise InputError(f"{name}: some pictures of {self._what} are encoded files, others are not: give one kind")

    def pixels(self, row: int) -> NDArray[np.uint8]:
        """A picture that was added as an object."""
        return np.frombuffer(self._spool.read(row), np.uint8).reshape(self._shapes[row])

    def dataset(self, table: Table, opening: Opening, notes: list[str]) -> OpenedDataset:
        """The pictures as a data set, whose rows the table describes."""
        if self._shapes:
            stay_grey = all(form.grey for form in self._forms)
            forms = [replace(form, grey=False) for form in self._forms] if stay_grey else self._forms
            return PixelDataset(table, self._spool, self._shapes, opening, [*conversion_note(forms), *notes])
        sources = tuple(SpooledImage(self._spool, row, name) for row, name in enumerate(self._names))
        return FileDataset(Listing(table, sources, notes=notes), opening)
