"""Artifacts: things built once before cases run, kept under the hash of their recipe with the hash of their content."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from roadworthy.core.errors import DamagedFile, InputError, ModelError
from roadworthy.core.files import RECEIPT, inside
from roadworthy.core.hashing import digest_file, sealed, unsealed
from roadworthy.core.types import Artifact
from roadworthy.engine.folder import RunFolder, write_json

RECORD = "artifact.json"
_KEYS = ("builder", "parameters", "inputs", "seed", "competence", "files")


def ensure_artifact(folder: RunFolder, artifact: Artifact, build: Callable[[Path], dict[str, Any]]) -> Path:
    """The folder of the artifact, built now unless it is there whole.

    `build(folder)` writes its files (and checkpoints, which it finds again after a kill) into the folder it is given
    and returns the competence: figures that say how good it is, such as `{"clean_accuracy": 0.98, "floor": 0.9}`. Where
    what a stopped build left there is damaged, it is built from the start.
    """
    home = folder.artifact(artifact.hash)
    recipe = {
        "builder": artifact.builder,
        "parameters": dict(artifact.parameters),
        "inputs": list(artifact.inputs),
        "seed": artifact.seed,
    }
    with suppress(InputError):
        check_artifact(home)
        return home
    workshop = home.with_name(f"{artifact.hash}.building")
    workshop.mkdir(parents=True, exist_ok=True)
    try:
        competence = build(workshop)
    except DamagedFile:
        shutil.rmtree(workshop)
        workshop.mkdir()
        competence = build(workshop)
    for receipt in workshop.glob(f"*{RECEIPT}"):
        receipt.unlink()
    files = {p.name: digest_file(p) for p in sorted(workshop.iterdir()) if p.name != RECORD}
    write_json(workshop / RECORD, sealed({**recipe, "competence": competence, "files": files}))
    shutil.rmtree(home, ignore_errors=True)
    workshop.rename(home)
    return home


def find_artifact(folder: RunFolder, recipe: str, failures: Mapping[str, str]) -> Path:
    """The folder of a built artifact; `failures` say why one could not be built."""
    if recipe in failures:
        raise ModelError(failures[recipe])
    home = folder.artifact(recipe)
    if not (home / RECORD).is_file():
        raise InputError(f"the artifact {home} is missing: run the study again to build it")
    return home


def read_artifact(home: Path) -> dict[str, Any]:
    """What run.json says of an artifact: its recipe and competence."""
    record = _record(home)
    return {key: record[key] for key in ("builder", "parameters", "seed", "competence")}


def check_artifact(home: Path) -> dict[str, Any]:
    """The artifact's record; an `InputError` where a file, the record itself among them, is not as it was written."""
    record = _record(home)
    for name, expected in record["files"].items():
        path = inside(home, name)
        if not path.is_file() or digest_file(path) != expected:
            raise InputError(f"{path} is missing or was changed: run the study again to build it anew")
    return record


def _record(home: Path) -> dict[str, Any]:
    path = home / RECORD
    try:
        return unsealed(path.read_text(encoding="utf-8"), _KEYS)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): run the study again to build it anew") from None


def is_built(folder: RunFolder, artifact: Artifact) -> bool:
    """True where an artifact is there."""
    return (folder.artifact(artifact.hash) / RECORD).is_file()
