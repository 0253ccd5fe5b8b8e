"""Files of a run that were truncated, emptied, flipped or replaced: found, made again, and the results are the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from commands import call
from dark_and_bright import CODE, draw, study
from roadworthy.core import manifests
from roadworthy.core.errors import DamagedFile, ModelError
from roadworthy.core.hashing import digest_file
from tiny import contents

NODE = "5ae21dd94e555bc9"


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "flipped": lambda content: flip(content, len(content) // 2),
    "garbage": lambda content: b"\x93not what was written",
}
STOPS = (
    CODE
    + """
import pathlib
quick = answer

def answer(images):
    stop = pathlib.Path(__file__).with_name("stop")
    if stop.exists():
        left = int(stop.read_text()) - 1
        stop.write_text(str(left))
        if left < 0:
            raise KeyboardInterrupt
    return quick(images)
"""
)
MODEL = {"callable": "m.py:answer", "num_classes": 2, "version": "1", "isolate": False}
STUDIES: dict[str, dict[str, Any]] = {
    "plain": study(Path("data.npz"), {"m": MODEL}, protocols={"classification": {"shifts": ["noise"], "levels": [3]}}),
    "dependable": study(
        Path("signs"),
        {"m": MODEL},
        data={"test": {"builtin": "signs", "n": 24}, "classes": None},
        size=16,
        protocols={
            "dependability": {
                "transformers": [{"name": "noise", "level": 1}],
                "occlusion": {"patch": 8, "stride": 8, "images": 16},
            }
        },
        models={"m": {**MODEL, "num_classes": 14}},
    ),
    "od": {
        "name": "od",
        "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
        "models": {"m": MODEL},
        "outliers": {"a": "uniform_noise", "b": "normal_noise"},
        "monitors": ["kl_matching"],
        "protocols": {"od_test": {}},
    },
}
"""The smallest runs that hold every kind of file."""
FINISHED = {
    "plain": [
        *("readouts/none*/part-*.parquet", "readouts/noise*/manifest.json", "study.yaml", "verdict.json"),
        *("report.html", "tables/classification.parquet", "tables/timing_cases.parquet", "media/*.png"),
    ],
    "dependable": ["readouts/*/manifest.json", "readouts/*/part-00001.parquet", "tables/dependability.parquet"],
    "od": [
        *("readouts/a-*/part-*.parquet", "readouts/b-*/manifest.json", "tables/timing_cases.parquet"),
        *("artifacts/*/manifest.json", "artifacts/*/monitor.npz", "tables/od_test.parquet"),
    ],
}
"""Kinds of files of a finished run, run.json apart; of each, all that match are damaged."""
STOPPED = {
    "plain": (70, ["readouts/*/part-*.parquet", "study.yaml"]),
    "dependable": (100, ["readouts/*/part-*.parquet"]),
    "od": (6, ["readouts/*/part-*.parquet"]),
}
"""After how many answers a run is stopped, and what is damaged then."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of each study, and one that was stopped."""
    folder = tmp_path_factory.mktemp("kept")
    draw(folder, 40)
    for name, content in STUDIES.items():
        code = STOPS if name != "dependable" else STOPS.replace("[1 - light, light]", "[light / 13] * 13 + [1 - light]")
        home = folder / name
        home.mkdir()
        shutil.copy(folder / "data.npz", home)
        (home / "m.py").write_text(code)
        (home / "study.yaml").write_text(yaml.safe_dump(content))
        with inside(home):
            run("whole")
            (home / "stop").write_text(str(STOPPED[name][0]))
            run("stopped", code=130)
            (home / "stop").unlink()
            assert not (home / "stopped" / "run.json").exists()
    return folder


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def run(out: str, code: int = 0) -> None:
    call("run", "study.yaml", "--trust", "--accept-chance", "--out", out, "--workers", 2, code=code)


def damage(run: Path, pattern: str, how: str) -> None:
    paths = sorted(run.glob(pattern))
    assert paths, (pattern, sorted(run.rglob("*")))
    for path in paths:
        path.write_bytes(DAMAGES[how](path.read_bytes()))


ALL_KINDS = [
    *((name, "whole", patterns) for name, patterns in FINISHED.items()),
    *((name, "stopped", patterns) for name, (_, patterns) in STOPPED.items()),
    ("plain", "whole", ["run.json"]),
]


