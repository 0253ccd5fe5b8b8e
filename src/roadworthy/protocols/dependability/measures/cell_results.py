"""Beside scenario coverage: of every cell, how much was trained and tested, how often a model was wrong, in words.

A cell that was never trained and fails, or was neither trained nor tested, is what the next data must show; the list of
scenarios to collect follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.coverage import MISSING, Codes, Coverage
from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.measures.base import Measure, Results, Row
from roadworthy.protocols.dependability.measures.scenario_coverage import cell_columns, cell_of
from roadworthy.protocols.dependability.names import TEST, TRAIN
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import CELL_RESULTS
from roadworthy.statistics import proportion_interval
from roadworthy.statistics.estimates import CONFIDENCE, Estimate, no_estimate

NOT_TRAINED, LITTLE_TRAINED, TRAINED = "not trained", "little trained", "trained"
NOT_TESTED, FAILS, OPEN, HOLDS = "not tested", "fails", "open", "holds"


def result_word(accuracy: Estimate, wanted: float) -> str:
    """What the answers in a cell say of the accuracy that is wanted there.

    >>> result_word(Estimate(0.5, 0.3, 0.7, n=20, groups=20), 0.9), result_word(no_estimate("no images"), 0.9)
    ('fails', 'not tested')
    """
    if not accuracy.n:
        return NOT_TESTED
    return FAILS if accuracy.hi < wanted else HOLDS if accuracy.lo >= wanted else OPEN


def training_word(count: int, minimum: int) -> str:
    """What the training data has of a cell, against what it needs (images or objects, as the study counts).

    >>> training_word(0, 10), training_word(3, 10), training_word(12, 10)
    ('not trained', 'little trained', 'trained')
    """
    return NOT_TRAINED if not count else LITTLE_TRAINED if count < minimum else TRAINED


@dataclass(frozen=True)
class Cell:
    """A possible cell: where it stands in the tables of coverage, and the rows of the data that show it, (n,)."""

    projection: int
    position: tuple[int, ...]
    scenario: dict[str, str]
    rows: NDArray[np.intp]


def possible_cells(coverage: Coverage, codes: Codes) -> Iterator[Cell]:
    """Every possible cell of a coverage, with the rows whose codes (n, conditions) show it."""
    schema = coverage.schema
    for number, projection in enumerate(coverage.projections):
        own = codes[:, list(projection.members)]
        known = np.flatnonzero((own != MISSING).all(axis=1))
        flat = np.ravel_multi_index(tuple(own[known].T), projection.counts.shape)
        named = [(schema.names[member], schema.conditions[schema.names[member]]) for member in projection.members]
        for position in np.ndindex(projection.counts.shape):
            if projection.feasible[position]:
                rows = known[flat == np.ravel_multi_index(position, projection.counts.shape)]
                scenario = {name: values[code] for (name, values), code in zip(named, position, strict=True)}
                yield Cell(number, position, scenario, rows)


def accuracy_of(data: StoredData, model: str, rows: NDArray[np.intp]) -> Estimate:
    """The accuracy of a model over some images of the test data, bounded by objects; none without images."""
    if not len(rows):
        return no_estimate("no images")
    correct, objects = data.readouts[model].answers.correct[rows].astype(float), data.objects[rows]
    return proportion_interval(correct, objects, CONFIDENCE).over(len(rows), len(np.unique(objects)))


def cells_of(data: StoredData, name: str) -> list[Cell]:
    """Every possible cell with the rows of the training or test data that show it; none where that cannot be counted.

    Both have the same cells in the same order.
    """
    if name not in data.coverages:
        return []
    coverage = data.coverages[name]
    return list(possible_cells(coverage, coverage.schema.encode(data.shown[name].columns)))


def failing_cells(data: StoredData) -> list[Cell]:
    """The cells in which some model fails."""
    wanted = data.settings.cell_accuracy
    return [
        cell
        for cell in cells_of(data, TEST)
        if any(result_word(accuracy_of(data, model, cell.rows), wanted) == FAILS for model in data.readouts)
    ]


class CellResults(Measure):
    """A row per model and possible cell; no figure."""

    tables = (CELL_RESULTS,)

    def first_columns(self, resolved: Resolved) -> list[str]:
        """The k conditions of a cell with their values."""
        return cell_columns(resolved)

    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """None where the test data has no conditions; where those of training data are unknown, results alone."""
        tested = cells_of(data, TEST)
        for cell, trained in zip_longest(tested, cells_of(data, TRAIN) if tested else ()):
            accuracy = accuracy_of(data, model, cell.rows)
            word = result_word(accuracy, data.settings.cell_accuracy)
            row: Row = {"model": model, **cell_of(cell.scenario), "state": word}
            row |= {"tested": accuracy.n, "tested_objects": accuracy.groups}
            if accuracy.n:
                row |= {"accuracy": accuracy.value, "lo": accuracy.lo, "hi": accuracy.hi}
                row["wrong"] = round((1 - accuracy.value) * accuracy.n)
            if trained is not None:
                projection = data.coverages[TRAIN].projections[trained.projection]
                count, minimum = (int(counts[trained.position]) for counts in (projection.counts, projection.minimum))
                row |= {"trained": len(trained.rows), "state": f"{training_word(count, minimum)}, {word}"}
                row["trained_objects"] = len(np.unique(data.shown[TRAIN].groups[trained.rows]))
            results.rows[CELL_RESULTS].append(row)
