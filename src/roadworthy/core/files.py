"""Files written whole or not at all, so that a kill never leaves half of one."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from roadworthy.core.errors import InputError

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""What a file system answers that gives a file no second name."""
TEMPORARY = ".tmp"
"""How the name of a file that is still being written ends, after the number of the process that writes it."""

MOST_FILES = 100_000
"""Names in a folder that is searched for files, at most."""


def is_temporary(name: str) -> bool:
    """True of a file that is still being written, or was left by a writer that was killed.

    >>> is_temporary("run.json.4711.tmp"), is_temporary("notes.tmp")
    (True, False)
    """
    return re.fullmatch(rf".+\.\d+{re.escape(TEMPORARY)}", name) is not None


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


def check_inside(folder: Path, names: Iterable[str]) -> None:
    """The same check of many names at once: folders are resolved once each, and of a part only whether it is a link."""
    resolved: set[str] = set()
    for name in names:
        above, _, last = name.rpartition("/") if isinstance(name, str) else ("", "", "")
        if above not in resolved or not last or "\0" in name or last == ".." or (folder / name).is_symlink():
            inside(folder, name)
            resolved.add(above)


def files_below(folder: Path, what: str, most: int = MOST_FILES) -> list[Path]:
    """What a folder and those below it hold besides folders; links to folders are not followed.

    A folder that cannot be read, or holds more than `most` names, is an `InputError`: somebody named a whole disk.
    """

    def refuse(error: OSError) -> None:
        raise InputError(f"the folder {error.filename} cannot be read: {error.strerror}")

    count, paths = 0, []
    for above, folders, files in os.walk(folder, onerror=refuse):
        count += len(folders) + len(files)
        if count > most:
            raise InputError(f"{folder} holds more than {most:,} files: {what} is expected there, name it")
        paths += [Path(above, name) for name in files]
    return paths


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
            if (written := os.fstat(file.fileno()).st_size) != len(content):
                raise OSError(errno.EIO, f"only {written:,} of {len(content):,} bytes were written")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def create_whole(path: Path, content: bytes) -> None:
    """Create a file exclusively, whole or not at all: a `FileExistsError` where one of that name is there already."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{threading.get_ident()}{TEMPORARY}")
    try:
        temporary.write_bytes(content)
        os.link(temporary, path)  # never over another
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        with path.open("xb") as file:
            file.write(content)
    finally:
        temporary.unlink(missing_ok=True)


def remove(*paths: Path) -> None:
    """Remove files, and folders with all that is in them, in this order."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds nothing any more."""
    with suppress(OSError):
        folder.rmdir()


def write_json(path: Path, value: Any) -> None:
    """Write JSON that people can read, whole or not at all."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """What `write_json` writes."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
