"""What is finished on disk, in one way for all of it: immutable parts, and a manifest that names them, written last.

FOLDER/
  <part>          a file, in subfolders too; until the folder is finished it counts once it has a receipt:
  <part>.sha256   its SHA-256 and, of a case, what its folder is named by; created exclusively after it
  manifest.json   what the folder was made from, `parts` with the SHA-256 of each, and a seal; then receipts are dropped

A folder without a manifest is a workshop: its builder continues from the parts that count. Publishing needs no rename.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from roadworthy.core.checked import read_checked
from roadworthy.core.errors import DamagedFile, InputError, ModelError
from roadworthy.core.files import check_inside, check_name_inside, create_whole, is_temporary, json_bytes, write_bytes
from roadworthy.core.hashing import SEAL, digest, digest_file, sealed, unsealed

MANIFEST, PARTS, RECEIPT = "manifest.json", "parts", ".sha256"
CASE, COMPETENCE = "case", "competence"
"""What the manifest of a case says its hash by, and what of an artifact's is no part of its recipe."""
FORMER_MANIFEST, FORMER_PARTS = "artifact.json", "files"
"""How artifacts of a run of schema 1 call them."""

NO_NODE = ""
"""What is expected of a folder that was saved for itself, outside a run: it belongs to no node."""

NOTHING_RECORDED: Mapping[str, str] = MappingProxyType({})
"""The hashes that are known of the files of a folder before run.json has them."""
Manifest = tuple[dict[str, Any], dict[str, str]]
"""What a folder was made from, and the SHA-256 of its parts."""


def receipt_path(path: Path) -> Path:
    """Where the receipt of a part lies: beside it."""
    return path.with_name(path.name + RECEIPT)


def write_receipt(path: Path, sha: str = "", node: str = "") -> None:
    """Let a part count. A part that is made twice must have the same bytes.

    `sha` is its SHA-256, where it is known, and `node` the one that it belongs to, where it must not count for another.
    """
    sha = sha or digest_file(path)
    try:
        create_whole(receipt_path(path), f"{sha} {node}".strip().encode())
    except FileExistsError:
        if not has_receipt(path, sha):
            raise ModelError(f"{path} was made twice and is not the same: delete it and run again") from None


def has_receipt(path: Path, sha: str | None = None) -> bool:
    """True where a part is as its receipt says; `sha` is its SHA-256 where that is known already."""
    return path.is_file() and read_receipt(path) == (sha or digest_file(path))


def read_receipt(path: Path) -> str:
    """The SHA-256 that the receipt of a part says; "" where it has none."""
    return _receipt(path)[0]


def _receipt(path: Path) -> tuple[str, str]:
    """The SHA-256 and the node that the receipt of a part says; "" for what it does not."""
    receipt = receipt_path(path)
    sha, _, node = (receipt.read_text(encoding="utf-8", errors="replace") if receipt.is_file() else "").partition(" ")
    return sha, node


def discard(path: Path) -> None:
    """Take back a part, its receipt first."""
    receipt_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def files_in(folder: Path) -> list[str]:
    """The names of all files in a folder and below it that can be parts."""
    paths = {path for path in folder.rglob("*") if path.is_file() and not is_temporary(path.name)}
    paths -= {folder / MANIFEST, *map(receipt_path, paths)}
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def commit(
    folder: Path, facts: Mapping[str, Any], parts: Iterable[str], written: Mapping[Path, str] | None = None
) -> str:
    """Declare a folder finished: its manifest holds the `facts`, and the hash of each part; returns its own hash.

    The hash of a part is that of what this process has `written`, else what its receipt says: a part that somebody
    changed since is not blessed by it.
    """
    paths, known = {name: folder / name for name in parts}, written or {}
    hashes = {name: known.get(path) or read_receipt(path) or digest_file(path) for name, path in paths.items()}
    content = json_bytes(sealed({**facts, PARTS: hashes}))
    write_bytes(folder / MANIFEST, content)
    drop_receipts(folder, hashes)
    return sha256(content).hexdigest()


def drop_receipts(folder: Path, parts: Iterable[str]) -> None:
    """Of a finished folder: the hashes are in its manifest."""
    there = {path.name for path in folder.iterdir()}
    for name in parts:
        if "/" in name or f"{name}{RECEIPT}" in there:
            receipt_path(folder / name).unlink(missing_ok=True)


def counted_parts(folder: Path) -> set[str]:
    """The names of the parts in a folder, without its subfolders, that count by a receipt or by the manifest.

    The folder is listed once, however many parts it has.
    """
    try:
        with os.scandir(folder) as entries:
            there = {entry.name for entry in entries if entry.is_file()}
    except OSError:
        return set()
    named = named_parts(folder) if MANIFEST in there else {}
    return {name for name in there if f"{name}{RECEIPT}" in there or name in named}


