"""The headline figure of a run: its worst criterion, or without criteria the first figure that its protocols have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.record import RECORD
from roadworthy.metrics import metrics_of
from roadworthy.report.words import number, words_of
from roadworthy.viewer.summaries import NO_CRITERIA, WORST_FIRST, Summary
from roadworthy.viewer.tables import StoredTable, TableQuery

SAID_OF = ("source", "model", "shift", "ood_set", "set", "monitor", "benchmark", "scope", "situation")
"""Columns that say what a figure is of, in the order in which they are named."""


class Headlines:
    """The headline figures of runs; what is read from a table is kept as long as run.json is the same."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Path, int], str] = {}

    def of(self, run: Path, summary: Summary) -> str:
        """The headline of a run in words; empty where it has none (yet).

        A run may be judged without criteria: an approval whose questions nobody gave a threshold for.
        """
        if summary.headline or summary.status not in (NO_CRITERIA, *WORST_FIRST):
            return summary.headline
        try:
            key = run, (run / RECORD).stat().st_mtime_ns
        except OSError:
            return ""
        if key not in self._kept:
            self._kept[key] = next(filter(None, (_figure(run, protocol) for protocol in summary.protocols)), "")
        return self._kept[key]


def _figure(run: Path, protocol: str) -> str:
    """The first figure of a protocol; empty where it has no table of its name, or none that can be read."""
    try:
        return first_figure(run, protocol)
    except (RoadworthyError, OSError, ValueError):
        return ""


def first_figure(run: Path, protocol: str) -> str:
    """The first row with a value of the table that a protocol is named after: undisturbed data comes first there."""
    rows = StoredTable(run, protocol).page(TableQuery(), size=20).rows
    row: dict[str, Any] = next((dict(row) for _, row in rows if isinstance(row.get("value"), float)), {})
    if not row:
        return ""
    metric = words_of(str(row.get("metric", "")), metrics_of(protocol))
    names = [str(row[name]) for name in SAID_OF if row.get(name) not in (None, "", "none")]
    clean = ["undisturbed"] if row.get("shift") == "none" else []
    return f"{metric.label} {number(metric, row['value'])} ({', '.join(names + clean)})"
