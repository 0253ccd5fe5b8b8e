"""The user's condition columns: which of them figures are broken down by, and by which values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset
from roadworthy.data import OpenedDataset
from roadworthy.engine.conditions import Conditions
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus
from roadworthy.metrics.coverage import condition_texts

MOST_VALUES = 20
"""A column with more different values is no condition unless the study names it."""
MOST_SLICES = 100
"""Values of all columns together, at most, where a study names none: each takes its time in every case."""
MOST_NAMED_VALUES = 200
"""The values that a column may have which the study names: each is a row of the tables for every case."""
ROLE = {"role": "conditions"}
"""The labels of the case that holds the conditions of the data."""
NOT_NAMED = "the study does not name it"

Columns = Mapping[str, NDArray[Any]]
Cuts = dict[str, list[float]]


def conditions_of(data: Dataset) -> dict[str, NDArray[Any]]:
    """Every condition column of a data set, (N,) each."""
    if isinstance(data, OpenedDataset):
        return dict(data.table.conditions)
    if not len(data) or not data.batch(slice(0, 1)).conditions:
        return {}
    batches = [data.batch(slice(start, start + 256)) for start in range(0, len(data), 256)]
    names = dict.fromkeys(name for batch in batches for name in batch.conditions)
    return {name: np.concatenate([batch.conditions[name] for batch in batches]) for name in names}


def shown_values(column: NDArray[Any]) -> set[str]:
    """The values that images show, as text."""
    return {*condition_texts(column)} - {""}


def why_no_condition(columns: Sequence[NDArray[Any]]) -> str:
    """Why a column, of one or several data sets, is no condition unless it is named; empty where it is one.

    Text, truth values and whole numbers are, with at most 20 different values.

    >>> why_no_condition([np.array(["rain", "dry"])]), why_no_condition([np.array([0.5, 2.0])])
    ('', 'numbers that are not whole')
    """
    kinds = set[str]().union(*map(shown_values, columns))
    if any(own.dtype.kind == "f" for own in columns) and not all(map(_is_whole, kinds)):
        return "numbers that are not whole"
    if not kinds:
        return "no values"
    return f"{len(kinds)} values, more than {MOST_VALUES}" if len(kinds) > MOST_VALUES else ""


def _is_whole(text: str) -> bool:
    """Whether a value is a whole number as Python writes one."""
    return re.fullmatch("-?[0-9]+", text) is not None


def _checked_choices(choices: list[str | Cuts]) -> list[str | Cuts]:
    names = [name for choice in choices for name in ([choice] if isinstance(choice, str) else choice)]
    if len(set(names)) < len(names):
        raise ValueError("a column is named twice")
    for choice in choices:
        for name, edges in choice.items() if isinstance(choice, dict) else ():
            if not edges or not all(map(math.isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
                raise ValueError(f"{name} is cut at numbers that rise, such as [0, 30, 60], not {edges}")
    return choices


ConditionChoices = Annotated[list[str | Cuts], AfterValidator(_checked_choices)]
"""Condition columns by name, and columns of numbers with where they are cut, as in `[light, {speed: [0, 30]}]`."""


class Breakdown(BaseModel):
    """The condition columns of a data set by which figures are broken down, as stored in run.json.

    conditions  the values of each, in order: texts, or the ranges that its numbers are cut into
    cuts        the numbers at which columns of numbers are cut
    left_out    the other columns of the data, and why they are none

    >>> [*Breakdown(conditions={"light": ["day", "night"]}).values()]
    [('light', 'day'), ('light', 'night')]
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    conditions: dict[str, list[str]] = {}
    cuts: Cuts = {}
    left_out: dict[str, str] = {}

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A run of data without conditions is stored as it was before there was a breakdown."""
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if value}

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def values(self) -> Iterator[tuple[str, str]]:
        """Every condition with each of its values."""
        return ((name, value) for name, values in self.conditions.items() for value in values)

    def texts(self, name: str, column: NDArray[Any]) -> list[str]:
        """The value of a condition that each image shows, as its `values` are written; empty where it has none."""
        if name not in self.cuts:
            return condition_texts(column)
        return range_texts(column, self.cuts[name])

    def plan(self, protocol: str, clean: PlannedStimulus, bench: Bench) -> list[PlannedCase]:
        """The case that reads the columns of the data: shared by all protocols; none where nothing is broken down."""
        return [bench.case(clean, Conditions(), protocol=protocol, labels=ROLE)] if self.conditions else []


def range_texts(column: NDArray[Any], edges: Sequence[float]) -> list[str]:
    """The range that each number (n,) lies in: edges cut the line, and a range holds its lower edge, not its upper.

    >>> range_texts(np.array([-1, 0, 29.9, 30, 60, np.nan]), [0, 30, 60])
    ['below 0', '0 to 30', '0 to 30', '30 to 60', '60 and above', '']
    """
    numbers = np.asarray(column, np.float64)
    names = _range_names(edges)
    indices = np.searchsorted(np.asarray(edges, np.float64), numbers, side="right")
    return ["" if lacks else names[index] for index, lacks in zip(indices, np.isnan(numbers), strict=True)]


def _range_names(edges: Sequence[float]) -> list[str]:
    between = [f"{low:.12g} to {high:.12g}" for low, high in pairwise(edges)]
    return [f"below {edges[0]:.12g}", *between, f"{edges[-1]:.12g} and above"]


def resolve_breakdown(protocol: str, choices: list[str | Cuts] | None, data: Dataset) -> Breakdown:
    """The columns that a study names, or all that can be conditions; what does not fit the data is an `InputError`.

    choices  None for all, an empty list for none
    """
    if choices is not None and not choices:
        return Breakdown()
    columns = conditions_of(data)
    label = f"{protocol}: conditions of {data.name}"
    cuts = {name: edges for choice in choices or () if isinstance(choice, dict) for name, edges in choice.items()}
    named = [name for choice in choices or () for name in ([choice] if isinstance(choice, str) else choice)]
    for name in named:
        if name not in columns:
            raise InputError(f"{label}: {UnknownName('column', name, columns)}")
        if name in cuts and columns[name].dtype.kind not in "iuf":
            raise InputError(f"{label}: {name} holds text, which cannot be cut into ranges: name it without numbers")
    conditions, left_out = dict[str, list[str]](), dict[str, str]()
    for name in [*named, *(name for name in columns if name not in named)]:
        kinds = _kinds(columns[name], cuts.get(name))
        why = "" if choices is not None else why_no_condition([columns[name]])
        if choices is None and not why and sum(map(len, conditions.values())) + len(kinds) > MOST_SLICES:
            why = f"{len(kinds)} values, with which there would be more than {MOST_SLICES} in all"
        if why:
            left_out[name] = f"{why}: name it under conditions to use it" if kinds else why
        elif choices is not None and name not in named:
            left_out[name] = NOT_NAMED
        elif not 0 < len(kinds) <= MOST_NAMED_VALUES:
            many = f"{len(kinds)} values, more than {MOST_NAMED_VALUES}" if kinds else "no values"
            raise InputError(f"{label}: {name} has {many}: cut it into ranges, or leave it out")
        else:
            conditions[name] = kinds
    return Breakdown(conditions=conditions, cuts=cuts, left_out=left_out)


def _kinds(column: NDArray[Any], edges: Sequence[float] | None) -> list[str]:
    """The values of a column in order: numbers by size, texts by name; or the ranges between and with images."""
    if edges is not None:
        shown, names = {*range_texts(column, edges)}, _range_names(edges)
        return [name for index, name in enumerate(names) if name in shown or 0 < index < len(edges)]
    kinds = shown_values(column)
    if all(map(_is_whole, kinds)):
        return sorted(kinds, key=int)
    return sorted(kinds)
