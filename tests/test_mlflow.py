"""A run in MLflow: a real tracking store in a temporary folder, read back with MLflow's own client."""

from __future__ import annotations

import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import roadworthy as rw
from commands import call, snapshot
from roadworthy.core.hashing import digest_file
from roadworthy.publishing import mlflow
from roadworthy.publishing.content import HASH_TAG, Content, clean_name
from tiny import save_onnx, study

pytest.importorskip("mlflow", reason="the extra mlflow is not installed")

PROTOCOLS = {"classification": {"shifts": ["fog"], "levels": [5]}}
CRITERIA = [
    {"id": "REQ-12", "metric": "accuracy", "where": {"shift": "fog"}, "at_least": 0.9, "hazard": "misread in fog"},
    {"id": "a|b <c>", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.2},
    {"id": "NLL", "metric": "nll", "at_most": 10, "where": {"shift": "none"}},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    folder = tmp_path_factory.mktemp("run")
    content = study(folder, n=70, protocols=PROTOCOLS, criteria=CRITERIA)
    return rw.run(content, out=folder / "run", progress=rw.no_progress)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:s3/cr@et@server:5000/x is closed", "https://***@server:5000/x is closed"),
        ("https://server/x?password=s3cret&y=1 is closed", "https://server/x?*** is closed"),
        ("postgresql://me:s?3@db/x?token=s3cret", "postgresql://***@db/x?***"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
    ],
)
def test_messages_hold_no_password(text: str, shown: str) -> None:
    assert mlflow._without_password(text) == shown


class Store:
    """A tracking store, and what MLflow's own client reads there."""

    def __init__(self, folder: Path) -> None:
        from mlflow import MlflowClient

        self.folder, self.uri = folder, f"sqlite:///{folder / 'mlflow.db'}"
        self.client: Any = MlflowClient(self.uri)

    def runs(self, experiment: str = "roadworthy") -> list[Any]:
        known = self.client.get_experiment_by_name(experiment)
        return [*self.client.search_runs([known.experiment_id])] if known else []

    def read(self, run_id: str, name: str) -> Path:
        return Path(self.client.download_artifacts(run_id, name, str(self.folder / "read")))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, run: rw.Run) -> Store:
    folder = tmp_path_factory.mktemp("mlflow")
    (folder / "read").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # MLflow puts files into mlruns of the working folder
        made = Store(folder)
        printed = call("publish", run.path, "--mlflow", made.uri)
    assert "logged as run" in printed
    return made


def test_the_run_appears_with_parameters_metrics_and_tags(store: Store, run: rw.Run) -> None:
    (logged,) = store.runs()
    record, rows = run.record, run.tables["classification"].set_index(["shift", "metric"])
    assert (logged.info.status, logged.info.run_name) == ("FINISHED", "tiny")
    assert logged.data.params == {
        "study": "tiny",
        "seed": "0",
        "protocols": "classification",
        "data": "signs",
        "data.fingerprint": record.first.data.fingerprint,
        "data.size": "32x32",
        "data.images": "70",
        "data.objects": "14",
        "data.classes": "14",
        "model": "tiny",
        "model.kind": "onnx",
        "model.files": " ".join(*record.models["tiny"].files.items()),
        "model.fingerprint": record.models["tiny"].fingerprint,
    }
    metrics = logged.data.metrics
    clean, fog = rows.loc[("none", "accuracy")], rows.loc[("fog", "accuracy")]
    name = "classification/accuracy_undisturbed"
    expected = [clean["value"], clean["lo"], clean["hi"]]
    assert [metrics[name], metrics[f"{name}_lower"], metrics[f"{name}_upper"]] == pytest.approx(expected)
    judged = [metrics[f"criteria/REQ-12{suffix}"] for suffix in ("", "_lower", "_upper", "_threshold")]
    assert judged == pytest.approx([fog["value"], fog["lo"], fog["hi"], 0.9])
    assert [metrics[f"criteria_{status}"] for status in ("pass", "fail", "inconclusive")] == [1, 1, 1]
    assert "criteria/a_b__c_" in metrics, "a name that MLflow accepts"
    assert "criteria/NLL_lower" not in metrics, "there is no bound with so few objects"
    tags = logged.data.tags
    assert tags["roadworthy.verdict"] == "fail"
    assert tags["roadworthy.criteria"] == "REQ-12, a|b <c>, NLL"
    assert tags["roadworthy.criterion.REQ-12"] == "fail"
    assert tags[HASH_TAG] == digest_file(run.path / "run.json")
    assert tags["mlflow.note.content"].startswith("## Roadworthy: ❌ fail")


def test_its_files_are_those_of_the_run(store: Store, run: rw.Run) -> None:
    (logged,) = store.runs()
    listed = {entry.path for entry in store.client.list_artifacts(logged.info.run_id)}
    assert listed == {
        *("figures", "junit.xml", "media", "report.html", "run.json", "study.yaml", "summary.md", "tables"),
        *("verdict.json", "verdicts.json"),
    }, "no readouts"
    stored = store.read(logged.info.run_id, "tables")
    names = {f"{name}.{ending}" for name in run.tables for ending in ("csv", "parquet")}
    assert {path.name for path in stored.iterdir()} == names
    pd.testing.assert_frame_equal(pd.read_parquet(stored / "classification.parquet"), run.tables["classification"])
    assert store.read(logged.info.run_id, "report.html").read_bytes() == (run.path / "report.html").read_bytes()
    assert json.loads(store.read(logged.info.run_id, "verdict.json").read_text())["status"] == "fail"
    junit = ElementTree.parse(store.read(logged.info.run_id, "junit.xml")).getroot()
    assert (junit.get("tests"), junit.get("failures")) == ("3", "1")
    media = {path.name for path in (run.path / "media").iterdir()}
    assert {path.name for path in store.read(logged.info.run_id, "media").iterdir()} == media


