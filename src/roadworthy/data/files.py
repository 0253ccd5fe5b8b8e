"""Data sets whose images are files, or encoded like files and kept elsewhere; decoded by all cores when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.data.base import OpenedDataset, Opening, Size, deliver, empty_images, row_index
from roadworthy.data.images import (
    StoredForm,
    conversion_note,
    decode,
    decode_fast,
    decode_mask,
    decode_noting,
    header,
    read,
    resize,
    resize_mask,
)
from roadworthy.data.parallel import Progress, in_threads
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table, check_boxes_inside

Outcome = TypeVar("Outcome")
_MOST_NAMED = 3


class Encoded(Protocol):
    """The bytes of an image file that is not a file of its own: in an archive, a table, a copy on disk.

    Its text names it in messages.
    """

    def read(self) -> bytes:
        """The bytes, the same each time; an `InputError` where they cannot be read."""
        ...


ImageSource = Path | Encoded


@dataclass(frozen=True)
class Listing:
    """The images that a loader lists: the table, a file for every row, maybe a mask file for every row, and notes.

    `annotated` (N, 2) are the heights and widths that the images must have, since their boxes are for these. `windows`
    (N, 4) are the parts x0, y0, x1, y1 of the images that the rows are.
    """

    table: Table
    paths: tuple[ImageSource, ...]
    masks: tuple[Path, ...] | None = None
    notes: list[str] = field(default_factory=list)
    annotated: NDArray[np.int64] | None = None
    windows: NDArray[np.int64] | None = None

    def take(self, rows: NDArray[np.int64]) -> Listing:
        """Some of the rows, in the order given."""
        return Listing(
            table=self.table.take(rows),
            paths=tuple(self.paths[row] for row in rows),
            masks=None if self.masks is None else tuple(self.masks[row] for row in rows),
            notes=self.notes,
            annotated=None if self.annotated is None else self.annotated[rows],
            windows=None if self.windows is None else self.windows[rows],
        )


@dataclass(frozen=True)
class _Check:
    """An image that can be decoded: its size, how it is stored, the hash of its bytes, and whether the fast decoder
    gives the same.
    """

    size: Size
    form: StoredForm
    content: str
    fast: bool


@dataclass(frozen=True)
class _Measured:
    """The size of an image and how it is stored; `check` where it had to be decoded for that."""

    size: Size
    form: StoredForm
    check: _Check | None = None


class FileDataset(OpenedDataset):
    """Images in files. Opening reads the headers; `verify_all` or `fingerprint` decodes and hashes each file once.

    Those with an alpha channel or 16 bits are decoded when it is opened: a note says how many images are converted.

    With `on_bad_image="skip"`, opening does both, and leaves out what cannot be decoded.
    """

    channels = 3

    def __init__(self, listing: Listing, opening: Opening) -> None:
        rows_taken = rows_over_classes(listing.table, opening.limit, opening.seed)
        listing = replace(listing.take(rows_taken), table=listing.table.limited(rows_taken))
        self._keep(listing)
        self._hashes: dict[str, str] = {}
        self._checked: set[str] = set()
        self._fast: set[str] = set()
        rows = range(len(self._paths))
        if opening.on_bad_image == "skip":
            checked, problems = _attempt(self._check, rows, opening.progress)
            listing = self._without(listing, problems)
            seen: list[_Check | _Measured] = [*checked.values()]
            self._remember(listing.table.ids, checked.values())
        else:
            measured, problems = _attempt(self._measure, rows, opening.progress)
            _raise(problems, len(rows))
            seen = [*measured.values()]
            known = {listing.table.ids[row]: own.check for row, own in measured.items() if own.check is not None}
            self._remember(known, known.values())
        stored, converted = [own.size for own in seen], conversion_note([own.form for own in seen])
        self.name, self.notes, self.table = opening.name, (*converted, *listing.notes), listing.table
        self.class_names = self.table.class_names
        self._stored = np.array(stored, dtype=np.int64)
        if self.table.boxes is not None:
            check_boxes_inside(self.table.boxes, self._stored, self.ids)
        self.size = opening.choose_size(self.native_size())

    def native_size(self) -> Size | None:
        """(H, W) of the images as stored, upright; None where they differ."""
        height, width = self._stored[0].tolist()
        return (height, width) if (self._stored == self._stored[0]).all() else None

    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Decode some images, in the order given."""
        index = row_index(rows, len(self))
        images = empty_images(len(index), self.size, self.channels)
        masks = None if self._masks is None else np.empty((len(index), *self.size), dtype=np.bool_)

        def fill(position: int) -> None:
            row = int(index[position])
            pixels = self._decode(row)
            images[position] = resize(pixels, self.size)
            if masks is not None:
                masks[position] = resize_mask(self._mask(row, pixels)[0], self.size)

        in_threads(fill, range(len(index)))
        return deliver(self.table, index, images, masks, self._stored[index])

    def content(self, rows: Sequence[int], progress: Progress | None = None) -> list[str]:
        """SHA-256 of the bytes of each file (and its mask's); all are decoded once, and the bad named in an error."""
        new = [row for row in rows if self.ids[row] not in self._checked]
        checked, problems = _attempt(self._check, new, progress)
        _raise(problems, len(new))
        self._remember([self.ids[row] for row in checked], checked.values())
        return [self._hashes[self.ids[row]] for row in rows]

    def identity(self, rows: Sequence[int]) -> list[str]:
        """The hashes that `content` gives, of files that are read and not decoded."""
        new = [row for row in rows if self.ids[row] not in self._hashes]
        hashes, problems = _attempt(self._hash, new, None)
        _raise(problems, len(new))
        self._hashes.update((self.ids[row], content) for row, content in hashes.items())
        return [self._hashes[self.ids[row]] for row in rows]

    def _keep(self, listing: Listing) -> None:
        self._paths, self._masks = listing.paths, listing.masks
        self._annotated, self._windows = listing.annotated, listing.windows

    def _measure(self, row: int) -> _Measured:
        """The size of a row and how it is stored, from the header of its image where that says enough."""
        source = self._paths[row]
        size, form = header(source) if isinstance(source, Path) else header(source.read(), name=str(source))
        size = self._size(row, size)
        if form is not None:
            return _Measured(size, form)
        check = self._check(row)
        return _Measured(size, check.form, check)

    def _size(self, row: int, size: Size) -> Size:
        """The size of a row whose image has that size, which must be the annotated one."""
        if self._annotated is not None and tuple(self._annotated[row].tolist()) != size:
            height, width = self._annotated[row].tolist()
            raise InputError(
                f"image {str(self._paths[row])!r} has {size[1]} x {size[0]} pixels, but its annotations are for "
                f"{width} x {height}: use the pictures that were annotated"
            )
        if self._windows is None:
            return size
        x0, y0, x1, y1 = self._windows[row].tolist()
        return y1 - y0, x1 - x0

    def _part(self, row: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The part of an image that a row is."""
        if self._windows is None:
            return pixels
        x0, y0, x1, y1 = self._windows[row].tolist()
        return np.ascontiguousarray(pixels[y0:y1, x0:x1])

    def _remember(self, ids: Iterable[str], checks: Iterable[_Check]) -> None:
        for name, check in zip(ids, checks, strict=True):
            self._hashes[name] = check.content
            self._checked.add(name)
            if check.fast:
                self._fast.add(name)

    def _decode(self, row: int) -> NDArray[np.uint8]:
        """The pixels of a row: those that were checked, if they were; by the fast decoder where it gives the same."""
        name, path = self.ids[row], self._paths[row]
        data = _content(path)
        known = self._hashes.get(name)
        if known is not None and not known.startswith(hashlib.sha256(data).hexdigest()):
            raise InputError(f"image {str(path)!r} changed while it was in use: start again")
        pixels = decode_fast(data) if name in self._fast else None
        if pixels is None:
            pixels = decode(data, name=str(path))
        if self._size(row, pixels.shape[:2]) != tuple(self._stored[row]):
            raise InputError(f"image {str(path)!r} changed its size while it was in use: start again")
        return self._part(row, pixels)

    def _check(self, row: int) -> _Check:
        """Read, hash and decode an image and its mask."""
        data = _content(self._paths[row])
        pixels, form = decode_noting(data, name=str(self._paths[row]))
        mask = None if self._masks is None else self._mask(row, pixels)[1]
        fast = decode_fast(data)
        same = fast is not None and np.array_equal(pixels, fast)
        return _Check(self._size(row, (pixels.shape[0], pixels.shape[1])), form, self._digest(row, data, mask), same)

    def _hash(self, row: int) -> str:
        """The hash of the bytes of an image and its mask."""
        return self._digest(row, _content(self._paths[row]), None if self._masks is None else read(self._masks[row]))

    def _digest(self, row: int, data: bytes, mask: bytes | None) -> str:
        """The hash of a row whose image and mask have these bytes, with the part of the image that it is."""
        content = hashlib.sha256(data).hexdigest() + ("" if mask is None else hashlib.sha256(mask).hexdigest())
        return content if self._windows is None else f"{content} {self._windows[row].tolist()}"

    def _mask(self, row: int, pixels: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], bytes]:
        """The mask of a row, which must fit its pixels, and the bytes of its file."""
        assert self._masks is not None
        name = str(self._masks[row])
        data = read(name)
        mask = decode_mask(data, name=name)
        if mask.shape != pixels.shape[:2]:
            raise InputError(f"mask {name!r} has size {mask.shape}, its image {pixels.shape[:2]}: they must be equal")
        return mask, data

    def _without(self, listing: Listing, problems: dict[int, InputError]) -> Listing:
        """What is left without the bad images, which are recorded."""
        n = len(listing.paths)
        if len(problems) == n:
            _raise(problems, n)
        self.bad_images = tuple((listing.table.ids[row], str(problem)) for row, problem in problems.items())
        kept = listing.take(np.array([row for row in range(n) if row not in problems], dtype=np.int64))
        self._keep(kept)
        if problems:
            kept.notes.append(f"{len(problems)} of {n} images cannot be read and were left out")
        return kept


def _content(source: ImageSource) -> bytes:
    return read(source) if isinstance(source, Path) else source.read()


def _attempt(
    function: Callable[[int], Outcome], rows: Sequence[int], progress: Progress | None
) -> tuple[dict[int, Outcome], dict[int, InputError]]:
    """What the function gives for every row, and the errors of those rows that have one."""

    def attempt(row: int) -> Outcome | InputError:
        try:
            return function(row)
        except InputError as error:
            return error

    results = dict(zip(rows, in_threads(attempt, rows, progress), strict=True))
    return (
        {row: result for row, result in results.items() if not isinstance(result, InputError)},
        {row: result for row, result in results.items() if isinstance(result, InputError)},
    )


def _raise(problems: dict[int, InputError], n: int) -> None:
    """Raise one error for all problems, if there are any."""
    if not problems:
        return
    named = "; ".join(str(problem) for problem in list(problems.values())[:_MOST_NAMED])
    more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    raise InputError(
        f"{len(problems)} of {n} images cannot be used: {named}{more}. "
        "Repair or remove them, or leave them out with `on_bad_image='skip'`"
    )
