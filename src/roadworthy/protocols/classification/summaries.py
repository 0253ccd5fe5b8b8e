"""What is kept of the stored answers of one model, shift and level: values, resamples, confusions, mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from roadworthy.metrics import Answers, Metric, Reliability, reliability
from roadworthy.protocols.pictures import gallery_rows
from roadworthy.statistics import GroupBootstrap
from roadworthy.statistics.summaries import MetricSummary, summarise_metrics

MISTAKES_KEPT = 50


@dataclass(frozen=True)
class StoredAnswer:
    """One answer: to which row of the data, in which repeat."""

    confidence: float
    p_label: float
    repeat: int
    row: int
    label: int
    prediction: int


@dataclass(frozen=True)
class AnswerSummary(MetricSummary):
    """What is kept of the readouts of one model, shift and level: twelve bytes per image, and sums.

    confusion  counts by (label, prediction)
    mistakes   the most confident wrong answers
    gallery    the answers to the images of the gallery, in the first repeat
    """

    confusion: Mapping[tuple[int, int], int]
    reliability: Reliability
    mistakes: Sequence[StoredAnswer]
    gallery: Sequence[StoredAnswer]


def summarise_answers(
    repeats: Sequence[Answers], metrics: Sequence[Metric], bootstrap: GroupBootstrap
) -> AnswerSummary:
    """Measure the metrics in every repeat, and keep what tables and pictures show of single answers."""
    return AnswerSummary(
        **vars(summarise_metrics(repeats, metrics, bootstrap)),
        confusion=_confusion(repeats),
        reliability=reliability(_stacked(repeats)),
        mistakes=_mistakes(repeats),
        gallery=[_answer(repeats[0], row) for row in gallery_rows(repeats[0].label)],
    )


def _confusion(repeats: Sequence[Answers]) -> dict[tuple[int, int], int]:
    classes = repeats[0].num_classes
    pairs = np.concatenate([answers.label * classes + answers.prediction for answers in repeats])
    unique_pairs, counts = np.unique(pairs, return_counts=True)
    return {divmod(int(pair), classes): int(count) for pair, count in zip(unique_pairs, counts, strict=True)}


def _answer(answers: Answers, row: int, repeat: int = 0) -> StoredAnswer:
    columns = ("confidence", "p_label", "label", "prediction")
    return StoredAnswer(**{name: getattr(answers, name)[row].item() for name in columns}, repeat=repeat, row=row)


def _mistakes(repeats: Sequence[Answers]) -> list[StoredAnswer]:
    """The surest wrong answers of all repeats; of equal ones the first repeat and row come first."""
    mistakes = []
    for repeat, answers in enumerate(repeats):
        wrong = np.flatnonzero(~answers.correct)
        surest = wrong[np.argsort(-answers.score[wrong], kind="stable")][:MISTAKES_KEPT]
        mistakes += [(-answers.score[row], repeat, row) for row in surest.tolist()]
    return [_answer(repeats[repeat], row, repeat) for _, repeat, row in sorted(mistakes)[:MISTAKES_KEPT]]


def _stacked(repeats: Sequence[Answers]) -> Answers:
    """The answers of all repeats one after the other (for pictures; never for bounds)."""
    columns = [column.name for column in fields(Answers) if column.name not in ("num_classes", "log_odds")]
    stacked = {name: np.concatenate([getattr(answers, name) for answers in repeats]) for name in columns}
    return Answers(**stacked, num_classes=repeats[0].num_classes)
