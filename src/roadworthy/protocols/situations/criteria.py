"""Which rows of the tables of expected situations a criterion speaks of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.metrics import Metric
from roadworthy.metrics.base import EXPECTED
from roadworthy.protocols.base import RefusedCriterion, matching
from roadworthy.protocols.situations.expected import Context
from roadworthy.protocols.situations.metrics import SHARE_MET
from roadworthy.verdict import Criterion


@dataclass(frozen=True)
class RowKey:
    """What a row speaks of: a model, and the situation or the requirement where it is not of all situations."""

    model: str
    situation: str = ""
    shift: str = ""
    level: int = 0
    set: str = ""
    requirement: str = ""

    def where(self) -> dict[str, Any]:
        """What names it."""
        named = {"model": self.model, "situation": self.situation, "requirement": self.requirement}
        return {name: value for name, value in named.items() if value}


def check_metric(what: str, name: str, metrics: Iterable[Metric]) -> None:
    """Raise an `InputError` where a metric is not measured; `what` names who asks for it."""
    known = [metric.name for metric in metrics]
    if name not in known:
        raise InputError(f"{what}: {UnknownName('metric', name, known)}")


def select(models: Iterable[str], context: Context, criterion: Criterion) -> list[RowKey]:
    """The rows that match a criterion; a value that matches nothing is an error."""
    ordered = sorted(models)
    columns: tuple[str, ...] = ("model",)
    if criterion.metric == SHARE_MET.name:
        rows = [RowKey(model, requirement=own.name) for model in ordered for own in context.requirements]
        columns = ("model", "requirement")
        if not rows:
            raise InputError(
                f"criterion {criterion.id}: {criterion.metric} is the share of situations that meet a requirement, and "
                "the study has none: name one under situations: requirements"
            )
    elif criterion.metric.startswith(EXPECTED):
        rows = [RowKey(model) for model in ordered]
    else:
        situations = [(own.name, own.shift, own.level, own.set) for own in context.situations]
        rows = [RowKey(model, *situation) for model in ordered for situation in situations]
        columns = ("model", "situation", "shift", "level", "set")
    chosen = matching(f"criterion {criterion.id}", rows, columns, criterion)
    if criterion.over == "pooled" and len(chosen) > 1:
        raise RefusedCriterion(
            f"criterion {criterion.id}: situations are not pooled, since they occur more or less often: judge "
            f"{EXPECTED}{criterion.metric.removeprefix(EXPECTED)} of a model, or say over: each or over: worst"
        )
    return chosen
