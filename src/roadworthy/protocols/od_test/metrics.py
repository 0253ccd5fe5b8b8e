"""The metrics of OD-test: what a monitor's decisions and scores are worth on outliers it was not calibrated with."""

from __future__ import annotations

import math

from roadworthy.metrics import Metric
from roadworthy.metrics.ranking import Ranking
from roadworthy.protocols.ood.metrics import FPR95_IN, FPR95_OUT

ACCURACY = Metric(
    "accuracy",
    label="Accuracy",
    sentence="Share of right decisions, both sides weighed by the prior: images of the source accepted, outliers "
    "rejected, by the threshold found with other outliers (D_v). Higher is better.",
    higher_is_better=True,
    percent=True,
    mean_over_objects=True,
    proportion=True,
)
EXPECTED_COST = Metric(
    "expected_cost",
    label="Expected cost",
    sentence="(1 - prior) x share of source images rejected + prior x cost x share of outliers accepted. Lower is "
    "better.",
    higher_is_better=False,
    range=(0.0, math.inf),
    mean_over_objects=True,
)
AUROC = Metric(
    "auroc",
    label="AUROC",
    sentence="The chance that an image of the source (the positive class) has a higher score than an outlier; ties "
    "count half. 1 is perfect, 0.5 is guessing. No threshold is involved. Higher is better.",
    higher_is_better=True,
    ranked=Ranking.area_by_image,
)
AUPR_IN = Metric(
    "aupr_in",
    label="AUPR-in",
    sentence="Area under precision and recall, images of the source as the positive class; all images count alike, so "
    "guessing has the share of images of the source.",
    higher_is_better=True,
)
AUPR_OUT = Metric(
    "aupr_out",
    label="AUPR-out",
    sentence="Area under precision and recall, outliers as the positive class; all images count alike, so guessing has "
    "the share of outliers.",
    higher_is_better=True,
)
SEPARATION_METRICS = (AUROC, AUPR_IN, AUPR_OUT, FPR95_IN, FPR95_OUT)
"""What a score is worth whatever the threshold."""
METRICS = (ACCURACY, EXPECTED_COST, *SEPARATION_METRICS)
"""In the order of the table; how far the expected cost can go follows from the study's prior and cost."""
