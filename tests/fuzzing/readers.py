"""What a reader under test is, and how its inputs are made, tried and kept where they fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from traceback import extract_tb, format_exception

from fuzzing.law import lawful

Files = dict[str, bytes]
"""Files by their name below the folder of a reader. A name of an input stands for a file that is changed or added."""


@dataclass(frozen=True)
class Reader:
    """Something that reads what strangers write.

    name     as it is printed and asked for
    code     the modules that it is made of, as patterns below src/roadworthy: their branches are counted
    valid    fills a folder with valid files, and returns those that may be spoiled
    spoil    an input: the spoiled files
    read     reads the files in the folder; may raise `RoadworthyError` only
    writes   the folder below that of the files in which it may write; None: it may nowhere
    inputs   how many inputs are tried where 5,000 are asked for
    """

    name: str
    code: tuple[str, ...]
    valid: Callable[[Path], Files]
    spoil: Callable[[Random, Files], Mapping[str, bytes | None]]
    read: Callable[[Path], object]
    writes: str | None = None
    inputs: int = 5000


@dataclass
class Tally:
    """How many inputs were accepted and refused, and what broke the law: one sentence for each different way."""

    accepted: int = 0
    refused: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def put(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Write files; None removes one."""
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def make_input(reader: Reader, valid: Files, seed: int, number: int) -> Mapping[str, bytes | None]:
    """Input of that number, the same in every process."""
    return reader.spoil(Random(f"{seed}/{reader.name}/{number}"), valid)


def explore(reader: Reader, folder: Path, numbers: Iterable[int], seed: int, keep: Path | None = None) -> Tally:
    """Try inputs of a reader in a folder; those that break the law, each in a way of its own, are kept and listed."""
    valid = reader.valid(folder)
    tally = Tally()
    for number in numbers:
        files: Mapping[str, bytes | None] = {}
        if keep is not None:
            last_input(keep, reader.name).write_text(str(number))
        try:
            files = make_input(reader, valid, seed, number)
            put(folder, files)
            with lawful(None if reader.writes is None else folder / reader.writes) as refusals:
                reader.read(folder)
            tally.refused += bool(refusals)
            tally.accepted += not refusals
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            way = _way(error)
            if way not in tally.failures:
                kept = f"; kept in {keep_input(reader, files, seed, number, error, keep)}" if keep is not None else ""
                what = f"{type(error).__name__}: {str(error)[:500]}"
                tally.failures[way] = f"{reader.name}, seed {seed}, input {number}: {what} ({way}){kept}"
        finally:
            put(folder, {name: valid.get(name) for name in files})
    return tally


def _way(error: BaseException) -> str:
    """Where an error comes from: its kind and the last line of this package that it went through."""
    lines = [
        f"{frame.filename.rpartition('roadworthy/')[2]}:{frame.lineno}"
        for frame in extract_tb(error.__traceback__)
        if "/src/roadworthy/" in frame.filename
    ]
    return f"{type(error).__name__} {lines[-1] if lines else str(error)[:40]}"


def last_input(keep: Path, name: str) -> Path:
    """The file with the number of the input that a reader was given last: for a process that dies of it."""
    return keep / f"{_slug(name)}.last"


def _slug(name: str) -> str:
    return name.replace(" ", "_").replace("/", "_")


def keep_input(
    reader: Reader, files: Mapping[str, bytes | None], seed: int, number: int, error: BaseException, keep: Path
) -> Path:
    """Keep the files of an input that failed, and how it failed."""
    target = keep / f"{_slug(reader.name)}-{seed}-{number}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    put(target, files)
    (target / "traceback.txt").write_text("".join(format_exception(error)), errors="replace")
    return target
