"""A monitor on disk: a JSON record, sealed with its own hash, and plain arrays. Nothing is ever pickled."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.validation import require_file
from roadworthy.monitors.threshold import Aim, RejectedShare

FORMAT = 1
RECORD, ARRAYS = "monitor.json", "monitor.npz"
CALIBRATION: dict[str, Any] = {"aim": None, "columns": None, "rejected": None, "calibrated_on": []}
"""What a record says of a calibration, where there is none. Earlier records lack some of it."""


def write_monitor(folder: str | Path, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Write a record and arrays to a folder."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    np.savez(home / ARRAYS, allow_pickle=False, **arrays)
    whole = {"format": FORMAT, **record, "arrays": digest_file(home / ARRAYS)}
    whole["digest"] = digest(whole)
    (home / RECORD).write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return home


def read_monitor(folder: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The record and the arrays of a folder; an `InputError` where they are not as they were saved."""
    home = Path(folder)
    record = _read_record(home / RECORD)
    path = home / ARRAYS
    require_file(path, "monitor")
    if digest_file(path) != record["arrays"]:
        raise InputError(f"{path} is not the file that was saved: save the monitor again")
    try:
        with np.load(path, allow_pickle=False) as stored:
            return record, {key: stored[key] for key in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as plain arrays: {error}") from None


def _read_record(path: Path) -> dict[str, Any]:
    """The record of a monitor, its aim as an `Aim` and its share rejected as a `RejectedShare`."""
    require_file(path, "monitor")
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = record["format"]
        complete = {"monitor", "parameters", "built_from", "arrays"} <= set(record)
        seal = digest({key: value for key, value in record.items() if key != "digest"})
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{path} is no record of a monitor: save the monitor again") from None
    if version != FORMAT or not complete:
        raise InputError(f"{path} is of format {version!r}, which this version does not read: save the monitor again")
    if record.get("digest", seal) != seal:
        raise InputError(f"{path} was edited since the monitor was saved: build and save it anew")
    record = CALIBRATION | record
    for key, kind in (("aim", Aim), ("rejected", RejectedShare)):
        try:
            record[key] = None if record[key] is None else kind(**record[key])
        except (TypeError, InputError):
            raise _damaged(path, key) from None
    for key, plain in (("monitor", str), ("parameters", dict), ("arrays", str)):
        if not isinstance(record[key], plain):
            raise _damaged(path, key)
    for key in ("built_from", "calibrated_on"):
        if not isinstance(record[key], list) or not all(isinstance(value, str) for value in record[key]):
            raise _damaged(path, key)
    return record


def _damaged(path: Path, key: str) -> InputError:
    return InputError(f"{path} is damaged, its {key} cannot be read: save the monitor again")
