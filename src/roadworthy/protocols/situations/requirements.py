"""Requirements: what must hold in a situation."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Requirement(BaseModel):
    """What must hold in a situation: a metric of at least or at most a threshold; `id` names it in tables.

    >>> Requirement(metric="accuracy", at_least=0.9).name
    'accuracy at least 0.9'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str
    at_least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    at_most: Annotated[float, Field(allow_inf_nan=False)] | None = None
    id: str = ""

    @model_validator(mode="after")
    def _one_threshold(self) -> Requirement:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give exactly one of at_least and at_most")
        return self

    @property
    def threshold(self) -> float:
        """The value that must be reached."""
        limit = self.at_least if self.at_least is not None else self.at_most
        assert limit is not None
        return limit

    @property
    def sign(self) -> int:
        """+1 where more is better (at_least), -1 where less is (at_most)."""
        return 1 if self.at_least is not None else -1

    @property
    def sentence(self) -> str:
        """What is required, in words."""
        return f"{self.metric} {'at least' if self.sign > 0 else 'at most'} {self.threshold:g}"

    @property
    def name(self) -> str:
        """What tables and criteria call it."""
        return self.id or self.sentence
