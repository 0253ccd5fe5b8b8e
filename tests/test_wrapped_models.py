"""Ensembles, temperatures and MC-Dropout as entries of a study: what they are made of, fitted on and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import roadworthy as rw
import tiny
from roadworthy.api import execute, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest_file
from roadworthy.data import open_dataset
from roadworthy.models import load_model, softmax
from roadworthy.study import parse_study
from roadworthy.uncertainty import Calibrated, Ensemble, fit_temperature, log_probabilities

CLASSIFICATION = {"classification": {"shifts": ["noise"], "levels": [3], "repeats": 2}}
SMALL = {"reference": "baseline", "epochs": 1, "width": 4, "hidden": 8, "floor": 0.0}


def study(folder: Path, models: dict[str, Any], **data: Any) -> dict[str, Any]:
    sets = {"test": {"builtin": "signs", "n": 60}, **data}
    return tiny.study(folder, data=sets, models=models, protocols=CLASSIFICATION)


def accuracy(run: rw.Run, model: str) -> np.ndarray:
    table = run.tables["classification_repeats"]
    return table[(table.model == model) & (table.metric == "brier")].value.to_numpy()


def test_a_temperature_is_fitted_on_the_validation_data_before_any_case(tmp_path: Path) -> None:
    validation = {"builtin": "signs", "n": 200, "split": "train"}
    sharp = str(tiny.save_onnx(tmp_path / "sharp.onnx", gain=20.0))
    content = study(
        tmp_path,
        {"sharp": sharp, "fitted": {"temperature": {"onnx": sharp}}, "known": {"temperature": sharp, "value": 9.0}},
        validation=validation,
    )
    run = rw.run_study(content, out=tmp_path / "run")
    data = open_dataset(validation, size=(tiny.SIZE, tiny.SIZE)).batch(slice(None))
    expected = fit_temperature(log_probabilities(load_model(sharp).answer(data, 64)), data.labels)
    ((home, artifact),) = run.record.artifacts.items()
    assert (artifact.system, artifact.builder) == ("fitted", "temperature")
    assert artifact.competence["temperature"] == pytest.approx(expected.temperature, rel=1e-6)
    assert expected.temperature > 2, "the model was made too sure on purpose"
    for name, kind in (("sharp", "onnx"), ("fitted", "temperature"), ("known", "temperature")):
        model = run.record.models[name]
        assert (model.origin, model.files) == (kind, {sharp: digest_file(Path(sharp))})
        assert (model.input, model.outputs[:13]) == ("32x32 rgb, layout nchw, range 0-1, float32", "probabilities")
    assert accuracy(run, "fitted").mean() < accuracy(run, "sharp").mean()
    table = run.tables["classification"].set_index(["model", "shift", "metric"]).value
    for model in ("fitted", "known"):
        assert table[model, "noise", "accuracy"] == table["sharp", "noise", "accuracy"]
    stored = json.loads((run.path / "artifacts" / home / "temperature.json").read_text())
    assert stored["nll"] < stored["nll_before"]
    again = rw.run_study(content, out=tmp_path / "run")
    assert again.tables["classification"].equals(run.tables["classification"])


def test_a_temperature_reads_a_case_of_the_validation_data_in_batches_of_the_study(tmp_path: Path) -> None:
    class Noting(rw.Model):
        """Notes how many images it is asked about at once, and which undisturbed ones."""

        name, num_classes, capabilities = "noting", tiny.CLASSES, frozenset({"probabilities", "logits"})

        def __init__(self) -> None:
            self.sizes: set[int] = set()
            self.asked: list[str] = []

        def fingerprint(self) -> str:
            return "noting"

        def predict(self, batch: Any) -> Any:
            self.sizes.add(len(batch))
            self.asked += dict.fromkeys(batch.ids) if batch.stimulus.startswith("none") else ()
            logits = 5 * np.eye(tiny.CLASSES, dtype=np.float32)[batch.labels]
            return rw.Prediction(probabilities=softmax(logits), logits=logits)

    def run(out: str, batch: int) -> tuple[rw.Run, Noting]:
        content = study(tmp_path, {"m": "<in memory>"}, validation={"builtin": "signs", "n": 100, "split": "train"})
        model = Noting()
        asked = parse_study(content | {"batch": batch}, "study")
        prepared = prepare(asked, models={"m": Calibrated(model, name="m")}, rehearse=False)
        return execute(prepared, tmp_path / out, workers=1, progress=rw.no_progress), model

    done, model = run("run", 16)
    assert model.sizes == {16}
    held = open_dataset({"builtin": "signs", "n": 100, "split": "train"}, size=(tiny.SIZE, tiny.SIZE))
    assert sorted(name for name in model.asked if name in set(held.ids)) == sorted(held.ids), "each image once"
    (case,) = [case for case in done.record.cases.values() if case.kind == "signal"]
    assert (case.system, case.stimulus.data, case.status) == ("logits of noting", held.fingerprint(), "done")
    ((home, artifact),) = done.record.artifacts.items()
    assert artifact.parameters["batch"] == 16
    assert done.verify() == []
    (tmp_path / "run" / "artifacts" / home / "manifest.json").unlink()
    assert not run("run", 16)[1].asked, "a temperature that is fitted again reads what is stored"
    (usual,) = run("usual", 64)[0].record.artifacts.values()
    assert [*usual.parameters] == ["bounds"], "recipes of before stay as they are"


def test_a_temperature_is_fitted_in_the_order_of_the_data_s_classes(tmp_path: Path) -> None:
    class Reversed(rw.Model):
        """Always right, with its classes in the opposite order of the data's."""

        name, num_classes, class_names = "reversed", 2, ("b", "a")

        def fingerprint(self) -> str:
            return "0"

        def predict(self, batch: Any) -> Any:
            sure = np.eye(2, dtype=np.float32)[1 - batch.labels] * 0.8 + 0.1
            return rw.Prediction(probabilities=sure)

    data = open_dataset((np.zeros((40, 8, 8, 3), np.uint8), np.arange(40) % 2), classes=["a", "b"])
    model = Calibrated(Reversed()).with_data({"validation": data})
    competence = model.build(tmp_path, lambda _: None)
    assert competence["nll"] < 0.01, "all answers are right, so that the best temperature is the lowest"
    answer = model.model.answer(data.batch(slice(None)), 64)
    assert (answer.probabilities.argmax(axis=1) == data.labels).all()


