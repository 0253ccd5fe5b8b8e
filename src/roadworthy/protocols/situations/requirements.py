"""Requirements: what must hold in a situation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from roadworthy.verdict.criteria import OneThreshold, Threshold


class Requirement(OneThreshold, BaseModel):
    """What must hold in a situation: a metric of at least or at most a threshold; `id` names it in tables.

    >>> Requirement(metric="accuracy", at_least=0.9).name
    'accuracy at least 0.9'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str
    at_least: Threshold | None = None
    at_most: Threshold | None = None
    id: str = ""

    @property
    def sentence(self) -> str:
        """What is required, in words."""
        return f"{self.metric} {'at least' if self.sign > 0 else 'at most'} {self.threshold:g}"

    @property
    def name(self) -> str:
        """What tables and criteria call it."""
        return self.id or self.sentence
