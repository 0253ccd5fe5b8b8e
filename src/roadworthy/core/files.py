"""Files written whole or not at all, so that a kill never leaves half of one."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from roadworthy.core.errors import InputError

TEMPORARY = ".tmp"
"""How the name of a file that is still being written ends."""


def check_name_inside(name: Any) -> str:
    """The name as it is, where it stays in the folder that it is looked up in; else a `ValueError` that says so.

    >>> check_name_inside("media/fog-1.png")
    'media/fog-1.png'
    """
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise ValueError(f"{name!r} leads outside the run, which was tampered with: run the study into another folder")
    return str(name)


def inside(folder: Path, *names: str) -> Path:
    """The path of something in a folder, under names that were read from a file: in this folder and nowhere else.

    A whole path, a `..` or a link that leads out is an `InputError`: an edited record must not choose what is read.
    """
    try:
        path = folder.joinpath(*map(check_name_inside, names))
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise ValueError(f"{'/'.join(names)!r} is a link that leads outside: put the file itself there")
    except ValueError as error:
        raise InputError(f"{folder} cannot be read: {error}") from None
    return path


def check_links_inside(folder: Path) -> None:
    """Refuse a folder that holds a link to something outside it, however deep."""
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            if path.is_symlink():
                inside(folder, str(path.relative_to(folder)))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary neighbour, synced, then renamed."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "something that is not a file is there")
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


def remove(*paths: Path) -> None:
    """Remove files, and folders with all that is in them, in this order."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, whole or not at all."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """What `write_json` writes."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
