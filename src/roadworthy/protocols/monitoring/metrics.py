"""The metrics of a monitor benchmark: what its decisions are worth, what they cost, and when they come."""

from __future__ import annotations

import math

from roadworthy.metrics import Metric
from roadworthy.metrics.decisions import CLASS_METRICS as CLASS_METRICS
from roadworthy.metrics.decisions import DECISION_METRICS as DECISION_METRICS
from roadworthy.metrics.decisions import EFFECT_METRICS as EFFECT_METRICS
from roadworthy.metrics.decisions import STREAM_METRICS as STREAM_METRICS
from roadworthy.metrics.ranking import Ranking
from roadworthy.metrics.selective import AURC as AURC
from roadworthy.protocols.ood.metrics import FPR95_IN as FPR95_IN

FRAMES = (0.0, math.inf)

MCC, FPR, FNR, PRECISION, RECALL, F1_WEIGHTED, F1_MICRO, BALANCED_ACCURACY = DECISION_METRICS
SAFETY_GAIN, RESIDUAL_HAZARD, AVAILABILITY_COST = EFFECT_METRICS

AUROC = Metric(
    "auroc",
    label="AUROC",
    sentence="The chance that an ID image has a higher score than an OOD image; ties count half. No threshold is "
    "involved. 0.5 is guessing.",
    higher_is_better=True,
    ranked=Ranking.area_by_image,
)
SCORE_METRICS = (AUROC, FPR95_IN)
"""Of the view `detection`: what the scores are worth, whatever the threshold."""

REJECTED = Metric(
    "rejected",
    label="Rejected",
    sentence="The share of ID test images that are rejected.",
    higher_is_better=False,
    percent=True,
    proportion=True,
)
ID_METRICS = (*CLASS_METRICS, REJECTED)
CLASS_MCC_ALONE, CLASS_MCC, RELATIVE_CHANGE, RELATIVE_CHANGE_PERFECT = CLASS_METRICS
ACCURACY = Metric(
    "accuracy",
    label="Accuracy",
    sentence="The share of undisturbed images that the model classifies right.",
    higher_is_better=True,
    percent=True,
    proportion=True,
)

DETECTION_DELAY_MEDIAN = Metric(
    "detection_delay_median",
    label="Delay, median",
    sentence="Frames from the first image of an OOD stretch to the first one of it that is rejected, the median over "
    "stretches; one that is missed counts as infinite.",
    higher_is_better=False,
    range=FRAMES,
    infinite="missed",
)
DETECTION_DELAY_WORST = Metric(
    "detection_delay_worst",
    label="Delay, worst",
    sentence="The longest of these delays.",
    higher_is_better=False,
    range=FRAMES,
    infinite="missed",
)
MISSED_ONSETS = Metric(
    "missed_onsets",
    label="Missed stretches",
    sentence="OOD stretches of which no image is rejected.",
    higher_is_better=False,
    range=FRAMES,
    digits=0,
)
FALSE_ALARM_RUNS = Metric(
    "false_alarm_runs",
    label="False alarms",
    sentence="Unbroken runs of rejected ID images.",
    higher_is_better=False,
    range=FRAMES,
    digits=0,
)
LONGEST_FALSE_ALARM_RUN = Metric(
    "longest_false_alarm_run",
    label="Longest false alarm",
    sentence="Images of the longest such run.",
    higher_is_better=False,
    range=FRAMES,
    digits=0,
)
FALSE_ALARMS_PER_HOUR = Metric(
    "false_alarms_per_hour",
    label="False alarms per hour",
    sentence="Runs of rejected ID images per hour of ID images, at the frame rate of the study.",
    higher_is_better=False,
    range=FRAMES,
    digits=1,
)
EVENT_METRICS = (
    *(DETECTION_DELAY_MEDIAN, DETECTION_DELAY_WORST, MISSED_ONSETS),
    *(FALSE_ALARM_RUNS, LONGEST_FALSE_ALARM_RUN, FALSE_ALARMS_PER_HOUR),
)
"""Of the course of a stream."""

SECONDS = (0.0, math.inf)
MEDIAN_SECONDS, P95_SECONDS, P99_SECONDS = (
    Metric(
        name,
        label=f"Seconds, {words}",
        sentence=f"The seconds within which {words} of the images are decided, one at a time, with model and monitor.",
        higher_is_better=False,
        range=SECONDS,
        digits=6,
    )
    for name, words in (("seconds_median", "half"), ("seconds_p95", "95 %"), ("seconds_p99", "99 %"))
)
EXTRA_SECONDS = Metric(
    "extra_seconds",
    label="Extra seconds",
    sentence="The seconds that the monitor adds to those of the model alone on the same image, the median over images.",
    higher_is_better=False,
    range=(-math.inf, math.inf),
    digits=6,
)
COST_METRICS = (MEDIAN_SECONDS, P95_SECONDS, P99_SECONDS, EXTRA_SECONDS)
"""What it costs at runtime, from stored times."""

METRICS = (
    *DECISION_METRICS,
    *SCORE_METRICS,
    *EFFECT_METRICS,
    *STREAM_METRICS,
    AURC,
    *ID_METRICS,
    ACCURACY,
    *EVENT_METRICS,
    *COST_METRICS,
)
"""In the order of the tables."""
