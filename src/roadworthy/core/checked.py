"""Stored files that are used only as they were written: their bytes are compared with the hash that is known of them.

What is compared is what is parsed: content is read once, hashed and handed on. A file that is read again and again, by
columns or rows, is hashed once per process, and again where its inode, its size or one of its times is another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path

from roadworthy.core.errors import DamagedFile, UnreadableFile

MOST_IN_MEMORY = 2**23
"""A file of at most so many bytes is read whole, and its bytes are what is parsed; a larger one stays where it is."""
MOST_KNOWN = 50_000
"""Files whose hash is kept, at most."""

Stamp = tuple[int, int, int, int, int]
_known: dict[Path, tuple[Stamp, str]] = {}


def changed_file(path: Path) -> DamagedFile:
    """What is said of a file that is not as it was written."""
    return DamagedFile(f"{path} was changed since it was written: look with roadworthy verify, and run the study again")


def read_checked(path: Path, sha: str | None) -> bytes:
    """The content of a file; a `DamagedFile` where its SHA-256 is another. None: no hash is known of it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(path, error) from None
    check_bytes(path, content, sha)
    return content


def check_bytes(path: Path, content: bytes, sha: str | None) -> None:
    """A `DamagedFile` where the content that was read of a file has another SHA-256."""
    if sha is not None and sha256(content).hexdigest() != sha:
        raise changed_file(path)


@contextmanager
def checked(path: Path, sha: str | None) -> Iterator[bytes | Path]:
    """A file to be parsed: its bytes, or its path where it is large or no hash is known of it (`sha` is None).

    A `DamagedFile` where its SHA-256 is another, also where it was changed while it was parsed.
    """
    if sha is None:
        yield path
        return
    try:
        with path.open("rb") as file:
            stamp = stamp_of(file.fileno())
            known = _known.get(path, (None, ""))
            content = file.read() if stamp[2] <= MOST_IN_MEMORY else None
            if known[0] == stamp and stamp_of(file.fileno()) == stamp:  # it was not written to while it was read
                found = known[1]
            else:
                found = sha256(content).hexdigest() if content is not None else file_digest(file, "sha256").hexdigest()
                if stamp_of(file.fileno()) == stamp:
                    _remember(path, stamp, found)
    except OSError as error:
        raise UnreadableFile(path, error) from None
    if found != sha:
        raise changed_file(path)
    yield path if content is None else content
    if content is None and stamp_of(path) != stamp:
        raise changed_file(path)


def digest_once(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes, computed once per process for as long as the file stays the same."""
    try:
        with path.open("rb") as file:
            stamp = stamp_of(file.fileno())
            known = _known.get(path)
            if known and known[0] == stamp:
                return known[1]
            sha = file_digest(file, "sha256").hexdigest()
            if stamp_of(file.fileno()) == stamp:
                _remember(path, stamp, sha)
            return sha
    except OSError as error:
        raise UnreadableFile(path, error) from None


def _remember(path: Path, stamp: Stamp, sha: str) -> None:
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[path] = stamp, sha


def stamp_of(file: int | Path) -> Stamp:
    """What is another once a file was replaced or written to. The time of its last change cannot be set back."""
    status = os.fstat(file) if isinstance(file, int) else file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
