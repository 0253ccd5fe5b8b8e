"""Runs, data and models at addresses: the same bits as on a local disk, whatever fails there, one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import onnx
import pytest
import yaml
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

import roadworthy as rw
from commands import call
from dark_and_bright import CODE, draw, study
from roadworthy.core import fetching, remote
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.manifests import commit, is_whole, receipt_path, write_receipt
from roadworthy.engine import plan, remote_lock
from roadworthy.engine.folder import RunFolder, open_store
from roadworthy.engine.mirror import Mirror
from roadworthy.engine.remote_lock import RemoteLock
from s3_server import s3_bucket
from tiny import contents, save_onnx, write_npz

PROTOCOLS = {"classification": {"shifts": ["noise"], "levels": [3]}}


class Faulty(MemoryFileSystem):
    """A file system in memory that fails at its n-th change: before it is made, or after, its answer lost."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    left = -1
    after = False
    error: Callable[[], Exception] = staticmethod(lambda: OSError(errno.ENOSPC, "No space left on device"))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("faulty://"))

    def _changed(self, change: Callable[[], None], name: str) -> None:
        if "/.lock" in name or "/.probe" in name:
            change()
            return
        Faulty.left -= 1
        if Faulty.left == 0 and not Faulty.after:
            raise Faulty.error()
        change()
        if Faulty.left == 0:
            raise Faulty.error()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self._changed(lambda: MemoryFileSystem.pipe_file(self, path, value, mode=mode), path)

    def put_file(self, local: str, path: str, **options: Any) -> None:
        self._changed(lambda: MemoryFileSystem.pipe_file(self, path, Path(local).read_bytes()), path)

    def rm_file(self, path: str) -> None:
        self._changed(lambda: MemoryFileSystem._rm(self, path), path)


class Careless(MemoryFileSystem):
    """A file system that creates an object exclusively wherever there is one already."""

    protocol = "careless"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("careless://"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value)


fsspec.register_implementation("faulty", Faulty, clobber=True)
fsspec.register_implementation("careless", Careless, clobber=True)


