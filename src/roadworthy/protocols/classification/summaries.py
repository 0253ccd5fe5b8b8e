"""What is kept of the stored answers of one model, shift and level: values, resamples, confusions, mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics import Answers, Metric, Reliability, reliability
from roadworthy.protocols.pictures import gallery_rows
from roadworthy.statistics import GroupBootstrap
from roadworthy.statistics.estimates import mean_rows

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
class AnswerSummary:
    """What is kept of the readouts of one model, shift and level: twelve bytes per image, and sums.

    per_image  for each metric that is bounded as a mean over objects: its (n,) values, averaged over repeats
    values     per metric, its value in each repeat
    resampled  per other metric, its mean over repeats in each bootstrap resample, (B,)
    missing    per metric that is undefined, why;  no_bounds: per metric that could not be resampled, why
    confusion  counts by (label, prediction)
    mistakes   the most confident wrong answers
    gallery    the answers to the images of the gallery, in the first repeat
    """

    per_image: Mapping[str, NDArray[np.float32]]
    values: Mapping[str, Sequence[float]]
    resampled: Mapping[str, NDArray[np.float64]]
    missing: Mapping[str, str]
    no_bounds: Mapping[str, str]
    confusion: Mapping[tuple[int, int], int]
    reliability: Reliability
    mistakes: Sequence[StoredAnswer]
    gallery: Sequence[StoredAnswer]


def summarise_answers(
    repeats: Sequence[Answers], metrics: Sequence[Metric], bootstrap: GroupBootstrap
) -> AnswerSummary:
    """Measure the metrics in every repeat; one that is a multiple of another is bounded by that one."""
    measured = {metric.name: [metric.measure(answers) for answers in repeats] for metric in metrics}
    missing = {name: [one.reason for one in of_repeats if one.reason] for name, of_repeats in measured.items()}
    bounded = [metric for metric in metrics if metric.multiple_of not in metrics]
    means = [metric for metric in bounded if metric.mean_over_objects and not missing[metric.name]]
    drawn = [metric for metric in bounded if not metric.mean_over_objects]
    resampled = [bootstrap.distributions(drawn, answers) for answers in repeats]
    return AnswerSummary(
        per_image={
            metric.name: np.asarray(np.mean([metric.per_image(answers) for answers in repeats], axis=0), np.float32)
            for metric in means
        },
        values={name: [float(one.values[0]) for one in of_repeats] for name, of_repeats in measured.items()},
        resampled={metric.name: mean_rows([of_all[metric.name].values for of_all in resampled]) for metric in drawn},
        missing={name: reasons[0] for name, reasons in missing.items() if reasons},
        no_bounds={
            name: result.reason
            for of_all in resampled
            for name, result in of_all.items()
            if result.reason and not missing[name]
        },
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
    mistakes = []
    for repeat, answers in enumerate(repeats):
        wrong = np.flatnonzero(~answers.correct)
        most_confident = wrong[np.argsort(-answers.confidence[wrong], kind="stable")][:MISTAKES_KEPT]
        mistakes += [_answer(answers, row, repeat) for row in most_confident.tolist()]
    return sorted(mistakes, key=lambda mistake: (-mistake.confidence, mistake.repeat, mistake.row))[:MISTAKES_KEPT]


def _stacked(repeats: Sequence[Answers]) -> Answers:
    """The answers of all repeats one after the other (for pictures; never for bounds)."""
    columns = [column.name for column in fields(Answers) if column.name != "num_classes"]
    stacked = {name: np.concatenate([getattr(answers, name) for answers in repeats]) for name in columns}
    return Answers(**stacked, num_classes=repeats[0].num_classes)
