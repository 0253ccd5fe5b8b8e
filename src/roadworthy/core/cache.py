"""Where copies are kept of what can be fetched or unpacked again; the folder may be deleted at any time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

OWN, SHARED = "ROADWORTHY_CACHE", "XDG_CACHE_HOME"
"""Environment variables: the cache folder itself, and the folder in which programs keep theirs."""


def cache_folder(*names: str) -> Path:
    """The folder of a cache by its names: in `ROADWORTHY_CACHE`, else in `XDG_CACHE_HOME` or `~/.cache`; not made here.

    >>> cache_folder("arrays").name
    'arrays'
    """
    own, shared = os.environ.get(OWN, ""), Path(os.environ.get(SHARED, ""))
    root = Path(own) if own else (shared if shared.is_absolute() else Path.home() / ".cache") / "roadworthy"
    return root.absolute().joinpath(*names)


def name_of_address(address: str) -> str:
    """A short name for an address that no other has.

    >>> name_of_address("s3://bucket/run")
    '03236a01105588c13f88'
    """
    return hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:20]
