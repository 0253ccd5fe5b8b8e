"""Hostile files: weights that hold code, runs that name files elsewhere, endless studies, cells that are formulas."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import roadworthy as rw
from commands import call_main, check_sentence, snapshot
from records import record_anew
from roadworthy.core.errors import InputError
from roadworthy.core.files import json_bytes
from roadworthy.core.hashing import sealed
from samples import SIDE, arrays, fill, squares, study

Said = tuple[int, str, str]
ARCH = f"""
import torch
def net(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear({3 * SIDE * SIDE}, 3))
"""
REFUSED = r"trap\.pt holds more than tensors.*pass (--unpickle|`unpickle=True`) only if you made the file yourself"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs: `run` of shifts, and `od` of an OD-test."""
    from roadworthy.api import no_progress

    folder = fill(tmp_path_factory.mktemp("finished"))
    put_study(folder)
    rw.run_study(folder / "study.yaml", out=folder / "run", progress=no_progress)
    (folder / "od.yaml").write_text(yaml.safe_dump(od_test(models={"m": "model.onnx"})))
    rw.run_study(folder / "od.yaml", out=folder / "od", progress=no_progress)
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of valid small files, in which commands run."""
    folder = fill(tmp_path / "above" / "folder")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("roadworthy.models.base.PROBE_SIZES", ((SIDE, SIDE),))
    return folder


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.makedirs, (str(self.mark), 0o777, True)


@pytest.fixture
def mark(folder: Path) -> Path:
    """What a stranger's weights beside one's own architecture leave behind when they are unpickled."""
    torch = pytest.importorskip("torch")
    space: dict[str, Any] = {}
    exec(ARCH, space)
    torch.save({"state_dict": space["net"]().state_dict(), "config": Trap(folder / "mark")}, folder / "trap.pt")
    (folder / "own.py").write_text(ARCH)
    return folder / "mark"


def put_study(folder: Path, **changes: Any) -> None:
    (folder / "study.yaml").write_text(yaml.safe_dump(study(**changes)))


TRAP = {"torch": "trap.pt", "arch": "own.py:net", "size": SIDE}
HERE = {**TRAP, "isolate": False}
GIVEN = "--model trap.pt --data data.npz --size 8x8 --arch own.py:net"
NESTED = [
    TRAP,
    {"mc_dropout": TRAP},
    {"temperature": HERE, "value": 2.0},
    {"ensemble": ["model.onnx", HERE]},
    {"ensemble": [{"temperature": {"mc_dropout": TRAP}, "value": 2.0}, "model.onnx"]},
]


def test_trust_in_an_architecture_unpickles_nothing(
    folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(folder)
    for words in (f"{command} {GIVEN}{extra}" for command in ("evaluate", "check") for extra in ("", " --trust")):
        code, _, said = call_main(words, monkeypatch, capfd)
        assert code == 2
        check_sentence(said, REFUSED)
    assert snapshot(folder) == before
    code, _, said = call_main(f"evaluate {GIVEN} --unpickle", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, r"own\.py holds code.*--trust")
    mark.rmdir()
    assert call_main(f"check {GIVEN} --trust --unpickle --sample 4", monkeypatch, capfd)[0] == 0
    assert mark.exists()


@pytest.mark.parametrize("entry", NESTED, ids=lambda entry: "-".join(entry))
def test_no_entry_of_a_study_unpickles_by_trust(
    entry: dict[str, Any], folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put_study(folder, models={"m": entry})
    code, _, said = call_main("run study.yaml --trust --dry-run", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, REFUSED)
    with pytest.raises(InputError, match=REFUSED):
        rw.run_study("study.yaml", trust=True)
    with pytest.raises(InputError, match=REFUSED):
        rw.load_model(entry, trust=True)
    assert not mark.exists()
    assert call_main("run study.yaml --trust --unpickle --dry-run --accept-chance", monkeypatch, capfd)[0] == 0
    assert mark.exists()


def test_no_other_way_unpickles_by_trust(
    folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """OD-tests by study and by Python, `rw.evaluate`, and the calibration of a preview."""
    (folder / "study.yaml").write_text(yaml.safe_dump(od_test(models={"m": TRAP})))
    for words in ("run study.yaml --trust", "preview grey --data data.npz --calibrate --model trap.pt --trust"):
        code, _, said = call_main(words, monkeypatch, capfd)
        assert code == 2
        check_sentence(said, REFUSED)
    sets = od_test()["outliers"]
    for attempt in (
        lambda: rw.od_test(TRAP, monitors=["msp"], source="data.npz", outliers=sets, trust=True),
        lambda: rw.evaluate("trap.pt", "data.npz", arch="own.py:net", trust=True),
        lambda: rw.run_study("study.yaml", trust=True),
    ):
        with pytest.raises(InputError, match=REFUSED):
            attempt()
    assert not mark.exists()
    assert call_main("run study.yaml --trust --unpickle --dry-run --accept-chance", monkeypatch, capfd)[2] == ""
    assert mark.exists()


@pytest.mark.parametrize("key", ["trust", "unpickle"])
def test_a_study_grants_itself_nothing(
    key: str, folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for entry in ({**TRAP, key: True}, {"ensemble": [{**TRAP, key: True}, "model.onnx"]}):
        put_study(folder, models={"m": entry})
        code, _, said = call_main("run study.yaml --dry-run", monkeypatch, capfd)
        assert code == 2
        check_sentence(said, f"unknown torch model setting '{key}'")
    assert not mark.exists()


def test_an_architecture_beside_a_file_that_has_its_own_is_refused(
    folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--trust` for one's own architecture must not run the TorchScript that a stranger's file turns out to be."""
    torch = pytest.importorskip("torch")
    torch.jit.save(torch.jit.script(torch.nn.Flatten()), folder / "script.pt")
    words = "check --data data.npz --arch own.py:net --trust --model script.pt"
    code, _, said = call_main(words, monkeypatch, capfd)
    assert code == 2
    check_sentence(said, r"script\.pt is TorchScript, which comes with its architecture: leave out --arch")


