"""Files written whole or not at all, so that a kill never leaves half of one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from roadworthy.core.hashing import digest_file

TEMPORARY = ".tmp"
"""How the name of a file that is still being written ends."""
RECEIPT = ".sha256"
"""How the name of the receipt of a file ends, which a part has until what it is a part of is finished."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary neighbour, synced, then renamed."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "something that is no file is there")
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, whole or not at all."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """What `write_json` writes."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def receipt_path(path: Path) -> Path:
    """Where the receipt of a file lies: beside it."""
    return path.with_name(path.name + RECEIPT)


def write_receipt(path: Path) -> None:
    """Note the SHA-256 of a file beside it, so that it is seen whether the file stays as it was written."""
    receipt_path(path).write_text(digest_file(path))


def has_receipt(path: Path, sha: str | None = None) -> bool:
    """True where a file is as its receipt says; `sha` is its SHA-256 where that is known already."""
    try:
        return receipt_path(path).read_bytes() == (sha or digest_file(path)).encode()
    except OSError:
        return False
