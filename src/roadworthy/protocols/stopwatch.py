"""What it costs to decide about one image, as at deployment: seconds and memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from roadworthy.core.types import Batch

WARMING = 3
"""Images before those that are timed: the first ones pay for what is loaded and allocated once."""
TRACED = 5
"""Images whose memory is traced, in a pass of their own: tracing makes everything slower."""
Decide = Callable[[Batch], object]


def seconds_per_image(decide: Decide, images: Sequence[Batch]) -> list[float]:
    """The seconds that each image takes."""
    for image in images[:WARMING]:
        decide(image)
    seconds = []
    for image in images:
        started = time.perf_counter()
        decide(image)
        seconds.append(time.perf_counter() - started)
    return seconds


def peak_memory(decide: Decide, images: Sequence[Batch]) -> int:
    """The most memory that a decision takes beyond what is there before it, in bytes, as far as Python traces it."""
    tracemalloc.start()
    try:
        peaks = []
        for image in images[:TRACED]:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            decide(image)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
        return max(peaks)
    finally:
        tracemalloc.stop()


def timings_by_system(table: pd.DataFrame | None) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of an earlier table of timings by hash of the system and number of images; failed ones are left out."""
    if table is None or "system" not in table:
        return {}
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    return {(row["system"], int(row["images"])): row for row in rows if not row["reason"]}