@pytest.fixture(autouse=True)
def _stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty stores, a cache of the test's own, short periods, and a few parts per case."""
    monkeypatch.setenv("ROADWORTHY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(plan, "CHUNK_IMAGES", 4)
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    monkeypatch.setattr(remote_lock, "BEAT", 0.05)
    monkeypatch.setattr(remote_lock, "WATCHED", 2.0)
    monkeypatch.setattr(Faulty, "left", -1)
    yield
    for system in (MemoryFileSystem, Faulty, Careless):
        system.store.clear()
        system.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A study of two cases with three parts each."""
    folder = tmp_path_factory.mktemp("task")
    (folder / "m.py").write_text(CODE)
    model = {"callable": f"{folder / 'm.py'}:answer", "num_classes": 2, "version": "1"}
    return study(draw(folder, 12), {"m": model}, protocols=PROTOCOLS)


@pytest.fixture(scope="module")
def local(task: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study on a local disk, undisturbed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CHUNK_IMAGES", 4)
        return run(task, tmp_path_factory.mktemp("local") / "run").path


@pytest.fixture(scope="module")
def expected(local: Path) -> dict[str, bytes]:
    """What every run of the study must hold."""
    return dict(sorted(contents(local).items()))


def run(task: dict[str, Any], out: str | Path, **settings: Any) -> rw.Run:
    return rw.run_study(task, out=out, trust=True, workers=1, progress=rw.no_progress, **settings)


def stored(address: str) -> dict[str, bytes]:
    """The bytes of everything at an address that must be the same every time."""
    system, root = fsspec.core.url_to_fs(address)
    system.invalidate_cache()
    names = {path.removeprefix(f"{root}/"): path for path in system.find(root)}
    same = ("readouts/", "tables/", "media/", "verdict.json")
    wanted = {name: path for name, path in names.items() if name.startswith(same) and "/timing_" not in name}
    return {name: system.cat_file(path) for name, path in sorted(wanted.items())}


def forget_mirrors(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache")


def test_a_run_at_an_address_has_the_bytes_of_a_local_one(
    task: dict[str, Any], local: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    made = run(task, "memory://bucket/run")
    assert stored("memory://bucket/run") == expected
    assert "memory://bucket/run" in repr(made)
    forget_mirrors(tmp_path)
    opened = rw.open_run("memory://bucket/run")
    assert opened.verify() == []
    assert opened.tables["classification"].equals(rw.open_run(local).tables["classification"])
    before = fsspec.filesystem("memory").cat_file("/bucket/run/run.json")
    forget_mirrors(tmp_path)
    run(task, "memory://bucket/run")  # nothing is left to do
    assert stored("memory://bucket/run") == expected
    after = json.loads(fsspec.filesystem("memory").cat_file("/bucket/run/run.json"))
    assert after["created"] == json.loads(before)["created"]


def test_results_that_change_later_reach_the_address(task: dict[str, Any], tmp_path: Path) -> None:
    run(task, "memory://bucket/run")
    (tmp_path / "criteria.yaml").write_text("- {id: C1, metric: accuracy, where: {shift: noise}, at_least: 0.1}\n")
    opened = rw.open_run("memory://bucket/run", trust=True)
    opened.save_verdict(opened.verdict(tmp_path / "criteria.yaml"))
    forget_mirrors(tmp_path)
    again = rw.open_run("memory://bucket/run")
    assert [criterion["id"] for criterion in again.record.criteria] == ["C1"]
    assert again.verify() == []


@pytest.mark.parametrize("change", [1, 2, 3, 5, 9, 12, 40])
def test_a_fault_at_any_change_stops_and_a_resume_gives_the_same(
    task: dict[str, Any], expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    monkeypatch.setattr(Faulty, "left", change)
    monkeypatch.setattr(Faulty, "after", change % 2 == 0)
    with pytest.raises(InputError, match=r"cannot write to faulty://b/run: No space left.*run again to resume"):
        run(task, "faulty://b/run")
    monkeypatch.setattr(Faulty, "left", -1)
    if change % 3 == 0:
        forget_mirrors(tmp_path)
    run(task, "faulty://b/run")
    assert stored("faulty://b/run") == expected


def test_what_passes_is_tried_again(task: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "left", 3)
    monkeypatch.setattr(Faulty, "after", True)
    monkeypatch.setattr(Faulty, "error", staticmethod(lambda: TimeoutError("no answer")))
    assert rw.open_run(run(task, "faulty://b/run").folder.mirror.address).verify() == []  # type: ignore[union-attr]


@pytest.mark.parametrize("verified", [False, True])
def test_parts_that_were_damaged_there_are_found_and_made_again(task: dict[str, Any], verified: bool) -> None:
    run(task, "memory://bucket/run")
    expected = stored("memory://bucket/run")
    system = fsspec.filesystem("memory")
    parts = sorted(name for name in expected if name.endswith(".parquet") and "readouts" in name)
    system.pipe_file(f"/bucket/run/{parts[0]}", expected[parts[0]][:-3])
    flipped = bytes([expected[parts[1]][9] ^ 1])
    system.pipe_file(f"/bucket/run/{parts[1]}", expected[parts[1]][:9] + flipped + expected[parts[1]][10:])
    system.rm(f"/bucket/run/{parts[2]}")
    if verified:  # which fetches all; a resume must find it by the listing
        problems = rw.open_run("memory://bucket/run").verify()
        assert problems == [f"{parts[2]} is missing", f"{parts[0]} was changed", f"{parts[1]} was changed"]
    run(task, "memory://bucket/run")
    assert stored("memory://bucket/run") == expected
    assert rw.open_run("memory://bucket/run").verify() == []


def test_a_receipt_that_is_lost_and_a_part_that_never_arrived_count_for_nothing(
    task: dict[str, Any], expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "left", 6)  # the third receipt
    with pytest.raises(InputError):
        run(task, "faulty://b/run")
    mirror = RunFolder("faulty://b/run")
    parts = sorted(mirror.path.glob("readouts/*/*.parquet"))
    assert len(parts) == 3
    system = fsspec.filesystem("faulty")
    names = [f"/b/run/{path.relative_to(mirror.path)}" for path in parts]
    assert [system.exists(f"{name}.sha256") for name in names] == [True, True, False]
    system.rm_file(f"{names[0]}.sha256")
    mirror.refresh()
    assert [receipt_path(path).is_file() for path in parts] == [False, True, False]
    run(task, "faulty://b/run")
    assert stored("faulty://b/run") == expected


@pytest.mark.parametrize("lost", [True, False])
def test_an_artifact_arrives_whole_and_its_checkpoints_stay_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    folder, system = RunFolder("faulty://b/run"), fsspec.filesystem("faulty")
    facts = {"builder": "b"}
    home = folder.artifact(digest(facts))

    def build() -> None:
        with folder.locked():
            home.mkdir(parents=True)
            (home / "checkpoint").write_bytes(b"half")
            folder.sweep()
            folder.publish(home)
            assert not system.exists(f"/b/run/artifacts/{home.name}")
            (home / "checkpoint").unlink()
            (home / "weights").write_bytes(b"whole")
            commit(home, facts, ["weights"])
            monkeypatch.setattr(Faulty, "left", 2)  # the manifest
            folder.publish(home)

    with pytest.raises(InputError, match="No space left"):
        build()
    assert system.find("/b/run/artifacts") == [f"/b/run/artifacts/{home.name}/weights"]
    if lost:
        forget_mirrors(tmp_path)
    with folder.locked():
        folder.sweep()
        there = system.find("/b/run/artifacts")
        assert [Path(path).name for path in there] == ([] if lost else ["manifest.json", "weights"])


def test_a_run_made_fresh_leaves_nothing_old(task: dict[str, Any], expected: dict[str, bytes]) -> None:
    run({**task, "protocols": {"classification": {"shifts": ["fog"], "levels": [3]}}}, "memory://bucket/run")
    run(task, "memory://bucket/run", fresh=True)
    assert stored("memory://bucket/run") == expected


def test_a_baseline_at_an_address_is_taken_over(task: dict[str, Any]) -> None:
    run(task, "memory://bucket/run")
    again = run({**task, "baseline": "memory://bucket/run"}, "memory://bucket/new")
    assert again.record.baseline is not None
    assert (again.record.baseline.run, again.record.baseline.cases) == ("memory://bucket/run", 2)
    assert stored("memory://bucket/new/readouts") == stored("memory://bucket/run/readouts")
    with pytest.raises(InputError, match="is the folder of this run"):
        run({**task, "baseline": "memory://bucket/run"}, "memory://bucket/run")


def test_a_file_system_without_exclusive_creation_is_refused(task: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"careless://b/run cannot hold a run: .*exclusively"):
        run(task, "careless://b/run")
    assert Careless.store == {}


def test_an_address_that_holds_something_else_is_refused(task: dict[str, Any]) -> None:
    system = fsspec.filesystem("memory")
    system.pipe_file("/bucket/photos/a.png", b"picture")
    with pytest.raises(InputError, match="memory://bucket/photos is not empty and holds no run"):
        run(task, "memory://bucket/photos")
    system.pipe_file("/bucket/other/run.json", b"{}")  # of another program
    with pytest.raises(InputError, match="memory://bucket/other is not empty and holds no run"):
        run(task, "memory://bucket/other")
    system.rm("/bucket/other", recursive=True)
    with pytest.raises(InputError, match=r"memory://bucket/photos/a.png is a file"):
        run(task, "memory://bucket/photos/a.png")
    with pytest.raises(InputError, match=r"memory://bucket/nothing is no run: it holds no run.json"):
        rw.open_run("memory://bucket/nothing")
    assert system.find("/bucket") == ["/bucket/photos/a.png"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("nosuch://b/run", "nothing is known of nosuch:// addresses"),
        ("https://example.com/run", "is a web address"),
        ("s3://", "is no address"),
        ("memory://", "is no address"),
        ("gs://bucket/run", r"gs:// addresses need an optional dependency: .*google"),
    ],
)
def test_an_address_that_nothing_opens_is_one_sentence(
    task: dict[str, Any], address: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # as where it is not installed
    with pytest.raises(InputError, match=sentence):
        run(task, address)


def test_a_second_driver_stops_and_says_who_holds_the_run(task: dict[str, Any], expected: dict[str, bytes]) -> None:
    held = Mirror("memory://bucket/run")
    with held.held():
        pattern = rf"process {os.getpid()} on .* \(since 20.*\) is writing to memory://bucket/run"
        with pytest.raises(InputError, match=pattern):
            run(task, "memory://bucket/run")
    run(task, "memory://bucket/run")
    assert stored("memory://bucket/run") == expected


def test_two_drivers_of_one_machine_have_one_mirror(task: dict[str, Any]) -> None:
    folder = RunFolder("memory://bucket/run")
    with folder.locked(), pytest.raises(InputError, match="still being written by another process"):
        run(task, "memory://bucket/run")


def test_of_two_that_take_over_a_dead_lock_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = remote.RemoteFolder("memory://bucket/run")
    dead = RemoteLock(folder)
    dead.take()
    dead._ended.set()  # its pulse stops, as that of a process which was killed
    monkeypatch.setattr(remote_lock, "WATCHED", 1.0)
    takers, won = [RemoteLock(folder) for _ in range(4)], []

    def take(lock: RemoteLock) -> None:
        try:
            lock.take()
            won.append(lock)
        except InputError:
            pass

    threads = [threading.Thread(target=take, args=(lock,)) for lock in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    with pytest.raises(remote_lock.LockLost, match="has taken this run over"):
        dead.check(surely=True)
    won[0].check(surely=True)
    dead.release()  # changes nothing for the winner
    won[0].check(surely=True)
    won[0].release()
    assert takers[0].holder() == ""


def test_the_clock_on_the_wall_does_not_matter_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = remote.RemoteFolder("memory://bucket/run")
    held = RemoteLock(folder)
    held.take()
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a jump of decades
    with pytest.raises(InputError, match="is writing to"):
        RemoteLock(folder).take()
    held.release()


def test_a_holder_of_this_machine_that_was_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lock, "WATCHED", 60.0)
    folder = remote.RemoteFolder("memory://bucket/run")
    held = RemoteLock(folder)
    held.take()
    held._ended.set()
    name = ".lock-000001"
    owner = json.loads(folder.read(name) or b"")
    folder.write(name, json.dumps({**owner, "started": "1"}).encode())  # another process had this number
    started = time.monotonic()
    second = RemoteLock(folder)
    second.take()
    assert time.monotonic() - started < 10
    second.release()


def test_who_lost_the_lock_stops_before_it_writes_more(task: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder("memory://bucket/run")

    def lose() -> None:
        with folder.locked():
            folder.mirror.remote.write(".lock-000002", b"{}")  # type: ignore[union-attr]
            (folder.path / "study.yaml").write_text("name: other")
            folder.sweep()

    with pytest.raises(InputError, match="another process has taken this run over"):
        lose()
    assert not fsspec.filesystem("memory").exists("/bucket/run/study.yaml")


def test_workers_fetch_what_they_need_and_put_parts_there(task: dict[str, Any]) -> None:
    made = run(task, "memory://bucket/run")
    worker = open_store("memory://bucket/run")
    assert worker.path != made.path
    home = worker.path / next(iter(made.record.cases.values())).folder
    worker.fetch_node(home)
    there = made.path / home.relative_to(worker.path)
    assert {path.name for path in home.iterdir()} == {path.name for path in there.iterdir()}
    part = worker.case("new") / "part-00000.parquet"
    for content, expected in ((b"a", None), (b"a", None), (b"b", "made twice")):
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(content)
        write_receipt(part)
        if expected:
            with pytest.raises(rw.RoadworthyError, match=expected):
                worker.publish_part(part)
        else:
            worker.publish_part(part)
            assert not part.exists()
    assert fsspec.filesystem("memory").cat_file("/bucket/run/readouts/new/part-00000.parquet") == b"a"
    home = worker.artifact("built")
    home.mkdir(parents=True)
    (home / "weights").write_bytes(b"whole")
    commit(home, {"builder": "b"}, ["weights"])
    worker.publish(home)
    made.folder.fetch_node(made.folder.artifact("built"))
    assert is_whole(made.folder.artifact("built"), digest({"builder": "b"}))


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as address:
        yield address


def test_s3_has_the_same_bytes_and_is_resumed(
    bucket: str, task: dict[str, Any], expected: dict[str, bytes], tmp_path: Path
) -> None:
    run(task, f"{bucket}/run")
    assert stored(f"{bucket}/run") == expected
    system = fsspec.filesystem("s3")
    lost = [f"bucket/run/{name}" for name in expected if name.endswith("manifest.json") or "part-00001" in name]
    system.rm(lost)
    damaged = next(name for name in expected if "part-00002" in name)
    system.pipe_file(f"bucket/run/{damaged}", b"x" * len(expected[damaged]))  # of the same size
    out = call("verify", f"{bucket}/run", code=1)
    assert "is missing" in out
    run(task, f"{bucket}/run")
    assert stored(f"{bucket}/run") == expected
    forget_mirrors(tmp_path)
    assert "files as recorded" in call("verify", f"{bucket}/run")


def test_a_bucket_that_is_not_there_is_one_sentence(bucket: str, task: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"cannot read s3://elsewhere/run: .*no such bucket"):
        run(task, "s3://elsewhere/run")
    with pytest.raises(InputError, match=r"cannot read s3://no bucket!/run: .*Invalid bucket name"):
        run(task, "s3://no bucket!/run")


def upload(folder: Path, address: str) -> None:
    system, root = fsspec.core.url_to_fs(address)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            system.pipe_file(f"{root}/{path.relative_to(folder)}", path.read_bytes())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its weights in a file beside it, and signs as a manifest, a folder and an npz."""
    folder = tmp_path_factory.mktemp("files")
    save_onnx(folder / "plain.onnx")
    onnx.save(onnx.load(folder / "plain.onnx"), folder / "v3.onnx", save_as_external_data=True, location="v3.bin")
    write_npz(folder / "test.npz", 28)
    signs = np.load(folder / "test.npz")
    rows = ["path,label"]
    for number, (image, label) in enumerate(zip(signs["images"], signs["labels"], strict=True)):
        path = folder / "signs" / f"{label:02d}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        rows.append(f"{path.relative_to(folder)},{label:02d}")
    (folder / "signs.csv").write_text("\n".join(rows))
    return folder


def test_data_and_models_at_an_address_are_those_of_local_files(files: Path, tmp_path: Path) -> None:
    upload(files, "memory://store/v1")
    made = []
    for place in (str(files), "memory://store/v1"):
        named = {"data": {"test": f"{place}/test.npz"}, "models": {"v3": {"onnx": f"{place}/v3.onnx"}}}
        task = {"name": "s", "protocols": PROTOCOLS, **named}
        made.append(run(task, tmp_path / f"run{len(made)}", accept_chance=True))
    assert sorted(made[0].record.cases) == sorted(made[1].record.cases)
    assert contents(made[0].path) == contents(made[1].path)
    study = yaml.safe_load((made[1].path / "study.yaml").read_text())
    assert study["data"]["test"] == "memory://store/v1/test.npz"
    assert study["models"]["v3"]["onnx"] == "memory://store/v1/v3.onnx"
    assert str(tmp_path / "cache") not in (made[1].path / "run.json").read_text()


@pytest.mark.parametrize("data", [{"folder": "signs"}, {"folder": "signs", "limit": 9}, {"manifest": "signs.csv"}])
def test_folders_and_manifests_at_an_address_are_those_of_local_files(files: Path, data: dict[str, Any]) -> None:
    upload(files, "memory://store/v1")
    kind, name = next(iter(data.items()))
    here, there = (rw.open_dataset(data | {kind: f"{base}/{name}"}) for base in (files, "memory://store/v1"))
    assert (here.name, here.ids, here.fingerprint()) == (there.name, there.ids, there.fingerprint())
    assert len(there.batch(slice(None))) == len(here)


def test_a_copy_is_fetched_once_and_again_when_the_object_changed(files: Path) -> None:
    system = fsspec.filesystem("memory")
    upload(files, "memory://store/v1")
    first = rw.open_dataset("memory://store/v1/test.npz")
    copy = fetching.local_copy("memory://store/v1/test.npz")
    before = copy.stat().st_mtime_ns
    assert rw.open_dataset("memory://store/v1/test.npz").fingerprint() == first.fingerprint()
    assert copy.stat().st_mtime_ns == before
    write_npz(files / "other.npz", 14, seed=2)
    system.pipe_file("/store/v1/test.npz", (files / "other.npz").read_bytes())
    assert len(rw.open_dataset("memory://store/v1/test.npz")) == 14
    assert len(first) == 28


def test_a_manifest_at_an_address_names_files_beside_it_alone() -> None:
    fsspec.filesystem("memory").pipe_file("/store/m.csv", b"path,label\n../../secret.png,a\n")
    with pytest.raises(InputError, match=r"memory://store/m.csv names a file that is not beside it"):
        rw.open_dataset("memory://store/m.csv")


def test_code_at_an_address_is_never_run(task: dict[str, Any], tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/store/m.py", CODE.encode())
    model = {"callable": "memory://store/m.py:answer", "num_classes": 2, "version": "1"}
    with pytest.raises(InputError, match=r"memory://store/m.py.* is code at an address, which is never run"):
        run({**task, "models": {"m": model}}, tmp_path / "run")
    with pytest.raises(InputError, match="is code at an address"):
        rw.evaluate("memory://store/m.py:answer", task["data"]["test"], trust=True)
    with pytest.raises(InputError, match="is an address: download the file"):
        run({**task, "plugins": ["memory://store/m.py"]}, tmp_path / "run")
    with pytest.raises(InputError, match="is a web address"):
        rw.evaluate("http://127.0.0.1/v3.onnx", task["data"]["test"])
    with pytest.raises(InputError, match=r"there is nothing at memory://store/none.npz"):
        rw.open_dataset("memory://store/none.npz")


def test_the_command_line_takes_addresses_everywhere(bucket: str, files: Path, tmp_path: Path) -> None:
    upload(files, f"{bucket}/in")
    named = {"data": {"test": f"{bucket}/in/test.npz"}, "models": {"v3": {"onnx": f"{bucket}/in/v3.onnx"}}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"name": "s", "protocols": PROTOCOLS, **named}))
    words = [tmp_path / "study.yaml", "--out", f"{bucket}/runs/v3", "--accept-chance", "--workers", 1]
    assert "cases     2, 0 of them done" in call("run", *words, "--dry-run")
    assert f"report: {bucket}/runs/v3/report.html" in call("run", *words)
    assert "cases     2, 2 of them done" in call("run", *words, "--dry-run")
    assert f"report: {bucket}/runs/v3/report.html" in call("report", f"{bucket}/runs/v3")
    assert "no criteria given" in call("verdict", f"{bucket}/runs/v3")
    assert f"{bucket}/runs/v3: " in call("verify", f"{bucket}/runs/v3")
