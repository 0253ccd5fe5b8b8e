"""Runs that are stopped at a random instant, in every way there is, and go on: the bits of an undisturbed run.

`make chaos` runs it: 60 trials, or as many as ROADWORTHY_CHAOS says, drawn from ROADWORTHY_CHAOS_SEED. On a local disk
and on a server of S3 in another process they are real commands that are really killed; in memory they are faults in
this process. After the last stop the same command ends the run; then every table, readout and picture has the bytes of
the undisturbed run, every image is answered exactly once per case, and `verify` has nothing to say.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import fsspec
import psutil
import pyarrow.parquet as pq
import pytest
import yaml

import roadworthy as rw
from dark_and_bright import CODE, draw
from full_disk import full_disk
from roadworthy import opening
from roadworthy.engine import plan, remote_lock
from roadworthy.engine.folder import RunFolder
from s3_server import s3_bucket
from tiny import contents

pytestmark = pytest.mark.chaos

TRIALS = int(os.environ.get("ROADWORTHY_CHAOS", "60"))
SEED = int(os.environ.get("ROADWORTHY_CHAOS_SEED", "21"))
CHUNK = 8
"""Images per part: small, so that there are many instants between two of them."""
HERE = Path(__file__).parent
SLOW = '''
import time
quick = answer


def answer(images):
    """The same, as slow as a network."""
    time.sleep(0.004)
    return quick(images)


def timid(images):
    """Less sure of everything."""
    time.sleep(0.002)
    root = np.sqrt(quick(images))
    return root / root.sum(axis=1, keepdims=True)
'''


def model(name: str) -> dict[str, Any]:
    return {"callable": f"m.py:{name}", "num_classes": 2, "version": name}


COMMON: dict[str, Any] = {"name": "chaos", "batch": 4, "models": {"m": model("answer"), "timid": model("timid")}}
CLASSIFIED = {"classification": {"shifts": ["noise", "fog"], "levels": [3], "repeats": 2}}
STUDIES: dict[str, dict[str, Any]] = {
    "monitors": {
        **COMMON,
        "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
        "outliers": {"a": "uniform_noise", "b": "normal_noise"},
        "monitors": ["kl_matching", "msp"],
        "protocols": {"od_test": {}, **CLASSIFIED},
        "criteria": [{"id": "A", "metric": "accuracy", "at_least": 0.5, "over": "pooled"}],
    },
    "trained": {
        **COMMON,
        "data": {"test": "data.npz", "train": "train/data.npz", "validation": "validation/data.npz"},
        "models": {
            "m": model("answer"),
            "warm": {"temperature": model("timid")},
            **{
                f"net-{seed}": {
                    **{"reference": "baseline", "epochs": 8, "width": 2, "hidden": 4, "batch": 16, "floor": 0.0},
                    **{"threads": 1, "seed": seed},
                }
                for seed in range(2)
            },
        },
        "protocols": {"classification": {"shifts": ["noise", "fog"], "levels": [3]}},
        "criteria": [{"id": "A", "metric": "accuracy", "at_least": 0.9, "over": "each"}],
        "until_decided": True,
    },
}
"""Fitted monitors and cases that they need first; trained networks, a fitted temperature and cases that stop early."""


class Forks:
    """A process that forks commands, which are there at once: most of a short run would be the start of Python."""

    def __init__(self, home: Path) -> None:
        self.home = home
        path = [str(HERE / "chaos_site"), str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.path = os.pathsep.join(path)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "chaos_site" / "forking.py")],
            env={**os.environ, "PYTHONPATH": self.path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@dataclass
class Calm:
    """An undisturbed run of each study, in a folder with the study."""

    home: Path
    forks: Forks
    runs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    rows: list[list[str]] = field(default_factory=list)


class Command:
    """A command that runs in a process of its own."""

    def __init__(self, forks: Forks, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._said = forks.home / "said"
        self._said.write_text("")
        self.returncode: int | None = None
        order = {"words": words, "cwd": str(forks.home), "env": {**environment}, "said": str(self._said)}
        assert forks.process.stdin is not None
        forks.process.stdin.write(json.dumps(order) + "\n")
        forks.process.stdin.flush()
        self.pid = forks.answer()
        self._waiting = threading.Thread(target=self._wait, args=(forks,), daemon=True)
        self._waiting.start()

    def _wait(self, forks: Forks) -> None:
        self.returncode = forks.answer()

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float) -> str:
        """What it said on standard error, once it has ended."""
        self._waiting.join(timeout)
        if self._waiting.is_alive():
            self.send_signal(signal.SIGKILL)
            self._waiting.join()
            raise AssertionError(f"it did not end within {timeout:.0f} s: {self._said.read_text()}")
        return self._said.read_text()


def command(calm: Calm, study: str, out: str, **options: str) -> Command:
    """The command that runs a study."""
    words = ["run", f"{study}.yaml", "--trust", "--accept-chance", "--workers", "2", "--quiet", "--out", out]
    named = {key: value for key, value in os.environ.items() if key.startswith(("AWS_", "ROADWORTHY_"))}
    return Command(calm.forks, words, {**named, "PYTHONPATH": calm.forks.path, "CHAOS_CHUNK": str(CHUNK), **options})


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    home = tmp_path_factory.mktemp("chaos")
    known = Calm(home, Forks(home))
    draw(known.home, 96)
    for seed, name in enumerate(("train", "validation"), start=1):
        (known.home / name).mkdir()
        draw(known.home / name, 64, seed=seed)
    (known.home / "m.py").write_text(CODE + SLOW)
    for name, content in STUDIES.items():
        (known.home / f"{name}.yaml").write_text(yaml.safe_dump(content))
        process = command(known, name, f"calm-{name}")
        said = process.communicate(timeout=300)
        assert process.returncode in (0, 1), said
        known.codes[name] = process.returncode
        run = known.home / f"calm-{name}"
        known.runs[name] = contents(run)
        known.parts[name] = len([*run.glob("readouts/*/part-*.parquet")])
        known.size[name] = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        assert known.parts[name] > 40, known.parts
    print(f"\nchaos: {TRIALS} trials, seed {SEED}, parts of an undisturbed run: {known.parts}")
    yield known
    head = ["trial", "store", "study", "fault", "stops: parts stored at that time", "result"]
    widths = [max(len(row[column]) for row in [head, *known.rows]) for column in range(len(head))]
    for row in [head, *known.rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    same = sum(row[-1] == "same" for row in known.rows)
    hit = sum(any(not stop.startswith("ended") for stop in row[4].split(", ")) for row in known.rows)
    print(f"{same} of {len(known.rows)} trials: same tables, same rows, verified; {hit} were stopped before their end")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as address:
        yield address


class Store(Protocol):
    """Where the runs of trials lie: what is there, and what of it can be damaged."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None: ...

    def remove(self, name: str) -> None: ...


