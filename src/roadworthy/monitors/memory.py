"""The memory of a monitor that looks back, where images come one at a time."""

from __future__ import annotations

from collections import deque

import numpy as np

from roadworthy.monitors.base import Monitor
from roadworthy.monitors.learned import Learned, Rep

MOST_IMAGES = 10_000
"""Images since the last `reset` that are kept for a monitor that does not say how far it looks back."""


class Memory:
    """Decides about images one at a time as `Monitor.in_order` does about a stream.

    It keeps as many images as a decision depends on (`Monitor.looks_back`), so that time and memory per image do not
    grow with the stream.

    >>> from roadworthy.monitors import make_monitor
    >>> memory = Memory(make_monitor("combined", of=("msp",), last=2, at_least=2), Learned(), Learned())
    >>> row = np.ones((1, 2), np.float32)
    >>> [memory.decide(row, is_rejected) for is_rejected in (True, True, False)], len(memory)
    ([False, True, False], 2)
    """

    def __init__(self, monitor: Monitor, rule: Learned, state: Learned) -> None:
        self.monitor, self.rule, self.state = monitor, rule, state
        self.reset()

    def __len__(self) -> int:
        return len(self._rows)

    def reset(self) -> None:
        """Forget the images before: the next one belongs to another object."""
        most = self.monitor.looks_back or MOST_IMAGES
        self._rows: deque[Rep] = deque(maxlen=most)
        self._rejected: deque[bool] = deque(maxlen=most)

    def decide(self, row: Rep, is_rejected: bool) -> bool:
        """Whether the newest image is rejected: `row` (1, D) is what the monitor keeps of it.

        `is_rejected` says what was decided about the image by itself.
        """
        if not self.monitor.is_sequential:
            return is_rejected
        self._rows.append(row)
        self._rejected.append(is_rejected)
        starts = np.arange(len(self._rows)) == 0
        rows, rejected = np.concatenate(self._rows), np.array(self._rejected)
        return bool(self.monitor.in_order(rows, rejected, starts, self.rule, self.state)[-1])
