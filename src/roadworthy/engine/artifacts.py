"""Artifacts: things built once before cases run, kept under the hash of their recipe with the hash of their content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.files import inside
from roadworthy.core.hashing import digest_file
from roadworthy.core.types import Artifact
from roadworthy.engine.folder import RunFolder, write_json

RECORD = "artifact.json"


def ensure_artifact(folder: RunFolder, artifact: Artifact, build: Callable[[Path], dict[str, Any]]) -> Path:
    """The folder of the artifact, built now unless it is there.

    `build(folder)` writes its files (and checkpoints, which it finds again after a kill) into the folder it is given
    and returns the competence: figures that say how good it is, such as `{"clean_accuracy": 0.98, "floor": 0.9}`.
    """
    home = folder.artifact(artifact.hash)
    if (home / RECORD).is_file():
        check_artifact(home)
        return home
    workshop = home.with_name(f"{artifact.hash}.building")
    workshop.mkdir(parents=True, exist_ok=True)
    competence = build(workshop)
    write_json(
        workshop / RECORD,
        {
            "builder": artifact.builder,
            "parameters": dict(artifact.parameters),
            "inputs": list(artifact.inputs),
            "seed": artifact.seed,
            "competence": competence,
            "files": {p.name: digest_file(p) for p in sorted(workshop.iterdir()) if p.name != RECORD},
        },
    )
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
    record = json.loads((home / RECORD).read_text())
    return {key: record[key] for key in ("builder", "parameters", "seed", "competence")}


def check_artifact(home: Path) -> dict[str, Any]:
    """The artifact's record, after comparing every file with its hash."""
    record: dict[str, Any] = json.loads((home / RECORD).read_text())
    for name, expected in record["files"].items():
        path = inside(home, name)
        if not path.is_file() or digest_file(path) != expected:
            raise InputError(f"{path} is missing or was changed: delete {home} to build it again")
    return record
