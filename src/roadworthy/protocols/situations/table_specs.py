"""The tables of expected situations: what a row of each says, and in which columns."""

from __future__ import annotations

from roadworthy.core.tables import ESTIMATE, TableSpec

NAME = "situations"
SITUATION = ("model", "situation", "shift", "level", "set")
"""A model in a situation: a shift at a level (`none` and 0 where undisturbed), shown on a set (`test` or recorded)."""

BY_SITUATION = TableSpec(
    NAME,
    "A metric of one model in one expected situation, how often that occurs, and what it costs: `frequency` times the "
    "distance of the value from the best one.",
    key=("model", "situation", "metric"),
    columns=(*SITUATION, "frequency", *ESTIMATE, "cost"),
)
EXPECTED = TableSpec(
    f"{NAME}_expected",
    "A metric of one model over all expected situations, by how often they occur.",
    key=("model", "metric"),
    columns=("model", "situations", *ESTIMATE),
)
MET = TableSpec(
    f"{NAME}_met",
    "The share of expected situations in which one model meets one requirement: `lo` is shown to be met, `missed` to "
    "be missed, and `undecided` is the rest.",
    key=("model", "requirement", "metric"),
    columns=("model", "requirement", *ESTIMATE, "missed", "undecided"),
)
REQUIREMENTS = TableSpec(
    f"{NAME}_requirements",
    "Whether one model meets one requirement in one situation, by bounds that hold for all situations together.",
    key=("model", "requirement", "situation"),
    columns=(
        *("model", "requirement", "situation", "frequency", "measured", "value", "lo", "hi", "n", "groups", "status"),
        "reason",
    ),
)
TABLE_SPECS = (BY_SITUATION, EXPECTED, MET, REQUIREMENTS)
