"""Outliers by the user's conditions in the report: a chart per column of the data, a view per set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.grouping import grouped
from roadworthy.protocols.condition_facts import (
    ALL_IMAGES,
    ConditionColumn,
    Marks,
    load_columns,
    range_of,
    value_chart,
)
from roadworthy.protocols.ood import table_specs
from roadworthy.protocols.ood.facts import ROLE, Outliers
from roadworthy.protocols.ood.metrics import AUROC
from roadworthy.report import drawing
from roadworthy.report.facts import NOT_RUN, Facts, defined, estimate_of
from roadworthy.report.reading import read_rows
from roadworthy.statistics import Estimate


@dataclass(frozen=True)
class OutliersByCondition:
    """AUROC of every set against the images of each value; the value with the lowest of any set and model first."""

    columns: tuple[ConditionColumn, ...]
    values: Mapping[str, tuple[str, ...]]
    cells: Mapping[tuple[str, str, str, str], Estimate]

    @property
    def sentences(self) -> list[str]:
        """What is to be said of columns that are left out and of images without a value."""
        return [sentence for column in self.columns if (sentence := column.sentence())]


def load_by_condition(run: Path, facts: Facts) -> OutliersByCondition | None:
    """What the run says by condition; None where it has no such table."""
    columns = load_columns(run, table_specs.CONDITION_COLUMNS, facts.source)
    if not columns:
        return None
    rows = [row for row in read_rows(run, table_specs.BY_CONDITION.name, facts.source) if row["metric"] == ROLE]
    cells = {(row["model"], row["ood_set"], row["condition"], row["condition_value"]): estimate_of(row) for row in rows}
    lowest = {
        own: min(defined(cell.value for cell in of_value), default=math.inf)
        for own, of_value in grouped(((name, value), cell) for (_, _, name, value), cell in cells.items()).items()
    }
    values = grouped(sorted(lowest, key=lambda own: lowest[own]))
    return OutliersByCondition(columns, {name: tuple(values[name]) for name, _ in dict.fromkeys(lowest)}, cells)


def condition_charts(by_condition: OutliersByCondition | None, outliers: Outliers, facts: Facts) -> drawing.Charts:
    """Every chart by the id of its element: one per condition, with a view per set, the hardest first."""
    if by_condition is None:
        return {}
    names = [outlier_set.name for outlier_set in outliers.hardest(outliers.ranked, len(outliers.sets))]
    series = {
        (condition, name): _series(by_condition, outliers, facts, condition, name)
        for condition in by_condition.values
        for name in names
    }
    shown = range_of(marks for own in series.values() for marks in own)
    return {
        f"condition-{index}": [
            value_chart(drawing.text(name), AUROC, [ALL_IMAGES, *values], series[condition, name], shown)
            for name in names
        ]
        for index, (condition, values) in enumerate(by_condition.values.items())
        if names
    }


def _series(
    by_condition: OutliersByCondition, outliers: Outliers, facts: Facts, condition: str, name: str
) -> list[Marks]:
    series = []
    for position, model in enumerate(outliers.models):
        values = by_condition.values[condition]
        cells = {value: by_condition.cells.get((model, name, condition, value), NOT_RUN) for value in values}
        cells[ALL_IMAGES] = outliers.cell(model, name)
        series.append(Marks(position, facts.named(model), f"against {name}", cells))
    return series