def edit(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    seal = content.pop("digest", None)
    change(content)
    path.write_bytes(json_bytes(content if seal is None else sealed(content)))


def redirect_case(kind: str) -> Callable[[Path], object]:
    """The record of a run in which a case of that kind lies elsewhere; what lies there is a whole case."""

    def make(run: Path) -> None:
        def change(record: Any) -> None:
            case = next(case for case in record["cases"].values() if case["kind"] == kind)
            shutil.copytree(run / case["folder"], run.parent / "outside_case")
            case["folder"] = "../outside_case"

        edit(run / "run.json", change)

    return make


def redirect_artifact(run: Path) -> None:
    """The record of an OD-test in which a fitted monitor lies outside the run; what lies there is whole."""

    def change(record: Any) -> None:
        asked = record["protocols"]["od_test"]["sources"][""]["cases"]
        labels = next(case["labels"] for case in asked if case["labels"]["role"] == "monitor")
        shutil.copytree(run / "artifacts" / labels["artifact"], run.parent / "outside")
        labels["artifact"] = "../../outside"

    edit(run / "run.json", change)


def redirect_artifact_file(run: Path) -> None:
    """An artifact that counts a file outside among its own; run.json vouches for the changed record."""
    from roadworthy.core.hashing import digest_file

    (run.parent / "outside.txt").write_text("secret")
    record = next(run.glob("artifacts/*/manifest.json"))
    outside = {"../../../outside.txt": digest_file(run.parent / "outside.txt")}
    edit(record, lambda content: content["parts"].update(outside))
    edit(run / "run.json", lambda content: content["files"].update({str(record.relative_to(run)): digest_file(record)}))


def redirect_picture(name: str) -> Callable[[Path], object]:
    """A table whose picture is a file outside the run."""

    def make(run: Path) -> None:
        from roadworthy.engine.folder import RunFolder

        shutil.copy(next((run / "media").glob("*.png")), run.parent / "outside.png")
        table = RunFolder(run).table("classification_gallery")
        RunFolder(run).write_table(
            "classification_gallery", table.assign(media=name or str(run.parent / "outside.png"))
        )
        record_anew(run)

    return make


def link_out(name: str) -> Callable[[Path], object]:
    """A file of the run is a link to the same content outside."""

    def make(run: Path) -> None:
        path = next(run.glob(name))
        outside = run.parent / "outside"
        shutil.move(path, outside)
        path.symlink_to(outside)

    return make


def whole_path(record: Any) -> None:
    next(iter(record["cases"].values())).update(folder="/etc")


OUTSIDE = [
    ("run", redirect_case("model"), "verify report verdict compare"),
    ("run", lambda run: edit(run / "run.json", whole_path), "verify report"),
    ("run", lambda run: edit(run / "run.json", lambda r: r["files"].update({"../a": "0" * 64})), "verify report"),
    ("run", redirect_picture("../../outside.png"), "report"),
    ("run", redirect_picture(""), "report"),
    ("run", link_out("media/*.png"), "verify report"),
    ("run", link_out("readouts/*"), "verify report"),
    ("run", link_out("readouts/*/part-*"), "verify report"),
    ("run", link_out("tables/classification.parquet"), "verify report"),
    ("run", link_out("verdict.json"), "verify report"),
    ("od", redirect_artifact, "verify"),
    ("od", redirect_case("monitor"), "verify"),
    ("od", redirect_case("model"), "verify"),
    ("od", redirect_artifact_file, "verify"),
]


@pytest.mark.parametrize(("run", "tamper", "commands"), OUTSIDE)
def test_a_tampered_run_is_not_followed_outside(
    run: str,
    tamper: Callable[[Path], object],
    commands: str,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(finished / run, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    tamper(tmp_path / "run")
    before = snapshot(tmp_path)
    for command in commands.split():
        code, _, said = call_main(f"{command} run" + (" run" if command == "compare" else ""), monkeypatch, capfd)
        assert code == 2, (command, said)
        check_sentence(said, "outside")
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["media", "tables", "readouts"])
def test_nothing_outside_is_written_or_removed_through_a_link(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    link_out(name)(tmp_path / "run")
    (tmp_path / "outside" / "a.png").write_bytes(b"someone else's")
    before = snapshot(tmp_path)
    for options in ("", " --fresh"):
        code, _, said = call_main(f"run run/study.yaml --out run{options}", monkeypatch, capfd)
        assert code == 2, said
        check_sentence(said, f"'{name}' is a link that leads outside")
        assert snapshot(tmp_path) == before


HUGE = 10**9
DRAWN = {"test": {"builtin": "signs", "n": 14}, "train": {"builtin": "signs", "n": 14, "split": "train"}}
NETWORK = {"torch": "weights.pth", "arch": "own.py:net", "size": SIDE}
CONDITIONS = {f"c{number}": [str(value) for value in range(9)] for number in range(20)}


def classification(**settings: Any) -> dict[str, Any]:
    return study(protocols={"classification": settings})


def model(**entry: Any) -> dict[str, Any]:
    return study(models={"m": entry})


def reference(kind: str = "baseline", **settings: Any) -> dict[str, Any]:
    return study(data=DRAWN, models={"m": {"reference": kind, **settings}})


def gans(**settings: Any) -> dict[str, Any]:
    return study(data=DRAWN, models={"m": {"reference": "baseline"}}, protocols={"ood": {"gans": settings}})


def dependability(**settings: Any) -> dict[str, Any]:
    return study(data={"test": "conditions.csv"}, protocols={"dependability": settings}, criteria=None)


def od_test(**changes: Any) -> dict[str, Any]:
    content = {
        "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
        "models": {"m": NETWORK},
        "outliers": {"a": "uniform_noise", "b": "normal_noise"},
        "monitors": ["msp"],
        "protocols": {"od_test": {}},
    }
    return content | changes


ENDLESS = {
    "repeats": (classification(repeats=HUGE), "this study asks for 51,000,000,000 cases; at most 100,000"),
    "repeats of few": (classification(shifts=["grey"], levels=[1], repeats=10**5), "asks for 200,000 cases"),
    "many models": (
        study(models={f"m{n}": "model.onnx" for n in range(2000)}, protocols={"classification": {}}),
        "asks for 102,000 cases",
    ),
    "repeats of outliers": (study(protocols={"ood": {"repeats": HUGE}}), "asks for 28,000,000,000 cases"),
    "both": (
        study(protocols={"classification": {"repeats": 1000}, "ood": {"repeats": 2000}}),
        "asks for 107,000 cases",
    ),
    "gans": (gans(count=10**6), "asks for 6,000,028 cases"),
    "epochs of gans": (gans(epochs=HUGE), "epochs of GANs .* from 1 to 10,000, not 1000000000"),
    "width of gans": (gans(width=HUGE), "width of GANs .* to 4,096"),
    "latent of gans": (gans(latent=HUGE), "latent of GANs .* to 4,096"),
    "batch of gans": (gans(batch=HUGE), "batch of GANs .* to 4,096"),
    "n": (study(data={"test": {"builtin": "signs", "n": 10**6}}), "at most 200,000 pictures, not n=1000000"),
    "n of a foreign set": (
        study(outliers={"s": {"builtin": "scenery", "n": 10**6}}, protocols={"ood": {}}),
        "at most 200,000 pictures, not n=1000000",
    ),
    "members": (model(ensemble={"reference": "baseline"}, members=HUGE), "members .* from 2 to 1,000, not 1000000000"),
    "epochs": (reference(epochs=HUGE), "epochs .* from 1 to 10,000, not 1000000000"),
    "training batch": (reference(batch=HUGE), "batch .* to 4,096"),
    "width": (reference(width=HUGE), "width .* to 4,096"),
    "hidden": (reference(hidden=HUGE), "hidden .* to 4,096"),
    "reference passes": (reference("mc_dropout", passes=HUGE), "passes .* from 1 to 10,000, not 1000000000"),
    "passes": (model(mc_dropout=NETWORK, passes=HUGE), "passes .* from 1 to 10,000, not 1000000000"),
    "threads": (model(onnx="model.onnx", threads=HUGE), "threads .* from 1 to 1,024"),
    "torch threads": (model(**NETWORK, threads=HUGE), "threads .* from 1 to 1,024"),
    "channels": (model(**NETWORK, channels=HUGE), "channels .* from 1 to 4"),
    "classes": (model(callable="own.py:answer", num_classes=HUGE), "num_classes .* from 1 to 1,000,000"),
    "fixed batch": (model(callable="own.py:answer", fixed_batch=HUGE), "fixed_batch .* from 1 to 4,096"),
    "batch": (study(batch=HUGE), "batch: .* 4096"),
    "steps": (dependability(transformers=[{"name": "pgd", "parameters": {"epsilon": 4, "steps": HUGE}}]), "1 to 1,000"),
    "cells": (dependability(k=5), "915,495,696 cells of 5 conditions; at most 1,000,000"),
    "slices": (dependability(slices={"depth": HUGE}), r"more than 100,000 slices \(99,999,999,999,999,999,999\)"),
    "situations": (
        dependability(frequencies={name: dict.fromkeys(values, 1.0) for name, values in CONDITIONS.items()}),
        "12,157,665,459,056,928,801 situations; at most 100,000",
    ),
    "needs": (dependability(needs=[{"minimum": HUGE}]), "needs.0.minimum: .* 1000000"),
    "needs of all": (dependability(needs=[{"minimum": 10**6}]), "needs ask for .* more images than there are"),
    "groups of neurons": (dependability(pattern_groups=HUGE), "pattern_groups: .* 100000"),
    "resamples": (od_test(protocols={"od_test": {"resamples": HUGE}}), "resamples: .* 100000"),
    "passes of a monitor": (od_test(monitors={"mc_dropout": {"passes": HUGE}}), "10,000"),
    "triples": (od_test(outliers={f"s{n}": "uniform_noise" for n in range(400)}), "asks for 161,202 cases"),
}


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Stop what would never end."""

    def stop(number: int, frame: object) -> None:
        pytest.fail(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ENDLESS)
def test_a_study_without_end_is_refused_with_its_size(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    content, says = ENDLESS[name]
    if NETWORK["torch"] in str(content) or "own.py" in str(content):
        torch = pytest.importorskip("torch")
        (folder / "own.py").write_text(ARCH + "def answer(images): return [[0.2, 0.3, 0.5]] * len(images)\n")
        space: dict[str, Any] = {}
        exec(ARCH, space)
        torch.save(space["net"]().state_dict(), folder / "weights.pth")
    table = pd.read_csv(folder / "manifest.csv")
    columns = {name: [values[row % 9] for row in range(len(table))] for name, values in CONDITIONS.items()}
    table.assign(**columns).to_csv(folder / "conditions.csv", index=False)
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    before = snapshot(folder)
    with at_most(20):
        code, _, said = call_main("run study.yaml --dry-run --trust", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, says)
    assert snapshot(folder) == before


def test_an_export_without_end_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "study.yaml").write_text(yaml.safe_dump(classification(repeats=HUGE)))
    with at_most(20):
        code, _, said = call_main("export study.yaml images", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, "asks for 51,000,000,000 cases")


FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", "\rx", "'=1"]


def risky(file: Path) -> list[str]:
    """The cells of a CSV file, its header among them, that a spreadsheet would run."""
    with file.open(newline="") as content:
        cells = [cell for row in csv.reader(content) for cell in row]
    return [cell for cell in cells if cell[:1] in [*"=+-@\t\r"] and not re.fullmatch(r"-?[\d.]+(e[+-]\d+)?", cell)]


def test_no_cell_of_a_csv_file_is_a_formula(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Class names, ids, groups, models, conditions and their values that begin like one: marked in CSV, exact in
    Parquet, negative numbers as they are; what was exported is found again; `verify` holds."""
    labels = squares()[1]
    classes, ids = FORMULAS[:3], [f"{FORMULAS[row % len(FORMULAS)]} {row}" for row in range(len(labels))]
    weather = {"=weather": np.array(["@rain", "-dry"] * 6)}
    np.savez(folder / "data.npz", **arrays(class_names=np.array(classes), id=np.array(ids), **weather))
    models = {FORMULAS[0]: "model.onnx", "+b": "logits.onnx"}
    settings = {"classification": {"shifts": ["grey"], "levels": [5]}, "dependability": {"transformers": ["grey"]}}
    put_study(folder, models=models, protocols=settings, criteria=None)
    assert call_main("run study.yaml --out run", monkeypatch, capfd)[0] == 0
    files = sorted(Path("run/tables").glob("*.csv"))
    assert {file.name: risky(file) for file in files if risky(file)} == {}
    exact = pd.read_parquet("run/tables/classification_mistakes.parquet")
    assert set(exact["label"]) <= set(classes)
    assert set(exact["id"]) <= set(ids)
    shown = pd.read_csv("run/tables/classification_mistakes.csv", keep_default_na=False)
    assert [*shown["model"].str.removeprefix("'")] == [*exact["model"]]
    drops = pd.read_parquet("run/tables/classification.parquet")["value"].dropna()
    assert np.allclose(pd.read_csv("run/tables/classification.csv")["value"].dropna(), drops)
    assert call_main("compare run --out changes.csv", monkeypatch, capfd)[0] == 0
    assert risky(Path("changes.csv")) == []
    assert call_main("verify run", monkeypatch, capfd)[0] == 0


def test_exported_ids_that_are_formulas_come_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = [f"{FORMULAS[row % len(FORMULAS)]} {row}" for row in range(12)]
    np.savez(folder / "data.npz", **arrays(id=np.array(ids)))
    put_study(folder, criteria=None)
    assert call_main("export study.yaml images", monkeypatch, capfd)[0] == 0
    assert risky(Path("images/manifest.csv")) == []
    manifest = pd.read_csv("images/manifest.csv", dtype=str).drop(columns="path")
    manifest.assign(red=0.5, green=0.25, blue=0.25).to_csv("answers.csv", index=False, quoting=csv.QUOTE_ALL)
    put_study(folder, models={"m": {"predictions": "answers.csv"}}, criteria=None)
    assert call_main("run study.yaml --out run --accept-chance", monkeypatch, capfd)[::2] == (0, "")
    stored = pd.concat(map(pd.read_parquet, Path("run/readouts").rglob("part-*.parquet")))
    assert set(stored["id"]) == set(ids)


NUL = {
    "id": (lambda: {"id": np.array([f"a\0b{row}" for row in range(12)])}, r"image id 'a\\x00b0' holds a NUL"),
    "class name": (lambda: {"class_names": np.array(["a\0b", "c", "d"])}, r"class name 'a\\x00b' holds a NUL"),
    "group": (lambda: {"group": np.array([f"a\0b{row}" for row in range(12)])}, r"group 'a\\x00b0' holds a NUL"),
    "value": (lambda: {"weather": np.array(["a\0b"] * 12)}, r"value of weather 'a\\x00b' holds a NUL"),
}


@pytest.mark.parametrize("what", NUL)
def test_a_nul_character_in_data_is_refused(
    what: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    changes, says = NUL[what]
    np.savez(folder / "data.npz", **arrays(**changes()))
    before = snapshot(folder)
    code, _, said = call_main("run study.yaml --out run", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, says)
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    "content",
    [
        study(models={"a\0b": "model.onnx"}),
        study(models={"m": {"callable": "own.py:answer", "classes": ["a\0b", "c", "d"]}}),
        study(criteria=[{"id": "a\0b", "metric": "accuracy", "at_least": 0.1}]),
        study(criteria=[{"id": "a", "hazard": "a\0b", "metric": "accuracy", "at_least": 0.1}]),
        {"sources": {"a\0b": {"data": {"test": "data.npz"}, "models": {"m": "model.onnx"}}}},
    ],
    ids=["model", "class of a model", "criterion", "hazard", "source"],
)
def test_a_nul_character_in_a_study_is_refused(
    content: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "own.py").write_text("def answer(images): return [[0.2, 0.3, 0.5]] * len(images)\n")
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    code, _, said = call_main("run study.yaml --dry-run --trust", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, r"a\\x00b")
