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


def explained_row(finding: Finding) -> Judged:
    """The condition of a criterion that is explained: of those that decide it the one furthest from the threshold."""
    criterion = finding.criterion
    rows = [row for row in finding.rows if row.status == finding.status]

    def distance(row: Judged) -> float:
        value = row.measurement.estimate.value
        return math.inf if math.isnan(value) else criterion.sign * (value - criterion.threshold)

    return min(rows, key=distance)


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
