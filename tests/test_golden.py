"""A run stored by an earlier version must still open, verify and report the same."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import roadworthy as rw
from golden.make import shown
from golden.make_schema1 import STUDIES
from roadworthy.core.hashing import digest
from roadworthy.core.random import Streams
from roadworthy.core.roles import Outliers
from roadworthy.core.tables import TableSpec
from roadworthy.data import subset
from roadworthy.engine.plan import Bench
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics.names import ADDED
from roadworthy.protocols.declared import declared_tables
from roadworthy.protocols.monitor_scores import own_scores
from roadworthy.protocols.ood import gallery, sides
from roadworthy.protocols.ood import tables as ood_tables

GOLDEN = Path(__file__).parent / "golden"
CHARTS = json.loads((GOLDEN / "charts.json").read_text())
"""A digest of every chart of every stored run, whatever the order of its keys: they change on purpose only."""


def drawn(report: Path) -> dict[str, str]:
    """The digests of the charts of a report."""
    charts = json.loads(report.read_text().partition('id="figures">')[2].partition("</script>")[0])
    return {name: digest(chart)[:16] for name, chart in charts.items()}


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
        assert (now["id"], now["status"]) == (before["id"], before["status"])
        for row, stored_row in zip(now["rows"], before["rows"], strict=True):
            same = {key: value for key, value in stored_row.items() if key not in ("because", "value", "lo", "hi")}
            assert {key: row[key] for key in same} == same, "all but the wording of sentences"
            assert [row[key] for key in ("value", "lo", "hi")] == pytest.approx(
                [stored_row[key] for key in ("value", "lo", "hi")], rel=1e-9
            )


def test_the_golden_run_is_judged_by_a_metric_that_is_newer(golden: rw.Run) -> None:
    """Its tables lack fpr95_right; its readouts have all that the metric needs, bounds by objects included."""
    assert "fpr95_right" not in set(golden.tables["classification"]["metric"])
    asked = {"metric": "fpr95_right", "where": {"shift": "fog", "level": 5}, "at_most": 1.0}
    drop = {"metric": "fpr95_right_drop", "where": {"shift": "fog", "level": 5}, "at_most": 1.0}
    right, rise = golden.verdict([{"id": "R", **asked}, {"id": "D", **drop}]).findings
    measured = right.rows[0].measurement.estimate
    assert 0 < measured.lo < measured.value <= measured.hi <= 1
    assert measured.method == "order statistics by objects"
    assert rise.rows[0].measurement.estimate.method == "paired order statistics by objects"
    assert golden.verify() == []


def test_the_golden_run_reports_identically(golden: rw.Run) -> None:
    first = golden.report().read_bytes()
    assert golden.report().read_bytes() == first
    assert drawn(golden.path / "report.html") == CHARTS["run"]
    assert shown(golden.path) == json.loads((GOLDEN / "expected.json").read_text())
    assert golden.verify() == []


FIRST = sorted(path.name for path in (GOLDEN / "schema1").iterdir())
EARLIER = {f"schema1/{name}": 1 for name in FIRST} | {"schema2": 2, "monitoring": 2, "localization": 2}
"""Runs of each protocol beside classification in schema 1, and of all protocols in schema 2; their schemas."""


@pytest.mark.parametrize(("name", "schema"), EARLIER.items())
def test_an_earlier_run_opens_verifies_reports_and_is_judged_as_before(name: str, schema: int, tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN / name, tmp_path / Path(name).name))
    earlier = rw.open_run(path)
    assert earlier.record.schema_ == schema
    stored = json.loads((path / "verdict.json").read_text())
    assert earlier.verdict().status == stored["status"]
    assert earlier.report().stat().st_size > 100_000
    assert drawn(path / "report.html") == CHARTS[path.name]
    assert earlier.verify() == []
    table = rw.compare([path, path])
    assert set(table["result"]) <= {"no clear difference", "not compared"}
    assert table["before"].equals(table["after"])


def test_a_run_of_schema_1_is_not_gone_on_with(golden: rw.Run) -> None:
    before = {path: path.read_bytes() for path in golden.path.rglob("*") if path.is_file()}
    with pytest.raises(rw.InputError, match=r"holds a run of an earlier version \(run schema 1\).*`fresh=True`"):
        rw.run_study(today("ood"), out=golden.path)
    assert {path: path.read_bytes() for path in golden.path.rglob("*") if path.is_file()} == before


def today(name: str) -> dict[str, Any]:
    """The study of a stored run as it is written now."""
    study = dict(STUDIES[name])
    if "data" in study and "ood" in study["data"]:
        data = dict(study["data"])
        study |= {"outliers": data.pop("ood"), "data": data}
    return study | _od_test_today(study) if "od_test" in study["protocols"] else study


def _od_test_today(study: dict[str, Any]) -> dict[str, Any]:
    """What an OD-test named under its protocol stands at the top now."""
    asked = dict(study["protocols"]["od_test"])
    monitors = {}
    for chosen in asked.pop("monitors"):
        given = {"name": chosen, "parameters": {}} if isinstance(chosen, str) else chosen
        label = " ".join([given["name"], *(f"{key}={value}" for key, value in given["parameters"].items())])
        monitors[label] = {"monitor": given["name"], **given["parameters"]}
    sources = {
        name: {
            "data": {"test": source.pop("data"), "train": source.pop("train")},
            "models": {"demo_classifier": source.pop("model")},
            **source,
        }
        for name, source in ((name, dict(source)) for name, source in asked.pop("sources").items())
    }
    named = {"sources": sources, "outliers": asked.pop("outliers"), "monitors": monitors}
    return named | {"protocols": {"od_test": asked}}


def drawn_by_image(
    ids: Sequence[str], groups: Sequence[str], purpose: str, seed: int, labels: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """How limits drew when these runs were made: image by image, an object of many images before one of few."""
    drawn = np.array([rng.random() for rng in Streams(purpose, seed).each(ids)])
    if labels is None:
        return np.zeros(len(ids), np.int64), drawn
    objects = [f"{group} {label}" for group, label in zip(groups, labels, strict=True)]
    return subset._rank(np.unique(objects, return_inverse=True)[1], drawn), drawn


def seed_and_repeat(maker: Outliers, bench: Bench, repeat: int) -> int:
    """The seed of outliers when these runs were made; repeat 1 of a seed was repeat 0 of the next."""
    return bench.seed + repeat


def by_probability(readouts: Sequence[Readouts]) -> tuple[str, list[Any]]:
    """What put answers in order when these runs were made: probabilities in single precision."""
    plain = [replace(own, classified=replace(own.answers, log_odds=None)) for own in readouts]
    return own_scores(plain)


@pytest.mark.parametrize("name", FIRST)
def test_the_same_study_gives_the_same_tables_today(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset, "object_rounds", drawn_by_image)
    monkeypatch.setattr(sides, "_seed_of", seed_and_repeat)
    monkeypatch.setattr(ood_tables, "own_scores", by_probability)
    monkeypatch.setattr(gallery, "own_scores", by_probability)
    run = rw.run_study(today(name), out=tmp_path / "run", progress=rw.no_progress)
    stored = GOLDEN / "schema1" / name / "tables"
    names = sorted(path.stem for path in stored.glob("*.parquet") if not path.stem.startswith("timing_"))
    assert {*names} <= {*run.tables}, "tables that were added since are further ones"
    declared = declared_tables([name])
    for table in names:
        folders = (run.path / "tables", stored)
        texts = [(folder / f"{table}.csv").read_text() for folder in folders]
        now, then = (re.sub(r"(heat|loss)-[0-9a-f]{12}-", r"\1-", text) for text in texts)  # pictures, by case
        if now != then:
            now, then = (_as_stored(text, declared[table], then.partition("\n")[0], table) for text in (now, then))
        if now != then:  # kernels of linear algebra differ between processors in the last digits
            frames = [pd.read_csv(io.StringIO(text)) for text in (now, then)]
            pd.testing.assert_frame_equal(*frames, rtol=1e-9, obj=table)


def _as_stored(text: str, spec: TableSpec, header: str, table: str) -> str:
    """A table of today without the columns and the rows that were added since it had this header."""
    frame = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    frame = frame.drop(columns=[c for c in spec.added_later if c in frame and c not in header.split(",")])
    if "metric" in frame:
        frame = frame[~frame["metric"].isin(ADDED)]
    for column in {"dependability": ["scope"], "dependability_patterns": ["scenario"]}.get(table, []):
        frame = frame[~frame[column].str.contains("each scenario|=.*, .*=")]
    return str(frame.to_csv(index=False))
