"""Hostile files: weights that hold code, runs that name files elsewhere, endless studies, cells that are formulas."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from roadworthy.core.errors import InputError
from samples import SIDE, fill, study
from test_bad_input import call, check_sentence, snapshot

Said = tuple[int, str, str]
ARCH = f"""
import torch
def net(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear({3 * SIDE * SIDE}, 3))
"""
REFUSED = r"trap\.pt holds more than tensors.*pass --unpickle only if you made the file yourself"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs: `run` of shifts, and `od` of an OD-test."""
    from roadworthy.api import no_progress

    folder = fill(tmp_path_factory.mktemp("finished"))
    put_study(folder)
    rw.run_study(folder / "study.yaml", out=folder / "run", progress=no_progress)
    source = {"model": "model.onnx", "data": "data.npz"}
    content = {"protocols": {"od_test": {**OD_TEST, "sources": {"s": source}}}}
    (folder / "od.yaml").write_text(yaml.safe_dump(content))
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
GIVEN = "--model trap.pt --data data.npz --size 8x8 --arch own.py:net"
NESTED = [
    TRAP,
    {"mc_dropout": TRAP},
    {"temperature": TRAP, "value": 2.0},
    {"ensemble": ["model.onnx", TRAP]},
    {"ensemble": [{"temperature": {"mc_dropout": TRAP}, "value": 2.0}, "model.onnx"]},
]
OD_TEST = {
    "monitors": ["msp"],
    "outliers": {"uniform": "uniform_noise", "normal": "normal_noise"},
    "sources": {"s": {"model": TRAP, "data": "data.npz", "size": SIDE}},
}


