"""Which figures of operating points answer the questions of an approval.

Certainty is answered by silent failures: wrong answers that are certain enough to be accepted. Whether a classifier
can tell what it does not know is answered by the outliers that it accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.joint_test.question_figures import QuestionFigure
from roadworthy.protocols.ood.answers import mean_over_sets
from roadworthy.protocols.ood.table_specs import set_words
from roadworthy.protocols.operating_points.metrics import ACCEPTED_OUTLIER, ACCEPTED_WRONG
from roadworthy.protocols.operating_points.table_specs import RATES


def _undisturbed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["ood_set"] == "") & (rows["shift"] == UNDISTURBED)]


def _disturbed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["ood_set"] == "") & (rows["shift"] != UNDISTURBED)]


def _condition(row: Mapping[str, Any]) -> str:
    return f"{row['shift']}, level {row['level']}"


FIGURES = (
    QuestionFigure(
        "certainty",
        ACCEPTED_WRONG.name,
        "undisturbed, at the threshold from held-out images",
        RATES.name,
        _undisturbed,
        is_main=True,
        cells=RATES.name,
        among=_disturbed,
        condition=_condition,
    ),
    QuestionFigure(
        "outliers",
        ACCEPTED_OUTLIER.name,
        "mean over all sets, at the threshold from held-out images",
        RATES.name,
        mean_over_sets,
        is_main=True,
        cells=RATES.name,
        condition=set_words,
    ),
)
