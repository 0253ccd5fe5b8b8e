"""Making a bundle: a run that verifies, as one archive with an index of hashes, signed where a key is given."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roadworthy.auditing.archive import FORMAT, VERSION, FileHash, write_archive
from roadworthy.auditing.signing import sign
from roadworthy.core.errors import InputError, RoadworthyError, from_here
from roadworthy.core.files import json_bytes
from roadworthy.core.hashing import digest_file
from roadworthy.core.manifests import MANIFEST
from roadworthy.core.record import RECORD, RunRecord
from roadworthy.engine.folder import RunFolder, writing
from roadworthy.engine.progress import ProgressBar, terminal_progress
from roadworthy.plugins import GivenPlugins
from roadworthy.stored import Run, open_run

ENDING = ".rwz"
SMALL_ARTIFACT = 16 * 2**20
"""Bytes of a built thing (a network, a fitted monitor) that goes into a bundle without being asked for."""
MOST_PROBLEMS = 3
"""Problems of a run that are named where it is refused."""


@dataclass(frozen=True)
class LeftOut:
    """A built thing whose content is not in the bundle, only its manifest: what it is, its files and their bytes."""

    system: str
    builder: str
    files: tuple[str, ...]
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """As the index holds it."""
        return {"system": self.system, "builder": self.builder, "files": list(self.files), "bytes": self.bytes}


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written: its file, how many files of the run it holds, whether it is signed, what it lacks."""

    path: Path
    files: int
    bytes: int
    signed: bool
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What there is to say of it, a line each."""
        signed = "signed" if self.signed else "not signed (`key=` signs it)"
        lines = [f"bundle: {from_here(self.path)} ({self.files:,} files, {self.bytes:,} bytes, {signed})"]
        for recipe, artifact in self.left_out.items():
            lines.append(
                f"left out: artifacts/{recipe[:16]}... ({artifact.builder} of {artifact.system}, {artifact.bytes:,} "
                "bytes), which a rerun of what depends on it needs; `with_artifacts=True` includes it"
            )
        return lines


def bundle_run(
    run: str | os.PathLike[str],
    out: str | Path | None = None,
    *,
    key: str | Path | None = None,
    with_artifacts: bool = False,
    force: bool = False,
    plugins: GivenPlugins = (),
    trust: bool = False,
    progress: ProgressBar = terminal_progress,
) -> Bundle:
    """Write a finished run as one archive for an assessor; the same run gives the same bytes.

    out             the file, by default the run's folder with the ending .rwz; one that is there is replaced only with
                    `force`
    key             a PEM file with the private ed25519 key that signs it (extra `signing`)
    with_artifacts  include built things of more than 16 MiB; smaller ones, and those that tables are computed from, are
                    always there

    A run that does not verify is an `InputError`: what is wrong with it must be known before anybody signs it.
    """
    opened = open_run(os.fspath(run), plugins=plugins, trust=trust)
    opened.folder.check_finished()
    target = default_target(opened.folder) if out is None else Path(out).absolute()
    if target.is_dir():
        raise InputError(f"{target} is a folder: name a file for the bundle with `out=`")
    if target.exists() and not force:
        raise InputError(f"{target} is there already: name another file with `out=`, or replace it with `force=True`")
    if target.is_relative_to(opened.path):
        raise InputError(f"{target} lies in the run itself: name a file elsewhere with `out=`")
    if key is not None:
        sign(b"", Path(key))  # a key that cannot be used is said before the run is read
    opened.folder.refresh(again=True)
    left_out = {} if with_artifacts else large_artifacts(opened.folder)
    with progress("verifying the run", 0):
        left_out = _verified(opened, left_out)
    absent = absent_files(left_out)
    hashes = {name: sha for name, sha in opened.folder.hashes().items() if name not in absent}
    hashes[RECORD] = digest_file(opened.path / RECORD)
    files = {
        name: (opened.path / name, FileHash(sha, (opened.path / name).stat().st_size)) for name, sha in hashes.items()
    }
    index = json_bytes(index_of(opened.record, {name: own for name, (_, own) in files.items()}, left_out))
    signature = None if key is None else sign(index, Path(key))
    size = sum(own.size for _, own in files.values())
    with writing(target), progress("writing the bundle", size) as advance:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_archive(target, index, signature, files, advance)
    return Bundle(target, len(files), target.stat().st_size, signature is not None, left_out)


def default_target(folder: RunFolder) -> Path:
    """Where the bundle of a run goes: beside its folder, or into the working folder where the run is at an address."""
    name = f"{Path(folder.address.rstrip('/')).name}{ENDING}"
    return Path.cwd() / name if folder.mirror else folder.path.with_name(name)


def index_of(record: RunRecord, files: Mapping[str, FileHash], left_out: Mapping[str, Any]) -> dict[str, Any]:
    """The content of index.json: what the record says of data, models and environment, and the hash of every file."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "study": record.study,
        "finished": record.finished,
        "data": {
            source: {"name": own.data.name, "images": own.data.images, "fingerprint": own.data.fingerprint}
            for source, own in record.sources.items()
        },
        "models": {
            name: {"fingerprint": model.fingerprint, "files": dict(model.files), "artifacts": list(model.artifacts)}
            for name, model in record.models.items()
        },
        "environment": record.environment,
        "left_out": {
            recipe: artifact.to_json() if isinstance(artifact, LeftOut) else artifact
            for recipe, artifact in sorted(left_out.items())
        },
        "files": {name: {"sha256": own.sha256, "size": own.size} for name, own in sorted(files.items())},
    }


