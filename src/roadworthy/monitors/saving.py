"""A monitor on disk: a JSON record and plain arrays, the parts of a folder with a manifest. Nothing is ever pickled."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.checked import check_bytes, checked, read_checked
from roadworthy.core.errors import InputError
from roadworthy.core.files import write_bytes, write_json
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.manifests import NO_NODE, check_whole, commit
from roadworthy.core.validation import plain_array, require_file, require_memory
from roadworthy.monitors.threshold import Aim, RejectedShare

FORMAT = 2
SEALED_FORMAT = 1
"""What earlier versions wrote: a record with a hash of its own and of the arrays, and no manifest."""
RECORD, ARRAYS = "monitor.json", "monitor.npz"
CALIBRATION: dict[str, Any] = {"aim": None, "columns": None, "rejected": None, "calibrated_on": []}
"""What the record of a monitor without a calibration says of it. Earlier records lack some of these keys."""


def write_monitor(folder: str | Path, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a record and arrays to a folder; `commit_monitor` must then write the manifest with their hashes."""
    home, content = Path(folder), io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    home.mkdir(parents=True, exist_ok=True)
    write_bytes(home / ARRAYS, content.getvalue())
    write_json(home / RECORD, {"format": FORMAT, **record})
    return home


def commit_monitor(home: Path, built_from: Sequence[str]) -> Path:
    """Write the manifest of a folder that `write_monitor` filled."""
    commit(home, {"built_from": list(built_from)}, (RECORD, ARRAYS))
    return home


def read_monitor(folder: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The record and the arrays of a folder; an `InputError` where they are not as they were saved."""
    (record, sha), path = _read_record(Path(folder)), Path(folder) / ARRAYS
    try:
        with (
            checked(path, sha) as content,
            np.load(io.BytesIO(content) if isinstance(content, bytes) else content, allow_pickle=False) as stored,
        ):
            require_memory(sum(member.file_size for member in stored.zip.infolist()), str(path))
            return record, {key: plain_array(stored[key], key) for key in stored.files}
    except InputError:
        raise
    except Exception as error:  # on a broken file, zipfile and numpy raise almost anything
        raise InputError(f"{path} cannot be read as plain arrays: {error}") from None


def _read_record(home: Path) -> tuple[dict[str, Any], str]:
    """The record of a whole monitor, its aim as an `Aim` and its share rejected as a `RejectedShare`.

    With it goes the SHA-256 that its arrays must have.
    """
    path = home / RECORD
    for part in (path, home / ARRAYS):
        require_file(part, "monitor")
    try:
        content = read_checked(path, None)
        record: dict[str, Any] = json.loads(content.decode("utf-8"))
        version = record["format"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} is not a valid record of a monitor: save the monitor again") from None
    if version not in (FORMAT, SEALED_FORMAT) or not {"monitor", "parameters", "built_from"} <= set(record):
        raise InputError(f"{path} is of format {version!r}, which this version does not read: save the monitor again")
    if version == SEALED_FORMAT:
        _check_sealed(home, record)
        arrays = str(record.get("arrays"))
    else:
        _, parts = check_whole(home, NO_NODE)
        if not {RECORD, ARRAYS} <= set(parts):
            raise InputError(
                f"the manifest in {home} does not name the monitor that lies there: save the monitor again"
            )
        check_bytes(path, content, parts[RECORD])
        arrays = parts[ARRAYS]
    record = CALIBRATION | record
    for key, kind in (("aim", Aim), ("rejected", RejectedShare)):
        try:
            record[key] = None if record[key] is None else kind(**record[key])
        except (TypeError, ValueError, OverflowError, InputError):
            raise _damaged(path, key) from None
    for key, plain in (("monitor", str), ("parameters", dict), ("built_from", list), ("calibrated_on", list)):
        if not isinstance(record[key], plain) or not all(isinstance(entry, str) for entry in record[key]):
            raise _damaged(path, key)
    return record, arrays


def _check_sealed(home: Path, record: Mapping[str, Any]) -> None:
    """Refuse a monitor of an earlier version that is not as it was saved; the first ones had no hash of the record."""
    seal = digest({key: value for key, value in record.items() if key != "digest"})
    if record.get("digest", seal) != seal:
        raise InputError(f"{home / RECORD} was edited since the monitor was saved: build and save it again")
    if digest_file(home / ARRAYS) != record.get("arrays"):
        raise InputError(f"{home / ARRAYS} is not the file that was saved: save the monitor again")


def _damaged(path: Path, key: str) -> InputError:
    return InputError(f"{path} is damaged, its {key} cannot be read: save the monitor again")