def test_ensembles_of_a_study_average_their_members(tmp_path: Path) -> None:
    paths = [str(tiny.save_onnx(tmp_path / f"{gain}.onnx", gain=gain)) for gain in (1.0, 3.0)]
    run = rw.run_study(study(tmp_path, {"both": {"ensemble": [paths[0], {"onnx": paths[1]}]}}), out=tmp_path / "run")
    data = open_dataset({"builtin": "signs", "n": 60}, size=(tiny.SIZE, tiny.SIZE)).batch(slice(None))
    mean = np.mean([load_model(path).answer(data, 64).probabilities for path in paths], axis=0)
    brier = float(np.square(mean - np.eye(tiny.CLASSES)[data.labels]).sum(axis=1).mean())
    table = run.tables["classification"].set_index(["shift", "metric"]).value
    assert table["none", "brier"] == pytest.approx(brier, rel=1e-5)
    assert "certainty" in run.record.models["both"].capabilities


def test_a_trained_ensemble_trains_every_member_from_a_seed_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    train = {"builtin": "signs", "n": 280, "split": "train"}
    models = {"deep": {"ensemble": {**SMALL, "retrain": True}, "members": 2}}
    run = rw.run_study(study(tmp_path, models, train=train), out=tmp_path / "run")
    assert len({artifact.seed for artifact in run.record.artifacts.values()}) == 4, "two for each repeat"
    assert sorted(run.record.models["deep"].artifacts) == sorted(run.record.artifacts)
    assert len(set(accuracy(run, "deep"))) > 2
    kept = load_model({"ensemble": {**SMALL}, "members": 2}, name="kept")
    assert isinstance(kept, Ensemble)
    assert kept.for_repeat(1) is kept


