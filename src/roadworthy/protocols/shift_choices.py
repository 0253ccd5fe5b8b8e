"""Shifts that a study lists by name, with a level table of their own where the built-in one does not fit the data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset, Shift
from roadworthy.core.validation import read_yaml
from roadworthy.engine.plan import PlannedStimulus
from roadworthy.protocols.choices import Choice
from roadworthy.shifts import shift_levels

FORM = "a level table gives the parameters of each level, such as {1: {factor: 0.2}, 2: {factor: 0.5}}"

Table = dict[int, dict[str, Any]]
"""The parameters of a shift at levels of one's own, from 1 on: another table than the built-in one."""


def _checked(value: Any) -> Any:
    """A table with whole numbers from 1 on as levels, or the name of a file; anything else is a `ValueError`."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, dict) or not value or not all(isinstance(row, dict) for row in value.values()):
        raise ValueError(FORM)
    for level in value:
        if isinstance(level, bool) or not re.fullmatch("[1-9][0-9]*", str(level)):
            raise ValueError(f"a level is a whole number from 1 on, not {level!r}: {FORM}")
    return {int(level): row for level, row in value.items()}


class ShiftChoice(Choice):
    """A shift by name, at the levels of the protocol; where it has a level table of its own, at all levels of that.

    The table stands in the study, or in the YAML file that is named instead.

    >>> ShiftChoice(name="fog").at([1, 3])
    [Fog(level=1, factor=0.3), Fog(level=3, factor=0.5)]
    >>> ShiftChoice(name="fog", levels={1: {"factor": 0.15}}).at([1, 3])
    [Fog(level=1, factor=0.15)]
    """

    levels: Annotated[Table | str | None, BeforeValidator(_checked)] = None

    def inlined(self, base: Path) -> ShiftChoice:
        """The same with the table of the file that it names, a path starting from `base`."""
        if not isinstance(self.levels, str):
            return self
        path = base / self.levels
        try:
            return self.model_copy(update={"levels": _checked(read_yaml(path, "level table") or {})})
        except ValueError as error:
            raise InputError(f"level table {path} of shift {self.name}: {error}") from None

    def at(self, levels: Sequence[int]) -> list[Shift]:
        """The shift at each level; an `InputError` where a name or level is not known, or a table does not fit."""
        table = self._table()
        shifts = shift_levels(self.name, levels, table)
        for lower, upper in pairwise(shifts):
            if table and lower.parameters() == upper.parameters():
                raise InputError(
                    f"shift {self.name}: levels {lower.level} and {upper.level} have the same parameters; levels of a "
                    "table must differ"
                )
        return shifts

    def count(self, levels: Sequence[int]) -> int:
        """At how many levels it is shown."""
        return len(self._table() or levels)

    def _table(self) -> Table | None:
        own = self.inlined(Path()).levels
        assert not isinstance(own, str)
        return own


def shifted_stimuli(
    choices: Sequence[ShiftChoice], levels: Sequence[int], repeats: int, data: Dataset, seed: int
) -> list[PlannedStimulus]:
    """Data under every shift, level by level, repeat by repeat."""
    planned = []
    for choice in choices:
        for shift in choice.at(levels):
            for repeat in range(repeats):
                stimulus = shift.stimulus(data.fingerprint(), seed=seed, repeat=repeat, name=choice.name)
                planned.append(PlannedStimulus(stimulus, data, shift))
    return planned


def _by_name(choices: Sequence[ShiftChoice]) -> list[Any]:
    return [choice.model_dump() if choice.levels else choice.name for choice in choices]


NAMES_STORED = PlainSerializer(_by_name)
"""Of a list of shifts: one without a level table of its own is stored as its bare name."""