def large_artifacts(folder: RunFolder, most: int = SMALL_ARTIFACT) -> dict[str, LeftOut]:
    """The built things of a run whose files have more than so many bytes together, by their hash."""
    record, hashes, large = folder.record(), folder.hashes(), {}
    for recipe, artifact in record.artifacts.items():
        home = f"artifacts/{recipe}/"
        names = [name for name in hashes if name.startswith(home) and name != home + MANIFEST]
        size = sum((folder.path / name).stat().st_size for name in names if (folder.path / name).is_file())
        if size > most:
            large[recipe] = LeftOut(artifact.system, artifact.builder, tuple(sorted(names)), size)
    return large


def absent_files(left_out: Mapping[str, LeftOut]) -> set[str]:
    """The names of all files of built things that are left out."""
    return {name for artifact in left_out.values() for name in artifact.files}


def _verified(run: Run, left_out: Mapping[str, LeftOut]) -> dict[str, LeftOut]:
    """What may be left out of a run that verifies: nothing where tables are computed from it.

    The run is examined as if these files were not there; where that does not succeed, as it is.
    """
    if left_out:
        with tempfile.TemporaryDirectory(prefix="roadworthy-bundle-") as empty:
            try:
                if not _examined_without(run, left_out, Path(empty)):
                    return dict(left_out)
            except RoadworthyError:
                pass
    if problems := run.examine().problems:
        more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
        named = "; ".join(problems[:MOST_PROBLEMS])
        raise InputError(f"{run.path} does not verify, so it is not bundled: {named}{more}")
    return {}


def _examined_without(run: Run, left_out: Collection[str], empty: Path) -> list[str]:
    """The problems of a run where only the manifests of some built things are there."""
    for recipe in left_out:
        (empty / recipe).mkdir()
        (empty / recipe / MANIFEST).write_bytes((run.folder.artifact(recipe) / MANIFEST).read_bytes())
    return run.beside(_Without(run.path, left_out, empty)).examine().problems


class _Without(RunFolder):
    """A run in which some built things have a manifest and nothing else."""

    def __init__(self, path: Path, recipes: Collection[str], empty: Path) -> None:
        super().__init__(path)
        self._recipes, self._empty = recipes, empty

    def artifact(self, recipe: str) -> Path:
        """The folder of a built thing; one with its manifest alone where it is left out."""
        return self._empty / recipe if recipe in self._recipes else super().artifact(recipe)