@pytest.mark.parametrize(
    ("name", "state", "patterns", "how"),
    [
        *((*kinds, how) for kinds in ALL_KINDS for how in DAMAGES),
        ("od", "whole", ["run.json"], "empty"),
        ("plain", "stopped", ["readouts/*/part-*.sha256"], "garbage"),
    ],
)
def test_a_run_goes_on_over_whatever_was_damaged(
    kept: Path, name: str, state: str, patterns: list[str], how: str, tmp_path: Path
) -> None:
    home, out = kept / name, tmp_path / "run"
    shutil.copytree(home / state, out)
    for pattern in patterns:
        damage(out, pattern, how)
    loses_record = (state, patterns) == ("whole", ["run.json"])
    gap = pytest.warns(UserWarning, match="the history of verdicts is not whole") if loses_record else nullcontext()
    with inside(home):
        with gap:
            run(str(out))
        assert contents(out) == contents(home / "whole")
        assert not [*out.rglob("*.sha256")]
        assert rw.open_run(out).file_problems() == []


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_record_is_called_so(kept: Path, how: str, tmp_path: Path) -> None:
    shutil.copytree(kept / "plain" / "whole", tmp_path / "run")
    damage(tmp_path / "run", "run.json", how)
    for command in ("verify", "report"):
        if how != "flipped":  # one letter of a text can be another
            said = call(command, tmp_path / "run", code=2)
            assert "run.json cannot be read, it is damaged" in said
            assert "run the same command into this folder again" in said


