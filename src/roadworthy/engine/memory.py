"""How much memory this process holds at most while something is built, as the system counts it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STATUS, MARKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PEAK, FORGET_PEAK = "VmHWM:", "5"
"""The line of the status that has the highest resident size so far, and what makes Linux count it anew."""


@dataclass
class Peak:
    """The highest resident size of this process while a block ran, in bytes; NaN where the system does not tell."""

    bytes: float = math.nan


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """A block whose highest resident size is known when it ends: data, libraries and networks in memory included.

    >>> with peak_memory() as peak:
    ...     pass
    >>> math.isnan(peak.bytes) or peak.bytes > 1e6
    True
    """
    peak = Peak()
    try:
        MARKS.write_text(FORGET_PEAK)
    except OSError:  # no Linux, or a sandbox that keeps it from us
        yield peak
        return
    try:
        yield peak
    finally:
        peak.bytes = _highest()


def _highest() -> float:
    """The highest resident size since it was last forgotten."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return math.nan
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(PEAK)), math.nan)
