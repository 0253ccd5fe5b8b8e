"""The lock of a folder: one process writes at a time, and the lock dies with it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
from collections.abc import Iterator
from pathlib import Path

from roadworthy.core.errors import InputError

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What a file system answers that knows no locks."""

READERS_ASK = 0.1
"""Seconds: `is_held` has the lock for less than that, and so refuses nobody."""


def is_held(lock: Path) -> bool:
    """Whether another process holds the lock file; False where there is none, or no locks for readers.

    Readers ask for a shared lock, which filelock does not have.
    """
    if not lock.is_file():
        return False
    with contextlib.suppress(OSError), lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock file of a folder, both made where they are missing; a second holder is refused.

    Processes that are forked meanwhile do not keep it. A reader that just asks whether it is held does not count.
    """
    from filelock import FileLock, Timeout

    folder, lock = path.parent, FileLock(path, timeout=READERS_ASK, fallback_to_soft=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(poll_interval=READERS_ASK / 10)
    except Timeout:
        raise InputError(f"another process is writing to {folder}: wait for it or choose another folder") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise InputError(f"cannot write to {folder}: {error.strerror}") from None
        raise InputError(
            f"the file system of {folder} knows no locks ({error.strerror}), so that two runs could write there at "
            "once: choose a folder on another one with `out=`"
        ) from None
    try:
        yield
    finally:
        lock.release()
