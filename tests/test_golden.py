"""A run stored by an earlier version must still open, verify and report the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import roadworthy as rw
from golden.make import shown

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(tmp_path: Path) -> rw.Run:
    shutil.copytree(GOLDEN / "run", tmp_path / "run")
    return rw.open_run(tmp_path / "run")


def test_the_golden_run_opens_and_verifies(golden: rw.Run) -> None:
    assert golden.verify() == []
    assert len(golden.tables) >= 12


def test_the_golden_run_is_judged_as_before(golden: rw.Run) -> None:
    stored = json.loads((golden.path / "verdict.json").read_text())
    judged = golden.verdict().to_json()
    assert judged["status"] == stored["status"]
    for now, before in zip(judged["criteria"], stored["criteria"], strict=True):
        assert (now["id"], now["status"], now["because"]) == (before["id"], before["status"], before["because"])


def test_the_golden_run_is_judged_by_a_metric_that_is_newer(golden: rw.Run) -> None:
    """Its tables lack fpr95_right; its readouts have all that the metric needs, bounds by objects included."""
    assert "fpr95_right" not in set(golden.tables["classification"]["metric"])
    asked = {"metric": "fpr95_right", "where": {"shift": "fog", "level": 5}, "at_most": 1.0}
    drop = {"metric": "fpr95_right_drop", "where": {"shift": "fog", "level": 5}, "at_most": 1.0}
    right, rise = golden.verdict([{"id": "R", **asked}, {"id": "D", **drop}]).findings
    measured = right.rows[0].measurement
    assert 0 < measured.lo < measured.value <= measured.hi <= 1
    assert measured.method == "group bootstrap"
    assert rise.rows[0].measurement.method == "paired group bootstrap"
    assert golden.verify() == []


def test_the_golden_run_reports_identically(golden: rw.Run) -> None:
    first = golden.report().read_bytes()
    assert golden.report().read_bytes() == first
    assert shown(golden.path) == json.loads((GOLDEN / "expected.json").read_text())
    assert golden.verify() == []
