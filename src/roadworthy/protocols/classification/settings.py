"""What a study may say of classification: shifts, levels and repeats."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from roadworthy.core.errors import InputError
from roadworthy.metrics import METRICS as REGISTERED
from roadworthy.metrics import (
    Metric,
    accuracy,
    auroc,
    brier,
    brier_mean,
    ece,
    fpr95_right,
    fpr95_wrong,
    mean_confidence,
    nll,
    overconfidence,
    underconfidence,
)
from roadworthy.protocols.choices import NAMED, Levels, distinct
from roadworthy.protocols.classification.human import HumanAnswers
from roadworthy.protocols.classification.table_specs import NAME as NAME
from roadworthy.protocols.condition_columns import ConditionChoices
from roadworthy.protocols.shift_choices import ShiftChoice
from roadworthy.shifts import THESIS_SHIFTS

METRICS = (
    *(accuracy, auroc, brier, brier_mean, ece, nll, mean_confidence),
    *(overconfidence, underconfidence, fpr95_right, fpr95_wrong),
)
"""The metrics of every study, in the order of the table."""


class Settings(BaseModel):
    """What the study file may say under `protocols: classification:`.

    shifts   at each of `levels`, or with a level table of their own (`ShiftChoice`)
    metrics  further metrics of answers by name, besides those of every study
    human    a file of answers that people gave in a quiz (`roadworthy preview --quiz`), or its content
    conditions  the condition columns of the data that figures are broken down by (default: all that can be; [] none)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    shifts: Annotated[list[ShiftChoice], Field(min_length=1), NAMED, distinct("a shift")] = [
        ShiftChoice(name=name) for name in THESIS_SHIFTS
    ]
    levels: Annotated[Levels, distinct("a level")] = [1, 2, 3, 4, 5]
    repeats: Annotated[int, Field(ge=1)] = 1
    metrics: Annotated[list[str], distinct("a metric")] = []
    human: str | HumanAnswers | None = None
    conditions: ConditionChoices | None = None

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A study that names no further metric, people or conditions is stored as it was before there were any."""
        content: dict[str, Any] = handler(self)
        if content.get("conditions", ...) is None:
            del content["conditions"]
        return {name: value for name, value in content.items() if value or name not in ("metrics", "human")}


def metrics_of(settings: Settings) -> tuple[Metric, ...]:
    """The metrics of a study: those of every study, then those that it names; an unknown one is an `InputError`."""
    further = [REGISTERED.get(name) for name in settings.metrics if name not in {metric.name for metric in METRICS}]
    for metric in further:
        if not metric.is_of_answers:
            raise InputError(f"{NAME}: metrics: {metric.name} is not computed from answers")
    return (*METRICS, *further)
