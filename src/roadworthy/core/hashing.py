"""Content hashes: the identity of data, models, stimuli, cases and artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.errors import UnreadableFile


def canonical_json(value: Any) -> str:
    """The one JSON text of a plain value: sorted keys, no spaces, no NaN.

    >>> canonical_json({"b": (1, 2.5), "a": None})
    '{"a":null,"b":[1,2.5]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no canonical form")


def digest(value: Any) -> str:
    """SHA-256 (hex) of a plain value's canonical JSON.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


SEAL = "digest"
"""The key of a record under which its seal stands."""


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the hash of its content: what is changed later is seen by `unsealed`."""
    return {**record, SEAL: _seal(record)}


def unsealed(text: str, keys: Iterable[str] = ()) -> dict[str, Any]:
    """The record in a JSON text; a `ValueError` where it is not one, lacks a key or is not as it was sealed.

    One without a seal, of an earlier version, is taken as it is.

    >>> unsealed(json.dumps(sealed({"a": 1})))
    {'a': 1}
    >>> unsealed('{"a": 2, "digest": "0"}')
    Traceback (most recent call last):
    ValueError: it was changed
    """
    try:
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("it is not a record")
        if not is_sealed(record):
            raise ValueError("it was changed")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    record.pop(SEAL, None)
    missing = [key for key in keys if key not in record]
    if missing:
        raise ValueError(f"it lacks {missing[0]}")
    return record


def resealed(record: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A record with other values, sealed anew; one whose seal is broken keeps that seal, and one without gets none.

    >>> unsealed(json.dumps(resealed(sealed({"a": 1}), {"a": 2})))
    {'a': 2}
    >>> resealed({"a": 1, "digest": "0"}, {"a": 2})
    {'a': 2, 'digest': '0'}
    """
    content = {key: value for key, value in record.items() if key != SEAL}
    if SEAL in record and is_sealed(record):
        return sealed(json.loads(json.dumps({**content, **changes})))
    return {**record, **changes}


def is_sealed(record: Mapping[str, Any]) -> bool:
    """Whether a record is as it was sealed; one without a seal, of an earlier version, is taken as it is.

    >>> is_sealed(sealed({"a": 1})), is_sealed({"a": 2, "digest": "0"}), is_sealed({"a": 3})
    (True, False, True)
    """
    return SEAL not in record or record[SEAL] == _seal({key: record[key] for key in record if key != SEAL})


def _seal(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def digest_array(array: np.ndarray) -> str:
    """SHA-256 (hex) of an array's shape, type and bytes."""
    sha = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes; an `UnreadableFile` where the system does not give them."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableFile(path, error) from None
