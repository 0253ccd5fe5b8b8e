"""A run at an address has a mirror on this machine, in which everything works as in any run folder.

The mirror is a cache. What is at the address is the run: it is fetched on opening, a part counts once it and its
receipt are there, and what is removed here is removed there. Nothing is renamed there. What an unfinished artifact
consists of (checkpoints) is in the mirror alone, until its manifest is written.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from roadworthy.core.cache import cache_folder, name_of_address
from roadworthy.core.errors import InputError, ModelError, show_as
from roadworthy.core.files import TEMPORARY, is_temporary, remove, write_json
from roadworthy.core.manifests import FORMER_MANIFEST, MANIFEST, RECEIPT, discard, is_committed, receipt_path
from roadworthy.core.processes import is_alive
from roadworthy.core.record import RECORD
from roadworthy.core.remote import RemoteFault, RemoteFile, RemoteFolder
from roadworthy.engine.remote_lock import RemoteLock, is_lock_name

LOCK = ".lock"
ARTIFACTS = "artifacts"
LISTINGS = 3
"""How often a run is listed again while somebody else removes what the listing named."""

Role = Literal["holder", "driver", "worker"]
"""Who a mirror is for: the process that holds the run, the driver of a cluster for it, or a worker."""
MIRRORS: Mapping[Role, str] = {"holder": "runs", "driver": "drivers", "worker": "workers"}
"""Where in the cache the mirrors of each lie."""

Signature = tuple[int, int]
"""Size and time of change of a local file: it is the one that is known, as long as both are the same."""
Known = dict[str, Signature | None]
"""What is at the address, with the signature of the file here that is the same; None where no file here is."""


class Mirror:
    """What stands between a local folder and a run at an address.

    A process that works for the one which holds the run has a mirror of its own, by its `role`: it fetches what it is
    asked for. That of a worker is empty when it starts, and a part that it has put there is dropped.
    """

    def __init__(self, address: str, role: Role = "holder") -> None:
        self.address = address
        self.remote = RemoteFolder(address)
        self._lock = RemoteLock(self.remote)
        self._role = role
        home = cache_folder(MIRRORS[role], name_of_address(address))
        home = own_scratch(home) if role == "worker" else home
        self.path = home / address.rpartition("/")[2]
        self._stamps_file, self._fetching = home.with_suffix(".json"), home.with_suffix(".fetching")
        self._known: dict[str, Known] = defaultdict(dict)
        self._turn = threading.RLock()
        show_as(self.path, address)

    @property
    def holds_all(self) -> bool:
        """True where all that is made for the run is made through this mirror: for who holds it."""
        return self._role == "holder"

    def check_usable(self, signs: Collection[str] = (RECORD,)) -> None:
        """Refuse an address where something else than a run is, which has locks or these files. Changes nothing."""
        names = self.remote.top_names()
        if self.remote.single_file() is not None:
            raise InputError(f"{self.address} is a file: give a folder for the run")
        if names and not names.issuperset(signs) and not any(map(is_lock_name, names)):
            raise InputError(f"{self.address} is not empty and holds no run: choose another folder with `out=`")

    def holder(self) -> str:
        """Who holds the run, or did when it was killed; '' where nobody does."""
        return self._lock.holder()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run for writing: what is there is here at the beginning, and what is here is there at the end.

        After an error of the store, Ctrl-C or a defect nothing more is put there: what is there is enough to resume.
        """
        self.remote.probe()
        self._lock.take()
        try:
            self.fetch()
            try:
                yield
            except (InputError, ModelError):
                self.settle()
                raise
            self.settle()
        finally:
            with suppress(OSError):
                self._lock.release()

    def fetch(self, *, again: bool = False, first: Callable[[], None] = lambda: None) -> None:
        """Make the mirror what is at the address; with `again` every byte is fetched, whatever is here already.

        `first` is called once nobody else fetches: it may still refuse.
        A file is not fetched where the listing gives its MD5 and the file here has it, or where it was fetched before
        and neither the stamp of the object nor the file has changed since.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._fetching.open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            first()
            for attempt in range(1, LISTINGS + 1):
                try:
                    self._fetch(again)
                    return
                except RemoteFault as error:
                    if error.errno != errno.ENOENT or attempt == LISTINGS:
                        raise

    def _fetch(self, again: bool) -> None:
        listing = {name: file for name, file in self.remote.files().items() if not _is_no_part_of_a_run(name)}
        last = {f"/{name}" for name in (MANIFEST, FORMER_MANIFEST)}
        finished = {_node(name) for name in listing if name.removeprefix(_node(name)) in last}
        wanted = {name: file for name, file in listing.items() if not _is_artifact(name) or _node(name) in finished}
        stamps = {} if again else self._read_stamps()
        missing = [name for name, file in wanted.items() if again or not self._is_same(name, file, stamps)]
        self._get(missing)
        for name, path in self._local_files(self.path).items():
            if name not in wanted and (not _is_artifact(name) or _node(name) in finished):
                path.unlink()
        known: dict[str, Known] = defaultdict(dict)
        for name in listing:
            known[_node(name)][name] = _signature(self.path / name) if name in wanted else None
        self._known = known
        kept = {name: stamp for name, stamp in stamps.items() if name in wanted}
        kept |= {name: [wanted[name].stamp, *_signature(self.path / name)] for name in missing}
        write_json(self._stamps_file, kept)

    def _get(self, names: Iterable[str]) -> None:
        """Fetch objects into the mirror, each whole or not at all."""
        paths = {name: self.path / name for name in names}
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        arriving = {name: path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}") for name, path in paths.items()}
        try:
            self.remote.get(arriving)
            for name, path in arriving.items():
                path.replace(paths[name])
        finally:
            for path in arriving.values():
                path.unlink(missing_ok=True)

    def _is_same(self, name: str, file: RemoteFile, stamps: Mapping[str, list[str | int]]) -> bool:
        path = self.path / name
        if not path.is_file() or path.stat().st_size != file.size:
            return False
        if file.stamp and stamps.get(name) == [file.stamp, *_signature(path)]:
            return True
        if not file.md5:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, _md5).hexdigest() == file.md5

    def _read_stamps(self) -> dict[str, list[str | int]]:
        with suppress(OSError, ValueError, TypeError, RecursionError):
            return dict(json.loads(self._stamps_file.read_text(encoding="utf-8")))
        return {}

    def fetch_node(self, folder: Path) -> None:
        """Fetch the folder of one case or artifact, its manifest last; nothing here is removed."""
        listing = self.remote.files(self._name(folder))
        missing = [name for name, file in listing.items() if not self._is_same(name, file, {})]
        last = f"{self._name(folder)}/{MANIFEST}"
        self._get([name for name in missing if name != last])
        self._get([name for name in missing if name == last])
        with self._turn:
            self._known[self._name(folder)] = {name: _signature(self.path / name) for name in listing}

    def publish_part(self, path: Path) -> None:
        """Put a part there, then create its receipt exclusively: from then on it counts.

        One that is there with another receipt was made twice with different bytes, which is an error.
        """
        self._lock.check()
        receipt = receipt_path(path)
        names, content = (self._name(path), self._name(receipt)), receipt.read_bytes()
        asks = self._role != "holder" or names[1] in self._known[_node(names[1])]
        there = self.remote.read(names[1]) if asks else None
        if there is None:
            self.remote.put(names[0], path)
            there = content if self.remote.create(names[1], content) else self.remote.read(names[1])
        if there != content:
            raise ModelError(f"{path} was made twice and is not the same: delete it and run again")
        with self._turn:
            self._known[_node(names[0])] |= {names[0]: _signature(path), names[1]: _signature(receipt)}
        if self._role == "worker":
            discard(path)

    def publish(self, folder: Path) -> None:
        """Bring the copy of one node in line with the mirror, its manifest last; not where it is unfinished."""
        self._lock.check()
        if folder.parent.name != ARTIFACTS or is_committed(folder):
            self._bring_in_line(self._local_files(folder), self._known[self._name(folder)])

    def publish_file(self, name: str) -> None:
        """Put one file there as it is here now."""
        self._lock.check(surely=True)
        self._put(name, self.path / name)

    def settle(self) -> None:
        """Bring what is there in line with the mirror: all that is here and nothing else, run.json last."""
        self._lock.check(surely=True)
        here = self._local_files(self.path)
        started = {_node(name) for name in here if _is_artifact(name)}
        unfinished = {node for node in started if not is_committed(self.path / node)}
        here = {name: path for name, path in here.items() if _node(name) not in unfinished}
        self._bring_in_line(here, {name: file for node in self._known.values() for name, file in node.items()})

    def _bring_in_line(self, here: Mapping[str, Path], there: Known) -> None:
        changed = [name for name, path in here.items() if there.get(name) != _signature(path)]
        gone = [name for name in there if name not in here]
        self._remove([name for name in gone if name == RECORD])
        for name in sorted(changed, key=_order):
            if name != RECORD:
                self._put(name, here[name])
        self._remove([name for name in gone if name != RECORD])
        if RECORD in changed:
            self.publish_file(RECORD)

    def _put(self, name: str, path: Path) -> None:
        signature = _signature(path)
        self.remote.put(name, path)
        with self._turn:
            self._known[_node(name)][name] = signature

    def _remove(self, names: Iterable[str]) -> None:
        ordered = sorted(names, key=lambda name: (not name.endswith(RECEIPT), name))
        self.remote.remove(ordered)
        with self._turn:
            for name in ordered:
                self._known[_node(name)].pop(name, None)

    def _local_files(self, folder: Path) -> dict[str, Path]:
        """All files of a folder in the mirror by name, but for the lock and what is still being written."""
        paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != TEMPORARY]
        return {self._name(path): path for path in sorted(paths) if path != self.path / LOCK}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()


def _md5() -> Any:
    return hashlib.md5(usedforsecurity=False)


def own_scratch(home: Path) -> Path:
    """An empty folder of this process in a folder that many share; those of processes that are gone are removed."""
    mine = home / str(os.getpid())
    for path in home.iterdir() if home.is_dir() else ():
        number = path.name.partition(".")[0]
        if path == mine or (number.isdigit() and not is_alive(int(number))):
            remove(path)
    return mine


def _is_no_part_of_a_run(name: str) -> bool:
    """True for locks, probes, and marks of drivers."""
    return is_lock_name(name) or is_temporary(name)


def _signature(path: Path) -> Signature:
    known = path.stat()
    return known.st_size, known.st_mtime_ns


def _order(name: str) -> tuple[bool, bool, str]:
    """Parts before receipts, and manifests last."""
    return name.endswith(f"/{MANIFEST}"), name.endswith(RECEIPT), name


def _node(name: str) -> str:
    """The folder of the case or artifact that a file is of; '' where it is of none.

    >>> _node("readouts/clean-1f/part-00000.parquet"), _node("tables/accuracy.csv")
    ('readouts/clean-1f', '')
    """
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else ""


def _is_artifact(name: str) -> bool:
    return name.startswith(f"{ARTIFACTS}/") and bool(_node(name))