def test_mc_dropout_of_a_torch_network(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    code = """
import torch
class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(3072, 14))
"""
    (tmp_path / "net.py").write_text(code)
    space: dict[str, Any] = {}
    exec(code, space)
    torch.save(space["Net"]().state_dict(), tmp_path / "net.pth")
    inner = {"torch": str(tmp_path / "net.pth"), "arch": f"{tmp_path}/net.py:Net", "size": 32}
    model = load_model({"mc_dropout": inner, "passes": 3}, name="mc", trust=True)
    answer = model.answer(open_dataset({"builtin": "signs", "n": 4}, size=(32, 32)).batch(slice(None)), 4)
    assert answer.samples is not None
    assert answer.samples.shape == (3, 4, 14)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"ensemble": []}, "needs at least 2 models"),
        ({"ensemble": ["tiny.onnx"]}, "needs at least 2 models"),
        ({"ensemble": ["tiny.onnx", "tiny.onnx"], "members": 2}, "lists its models"),
        ({"ensemble": "tiny.onnx"}, "list of models, or one reference network"),
        ({"ensemble": SMALL}, "needs `members`"),
        ({"ensemble": SMALL, "members": 1}, "at least 2 members"),
        ({"ensemble": [1, 2]}, "give its path or its entry"),
        ({"temperature": None}, "give its path or its entry"),
        ({"temperature": "tiny.onnx", "value": 0}, "must be above 0"),
        ({"temperature": "tiny.onnx", "valu": 2}, "value"),
        ({"temperature": "tiny.onnx"}, "data: validation"),
        ({"mc_dropout": "tiny.onnx"}, "needs a torch network"),
        ({"mc_dropout": SMALL}, "needs a torch network"),
        ({"mc_dropout": {"perception": "small_resnet"}}, "perception: BACKBONE, uncertainty: full"),
        ({"ensemble": {"perception": "small_resnet"}, "members": 2}, "uncertainty: ensemble, members: 5"),
        ({"variance_scaling": {"perception": "small_resnet"}}, "states no variance of its boxes"),
        ({"temperature": {"perception": "small_resnet", "task": "boxes"}}, "answers no classes"),
        ({"temperature": {"onnx": "gone.onnx"}}, "gone.onnx"),
    ],
)
def test_what_cannot_be_wrapped_is_refused_before_anything_is_written(
    tmp_path: Path, entry: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.save_onnx(tmp_path / "tiny.onnx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence):
        rw.run_study(study(tmp_path, {"wrapped": entry}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_validation_data_that_is_the_test_data_is_refused(tmp_path: Path) -> None:
    tiny.save_onnx(tmp_path / "tiny.onnx")
    entry = {"temperature": str(tmp_path / "tiny.onnx")}
    with pytest.raises(InputError, match="60 of 60 images of test data signs are images of validation data signs too"):
        rw.run_study(study(tmp_path, {"t": entry}, validation={"builtin": "signs", "n": 60}), out=tmp_path / "run")


def test_what_wraps_stored_predictions_is_checked_like_them(tmp_path: Path) -> None:
    tiny.save_onnx(tmp_path / "tiny.onnx")
    plain = study(tmp_path, {"m": str(tmp_path / "tiny.onnx")})
    data = open_dataset({"builtin": "signs", "n": 60}, size=(tiny.SIZE, tiny.SIZE))
    answer = load_model(str(tmp_path / "tiny.onnx")).answer(data.batch(slice(None)), 64).probabilities
    columns = {f"p{place}": answer[:, place] for place in range(tiny.CLASSES)}
    stored = tmp_path / "answers.csv"
    pd.DataFrame({"id": data.ids, **columns}).to_csv(stored, index=False)
    with pytest.raises(InputError, match="lacks") as refused:
        rw.run_study(plain | {"models": {"m": {"predictions": str(stored)}}}, out=tmp_path / "run")
    warmer = {"temperature": {"predictions": str(stored)}, "value": 2.0}
    with pytest.raises(InputError, match="lacks") as wrapped:
        rw.run_study(plain | {"models": {"m": warmer}}, out=tmp_path / "run")
    assert str(wrapped.value) == str(refused.value)
    with pytest.raises(InputError, match="give the value"):
        rw.run_study(plain | {"models": {"m": {"temperature": {"predictions": str(stored)}}}}, out=tmp_path / "run")


def test_a_temperature_of_a_retrained_network_is_fitted_once_for_every_repeat(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    train = {"builtin": "signs", "n": 280, "split": "train"}
    content = study(
        tmp_path,
        {"t": {"temperature": {**SMALL, "retrain": True}}},
        train=train,
        validation=train | {"n": 140, "seed": 1},
    )
    artifacts = rw.run_study(content, out=tmp_path / "run").record.artifacts.values()
    assert [artifact.builder for artifact in artifacts] == ["reference_classifier", "temperature"] * 2
