"""The tables that runs of any protocol can hold beside those of their protocols."""

from __future__ import annotations

from roadworthy.core.tables import TableSpec
from roadworthy.verdict.why import DECIDING

CHANGE_COLUMNS = (
    *("baseline", "model", "protocol", "subject", "condition", "level", "metric", "before", "after", "change", "lo"),
    *("hi", "p", "p_holm", "result", "n", "groups", "method", "reason"),
)
"""The columns of a comparison."""

BASELINE_CHANGES = TableSpec(
    "baseline_changes",
    "How a metric of a model changed in one condition against the run that the study names as its baseline.",
    key=("baseline", "model", "protocol", "condition", "level", "metric"),
    columns=CHANGE_COLUMNS,
    names_joined=True,
    by_source=False,
)

TABLE_SPECS = (DECIDING, BASELINE_CHANGES)
