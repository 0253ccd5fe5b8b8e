"""The tables of break points: what a row of each says, and in which columns."""

from __future__ import annotations

from roadworthy.core.tables import ESTIMATE, TableSpec

NAME = "break_point"
BEFORE, AFTER = "before", "after"

POINTS = TableSpec(
    NAME,
    "The lowest severity of a shift at which a metric of one model misses its threshold, infinite where it never does.",
    key=("model", "shift", "metric"),
    columns=(
        *("model", "shift", *ESTIMATE, "of_metric", "limit", "threshold", "confidence", "severities", "last"),
        *(BEFORE, AFTER, "back_at", "quantity", "unit", "value_in_unit", "lo_in_unit", "hi_in_unit"),
    ),
)
CURVE = TableSpec(
    f"{NAME}_curve",
    "A metric of one model at one severity of a shift, 0 undisturbed, with the bounds that the break point rests on.",
    key=("model", "shift", "severity", "metric"),
    columns=("model", "shift", "severity", *ESTIMATE, "in_unit"),
)
GALLERY = TableSpec(
    f"{NAME}_gallery",
    "The pictures, in `media`, of a shift at the severity just before and just after the break point of one model.",
    key=("model", "shift", "side"),
    columns=("model", "shift", "side", "severity", "media", "images"),
)
TABLE_SPECS = (POINTS, CURVE, GALLERY)
