"""What the repeats of outliers are asked: do models, sets of outliers, shifts and GANs differ."""

from __future__ import annotations

from functools import partial

import pandas as pd

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.ood.table_specs import GAN_REPEATS, NAME, REPEATS
from roadworthy.protocols.repeat_analysis.questions import RepeatQuestion

METRICS = ("auroc",)
SUBJECT = "on outliers"


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[~rows["kind"].isin(["transformed", "gan"])]


def _transformed(rows: pd.DataFrame) -> pd.DataFrame:
    """The highest level of every transformed set, and as shift `none` their foreign set, undisturbed.

    One level of each shift: several would pass for replicates of one condition. What levels do is asked by `_levels`.
    """
    transformed = rows.loc[rows["kind"] == "transformed"]
    transformed = transformed[transformed["level"] == transformed.groupby("shift")["level"].transform("max")]
    foreign = rows.loc[(rows["kind"] != "transformed") & rows["ood_set"].isin(transformed["foreign"])]
    return pd.concat([foreign.assign(shift=UNDISTURBED), transformed])


def _levels(rows: pd.DataFrame) -> pd.DataFrame:
    """The transformed sets at all levels; none where no shift has several. Undisturbed sets have no level."""
    transformed = rows.loc[rows["kind"] == "transformed"]
    several = transformed.groupby("shift")["level"].nunique().max() > 1
    return transformed if several else transformed.iloc[:0]


def _drawn(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["kind"] == "gan"]


def _hardest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["hardest"]]


_by_set = partial(
    RepeatQuestion,
    metrics=METRICS,
    factors=("model", "ood_set"),
    comparisons=(("model",), ("ood_set",), ("model", "ood_set")),
)

QUESTIONS = (
    _by_set(f"{NAME}_sets", "Sets of outliers", REPEATS.name, select=_plain, subject=SUBJECT),
    RepeatQuestion(
        name=f"{NAME}_transformed",
        title="Outliers with both sides under a shift, at its highest level",
        table=REPEATS.name,
        metrics=METRICS,
        factors=("model", "shift"),
        comparisons=(("model",), ("shift",), ("model", "shift")),
        select=_transformed,
        subject=SUBJECT,
    ),
    RepeatQuestion(
        name=f"{NAME}_levels",
        title="Outliers with both sides under a shift, at several levels",
        table=REPEATS.name,
        metrics=METRICS,
        factors=("model", "shift", "level"),
        comparisons=(("model",), ("shift",), ("level",), ("model", "shift"), ("model", "level")),
        select=_levels,
        subject=SUBJECT,
        is_optional=True,
    ),
    _by_set("gan_average", "GANs, the average of each configuration", REPEATS.name, select=_drawn, is_optional=True),
    _by_set(
        "gan_hardest",
        "GANs, the hardest of each configuration (chosen on the test data)",
        GAN_REPEATS.name,
        select=_hardest,
    ),
)
