"""Beside scenario based degradation: the mean time or distance between failures along drives.

    MTBF = exposure / failures

Consecutive failed readings are one failure.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from roadworthy.metrics import Metric
from roadworthy.metrics.coverage import is_missing
from roadworthy.protocols.dependability.bounds import from_numbers
from roadworthy.protocols.dependability.measures.base import BeforeRun, Measure, Results
from roadworthy.protocols.dependability.names import ALL
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.statistics.degradation import time_between_failures

TIME_BETWEEN_FAILURES = Metric(
    "time_between_failures",
    label="Time between failures",
    sentence="Mean time or distance between failures along a drive.",
    higher_is_better=True,
    range=(0.0, math.inf),
    digits=1,
    infinite="no failure",
)
METRIC = TIME_BETWEEN_FAILURES.name


class TimeBetweenFailures(Measure):
    """Time or distance between failures, where the study names the column of it."""

    metrics = (TIME_BETWEEN_FAILURES,)

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """All images, where there is an axis."""
        return {METRIC: [ALL]} if before.resolved.settings.axis is not None else {}

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """The figure counts drives; it has no value where an image lacks its position or its drive."""
        axis = data.settings.axis
        if axis is None or data.no_conditions:
            return
        positions = data.columns[axis.column].astype(np.float64)
        drives = data.groups if axis.sequence is None else data.columns[axis.sequence]
        no_drive = sum(is_missing(drive) for drive in drives.tolist())
        for count, column in ((int(np.isnan(positions).sum()), axis.column), (no_drive, axis.sequence)):
            if count:
                results.missing[model, METRIC] = f"{count} images have no {column}"
                return
        over = partial(time_between_failures, positions, ~data.readouts[model].answers.correct, drives)
        try:
            over()
        except ValueError as error:
            results.missing[model, METRIC] = str(error)
            return

        def numbers(confidence: float) -> tuple[float, float, float, str]:
            time = over(confidence)
            return time.value, time.lo, time.hi, time.reason

        results.add(model, ALL, METRIC, drives, from_numbers(numbers, "Poisson, widened where drives differ"))
