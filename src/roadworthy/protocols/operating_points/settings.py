"""What a study may say of operating points: what is shown, the score, and how the threshold on it is fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from roadworthy.protocols.choices import NAMED, Levels, distinct
from roadworthy.protocols.ood.settings import OutlierSide
from roadworthy.protocols.operating_points.table_specs import NAME as NAME
from roadworthy.protocols.shift_choices import NAMES_STORED, ShiftChoice
from roadworthy.shifts import THESIS_SHIFTS

REJECTED = 0.05
"""The share of held-out images that is rejected, unless the study says otherwise."""
VALIDATION, HALF, NOTHING = "validation", "half of the test groups", "nothing"
VALIDATION_HALF = "half of the validation groups"
"""What the threshold is fixed on; nothing where the study gives the threshold itself."""
RULES = ("reject", "cost", "threshold")

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Cost(BaseModel):
    """What mistakes cost, each per image; the threshold is that of the least expected cost on held-out images.

    accepted_wrong    of an accepted wrong answer;  rejected_right: of a rejected right one
    accepted_outlier  of an accepted outlier, of which `outlier_share` of all images are expected
    outliers          the set of outliers (noise or a foreign set) that stands for them: it is held out for this, and
                      has no figures of its own
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    accepted_wrong: Amount
    rejected_right: Amount
    accepted_outlier: Amount | None = None
    outlier_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    outliers: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        of_outliers = (self.accepted_outlier, self.outlier_share, self.outliers)
        if len({value is None for value in of_outliers}) > 1:
            raise ValueError(
                "accepted outliers count where all of accepted_outlier, outlier_share and outliers (the set that is "
                "held out for it) are given: give all three, or none"
            )
        if not self.accepted_wrong and not self.rejected_right and not self.accepted_outlier:
            raise ValueError("all costs are 0, so that every threshold would do: give at least one")
        return self

    @property
    def share_outside(self) -> float:
        """The share of outliers among all images; 0 where they do not count."""
        return self.outlier_share or 0.0

    def words(self) -> str:
        """The costs as a study writes them."""
        given = [(name, value) for name, value in self.model_dump().items() if value is not None]
        return ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in given
        )


class Settings(BaseModel):
    """What the study file may say under `protocols: operating_points:`.

    shifts     of the test data, at each of `levels`, or with a level table of their own (`ShiftChoice`)
    outliers   what `ood` may say of outliers: sets, transformed, levels, foreign, gans; none shows none
    score      the label of a monitor of the study (default: the model's own certainty, else its largest probability, in
               the order of its log-odds where it knows logits)
    reject     the share of held-out images that the threshold rejects, or
    cost       what mistakes cost, or
    threshold  the threshold itself, of a model on its probability or certainty: what lies below it is rejected
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shifts: Annotated[list[ShiftChoice], NAMED, distinct("a shift"), NAMES_STORED] = [
        ShiftChoice(name=name) for name in THESIS_SHIFTS
    ]
    levels: Annotated[Levels, distinct("a level")] = [1, 2, 3, 4, 5]
    repeats: Annotated[int, Field(ge=1)] = 1
    outliers: OutlierSide | None = OutlierSide()
    score: str | None = None
    reject: Annotated[float, Field(gt=0, lt=1)] | None = None
    cost: Cost | None = None
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _usual_rule(cls, value: Any) -> Any:
        if isinstance(value, dict) and all(value.get(rule) is None for rule in RULES):
            return {**value, "reject": REJECTED}
        return value

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        given = [rule for rule in RULES if getattr(self, rule) is not None]
        if len(given) > 1:
            raise ValueError(f"one of reject, cost and threshold fixes the threshold, not {' and '.join(given)}")
        if self.cost and self.cost.outliers and not self.outliers:
            raise ValueError(f"cost names outliers {self.cost.outliers}, but no outliers are shown")
        return self

    @property
    def rule(self) -> str:
        """How the threshold is fixed, in a few words."""
        if self.cost is not None:
            return f"least expected cost ({self.cost.words()})"
        return f"reject {self.reject:g} of held-out images" if self.threshold is None else "given"

    def inlined(self, base: Path) -> Settings:
        """With the level tables that lie in files, paths starting from `base`."""
        changed: dict[str, Any] = {"shifts": [choice.inlined(base) for choice in self.shifts]}
        if self.outliers is not None:
            changed["outliers"] = self.outliers.inlined(base)
        return self.model_copy(update=changed)


class Context(BaseModel):
    """What the run notes of a source: what its threshold is fixed on, what must be known of these images, and the seed
    that halves its test groups.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    held_out: str = HALF
    note: str = ""
    seed: int = 0
