"""The store of a run: whatever is changed, missing or foreign is named, what nothing refers to can be removed."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from commands import call, snapshot
from dark_and_bright import CODE, draw
from roadworthy.core.errors import InputError
from roadworthy.engine.folder import RunFolder
from tiny import contents

MODEL = {"callable": "m.py:answer", "num_classes": 2, "version": "1"}
STUDY: dict[str, Any] = {
    "name": "care",
    "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
    "models": {"m": MODEL},
    "outliers": {"a": "uniform_noise", "b": "normal_noise"},
    "monitors": ["kl_matching"],
    "protocols": {"od_test": {}, "classification": {"shifts": ["noise"], "levels": [3]}},
    "criteria": [{"id": "A", "metric": "accuracy", "at_least": 0.1, "over": "pooled"}],
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that holds every kind of file, beside its study."""
    folder = tmp_path_factory.mktemp("kept")
    draw(folder, 40)
    (folder / "m.py").write_text(CODE)
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        call("run", "study.yaml", "--trust", "--out", "run", "--quiet", code=0)
    return folder


@pytest.fixture
def finished(kept: Path, tmp_path: Path) -> Path:
    """A copy of it that may be damaged."""
    shutil.copytree(kept / "run", tmp_path / "run")
    return tmp_path / "run"


def problems(run: Path) -> list[str]:
    """What the command says is wrong, without its last line."""
    return call("verify", run, code=1).splitlines()[:-1]


def test_a_run_holds_every_kind_of_file(kept: Path) -> None:
    files = {str(path.relative_to(kept / "run")) for path in (kept / "run").rglob("*") if path.is_file()}
    assert {"run.json", "study.yaml", "verdict.json", "verdicts.json", "report.html", ".lock"} <= files
    for pattern in ("readouts/*/part-*", "readouts/*/manifest.json", "artifacts/*/manifest.json", "artifacts/*/*.npz"):
        assert [*(kept / "run").glob(pattern)], pattern
    for pattern in ("tables/*.parquet", "tables/*.csv", "tables/*.tex", "media/*.png"):
        assert [*(kept / "run").glob(pattern)], pattern


def test_a_flipped_byte_in_any_file_is_named(finished: Path) -> None:
    opened, positions = rw.open_run(finished), random.Random(21)
    for path in [path for path in sorted(finished.rglob("*")) if path.is_file() and path.name != ".lock"]:
        content, name = path.read_bytes(), str(path.relative_to(finished))
        position = positions.randrange(len(content))
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            named = opened.file_problems()
        except InputError as error:
            assert name == "run.json", (name, position)
            named = [f"{name} was changed"] if "run.json" in str(error) else []
        assert f"{name} was changed" in named, (name, position, named)
        path.write_bytes(content)
    assert opened.verify() == []


