"""What was read once from somewhere that cannot be read again: kept in memory while it is small, then in a file."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import IO

from roadworthy.core.cache import cache_folder
from roadworthy.core.errors import InputError

IN_MEMORY = 32 * 2**20
"""Bytes up to which everything stays in memory."""
FOLDER = "spool"


class Spool:
    """Pieces of bytes in the order in which they were added, read by number, by several threads at once.

    The file lies in the cache without a name: it is gone when this is, however the process ends.

    >>> spool = Spool("a stream")
    >>> spool.add(b"first"), spool.add(b"second"), spool.read(1)
    (0, 1, b'second')
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._starts = [0]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, content: bytes) -> int:
        """Keep a piece; gives its number."""
        if self._file is None and self._starts[-1] + len(content) > IN_MEMORY:
            self._file = self._moved_to_disk()
        if self._file is None:
            self._pieces.append(content)
        else:
            self._write(self._file, content)
        self._starts.append(self._starts[-1] + len(content))
        return len(self) - 1

    def read(self, number: int) -> bytes:
        """A piece by its number."""
        if self._file is None:
            return self._pieces[number]
        start, end = self._starts[number : number + 2]
        content = os.pread(self._file.fileno(), end - start, start)
        if len(content) != end - start:
            raise InputError(
                f"the copy of {self._what} in {cache_folder(FOLDER)} was changed while it was used: run again"
            )
        return content

    def _moved_to_disk(self) -> IO[bytes]:
        folder = cache_folder(FOLDER)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (it lives as long as the spool)
        except OSError as error:
            raise self._full(error) from error
        for piece in self._pieces:
            self._write(file, piece)
        self._pieces = []
        return file

    def _write(self, file: IO[bytes], content: bytes) -> None:
        try:
            left = memoryview(content)
            while len(left):
                left = left[file.write(left) :]
        except OSError as error:
            raise self._full(error) from error

    def _full(self, error: OSError) -> InputError:
        return InputError(
            f"{self._what} is copied into {cache_folder(FOLDER)} while it is read, which fails: "
            f"{error.strerror or error}; make room, or name another folder in ROADWORTHY_CACHE"
        )


@dataclass(frozen=True)
class SpooledImage:
    """An encoded image in a spool."""

    spool: Spool
    number: int
    name: str

    def read(self) -> bytes:
        """Its bytes."""
        return self.spool.read(self.number)

    def __str__(self) -> str:
        return self.name