def test_figures_open_in_plotly(store: Store) -> None:
    import plotly.graph_objects as go

    (logged,) = store.runs()
    figures = sorted(store.read(logged.info.run_id, "figures").rglob("*.json"))
    heat_map = next(path for path in figures if "heat" in str(path))
    assert go.Figure(json.loads(heat_map.read_text())).data[0].type == "heatmap"


def test_the_same_run_is_logged_once(store: Store, run: rw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.folder)
    before = snapshot(run.path)
    (logged,) = store.runs()
    printed = call("publish", run.path, "--mlflow", store.uri)
    assert f"was logged before, as run {logged.info.run_id} of experiment roadworthy: nothing was added" in printed
    assert len(store.runs()) == 1
    published = run.log_to_mlflow(store.uri, again=True)
    assert not published.existed
    assert len(store.runs()) == 2
    assert run.log_to_mlflow(store.uri).existed
    other = run.log_to_mlflow(store.uri, experiment="another")
    assert (other.existed, len(store.runs("another")), len(store.runs())) == (False, 1, 2)
    assert snapshot(run.path) == before, "the run itself is only read"


def test_the_snippet_of_the_docs_works(store: Store, run: rw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.folder)
    Path("runs").mkdir()
    Path("runs/m").symlink_to(run.path)
    page = (Path(__file__).parent.parent / "docs" / "pipelines.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "log_to_mlflow" in block]
    assert "sqlite:///mlflow.db" in code
    exec(code.replace("sqlite:///mlflow.db", store.uri), {})  # MLflow keeps a store by its address, whatever the folder
    assert len(store.runs("signs")) == 1


def test_what_fails_half_way_is_marked_and_logged_anew(
    store: Store, run: rw.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.chdir(store.folder)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_artifact", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        with pytest.raises(rw.InputError, match=r"MLflow at sqlite:.* did not take the run: no space left"):
            run.log_to_mlflow(store.uri, experiment="half")
    assert [logged.info.status for logged in store.runs("half")] == ["FAILED"]
    assert not run.log_to_mlflow(store.uri, experiment="half").existed
    assert sorted(logged.info.status for logged in store.runs("half")) == ["FAILED", "FINISHED"]


def test_several_models_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"a": 0.0, "b|": 1.0, "b<": 2.0}
    files = [save_onnx(tmp_path / f"{blur:g}.onnx", blur=blur) for blur in names.values()]
    models = {name: {"onnx": str(file)} for name, file in zip(names, files, strict=True)}
    content = study(tmp_path, n=28, models=models, protocols={"classification": {"shifts": ["fog"], "levels": [5]}})
    made = rw.run(content, out=tmp_path / "run", accept_chance=True, progress=rw.no_progress)
    published: list[Content] = []
    monkeypatch.setattr("roadworthy.stored.log_to_mlflow", lambda content, *_, **__: published.append(content))
    made.log_to_mlflow("sqlite:///never.db")
    values = made.tables["classification"].query("shift == 'none' and metric == 'accuracy'").set_index("model")["value"]
    suffix = "classification/accuracy_undisturbed"
    metrics = [published[0].metrics[name] for name in (f"a/{suffix}", f"b_/{suffix}", f"b_/{suffix}-2")]
    assert metrics == pytest.approx(values[[*names]].tolist()), "names that become equal are told apart"
    assert published[0].parameters["model.b_-2"] == "b<"


def test_mistakes_are_one_sentence(run: rw.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = call("publish", run.path, "--mlflow", "mlflow.db", code=2)
    assert (
        refused
        == "'mlflow.db' is not a tracking URI of MLflow: write one such as sqlite:///mlflow.db or https://server:5000"
    )
    assert "needs a name: give one with --experiment" in call(
        "publish", run.path, "--mlflow", "sqlite:///mlflow.db", "--experiment", " ", code=2
    )
    assert not [*tmp_path.iterdir()], "nothing was made"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    unreachable = call("publish", run.path, "--mlflow", "http://me:secret@127.0.0.1:9", code=2)
    assert "MLflow at http://***@127.0.0.1:9 did not take the run" in unreachable
    assert "secret" not in unreachable


def test_a_changed_run_is_refused(run: rw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    csv = run.path / "tables" / "classification.csv"
    text = csv.read_text()
    csv.write_text(text.replace("0.", "0.9"))
    try:
        with pytest.raises(rw.InputError, match=r"classification.csv was changed or is missing"):
            run.log_to_mlflow("sqlite:///never.db")
    finally:
        csv.write_text(text)


def test_without_the_extra_the_command_says_how_to_get_it(run: rw.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    printed = call("publish", run.path, "--mlflow", "sqlite:///x.db", code=2)
    assert "runs in MLflow need an optional dependency" in printed
    assert "[mlflow]" in printed


def test_nothing_is_reported_to_the_makers_of_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    monkeypatch.delitem(sys.modules, "mlflow")
    mlflow._import_client()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_long_names_are_cut_and_stay_apart() -> None:
    names = {clean_name("x" * 300), clean_name("x" * 301)}
    assert len(names) == 2
    assert max(map(len, names)) <= 250
