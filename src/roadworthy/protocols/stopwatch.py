"""What it costs to decide about one image, as at deployment: seconds and memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from roadworthy.core.errors import RoadworthyError, foreign_code, is_the_machine_s
from roadworthy.core.types import Batch

WARMING = 3
"""Images before those that are timed: the first ones pay for what is loaded and allocated once."""
TRACED = 5
"""Images whose memory is traced, in a pass of their own: tracing makes everything slower."""
BLOCK = 50
"""Images that one of several decides about before it is the next one's turn."""
Decide = Callable[[int], object]
"""What decides about an image by its number."""
Key = TypeVar("Key", bound=Hashable)


def seconds_in_turns(
    decides: Mapping[Key, Decide], images: int, number: int, most_seconds: float
) -> dict[Key, list[float] | str]:
    """The seconds that each of several takes for one image after the other, or why it could not be timed.

    images         how many different ones there are; they are shown again from the first up to `number`
    most_seconds   the time of each, after which it gets no further image

    They take turns, each in blocks of `BLOCK` images after a few that are not timed, in another order in each block: a
    machine that grows slower meanwhile does so for all, and caches are as warm as where one of them runs alone.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in decides}
    failures: dict[Key, str] = {}
    going, keys = set(decides), [*decides]
    for block, start in enumerate(range(0, number, BLOCK)):
        for place in np.random.default_rng(block).permutation(len(keys)).tolist():
            if (key := keys[place]) not in going:
                continue
            try:
                with foreign_code("", is_the_machine_s):
                    for turn in range(WARMING):
                        decides[key](turn % images)
                    for turn in range(start, min(start + BLOCK, number)):
                        started = time.perf_counter()
                        decides[key](turn % images)
                        seconds[key].append(time.perf_counter() - started)
                        if sum(seconds[key]) > most_seconds:
                            going.discard(key)
                            break
            except RoadworthyError as error:
                failures[key] = str(error)
                going.discard(key)
    return {key: failures.get(key, own) for key, own in seconds.items()}


def seconds_per_image(decide: Callable[[Batch], object], images: Sequence[Batch]) -> list[float]:
    """The seconds that each image takes."""
    for image in images[:WARMING]:
        decide(image)
    seconds = []
    for image in images:
        started = time.perf_counter()
        decide(image)
        seconds.append(time.perf_counter() - started)
    return seconds


def peak_memory(decide: Callable[[Batch], object], images: Sequence[Batch]) -> int:
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