@dataclass
class Disk:
    """A run on a local disk."""

    run: Path

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.run)) for path in self.run.rglob("*") if path.is_file())

    def read(self, name: str) -> bytes:
        return (self.run / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        (self.run / name).write_bytes(content)

    def remove(self, name: str) -> None:
        (self.run / name).unlink()


@dataclass
class Address:
    """A run at an address."""

    address: str

    def names(self) -> list[str]:
        system, root = fsspec.core.url_to_fs(self.address)
        system.invalidate_cache()
        names = system.find(root) if system.exists(root) else []
        return sorted(str(name).removeprefix(f"{root}/") for name in names)

    def _path(self, name: str) -> tuple[Any, str]:
        system, root = fsspec.core.url_to_fs(self.address)
        return system, f"{root}/{name}"

    def read(self, name: str) -> bytes:
        system, path = self._path(name)
        return bytes(system.cat_file(path))

    def write(self, name: str, content: bytes) -> None:
        system, path = self._path(name)
        system.pipe_file(path, content)

    def remove(self, name: str) -> None:
        system, path = self._path(name)
        system.rm_file(path)


def damaged(store: Store, how: str, draws: random.Random) -> str:
    """Damage something of a run that was stopped; what it was."""
    endings = {"lost receipt": ".parquet.sha256", "lost manifest": "manifest.json"}
    names = [name for name in store.names() if name.endswith(endings.get(how, ".parquet")) and "/part-" in name]
    if how == "lost manifest":
        names = [name for name in store.names() if name.endswith("manifest.json")]
    if not names:
        return "nothing there"
    name = draws.choice(names)
    content = store.read(name)
    if how.startswith("lost"):
        store.remove(name)
    elif how == "truncated part":
        store.write(name, content[: draws.randrange(len(content))])
    else:
        position = draws.randrange(len(content))
        flipped = bytes([content[position] ^ (1 << draws.randrange(8))])
        store.write(name, content[:position] + flipped + content[position + 1 :])
    return name


SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
CODES = {signal.SIGKILL: {-9}, signal.SIGTERM: {143, -15}, signal.SIGINT: {130, -2}}
"""Exit codes after a signal; the negative ones where it came before the command began to listen."""
DAMAGES = ("truncated part", "flipped part", "lost receipt", "lost manifest")
LOCAL = [*SIGNALS, "full disk", *DAMAGES, "kill in tables", "three kills", "full disk", "mixed"]
S3 = [
    "SIGKILL",
    "flipped part",
    "SIGTERM",
    "lost receipt",
    "kill in tables",
    "truncated part",
    "mixed",
    "lost manifest",
]
MEMORY = ["Ctrl-C", "full disk", *DAMAGES, "store fails", "store fails"]


def parts_in(folder: Path) -> int:
    return len([*folder.glob("**/readouts/*/part-*.parquet.sha256")]) + sum(
        len([*manifest.parent.glob("part-*.parquet")]) for manifest in folder.glob("**/readouts/*/manifest.json")
    )


def stopped_by(process: Command, number: int, reached: Callable[[], bool], delay: float) -> bool:
    """Send a signal once the run has come far enough, and a little later; False where it had ended before."""
    while process.poll() is None and not reached():
        time.sleep(0.005)
    time.sleep(delay)
    if process.poll() is None:
        process.send_signal(number)
    said = process.communicate(timeout=120)
    assert "Traceback" not in said, said
    if process.returncode in (0, 1):  # a verdict
        return False
    assert process.returncode in CODES[signal.Signals(number)], (process.returncode, said)
    if process.returncode in (130, 143):
        assert said.endswith("stopped; run the same command again to continue from here\n"), said
    return True


def stop_command(calm: Calm, study: str, out: str, local: Path, fault: str, draws: random.Random) -> str:
    """Start the command and stop it by a signal; parts that were stored by then. `local` is where it writes first."""
    number = SIGNALS.get(fault, signal.SIGKILL)
    delay = draws.uniform(0, 0.06)
    if fault == "kill in tables":
        wanted = draws.randrange(1, len([name for name in calm.runs[study] if name.startswith("tables/")]))
        stopped = stopped_by(
            command(calm, study, out), number, lambda: len([*local.glob("**/tables/*")]) >= wanted, delay / 6
        )
    else:
        wanted = draws.randrange(parts_in(local), calm.parts[study]) if parts_in(local) < calm.parts[study] else 0
        stopped = stopped_by(command(calm, study, out), number, lambda: parts_in(local) >= wanted, delay)
    return f"{signal.Signals(number).name} {parts_in(local)}" if stopped else f"ended {parts_in(local)}"


def finish(calm: Calm, study: str, out: str) -> None:
    process = command(calm, study, out)
    said = process.communicate(timeout=300)
    assert process.returncode == calm.codes[study], said


def check_run(calm: Calm, study: str, out: str | Path) -> None:
    """The bits of the undisturbed run, every row of every case once, and nothing that `verify` names."""
    opened = rw.open_run(out, trust=True)
    assert opened.verify() == []
    stored, expected = contents(opened.path), calm.runs[study]
    assert sorted(stored) == sorted(expected)
    assert [name for name in stored if stored[name] != expected[name]] == []
    for case in opened.record.cases.values():
        ids = ids_of(opened.path / case.folder)
        assert len(ids) == len(set(ids)), "an image that was counted twice"
        assert ids == ids_of(calm.home / f"calm-{study}" / case.folder), "an image that was lost"
    assert not [name for name in Disk(opened.path).names() if name.endswith((".sha256", ".tmp"))]


def ids_of(case: Path) -> list[str]:
    return [row for part in sorted(case.glob("part-*.parquet")) for row in pq.read_table(part)["id"].to_pylist()]


def local_trial(calm: Calm, study: str, fault: str, draws: random.Random, folder: Path) -> list[str]:
    """Stop a run on a local disk; how, and how many parts there were each time."""
    run = folder / "run"
    if fault == "full disk":
        return [full_disk_stop(calm, study, folder, draws)]
    stops = []
    kinds = {"three kills": ["SIGKILL"] * 3, "mixed": draws.sample([*SIGNALS, *DAMAGES, "kill in tables"], 4)}
    for kind in kinds.get(fault, [fault]):
        stops.append(stop_command(calm, study, str(run), run, kind, draws))
        if kind in DAMAGES:
            stops.append(damaged(Disk(run), kind, draws)[-34:])
    return stops


def full_disk_stop(calm: Calm, study: str, folder: Path, draws: random.Random) -> str:
    """A small tmpfs that is full at some instant, and is made larger; without one, writes that fail from one on."""
    run = folder / "run"
    size = draws.randrange(20_000, calm.size[study])
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        options = {"CHAOS_FULL": str(run), "CHAOS_FULL_AT": str(draws.randrange(2, 2 * calm.parts[study]))}
    else:
        options = {}
    process = command(calm, study, str(run), **options)
    said = process.communicate(timeout=300)
    if process.returncode != calm.codes[study]:
        assert process.returncode == 2, said
        assert "No space left on device" in said
        assert "Traceback" not in said, said
        assert said.count("error: ") == 1, said
    if not mounted.returncode:
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
    return f"{'tmpfs' if not mounted.returncode else 'write'} full {parts_in(run)}"


def s3_trial(calm: Calm, study: str, fault: str, draws: random.Random, address: str, folder: Path) -> list[str]:
    """Stop a run at an address; the next one may be on another machine, which has no mirror of it."""
    stops = []
    kinds = draws.sample([*SIGNALS, *DAMAGES], 3) if fault == "mixed" else [fault]
    for number, kind in enumerate(kinds):
        cache = folder / f"cache-{number}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ROADWORTHY_CACHE", str(cache))
            stops.append(stop_command(calm, study, address, cache, kind, draws))
        if kind in DAMAGES:
            stops.append(damaged(Address(address), kind, draws)[-34:])
    if draws.random() < 0.5:
        os.environ["ROADWORTHY_CACHE"] = str(cache)
    return stops


