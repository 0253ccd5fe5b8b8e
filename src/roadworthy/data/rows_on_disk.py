"""Large arrays of a file that stay on disk: rows are read when they are asked for, so no memory holds them.

A member of an .npz file that is stored as it is lies in the archive as one run of bytes, and is read from there. A
compressed one is unpacked once into the cache, by the hash of the archive. Bytes are read, not mapped: mapped pages
count as memory of the process, and a file that is cut while it is mapped ends the process without a word.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.cache import cache_folder
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file

IN_MEMORY = 32 * 2**20
"""Bytes up to which an array is simply read."""
BLOCK = 2**20
CACHED = "arrays"
LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The signature of a member's own header in an archive, and the lengths of its name and its extra field."""


class _OpenFile:
    """A file that stays open for reading at offsets, by several threads at once, as long as something refers to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._opened = self._state()

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):  # it could not be opened
            os.close(self._descriptor)

    def __reduce__(self) -> tuple[type[_OpenFile], tuple[Path]]:
        return _OpenFile, (self.path,)

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def fill(self, buffer: memoryview, offset: int) -> None:
        """Read as many bytes as the buffer has; an `InputError` where the file is not what it was at first."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
            if not count:
                break
            done += count
        if done < len(buffer) or self._state() != self._opened:
            raise InputError(f"data file {str(self.path)!r} was changed while it was used: run again")


class RowsOnDisk:
    """An array (N, ...) in a file, C order, of which rows are read when they are asked for.

    `array[index]` with row numbers (M,) is an array of its own in memory; `take` and `reshape` read nothing.
    """

    def __init__(
        self,
        file: _OpenFile,
        offset: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self._file, self._offset, self._rows, self._stored = file, offset, rows, shape
        self.dtype, self.shape = dtype, shape if rows is None else (len(rows), *shape[1:])
        self.ndim = len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: NDArray[np.int64]) -> NDArray[Any]:
        rows = index if self._rows is None else self._rows[index]
        if len(rows) and not 0 <= rows.min() <= rows.max() < self._stored[0]:
            raise IndexError(f"rows {rows.min()} to {rows.max()} of an array of {self._stored[0]}")
        result = np.empty((len(rows), *self.shape[1:]), self.dtype)
        size = result[:1].nbytes
        content = result.reshape(-1).view(np.uint8).data
        breaks = (np.flatnonzero(np.diff(rows) != 1) + 1).tolist()
        for start, stop in pairwise([0, *breaks, len(rows)]) if len(rows) else ():
            self._file.fill(content[start * size : stop * size], self._offset + int(rows[start]) * size)
        return result

    def take(self, rows: NDArray[np.int64]) -> RowsOnDisk:
        """Some of the rows, in the order given."""
        chosen = rows if self._rows is None else self._rows[rows]
        return RowsOnDisk(self._file, self._offset, self._stored, self.dtype, chosen)

    def reshape(self, shape: tuple[int, ...]) -> RowsOnDisk:
        """The same bytes row by row in another form, such as with one more axis of length 1."""
        return RowsOnDisk(self._file, self._offset, (self._stored[0], *shape[1:]), self.dtype, self._rows)


def rows_of_file(path: Path, shape: tuple[int, ...], offset: int = 0) -> RowsOnDisk:
    """The bytes of a file from `offset` on as an array of that shape, uint8 in C order; the file must be as long."""
    return RowsOnDisk(_OpenFile(path), offset, shape, np.dtype(np.uint8))


def rows_of_npy(path: Path) -> RowsOnDisk:
    """The array of an .npy file, which must be plain bytes in C order; any other is a `ValueError` that says so."""
    with path.open("rb") as file:
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise ValueError(f"its version {version} is unknown")
        shape, fortran, dtype = readers[version](file)
        start, end = file.tell(), file.seek(0, os.SEEK_END)
    if dtype != np.uint8 or fortran or len(shape) < 2 or min(shape) < 1:
        raise ValueError(f"it must hold uint8 in C order, not {dtype} {shape}")
    if start + int(np.prod(shape, dtype=object)) != end:
        raise ValueError("it is cut, or longer than its header says")
    return RowsOnDisk(_OpenFile(path), start, shape, dtype)


def rows_on_disk(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> RowsOnDisk | None:
    """A large array of an archive that can stay on disk, its check sum verified; None where it is to be read.

    It is to be read where it is small, no plain array of bytes in C order, encrypted, or where neither archive nor
    cache can hold it.
    """
    if member.file_size <= IN_MEMORY or _form(archive, member) is None:
        return None
    if is_plain(member):
        for _ in _blocks(archive, member):  # verifies the check sum
            pass
        return _opened(_OpenFile(path), _start(path, member), archive, member)
    unpacked = _unpacked(archive, member, path)
    return None if unpacked is None else _opened(unpacked, 0, archive, member)


def is_plain(member: zipfile.ZipInfo) -> bool:
    """Whether a member lies in its archive as it is, so that it takes no more than the file has."""
    return member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size


def _form(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[int, tuple[int, ...], np.dtype[Any]] | None:
    """Length of the header, shape and type of a member that is a plain array of bytes; None where it is another."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with archive.open(member) as file:
            shape, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
            header = file.tell()
    except Exception:  # whatever is wrong with it, who reads it whole says so
        return None
    whole = header + int(np.prod(shape, dtype=object)) * dtype.itemsize == member.file_size
    plain = dtype.kind in "bu" and dtype.itemsize == 1 and not fortran and len(shape) > 1 and min(shape) > 0
    return (header, shape, dtype) if whole and plain else None


def _opened(file: _OpenFile, start: int, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> RowsOnDisk:
    form = _form(archive, member)
    assert form is not None
    header, shape, dtype = form
    return RowsOnDisk(file, start + header, shape, dtype)


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin in its archive; `zipfile` has compared its own header with the index."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        signature, name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
        start = member.header_offset + LOCAL_HEADER.size + int(name) + int(extra)
        end = file.seek(0, os.SEEK_END)
    if signature != b"PK\x03\x04" or start + member.file_size > end:
        raise zipfile.BadZipFile(f"Bad header of member {member.filename!r}")
    return start


def _blocks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """The bytes of a member, some at a time; `zipfile` compares their check sum after the last of them."""
    with archive.open(member) as file:
        while block := file.read(BLOCK):
            yield block


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> _OpenFile | None:
    """The unpacked member in the cache, from an earlier run where it is whole; None where the cache cannot hold it."""
    folder = cache_folder(CACHED)
    target = folder / f"{digest_file(path)}-{Path(member.filename).name}"
    with suppress(OSError):
        known = _OpenFile(target)
        if target.stat().st_size == member.file_size and _check_sum(target) == member.CRC:
            return known
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < member.file_size:
            raise OSError("no space is left there")
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as temporary:
            _fill(temporary, archive, member, target)
        return _OpenFile(target)
    except OSError as error:
        warnings.warn(
            f"{member.filename} of {path.name} is held in memory, {member.file_size / 1e6:,.0f} MB, since it cannot be "
            f"unpacked into {folder}: {error.strerror or error}",
            stacklevel=2,
        )
        return None


def _fill(temporary: IO[bytes], archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    """Write the member whole under its name in the cache, or leave nothing there."""
    written = Path(temporary.name)
    try:
        for block in _blocks(archive, member):
            temporary.write(block)
        temporary.close()
        written.replace(target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _check_sum(path: Path) -> int:
    total = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            total = zlib.crc32(block, total)
    return total
