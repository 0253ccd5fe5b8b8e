"""A run that somebody looks at: its record and parts, read once and again only where run.json has changed."""

from __future__ import annotations

import stat
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, RoadworthyError, first_line
from roadworthy.core.record import RECORD, RunRecord, read_record
from roadworthy.core.tables import TableSpec
from roadworthy.engine.folder import RunFolder
from roadworthy.protocols.base import Part
from roadworthy.protocols.declared import declared_tables
from roadworthy.stored_evidence import stored_parts
from roadworthy.verdict.failures import failure_lines
from roadworthy.viewer.answers import RowImages, row_images
from roadworthy.viewer.summaries import VERDICT, read_verdict
from roadworthy.viewer.tables import StoredTable

KEPT = 16
"""Runs whose record is kept."""


@dataclass(frozen=True)
class OpenedRun:
    """The record of a run, and what follows from it. No code of the run is loaded: what needs it says so."""

    path: Path
    record: RunRecord

    @cached_property
    def verdict(self) -> dict[str, Any]:
        """What verdict.json says."""
        return read_verdict(self.path, self.record.files.get(VERDICT)) or {"status": "none", "criteria": []}

    @cached_property
    def failures(self) -> list[str]:
        """What failed, a line each."""
        return failure_lines(self.record)

    @cached_property
    def parts(self) -> Mapping[str, Sequence[Part]]:
        """What each protocol has of each source; an `InputError` where a protocol is not installed here."""
        return stored_parts(RunFolder(self.path), self.record)

    @cached_property
    def specs(self) -> Mapping[str, TableSpec]:
        """The declarations of its tables, as far as they are known here."""
        return declared_tables(self.record.protocols)

    @cached_property
    def tables(self) -> list[str]:
        """The names of its tables: those that protocols are named after first, then by name."""
        names = [
            Path(name).stem for name in self.record.files if name.startswith("tables/") and name.endswith(".parquet")
        ]
        return sorted(names, key=lambda name: (name not in self.record.protocols, name))

    def table(self, name: str) -> StoredTable:
        """One of its tables; an `InputError` where it has none of that name, or it cannot be read."""
        if name not in self.tables:
            raise InputError(f"the run has no table {name!r}")
        return StoredTable(self.path, name)

    def row_images(self, table: str, row: Mapping[str, Any]) -> RowImages:
        """What stands behind a row of a table."""
        return row_images(self.path, self.record, self.parts, table, row)


class OpenedRuns:
    """The runs that were looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, int], OpenedRun]] = OrderedDict()
        self._turn = threading.Lock()

    def open(self, path: Path) -> OpenedRun:
        """The run in a folder; an `InputError` where its record is damaged."""
        try:
            status = (path / RECORD).stat(follow_symlinks=False)
        except OSError as error:
            raise InputError(f"{RECORD} cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{RECORD} is not a file")
        stamp = status.st_mtime_ns, status.st_size
        with self._turn:
            kept = self._kept.get(path)
            if kept is None or kept[0] != stamp:
                kept = self._kept[path] = stamp, OpenedRun(path, _record(path))
            self._kept.move_to_end(path)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return kept[1]


def _record(path: Path) -> RunRecord:
    try:
        return read_record(path)
    except RoadworthyError:
        raise
    except Exception as error:  # of a file that somebody made up
        raise InputError(f"{RECORD} cannot be read: {type(error).__name__}: {first_line(error)}") from None
