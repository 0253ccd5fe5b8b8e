"""Which differences are real: the stored analyses of variance and post hoc comparisons, as facts and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from roadworthy.core.grouping import grouped
from roadworthy.protocols.repeat_analysis.questions import BY_REPEAT, RepeatQuestion
from roadworthy.report.facts import Facts
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.report.words import listing, words_of
from roadworthy.statistics.anova import AnovaTable, thesis_p

LIMIT = 0.05
"""A p value below this is called a difference."""
FORMS = {
    BY_REPEAT: "By repeat",
    "thesis": "As in the thesis",
    "robust": "Without equal variances",
}
EQUAL = "equal variances"
ALL = "all together"
TUKEY, GAMES_HOWELL = "Tukey-Kramer", "Games-Howell"
METHODS = {
    BY_REPEAT: "by repeat",
    TUKEY: "Tukey-Kramer, conditions as replicates",
    GAMES_HOWELL: "Games-Howell, conditions as replicates",
}
FACTORS = {
    "model": "Model",
    "shift": "Shift",
    "level": "Level",
    "transformed": "Disturbed",
    "ood_set": "Set of outliers",
    "repeat": "Repeat",
}


@dataclass(frozen=True)
class Line:
    """One line of an analysis, as text: a factor or an interaction, degrees of freedom, F, p and effect size."""

    factor: str
    df: str
    f: str
    p: str
    effect: str


@dataclass(frozen=True)
class Form:
    """One form of an analysis, with the p value of each factor; without rows, `reason` says why there is none."""

    method: str
    rows: tuple[Line, ...]
    p_values: Mapping[str, float]
    notes: str
    reason: str


@dataclass(frozen=True)
class Analysis:
    """One metric, tested in all forms."""

    metric: str
    forms: Mapping[str, Form]
    equal_variances_words: str


@dataclass(frozen=True)
class Mean:
    """One level or cell with its comparison interval and grouping letters."""

    cell: str
    model: str | None
    mean: float
    lo: float
    hi: float
    letters: str


@dataclass(frozen=True)
class Comparison:
    """All levels of `by` compared by one method; without means, `reason` says why."""

    means: tuple[Mean, ...]
    notes: str
    reason: str


@dataclass(frozen=True)
class ModelPair:
    """Two models at one level of another factor, by one method."""

    metric: str
    method: str
    condition: str
    one: str
    other: str
    difference: float
    lo: float
    hi: float
    p: float
    reason: str


@dataclass(frozen=True)
class Question:
    """One question in words, its analyses, a metric each, the comparisons that follow, and the pairs of models."""

    name: str
    title: str
    subject: str
    analyses: tuple[Analysis, ...]
    by: tuple[str, ...]
    comparisons: Mapping[tuple[str, str, str], Comparison]
    pairs: tuple[ModelPair, ...]

    @cached_property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """Every metric with all methods of comparison; by repeat comes first, those of the thesis follow."""
        return tuple((analysis.metric, method) for analysis in self.analyses for method in METHODS)

    @property
    def labels(self) -> list[str]:
        """The choices in words."""
        return [f"{words_of(metric).label}, {METHODS[method]}" for metric, method in self.choices]

    @property
    def by_model(self) -> bool:
        """Whether a comparison has the model among its factors."""
        return any("model" in by.split("*") for by in self.by)

    def comparison(self, metric: str, by: str, method: str) -> Comparison:
        """The levels of a factor compared; a comparison that is not stored says so."""
        return self.comparisons.get((metric, by, method), Comparison((), "", "not part of this run"))


@dataclass(frozen=True)
class Differences:
    """All questions that the repeats of a run can answer."""

    questions: tuple[Question, ...]


def load_differences(run: Path, facts: Facts, questions: Iterable[RepeatQuestion]) -> Differences | None:
    """Read the tables anova_*, posthoc_* and posthoc_*_means of questions; None where the run has none of them."""
    stored = [question for question in questions if has_table(run, question.tests.name)]
    return Differences(tuple(_question(run, question, facts) for question in stored)) if stored else None


def _question(run: Path, question: RepeatQuestion, facts: Facts) -> Question:
    tests = grouped((row["metric"], row) for row in read_rows(run, question.tests.name, facts.source))
    pairs, means = (
        read_rows(run, part, facts.source) if has_table(run, part) else []
        for part in (question.pairs.name, question.means.name)
    )
    comparisons = {
        compared: Comparison((), "", rows[0]["reason"])
        for compared, rows in _by_comparison(pairs).items()
        if rows[0]["reason"]
    }
    for compared, rows in _by_comparison(means).items():
        comparisons[compared] = Comparison(tuple(_mean(row, facts) for row in rows), rows[0]["notes"] or "", "")
    return Question(
        name=question.name,
        title=question.title,
        subject=question.subject,
        analyses=tuple(_analysis(metric, rows) for metric, rows in tests.items()),
        by=tuple(dict.fromkeys(by for _, by, _ in comparisons)),
        comparisons=comparisons,
        pairs=tuple(_model_pairs(pairs, facts)),
    )


def _by_comparison(rows: Sequence[Row]) -> dict[tuple[str, str, str], tuple[Row, ...]]:
    return grouped(((row["metric"], row["by"], row["method"]), row) for row in rows)


def _analysis(metric: str, rows: Sequence[Row]) -> Analysis:
    forms = {form: _form([row for row in rows if row["form"] == form]) for form in FORMS}
    equal = next((row for row in rows if row["form"] == EQUAL), None)
    return Analysis(metric, forms, _equal_variances_words(equal))


def _form(rows: Sequence[Row]) -> Form:
    tested = [row for row in rows if row.get("factor")]
    if not tested:
        return Form("", (), {}, "", rows[0]["reason"] if rows else "not part of this run")
    frame = pd.DataFrame(tested)
    frame["reason"] = frame["reason"].fillna("")
    for name in ("df", "f", "p", "df_error"):
        frame[name] = frame[name].astype("float64")
    if frame["df_error"].isna().all():
        frame = frame.drop(columns="df_error")
    layout = AnovaTable(frame, tested[0]["method"]).thesis_layout(FACTORS)
    kept = [row for row in tested if row["factor"] != "Total"]
    lines = tuple(
        Line(shown["Factor"].replace("*", " × "), shown["d.f."], shown["F"], shown["p"], _effect(row))
        for shown, row in zip(layout.to_dict("records"), kept, strict=True)
    )
    p_values = {shown.factor: number_of(row["p"]) for shown, row in zip(lines, kept, strict=True)}
    return Form(tested[0]["method"], lines, p_values, tested[0]["notes"] or "", "")


def _effect(row: Row) -> str:
    value = number_of(row.get("partial_eta_squared"))
    return "" if math.isnan(value) else f"{value:.2f}".removeprefix("0") if value < 1 else "1.00"


def _equal_variances_words(equal: Row | None) -> str:
    """Whether the values spread alike in all cells, as the thesis's form takes for granted."""
    p = number_of(equal["p"]) if equal else math.nan
    if equal is None or math.isnan(p):
        reason = (equal["reason"] if equal else "") or "not tested"
        return f"Whether the values spread alike in all cells is not known ({reason})."
    test = f"{equal['method']}, p {_p_words(p)}"
    if p < LIMIT:
        return f"The values do not spread alike in all cells ({test}), as the first of these forms takes for granted."
    return f"No sign that the values spread differently between cells ({test}; with few repeats it detects little)."


