"""The metrics of ood: how well a score tells in-distribution images from outliers; see `metrics.ranking.Separation`."""

from __future__ import annotations

from roadworthy.metrics import Metric
from roadworthy.metrics.ranking import Ranking

AUROC = Metric(
    "auroc",
    label="AUROC",
    sentence="The chance that an in-distribution image (the positive class) has a higher score than an outlier; ties "
    "count half. 1 is perfect, 0.5 is guessing, below 0.5 the model is surer of outliers.",
    higher_is_better=True,
    ranked=Ranking.area_by_image,
)
AUPR_IN = Metric(
    "aupr_in",
    label="AUPR-in",
    sentence="Area under precision and recall, in-distribution images as the positive class; both sides weigh the "
    "same, however many images they have. 1 is perfect, 0.5 is guessing.",
    higher_is_better=True,
)
AUPR_OUT = Metric(
    "aupr_out",
    label="AUPR-out",
    sentence="Area under precision and recall, outliers as the positive class; both sides weigh the same, however many "
    "images they have. 1 is perfect, 0.5 is guessing.",
    higher_is_better=True,
)
FPR95_IN = Metric(
    "fpr95_in",
    label="FPR95-in: outliers accepted",
    sentence="Share of outliers still accepted by the strictest threshold that accepts at least 95 % of the "
    "in-distribution images (the positive class); images of equal score fall on one side. 0 is perfect.",
    higher_is_better=False,
    percent=True,
    ranked=Ranking.rate_by_image,
)
FPR95_OUT = Metric(
    "fpr95_out",
    label="FPR95-out: in-distribution rejected",
    sentence="Share of in-distribution images rejected by the mildest threshold that rejects at least 95 % of the "
    "outliers (the positive class); images of equal score fall on one side. 0 is perfect. OpenOOD and "
    "outlier exposure call this FPR95.",
    higher_is_better=False,
    percent=True,
    ranked=Ranking.reversed_rate_by_image,
)
METRICS = (AUROC, AUPR_IN, AUPR_OUT, FPR95_IN, FPR95_OUT)
"""In the order of the table, which is that of the fields of `Separation`."""
