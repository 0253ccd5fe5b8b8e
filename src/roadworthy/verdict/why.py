"""Why a criterion is not met: the objects that weigh most against its threshold, and what would change that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roadworthy.core.tables import TableSpec

if TYPE_CHECKING:
    from roadworthy.verdict.judge import Finding, Judged

OBJECTS_SHOWN = 8
"""So many objects of a criterion are listed, each with a picture of one of its images."""
CRITERIA_EXPLAINED = 12
"""Of so many criteria that are not met the objects are listed: those that fail first."""
NAMED_IN_LINE = 3

DECIDING = TableSpec(
    "deciding",
    "An object that weighs against a criterion which is not met, the heaviest first, and one of its images as shown.",
    key=("criterion", "rank"),
    columns=(
        *("criterion", "rank", "model", "where", "group", "images", "value", "contribution"),
        *("id", "label", "prediction", "confidence", "media"),
    ),
    by_source=False,
)


@dataclass(frozen=True)
class DecidingObject:
    """An object, what it adds to the shortfall, and the image of it that stands for it.

    value         of the object's `images`: the mean of the metric, or the mean score of an image in a ranking
    contribution  to the shortfall, in the metric's unit
    id, label, prediction, confidence    of the image that is shown; `row` is its row in the data
    case          the hash of the case in which it was shown so;  picture: the file that shows it, if it was drawn
    """

    group: str
    images: int
    value: float
    contribution: float
    id: str
    label: str
    prediction: str
    confidence: float
    model: str
    case: str
    row: int
    picture: str


@dataclass(frozen=True)
class Why:
    """Why a criterion is not met in one condition: sentences, and the objects that weigh most, the heaviest first.

    `weighing` is how many objects weigh against the threshold in all; `classes` are those of most of them, in words.
    `where` is the condition, the one furthest from the threshold of so many `conditions` that decide the criterion.
    """

    sentences: tuple[str, ...]
    objects: tuple[DecidingObject, ...] = ()
    weighing: int = 0
    classes: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    conditions: int = 1

    @property
    def condition(self) -> str:
        """The condition in words."""
        return ", ".join(f"{key} {value}" for key, value in self.where.items())

    @property
    def line(self) -> str:
        """The objects in one line of text; empty where no single ones decide."""
        if not self.objects:
            return ""
        names = [weighed.group for weighed in self.objects[:NAMED_IN_LINE]]
        more = self.weighing - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        classes = f" ({self.classes})" if self.classes else ""
        where = f"{self.condition}: " if self.conditions > 1 else ""
        return f"{where}decided by object{'s' if len(names) > 1 else ''} {listed}{classes}"

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for verdict.json; the objects themselves are in the table `deciding`."""
        return {"where": dict(self.where), "sentences": [*self.sentences], "line": self.line}


def no_single_images(reason: str) -> Why:
    """Where no single images decide a figure, or which do is not known: the reason in words."""
    return Why((f"No single images are named here: {reason}.",))


def harm(sign: int, status: str, figures: Iterable[float | None]) -> tuple[float, float]:
    """A key that sorts the conditions of one status, the one that speaks most against the criterion first.

    sign      +1 where more is better (`at_least`), -1 where less is
    figures   the value, the lower and the upper bound; None (as JSON has it) or NaN where there is none

    Where it is not met, the condition with the worst value comes first, and of equal ones that with the worse bound on
    the safe side. Where it is met, every value is good: there the worse bound comes first, then the worse value.
    Conditions without a value come last. A value of None above a lower bound is infinite.

    >>> rows = [(0.89, 0.88, 0.895), (0.1, 0.08, 0.12), (None, None, None)]
    >>> min(rows, key=lambda row: harm(1, "fail", row))
    (0.1, 0.08, 0.12)
    """
    value, lo, hi = (math.nan if number is None else number for number in figures)
    value = math.inf if math.isnan(value) and not math.isnan(lo) else value
    keys = [math.inf if math.isnan(number) else sign * number for number in (value, lo if sign > 0 else hi)]
    return (keys[1], keys[0]) if status == "pass" else (keys[0], keys[1])


def deciding_row(finding: Finding) -> Judged:
    """The condition that is quoted for a criterion: of those with its status the one that speaks most against it."""

    def key(row: Judged) -> tuple[float, float]:
        estimate = row.measurement.estimate
        return harm(finding.criterion.sign, row.status, (estimate.value, estimate.lo, estimate.hi))

    return min((row for row in finding.rows if row.status == finding.status), key=key)


def stored_deciding_row(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same of an entry of verdict.json."""
    rows: list[Mapping[str, Any]] = [row for row in entry["rows"] if row["status"] == entry["status"]]
    return min(rows, key=lambda row: stored_harm(entry, row))


def stored_harm(entry: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[float, float]:
    """`harm` of a row of an entry of verdict.json."""
    return harm(1 if entry.get("at_least") is not None else -1, row["status"], (row["value"], row["lo"], row["hi"]))


def deciding_rows(findings: Iterable[Finding], drawn: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the table `deciding`; `drawn` names the pictures that there are."""
    return [
        {
            "criterion": finding.criterion.id,
            "rank": rank,
            "model": weighed.model,
            "where": finding.why.condition,
            **{
                name: getattr(weighed, name)
                for name in ("group", "images", "value", "contribution", "id", "label", "prediction", "confidence")
            },
            "media": weighed.picture if weighed.picture in drawn else "",
        }
        for finding in findings
        if finding.why
        for rank, weighed in enumerate(finding.why.objects, start=1)
    ]
