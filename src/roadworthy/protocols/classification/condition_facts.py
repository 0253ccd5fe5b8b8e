"""Classification by the user's conditions in the report: a chart per column, and where it is worse than elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.grouping import grouped
from roadworthy.protocols.classification import table_specs
from roadworthy.protocols.classification.facts import ROLE, ClassificationFacts
from roadworthy.protocols.condition_facts import (
    ALL_IMAGES,
    ConditionColumn,
    Marks,
    load_columns,
    range_of,
    value_chart,
)
from roadworthy.report import drawing
from roadworthy.report.facts import CLEAN, NOT_RUN, Condition, defined, estimate_of
from roadworthy.report.reading import read_rows
from roadworthy.statistics import Estimate

WORST_LISTED = 10
"""Combinations of a value and a shift that are listed."""


@dataclass(frozen=True)
class Combination:
    """One value of a condition under one shift at one level: accuracy there, and of all images under the same."""

    model: str
    condition: str
    value: str
    shown: Condition
    inside: Estimate
    whole: Estimate

    @property
    def below(self) -> float:
        """How far the upper bound inside lies below the accuracy of all images; negative where it does not."""
        return self.whole.value - self.inside.hi


@dataclass(frozen=True)
class ByCondition:
    """Accuracy by value of each condition: of undisturbed data and all shifts, and the mean over these.

    values  of each condition, the one with the lowest accuracy of any model first
    """

    columns: tuple[ConditionColumn, ...]
    values: Mapping[str, tuple[str, ...]]
    cells: Mapping[tuple[str, Condition, str, str], Estimate]
    overall: Mapping[tuple[str, str, str], Estimate]

    @property
    def sentences(self) -> list[str]:
        """What is to be said of columns that are left out and of images without a value."""
        return [sentence for column in self.columns if (sentence := column.sentence())]

    def worst(self, facts: ClassificationFacts) -> list[Combination]:
        """The values whose upper bound lies below all images, farthest first: each where that is most so."""
        combinations = sorted((c for c in self._combinations(facts) if c.below > 0), key=lambda c: -c.below)
        by_value = grouped(((one.condition, one.value), one) for one in combinations)
        return [own[0] for own in by_value.values()][:WORST_LISTED]

    def looked_at(self, facts: ClassificationFacts) -> int:
        """How many combinations the worst are chosen from."""
        return len(self._combinations(facts))

    def _combinations(self, facts: ClassificationFacts) -> list[Combination]:
        every = [
            Combination(model, condition, value, shown, cell, facts.cell(model, shown, ROLE))
            for (model, shown, condition, value), cell in self.cells.items()
            if len(self.values[condition]) > 1
        ]
        return [one for one in every if not math.isnan(one.below)]


def load_by_condition(run: Path, facts: ClassificationFacts) -> ByCondition | None:
    """What the run says by condition; None where it has no such table."""
    columns = load_columns(run, table_specs.CONDITION_COLUMNS, facts.source)
    if not columns:
        return None
    rows = [row for row in read_rows(run, table_specs.BY_CONDITION.name, facts.source) if row["metric"] == ROLE]
    cells = {(row["model"], Condition(row["shift"], int(row["level"])), *_slice(row)): estimate_of(row) for row in rows}
    overall = {
        (row["model"], *_slice(row)): estimate_of(row)
        for row in read_rows(run, table_specs.BY_CONDITION_OVERALL.name, facts.source)
        if row["metric"] == ROLE
    }
    by_name = grouped((condition, value) for condition, value in dict.fromkeys(_slice(row) for row in rows))
    ranking = overall or {(model, *rest): cell for (model, shown, *rest), cell in cells.items() if shown == CLEAN}

    def lowest(condition: str, value: str) -> float:
        own = (ranking.get((model, condition, value), NOT_RUN).value for model in facts.models)
        return min(defined(own), default=math.inf)

    values = {name: tuple(sorted(own, key=lambda value: lowest(name, value))) for name, own in by_name.items()}
    return ByCondition(columns, values, cells, overall)


def _slice(row: Mapping[str, str]) -> tuple[str, str]:
    return row["condition"], row["condition_value"]


def condition_charts(by_condition: ByCondition | None, facts: ClassificationFacts) -> drawing.Charts:
    """Every chart by the id of its element: one per condition, none where nothing is broken down."""
    if by_condition is None:
        return {}
    series = {condition: _series(by_condition, facts, condition) for condition in by_condition.values}
    shown = range_of(marks for own in series.values() for marks in own)
    return {
        f"condition-{index}": [value_chart(condition, ROLE, [ALL_IMAGES, *values], series[condition], shown)]
        for index, (condition, values) in enumerate(by_condition.values.items())
    }


def _series(by_condition: ByCondition, facts: ClassificationFacts, condition: str) -> list[Marks]:
    """The marks of every model: undisturbed, and the mean over shifts where there are some."""
    values, series = by_condition.values[condition], []
    for position, model in enumerate(facts.models):
        name = facts.named(model)
        clean = {value: by_condition.cells.get((model, CLEAN, condition, value), NOT_RUN) for value in values}
        clean[ALL_IMAGES] = facts.cell(model, CLEAN, ROLE)
        series.append(Marks(position, name, "undisturbed", clean, hollow=True))
        if by_condition.overall:
            shifted = {value: by_condition.overall.get((model, condition, value), NOT_RUN) for value in values}
            shifted[ALL_IMAGES] = facts.overall.get((model, ROLE), NOT_RUN)
            series.append(Marks(position, name, "mean over shifts", shifted))
    return series
