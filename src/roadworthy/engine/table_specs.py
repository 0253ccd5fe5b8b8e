"""The tables of every run, whatever its protocols: what it cost."""

from __future__ import annotations

from roadworthy.core.tables import TableSpec

TIMING_CASES = TableSpec(
    "timing_cases",
    "The seconds that one system took for the images of one case.",
    key=("case",),
    columns=("case", "model", "shift", "level", "repeat", "images", "seconds"),
    by_source=False,
)
TIMING_ARTIFACTS = TableSpec(
    "timing_artifacts",
    "The seconds that it took to build one artifact, and the most memory that the process held which did so.",
    key=("artifact",),
    columns=("artifact", "builder", "system", "seconds", "peak_bytes"),
    added_later=("peak_bytes",),
    by_source=False,
)

TABLE_SPECS = (TIMING_CASES, TIMING_ARTIFACTS)