class Stopped(KeyboardInterrupt):
    """Ctrl-C, as in this process."""


@contextlib.contextmanager
def failing(folder: Path, fault: str, number: int) -> Iterator[None]:
    """Let the write of that number fail here, or the change of that number at an address."""
    left = iter(range(number))
    if fault == "full disk":
        with full_disk(folder, lambda name: next(left, None) is None):
            yield
        return
    from roadworthy.core.remote import RemoteFault, RemoteFolder

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "create", "remove"):
            change: Callable[..., Any] = getattr(RemoteFolder, name)

            def changing(self: RemoteFolder, *given: Any, change: Callable[..., Any] = change) -> Any:
                if any(".lock" in str(one) or ".probe" in str(one) for one in given):
                    return change(self, *given)
                count = next(left, None)
                if count is None and fault == "store fails":
                    raise RemoteFault("the store is gone", errno.EIO)
                done = change(self, *given)
                if count is None:
                    raise Stopped
                return done

            patch.setattr(RemoteFolder, name, changing)
        yield


def memory_trial(calm: Calm, study: str, fault: str, draws: random.Random, address: str, folder: Path) -> list[str]:
    """Stop a run at an address in memory by faults in this process; the mirror may be lost with the machine."""
    stops = []
    for _ in range(draws.choice([1, 2, 3])):
        number = draws.randrange(calm.parts[study])
        kind = fault if fault in ("full disk", "store fails") else "Ctrl-C"
        try:
            with failing(folder, kind, number):
                run_here(calm, study, address)
        except (Stopped, rw.InputError):
            what = kind
        else:
            what = "ended"
        stops.append(f"{what} {len([name for name in Address(address).names() if name.endswith('.parquet')])}")
        if fault in DAMAGES:
            stops.append(damaged(Address(address), fault, draws)[-34:])
        if draws.random() < 0.5:
            shutil.rmtree(folder / "cache", ignore_errors=True)
    return stops


