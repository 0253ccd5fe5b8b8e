"""What is finished on disk, in one way for all of it: immutable parts, and a manifest that names them, written last.

FOLDER/
  <part>          a file, in subfolders too; until the folder is finished it counts once it has a receipt:
  <part>.sha256   its SHA-256, created exclusively after it
  manifest.json   what the folder was made from, `parts` with the SHA-256 of each, and a seal; then receipts are dropped

A folder without a manifest is a workshop: its builder continues from the parts that count. Publishing needs no rename.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from roadworthy.core.errors import DamagedFile, InputError, ModelError
from roadworthy.core.files import check_inside, check_name_inside, create_whole, is_temporary, json_bytes, write_json
from roadworthy.core.hashing import digest_file, sealed, unsealed

MANIFEST, PARTS, RECEIPT = "manifest.json", "parts", ".sha256"
FORMER_MANIFEST, FORMER_PARTS = "artifact.json", "files"
"""How artifacts of a run of schema 1 call them."""

Manifest = tuple[dict[str, Any], dict[str, str]]
"""What a folder was made from, and the SHA-256 of its parts."""


def receipt_path(path: Path) -> Path:
    """Where the receipt of a part lies: beside it."""
    return path.with_name(path.name + RECEIPT)


def write_receipt(path: Path) -> None:
    """Let a part count. A part that is made twice must have the same bytes."""
    sha = digest_file(path)
    try:
        create_whole(receipt_path(path), sha.encode())
    except FileExistsError:
        if not has_receipt(path, sha):
            raise ModelError(f"{path} was made twice and is not the same: delete it and run again") from None


def has_receipt(path: Path, sha: str | None = None) -> bool:
    """True where a part is as its receipt says; `sha` is its SHA-256 where that is known already."""
    return path.is_file() and _receipt(path) == (sha or digest_file(path))


def _receipt(path: Path) -> str:
    receipt = receipt_path(path)
    return receipt.read_text(encoding="utf-8", errors="replace") if receipt.is_file() else ""


def discard(path: Path) -> None:
    """Take back a part, its receipt first."""
    receipt_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def files_in(folder: Path) -> list[str]:
    """The names of all files in a folder and below it that can be parts."""
    paths = {path for path in folder.rglob("*") if path.is_file() and not is_temporary(path.name)}
    paths -= {folder / MANIFEST, *map(receipt_path, paths)}
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def commit(folder: Path, facts: Mapping[str, Any], parts: Iterable[str]) -> None:
    """Declare a folder finished: its manifest holds the `facts`, and the hash of each part, as its receipt says."""
    hashes = {name: _receipt(folder / name) or digest_file(folder / name) for name in parts}
    write_json(folder / MANIFEST, sealed({**facts, PARTS: hashes}))
    drop_receipts(folder, hashes)


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


def read_manifest(folder: Path, keys: Iterable[str] = ()) -> Manifest:
    """What the manifest of a finished folder says.

    One that is not as it was sealed, or lacks one of the `keys`, is a `DamagedFile`; one that names a part outside the
    folder is an `InputError`.
    """
    former = not (folder / MANIFEST).exists() and (folder / FORMER_MANIFEST).is_file()
    path, name = (folder / FORMER_MANIFEST, FORMER_PARTS) if former else (folder / MANIFEST, PARTS)
    try:
        facts = unsealed(path.read_text(encoding="utf-8"), (*keys, name))
        parts = facts.pop(name)
        if not isinstance(parts, dict):
            raise ValueError(f"its {name} are not a record")
    except (OSError, ValueError) as error:
        raise DamagedFile(f"{path} is damaged ({error}): run the study, or save the monitor, again") from None
    check_inside(folder, parts)
    return facts, parts


def check_whole(folder: Path) -> Manifest:
    """What the manifest says; a `DamagedFile` also where a part is not as it says."""
    facts, parts = read_manifest(folder)
    for name, sha in parts.items():
        if not (folder / name).is_file() or digest_file(folder / name) != sha:
            raise DamagedFile(f"{folder / name} is missing or was changed: run the study, or save the monitor, again")
    return facts, parts


def is_whole(folder: Path) -> bool:
    """True where a folder is finished and everything in it is as it was written, to the byte."""
    try:
        facts, parts = check_whole(folder)
        return (folder / MANIFEST).read_bytes() == json_bytes(sealed({**facts, PARTS: parts}))
    except (OSError, InputError):
        return False


def named_parts(folder: Path) -> dict[str, str]:
    """The SHA-256 of the parts that a manifest names, damaged or not; empty where it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        parts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))[PARTS]
        return {check_name_inside(name): str(sha) for name, sha in parts.items()}
    return {}


def drop_damaged(folder: Path) -> None:
    """Take back what is not as it was written, so that it is made again; only for the holder of the lock.

    A part counts where its hash is the one in the manifest or in its receipt. A manifest that is damaged, or names a
    part that is, is taken back, and whole parts have a receipt again.
    """
    hashes = named_parts(folder)
    if is_whole(folder):
        drop_receipts(folder, hashes)
        return
    receipts = (path.with_suffix("") for path in folder.rglob(f"*{RECEIPT}"))
    for path in {*(folder / name for name in hashes), *receipts}:
        if has_receipt(path):
            continue
        if path.is_file() and digest_file(path) == hashes.get(path.relative_to(folder).as_posix()):
            receipt_path(path).unlink(missing_ok=True)
            write_receipt(path)
        else:
            discard(path)
    (folder / MANIFEST).unlink(missing_ok=True)
