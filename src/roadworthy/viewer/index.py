"""Which runs lie below a folder: found by their files, read once, and again only where these have changed."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from roadworthy.core.errors import InputError
from roadworthy.core.record import RECORD
from roadworthy.engine.announcing import is_plan_name
from roadworthy.engine.folder import LOCK, STUDY
from roadworthy.engine.locking import is_held
from roadworthy.viewer.summaries import (
    DAMAGED,
    RUNNING,
    STATUSES,
    STOPPED,
    VERDICT,
    Summary,
    damaged,
    summarise,
)

DEPTH = 5
"""Runs lie at most so many folders below the one that is served."""
MOST_FOLDERS = 50_000
"""Folders that are looked into at most."""
PAGE = 50
"""Runs on a page of the list."""
SORTS = ("created", "name", "status", "failed")
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Located:
    """A run below the folder that is served: its summary, where it lies, and the id that addresses name it by."""

    id: str
    path: Path
    summary: Summary
    plan: str = ""
    """The name of the file with its plan, while it is being written."""


@dataclass(frozen=True)
class Query:
    """What the list is asked for: words, a status, a model; how it is sorted, and which page."""

    words: str = ""
    status: str = ""
    model: str = ""
    sort: str = SORTS[0]
    ascending: bool = False
    page: int = 1


@dataclass(frozen=True)
class Listing:
    """A page of the list.

    shown, matching, total   the runs of the page; how many match the question; how many there are
    statuses                 how many runs have each status;  models: the names of all
    note                     what was not looked at, in a sentence; empty where nothing was left out
    """

    shown: tuple[Located, ...]
    matching: int
    total: int
    page: int
    pages: int
    statuses: dict[str, int]
    models: tuple[str, ...]
    note: str


@dataclass
class RunIndex:
    """The runs below a folder. What is read of a run is kept until one of its files has another time or size.

    Links to folders are not followed, so that nothing outside the folder is ever read.
    """

    root: Path
    _known: dict[Path, tuple[Stamp, Summary]] = field(default_factory=dict)
    _paths: dict[str, Path] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    note: str = ""

    def __post_init__(self) -> None:
        self.root = Path(os.path.realpath(self.root))
        if not self.root.is_dir():
            raise InputError(f"{self.root} is not a folder: give one that holds runs")

    def runs(self) -> dict[str, Located]:
        """All runs by their id, in the order of their names."""
        with self._turn:
            located = {}
            for path, names in self._folders():
                run = self._locate(path, names)
                located[run.id] = run
            self._paths = {id_: run.path for id_, run in located.items()}
            self._known = {run.path: self._known[run.path] for run in located.values() if run.path in self._known}
        return located

    def find(self, id_: str) -> Located | None:
        """The run of that id; None where there is none (any more). A run that is known is looked at alone."""
        with self._turn:
            path = self._paths.get(id_)
            if path is not None and not _leads_away(path, self.root):
                try:
                    with os.scandir(path) as entries:
                        names = {entry.name: entry for entry in entries}
                except OSError:
                    names = {}
                if _is_run(names):
                    return self._locate(path, names)
        return self.runs().get(id_)

    def forget(self, run: Located, error: Exception) -> None:
        """Note that a run turned out to be damaged when more of it was read."""
        with self._turn:
            if run.path in self._known:
                stamp, _ = self._known[run.path]
                self._known[run.path] = stamp, damaged(run.summary.name, error)

    def listing(self, query: Query) -> Listing:
        """The runs that match a question, sorted, one page of them."""
        runs = [*self.runs().values()]
        words = query.words.casefold().split()
        chosen = [
            run
            for run in runs
            if (not query.status or run.summary.status == query.status)
            and (not query.model or query.model in run.summary.models)
            and all(word in run.summary.text for word in words)
        ]
        chosen = sort_runs(chosen, query.sort, query.ascending)
        pages = max(1, -(-len(chosen) // PAGE))
        page = min(max(1, query.page), pages)
        return Listing(
            shown=tuple(chosen[(page - 1) * PAGE : page * PAGE]),
            matching=len(chosen),
            total=len(runs),
            page=page,
            pages=pages,
            statuses=_counted(run.summary.status for run in runs),
            models=tuple(sorted({model for run in runs for model in run.summary.models})),
            note=self.note,
        )

    def _folders(self) -> Iterator[tuple[Path, dict[str, os.DirEntry[str]]]]:
        """The folders that hold a run, each with what lies in it; runs are not looked into for further ones."""
        waiting, looked, deeper = [(self.root, 0)], 0, False
        self.note = ""
        while waiting:
            folder, depth = waiting.pop()
            looked += 1
            if looked > MOST_FOLDERS:
                self.note = f"Only the first {MOST_FOLDERS:,} folders were looked into: serve a folder further down."
                return
            try:
                with os.scandir(folder) as entries:
                    names = {entry.name: entry for entry in entries}
            except OSError:
                self.note = self.note or f"The folder {folder.relative_to(self.root)} cannot be read."
                continue
            if _is_run(names):
                yield folder, names
                continue
            below = sorted(name for name, entry in names.items() if entry.is_dir(follow_symlinks=False))
            if depth < DEPTH:
                waiting += [(folder / name, depth + 1) for name in reversed(below) if not name.startswith(".")]
            else:
                deeper = deeper or bool(below)
        if deeper and not self.note:
            self.note = f"Folders more than {DEPTH} levels down were not looked into."

    def _locate(self, path: Path, names: dict[str, os.DirEntry[str]]) -> Located:
        name = str(path.relative_to(self.root)) if path != self.root else path.name
        plan = next((own for own in names if is_plan_name(own) and names[own].is_file(follow_symlinks=False)), "")
        stamp = _stamp(names, plan)
        known = self._known.get(path)
        summary = known[1] if known and known[0] == stamp else self._read(path, name, names)
        self._known[path] = stamp, summary
        if LOCK in names and summary.status != DAMAGED and (plan or summary.status == STOPPED):
            if is_held(path / LOCK):
                summary = Summary(**{**vars(summary), "status": RUNNING, "problem": ""})
            else:
                plan = ""
        return Located(run_id(name), path, summary, plan)

    def _read(self, path: Path, name: str, names: dict[str, os.DirEntry[str]]) -> Summary:
        for own in (RECORD, VERDICT, STUDY, LOCK):
            if own in names and not names[own].is_file(follow_symlinks=False):
                what = "a link" if names[own].is_symlink() else "something else"
                return damaged(name, InputError(f"{own} is {what}, not a file"))
        if RECORD not in names:
            return Summary(
                name,
                STOPPED,
                study=path.name,
                problem="it did not come to its end: run the same command again to go on",
            )
        return summarise(path, name)


def _is_run(names: Collection[str]) -> bool:
    """Whether a folder with these names in it is the folder of a run, finished or not."""
    return RECORD in names or (LOCK in names and STUDY in names)


def _leads_away(path: Path, root: Path) -> bool:
    """Whether a folder became a link, or lies below one, since it was found."""
    return Path(os.path.realpath(path)) != path or not path.is_relative_to(root)


def sort_runs(runs: Iterable[Located], by: str, ascending: bool) -> list[Located]:
    """Runs in an order; those that are equal by it stay in the order of their names."""
    ordered = sorted(runs, key=lambda run: run.summary.name)
    if by == "name":
        return ordered if ascending else ordered[::-1]
    if by == "status":
        return sorted(ordered, key=lambda run: STATUSES.index(run.summary.status), reverse=not ascending)
    if by == "failed":
        return sorted(ordered, key=lambda run: run.summary.failed, reverse=not ascending)
    return sorted(ordered, key=lambda run: run.summary.created, reverse=not ascending)


def run_id(name: str) -> str:
    """What addresses call a run: readable, and nothing that a path could be made of.

    >>> run_id("signs/v3"), run_id("../etc")
    ('signs-v3-c83be1b6', 'etc-f7f9121f')
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:48]
    return f"{readable or 'run'}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def _stamp(names: dict[str, os.DirEntry[str]], plan: str) -> Stamp:
    """When the files that a summary is read from were last written, and how large they are."""
    stamps = []
    for name in (RECORD, VERDICT, plan):
        if name in names:
            try:
                status = names[name].stat(follow_symlinks=False)
            except OSError:
                continue
            stamps.append((name, status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def _counted(statuses: Iterable[str]) -> dict[str, int]:
    counts = dict.fromkeys(STATUSES, 0)
    for status in statuses:
        counts[status] += 1
    return counts
