"""A disk that is full at a chosen write, and one that loses the end of a file without a word."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

Chooses = Callable[[str], bool]
"""Whether the write of a file, by its name from the run's folder, is the one that fails."""


class Full:
    """A file of a full disk: it can be opened, but takes nothing more than a first byte."""

    def __init__(self, file: IO[Any]) -> None:
        self._file = file

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: Any) -> int:
        self._file.write(content[:1])
        self._file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def full_disk(folder: Path, chooses: Chooses, *, at_open: bool = False) -> Iterator[list[str]]:
    """Let writes to files below a folder fail that are chosen, once opened or already then; yields all that began.

    Temporary files count by the name of the file that they become.
    """
    begun: list[str] = []
    opens, opens_descriptor = Path.open, os.open

    def opening(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+") or not path.is_relative_to(folder):
            return opens(path, mode, *args, **options)
        name = path.relative_to(folder).as_posix()
        name = re.sub(r"\.\d+\.tmp$", "", name)
        begun.append(name)
        if not chooses(name):
            return opens(path, mode, *args, **options)
        if at_open:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return Full(opens(path, mode, *args, **options))

    def opening_descriptor(path: Any, flags: int, *args: Any, **options: Any) -> int:
        """Locks are opened so."""
        if flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY) and Path(path).is_relative_to(folder.absolute()):
            begun.append(Path(path).relative_to(folder.absolute()).as_posix())
            if chooses(begun[-1]) and at_open:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opens_descriptor(path, flags, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", opening)
        patch.setattr(os, "open", opening_descriptor)
        yield begun


@contextmanager
def losing_disk(number: int) -> Iterator[list[int]]:
    """Let the disk keep half of the file of that number, counted from 0, and say nothing; yields what was synced."""
    synced: list[int] = []
    sync = os.fsync

    def syncing(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == number + 1:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", syncing)
        yield synced
