"""A little of a training, timed: how long all of it will take."""

from __future__ import annotations

import time

import numpy as np

from roadworthy.core.roles import Dataset
from roadworthy.data.subset import Subset

TRIED_STEPS = 3
"""Steps of a training that are timed to tell how long all of it takes; the first one only warms up."""
TRIED_BATCH = 16
"""Images of such a step, where the training itself takes more: an image takes about as long."""


def few_images(data: Dataset, count: int) -> Subset:
    """So many images of a data set, or all where it has fewer, spread evenly over it.

    >>> from roadworthy.data import BuiltinDataset
    >>> data = BuiltinDataset("signs", n=700)
    >>> few_images(data, 3).ids == (data.ids[0], data.ids[350], data.ids[699])
    True
    """
    rows = np.linspace(0, len(data) - 1, min(count, len(data))).round().astype(int)
    return Subset(data, rows.tolist())


class StepTimes:
    """A progress that notes when it was told of how many images, by processor time shared among `threads`.

    Work that is done on one thread is timed so as if these did it, on a machine that does nothing else: threads that
    wait for each other on a busy one would count that too.

    >>> times = StepTimes(threads=1)
    >>> times.told = [(1.0, 8), (3.0, 8), (5.0, 8), (6.0, 4)]
    >>> times.per_image(3), times.last
    (0.25, 1.0)
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.started = self._now()
        self.told: list[tuple[float, int]] = []

    def __call__(self, images: int) -> None:
        """Note the moment, where there is an image."""
        if images:
            self.told.append((self._now(), images))

    def _now(self) -> float:
        return time.process_time() / self.threads

    def per_image(self, steps: int) -> float:
        """Seconds per image of so many steps; the first one is left out where there are more: it warms up."""
        first, *others = self.told[:steps]
        if not others:
            return (first[0] - self.started) / first[1]
        return (others[-1][0] - first[0]) / sum(images for _, images in others)

    @property
    def last(self) -> float:
        """Seconds between the last two times that it was told."""
        return self.told[-1][0] - self.told[-2][0]
