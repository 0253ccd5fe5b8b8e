"""The metrics of a monitor benchmark: what its decisions are worth, what they cost, and when they come."""

from __future__ import annotations

import math

from roadworthy.metrics import Metric
from roadworthy.protocols.ood.metrics import FPR95_IN

FRAMES = (0.0, math.inf)

MCC = Metric(
    "mcc",
    label="MCC",
    sentence="Matthews correlation of the monitor's decisions with what is positive in the view: 1 is always right, 0 "
    "is as good as guessing, -1 is always wrong.",
    higher_is_better=True,
    range=(-1.0, 1.0),
)
FPR = Metric(
    "fpr",
    label="False alarms",
    sentence="False positive rate: the share of negative images (ID images, or right answers) that are rejected.",
    higher_is_better=False,
    percent=True,
    proportion=True,
)
FNR = Metric(
    "fnr",
    label="Misses",
    sentence="False negative rate: the share of positive images (OOD images, or wrong answers) that are accepted.",
    higher_is_better=False,
    percent=True,
    proportion=True,
)
PRECISION = Metric(
    "precision",
    label="Precision",
    sentence="The share of rejected images that are positive: OOD images, or wrong answers.",
    higher_is_better=True,
    percent=True,
    proportion=True,
)
RECALL = Metric(
    "recall",
    label="Recall",
    sentence="The share of positive images (OOD images, or wrong answers) that are rejected.",
    higher_is_better=True,
    percent=True,
    proportion=True,
)
F1_WEIGHTED = Metric(
    "f1_weighted",
    label="F1, weighted",
    sentence="The F1 of both classes, weighed by how many images each has.",
    higher_is_better=True,
)
F1_MICRO = Metric(
    "f1_micro",
    label="F1, micro",
    sentence="The F1 of both classes counted together, which is the share of right decisions.",
    higher_is_better=True,
)
BALANCED_ACCURACY = Metric(
    "balanced_accuracy",
    label="Balanced accuracy",
    sentence="The mean of the share of positives rejected and the share of negatives accepted; 0.5 is guessing.",
    higher_is_better=True,
)
DECISION_METRICS = (MCC, FPR, FNR, PRECISION, RECALL, F1_WEIGHTED, F1_MICRO, BALANCED_ACCURACY)

AUROC = Metric(
    "auroc",
    label="AUROC",
    sentence="The chance that an ID image has a higher score than an OOD image; ties count half. No threshold is "
    "involved. 0.5 is guessing.",
    higher_is_better=True,
)
SCORE_METRICS = (AUROC, FPR95_IN)
"""Of the view `detection`: what the scores are worth, whatever the threshold."""

SAFETY_GAIN = Metric(
    "safety_gain",
    label="Safety gain",
    sentence="The share of all images whose answer is wrong and rejected: failures that the monitor prevents.",
    higher_is_better=True,
    percent=True,
    proportion=True,
)
RESIDUAL_HAZARD = Metric(
    "residual_hazard",
    label="Residual hazard",
    sentence="The share of all images whose answer is wrong and accepted: failures that are left.",
    higher_is_better=False,
    percent=True,
    proportion=True,
)
AVAILABILITY_COST = Metric(
    "availability_cost",
    label="Availability cost",
    sentence="The share of all images whose answer is right and rejected: answers that are lost.",
    higher_is_better=False,
    percent=True,
    proportion=True,
)
EFFECT_METRICS = (SAFETY_GAIN, RESIDUAL_HAZARD, AVAILABILITY_COST)
AURC = Metric(
    "aurc",
    label="AURC",
    sentence="Area under risk and coverage: the mean share of wrong answers among the accepted ones, over all "
    "coverages. Lower is better.",
    higher_is_better=False,
)

CLASS_MCC_ALONE = Metric(
    "class_mcc_alone",
    label="Class MCC, model alone",
    sentence="Matthews correlation of the model's classes with the labels.",
    higher_is_better=True,
    range=(-1.0, 1.0),
)
CLASS_MCC = Metric(
    "class_mcc",
    label="Class MCC with the monitor",
    sentence="The same, with every rejected answer counted as one further class.",
    higher_is_better=True,
    range=(-1.0, 1.0),
)
RELATIVE_CHANGE = Metric(
    "relative_change",
    label="Relative change",
    sentence="How much the class MCC changes by the monitor, as a share of what it is alone; negative is worse.",
    higher_is_better=True,
    range=(-math.inf, math.inf),
    percent=True,
)
REJECTED = Metric(
    "rejected",
    label="Rejected",
    sentence="The share of ID test images that are rejected.",
    higher_is_better=False,
    percent=True,
    proportion=True,
)
ID_METRICS = (CLASS_MCC_ALONE, CLASS_MCC, RELATIVE_CHANGE, REJECTED)
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

METRICS = (*DECISION_METRICS, *SCORE_METRICS, *EFFECT_METRICS, AURC, *ID_METRICS, ACCURACY, *EVENT_METRICS)
"""In the order of the tables."""