def run_here(calm: Calm, study: str, out: str | Path) -> None:
    options: dict[str, Any] = {"trust": True, "accept_chance": True, "progress": rw.no_progress, "workers": 2}
    rw.run_study(calm.home / f"{study}.yaml", out=out, **options)


def kinds(trials: int) -> list[tuple[str, str, str]]:
    """The store, the study and the fault of each trial: three of five on a local disk, some of them with networks."""
    chosen: list[tuple[str, str, str]] = []
    faults = {"local": LOCAL, "memory": MEMORY, "s3": S3}
    for trial in range(trials):
        store = ("local", "memory", "local", "s3", "local", "local", "memory", "local", "s3", "local")[trial % 10]
        nth = sum(before[0] == store for before in chosen)
        study = "trained" if store == "local" and nth % 9 == 1 else "monitors"
        chosen.append((store, study, faults[store][nth % len(faults[store])]))
    return chosen


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_run_that_was_stopped_anyhow_ends_as_if_it_had_not_been(
    trial: int, calm: Calm, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, study, fault = kinds(TRIALS)[trial]
    draws = random.Random(f"{SEED}-{trial}")
    for module, name in ((plan, "CHUNK_IMAGES"), (plan, "LOOK_IMAGES"), (opening, "LOOK_IMAGES")):
        monkeypatch.setattr(module, name, CHUNK)
    monkeypatch.setenv("ROADWORTHY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_lock, "WATCHED", 0.3)
    monkeypatch.setattr(remote_lock, "BEAT", 0.05)
    monkeypatch.chdir(calm.home)
    row = [str(trial), store, study, fault, "", "FAILED"]
    calm.rows.append(row)
    try:
        if store == "local":
            out = str(tmp_path / "run")
            stops = local_trial(calm, study, fault, draws, tmp_path)
        elif store == "s3":
            out = f"{request.getfixturevalue('bucket')}/{trial}"
            stops = s3_trial(calm, study, fault, draws, out, tmp_path)
        else:
            out = f"memory://chaos/{trial}"
            stops = memory_trial(calm, study, fault, draws, out, tmp_path)
        row[4] = ", ".join(stops)
        run_here(calm, study, out) if store == "memory" else finish(calm, study, out)
        check_run(calm, study, out)
        row[5] = "same"
    finally:
        print("  ".join(row), flush=True)
        if os.path.ismount(tmp_path):
            subprocess.run(["umount", "-l", tmp_path], check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_processes_that_build_end_with_the_command(calm: Calm, number: int, tmp_path: Path) -> None:
    process = command(calm, "trained", str(tmp_path / "run"))
    children: list[psutil.Process] = []
    while process.poll() is None and len(children) < 2:
        time.sleep(0.02)
        below = psutil.Process(process.pid).children(recursive=True)
        children = [child for child in below if "roadworthy.building" in " ".join(child.cmdline())]
    assert children, process.communicate(10)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode in CODES[signal.Signals(number)]
    assert psutil.wait_procs(children, timeout=10)[1] == []
    finish(calm, "trained", str(tmp_path / "run"))
    check_run(calm, "trained", tmp_path / "run")
    assert RunFolder(tmp_path / "run").is_finished
