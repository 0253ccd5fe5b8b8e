"""What lies in the folder of a run, against what its record names: whatever is changed, missing, foreign or left."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from roadworthy.core.checked import changed_file, digest_once
from roadworthy.core.errors import DamagedFile
from roadworthy.core.files import is_temporary, json_bytes
from roadworthy.core.hashing import digest_file, sealed, unsealed
from roadworthy.core.manifests import MANIFEST, RECEIPT, is_committed, named_parts
from roadworthy.core.record import RECORD, RunRecord
from roadworthy.engine.folder import ENDINGS, LOCK, NODES, RunFolder

FILE, FOLDER, LINK = "file", "folder", "link"
"""Kinds of what lies in a folder; the others have their own names."""
OTHERS = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device"}


def contents(folder: Path) -> dict[str, str]:
    """The kind of everything below a folder by its name from there, in a stable order; no link is followed."""
    return dict(_contents(folder, folder))


def _contents(folder: Path, start: Path) -> Iterator[tuple[str, str]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        mode = entry.stat(follow_symlinks=False).st_mode
        kind = LINK if stat.S_ISLNK(mode) else FOLDER if stat.S_ISDIR(mode) else FILE
        yield Path(entry.path).relative_to(start).as_posix(), OTHERS.get(stat.S_IFMT(mode), kind)
        if kind == FOLDER:
            yield from _contents(Path(entry.path), start)


def file_problems(folder: RunFolder, absent: Collection[str] = ()) -> list[str]:
    """What is wrong with the files of a finished run, a sentence each; what is in them is for others to judge.

    Files that are missing or not as recorded come first, then what the run does not name: files, links, folders. Those
    of the names `absent` may be missing.
    """
    recorded, present = folder.hashes(), contents(folder.path)
    files = {name for name, kind in present.items() if kind == FILE}
    problems = [changed] if (changed := record_problem(folder)) else []
    problems += [f"{name} is missing" for name in recorded if name not in present and name not in absent]
    problems += [f"{name} is a {present[name]}, not a file" for name in recorded if present.get(name, FILE) != FILE]
    problems += [problem for name in sorted(files & {*recorded}) if (problem := _change(folder, name, recorded[name]))]
    if present.get(LOCK, FILE) != FILE or (LOCK in present and (folder.path / LOCK).stat().st_size):
        problems.append(f"{LOCK} was changed: it is an empty file")
    return problems + [f"{name} {why}" for name, why in strays(folder, present, recorded).items()]


def check_recorded(folder: RunFolder, absent: Collection[str] = ()) -> None:
    """A `DamagedFile` where a file that a run names is missing or not as recorded, but for those of the names `absent`.

    A file more than these is no matter.
    """
    folder.record()
    for name, sha in folder.hashes().items():
        path = folder.path / name
        if name not in absent and not path.is_file():
            raise DamagedFile(f"{path} is missing: look with roadworthy verify, and run the study again")
        if name not in absent and digest_once(path) != sha:
            raise changed_file(path)


def record_problem(folder: RunFolder) -> str:
    """What is wrong with run.json by its seal; "" where it is as it was written, or of a version without seals."""
    text = (folder.path / RECORD).read_text(encoding="utf-8")
    if "digest" not in json.loads(text):
        return ""
    try:
        as_written = json_bytes(sealed(unsealed(text)))
    except ValueError:
        as_written = b""
    return "" if text.encode() == as_written else f"{RECORD} was changed"


def _change(folder: RunFolder, name: str, recorded: str) -> str:
    try:
        return "" if digest_file(folder.path / name) == recorded else f"{name} was changed"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"


def strays(folder: RunFolder, present: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """What is `present` and no part of the run by what is `recorded`: by its name, the end of a sentence that says so.

    A folder that the run does not name is one of them where it is empty; else what is in it is. A run at an address has
    no empty folders: those of its mirror do not count.
    """
    homes = _homes(folder.record(changed_too=True), recorded)
    filled = {str(above) for name in present for above in PurePosixPath(name).parents}
    lost = {home for home in homes if f"{home}/{MANIFEST}" in recorded and not named_parts(folder.path / home)}
    reasons = {}
    for name, kind in present.items():
        if name in recorded or name in (RECORD, LOCK):
            continue
        if kind == FOLDER:
            if not (name in homes or name in filled or folder.mirror or _is_in_workshop(folder, name, homes)):
                reasons[name] = "is an empty folder that is not part of the run"
        elif kind != FILE:
            reasons[name] = f"is a {kind} that is not part of the run"
        else:
            reasons[name] = _why_foreign(folder, name, lost)
    return reasons


def _homes(record: RunRecord, recorded: Mapping[str, str]) -> set[str]:
    """The folders that a run may have, empty or not."""
    named = {*(case.folder for case in record.cases.values()), *(f"artifacts/{recipe}" for recipe in record.artifacts)}
    above = {str(parent) for name in (*recorded, *named) for parent in PurePosixPath(name).parents}
    return {*NODES, *ENDINGS, *named, *above}


def _is_in_workshop(folder: RunFolder, name: str, homes: set[str]) -> bool:
    """True below a folder of the run that is not finished, as that of an artifact which could not be built."""
    home = "/".join(PurePosixPath(name).parts[:2])
    return name.startswith(NODES) and name != home and home in homes and not is_committed(folder.path / home)


def _why_foreign(folder: RunFolder, name: str, lost: set[str]) -> str:
    """Why a file is no part of the run."""
    path, home = PurePosixPath(name), str(PurePosixPath(name).parent)
    if is_temporary(path.name):
        return "was left by a writer that was killed"
    if path.suffix == RECEIPT and is_committed(folder.path / home):
        return "is a receipt that a finished folder no longer needs"
    if lost & {str(parent) for parent in path.parents}:
        return f"cannot be checked: the {MANIFEST} that names it is missing or damaged"
    return "is not part of the run"
