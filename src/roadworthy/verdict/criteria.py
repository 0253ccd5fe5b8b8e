"""Acceptance criteria: what must hold, for which conditions, with what confidence and how much evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.validation import check_no_nul, explain, read_yaml
from roadworthy.verdict.questions import question_in_settings

Threshold = Annotated[float, Field(allow_inf_nan=False)]
LATER_FIELDS = ("question", "triggering_condition", "against")
"""Fields of a criterion that are left out where they are not set: those of runs from before have none."""
Correction = Literal["none", "holm", "holm_all"]
"""What is corrected for the number of claims: nothing, claims that a criterion fails, or that it passes as well."""


class OneThreshold:
    """What criteria and requirements share: exactly one of the fields `at_least` and `at_most` is given."""

    if TYPE_CHECKING:  # fields of the classes that are derived from it, in an order of their own
        at_least: float | None
        at_most: float | None

    @model_validator(mode="after")
    def _one_threshold(self) -> Self:
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


class Criterion(OneThreshold, BaseModel):
    """One requirement.

    `at_least` or `at_most` is the acceptance criterion (the tolerated risk); `min_groups` the validation target (the
    least number of independent objects that may support a pass). `over` says how several matching conditions count:
    `each` must hold by itself, `worst` judges the worst of them, `pooled` their average per image.
    `hazard` is what can happen where it does not hold, `triggering_condition` what of the scene brings it about.
    `question` names the question of an approval that it helps to answer (`verdict.questions`). With
    `against="baseline"` the threshold is on how much worse the metric is than in the baseline run, on the same objects:
    positive is worse, whichever way the metric goes.

    >>> Criterion(id="REQ-12", metric="accuracy", where={"shift": "fog"}, at_least=0.95).over
    'each'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=1)]
    metric: str
    where: dict[str, Any] = {}
    over: Literal["each", "worst", "pooled"] = "each"
    at_least: Threshold | None = None
    at_most: Threshold | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    min_groups: Annotated[int, Field(ge=1)] = 1
    hazard: str = ""
    question: Annotated[str, AfterValidator(question_in_settings)] | None = None
    triggering_condition: str = ""
    against: Literal["baseline"] | None = None

    @model_serializer(mode="wrap")
    def _without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A criterion that makes no use of the fields that came later is stored as it was before there were any."""
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if name not in LATER_FIELDS or value}

    @field_validator("id", "hazard", "triggering_condition")
    @classmethod
    def _plain(cls, value: str) -> str:
        check_no_nul("name of a criterion, hazard or triggering condition", [value])
        return value

    @field_validator("at_least", "at_most", "confidence", "min_groups", mode="before")
    @classmethod
    def _is_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"give a number, not {str(value).lower()}")
        if isinstance(value, str) and "," in value:
            raise ValueError(f"give a number with a point, such as 0.95, not {value!r}")
        return value

    @property
    def figure(self) -> str:
        """What is measured for it, in words."""
        return f"worsening of {self.metric} against the baseline" if self.against else self.metric

    @property
    def limit(self) -> str:
        """The threshold in words."""
        limit = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        return f"{limit} worse than the baseline" if self.against else limit

    @property
    def selection(self) -> str:
        """The conditions that it speaks of, in words; empty where it speaks of all."""
        return ", ".join(f"{key} {_words(value)}" for key, value in self.where.items() if key != "protocol")

    def sentence(self) -> str:
        """The requirement in words.

        >>> Criterion(id="R", metric="accuracy", where={"shift": "fog"}, against="baseline", at_most=0.02).sentence()
        'accuracy at most 0.02 worse than the baseline for shift fog (each, 95%)'
        """
        where = f" for {self.selection}" if self.selection else ""
        return f"{self.metric} {self.limit}{where} ({self.over}, {self.confidence:.0%})"

    @property
    def validation_target(self) -> str:
        """The amount of evidence that a pass needs, in words; empty where any will do."""
        return f"at least {self.min_groups:,} independent objects" if self.min_groups > 1 else ""


def _words(value: Any) -> str:
    return " or ".join(str(item) for item in value) if isinstance(value, list) else str(value)


class Decision(BaseModel):
    """The head of a criteria file: who decided on its thresholds, and when, and what is corrected for their number.

    `example` marks thresholds that nobody decided on: they show how a verdict looks, and are no judgement.
    `correction` is by Holm's method: see `verdict.correcting`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    decided_by: str = ""
    date: str = ""
    example: bool = False
    correction: Correction = "none"

    @model_serializer(mode="wrap")
    def _without_correction(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A head without a correction is stored as it was before there were any."""
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if name != "correction" or value != "none"}

    @field_validator("decided_by", "date", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """What is blank as empty text, and a date that YAML reads as one as it was written."""
        return "" if value is None else str(value) if isinstance(value, date) else value

    @field_validator("date")
    @classmethod
    def _is_day(cls, value: str) -> str:
        try:
            return date.fromisoformat(value).isoformat() if value.strip() else ""
        except ValueError:
            raise ValueError(f"{value!r} is no day: write it as 2026-11-30") from None

    def words(self) -> str:
        """In a few words: by whom, when."""
        known = ", ".join(filter(None, [self.decided_by, self.date]))
        return f"Thresholds decided by {known}." if known else ""


HEAD = tuple(Decision.model_fields)
"""The keys of a criteria file besides its criteria."""


@dataclass(frozen=True)
class DecidedCriteria:
    """Criteria, and who decided on them where their file says it."""

    criteria: tuple[Criterion, ...] = ()
    decision: Decision | None = None

    def content(self) -> Any:
        """As a study holds them: a list, or a mapping where there is a decision; None where there are none."""
        plain = [criterion.model_dump(exclude_none=True) for criterion in self.criteria]
        if self.decision is None or not plain:
            return plain or None
        return {**self.decision.model_dump(exclude_defaults=True), "criteria": plain}


CriteriaSource = str | Path | list[Any] | dict[str, Any] | None
"""Where criteria come from: a YAML file, or its content already parsed."""


def criteria_file_of(source: CriteriaSource) -> str:
    """The file that `load_criteria` reads, as it was named; empty where it is given a list or nothing."""
    return str(source) if isinstance(source, str | Path) else ""


def load_criteria(source: CriteriaSource, base: Path = Path()) -> list[Criterion]:
    """Criteria from a YAML file (a list, or a mapping with the key `criteria`) or from its content already parsed."""
    return [*load_decided(source, base).criteria]


def load_decided(source: CriteriaSource, base: Path = Path()) -> DecidedCriteria:
    """Criteria with the head of their file: who decided on the thresholds, and when.

    A file that has a head, or a threshold, that is not filled in is refused.
    """
    if source is None:
        return DecidedCriteria()
    what = "criteria"
    if isinstance(source, str | Path):
        what = str(source)
        source = read_yaml(base / source, "criteria")
    decision = None
    if isinstance(source, dict) and "criteria" in source:
        for key in source.keys() - {"criteria", *HEAD}:
            raise InputError(f"{what}: {UnknownName('key of a criteria file', str(key), ['criteria', *HEAD])}")
        head = {key: value for key, value in source.items() if key in HEAD}
        source = source["criteria"]
        decision = _decision(head, what) if head else None
    if not isinstance(source, list) or not source:
        raise InputError(f"{what} must be a list of criteria, each with id, metric and at_least or at_most")
    criteria = []
    for number, entry in enumerate(source, start=1):
        _check_filled_in(entry, what)
        try:
            criteria.append(Criterion.model_validate(entry))
        except ValidationError as error:
            raise InputError(f"{what}, criterion {number}: {explain(error, Criterion)}") from None
    names = [criterion.id for criterion in criteria]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{what}: the id {repeated[0]!r} is used more than once")
    return DecidedCriteria(tuple(criteria), decision)


def _decision(head: dict[str, Any], what: str) -> Decision:
    """The head of a criteria file; a blank name or date is refused, unless the thresholds are marked as examples."""
    try:
        decision = Decision.model_validate(head)
    except ValidationError as error:
        raise InputError(f"{what}: {explain(error, Decision)}") from None
    missing = {"decided_by": "the name of who decided on the thresholds", "date": "the day of that decision"}
    for key, words in missing.items() if head.keys() != {"correction"} else ():
        if not getattr(decision, key).strip() and not decision.example:
            raise InputError(f"{what}: {key} is blank: write {words} after `{key}:`")
    return decision


def _check_filled_in(entry: Any, what: str) -> None:
    """Refuse a criterion of a template whose threshold is still blank."""
    if not isinstance(entry, dict):
        return
    blank = [key for key in ("at_least", "at_most") if key in entry and entry[key] is None]
    if blank and entry.get("at_least") is None and entry.get("at_most") is None:
        raise InputError(
            f"{what}: the threshold of criterion {entry.get('id')} is blank: write the number that you decide on "
            f"after `{blank[0]}:`"
        )
