"""What of a finished run nothing refers to, and taking it away: all else stays as it is, and so do the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pandas.api.types import is_numeric_dtype

from roadworthy.core.errors import InputError
from roadworthy.core.files import is_temporary, remove
from roadworthy.core.manifests import MANIFEST, RECEIPT, is_committed
from roadworthy.core.record import SCHEMA
from roadworthy.engine.folder import ENDINGS, NODES, RunFolder
from roadworthy.engine.inventory import FILE, FOLDER, contents, record_problem, strays

PICTURE = re.compile(r".*[0-9a-f]{8}.*\.png")
"""A picture is named by the hash of what it shows."""
PART = re.compile(rf"part-\d{{5}}\.parquet({re.escape(RECEIPT)})?|{re.escape(MANIFEST)}")
"""The files of a case."""
ARTIFACT = re.compile(r"[0-9a-f]{64}")
"""The folder of an artifact is named by the hash of its recipe."""


@dataclass(frozen=True)
class Leftover:
    """Something in the folder of a run that nothing refers to: a file, or a folder with all that is in it.

    name, reason  its name from the folder of the run, and what it is
    files, bytes  how many files it is, and how much they hold
    foreign       it is not named as this package names its files: somebody put it there
    """

    name: str
    reason: str
    files: int
    bytes: int
    foreign: bool = False

    def line(self) -> str:
        """As people read it."""
        count = f"{self.files:,} file{'s' if self.files != 1 else ''}, " if self.files != 1 else ""
        return f"{self.name} ({count}{self.bytes:,} bytes): {self.reason}"


@dataclass(frozen=True)
class Cleaning:
    """What was removed from a run, or would be, and the foreign files that are kept."""

    removed: tuple[Leftover, ...]
    kept: tuple[Leftover, ...]

    @property
    def bytes(self) -> int:
        """How much is, or would be, removed."""
        return sum(leftover.bytes for leftover in self.removed)

    @property
    def files(self) -> int:
        """How many files are, or would be, removed."""
        return sum(leftover.files for leftover in self.removed)


def clean(folder: RunFolder, *, dry_run: bool = False, foreign: bool = False) -> Cleaning:
    """Remove from a finished run what nothing refers to; what is `foreign` to it only where that is asked for.

    The record forgets what goes before it goes: stopped at any instant, the same call does the rest. A `dry_run`
    changes nothing and needs no lock.
    """
    folder.check_finished()
    if dry_run:
        folder.check_idle()
        return _planned(folder, foreign)
    with folder.locked():
        folder.check_finished()
        planned = _planned(folder, foreign)
        names = {leftover.name for leftover in planned.removed}
        recorded = folder.record().files
        kept = {name: sha for name, sha in recorded.items() if not names & _with_parents(name)}
        if kept != recorded:
            folder.change_record(files=kept)
            folder.publish_record()
        remove(*(folder.path / name for name in sorted(names)))
    return planned


def _planned(folder: RunFolder, foreign: bool) -> Cleaning:
    if folder.record(changed_too=True).schema_ != SCHEMA:
        raise InputError(f"{folder.path} holds a run of an earlier version, which can be read but not changed")
    if problem := record_problem(folder):
        raise InputError(f"{folder.path} cannot be cleaned: {problem}, and it says what is needed; run the study again")
    leftovers = [*_leftovers(folder)]
    return Cleaning(
        tuple(leftover for leftover in leftovers if foreign or not leftover.foreign),
        tuple(leftover for leftover in leftovers if leftover.foreign and not foreign),
    )


def _leftovers(folder: RunFolder) -> Iterator[Leftover]:
    """All that nothing refers to, in the order of their names; each file is in one of them at most."""
    present, record = contents(folder.path), folder.record()
    needed = {case.folder for case in record.cases.values()} | {f"artifacts/{name}" for name in record.artifacts}
    nodes = [name for name, kind in present.items() if kind == FOLDER and str(PurePosixPath(name).parent) in NODES]
    unused = {name: _inside(name, present) for name in nodes if name not in needed}
    unused = {name: inner for name, inner in unused.items() if _is_node(name, inner, present)}
    for name in unused:
        what = "artifact" if name.startswith("artifacts/") else "case"
        state = "" if is_committed(folder.path / name) else ", not finished,"
        yield _leftover(folder, name, present, f"{what}{state} that the run does not name")
    shown = _named_in_tables(folder)
    for name in record.files:
        if name.startswith("media/") and PurePosixPath(name).name not in shown and present.get(name) == FILE:
            yield _leftover(folder, name, present, "a picture that no table names")
    for name, why in strays(folder, present, folder.hashes()).items():
        if not {*unused} & _with_parents(name) and "cannot be checked" not in why:
            yield _leftover(folder, name, present, why, foreign=not _is_ours(folder, name, present[name]))


def _leftover(folder: RunFolder, name: str, present: Mapping[str, str], reason: str, foreign: bool = False) -> Leftover:
    files = [one for one in (name, *_inside(name, present)) if present[one] != FOLDER]
    size = sum((folder.path / one).lstat().st_size for one in files)
    return Leftover(name, reason, len(files), size, foreign)


def _inside(name: str, present: Mapping[str, str]) -> list[str]:
    return [other for other in present if other.startswith(f"{name}/")]


def _with_parents(name: str) -> set[str]:
    path = PurePosixPath(name)
    return {str(path), *map(str, path.parents)}


def _is_node(name: str, inner: list[str], present: Mapping[str, str]) -> bool:
    """True where a folder is one that this package made: by its own name, and by those of its files."""
    own = PurePosixPath(name)
    if str(own.parent) == "artifacts":
        return ARTIFACT.fullmatch(own.name) is not None
    files = [PurePosixPath(other).name for other in inner]
    return re.fullmatch(r".*-[0-9a-f]{16}", own.name) is not None and all(
        present[other] == FILE and (PART.fullmatch(file) or is_temporary(file))
        for other, file in zip(inner, files, strict=True)
    )


def _is_ours(folder: RunFolder, name: str, kind: str) -> bool:
    """True of a stray that this package left behind, by its name; all else was put there by somebody."""
    path = PurePosixPath(name)
    if kind == FOLDER:
        return str(path.parent) in NODES
    if kind != FILE:
        return False
    if is_temporary(path.name):
        return True
    if path.suffix == RECEIPT and path.parts[0] in NODES:
        return is_committed(folder.path / path.parent) and Path(folder.path / name).with_suffix("").is_file()
    return str(path.parent) == "media" and path.suffix in ENDINGS["media"] and PICTURE.fullmatch(path.name) is not None


def _named_in_tables(folder: RunFolder) -> set[str]:
    """Every text that is a cell of a table: names of pictures among them."""
    tables = map(folder.table, folder.table_names())
    columns = (table[name] for table in tables for name in table.columns if not is_numeric_dtype(table[name].dtype))
    return {cell for column in columns for cell in column if isinstance(cell, str)}
