"""What the page of a run shows of it, in the viewer and in a bundle."""

from __future__ import annotations

from typing import Any

from roadworthy.core.files import inside
from roadworthy.core.record import RECORD
from roadworthy.viewer.index import Located
from roadworthy.viewer.opened import OpenedRun

REPORT = "report.html"
MOST_FILES = 500
"""Files of a run that its page lists at most."""


def run_context(run: Located, opened: OpenedRun) -> dict[str, Any]:
    """What the page of a run shows of it."""
    record = opened.record
    files = [(RECORD, ""), *record.files.items()]
    return {
        "record": record,
        "verdict": opened.verdict,
        "criteria": opened.verdict["criteria"],
        "failures": opened.failures,
        "tables": [(name, opened.specs[name].about if name in opened.specs else "") for name in opened.tables],
        "files": files[:MOST_FILES],
        "more_files": max(0, len(files) - MOST_FILES),
        "has_report": REPORT in record.files and inside(run.path, REPORT).is_file(),
    }
