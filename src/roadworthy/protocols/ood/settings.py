"""What a study may say of outliers: sets, shifts of both sides, GANs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from roadworthy.protocols.choices import NAMED, Choice, Levels, distinct
from roadworthy.protocols.condition_columns import ConditionChoices
from roadworthy.protocols.ood.gans import Gans
from roadworthy.protocols.ood.table_specs import GAN
from roadworthy.protocols.ood.table_specs import NAME as NAME
from roadworthy.protocols.shift_choices import NAMES_STORED, ShiftChoice
from roadworthy.shifts import THESIS_SHIFTS

FOREIGN = "foreign"
NOISE = ("uniform_noise", "normal_noise")
DERIVED = ("shuffled", "mixed", "swirl", "colour_swap")
Sides = Literal["all", "equal"]
"""How many images of either side count: all, or of the larger side only as many as the smaller one has."""
KINDS = ("literature", "derived", "transformed", GAN)
"""Noise and foreign sets, as others use them; made from the test images; foreign with a shift on both sides; drawn."""


class SetChoice(Choice):
    """A maker of outliers or a foreign set by name, with parameters of its own where the defaults do not fit."""

    parameters: dict[str, Any] = Field(default={})


class OutlierSide(BaseModel):
    """Which outliers are shown, and the shifts of the test data that belong to them.

    sets         makers of outliers and names of foreign sets (default: all six makers and every foreign set)
    transformed  shifts that disturb both the test data and a foreign set, at each of `levels`, or with a level table of
                 their own (`ShiftChoice`)
    foreign      which foreign set those use (default: the first)
    gans         GANs to be trained, each configuration a set of its own (default: none)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sets: Annotated[list[SetChoice], Field(min_length=1), NAMED, distinct()] | None = None
    transformed: Annotated[list[ShiftChoice], NAMED, distinct("a shift"), NAMES_STORED] = [
        ShiftChoice(name=name) for name in THESIS_SHIFTS
    ]
    levels: Annotated[Levels, distinct()] = [5]
    foreign: str | None = None
    gans: Gans | None = None

    def inlined(self, base: Path) -> Self:
        """With the level tables that lie in files, paths starting from `base`."""
        return self.model_copy(update={"transformed": [choice.inlined(base) for choice in self.transformed]})


class Settings(OutlierSide):
    """What the study file may say under `protocols: ood:`, besides the sets.

    monitor     the label of a monitor of the study whose score takes the place of the model's own
    conditions  the condition columns of the test data that figures are broken down by (default: all that can be; []
                none)
    sides       `all` images of both sides, or `equal` numbers, as in the thesis: of the larger side those whose ids
                have the smallest hashes, the same ones in every figure
    """

    repeats: Annotated[int, Field(ge=1)] = 1
    monitor: str | None = None
    conditions: ConditionChoices | None = None
    sides: Sides = "all"

    @model_serializer(mode="wrap")
    def _without_default(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A study that names no monitor, conditions or sides is stored as it was before they could be named."""
        content: dict[str, Any] = handler(self)
        added = {"monitor": None, "conditions": None, "sides": "all"}
        return {name: value for name, value in content.items() if name not in added or value != added[name]}