KINDS = [
    *("study.yaml", "verdict.json", "verdicts.json", "report.html", "media/*.png", "readouts/*/part-*.parquet"),
    *("tables/*.parquet", "tables/*.csv", "tables/*.tex", "readouts/*/manifest.json", "artifacts/*/manifest.json"),
    "artifacts/*/*.npz",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_off_or_missing_is_named(finished: Path, kind: str) -> None:
    path, opened = first(finished, kind), rw.open_run(finished)
    content, name = path.read_bytes(), str(path.relative_to(finished))
    path.write_bytes(content[:-1])
    assert f"{name} was changed" in opened.file_problems()
    path.unlink()
    assert f"{name} is missing" in opened.file_problems()


def test_a_changed_space_of_the_record_is_seen_by_its_seal(finished: Path) -> None:
    text = (finished / "run.json").read_text()
    (finished / "run.json").write_text(text.replace('"study": "care"', '"study":  "care"'))
    assert problems(finished) == ["run.json was changed"]
    (finished / "run.json").write_text(text.replace('"seed": 0', '"seed": 1', 1))
    assert problems(finished) == ["run.json was changed"]
    with pytest.raises(InputError, match=r"run.json was changed since it was written"):
        rw.open_run(finished, trust=True).report()
    assert problems(finished) == ["run.json was changed"], "a report never blesses it"
    assert "run.json was changed" in call("clean", finished, code=2)


def test_a_foreign_file_in_any_folder_is_named(finished: Path) -> None:
    opened = rw.open_run(finished)
    folders = [finished, *(path for path in sorted(finished.rglob("*")) if path.is_dir())]
    assert len(folders) > 8
    for folder in folders:
        for name in ("notes.txt", "part-99999.parquet", "x.csv", ".hidden"):
            (folder / name).write_text("mine")
            assert opened.file_problems() == [f"{(folder / name).relative_to(finished)} is not part of the run"]
            (folder / name).unlink()
        (folder / "empty").mkdir()
        assert opened.file_problems() == [
            f"{(folder / 'empty').relative_to(finished)} is an empty folder that is not part of the run"
        ]
        (folder / "empty").rmdir()


def first(run: Path, pattern: str) -> Path:
    return min(run.glob(pattern))


def turn_into_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def turn_into_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a file that a killed writer left": (
        lambda run: (run / "tables" / "x.csv.4711.tmp").write_text("half"),
        ["tables/x.csv.4711.tmp was left by a writer that was killed"],
    ),
    "a file that only looks like one": (
        lambda run: (run / "mine.tmp").write_text("whole"),
        ["mine.tmp is not part of the run"],
    ),
    "a receipt": (
        lambda run: first(run, "readouts/a-*/part-00000.parquet").with_suffix(".parquet.sha256").write_text("0"),
        ["readouts/a-*/part-00000.parquet.sha256 is a receipt that a finished folder no longer needs"],
    ),
    "a manifest that is missing": (
        lambda run: first(run, "readouts/a-*/manifest.json").unlink(),
        ["readouts/a-*/manifest.json is missing", "readouts/a-*/part-00000.parquet cannot be checked: the manifest"],
    ),
    "a link to another file of the run": (
        lambda run: turn_into_link(run / "report.html"),
        ["report.html is a link, not a file", "elsewhere is not part of the run"],
    ),
    "a link beside": (
        lambda run: (run / "media" / "more").symlink_to(run / "tables"),
        ["media/more is a link that is not part of the run"],
    ),
    "a link to nothing": (
        lambda run: (run / "lost").symlink_to(run / "nothing"),
        ["lost is a link that is not part of the run"],
    ),
    "a folder where a file was": (
        lambda run: turn_into_folder(run / "verdict.json"),
        ["verdict.json is a folder, not a file"],
    ),
    "a pipe where a file was": (
        lambda run: turn_into_pipe(first(run, "media/*.png")),
        ["media/*.png is a pipe, not a file"],
    ),
    "a lock that was written to": (
        lambda run: (run / ".lock").write_text("mine"),
        [".lock was changed: it is an empty file"],
    ),
    "a folder with a file": (
        lambda run: shutil.copytree(run / "tables", run / "media" / "tables"),
        ["media/tables/*.csv is not part of the run", "media/tables/*.parquet is not part of the run"],
    ),
    "a name of several lines": (
        lambda run: (run / "a\nb").write_text(""),
        ["a\\nb is not part of the run"],
    ),
    "a name that is no text": (
        lambda run: (run / os.fsdecode(b"\xff")).write_text(""),
        ["\\udcff is not part of the run"],
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_lies_there_that_should_not_is_named(finished: Path, damage: str) -> None:
    from fnmatch import fnmatchcase

    do, expected = DAMAGES[damage]
    do(finished)
    named = problems(finished)
    for pattern in expected:
        assert any(fnmatchcase(problem, f"{pattern}*") for problem in named), (pattern, named)
    assert all(any(fnmatchcase(p, f"{pattern}*") for pattern in (*expected, "media/tables/*")) for p in named), named


def test_a_link_that_leads_outside_is_refused(finished: Path, tmp_path: Path) -> None:
    (finished / "out").symlink_to(tmp_path)
    assert "'out' is a link that leads outside" in call("verify", finished, code=2)


def test_a_run_that_is_written_or_was_stopped_is_called_so(finished: Path) -> None:
    for command in (["verify"], ["clean", "--dry-run"], ["clean"]):
        with RunFolder(finished).locked():
            assert "process" in call(*command, finished, code=2)
    record = json.loads((finished / "run.json").read_text())
    del record["finished"], record["digest"]
    (finished / "run.json").write_text(json.dumps(record))
    before = snapshot(finished)
    for command in ("verify", "clean"):
        assert "was stopped before it finished; run the same command again" in call(command, finished, code=2)
    (finished / "run.json").unlink()
    for command in ("verify", "clean"):
        assert "was stopped before it finished; run the same command again" in call(command, finished, code=2)
    assert {name: kind for name, kind in before.items() if name != "run.json"} == snapshot(finished)


def test_empty_folders_that_a_run_makes_itself_are_none_of_the_problems(finished: Path) -> None:
    record = rw.open_run(finished).record
    shutil.rmtree(finished / "media")
    (finished / "media").mkdir()
    assert all("is missing" in problem for problem in rw.open_run(finished).file_problems())
    assert record.artifacts


def edited(kept: Path, run: Path) -> None:
    """Run another study into the folder: readouts, pictures and an artifact of the first stay, and are recorded."""
    other = {**STUDY, "monitors": ["msp"], "protocols": {**STUDY["protocols"], "classification": {"shifts": ["fog"]}}}
    (kept / "other.yaml").write_text(yaml.safe_dump(other))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(kept)
        call("run", "other.yaml", "--trust", "--out", run, "--quiet")


def stored_tables(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.glob("tables/*") if path.suffix != ".tmp"}


def test_clean_removes_what_an_edited_study_left_and_nothing_else(kept: Path, finished: Path, tmp_path: Path) -> None:
    edited(kept, finished)
    opened = rw.open_run(finished)
    assert opened.verify() == []
    named = {Path(case.folder).name for case in opened.record.cases.values()}
    (finished / "tables" / "x.csv.4711.tmp").write_text("half")
    (finished / "readouts" / "noise-3-r0-0123456789abcdef").mkdir()
    (finished / "artifacts" / ("f" * 64)).mkdir()
    (finished / "artifacts" / ("f" * 64) / "checkpoint.safetensors").write_bytes(b"12345")
    (finished / "media" / "noise-3-r0-0123abcd.png").write_bytes(b"123")
    (finished / "notes.txt").write_text("mine")
    before, listed = snapshot(finished), call("clean", finished, "--dry-run").splitlines()
    assert snapshot(finished) == before, "a dry run changes nothing"
    assert any(line.startswith("would be removed: readouts/noise-3-r0-") for line in listed)
    assert f"would be removed: artifacts/{'f' * 64} (5 bytes): artifact, not finished, that" in "\n".join(listed)
    assert "would be removed: tables/x.csv.4711.tmp (4 bytes): was left by a writer that was killed" in listed
    assert any("(3 bytes)" in line and "media/noise-3-r0-0123abcd.png" in line for line in listed)
    assert "kept: notes.txt (4 bytes): is not part of the run; --foreign removes it" in listed
    tables = stored_tables(finished)
    removed = call("clean", finished).splitlines()
    assert [line.replace("would be ", "") for line in listed] == removed
    assert {path.name for path in (finished / "readouts").iterdir()} == named
    assert {path.name for path in (finished / "artifacts").iterdir()} == set(opened.record.artifacts)
    assert stored_tables(finished) == tables
    gone = before.keys() - snapshot(finished).keys()
    assert len([name for name in gone if before[name][2] is not None]) == int(removed[-1].split(": ")[1].split()[0])
    assert problems(finished) == ["notes.txt is not part of the run"]
    assert "kept: notes.txt" in call("clean", finished)
    assert "removed: notes.txt (4 bytes)" in call("clean", finished, "--foreign")
    assert "files as recorded; the tables follow" in call("verify", finished)
    assert call("clean", finished) == f"{finished}: nothing to remove\n"
    shutil.copytree(finished, tmp_path / "copy")
    edited(kept, finished)
    assert contents(finished) == contents(tmp_path / "copy"), "nothing that the study needs was removed"
    assert rw.open_run(finished).report().is_file()


def test_clean_leaves_a_run_as_it_is_that_needs_all_it_holds(finished: Path) -> None:
    before = snapshot(finished)
    cleaning = rw.clean(finished)
    assert (cleaning.removed, cleaning.kept, cleaning.bytes) == ((), (), 0)
    assert snapshot(finished) == before


def test_clean_that_was_killed_is_done_with_by_the_next(
    kept: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*paths: Path) -> None:
        raise KeyboardInterrupt

    edited(kept, finished)
    monkeypatch.setattr("roadworthy.engine.cleaning.remove", killed)
    with pytest.raises(KeyboardInterrupt):
        rw.clean(finished)
    monkeypatch.undo()
    assert all("is not part of the run" in problem for problem in problems(finished))
    again = rw.clean(finished)
    assert again.kept == ()
    assert again.bytes > 0
    assert rw.open_run(finished).verify() == []


def test_what_somebody_put_there_is_never_made_part_of_a_run(kept: Path, finished: Path) -> None:
    for name in ("notes.txt", "tables/mine.xlsx", "media/photo.jpg", "readouts/notes.txt", "mine.tmp"):
        (finished / name).write_text("mine")
    edited(kept, finished)
    expected = {"notes.txt", "tables/mine.xlsx", "media/photo.jpg", "readouts/notes.txt", "mine.tmp"}
    assert {problem.split(" is not")[0] for problem in problems(finished)} == expected
    assert {leftover.name for leftover in rw.clean(finished).kept} == expected
