"""Which differences are real: analyses of variance and post hoc comparisons over the repeats of a run.

Every value is one repeat of one condition; where models are trained again for each repeat, repeats are independent
networks on the same test images. One network serves all conditions of its repeat, so that the repeat is the unit: the
form and the comparison `by repeat` rest on one value per repeat. Beside it stand those that take every condition for
evidence of its own: as in the thesis (two-way interactions, the three-way one in the error; Tukey-Kramer), and without
the assumption of equal variances.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from roadworthy.core.grouping import grouped
from roadworthy.core.record import RunRecord
from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.base import PROTOCOLS, joined
from roadworthy.protocols.repeat_analysis.questions import BY_REPEAT, RepeatQuestion, drawn_anew
from roadworthy.statistics import (
    AnovaTable,
    anova,
    brown_forsythe,
    games_howell,
    posthoc,
    repeated_anova,
    repeated_posthoc,
    robust_anova,
)
from roadworthy.statistics.posthoc import PAIRED, WELCH

LEAST_REPEATS = 2
FORMS: Mapping[str, Callable[..., AnovaTable]] = {
    BY_REPEAT: partial(repeated_anova, unit="repeat"),
    "thesis": anova,
    "robust": robust_anova,
}
METHODS = {"Tukey-Kramer": posthoc, "Games-Howell": games_howell}


@dataclass(frozen=True)
class Networks:
    """What answers under the name of one model: one network in all repeats, or one `per_repeat`; `artifacts` of all."""

    per_repeat: bool
    artifacts: frozenset[str]


NetworksByModel = Mapping[str, Networks]


@dataclass(frozen=True)
class Analysis:
    """A question that the repeats can answer: a response, its factors and the comparisons that follow.

    `rows` are the stored values. `by_repeat` has a value for every repeat also where one network was shown the same
    pixels: asked again it could only give the same answer, so it is asked once.
    """

    question: RepeatQuestion
    rows: pd.DataFrame
    by_repeat: pd.DataFrame
    metric: str
    factors: tuple[str, ...]
    comparisons: tuple[tuple[str, ...], ...]
    networks: NetworksByModel


def networks_of(record: RunRecord) -> dict[str, dict[str, Networks]]:
    """By source and model: the networks that answer. One that answers undisturbed images again is another network."""
    repeats = grouped(
        ((source, asked.system, case.stimulus.data), case.stimulus.repeat)
        for protocol in record.protocols.values()
        for source, part in protocol.sources.items()
        for asked in part.cases
        if (case := record.cases[asked.case]).stimulus.name == UNDISTURBED
    )
    per_repeat = {key[:2] for key, own in repeats.items() if len(set(own)) > 1}
    return {
        source: {
            name: Networks((source, name) in per_repeat, frozenset(model.artifacts))
            for name, model in own.models.items()
        }
        for source, own in record.sources.items()
    }


def analyse(
    tables: Mapping[str, pd.DataFrame],
    protocols: Collection[str],
    networks: Mapping[str, NetworksByModel] | None = None,
) -> dict[str, pd.DataFrame]:
    """Tables anova_*, posthoc_* and posthoc_*_means from the tables of repeats; none where nothing was repeated.

    The questions are those of the run's own `protocols`. Where tables have a column `source`, each source is analysed
    by itself. `networks` are those of `networks_of`; a model that is not among them is taken for trained anew in each
    repeat, and may share anything of a repeat with others.
    """
    networks = networks or {}
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
                    {"": networks.get(source, {})},
                )
                for source in sources
            }
        )
    analyses = list(_analyses(tables, protocols, networks.get("", {})))
    tests = grouped((analysis.question.tests.name, row) for analysis in analyses for row in _tests(analysis))
    pairs, means = [], []
    for analysis in analyses:
        for by, method in product(analysis.comparisons, (BY_REPEAT, *METHODS)):
            where = {"metric": analysis.metric, "by": "*".join(by), "method": method}
            if method == BY_REPEAT:
                result = _compared_by_repeat(analysis, by)
            else:
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
    kept = frame if "reason" in frame else frame.assign(reason="")
    return pd.concat([pd.DataFrame([where] * len(frame), index=frame.index), kept.assign(notes=notes)], axis=1)


def _analyses(
    tables: Mapping[str, pd.DataFrame], protocols: Collection[str], networks: NetworksByModel
) -> Iterator[Analysis]:
    """Every question that one of the protocols asks of tables that are there and hold repeats."""
    for question in (question for name in protocols for question in PROTOCOLS.get(name).repeat_questions):
        rows = tables.get(question.table)
        if rows is None or not _repeated(rows):
            continue
        for metric in question.metrics:
            selected = question.select(rows[rows["metric"] == metric])
            if len(selected) or not question.is_optional:
                yield _analysis(question, selected, metric, networks)


def _analysis(question: RepeatQuestion, rows: pd.DataFrame, metric: str, networks: NetworksByModel) -> Analysis:
    """An analysis without the factors that have only one level, and without the comparisons that use them."""
    varied = tuple(factor for factor in question.factors if rows[factor].nunique() > 1)
    kept = tuple(by for by in question.comparisons if set(by) <= set(varied))
    return Analysis(question, rows, _in_every_repeat(rows, networks), metric, varied, kept, networks)


def _in_every_repeat(rows: pd.DataFrame, networks: NetworksByModel) -> pd.DataFrame:
    """The rows, with the answers of one network to the same pixels standing for every repeat."""
    single = [name for name, own in networks.items() if not own.per_repeat]
    constant = rows["model"].isin(single) & ~drawn_anew(rows) & (rows["repeat"] == 0)
    others = rows["repeat"].unique()
    copies = [rows[constant].assign(repeat=repeat) for repeat in others if repeat]
    return pd.concat([rows, *copies], ignore_index=True) if constant.any() else rows


def _repeated(rows: pd.DataFrame) -> bool:
    return len(rows) > 0 and rows["repeat"].nunique() >= LEAST_REPEATS


def _compared_by_repeat(analysis: Analysis, by: Sequence[str]) -> Any:
    """The comparison over repeats, where a model is as many independent values as it has networks."""
    rows = analysis.by_repeat
    drawn = drawn_anew(rows).groupby([rows[factor] for factor in by]).any()
    place = by.index("model") if "model" in by else -1

    def relation(cell: tuple[Any, ...], other: tuple[Any, ...]) -> str:
        if place < 0 or cell[place] == other[place]:
            return PAIRED
        one, two = analysis.networks.get(cell[place]), analysis.networks.get(other[place])
        if one is None or two is None:
            return PAIRED
        if one.per_repeat != two.per_repeat:
            return _one_network(cell[place] if two.per_repeat else other[place])
        levels = [own if len(own) > 1 else own[0] for own in (cell, other)]
        shares = all(drawn[level] for level in levels) or one.artifacts & two.artifacts or not one.per_repeat
        return PAIRED if shares else WELCH

    arguments = rows, "value", analysis.factors, by
    test = partial(repeated_posthoc, unit="repeat", relation=relation, own_family="model")
    return _result_or_reason(test, *arguments)


def _one_network(model: str) -> str:
    return f"{model} is one network in all repeats: how much another training would change it is not known"


def _tests(analysis: Analysis) -> list[dict[str, Any]]:
    where = {"metric": analysis.metric}
    rows: list[dict[str, Any]] = []
    question = "value", analysis.factors
    for form, test in FORMS.items():
        values = analysis.by_repeat if form == BY_REPEAT else analysis.rows
        result = _result_or_reason(test, values, *question) if analysis.factors else "no factor has more than one level"
        if not isinstance(result, AnovaTable):
            rows.append({**where, "form": form, "reason": result})
            continue
        notes = "; ".join(result.notes)
        frame = _between_networks(result.frame, analysis) if form == BY_REPEAT else result.frame
        records: list[Any] = frame.to_dict("records")
        rows += [{**where, "form": form, "method": result.method, **row, "notes": notes} for row in records]
    if analysis.factors:
        equal = _result_or_reason(brown_forsythe, analysis.rows, *question)
        if isinstance(equal, str):
            rows.append({**where, "form": "equal variances", "reason": equal})
        else:
            numbers = {"df": equal.df, "df_error": equal.df_error, "f": equal.f, "p": equal.p, "reason": equal.reason}
            rows.append({**where, "form": "equal variances", "method": equal.method, "factor": "cells", **numbers})
    return rows


def _between_networks(frame: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """The tests of factors; none of models, some of which are one network in all repeats and others are not."""
    models = {name: analysis.networks.get(name) for name in analysis.rows["model"].unique()}
    single = [name for name, own in models.items() if own and not own.per_repeat]
    if not single or len(single) == len(models):
        return frame
    of_model = frame["factor"].str.split("*").map(lambda parts: "model" in parts)
    kept = frame.assign(reason=frame["reason"].mask(of_model, _one_network(single[0])))
    numbers = [name for name in ("df", "df_error", "f", "p", "epsilon") if name in frame]
    kept.loc[of_model, numbers] = np.nan
    return kept


def _result_or_reason(test: Callable[..., Any], *question: Any) -> Any:
    """The result of a test, or a sentence that says why these rows do not allow it."""
    try:
        return test(*question)
    except ValueError as error:
        return str(error)
