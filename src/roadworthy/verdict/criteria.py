"""Acceptance criteria: what must hold, for which conditions, with what confidence and how much evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from roadworthy.core.errors import InputError
from roadworthy.core.validation import check_no_nul, explain, read_yaml
from roadworthy.metrics import current_name

Threshold = Annotated[float, Field(allow_inf_nan=False)]


class Criterion(BaseModel):
    """One requirement.

    `at_least` or `at_most` is the acceptance criterion (the tolerated risk); `min_groups` the validation target (the
    least number of independent objects that may support a pass). `over` says how several matching conditions count:
    `each` must hold by itself, `worst` judges the worst of them, `pooled` their average per image.
    A metric may be named as in an earlier version (`fpr95`).

    >>> Criterion(id="REQ-12", metric="accuracy", where={"shift": "fog"}, at_least=0.95).over
    'each'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=1)]
    metric: Annotated[str, AfterValidator(current_name)]
    where: dict[str, Any] = {}
    over: Literal["each", "worst", "pooled"] = "each"
    at_least: Threshold | None = None
    at_most: Threshold | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    min_groups: Annotated[int, Field(ge=1)] = 1
    hazard: str = ""

    @field_validator("id", "hazard")
    @classmethod
    def _plain(cls, value: str) -> str:
        check_no_nul("name of a criterion or hazard", [value])
        return value

    @field_validator("at_least", "at_most", "confidence", "min_groups", mode="before")
    @classmethod
    def _is_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"give a number, not {str(value).lower()}")
        return value

    @model_validator(mode="after")
    def _one_threshold(self) -> Criterion:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give exactly one of at_least and at_most")
        return self

    @property
    def threshold(self) -> float:
        """The value that the bound on the safe side must reach."""
        limit = self.at_least if self.at_least is not None else self.at_most
        assert limit is not None
        return limit

    @property
    def sign(self) -> int:
        """+1 where more is better (at_least), -1 where less is (at_most)."""
        return 1 if self.at_least is not None else -1

    def sentence(self) -> str:
        """The requirement in words."""
        limit = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        where = ", ".join(f"{key} {_words(value)}" for key, value in self.where.items() if key != "protocol")
        return f"{self.metric} {limit}" + (f" for {where}" if where else "") + f" ({self.over}, {self.confidence:.0%})"


def _words(value: Any) -> str:
    return " or ".join(str(item) for item in value) if isinstance(value, list) else str(value)


def criteria_file_of(source: str | Path | list[Any] | None) -> str:
    """The file that `load_criteria` reads, as it was named; empty where it is given a list or nothing."""
    return str(source) if isinstance(source, str | Path) else ""


def load_criteria(source: str | Path | list[Any] | None, base: Path = Path()) -> list[Criterion]:
    """Criteria from a YAML file (a list, or a mapping with the key `criteria`) or from a list already parsed."""
    if source is None:
        return []
    what = "criteria"
    if isinstance(source, str | Path):
        what = str(source)
        source = read_yaml(base / source, "criteria")
    if isinstance(source, dict) and set(source) == {"criteria"}:
        source = source["criteria"]
    if not isinstance(source, list) or not source:
        raise InputError(f"{what} must be a list of criteria, each with id, metric and at_least or at_most")
    criteria = []
    for number, entry in enumerate(source, start=1):
        try:
            criteria.append(Criterion.model_validate(entry))
        except ValidationError as error:
            raise InputError(f"{what}, criterion {number}: {explain(error, Criterion)}") from None
    names = [criterion.id for criterion in criteria]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{what}: the id {repeated[0]!r} is used more than once")
    return criteria
