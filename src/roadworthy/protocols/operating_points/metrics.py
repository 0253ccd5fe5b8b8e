"""The metrics of operating points: what comes of accepting what reaches the threshold, and rejecting the rest."""

from __future__ import annotations

from functools import partial

from roadworthy.metrics import Metric

_share = partial(Metric, percent=True, proportion=True, mean_over_objects=True)

ACCEPTED_WRONG = _share(
    "accepted_wrong",
    label="Silent failures",
    sentence="Share of all in-distribution images that are shown whose answer is accepted and wrong: the failures that "
    "nobody is warned of.",
    higher_is_better=False,
)
REJECTED_RIGHT = _share(
    "rejected_right",
    label="Right but rejected",
    sentence="Share of all in-distribution images that are shown whose answer is right and yet rejected: the price of "
    "caution.",
    higher_is_better=False,
)
REJECTED = _share(
    "rejected",
    label="Rejected",
    sentence="Share of all in-distribution images that are shown whose score lies below the threshold.",
    higher_is_better=None,
)
ACCEPTED_ERROR = _share(
    "accepted_error",
    label="Wrong among accepted",
    sentence="Share of wrong answers among the in-distribution images that are accepted.",
    higher_is_better=False,
)
ACCEPTED_OUTLIER = _share(
    "accepted_outlier",
    label="Outliers accepted",
    sentence="Share of the outliers of a set whose score reaches the threshold, so that they pass for images that the "
    "model knows.",
    higher_is_better=False,
)
INSIDE_METRICS = (ACCEPTED_WRONG, REJECTED_RIGHT, REJECTED, ACCEPTED_ERROR)
"""Those of in-distribution images."""
METRICS = (*INSIDE_METRICS, ACCEPTED_OUTLIER)
"""In the order of the table."""
ACCEPTED = frozenset({ACCEPTED_WRONG.name, ACCEPTED_OUTLIER.name})
"""Those that are 0 wherever nothing is accepted, whatever the model knows."""
