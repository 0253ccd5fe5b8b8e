"""Which differences are real: analyses of variance and post hoc comparisons over the repeats of a run.

Every value is one repeat of one condition; where models are trained again for each repeat, repeats are independent
networks on the same test images. Each analysis stands in three forms: as in the thesis (two-way interactions, the
three-way one in the error), blocked by repeat (repeated measures: one network serves all conditions of a repeat), and
without the assumption of equal variances.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from roadworthy.core.grouping import grouped
from roadworthy.protocols.base import PROTOCOLS, joined
from roadworthy.protocols.repeat_analysis.questions import RepeatQuestion
from roadworthy.statistics import AnovaTable, anova, brown_forsythe, games_howell, posthoc, repeated_anova, robust_anova

LEAST_REPEATS = 2
FORMS: Mapping[str, Callable[..., AnovaTable]] = {
    "thesis": anova,
    "blocked": partial(repeated_anova, unit="repeat"),
    "robust": robust_anova,
}
METHODS = {"Tukey-Kramer": posthoc, "Games-Howell": games_howell}


@dataclass(frozen=True)
class Analysis:
    """A question that the repeats can answer: a response, its factors and the comparisons that follow."""

    question: RepeatQuestion
    rows: pd.DataFrame
    metric: str
    factors: tuple[str, ...]
    comparisons: tuple[tuple[str, ...], ...]


def analyse(tables: Mapping[str, pd.DataFrame], protocols: Collection[str]) -> dict[str, pd.DataFrame]:
    """Tables anova_*, posthoc_* and posthoc_*_means from the tables of repeats; none where nothing was repeated.

    The questions are those of the run's own `protocols`. Where tables have a column `source`, each source is analysed
    by itself.
    """
    sources = {source: None for table in tables.values() if "source" in table for source in table["source"]}
    if sources:
        return joined(
            {
                source: analyse(
                    {
                        name: table[table["source"] == source].drop(columns="source").reset_index(drop=True)
                        for name, table in tables.items()
                        if name.endswith("_repeats") and "source" in table
                    },
                    protocols,
                )
                for source in sources
            }
        )
    analyses = list(_analyses(tables, protocols))
    tests = grouped((analysis.question.tests.name, row) for analysis in analyses for row in _tests(analysis))
    pairs, means = [], []
    for analysis in analyses:
        for by, method in product(analysis.comparisons, METHODS):
            where = {"metric": analysis.metric, "by": "*".join(by), "method": method}
            result = _result_or_reason(METHODS[method], analysis.rows, "value", analysis.factors, by)
            if isinstance(result, str):
                pairs.append((analysis.question.pairs.name, pd.DataFrame([{**where, "reason": result}])))
                continue
            notes = "; ".join(result.notes)
            pairs.append((analysis.question.pairs.name, _with_columns(where, result.pairs, notes)))
            means.append((analysis.question.means.name, _with_columns(where, _by_cell(result.means, by), notes)))
    frames = grouped(pairs) | grouped(means)
    compared = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
    return {name: pd.DataFrame(rows) for name, rows in tests.items()} | compared


def _by_cell(means: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The means with one column `cell` instead of a column per factor."""
    cell = means[list(by)].astype(str).agg(" ".join, axis=1)
    return pd.concat([cell.rename("cell"), means.drop(columns=list(by))], axis=1)


def _with_columns(where: Mapping[str, Any], frame: pd.DataFrame, notes: str) -> pd.DataFrame:
    return pd.concat(
        [pd.DataFrame([where] * len(frame), index=frame.index), frame.assign(reason="", notes=notes)], axis=1
    )


def _analyses(tables: Mapping[str, pd.DataFrame], protocols: Collection[str]) -> Iterator[Analysis]:
    """Every question that one of the protocols asks of tables that are there and hold repeats."""
    for question in (question for name in protocols for question in PROTOCOLS.get(name).repeat_questions):
        rows = tables.get(question.table)
        if rows is None or not _repeated(rows):
            continue
        for metric in question.metrics:
            selected = question.select(rows[rows["metric"] == metric])
            if len(selected) or not question.is_optional:
                yield _analysis(question, selected, metric)


def _analysis(question: RepeatQuestion, rows: pd.DataFrame, metric: str) -> Analysis:
    """An analysis without the factors that have only one level, and without the comparisons that use them."""
    varied = tuple(factor for factor in question.factors if rows[factor].nunique() > 1)
    kept = tuple(by for by in question.comparisons if set(by) <= set(varied))
    return Analysis(question, rows, metric, varied, kept)


def _repeated(rows: pd.DataFrame) -> bool:
    return len(rows) > 0 and rows["repeat"].nunique() >= LEAST_REPEATS


def _tests(analysis: Analysis) -> list[dict[str, Any]]:
    where = {"metric": analysis.metric}
    rows: list[dict[str, Any]] = []
    question = analysis.rows, "value", analysis.factors
    for form, test in FORMS.items():
        result = _result_or_reason(test, *question) if analysis.factors else "no factor has more than one level"
        if not isinstance(result, AnovaTable):
            rows.append({**where, "form": form, "reason": result})
            continue
        notes = "; ".join(result.notes)
        records: list[Any] = result.frame.to_dict("records")
        rows += [{**where, "form": form, "method": result.method, **row, "notes": notes} for row in records]
    if analysis.factors:
        equal = _result_or_reason(brown_forsythe, *question)
        if isinstance(equal, str):
            rows.append({**where, "form": "equal variances", "reason": equal})
        else:
            numbers = {"df": equal.df, "df_error": equal.df_error, "f": equal.f, "p": equal.p, "reason": equal.reason}
            rows.append({**where, "form": "equal variances", "method": equal.method, "factor": "cells", **numbers})
    return rows


def _result_or_reason(test: Callable[..., Any], *question: Any) -> Any:
    """The result of a test, or a sentence that says why these rows do not allow it."""
    try:
        return test(*question)
    except ValueError as error:
        return str(error)
