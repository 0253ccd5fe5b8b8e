"""Which figures of ood answer the question of an approval whether a classifier can tell what it does not know."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from roadworthy.protocols.joint_test.question_figures import QuestionFigure
from roadworthy.protocols.ood.settings import KINDS
from roadworthy.protocols.ood.table_specs import KIND_WORDS, SETS, set_words

METHOD = "mean of the bounds of all sets"
"""Sets share the test images, so that their errors do not cancel: this is wide, and safe for any dependence."""


def mean_over_sets(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per model: the mean over its sets, with the mean of their bounds; n and groups of the smallest set.

    A set without a value makes none: the mean would be of other sets than those of another model.
    """
    means = []
    for model, own in rows.groupby("model", sort=True):
        lacking = own[own["value"].isna()]
        what = "a value" if len(lacking) else "bounds"
        lacking = lacking if len(lacking) else own[own[["lo", "hi"]].isna().any(axis=1)]
        estimate = {name: float(own[name].mean(skipna=False)) for name in ("value", "lo", "hi")}
        means.append(
            {
                "model": model,
                **estimate,
                "n": int(own["n"].min()),
                "groups": int(own["groups"].min()),
                "method": "" if len(lacking) else METHOD,
                "reason": _reason(lacking, len(own), what),
            }
        )
    columns = ["model", "value", "lo", "hi", "n", "groups", "method", "reason"]
    return pd.DataFrame(means, columns=columns)


def _reason(lacking: pd.DataFrame, sets: int, what: str) -> str:
    return f"{len(lacking)} of {sets} sets without {what}: {lacking.iloc[0]['reason']}" if len(lacking) else ""


def _of_kind(kind: str, rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["kind"] == kind]


def _figure(figure: str, among: Any = None, *, is_main: bool = False) -> QuestionFigure:
    chosen = among or (lambda rows: rows)
    return QuestionFigure(
        "outliers",
        "auroc",
        figure,
        SETS.name,
        lambda rows: mean_over_sets(chosen(rows)),
        is_main,
        SETS.name,
        chosen,
        set_words,
    )


FIGURES = (
    _figure("mean over all sets", is_main=True),
    *(_figure(f"mean over {KIND_WORDS[kind]}", partial(_of_kind, kind)) for kind in KINDS),
)
