"""Approving a new version: what is unchanged is taken over from the run of the earlier one, regressions come first."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnx import ModelProto, numpy_helper
from typer.testing import CliRunner

import roadworthy as rw
from roadworthy.cli import app
from roadworthy.core.errors import InputError
from roadworthy.core.record import BaselineRecord
from roadworthy.protocols.table_specs import CHANGE_COLUMNS
from roadworthy.report.baseline import BaselineFacts
from roadworthy.report.comparison import load_comparison
from samples import CLASSES, SIDE, network
from tiny import contents

IMAGES = 90
QUIET: dict[str, Any] = {"workers": 1, "accept_chance": True, "progress": rw.no_progress}
pytestmark = pytest.mark.filterwarnings("ignore:model .* is beyond doubt")
"""The worse version is better with other ranges, which is said before each of its runs."""


def write_squares(path: Path, seed: int, count: int = IMAGES) -> Path:
    """Squares that are brightest in the channel of their class, two images of each object."""
    labels = np.arange(count) % len(CLASSES)
    images = np.random.default_rng(seed).integers(0, 100, (count, SIDE, SIDE, 3), dtype=np.uint8)
    images[np.arange(count), ..., labels] += 120
    group = [f"object {row % (count // 2)}" for row in range(count)]
    np.savez(path, images=images, labels=labels, class_names=np.array(CLASSES), group=np.array(group))
    return path


def worse() -> ModelProto:
    """A version that takes every blue square for a red one."""
    model = network()
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[:, 2] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "weights"))
    return model


def study(folder: Path, model: str, **changes: Any) -> dict[str, Any]:
    """A study of a model, and of an ensemble that stays as it is, whose temperature is fitted on validation data."""
    return {
        "name": "versions",
        "data": {"test": str(folder / "test.npz"), "validation": str(folder / "validation.npz")},
        "models": {
            "detector": {"onnx": str(folder / model)},
            "calibrated": {"temperature": {"onnx": str(folder / "v1.onnx")}},
        },
        "protocols": {"classification": {"shifts": ["rain"], "levels": [5]}},
        "criteria": [{"id": "ACC", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.6}],
        **changes,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, two versions of a model, and the run of the first."""
    folder = tmp_path_factory.mktemp("versions")
    write_squares(folder / "test.npz", 0)
    write_squares(folder / "validation.npz", 1)
    write_squares(folder / "other.npz", 2, count=24)
    (folder / "v1.onnx").write_bytes(network().SerializeToString())
    (folder / "v2.onnx").write_bytes(worse().SerializeToString())
    rw.run_study(study(folder, "v1.onnx"), out=folder / "v1", **QUIET)
    return folder


@pytest.fixture(scope="module")
def new_version(folder: Path) -> rw.Run:
    """The run of the second version with the first as its baseline."""
    return rw.run_study(study(folder, "v2.onnx", baseline=str(folder / "v1")), out=folder / "v2", **QUIET)


