"""How much memory this process holds, as the system counts it; and workers that keep to a limit of it."""

from __future__ import annotations

import ctypes
import gc
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.errors import InputError
from roadworthy.core.validation import parse_bytes

STATUS, MARKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PEAK, NOW, FORGET_PEAK = "VmHWM:", "VmRSS:", "5"
"""The lines of the status that have the highest resident size so far, and the present one; and what makes Linux count
the highest anew."""
NEAR = 0.9
"""Share of a limit from which on no further worker begins a chunk."""
GIVE_BACK_EVERY = 1.0
"""Seconds between two times that free memory is given back, which takes a while."""
PAUSE = 0.05
"""Seconds after which a worker that waits looks again."""


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
        peak.bytes = _status(PEAK)


def resident() -> float:
    """The bytes that this process holds now; NaN where the system does not tell."""
    return _status(NOW)


def _status(line_name: str) -> float:
    """A size that the system tells of this process, in bytes; NaN where it does not."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return math.nan
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(line_name)), math.nan)


def give_back() -> None:
    """Give memory that is free back to the system, where the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryLimit:
    """How many workers may be at a chunk at once, so that this process stays below so many bytes.

    The first chunk is done by one worker alone, and what it takes is measured: with a bytes held before it and c taken
    by it, k workers fit where a + k c <= limit. While they work, none begins a chunk as long as the process holds more
    than `NEAR` of the limit and another one is at work. What one worker alone cannot do below the limit is an
    `InputError`; chunks that are stored stay. Which worker does which chunk when never changes a result.
    """

    def __init__(self, limit: str | int) -> None:
        self.limit = parse_bytes(limit, "`memory=`")
        self._changed = threading.Condition()
        self._at_work, self.most_at_work = 0, 0
        self._before = resident()
        self._chunk: float | None = None
        self._give_back_at = 0.0
        if math.isnan(self._before):
            raise InputError("`memory=` needs a system that tells how much memory a process holds: leave it out here")
        if self._before > self.limit:
            give_back()
            self._before = resident()
        if self._before > self.limit:
            raise InputError(self._too_little("this process", self._before))

    def fitting(self, workers: int) -> int:
        """How many of so many workers fit, by what is known; at least one."""
        if self._chunk is None:
            return 1
        return max(1, min(workers, int((self.limit - self._before) // self._chunk)))

    @contextmanager
    def turn(self, stopped: threading.Event) -> Iterator[None]:
        """While a worker is at one chunk: entered once there is memory for it, or the run is stopped."""
        with self._changed:
            while not (stopped.is_set() or self._may_begin()):
                self._changed.wait(PAUSE)
            self._at_work += 1
            self.most_at_work = max(self.most_at_work, self._at_work)
            measured = self._chunk is None and not stopped.is_set()
            if measured:
                self._before = resident()
        try:
            if measured:
                with peak_memory() as peak:
                    yield
                self._learn(max(resident(), 0.0 if math.isnan(peak.bytes) else peak.bytes))
            else:
                yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _may_begin(self) -> bool:
        if not self._at_work:
            self._check_alone()
            return True
        if self._chunk is None or self._before + (self._at_work + 1) * self._chunk > self.limit:
            return False
        return self._held_below(NEAR * self.limit)

    def _held_below(self, limit: float) -> bool:
        if resident() > limit and time.monotonic() >= self._give_back_at:
            give_back()
            self._give_back_at = time.monotonic() + GIVE_BACK_EVERY
        return resident() <= limit

    def _learn(self, peak: float) -> None:
        """Note what a chunk took that was done alone; an error where that is more than the limit leaves."""
        self._chunk = max(peak - self._before, 1.0)
        if peak > self.limit:
            raise self._stopped("one worker with a chunk of images", peak)

    def _check_alone(self) -> None:
        """Refuse to go on where this process holds more than the limit with nobody at work."""
        if not self._held_below(self.limit):
            give_back()
            if resident() > self.limit:
                raise self._stopped("this process, with data and models,", resident())

    def _stopped(self, what: str, held: float) -> InputError:
        return InputError(
            f"{self._too_little(what, held)}; what is stored stays, and the same command goes on from there"
        )

    def _too_little(self, what: str, held: float) -> str:
        megabytes = f"{self.limit / 1e6:,.0f} MB, but {what} holds {held / 1e6:,.0f} MB"
        return f"`memory=` is {megabytes}: give more, or a smaller `size=`"
