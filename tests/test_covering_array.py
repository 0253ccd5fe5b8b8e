"""Proposed scenarios: they cover all that lacks data, in few rows, and never show what cannot occur."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roadworthy.metrics.coverage import Need, Schema, scenario_coverage
from roadworthy.protocols.dependability.covering_array import propose_scenarios

PAPER = {"weather": ["sunny", "cloudy", "rainy"], "surface": ["stone", "mud", "tarmac"], "road": ["straight", "curvy"]}


def columns(schema: Schema, rows: list[Any]) -> dict[str, list[Any]]:
    values = [list(row.values()) if isinstance(row, dict) else list(row) for row in rows]
    return {name: [row[index] for row in values] for index, name in enumerate(schema.names)}


SCHEMAS = [(3, 3, 2), (3, 3, 3, 3), (4, 3, 5, 2, 4, 3), (5, 4, 3, 2), (2, 2, 2, 2, 2, 2), (1, 3, 2)]


@pytest.mark.parametrize("sizes", SCHEMAS)
def test_proposals_cover_all_pairs_in_no_more_rows_than_the_peers(sizes: tuple[int, ...]) -> None:
    allpairspy, covertable = pytest.importorskip("allpairspy"), pytest.importorskip("covertable")
    values = [[f"v{value}" for value in range(size)] for size in sizes]
    schema = Schema({f"c{index}": row for index, row in enumerate(values)})
    rows = propose_scenarios(schema)
    assert scenario_coverage(schema, columns(schema, rows)).value == 1
    assert len(rows) <= len(list(allpairspy.AllPairs(values)))
    assert len(rows) <= len(covertable.make(values))


def test_proposals_honour_constraints_in_no_more_rows_than_the_peer() -> None:
    covertable = pytest.importorskip("covertable")
    values = {
        "weather": ["dry", "rain", "snow"],
        "heat": ["cold", "mild", "hot"],
        "road": ["mud", "ice", "tar"],
        "light": ["day", "night"],
    }
    schema = Schema(values, [{"weather": "snow", "heat": ["mild", "hot"]}, {"road": "ice", "heat": ["mild", "hot"]}])

    def cold_or_not(index: int, value: str) -> dict[str, Any]:
        return {
            "operator": "fn",
            "requires": [index, 1],
            "evaluate": lambda row: row[index] != value or row[1] == "cold",
        }

    rows = propose_scenarios(schema)
    peer = covertable.make(list(values.values()), constraints=[cold_or_not(0, "snow"), cold_or_not(2, "ice")])
    assert scenario_coverage(schema, columns(schema, rows)).value == 1
    assert scenario_coverage(schema, columns(schema, peer)).value == 1
    assert len(rows) <= len(peer)


def test_proposals_continue_what_is_there_and_serve_needs_the_most_useful_first() -> None:
    schema = Schema(PAPER)
    seen = columns(schema, [("sunny", "stone", "straight"), ("rainy", "tarmac", "curvy")])
    rows = propose_scenarios(schema, seen)
    together = {name: seen[name] + [row[name] for row in rows] for name in schema.names}
    assert scenario_coverage(schema, together).value == 1
    gains = []
    for count in range(len(rows) + 1):
        part = {name: seen[name] + [row[name] for row in rows[:count]] for name in schema.names}
        gains.append(scenario_coverage(schema, part).occupied)
    steps = np.diff(gains)
    assert (steps > 0).all()
    assert (np.diff(steps) <= 0).all()
    assert propose_scenarios(schema, together) == []
    assert propose_scenarios(schema, seen, limit=1) == rows[:1]
    twice = propose_scenarios(schema, needs=[Need(minimum=2)])
    assert scenario_coverage(schema, columns(schema, twice), needs=[Need(minimum=2)]).value == 1
    triples = propose_scenarios(schema, k=3)
    assert len(triples) == 18
