"""Why criteria are not met, as the report shows it: from verdict.json, the table `deciding` and its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_rows
from roadworthy.report.words import number, words_of
from roadworthy.verdict.why import DECIDING


@dataclass(frozen=True)
class ShownObject:
    """An object that decides a criterion, in words, and the picture of the image that stands for it, if it was drawn.

    `share` is what it adds to the shortfall, in the metric's unit.
    """

    group: str
    images: int
    share: str
    id: str
    label: str
    prediction: str
    confidence: float
    model: str
    picture: Picture | None

    @property
    def right(self) -> bool:
        """Whether the image that stands for it was answered right."""
        return self.label == self.prediction


@dataclass(frozen=True)
class WhyFacts:
    """What decides a criterion: the condition it is explained for, sentences, and objects, the heaviest first."""

    where: str
    sentences: tuple[str, ...]
    objects: tuple[ShownObject, ...] = ()

    @property
    def without_pictures(self) -> bool:
        """Whether an object has no picture: its image was not at hand when the criterion was judged."""
        return any(shown.picture is None for shown in self.objects)


def read_why(run: Path) -> dict[str, tuple[Row, ...]]:
    """The rows of the table `deciding` by criterion; none where a run does not have it."""
    rows = read_rows(run, DECIDING.name, None) if has_table(run, DECIDING.name) else []
    return {name: tuple(row for row in rows if row["criterion"] == name) for name in {row["criterion"] for row in rows}}


def why_facts(run: Path, entry: Mapping[str, Any], rows: Mapping[str, tuple[Row, ...]]) -> WhyFacts | None:
    """Why one criterion of verdict.json is not met; None where it is, or where the run is of an earlier version."""
    why = entry.get("why")
    if not why:
        return None
    metric = words_of(entry["metric"])
    if metric.percent and metric.higher_is_better is not None and not metric.drop_of:
        metric = metric.drop()  # a difference is read in points
    objects = tuple(
        ShownObject(
            share=number(metric, number_of(row["contribution"])),
            confidence=number_of(row["confidence"]),
            picture=Picture(media_path(run, row["media"])) if row["media"] else None,
            **{name: row[name] for name in ("group", "images", "id", "label", "prediction", "model")},
        )
        for row in rows.get(entry["id"], ())
    )
    where = ", ".join(f"{name} {value}" for name, value in why["where"].items())
    return WhyFacts(where, tuple(why["sentences"]), objects)
