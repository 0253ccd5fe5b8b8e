"""Which figures of classification answer the questions of an approval.

Difficult conditions are answered by accuracy. Certainty is answered by the expected calibration error: a classifier
that is 80 % certain should be right in 80 % of such answers; the Brier score and the AUROC of right against wrong
answers, which the thesis takes too, stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.classification.table_specs import CELLS, OVERALL
from roadworthy.protocols.joint_test.question_figures import QuestionFigure


def _disturbed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["shift"] != UNDISTURBED]


def _undisturbed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["shift"] == UNDISTURBED]


def _condition(row: Mapping[str, Any]) -> str:
    return f"{row['shift']}, level {row['level']}"


def _under_shifts(question: str, metric: str, *, is_main: bool = False) -> QuestionFigure:
    """The mean over all shifts and levels, and the worst cell."""
    return QuestionFigure(
        question,
        metric,
        "mean over all shifts and levels",
        OVERALL.name,
        is_main=is_main,
        cells=CELLS.name,
        among=_disturbed,
        condition=_condition,
    )


FIGURES = (
    _under_shifts("conditions", "accuracy", is_main=True),
    QuestionFigure("conditions", "accuracy", "undisturbed", CELLS.name, _undisturbed),
    _under_shifts("certainty", "ece", is_main=True),
    _under_shifts("certainty", "brier"),
    _under_shifts("certainty", "auroc"),
)
