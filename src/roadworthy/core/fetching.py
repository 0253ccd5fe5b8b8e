"""Data sets and models at an address, copied to this machine once and then opened like local ones.

A copy lies in the cache under the hash of its address and of what the listing there says of its version, so that an
object that was changed is fetched again, and a run that uses the former copy is not disturbed. What lies beside a
file and belongs to it (weights of an ONNX file, images of a manifest) is fetched when the file names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from roadworthy.core.cache import cache_folder, name_of_address
from roadworthy.core.errors import InputError, show_as
from roadworthy.core.files import TEMPORARY, check_name_inside, write_json
from roadworthy.core.remote import RemoteFile, RemoteFolder, is_address, is_web, parse_location

SINGLY = 16
"""Up to so many files beside another are looked up one by one; for more, their folder is listed."""
AT_ONCE = 64
"""Files that are asked for together."""
WHOLE = ".whole"
"""How the name of the file ends that says that a copy is complete."""

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a title and a total; what it yields is told about each advance."""

_fetched: dict[Path, str] = {}
"""The addresses of copies that this process has opened."""


@contextmanager
def _no_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda amount: None


def local_copy(address: str | os.PathLike[str], progress: Progress = _no_progress) -> Path:
    """The copy of a file or folder at an address, fetched unless it is there, with a bar that counts bytes."""
    location = parse_location(address)
    if isinstance(location, Path):
        return location
    refuse_code(location)
    with _reading(location):
        remote = RemoteFolder(location)
        single = remote.single_file()
        files = {"": single} if single is not None else remote.files()
        if not files:
            raise InputError(f"there is nothing at {location}")
        name = location.rpartition("/")[2]
        home = cache_folder() / "files" / name_of_address(json.dumps([location, _versions(files)]))
        path = home / name
        if not home.with_suffix(WHOLE).exists():
            _get(remote, {key: path / key if key else path for key in files}, files, progress)
            home.with_suffix(WHOLE).touch()
    _fetched[path] = location
    show_as(path, location)
    return path


def local_entry(value: Any) -> Any:
    """What an entry names, with the path of a copy in place of an address; web addresses stay as they are."""
    if not is_address(value) or is_web(value):
        return value
    return str(local_copy(value))


def refuse_code(named: str | os.PathLike[str]) -> None:
    """Refuse code at an address: what is run must be a file of this machine."""
    path, text = parse_location(named), str(named)
    if isinstance(path, str) and (".py:" in text or text.endswith(".py")):
        raise InputError(f"{path} is code at an address, which is never run: copy it here and name the local file")


def fetch_beside(path: Path, names: Iterable[str]) -> None:
    """Where a file is a copy, fetch what it names beside it, unless that is here as it is there.

    What is not there is left to who reads it; a name that leads outside the folder at the address is an error.
    """
    address = _fetched.get(path)
    if address is None:
        return
    try:
        wanted = {check_name_inside(name) for name in names}
    except ValueError:
        raise InputError(f"{address} names a file that is not beside it, which is not read from an address") from None
    with _reading(address):
        remote = RemoteFolder(address.rpartition("/")[0])
        if len(wanted) > SINGLY:
            there = {name: file for name, file in remote.files().items() if name in wanted}
        else:
            singles = {name: RemoteFolder(f"{remote.address}/{name}").single_file() for name in wanted}
            there = {name: file for name, file in singles.items() if file is not None}
        stamps_file = path.parent.with_suffix(".json")
        stamps = _read_stamps(stamps_file)
        versions = _versions(there)
        missing = [name for name in there if stamps.get(name) != versions[name] or not (path.parent / name).is_file()]
        if missing:
            _get(remote, {name: path.parent / name for name in missing}, there, _no_progress)
            write_json(stamps_file, stamps | {name: versions[name] for name in missing})


def fetch_named(spec: Any, progress: Progress) -> None:
    """Fetch everything at an address that a part of a study names, each with a bar of its own."""
    for address in dict.fromkeys(_addresses(spec)):
        local_copy(address, progress)


def _addresses(spec: Any) -> Iterator[str]:
    if isinstance(spec, Mapping):
        for value in spec.values():
            yield from _addresses(value)
    elif isinstance(spec, list | tuple):
        for value in spec:
            yield from _addresses(value)
    elif isinstance(spec, str) and is_address(spec) and not is_web(spec):
        yield spec


def _get(remote: RemoteFolder, paths: Mapping[str, Path], files: Mapping[str, RemoteFile], progress: Progress) -> None:
    """Fetch objects, each whole or not at all."""
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    arriving = {name: path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}") for name, path in paths.items()}
    total = sum(files[name].size for name in paths)
    try:
        with progress(f"fetching {remote.address}", total) as advance:
            for names in ([*arriving][start : start + AT_ONCE] for start in range(0, len(arriving), AT_ONCE)):
                remote.get({name: arriving[name] for name in names})
                for name in names:
                    arriving[name].replace(paths[name])
                advance(sum(files[name].size for name in names))
    finally:
        for path in arriving.values():
            path.unlink(missing_ok=True)


def _versions(files: Mapping[str, RemoteFile]) -> dict[str, str]:
    return {name: f"{file.size} {file.md5 or file.stamp}" for name, file in sorted(files.items())}


def _read_stamps(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError, TypeError, RecursionError):
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


@contextmanager
def _reading(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot read {address}: {error.strerror or error}") from error
