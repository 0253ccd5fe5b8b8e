"""What the truths of the self-test share: their form, and the words for where they come from."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from roadworthy.selftest.items import plain

CLOSE = 1e-9
HAND = "by hand, in exact fractions"
FORMULA = "by its formula, image by image"


def truth(expected: Any, origin: str, tolerance: float = CLOSE) -> dict[str, Any]:
    return {"expected": plain(expected), "origin": origin, "tolerance": tolerance}


def by(package: str, function: str) -> str:
    return f"{package} {metadata.version(package)}, {function}"
