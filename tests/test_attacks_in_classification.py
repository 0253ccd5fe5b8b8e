"""Attacks as shifts of a study: one stimulus per model, epsilon as the level, the same bits, clear refusals."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roadworthy.api import compare_runs, execute, export_study, prepare, run_study
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.engine.estimating import estimate_time
from roadworthy.engine.folder import RunFolder
from roadworthy.models import TorchModel
from roadworthy.preview import write_preview
from roadworthy.shifts import make_shift
from roadworthy.study import Study, load_study
from stand_ins import nearest_mean
from tiny import CLASSES, SIZE, contents, save_onnx, study

torch = pytest.importorskip("torch")


class OneAtATime(Model):
    """A model that two threads must never use at once."""

    concurrent = False

    def __init__(self, model: TorchModel) -> None:
        self.model, self._busy = model, threading.Lock()
        self.name, self.num_classes, self.capabilities = "alone", model.num_classes, model.capabilities

    def fingerprint(self) -> str:
        return "alone"

    def predict(self, batch: Batch) -> Prediction:
        return self._alone(lambda: self.model.predict(batch))

    def input_gradient(self, batch: Batch) -> Any:
        return self._alone(lambda: self.model.input_gradient(batch))

    def _alone(self, call: Any) -> Any:
        assert self._busy.acquire(blocking=False), "two threads use the model at once"
        try:
            time.sleep(0.001)
            return call()
        finally:
            self._busy.release()


def attack_study(n: int = 42, **changes: Any) -> Study:
    content = {
        "size": SIZE,
        "data": {"test": {"builtin": "signs", "n": n}},
        "models": {"net": "<net>"},
        "protocols": {"classification": {"shifts": ["fgsm", "square"], "levels": [1, 5]}},
    }
    protocols = {
        "classification": {"shifts": [{"name": "fgsm"}, {"name": "square", "levels": SQUARE}], "levels": [1, 5]}
    }
    return load_study({**content, "protocols": protocols, **changes})[0]


SQUARE = {1: {"epsilon": 2, "queries": 8}, 5: {"epsilon": 16, "queries": 8}}


def run(out: Path, models: dict[str, Model], workers: int = 1, **changes: Any) -> Any:
    prepared = prepare(
        attack_study(models={name: f"<{name}>" for name in models}, **changes), models=models, accept_chance=True
    )
    return execute(prepared, out, workers=workers)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(tmp_path_factory.mktemp("two") / "run", {"net": nearest_mean(), "sharp": nearest_mean(3.0, "sharp")})


def test_every_model_meets_its_own_attack_with_epsilon_as_the_level(two: Any) -> None:
    table = two.tables["classification"].query("metric == 'accuracy'").set_index(["model", "shift", "level"])["value"]
    for model in ("net", "sharp"):
        assert table[model, "fgsm", 5] < table[model, "none", 0]
        assert table[model, "fgsm", 5] <= table[model, "fgsm", 1]
    attacks = [case for case in two.record.cases.values() if case.stimulus.name == "fgsm"]
    prints = {name: model.fingerprint for name, model in two.record.models.items()}
    assert {case.system: case.stimulus.parameters["attacked"] for case in attacks} == prints
    assert sorted({case.stimulus.parameters["epsilon"] for case in attacks}) == [1, 16]
    assert len({case.folder for case in attacks}) == len(attacks) == 4
    assert len(two.tables["classification_gallery"].query("shift == 'fgsm'")) == 2
    answers = two.tables["classification_gallery_answers"]
    assert set(answers.query("shift == 'none'")["model"]) == {"net", "sharp"}
    assert set(answers.query("shift == 'fgsm'")["model"]) == {"net"}, "the strips show the attack on the first"
    assert two.verify() == []


def test_attacked_models_are_compared_as_each_was_attacked(two: Any) -> None:
    table = compare_runs([two.path])
    fgsm = table[(table["condition"] == "fgsm") & (table["metric"] == "accuracy")]
    assert len(fgsm) == 2
    assert (fgsm["reason"] == "").all()


def test_same_bits_with_any_workers_order_and_resume(two: Any, tmp_path: Path) -> None:
    models = {"sharp": nearest_mean(3.0, "sharp"), "net": nearest_mean()}
    other = run(tmp_path / "other", models, workers=3)
    assert contents(other.path) == contents(two.path)
    halved = tmp_path / "halved"
    shutil.copytree(two.path, halved)
    for number, folder in enumerate(sorted((halved / "readouts").iterdir())):
        if number % 2:
            shutil.rmtree(folder)
    (halved / "run.json").write_text(json.dumps(two.record.dump()))
    assert contents(run(halved, models, workers=2).path) == contents(two.path)


def test_a_model_that_runs_alone_is_attacked_alone(tmp_path: Path) -> None:
    finished = run(tmp_path / "run", {"alone": OneAtATime(nearest_mean())}, workers=3, batch=16)
    assert not finished.failures


def test_no_gradient_is_told_before_anything_is_written(tmp_path: Path) -> None:
    save_onnx(tmp_path / "tiny.onnx")
    content = study(tmp_path, 28, protocols={"classification": {"shifts": ["fgsm"], "levels": [1]}})
    with pytest.raises(InputError, match=r"fgsm needs the gradient of model tiny.*attack square"):
        run_study(content, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    levels = {"name": "square", "levels": SQUARE}
    content = study(tmp_path, 28, protocols={"classification": {"shifts": [levels]}})
    assert not run_study(content, out=tmp_path / "run").failures


def test_stored_predictions_cannot_be_attacked(tmp_path: Path) -> None:
    content = study(tmp_path, 28, protocols={"classification": {"shifts": ["noise"], "levels": [1]}})
    export_study(content, tmp_path / "export")
    manifest = np.genfromtxt(tmp_path / "export" / "manifest.csv", delimiter=",", dtype=str, skip_header=1)
    names = (tmp_path / "export" / "classes.txt").read_text().splitlines()
    rows = [f"{s},{i}," + ",".join([repr(1 / CLASSES)] * CLASSES) for s, i, _ in manifest]
    (tmp_path / "answers.csv").write_text("\n".join(["stimulus,id," + ",".join(names), *rows]))
    stored = {"stored": {"predictions": str(tmp_path / "answers.csv")}}
    attack = {"classification": {"shifts": [{"name": "square", "levels": SQUARE}]}}
    with pytest.raises(InputError, match="square attacks model stored, whose stored predictions answer nothing new"):
        run_study({**content, "models": stored, "protocols": attack}, out=tmp_path / "run")


def test_export_preview_and_outliers_refuse_attacks(tmp_path: Path) -> None:
    content = study(tmp_path, 28, protocols={"classification": {"shifts": ["pgd"], "levels": [1]}})
    with pytest.raises(InputError, match="attack pgd cannot be exported"):
        export_study(content, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    with pytest.raises(InputError, match="pgd is an attack on a model"):
        list(write_preview("pgd", "builtin:signs", tmp_path / "sheet.png"))
    with pytest.raises(InputError, match="pgd is an attack on a model, and outliers are shown to all alike"):
        run_study({**content, "protocols": {"ood": {"transformed": ["pgd"]}}}, out=tmp_path / "run")


def test_names_of_both_kinds_are_known() -> None:
    with pytest.raises(InputError, match="unknown shift 'fgms': did you mean 'fgsm'"):
        make_shift("fgms", 1)
    with pytest.raises(InputError, match="no parameter"):
        make_shift("fgsm", 1, {1: {"strength": 2}})


def test_time_is_estimated_before_the_network_is_trained(tmp_path: Path) -> None:
    content = study(
        tmp_path,
        28,
        data={"test": {"builtin": "signs", "n": 28}, "train": {"builtin": "signs", "split": "train", "n": 70}},
        models={"vgg": {"reference": "vgg", "epochs": 1}},
        protocols={"classification": {"shifts": ["fgsm"], "levels": [1]}},
    )
    prepared = prepare(load_study(content)[0])
    assert estimate_time(prepared.plan.graph(), RunFolder(tmp_path / "run"), 1).total >= 0