def test_a_record_of_someone_else_is_left_alone(tmp_path: Path, kept: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("not yours")
    with inside(kept / "plain"):
        assert "holds no run" in call("run", "study.yaml", "--trust", "--out", tmp_path / "mine", code=2)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["run.json"]


SMALL = {"reference": "baseline", "epochs": 2, "width": 2, "hidden": 4, "batch": 64, "floor": 0.0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A study that trains a network, and what an undisturbed run of it holds."""
    pytest.importorskip("torch")
    test, train = tmp_path_factory.mktemp("test"), tmp_path_factory.mktemp("train")
    data = {"test": str(draw(test)), "train": str(draw(train, 40, seed=1))}
    content = study(test, {"m": SMALL}, data=data, protocols=STUDIES["plain"]["protocols"])
    return content, contents(rw.run_study(content, out=test / "run").path)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "network.safetensors", "training.json"])
def test_a_training_is_begun_anew_where_what_it_left_was_damaged(
    name: str, trained: tuple[dict[str, Any], dict[str, bytes]], tmp_path: Path
) -> None:
    source, expected = trained

    @contextmanager
    def stopping(title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Stops in the second epoch, or before the trained network is put in its place."""
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            if title.startswith("training") and done > total / 2 and name.startswith("checkpoint"):
                raise KeyboardInterrupt

        yield advance

    with pytest.MonkeyPatch.context() as patch:
        if not name.startswith("checkpoint"):
            patch.setattr("roadworthy.models.reference.export_onnx", interrupt)
        with pytest.raises(KeyboardInterrupt):
            rw.run_study(source, out=tmp_path / "run", progress=stopping)
    (found,) = (tmp_path / "run").glob(f"artifacts/*/{name}")
    content = found.read_bytes()
    found.write_bytes(
        flip(content, content.index(b'"accuracy": 0') + 13 if name.endswith("json") else len(content) - 1)
    )
    assert contents(rw.run_study(source, out=tmp_path / "run").path) == expected


def interrupt(*anything: object) -> None:
    raise KeyboardInterrupt


def test_a_stopped_training_goes_on_from_its_checkpoint_where_the_artifact_will_be(
    trained: tuple[dict[str, Any], dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roadworthy.models import training

    source, expected = trained
    epochs: list[int] = []
    train_epoch = training._train_epoch

    def stopping(torch: Any, course: Any, *others: Any) -> float:
        epochs.append(len(course.history) + 1)
        if epochs == [1, 2]:
            raise KeyboardInterrupt
        return train_epoch(torch, course, *others)

    monkeypatch.setattr(training, "_train_epoch", stopping)
    with pytest.raises(KeyboardInterrupt):
        rw.run_study(source, out=tmp_path / "run")
    (home,) = (tmp_path / "run" / "artifacts").iterdir()
    assert [path.name for path in home.iterdir()] == ["checkpoint.safetensors"]
    run = rw.run_study(source, out=tmp_path / "run")
    assert epochs == [1, 2, 2], "the first epoch is not trained again"
    assert [*(run.path / "artifacts").iterdir()] == [home]
    assert [*run.record.artifacts] == [home.name]
    assert "checkpoint.safetensors" not in json.loads((home / "manifest.json").read_text())["parts"]
    assert contents(run.path) == expected
    assert run.verify() == []


@pytest.fixture
def finished(kept: Path, tmp_path: Path) -> Path:
    """A finished run with artifacts that may be damaged."""
    shutil.copytree(kept / "od" / "whole", tmp_path / "run")
    return tmp_path / "run"


PARTS = ["readouts/*/part-00000.parquet", "artifacts/*/monitor.npz"]


@pytest.mark.parametrize("pattern", PARTS)
def test_verify_names_a_part_that_is_not_as_its_manifest_says(finished: Path, pattern: str) -> None:
    part = min(finished.glob(pattern))
    name, content, recorded = (
        part.relative_to(finished),
        part.read_bytes(),
        json.loads((finished / "run.json").read_text()),
    )
    assert str(name) not in recorded["files"]
    assert str(name.with_name("manifest.json")) in recorded["files"]
    files = [path for path in finished.rglob("*") if path.is_file() and path.name not in ("run.json", ".lock")]
    assert f": {len(files)} files as recorded; the tables follow" in call("verify", finished)
    part.write_bytes(flip(content, len(content) // 2))
    assert call("verify", finished, code=1).splitlines()[0] == f"{name} was changed"
    part.unlink()
    assert call("verify", finished, code=1).splitlines()[0] == f"{name} is missing"
    part.write_bytes(content)
    part.with_name("part-00099.npz").write_bytes(content)
    assert call("verify", finished, code=1).splitlines()[0] == f"{name.parent}/part-00099.npz is not part of the run"


@pytest.mark.parametrize("pattern", ["readouts/*/manifest.json", "artifacts/*/manifest.json"])
def test_the_seal_of_a_manifest_that_was_edited_breaks_whatever_run_json_says(finished: Path, pattern: str) -> None:
    path = min(finished.glob(pattern))
    name = str(path.relative_to(finished))
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    record = json.loads((finished / "run.json").read_text())
    assert record["files"][name] != digest_file(path)
    record["files"][name] = digest_file(path)
    del record["digest"]  # as runs were before records had a seal
    (finished / "run.json").write_text(json.dumps(record))
    assert call("verify", finished, code=1).splitlines() == [f"{name} was changed", f"{finished}: 1 problem"]


def test_a_case_that_the_study_no_longer_has_is_taken_back_where_it_was_damaged(kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(kept / "plain" / "whole", out)
    damage(out, "readouts/noise*/part-*.parquet", "flipped")
    content = STUDIES["plain"] | {"protocols": {"classification": {"shifts": ["blur"], "levels": [1]}}}
    with inside(kept / "plain"):
        Path("other.yaml").write_text(yaml.safe_dump(content))
        call("run", "other.yaml", "--trust", "--accept-chance", "--out", out)
    assert rw.open_run(out).verify() == []
    assert not [*out.glob("readouts/noise*/manifest.json")]


def test_whole_parts_outlive_a_damaged_manifest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        manifests.write_receipt(tmp_path / name)
    manifests.commit(tmp_path, {"case": NODE, "made_from": 1}, ["a", "b"])
    assert manifests.read_manifest(tmp_path, NODE)[0] == {"case": NODE, "made_from": 1}
    manifests.drop_damaged(tmp_path, NODE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "manifest.json"]
    text = (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace("made_from", "made_form"))
    with pytest.raises(DamagedFile, match="it was changed"):
        manifests.read_manifest(tmp_path, NODE)
    (tmp_path / "b").write_text("c")
    (tmp_path / "b.sha256").write_text("left by a kill")
    manifests.drop_damaged(tmp_path, NODE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.sha256"]
    assert manifests.has_receipt(tmp_path / "a")


def test_a_part_that_is_made_twice_is_the_same_or_an_error(tmp_path: Path) -> None:
    part = tmp_path / "part"
    for _ in range(2):
        part.write_text("once")
        manifests.write_receipt(part)
    part.write_text("twice")
    with pytest.raises(ModelError, match="was made twice and is not the same"):
        manifests.write_receipt(part)
    manifests.commit(tmp_path, {}, ["part"])
    with pytest.raises(DamagedFile, match="part is missing or was changed"):
        manifests.check_whole(tmp_path, manifests.NO_NODE)
