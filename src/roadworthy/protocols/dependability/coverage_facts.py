"""What the report and a terminal say of coverage: what was trained, tested and wrong, and what to collect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from roadworthy.protocols.dependability.facts import (
    DATA,
    DATA_WORDS,
    TRAIN,
    Dependability,
    slice_words,
    without_value,
)
from roadworthy.report.facts import Facts, bounded
from roadworthy.report.reading import Row
from roadworthy.report.words import listing, number, plural, whole

NO_TRAINING = (
    "The study names no training data (data: train), so coverage and neurons are those of the test data alone: they do "
    "not say what the model was trained on."
)
INFERRED = (
    "The operating conditions and their values are only those that the data shows: what it lacks altogether is not "
    "counted as missing. Declare them under dependability: conditions."
)
URGENT = ("not trained", "not tested", "fails")
"""What makes a cell one that the report lists, by urgency."""


def warnings(dependability: Dependability) -> list[str]:
    """What must be known before coverage is read: an inferred schema, no training data."""
    inferred = [INFERRED] if dependability.inferred else []
    return inferred + ([] if TRAIN in dependability.counted_data else [NO_TRAINING])


def summary(dependability: Dependability) -> str:
    """What the training and the test data show of the operating conditions."""
    return " ".join(coverage_words(dependability, data) for data in dependability.counted_data)


def coverage_words(dependability: Dependability, data: str) -> str:
    """What training or test data shows of the operating conditions, in sentences."""
    cell = dependability.cell(DATA, "scenario_coverage", data=data)
    name = DATA_WORDS[data]
    if cell.missing:
        return f"Scenario coverage of the {name} has no value: {cell.reason}."
    rows = dependability.on("cells", data)
    possible = [row for row in rows if row["status"] != "impossible"]
    covered = sum(row["status"] == "covered" for row in possible)
    excluded = len(rows) - len(possible)
    value, total = number("scenario_coverage", cell.value), plural(len(possible), "possible cell")
    words = f"Coverage of the {name} {value}: {whole(covered)} of {total} have as much as they need"
    words += f", {plural(excluded, 'cell')} cannot occur" if excluded else ""
    words += f"; {cell.reason}" if cell.reason else ""
    lacking = never_shown(possible)
    never = "trained" if data == TRAIN else "tested"
    return f"{words}." + (f" Not {never} at all: {listing(lacking)}." if lacking else "")


def never_shown(cells: Iterable[Row]) -> list[str]:
    """The values of conditions that no image shows in any of the possible cells."""
    most: dict[str, int] = {}
    for row in cells:
        for column in (name for name in row if name.startswith("condition_")):
            value = f"{row[column]}={row[column.replace('condition', 'value')]}"
            most[value] = max(most.get(value, 0), row["count"])
    return [value for value, count in most.items() if not count]


def cell_name(row: Row) -> str:
    """The conditions of a cell with their values.

    >>> cell_name({"condition_1": "weather", "value_1": "fog", "tested": 3})
    'weather=fog'
    """
    columns = [name for name in row if name.startswith("condition_")]
    return ", ".join(f"{row[name]}={row[name.replace('condition', 'value')]}" for name in columns)


def state_words(dependability: Dependability, model: str) -> str:
    """How many cells are in each state, the most frequent first."""
    states = Counter(row["state"] for row in dependability.of("cell_results", model))
    return "; ".join(f"{state}: {plural(count, 'cell')}" for state, count in states.most_common())


def urgent_cells(dependability: Dependability, model: str) -> list[Row]:
    """The cells that were not trained, not tested or fail, those with most of these first."""
    rows = dependability.of("cell_results", model)
    urgent = {index: [word in row["state"] for word in URGENT] for index, row in enumerate(rows)}
    order = sorted((index for index in urgent if any(urgent[index])), key=lambda index: [not w for w in urgent[index]])
    return [rows[index] for index in order]


def headline(dependability: Dependability, facts: Facts) -> list[str]:
    """Lines for a terminal: coverage with the confidence loss of each model, worst slices, metrics without a value."""
    losses = {model: dependability.cell(model, "confidence_loss") for model in dependability.models}
    parts = [f"{facts.named(m)} confidence loss {bounded('confidence_loss', loss)}" for m, loss in losses.items()]
    sliced = [model for model in dependability.models if dependability.of("slices", model)]
    slices = [f"{facts.named(model)}: {slice_words(dependability, model)}" for model in sliced]
    lines = [f"{summary(dependability)} {'; '.join(parts)}", " ".join(slices) or "No slices were looked at"]
    return [*lines, *warnings(dependability), *without_value(dependability, facts)]
