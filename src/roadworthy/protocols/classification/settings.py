"""What a study may say of classification: shifts, levels and repeats."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from roadworthy.protocols.choices import NAMED, Choice, Levels, distinct
from roadworthy.shifts import THESIS_SHIFTS

NAME = "classification"


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
