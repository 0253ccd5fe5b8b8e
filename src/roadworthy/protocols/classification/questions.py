"""What the repeats of classification are asked: do models, shifts and levels differ, and does a disturbance matter."""

from __future__ import annotations

import pandas as pd

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.classification.table_specs import NAME, REPEATS
from roadworthy.protocols.repeat_analysis.questions import RepeatQuestion

METRICS = ("accuracy", "auroc", "brier_mean")


def _disturbed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["shift"] != UNDISTURBED]


def _marked(rows: pd.DataFrame) -> pd.DataFrame:
    """All rows, with a column that says whether the images were disturbed."""
    return rows.assign(transformed=(rows["shift"] != UNDISTURBED).map({True: "yes", False: "no"}))


QUESTIONS = (
    RepeatQuestion(
        name="transformed",
        title="Undisturbed against disturbed",
        table=REPEATS.name,
        metrics=METRICS,
        factors=("model", "transformed"),
        comparisons=(("model",), ("model", "transformed")),
        select=_marked,
    ),
    RepeatQuestion(
        name=NAME,
        title="Models, shifts and levels",
        table=REPEATS.name,
        metrics=METRICS,
        factors=("model", "shift", "level"),
        comparisons=(("model",), ("shift",), ("level",), ("model", "shift"), ("model", "level")),
        select=_disturbed,
    ),
)
