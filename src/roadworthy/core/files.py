"""Files written whole or not at all, so that a kill never leaves half of one."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"
"""How the name of a file that is still being written ends."""


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
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace"))
