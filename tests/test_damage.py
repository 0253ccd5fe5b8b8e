"""Files of a run that were truncated, emptied, flipped or replaced: found, made again, and the results are the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from test_cli import call
from test_stubborn_models import CODE, draw, study
from tiny import contents


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
MODEL = {"callable": "m.py:answer", "num_classes": 2, "version": "1"}
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
        "protocols": {
            "od_test": {
                "sources": {"s": {"model": MODEL, "data": "data.npz"}},
                "outliers": {"a": "uniform_noise", "b": "normal_noise"},
                "monitors": ["kl_matching"],
            }
        },
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
        *(
            "representations/[0-4]*/rows.npz",
            "representations/[5-9]*/manifest.json",
            "representations/[a-f]*/cost.json",
        ),
        *("artifacts/*/artifact.json", "artifacts/*/monitor.npz", "tables/od_test.parquet"),
    ],
}
"""Kinds of files of a finished run, run.json apart; of each, all that match are damaged."""
STOPPED = {
    "plain": (70, ["readouts/*/part-*.parquet", "study.yaml"]),
    "dependable": (56, ["readouts/*/part-*.parquet"]),
    "od": (6, ["representations/*/rows.npz"]),
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
    with inside(home):
        run(str(out))
        assert contents(out) == contents(home / "whole")
        assert not [*out.rglob("*.sha256"), *out.rglob("*.building")]
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
    data = {"test": str(draw(test)), "train": str(draw(train, 40))}
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
