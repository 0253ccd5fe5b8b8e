"""The tables of operating points: what a row of each says, and in which columns."""

from __future__ import annotations

from roadworthy.core.tables import ESTIMATE, TableSpec

NAME = "operating_points"
WHERE = ("model", "shift", "level", "ood_set", "kind", "foreign")
"""A model shown the test data under a shift, or a set of outliers; `foreign` is the set outside that one is made of."""

RATES = TableSpec(
    NAME,
    "One rate of one model at its threshold: of in-distribution images where `ood_set` is empty, else of outliers.",
    key=("model", "shift", "level", "ood_set", "metric"),
    columns=(*WHERE, *ESTIMATE, "unit"),
)
THRESHOLDS = TableSpec(
    f"{NAME}_thresholds",
    "The threshold on the score of one model, the held-out images it was fixed on, and what it rejects of these; "
    "`probability` is the threshold as a largest class probability, where the score is one or its log-odds.",
    key=("model",),
    columns=(
        *("model", "score", "rule", "threshold", "probability", "held_out", "images", "groups", "rejected", "cost"),
        "reason",
    ),
    added_later=("probability",),
)
CURVE = TableSpec(
    f"{NAME}_curve",
    "One rate of one model at the threshold that would reject the share `asked` of held-out images.",
    key=("model", "asked", "condition", "metric"),
    columns=("model", "asked", "threshold", "reached", "condition", "ood_set", "metric", "value"),
)
TABLE_SPECS = (RATES, THRESHOLDS, CURVE)
