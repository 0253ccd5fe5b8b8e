"""What a study may say of classification: shifts, levels and repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from roadworthy.core.protocols import Shift
from roadworthy.protocols.choices import NAMED, Choice, Levels, distinct
from roadworthy.protocols.classification.table_specs import NAME as NAME
from roadworthy.shifts import make_shift

THESIS_SHIFTS = (
    "noise",
    "grey",
    "snow",
    "rain",
    "fog",
    "perspective",
    "blur",
    "rotation",
    "crop",
    "reflection",
)


class ShiftChoice(Choice):
    """A shift by name, with levels of its own where the built-in table does not fit the data."""

    levels: dict[Annotated[int, Field(ge=1)], dict[str, Any]] | None = None


class Settings(BaseModel):
    """What the study file may say under `protocols: classification:`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shifts: Annotated[list[ShiftChoice], Field(min_length=1), NAMED, distinct("a shift")] = [
        ShiftChoice(name=name) for name in THESIS_SHIFTS
    ]
    levels: Annotated[Levels, distinct("a level")] = [1, 2, 3, 4, 5]
    repeats: Annotated[int, Field(ge=1)] = 1


def shift_levels(choice: ShiftChoice, levels: Sequence[int]) -> list[Shift]:
    """A shift at each of the levels, or at those of its own table; an unknown name, level or parameter is an error."""
    return [make_shift(choice.name, level, choice.levels) for level in sorted(choice.levels or levels)]
