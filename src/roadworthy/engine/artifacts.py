"""Artifacts: things built once before cases run, kept under the hash of their recipe with the hash of their content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import DamagedFile, InputError, ModelError
from roadworthy.core.files import is_temporary, remove
from roadworthy.core.manifests import (
    MANIFEST,
    NOTHING_RECORDED,
    commit,
    drop_receipts,
    files_in,
    is_committed,
    own_node,
    read_manifest,
)
from roadworthy.core.types import Artifact
from roadworthy.engine.folder import RunFolder

FACTS = ("builder", "parameters", "inputs", "seed", "competence")
"""What the manifest of an artifact holds besides its parts."""


def ensure_artifact(folder: RunFolder, artifact: Artifact, build: Callable[[Path], dict[str, Any]]) -> Path:
    """The folder of the artifact, built there now unless it is finished; `RunFolder.sweep` has dropped damaged ones.

    `build(folder)` writes its files (and checkpoints, which it finds again after a kill) into the folder it is given
    and returns the competence: figures that say how good it is, such as `{"clean_accuracy": 0.98, "floor": 0.9}`. Where
    what a stopped build left there is damaged, it is built from the start. A file that a process was still writing when
    it died is removed: an artifact has one builder at a time.
    """
    home = folder.artifact(artifact.hash)
    if is_committed(home):
        drop_receipts(home, read_manifest(home, artifact.hash)[1])
        return home
    home.mkdir(parents=True, exist_ok=True)
    remove(*(path for path in home.rglob("*") if is_temporary(path.name)))
    try:
        competence = build(home)
    except DamagedFile:
        remove(*home.iterdir())
        competence = build(home)
    sha = commit(home, {**artifact.config(), "competence": competence}, files_in(home))
    folder.written[home / MANIFEST] = sha
    return home


def find_artifact(
    folder: RunFolder, recipe: str, failures: Mapping[str, str], recorded: Mapping[str, Mapping[str, str]] | None = None
) -> Path:
    """The folder of a built artifact, which must hold that one; `failures` say why one could not be built.

    `recorded` are the hashes of the files of the run by their folder, as run.json has them.
    """
    if recipe in failures:
        raise ModelError(failures[recipe])
    home = folder.artifact(recipe)
    if not is_committed(home):
        raise InputError(f"the artifact {home} is missing: run the study again to build it")
    read_manifest(home, recipe, recorded=(recorded or {}).get(f"artifacts/{recipe}", NOTHING_RECORDED))
    return home


def read_artifact(home: Path) -> dict[str, Any]:
    """What run.json says of an artifact: its recipe and competence. Its folder is named by its hash."""
    facts, _ = read_manifest(home, own_node(home), FACTS)
    return {key: facts[key] for key in FACTS if key != "inputs"}


def is_built(folder: RunFolder, artifact: Artifact) -> bool:
    """True where an artifact is there."""
    return is_committed(folder.artifact(artifact.hash))
