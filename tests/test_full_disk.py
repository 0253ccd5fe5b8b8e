"""Full disks, locks that nobody holds any more, clocks that go back: a run stops cleanly, or goes on the same."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from commands import call
from dark_and_bright import CODE, draw
from full_disk import full_disk, losing_disk
from roadworthy.cluster.shared import MARK
from roadworthy.core.errors import InputError
from roadworthy.core.files import create_whole, is_temporary, write_bytes
from roadworthy.engine.folder import RunFolder
from tiny import contents

MODEL = {"callable": "m.py:answer", "num_classes": 2, "version": "1", "isolate": False}
STUDY: dict[str, Any] = {
    "name": "full",
    "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
    "models": {"m": MODEL},
    "outliers": {"a": "uniform_noise", "b": "normal_noise"},
    "monitors": ["kl_matching"],
    "protocols": {"od_test": {}},
}
FILES = [
    *(".lock", "study.yaml", "readouts/*/part-*.parquet", "readouts/*/part-*.sha256", "readouts/*/manifest.json"),
    *("artifacts/*/monitor.npz", "artifacts/*/manifest.json", "media/*.png", "run.json"),
    *("tables/*.parquet", "tables/*.csv", "tables/*.tex", "verdicts.json", "verdict.json", "report.html"),
]
"""What a run writes, by kind."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run, beside its study."""
    folder = tmp_path_factory.mktemp("calm")
    draw(folder, 40)
    (folder / "m.py").write_text(CODE)
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with full_disk(folder / "calm", lambda name: False) as begun:
            run("calm")
    for kind in FILES:
        assert any(fnmatchcase(name, kind) for name in begun), (kind, begun)
    (folder / "writes").write_text(str(len(begun)))
    return folder