def is_committed(folder: Path) -> bool:
    """True where a folder is finished."""
    return (folder / MANIFEST).is_file() or (folder / FORMER_MANIFEST).is_file()


def read_manifest(
    folder: Path, node: str, keys: Iterable[str] = (), recorded: Mapping[str, str] = NOTHING_RECORDED
) -> Manifest:
    """What the manifest of a finished folder says.

    node      the hash of the case or artifact that must lie there, or the beginning that its folder is named by;
              `NO_NODE` where the folder was saved for itself
    recorded  the SHA-256 of files of the folder by their name in it, as run.json has them: its manifest's must be that

    One that is not as it was written, is that of another node, or lacks one of the `keys`, is a `DamagedFile`; one that
    names a part outside the folder is an `InputError`.
    """
    former = not (folder / MANIFEST).exists() and (folder / FORMER_MANIFEST).is_file()
    path, name = (folder / FORMER_MANIFEST, FORMER_PARTS) if former else (folder / MANIFEST, PARTS)
    try:
        facts = unsealed(read_checked(path, recorded.get(path.name)).decode("utf-8"), (*keys, name))
        parts = facts.pop(name)
        if not isinstance(parts, dict):
            raise ValueError(f"its {name} are not a record")
        if not _node_of(facts).startswith(node):
            raise ValueError(f"it is that of another {'case' if CASE in facts else 'artifact'}, {_node_of(facts)[:16]}")
    except DamagedFile:
        raise
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{path} is damaged ({error}): run the study, or save the monitor, again") from None
    check_inside(folder, parts)
    return facts, parts


def _node_of(facts: Mapping[str, Any]) -> str:
    """The hash of the node of a manifest: a case is named there, an artifact by the digest of its recipe."""
    return str(facts[CASE]) if CASE in facts else digest({key: facts[key] for key in facts if key != COMPETENCE})


def own_node(folder: Path) -> str:
    """The hash of the node that the folder of a run is named by: of an artifact all of it, of a case its beginning.

    >>> own_node(Path("readouts/fog-3-r0-5ae21dd94e555bc9"))
    '5ae21dd94e555bc9'
    """
    return folder.name.rpartition("-")[2]


def check_whole(folder: Path, node: str) -> Manifest:
    """What the manifest says; a `DamagedFile` also where a part is not as it says."""
    facts, parts = read_manifest(folder, node)
    for name, expected in parts.items():
        if not (folder / name).is_file() or digest_file(folder / name) != expected:
            raise DamagedFile(f"{folder / name} is missing or was changed: run the study, or save the monitor, again")
    return facts, parts


def is_whole(folder: Path, node: str) -> bool:
    """True where a folder is finished, is the node's, and everything in it is as it was written, to the byte."""
    try:
        facts, parts = check_whole(folder, node)
        return (folder / MANIFEST).read_bytes() == json_bytes(sealed({**facts, PARTS: parts}))
    except (OSError, InputError):
        return False


def read_part(folder: Path, node: str, name: str) -> bytes:
    """The content of a part of a finished folder, as it was written; a `DamagedFile` where it is not, or is missing."""
    _, parts = read_manifest(folder, node)
    if name not in parts:
        raise DamagedFile(f"{folder / MANIFEST} names no {name}: run the study, or save the monitor, again")
    return read_checked(folder / name, parts[name])


def named_parts(folder: Path) -> dict[str, str]:
    """The SHA-256 of the parts that a manifest names, damaged or not; empty where it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        parts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))[PARTS]
        return {check_name_inside(name): str(sha) for name, sha in parts.items()}
    return {}


def drop_damaged(folder: Path, node: str) -> None:
    """Take back what is not as it was written, so that it is made again; only for the holder of the lock.

    A part counts where its hash is the one in the manifest or in its receipt. A manifest that is damaged, or names a
    part that is, is taken back, and whole parts have a receipt again. What belongs to another node than the one that
    the folder is named by, as after two were mixed up, does not count.
    """
    hashes = named_parts(folder)
    if is_whole(folder, node):
        drop_receipts(folder, hashes)
        return
    lost = _is_of_another(folder, node)
    receipts = (path.with_suffix("") for path in folder.rglob(f"*{RECEIPT}"))
    for path in {*(folder / name for name in hashes), *receipts}:
        if lost or _receipt(path)[1] not in ("", node):
            discard(path)
        elif has_receipt(path):
            continue
        elif path.is_file() and digest_file(path) == hashes.get(path.relative_to(folder).as_posix()):
            receipt_path(path).unlink(missing_ok=True)
            write_receipt(path, node=node)
        else:
            discard(path)
    (folder / MANIFEST).unlink(missing_ok=True)


def _is_of_another(folder: Path, node: str) -> bool:
    """True where the manifest of a folder, damaged or not, names another node."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return not _node_of({key: facts[key] for key in facts if key not in (PARTS, SEAL)}).startswith(node)
    return False
