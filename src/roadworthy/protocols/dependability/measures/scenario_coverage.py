"""1. Scenario coverage: the share of the possible combinations of operating conditions that the data shows.

    M_scene = sum_c w_c min(n_c, m_c) / sum_c w_c m_c

over the possible cells c of the tables of every k conditions: n_c objects (or images) show a cell, m_c are needed, and
w_c is its weight. Where all m and w are 1, it is the number of occupied cells by the number of possible ones
(equation 1).
"""

from __future__ import annotations

import math

from roadworthy.metrics import Metric
from roadworthy.protocols.dependability.bounds import counted
from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.measures.base import Measure, Results
from roadworthy.protocols.dependability.names import ALL
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import CELLS, UNCOVERED

SCENARIO_COVERAGE = Metric(
    "scenario_coverage",
    label="Scenario coverage",
    sentence="Share of the possible combinations of k operating conditions that the data shows.",
    higher_is_better=True,
    percent=True,
)


class ScenarioCoverage(Measure):
    """Scenario coverage of the data, with every cell and those that lack data."""

    metrics = (SCENARIO_COVERAGE,)
    of_data = True
    tables = (CELLS, UNCOVERED)

    def first_columns(self, resolved: Resolved) -> list[str]:
        """The k conditions of a cell with their values."""
        return [f"{part}_{number}" for number in range(1, resolved.k + 1) for part in ("condition", "value")]

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Coverage, a count without bounds; its reason says which images and columns do not take part."""
        coverage, resolved = data.coverage, data.resolved
        if coverage is None:
            results.missing[model, SCENARIO_COVERAGE.name] = resolved.no_schema
            return
        left_out = [f"{count} images without {name}" for name, count in coverage.missing.items() if count]
        left_out += [f"{name} is no condition: it has {why}" for name, why in resolved.left_out.items()]
        why = "nothing is needed" if math.isnan(coverage.value) else "; ".join(left_out)
        method = f"count of {coverage.cells} cells of {resolved.k} conditions"
        results.add(model, ALL, SCENARIO_COVERAGE.name, data.objects, counted(coverage.value, why, method))
        for cell in coverage.table():
            for number, (name, value) in enumerate(cell["scenario"].items(), start=1):
                cell |= {f"condition_{number}": name, f"value_{number}": value}
            results.rows[CELLS].append(cell)
        results.rows[UNCOVERED] = [cell for cell in results.rows[CELLS] if cell["status"] == "uncovered"]
