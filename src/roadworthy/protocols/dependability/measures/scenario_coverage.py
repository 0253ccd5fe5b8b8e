"""1. Scenario coverage: the share of the possible combinations of operating conditions that the data shows.

    M_scene = sum_c w_c min(n_c, m_c) / sum_c w_c m_c

over the possible cells c of the tables of every k conditions: n_c objects (or images) show a cell, m_c are needed, and
w_c is its weight. Where all m and w are 1, it is the number of occupied cells by the number of possible ones
(equation 1). It is first of all that of the training data, "the presence of all relevant scenarios in training
datasets"; that of the test data stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from roadworthy.metrics import Metric
from roadworthy.protocols.dependability.bounds import counted, no_value
from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.measures.base import Measure, Results
from roadworthy.protocols.dependability.names import ALL, COVERAGE, FigureKey
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import CELLS, UNCOVERED

SCENARIO_COVERAGE = Metric(
    COVERAGE,
    label="Scenario coverage",
    sentence="Share of the possible combinations of k operating conditions that the data shows.",
    higher_is_better=True,
    percent=True,
)


class ScenarioCoverage(Measure):
    """Scenario coverage of the training and of the test data, with every cell and those that lack data."""

    metrics = (SCENARIO_COVERAGE,)
    of_data = True
    tables = (CELLS, UNCOVERED)

    def first_columns(self, resolved: Resolved) -> list[str]:
        """The k conditions of a cell with their values."""
        return cell_columns(resolved)

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Coverage, a count without bounds; its reason says which images and columns do not take part."""
        resolved = data.resolved
        for name, shown in data.shown.items():
            if name not in data.coverages:
                results.figures[FigureKey(model, ALL, COVERAGE, name)] = no_value(shown.reason)
                continue
            coverage = data.coverages[name]
            left_out = [f"{count} images without {own}" for own, count in coverage.missing.items() if count]
            left_out += [f"{own} is no condition: it has {why}" for own, why in resolved.left_out.items()]
            why = "nothing is needed" if math.isnan(coverage.value) else "; ".join(left_out)
            method = f"count of {coverage.cells} cells of {resolved.k} conditions"
            results.add(model, ALL, COVERAGE, shown.groups, counted(coverage.value, why, method), name)
            for cell in coverage.table():
                results.rows[CELLS].append({**cell, **cell_of(cell["scenario"]), "data": name})
        results.rows[UNCOVERED] = [cell for cell in results.rows[CELLS] if cell["status"] == "uncovered"]


def cell_columns(resolved: Resolved) -> list[str]:
    """The columns that name a cell: its k conditions, each with its value."""
    return [f"{part}_{number}" for number in range(1, resolved.k + 1) for part in ("condition", "value")]


def cell_of(scenario: Mapping[str, str]) -> dict[str, str]:
    """The values of these columns for the cell of a scenario of k conditions.

    >>> cell_of({"weather": "rain"})
    {'condition_1': 'weather', 'value_1': 'rain'}
    """
    columns = dict[str, str]()
    for number, (name, value) in enumerate(scenario.items(), start=1):
        columns |= {f"condition_{number}": name, f"value_{number}": value}
    return columns
