"""Beside scenario coverage: the scenarios to collect next, found by a covering array, those that add most first."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.covering_array import propose_scenarios
from roadworthy.protocols.dependability.measures.base import Row, Search
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import PROPOSALS


class ScenarioProposals(Search):
    """Proposed scenarios, each with the cells it newly fills and the coverage it leads to."""

    tables = (PROPOSALS,)

    def first_columns(self, resolved: Resolved) -> list[str]:
        """All conditions: a proposal has a value of each."""
        return list(resolved.conditions or {})

    def rows(self, data: StoredData) -> Iterator[Row]:
        """A row per scenario; none where the data has no conditions."""
        if data.coverage is None:
            return
        schema, grown = data.coverage.schema, deepcopy(data.coverage)
        k, needs, limit = data.resolved.k, data.resolved.needs(), data.settings.proposals
        proposals = propose_scenarios(schema, data.columns, k=k, needs=needs, limit=limit, groups=data.counted_groups)
        for number, scenario in enumerate(proposals, start=1):
            codes = schema.encode({name: [value] for name, value in scenario.items()})[0]
            filled = 0
            for projection in grown.projections:
                cell = tuple(codes[list(projection.members)])
                projection.counts[cell] += 1
                filled += int(projection.counts[cell] == projection.minimum[cell])
            yield {**scenario, "proposal": number, "new_cells": filled, "coverage_after": grown.value}
