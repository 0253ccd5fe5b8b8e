"""The lock of a folder: one process writes at a time, and the lock dies with it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO

from roadworthy.core.errors import InputError

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What a file system answers that knows no locks."""


def is_held(lock: Path) -> bool:
    """Whether another process holds the lock file; False where there is none, or no locks for readers."""
    if not lock.is_file():
        return False
    with contextlib.suppress(OSError), lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold the lock file of a folder, which is made where it is missing; a second holder is refused at once."""
    folder = lock.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    with file, _not_in_children(file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another process is writing to {folder}: wait for it or choose another folder") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            raise InputError(
                f"the file system of {folder} knows no locks ({error.strerror}), so that two runs could write "
                "there at once: choose a folder on another one with `out=`"
            ) from None
        yield


_HELD: set[IO[str]] = set()
"""The locks that this process holds."""


@contextlib.contextmanager
def _not_in_children(lock: IO[str]) -> Iterator[None]:
    """Close a lock in what this process forks: a child of a model that outlives it must not keep the run locked."""
    _close_in_children()
    _HELD.add(lock)
    try:
        yield
    finally:
        _HELD.discard(lock)


@cache
def _close_in_children() -> None:
    def close() -> None:
        for lock in _HELD:
            lock.close()

    os.register_at_fork(after_in_child=close)