def everything(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def without_baseline(run: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(run).items() if "baseline_changes" not in name}


def test_what_is_unchanged_is_taken_over_and_nothing_else_changes(folder: Path, tmp_path: Path) -> None:
    before = everything(folder / "v1")
    with_it = rw.run_study(study(folder, "v2.onnx", baseline=str(folder / "v1")), out=tmp_path / "with", **QUIET)
    alone = rw.run_study(study(folder, "v2.onnx"), out=tmp_path / "alone", **QUIET)
    assert everything(folder / "v1") == before, "the baseline stays as it is"
    assert without_baseline(with_it.path) == contents(alone.path), "the same bits as without a baseline"
    artifacts = [{k: v for k, v in everything(run.path).items() if "artifacts/" in k} for run in (with_it, alone)]
    assert artifacts[0] == artifacts[1]
    noted = with_it.record.baseline
    assert noted is not None
    assert (noted.artifacts, noted.cases, noted.damaged, noted.not_compared) == (1, 3, [], "")
    assert alone.record.baseline is None
    assert "baseline" not in json.loads((alone.path / "run.json").read_text())
    assert "baseline" not in (alone.path / "study.yaml").read_text()
    parts = [*(with_it.path / "artifacts").rglob("*.json"), *with_it.path.glob("readouts/*/part-*")]
    linked = [path for path in parts if path.name != "manifest.json" and path.stat().st_nlink > 1]
    assert linked, "finished files are linked, not copied"
    assert all((folder / "v1" / path.relative_to(with_it.path)).samefile(path) for path in linked)
    timing, earlier = (run.tables["timing_cases"].set_index("case") for run in (with_it, rw.open_run(folder / "v1")))
    own = timing[timing["model"] == "calibrated"]
    assert own["seconds"].equals(earlier.loc[own.index, "seconds"]), "its costs are those of the run that made it"
    assert with_it.verify() == alone.verify() == rw.open_run(folder / "v1").verify() == []
    again = rw.run_study(study(folder, "v2.onnx", baseline=str(folder / "v1")), out=tmp_path / "with", **QUIET)
    assert again.record.baseline == noted, "a resumed run says the same"


def test_what_is_damaged_in_the_baseline_is_made_again_and_named(folder: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(folder / "v1", tmp_path / "damaged"))
    record = rw.open_run(damaged).record
    case = next(case for case in record.cases.values() if case.system == "calibrated")
    part = next((damaged / case.folder).glob("part-*"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match="damaged in the baseline, and made again: readouts/"):
        run = rw.run_study(study(folder, "v2.onnx", baseline=str(damaged)), out=tmp_path / "run", **QUIET)
    noted = run.record.baseline
    assert noted is not None
    assert (noted.cases, noted.damaged) == (2, [case.folder])
    assert run.verify() == []
    assert case.folder in (run.path / "report.html").read_text()


def test_regressions_come_first_in_table_report_and_terminal(new_version: rw.Run) -> None:
    table = new_version.tables["baseline_changes"]
    assert table["result"][0] == "regression"
    assert {*table.loc[table["result"] == "regression", "model"]} == {"v2/detector"}, "the other model did not change"
    first = table.iloc[0]
    assert (first["metric"], round(first["before"], 4), round(first["after"], 4)) == ("accuracy", 1.0, 0.6667)
    assert {*table.loc[table["metric"] == "accuracy", "condition"]} == {"none", "rain"}
    assert "not compared" not in {*table.loc[table["metric"] == "accuracy", "result"]}, "both were shown the same rain"
    lines = new_version.baseline_lines()
    assert lines[0].startswith(f"compared with {new_version.record.baseline.run}: ")  # type: ignore[union-attr]
    assert "regressions. 0 improvements, " in lines[0]
    assert lines[1] == "regression: v2/detector: undisturbed: accuracy −33.3 points, 100 % to 66.7 %"
    assert lines[-1] == "Taken over from it, since unchanged: 1 artifact and 3 cases."
    page = (new_version.path / "report.html").read_text().replace("\xa0", " ")
    summary = page[page.index('<section id="summary"') : page.index('<section id="baseline"')]
    assert "regressions.</strong> undisturbed: accuracy −33.3 points, 100 % to 66.7 %;" in summary
    assert summary.index("Compared with") < summary.index('class="badge'), "before the verdict of the first screen"
    assert page.index('<section id="baseline"') < page.index('<section id="criteria"')
    assert new_version.verify() == []


def test_runs_that_cannot_be_compared_say_why(folder: Path, tmp_path: Path) -> None:
    data = {"test": str(folder / "other.npz"), "validation": str(folder / "validation.npz")}
    other = study(folder, "v2.onnx", data=data, baseline=str(folder / "v1"))
    run = rw.run_study(other, out=tmp_path / "other", **QUIET)
    assert run.record.baseline is not None
    assert "other images" in run.record.baseline.not_compared
    assert "other images" in (run.path / "report.html").read_text()
    assert "other images" in run.baseline_lines()[0]
    assert len(run.tables["baseline_changes"]) == 0
    change = dict.fromkeys(CHANGE_COLUMNS, math.nan) | {"level": 1, "n": 0, "groups": 0, "metric": "accuracy"}
    names = {"baseline": "v1/a", "model": "v2/a", "protocol": "classification", "subject": "", "condition": "fog"}
    table = pd.DataFrame([change | names | {"method": "", "reason": "shown otherwise", "result": "not compared"}])
    facts = BaselineFacts(BaselineRecord(run="v1", sha256=""), load_comparison(table))
    assert (facts.heading, facts.rest, facts.obstacle) == ("not compared", "", "Not compared: shown otherwise.")
    models = {name: {"onnx": str(folder / "v2.onnx")} for name in ("a", "b")}
    renamed = study(folder, "v2.onnx", models=models, baseline=str(folder / "v1"))
    run = rw.run_study(renamed, out=tmp_path / "renamed", **QUIET)
    assert run.record.baseline is not None
    assert run.record.baseline.not_compared == f"no counterpart in {folder / 'v1'}: a, b"


def test_a_baseline_that_is_no_finished_other_run_is_refused_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for baseline, message in ((tmp_path / "missing", "is no run"), (out, "cannot be its baseline")):
        with pytest.raises(InputError, match=message):
            rw.run_study(study(folder, "v2.onnx", baseline=str(baseline)), out=out, **QUIET)
        assert not out.exists()


def test_a_new_version_is_evaluated_by_the_same_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs: dict[str, Any] = {"suite": "quick", **QUIET}
    rw.evaluate(folder / "v1.onnx", folder / "test.npz", name="detector", out="runs/detector", **runs)
    with pytest.raises(InputError, match=r"add `out='runs/detector-new'` and `baseline='runs/detector'` to the same"):
        rw.evaluate(folder / "v2.onnx", folder / "test.npz", name="detector", out="runs/detector", **runs)
    words = ["evaluate", "--model", folder / "v2.onnx", "--data", folder / "test.npz", "--suite", "quick"]
    words += ["--name", "v2", "--out", "runs/detector-new", "--baseline", "runs/detector", "--workers", 1]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    assert "compared with runs/detector: " in result.stdout
    assert "regression: detector-new/v2: " in result.stdout, "the only model is compared with the only one"
    page = (tmp_path / "runs/detector-new/report.html").read_text()
    link = '<a href="../detector/report.html" title="The report of the run before"><code>runs/detector</code></a>'
    assert f"Compared with {link}" in page
    assert "roadworthy run RUN/study.yaml --out AGAIN\nroadworthy compare RUN AGAIN</pre>\n</section>" in page
    stored = (tmp_path / "runs/detector-new/study.yaml").read_text()
    assert f"baseline: {tmp_path / 'runs/detector'}" in stored
