"""The gallery of surest answers: the images outside a source that its models are surest of, and what they answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.tables import SOURCE
from roadworthy.engine.plan import PlannedCase, PlannedStimulus
from roadworthy.metrics import Answers
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.od_test.names import ANSWERS, OUTLIERS
from roadworthy.protocols.od_test.subjects import Subject
from roadworthy.protocols.pictures import save_strip

MOST = 3
"""Images of a set that are shown for each model."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Surest:
    """One of the images of a set that a model is surest of: the row of the image, and the row of the table."""

    source: str
    image: int
    row: Row


def outlier_answers(subject: Subject) -> dict[str, StoredCase]:
    """What the model of a subject was asked about sets outside, by the name of the set; failed cases are left out."""
    return {
        case.labels["set"].removeprefix(OUTLIERS): case
        for case in subject.cases
        if case.labels["role"] == ANSWERS
        and case.labels["model"] == subject.model
        and case.labels["set"].startswith(OUTLIERS)
        and not case.failure
    }


def surest_images(answers: Answers, groups: Sequence[str]) -> list[int]:
    """The rows of the surest answers (by log-odds where they are known, else by probability), one row per object.

    Of equal answers the first row comes first.

    >>> p = np.array([[0.6, 0.4], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
    >>> surest_images(Answers.from_probabilities(p, np.zeros(4, np.int64)), ["a", "b", "b", "c"])
    [1, 3, 0]
    """
    first: dict[str, int] = {}
    for row in np.argsort(-answers.score, kind="stable").tolist():
        first.setdefault(groups[row], row)
        if len(first) == MOST:
            break
    return [*first.values()]


def surest_answers(subjects: Sequence[Subject], class_names: Mapping[str, Sequence[str]]) -> Iterator[Surest]:
    """The surest answers of every model to every set, and what the other models of its source answer to these images.

    `class_names` are those of every source.
    """
    for source in dict.fromkeys(subject.source for subject in subjects):
        own = [subject for subject in subjects if subject.source == source]
        stored = {subject.model: outlier_answers(subject) for subject in own}
        for name in dict.fromkeys(name for known in stored.values() for name in known):
            readouts = {model: known[name].load() for model, known in stored.items() if name in known}
            for subject in own:
                if subject.model not in readouts:
                    continue
                shown = readouts[subject.model]
                for rank, image in enumerate(surest_images(shown.answers, shown.groups), start=1):
                    where = {"source": subject.label, "set": name, "rank": rank}
                    for model, answered in readouts.items():
                        answers = answered.answers
                        answer = class_names[source][int(answers.prediction[image])]
                        probability = float(answers.confidence[image])
                        identity = {"answered_by": model, "id": shown.ids[image]}
                        yield Surest(source, image, where | identity | {"answer": answer, "probability": probability})


def save_surest(surest: Sequence[Surest], cases: Sequence[PlannedCase], media: Path) -> list[Row]:
    """Write the picture of each of these images once; the rows say which file shows which image of a source."""
    shown: dict[tuple[str, str], PlannedStimulus] = {
        (case.source, case.labels["set"].removeprefix(OUTLIERS)): case.showing
        for case in cases
        if case.labels["role"] == ANSWERS and case.labels["set"].startswith(OUTLIERS)
    }
    rows: dict[tuple[str, str, int], Row] = {}
    for one in surest:
        name = one.row["set"]
        showing = shown[one.source, name]
        picture = save_strip(showing, media / f"seen-{showing.stimulus.key}-{one.image}.png", [one.image])
        row = {SOURCE: one.source} if one.source else {}
        rows[one.source, name, one.image] = row | {"set": name, "id": one.row["id"], "media": picture}
    return [*rows.values()]