@pytest.fixture
def home(calm: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the study lies, as the working folder."""
    monkeypatch.chdir(calm)
    yield calm
    shutil.rmtree(calm / "run", ignore_errors=True)


def run(out: str | Path, code: int = 0) -> str:
    return call("run", "study.yaml", "--trust", "--out", out, "--workers", 2, "--quiet", code=code)


def check_same(home: Path) -> None:
    assert contents(home / "run") == contents(home / "calm")
    assert rw.open_run(home / "run").verify() == []


def check_stopped(said: str) -> None:
    assert re.fullmatch(r"cannot write to run: No space left on device(; fix that and run again to resume)?", said)


def test_the_disk_is_full_at_one_kind_of_file_after_the_other(home: Path) -> None:
    """Every attempt gets as far as the next kind of file; what is stored stays."""
    stored: set[str] = set()
    for kind in FILES:
        with full_disk(home / "run", lambda name, kind=kind: fnmatchcase(name, kind), at_open=kind == ".lock") as begun:
            check_stopped(run("run", code=2))
        assert any(fnmatchcase(name, kind) for name in begun), kind
        assert not [*(home / "run").rglob("*.tmp")]
        parts = {path.name for path in (home / "run").glob("readouts/*/part-*.parquet")}
        assert stored <= parts
        stored = parts
    run("run")
    check_same(home)


@pytest.mark.chaos
@pytest.mark.parametrize("at_open", [False, True])
def test_the_disk_is_full_at_any_write(home: Path, at_open: bool) -> None:
    for number in range(int((home / "writes").read_text())):
        shutil.rmtree(home / "run", ignore_errors=True)
        left = iter(range(number))
        with full_disk(home / "run", lambda name, left=left: next(left, None) is None, at_open=at_open) as begun:
            check_stopped(run("run", code=2)) if at_open or begun[:1] != [".lock"] else run("run", code=2)
        run("run")
        check_same(home)


@pytest.mark.parametrize("number", [1, 2, 12, 30, 60, 90])
def test_a_disk_that_loses_the_end_of_a_file_is_noticed_at_once(home: Path, number: int) -> None:
    with losing_disk(number) as synced:
        assert re.search(r"only [\d,]+ of [\d,]+ bytes were written; fix that", run("run", code=2))
    assert len(synced) > number
    run("run")
    check_same(home)


def test_a_file_that_cannot_be_written_whole_leaves_the_former_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"former")
    with losing_disk(0), pytest.raises(OSError, match="only 3 of 6 bytes"):
        write_bytes(tmp_path / "a", b"latter")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"former"


HOLDER = """
import sys, time
from roadworthy.engine.folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_dies_with_its_holder(home: Path) -> None:
    """Killed, it leaves no lock; and what it forked does not keep one."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(home / "run")], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert "another process is writing to run" in run("run", code=2)
        assert "is still being written by another process" in call("verify", "run", code=2)
    finally:
        holder.kill()
        holder.communicate()
    assert "was stopped before it finished" in call("verify", "run", code=2)
    run("run")
    check_same(home)


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    ready, say = os.pipe()
    with RunFolder(tmp_path).locked():
        child = os.fork()
        if not child:
            os.write(say, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        with pytest.raises(InputError, match="another process"), RunFolder(tmp_path).locked():
            pass
    try:
        with RunFolder(tmp_path).locked():
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_that_was_copied_along_does_no_harm(home: Path) -> None:
    with RunFolder(home / "calm").locked():
        shutil.copytree(home / "calm", home / "run")
    run("run")
    check_same(home)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(home: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object, how: int) -> None:
        raise OSError(number, os.strerror(number))

    shutil.copytree(home / "calm", home / "copy", dirs_exist_ok=True)
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert re.match(r"the file system of run knows no locks \(.*\), so that two .* with --out$", run("run", code=2))
    assert not [path for path in (home / "run").iterdir() if path.name != ".lock"]
    assert "files as recorded; the tables follow" in call("verify", "copy", "--trust"), "reading needs no lock"


def test_a_folder_that_cannot_be_written_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(home / "calm", home / "run")
    before = contents(home / "run")
    with full_disk(home / "run", lambda name: True, at_open=True):
        monkeypatch.setattr(os, "strerror", lambda number: "Read-only file system")
        assert "cannot write to run: Read-only file system" in run("run", code=2)
        assert "files as recorded" in call("verify", "run", "--trust")
    assert contents(home / "run") == before


def test_a_clock_that_goes_back_changes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was stopped in 2040 goes on in 1999, its files older and younger than anything."""
    monkeypatch.setattr("roadworthy.executing.utc_now", lambda: "2040-01-01T00:00:00+00:00")
    monkeypatch.setattr("roadworthy.stored.utc_now", lambda: "2040-01-01T00:00:00+00:00")
    with full_disk(home / "run", lambda name: name == "report.html"):
        run("run", code=2)
    for number, path in enumerate(sorted((home / "run").rglob("*"))):
        os.utime(path, (0, 0) if number % 2 else (4e9, 4e9))
    back = "1999-01-01T00:00:00+00:00"
    monkeypatch.setattr("roadworthy.executing.utc_now", lambda: back)
    monkeypatch.setattr("roadworthy.stored.utc_now", lambda: back)
    monkeypatch.setattr(time, "time", lambda: 915148800.0)
    run("run")
    check_same(home)
    opened = rw.open_run(home / "run")
    assert (opened.record.created[:4], (opened.record.finished or "")[:4]) == ("2040", "1999")
    assert opened.verify() == []


def _take(orders: Connection) -> None:
    """Hold a folder, from the instant that is ordered until the other process has tried too; say how it went."""
    while (order := orders.recv()) is not None:
        path, instant = order
        while time.monotonic() < instant:
            pass
        try:
            with RunFolder(path).locked():
                orders.send("won")
                orders.recv()
        except InputError as error:
            orders.send(str(error))
            orders.recv()


def test_of_two_drivers_at_the_same_instant_exactly_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.engine.locking.READERS_ASK", 0.01)  # nobody reads here; the loser waits for it
    pipes = [multiprocessing.Pipe() for _ in range(2)]
    drivers = [multiprocessing.get_context("fork").Process(target=_take, args=(there,)) for _, there in pipes]
    for driver in drivers:
        driver.start()
    try:
        for number in range(100):
            instant = time.monotonic() + 0.003
            for here, _ in pipes:
                here.send((tmp_path / str(number), instant))
            answers = sorted(here.recv() for here, _ in pipes)
            assert answers[1] == "won", answers
            assert answers[0].startswith("another process is writing to "), answers
            for here, _ in pipes:
                here.send("go on")
    finally:
        for here, _ in pipes:
            here.send(None)
        for driver in drivers:
            driver.join(10)


def test_a_receipt_is_created_whole_and_never_over_another(tmp_path: Path) -> None:
    create_whole(tmp_path / "part.sha256", b"a" * 64)
    with pytest.raises(FileExistsError):
        create_whole(tmp_path / "part.sha256", b"b" * 64)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("part.sha256", b"a" * 64)]
    assert is_temporary(MARK), "what a killed driver leaves is swept"