def _p_words(p: float) -> str:
    shown = thesis_p(p)
    return shown if shown.startswith("<") else f"= {shown}"


def _mean(row: Row, facts: Facts) -> Mean:
    """One cell; where a model meets another factor, that comes first, and an undertrained model is marked."""
    cell, numbers = str(row["cell"]), (row["mean"], row["lo"], row["hi"])
    first, _, other = row["by"].partition("*")
    matching = [m for m in sorted(facts.models, key=len, reverse=True) if cell == m or cell.startswith(f"{m} ")]
    if first != "model" or not matching:
        return Mean(level_words(row["by"], cell), None, *numbers, row["letters"])
    model = matching[0]
    level = f"{level_words(other, cell[len(model) + 1 :])}, " if other else ""
    return Mean(f"{level}{facts.named(model)}", model, *numbers, row["letters"])


def level_words(factor: str, value: str) -> str:
    """A level of a factor in words.

    >>> level_words("level", "3"), level_words("transformed", "no"), level_words("shift", "fog")
    ('level 3', 'undisturbed', 'fog')
    """
    if factor == "transformed":
        return {"yes": "disturbed", "no": "undisturbed"}.get(value, value)
    return f"level {value}" if factor == "level" else value


def by_words(by: str) -> str:
    """The compared factors in words.

    >>> by_words("model*ood_set")
    'model and set of outliers'
    """
    return listing([FACTORS.get(factor, factor).lower() for factor in by.split("*")])


def _model_pairs(rows: Sequence[Row], facts: Facts) -> Iterator[ModelPair]:
    """The pairs that differ in the model alone: over all conditions, or at one level of another factor."""
    for row in rows:
        first, _, other = row["by"].partition("*")
        if not row.get("a") or first != "model" or "*" in other:
            continue
        models = (row["model_a"], row["model_b"]) if other else (row["a"], row["b"])
        level = row[f"{other}_a"] if other else ""
        if other and (level != row[f"{other}_b"] or models[0] == models[1]):
            continue
        difference, lo, hi, p = (number_of(row[column]) for column in ("difference", "lo", "hi", "p"))
        yield ModelPair(
            metric=row["metric"],
            method=METHODS[row["method"]],
            condition=level_words(other, f"{level:g}" if isinstance(level, float) else str(level)) if other else ALL,
            one=facts.named(models[0]),
            other=facts.named(models[1]),
            difference=difference,
            lo=lo,
            hi=hi,
            p=p,
            reason=row["reason"] or "",
        )
