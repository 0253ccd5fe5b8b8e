"""The metrics of break points."""

from __future__ import annotations

import math

from roadworthy.metrics import Metric

BREAK_SEVERITY = Metric(
    "break_severity",
    label="Break point",
    sentence="The lowest severity of a shift at which a metric misses its threshold; levels are whole severities. "
    "Infinite where the threshold is met up to the last level, 0 where it is missed undisturbed.",
    higher_is_better=True,
    range=(0.0, math.inf),
    digits=2,
    infinite="beyond the last level",
)
FAILURE_PROBABILITY = Metric(
    "failure_probability",
    label="Failure probability",
    sentence="Share of images that are answered wrong at a severity: 1 - accuracy.",
    higher_is_better=False,
    percent=True,
)
METRICS = (BREAK_SEVERITY, FAILURE_PROBABILITY)
