"""Beside scenario coverage: the scenarios to collect next, found by a covering array, those that add most first.

For the training data: one more of every cell in which a model fails, these first, and what it lacks of any cell. For
the test data: what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import numpy as np

from roadworthy.metrics.coverage import Coverage
from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.covering_array import propose_for
from roadworthy.protocols.dependability.measures.base import Row, Search
from roadworthy.protocols.dependability.measures.cell_results import failing_cells
from roadworthy.protocols.dependability.names import TRAIN
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import PROPOSALS


class ScenarioProposals(Search):
    """Proposed scenarios, each with the cells it newly fills and the coverage it leads to."""

    tables = (PROPOSALS,)

    def first_columns(self, resolved: Resolved) -> list[str]:
        """All conditions: a proposal has a value of each."""
        return list(resolved.conditions or {})

    def rows(self, data: StoredData) -> Iterator[Row]:
        """A row per scenario, those for the training data first; none where the data has no conditions."""
        for name, coverage in data.coverages.items():
            fails = [np.zeros(p.counts.shape, bool) for p in coverage.projections]
            for cell in failing_cells(data) if name == TRAIN else ():
                fails[cell.projection][cell.position] = True
            wanted, weights = deepcopy(coverage), sum(float(p.weight.sum()) for p in coverage.projections)
            for projection, failing in zip(wanted.projections, fails, strict=True):
                projection.minimum[:] = np.maximum(projection.minimum, (projection.counts + 1) * failing)
                projection.weight[failing] = 1 + weights
            for row in _proposed(coverage, wanted, data.settings.proposals):
                codes = coverage.schema.encode({own: [row[own]] for own in coverage.schema.names})[0]
                pairs = zip(fails, coverage.projections, strict=True)
                served = sum(bool(failing[tuple(codes[list(p.members)])]) for failing, p in pairs)
                yield {**row, "data": name, **({"failing_cells": served} if name == TRAIN else {})}


def _proposed(coverage: Coverage, wanted: Coverage, limit: int) -> Iterator[Row]:
    """Scenarios that give the cells what is wanted, each with the cells it newly fills and the coverage it leads to."""
    schema, grown = coverage.schema, deepcopy(coverage)
    for number, scenario in enumerate(propose_for(wanted, limit=limit), start=1):
        codes = schema.encode({name: [value] for name, value in scenario.items()})[0]
        filled = 0
        for projection in grown.projections:
            cell = tuple(codes[list(projection.members)])
            projection.counts[cell] += 1
            filled += int(projection.counts[cell] == projection.minimum[cell])
        yield {**scenario, "proposal": number, "new_cells": filled, "coverage_after": grown.value}
