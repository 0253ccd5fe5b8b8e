"""Shifts that a study lists by name, with a level table of their own where the built-in one does not fit the data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Shift
from roadworthy.protocols.choices import Choice
from roadworthy.shifts import shift_levels


def _table(value: Any) -> Any:
    if not isinstance(value, dict) or not value or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError(
            "a level table gives the parameters of each level, such as {1: {factor: 0.2}, 2: {factor: 0.5}}"
        )
    return value


LevelTable = Annotated[dict[Annotated[int, Field(ge=1)], dict[str, Any]], BeforeValidator(_table)]
"""The parameters of a shift at levels of one's own, from 1 on: another table than the built-in one."""


class ShiftChoice(Choice):
    """A shift by name, at the levels of the protocol; where it has a level table of its own, at all levels of that.

    >>> ShiftChoice(name="fog").at([1, 3])
    [Fog(level=1, factor=0.3), Fog(level=3, factor=0.5)]
    >>> ShiftChoice(name="fog", levels={1: {"factor": 0.15}}).at([1, 3])
    [Fog(level=1, factor=0.15)]
    """

    levels: LevelTable | None = None

    def at(self, levels: Sequence[int]) -> list[Shift]:
        """The shift at each level; an `InputError` where a name or level is not known, or a table does not fit."""
        shifts = shift_levels(self.name, levels, self.levels)
        for lower, upper in pairwise(shifts):
            if self.levels and lower.parameters() == upper.parameters():
                raise InputError(
                    f"shift {self.name}: levels {lower.level} and {upper.level} have the same parameters; levels of a "
                    "table must differ"
                )
        return shifts

    def count(self, levels: Sequence[int]) -> int:
        """At how many levels it is shown."""
        return len(self.levels or levels)


def _by_name(choices: Sequence[ShiftChoice]) -> list[Any]:
    return [choice.model_dump() if choice.levels else choice.name for choice in choices]


NAMES_STORED = PlainSerializer(_by_name)
"""Of a list of shifts: one without a level table of its own is stored as its bare name."""