def test_trust_in_an_architecture_unpickles_nothing(
    folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(folder)
    for words in (f"{command} {GIVEN}{extra}" for command in ("evaluate", "check") for extra in ("", " --trust")):
        code, _, said = call(words, monkeypatch, capfd)
        assert code == 2
        check_sentence(said, REFUSED)
    assert snapshot(folder) == before
    code, _, said = call(f"evaluate {GIVEN} --unpickle", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, r"own\.py holds code.*--trust")
    mark.rmdir()
    assert call(f"check {GIVEN} --trust --unpickle --sample 4", monkeypatch, capfd)[0] == 0
    assert mark.exists()


@pytest.mark.parametrize("entry", NESTED, ids=lambda entry: "-".join(entry))
def test_no_entry_of_a_study_unpickles_by_trust(
    entry: dict[str, Any], folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put_study(folder, models={"m": entry})
    code, _, said = call("run study.yaml --trust --dry-run", monkeypatch, capfd)
    assert code == 2
    check_sentence(said, REFUSED)
    with pytest.raises(InputError, match=REFUSED):
        rw.run_study("study.yaml", trust=True)
    with pytest.raises(InputError, match=REFUSED):
        rw.load_model(entry, trust=True)
    assert not mark.exists()
    assert call("run study.yaml --trust --unpickle --dry-run", monkeypatch, capfd)[0] == 0
    assert mark.exists()


def test_no_other_way_unpickles_by_trust(
    folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """OD-tests by study and by Python, `rw.evaluate`, and the calibration of a preview."""
    (folder / "study.yaml").write_text(yaml.safe_dump({"protocols": {"od_test": OD_TEST}}))
    for words in ("run study.yaml --trust", "preview grey --data data.npz --calibrate --model trap.pt --trust"):
        code, _, said = call(words, monkeypatch, capfd)
        assert code == 2
        check_sentence(said, REFUSED)
    sets = OD_TEST["outliers"]
    for attempt in (
        lambda: rw.od_test(TRAP, monitors=["msp"], source="data.npz", outliers=sets, trust=True),
        lambda: rw.evaluate("trap.pt", "data.npz", arch="own.py:net", trust=True),
        lambda: rw.run_study("study.yaml", trust=True),
    ):
        with pytest.raises(InputError, match=REFUSED):
            attempt()
    assert not mark.exists()
    assert call("run study.yaml --trust --unpickle --dry-run", monkeypatch, capfd)[2] == ""
    assert mark.exists()


@pytest.mark.parametrize("key", ["trust", "unpickle"])
def test_a_study_grants_itself_nothing(
    key: str, folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for entry in ({**TRAP, key: True}, {"ensemble": [{**TRAP, key: True}, "model.onnx"]}):
        put_study(folder, models={"m": entry})
        code, _, said = call("run study.yaml --dry-run", monkeypatch, capfd)
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
    code, _, said = call(words, monkeypatch, capfd)
    assert code == 2
    check_sentence(said, r"script\.pt is TorchScript, which comes with its architecture: leave out --arch")


def edit(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def redirect_case(key: str) -> Callable[[Path], object]:
    """The record of a run whose first case lies under another name; what lies there is a whole case."""

    def make(run: Path) -> None:
        case = json.loads((run / "run.json").read_text())["cases"][0]
        shutil.copytree(run / "readouts" / case["protocol"] / case["key"], run.parent / "outside_case")
        edit(run / "run.json", lambda record: record["cases"][0].update({key: redirect(key, run)}))

    def redirect(key: str, run: Path) -> str:
        return "../../outside_case" if key == "protocol" else "../../../outside_case"

    return make


def redirect_od(*path: str) -> Callable[[Path], object]:
    """The record of an OD-test in which something stored lies outside the run; what lies there is whole."""

    def make(run: Path) -> None:
        def change(record: Any) -> None:
            holder = record["od_test"]["sources"]["s"]
            for step in path[:-1]:
                holder = holder[step]
            home = run / ("artifacts" if path[-1] == "artifact" else "representations") / holder[path[-1]]
            shutil.copytree(home, run.parent / "outside")
            holder[path[-1]] = "../../outside"

        edit(run / "run.json", change)

    return make


def redirect_artifact_file(run: Path) -> None:
    """An artifact that counts a file outside among its own; run.json vouches for the changed record."""
    from roadworthy.core.hashing import digest_file

    (run.parent / "outside.txt").write_text("secret")
    record = next(run.glob("artifacts/*/artifact.json"))
    outside = {"../../../outside.txt": digest_file(run.parent / "outside.txt")}
    edit(record, lambda content: content["files"].update(outside))
    edit(
        run / "run.json", lambda content: content["files"].update({str(record.relative_to(run)): digest_file(record)})
    )


def redirect_picture(name: str) -> Callable[[Path], object]:
    """A table whose picture is a file outside the run."""

    def make(run: Path) -> None:
        from roadworthy.engine.folder import RunFolder

        shutil.copy(next((run / "media").glob("*.png")), run.parent / "outside.png")
        table = RunFolder(run).table("classification_gallery")
        RunFolder(run).write_table("classification_gallery", table.assign(media=name or str(run.parent / "outside.png")))

    return make


def link_out(name: str) -> Callable[[Path], object]:
    """A file of the run is a link to the same content outside."""

    def make(run: Path) -> None:
        path = next(run.glob(name))
        outside = run.parent / "outside"
        shutil.move(path, outside)
        path.symlink_to(outside)

    return make


OUTSIDE = [
    ("run", redirect_case("key"), "verify report verdict compare"),
    ("run", redirect_case("protocol"), "verify report verdict compare"),
    ("run", lambda run: edit(run / "run.json", lambda r: r["cases"][0].update(key="/etc")), "verify report"),
    ("run", lambda run: edit(run / "run.json", lambda r: r["files"].update({"../a": "0" * 64})), "verify report"),
    ("run", redirect_picture("../../outside.png"), "report"),
    ("run", redirect_picture(""), "report"),
    ("run", link_out("media/*.png"), "verify report"),
    ("run", link_out("readouts/classification/*"), "verify report"),
    ("run", link_out("readouts/classification/*/part-*"), "verify report"),
    ("run", link_out("tables/classification.parquet"), "verify report"),
    ("run", link_out("verdict.json"), "verify report"),
    ("od", redirect_od("monitors", "msp", "artifact"), "verify"),
    ("od", redirect_od("monitors", "msp", "keys", "test"), "verify"),
    ("od", redirect_od("answers", "test"), "verify"),
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
        code, _, said = call(f"{command} run" + (" run" if command == "compare" else ""), monkeypatch, capfd)
        assert code == 2, (command, said)
        check_sentence(said, "outside")
        assert snapshot(tmp_path) == before
