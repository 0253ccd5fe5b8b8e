"""The package in examples/plugin, installed as a user would: what it brings works by name, and its own tests pass."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import yaml

import roadworthy as rw
from commands import call
from roadworthy.core.registry import Registry
from roadworthy.data import BuiltinDataset, Opening, curation
from roadworthy.metrics import names
from roadworthy.monitors import check_monitor, check_usefulness
from tiny import SIZE, save_onnx, templates

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "plugin"


class Installed:
    """The example in a folder of its own, and commands of a process that finds it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = [str(ROOT / "src"), str(folder / "site")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        shutil.copytree(EXAMPLE, folder / "plugin")
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
        target = ["--target", str(folder / "site"), str(folder / "plugin")]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *target], check=True)

    def call(self, *words: object, code: int = 0) -> str:
        """What a command prints; it must end with this exit code."""
        command = [sys.executable, "-m", "roadworthy", *map(str, words)]
        done = subprocess.run(command, env=self.environment, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("example"))


def test_a_study_with_components_of_the_package(installed: Installed) -> None:
    content = yaml.safe_load((EXAMPLE / "study.yaml").read_text())
    worse = {"a": 0.0, "b": 1.0}
    content["models"] = {name: str(save_onnx(installed.folder / f"{name}.onnx", blur=worse[name])) for name in worse}
    content["data"] = {role: {"builtin": "signs", "split": role, "n": 280} for role in ("test", "train")}
    content["protocols"]["classification"]["levels"] = [5]
    recall = {"id": "RECALL", "metric": "worst_recall", "where": {"protocol": "classification", "model": "a"}}
    content["criteria"] = [content["criteria"][0], {**recall, "at_most": 0.99}]
    (installed.folder / "study.yaml").write_text(yaml.safe_dump(content))
    printed = installed.call("run", "study.yaml", "--out", "run")
    assert "of the images get the same answer when they are mirrored" in printed
    assert "pass  MIRROR: mirror_agreement" in printed
    assert "pass  RECALL: worst_recall" in printed
    run = installed.folder / "run"
    record = json.loads((run / "run.json").read_text())
    assert record["environment"]["packages"]["roadworthy-example"] == "0.1.0"

    mirrored = pd.read_csv(run / "tables" / "mirrored.csv").set_index("model")
    assert (mirrored["metric"] == "mirror_agreement").all()
    assert (mirrored["n"] == 240).all(), "two classes of fourteen are left out"
    assert mirrored["lo"].lt(mirrored["value"]).all()
    rows = pd.read_csv(run / "tables" / "classification.csv")
    assert set(rows["shift"]) == {"none", "glare"}
    recalls = pd.read_csv(run / "tables" / "classification_recall.csv").groupby(["model", "shift"])["value"].min()
    worst = rows[rows["metric"] == "worst_recall"].set_index(["model", "shift"])["value"]
    assert worst.to_dict() == pytest.approx(recalls.to_dict())
    assert "sharpness" in set(pd.read_csv(run / "tables" / "od_test.csv")["monitor"])

    report = (run / "report.html").read_text()
    section = report.partition('<section id="mirrored-agreement"')[2].partition("</section>")[0]
    assert "Counted is how often both get the same answer" in section
    assert "Agreement with the mirror image" in section
    assert "Worst recall" in report

    assert "mirror_agreement (mirrored)" in installed.call("compare", "run", "--out", "changes.csv")
    changes = pd.read_csv(installed.folder / "changes.csv").set_index("protocol").loc["mirrored"]
    assert [changes["before"], changes["after"]] == pytest.approx(mirrored["value"].to_list())
    assert changes["method"].startswith("sign flips and interval")


def test_its_table_is_listed(installed: Installed) -> None:
    listed = " ".join(installed.call("list", "tables").split())
    assert "mirrored: mirrored How often a model gives the same answer" in listed


@pytest.fixture
def loaded(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """The example as installed in this process, for one test."""
    monkeypatch.syspath_prepend(str(installed.folder / "site"))
    assert curation.READERS in Registry.everyone, "all registries are imported"
    for registry in Registry.everyone:
        monkeypatch.setattr(registry, "_members", dict(registry._members))
        monkeypatch.setattr(registry, "packages", dict(registry.packages))
        monkeypatch.setattr(registry, "_entry_points_loaded", False)
    monkeypatch.setattr(names, "_BY_PROTOCOL", dict(names._BY_PROTOCOL))
    yield installed
    for module in [name for name in sys.modules if name.partition(".")[0] == "roadworthy_example"]:
        del sys.modules[module]


def test_its_kinds_of_models_data_and_annotations(loaded: Installed, tmp_path: Path) -> None:
    signs = BuiltinDataset("signs", Opening(size=SIZE), n=140)
    batch, class_names = signs.batch(slice(None)), signs.class_names
    sheets, frames = tmp_path / "sheets", tmp_path / "frames"
    sheets.mkdir()
    frames.mkdir()
    for label, name in enumerate(class_names):
        cv2.imwrite(str(sheets / f"{name}.png"), np.hstack(batch.images[batch.labels == label])[..., ::-1])
    means = templates().reshape(-1, 3, SIZE, SIZE).transpose(0, 2, 3, 1) * 255
    np.savez(tmp_path / "means.npz", means=means, class_names=np.array(class_names))
    content = {
        "name": "kinds",
        "data": {"test": {"sheets": str(sheets), "classes": list(class_names)}},
        "models": {"means": {"centroids": str(tmp_path / "means.npz"), "spread": 5.0}},
        "protocols": {"classification": {"shifts": ["glare"], "levels": [5]}},
    }
    run = rw.run_study(content, out=tmp_path / "run", progress=rw.no_progress)
    rows = run.tables["classification"]
    clean = rows[(rows["shift"] == "none") & (rows["metric"] == "accuracy")]
    assert clean["model"].tolist() == ["means"]
    assert clean["value"].item() > 0.3, "fourteen classes: chance is 0.07"
    assert run.record.environment["packages"]["roadworthy-example"] == "0.1.0"

    cv2.imwrite(str(frames / "a.png"), np.zeros((200, 300, 3), np.uint8))
    (frames / "boxes.csv").write_text("image,kind,x0,y0,x1,y1\na.png,car,50,50,150,150\n")
    assert "negative " in call("list", "outliers")
    assert "car" in call("data", "curate", "box_list", frames, "--dry-run")
    assert "did you mean 'box_list'?" in call("data", "curate", "box_lists", frames, "--dry-run", code=2)


def test_its_own_tests_pass(loaded: Installed, pytester: pytest.Pytester) -> None:
    pytester.runpytest(loaded.folder / "plugin" / "tests").assert_outcomes(passed=7)


def test_the_monitor_keeps_the_promises(loaded: Installed) -> None:
    from roadworthy_example.sharpness import Sharpness

    check_monitor(Sharpness)
    check_usefulness(Sharpness)
