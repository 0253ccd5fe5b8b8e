"""The package in examples/plugin, installed as a user would: a protocol, a shift, a metric and a monitor in one run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from roadworthy.monitors import MONITORS, check_monitor, check_usefulness
from tiny import save_onnx

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


def test_a_study_with_all_four(installed: Installed) -> None:
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
    assert changes["method"].startswith("McNemar")


def test_its_table_is_listed(installed: Installed) -> None:
    listed = " ".join(installed.call("list", "tables").split())
    assert "mirrored: mirrored How often a model gives the same answer" in listed


def test_the_monitor_keeps_the_promises(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed.folder / "site"))
    monkeypatch.setattr(MONITORS, "_members", dict(MONITORS._members))
    from roadworthy_example.sharpness import Sharpness

    check_monitor(Sharpness)
    check_usefulness(Sharpness)
