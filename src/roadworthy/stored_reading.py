"""A stored run as it can be read without any code of its own: record and tables, and how it shows itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from roadworthy.core.errors import InputError, from_here
from roadworthy.core.record import RunRecord, read_recorded
from roadworthy.core.showing import card, pairs, status, table
from roadworthy.engine.folder import RunFolder
from roadworthy.metrics import was_added
from roadworthy.verdict import Failed, failed_parts


class StoredRun:
    """What the files of a run say: see `Run`, which computes from them, too."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        record = self.folder.record(changed_too=True)
        images = sum(source.data.images for source in record.sources.values())
        facts = [
            f"models {', '.join(record.models)}" if record.models else "no models",
            *([f"{images:,} images"] if images else []),
            self._status_words(),
            f"{len(self.tables)} tables",
        ]
        return f"<{type(self).__name__} {record.study} in {from_here(self.path)}: {'; '.join(facts)}>"

    def __fspath__(self) -> str:
        """The run's folder, so that a run can be given wherever its path can."""
        return str(self.path)

    @property
    def status(self) -> str:
        """The status of the stored verdict: pass, fail, inconclusive, none, or that it is not readable."""
        try:
            return str(json.loads(read_recorded(self.path, "verdict.json"))["status"])
        except (OSError, ValueError, LookupError, TypeError, InputError):
            return "not readable"

    def _status_words(self) -> str:
        """The stored verdict in two words, or that there is none yet."""
        finished = self.folder.record(changed_too=True).finished
        return f"verdict {self.status}" if finished else "not finished"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def record(self) -> RunRecord:
        """Provenance: run.json."""
        return self.folder.record()

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """Every table by name, read when asked for."""
        return Tables(self.folder)

    @property
    def failures(self) -> list[Failed]:
        """What failed, each with its cause."""
        return [*failed_parts(self.record)]

    def _repr_html_(self) -> str:
        """For a notebook: what was tested, the verdict with its criteria, and what there is."""
        record = self.folder.record(changed_too=True)
        facts: list[tuple[str, object]] = [
            ("verdict", status(self.status) if record.finished else "not finished"),
            ("models", ", ".join(record.models) or "none"),
            ("data", ", ".join(f"{own.data.name} ({own.data.images:,} images)" for own in record.sources.values())),
            ("protocols", ", ".join(record.protocols)),
            ("failed", f"{len(failed_parts(record)) or 'nothing'}"),
            ("tables", ", ".join(self.tables) or "none"),
            ("folder", from_here(self.path)),
        ]
        return card(f"Run {record.study}", pairs(facts))


class Tables(Mapping[str, pd.DataFrame]):
    """The tables of a run by name, each read when it is asked for."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._folder.table_names():
            raise KeyError(name)
        return self._folder.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._folder.table_names())

    def __len__(self) -> int:
        return len(self._folder.table_names())

    def __repr__(self) -> str:
        return f"<tables: {', '.join(self) or 'none'}>"

    def _repr_html_(self) -> str:
        """For a notebook: what there is, with its size."""
        shapes = {name: self._folder.table_shape(name) for name in self}
        rows = [(name, f"{rows:,}", f"{columns:,}") for name, (rows, columns) in shapes.items()]
        return card(f"{len(rows)} tables", table(("table", "rows", "columns"), rows))


def follows(table: pd.DataFrame, stored: pd.DataFrame, added_later: Sequence[str] = ()) -> bool:
    """Whether a stored table is this one, made anew from what the run holds: see `as_earlier`."""
    return same_table(as_earlier(table, stored, added_later), stored)


def as_earlier(table: pd.DataFrame, stored: pd.DataFrame, added_later: Sequence[str] = ()) -> pd.DataFrame:
    """A table as the version that stored it knew it.

    One of an earlier version lacks the metrics that were added since, and the columns `added_later`; nothing else may
    be missing or other.
    """
    table = table.drop(columns=[name for name in added_later if name in table and name not in stored])
    if "metric" in table and "metric" in stored:
        known = set(stored["metric"])
        there = [metric in known or not was_added(metric) for metric in table["metric"]]
        table = table[there].reset_index(drop=True)
    return table


def same_table(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Equal to the last printed digit that another machine's arithmetic keeps."""
    if not len(a) and not len(b):
        return True
    if set(a.columns) == set(b.columns):
        a = a[list(b.columns)]
    try:
        pd.testing.assert_frame_equal(_blank(a), _blank(b), check_dtype=False, rtol=1e-9, atol=1e-12)
    except AssertionError:
        return False
    return True


def _blank(table: pd.DataFrame) -> pd.DataFrame:
    """With None for every missing value of no number: a stored table knows no other."""
    mixed = [name for name in table.columns if table[name].dtype == object]
    return table.assign(**{name: table[name].where(table[name].notna(), None) for name in mixed})
