"""What a study may say of expected situations: how often each occurs, and what must hold in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.choices import NAMED, distinct
from roadworthy.protocols.shift_choices import NAMES_STORED, ShiftChoice
from roadworthy.protocols.situations.requirements import Requirement
from roadworthy.shifts import THESIS_SHIFTS

TOLERANCE = 1e-6
"""How far from 1 shares may add up."""
MOST_OBSERVATIONS = 10_000_000
"""Counted situations, at most: with more, shares say the same."""
FORM = "frequencies give the share of each situation, such as {none: 0.95, fog: {1: 0.03, 3: 0.02}}"

Frequencies = dict[str, float | dict[int, float]]
"""How often each situation occurs: a share, or by level where it is a shift."""

EXAMPLE: Frequencies = {UNDISTURBED: 0.9} | {name: dict.fromkeys(range(1, 6), 0.002) for name in THESIS_SHIFTS}
"""What is assumed where a study names no frequencies: an example, and nobody's driving."""


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"the frequency of {name} must be a number above 0, not {value!r}")
    return float(value)


def _level(name: str, level: Any) -> int:
    if isinstance(level, bool) or not re.fullmatch("[1-9][0-9]*", str(level)):
        raise ValueError(f"a level of {name} is a whole number from 1 on, not {level!r}: {FORM}")
    return int(level)


def _checked(value: Any) -> Frequencies:
    """Frequencies by name, of shifts by level; anything else is a `ValueError`."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError(FORM)
    frequencies: Frequencies = {}
    for name, own in value.items():
        if isinstance(own, Mapping) and own and name != UNDISTURBED:
            frequencies[name] = {_level(name, level): _number(f"{name}, level {level},", n) for level, n in own.items()}
        else:
            frequencies[name] = _number(name, own)
    return frequencies


def _different(value: list[Requirement]) -> list[Requirement]:
    names = [requirement.name for requirement in value]
    if len({*names}) < len(names):
        raise ValueError("two requirements have the same name: give each an id of its own")
    return value


class Settings(BaseModel):
    """What the study file may say under `protocols: situations:`.

    frequencies   how often each situation is expected: `none` (undisturbed data), shifts by level, recorded sets (named
                  under `data: recorded:`). Shares add up to 1; the default is an example
    rest          `none` gives undisturbed data what the shares leave of 1
    counted       frequencies are counts of independent observations instead of shares; bounds allow for their chance
    shifts        level tables of one's own for shifts that frequencies name (`ShiftChoice`)
    metrics       further metrics that are means over images, besides accuracy and brier
    requirements  what must hold in a situation: the share of situations in which it does is measured
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    frequencies: Annotated[Frequencies, BeforeValidator(_checked)] = EXAMPLE
    rest: Literal["none"] | None = None
    counted: bool = False
    shifts: Annotated[list[ShiftChoice], NAMED, distinct("a shift"), NAMES_STORED] = []
    metrics: Annotated[list[str], distinct("a metric")] = []
    requirements: list[Requirement] = []

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        _different(self.requirements)
        numbers = [number for _, _, number in entries(self.frequencies)]
        total = math.fsum(numbers)
        if self.counted:
            if not all(number.is_integer() for number in numbers) or total > MOST_OBSERVATIONS:
                raise ValueError(
                    f"counted frequencies are whole numbers of observations, at most {MOST_OBSERVATIONS:,} in all"
                )
            if self.rest:
                raise ValueError("rest gives shares, and counted frequencies are counts: give one of the two")
        elif self.rest:
            if not total < 1:
                raise ValueError(f"the frequencies add up to {total:.6g}, so nothing is left for rest: {UNDISTURBED}")
        elif abs(total - 1) > TOLERANCE:
            raise ValueError(
                f"the frequencies add up to {total:.6g}, not to 1 (within {TOLERANCE:g}): correct them, say rest: "
                f"{UNDISTURBED} to give undisturbed data what is left, or counted: true where they are counts"
            )
        return self


def entries(frequencies: Frequencies) -> Iterator[tuple[str, int, float]]:
    """Every situation as (name, level, frequency); the level is 0 where it has none."""
    for name, own in frequencies.items():
        if isinstance(own, dict):
            yield from ((name, level, frequency) for level, frequency in own.items())
        else:
            yield name, 0, own
