"""What names a row of the tables of ood: a model against a set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roadworthy.core.types import UNDISTURBED
from roadworthy.protocols.base import KnownCase
from roadworthy.protocols.ood.settings import KINDS


@dataclass(frozen=True)
class SetKey:
    """One row of the table: a model against a set. `foreign` is the foreign set it is, or is made from."""

    model: str
    ood_set: str
    kind: str
    shift: str
    level: float
    foreign: str = ""

    @classmethod
    def of(cls, case: KnownCase) -> SetKey:
        """The row that the outlier side of a set belongs to."""
        labels, level = case.labels, case.stimulus.level
        shift, foreign = labels.get("shift", UNDISTURBED), labels.get("foreign", "")
        return SetKey(case.system, labels["ood_set"], labels["kind"], shift, level, foreign)

    def order(self) -> tuple[Any, ...]:
        """Models by name, then kinds from easy to hard and unknown ones last, then sets by name."""
        return self.model, [*KINDS, self.kind].index(self.kind), self.ood_set

    def where(self) -> dict[str, Any]:
        """The columns that identify it."""
        return {**vars(self)}
