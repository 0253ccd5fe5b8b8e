"""Questions that the repeats of a run can answer: which factors matter more than the repeats scatter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from roadworthy.core.tables import TableSpec
from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.repeat_analysis.table_specs import anova_table, means_table, pairs_table

BY_REPEAT = "by repeat"
"""The form of an analysis, and the method of a comparison, that rest on one value per repeat."""


@dataclass(frozen=True)
class RepeatQuestion:
    """One question, as a protocol declares it; its answers are the tables `anova_<name>` and `posthoc_<name>`.

    title        the question in words;  subject: what its metrics are taken on, where a reader could mistake it
    table        the stored table with a row per repeat, whose column `value` is the response
    metrics      the metrics that are analysed, each by itself
    factors      the columns that may matter;  comparisons: those whose levels are compared with each other after it
    select       the rows that it is asked of, given the rows of one metric
    is_optional  True where it is not asked if no row is selected
    """

    name: str
    title: str
    table: str
    metrics: tuple[str, ...]
    factors: tuple[str, ...]
    comparisons: tuple[tuple[str, ...], ...]
    select: Callable[[pd.DataFrame], pd.DataFrame]
    subject: str = ""
    is_optional: bool = False

    @property
    def tests(self) -> TableSpec:
        """The table of the analyses of variance."""
        return anova_table(self.name, self.title)

    @property
    def pairs(self) -> TableSpec:
        """The table of the differences between levels."""
        return pairs_table(self.name, self.title, self.factors)

    @property
    def means(self) -> TableSpec:
        """The table of the means of levels."""
        return means_table(self.name, self.title)


def drawn_anew(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of pixels that every repeat draws anew: those under a shift, and sets that a study makes itself.

    >>> drawn_anew(pd.DataFrame({"shift": ["none", "fog", "none"], "foreign": ["tiny", "tiny", ""]})).tolist()
    [False, True, True]
    """
    made = rows["foreign"] == "" if "foreign" in rows else pd.Series("shift" not in rows, rows.index)
    return made | (rows["shift"] != UNDISTURBED) if "shift" in rows else made
