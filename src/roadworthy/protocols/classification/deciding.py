"""Which objects decide a criterion on answers under shifts, and the image of each that weighs most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import UNDISTURBED
from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.deciding import ImageValues, class_words, picture_name, weighing_objects, weight_words
from roadworthy.statistics import Estimate, mean_interval, proportion_interval
from roadworthy.statistics.deciding import heaviest_first
from roadworthy.statistics.summaries import Floats, mean_per_image
from roadworthy.verdict import Criterion, Why
from roadworthy.verdict.why import OBJECTS_SHOWN, DecidingObject, no_single_images

if TYPE_CHECKING:
    from roadworthy.protocols.classification.tables import CellKey, Evidence

CONDITIONS_NAMED = 3
STORED_DIGITS = 7
"""Values of images are kept in single precision: what they lack of a round figure beyond that is no shortfall."""


def decide(evidence: Evidence, keys: Sequence[CellKey], criterion: Criterion) -> Why:
    """What decides a criterion in these cells: one, or those that it pools."""
    metric = find_metric(criterion.metric, evidence.metrics)
    question = _Question(evidence, keys, criterion, metric)
    if not question.whole.mean_over_objects:
        return no_single_images(f"{metric.name} is a figure of all answers together, not a mean over images")
    images = question.images()
    threshold = criterion.threshold / question.factor
    contributions = images.contributions(criterion, threshold)
    order = heaviest_first(contributions)
    weighing = weighing_objects(contributions)
    classes = class_words(question.classes(), weighing, contributions)
    sentences = [
        weight_words(contributions, weighing),
        *([f"Classes of these objects, the heaviest first: {classes}."] if classes else []),
        *images.words(criterion, threshold, order),
        *question.condition_words(),
    ]
    chosen = [question.stands_for(images, index, contributions[index]) for index in weighing[:OBJECTS_SHOWN]]
    return Why(tuple(sentences), tuple(chosen), len(weighing), classes)


@dataclass(frozen=True)
class _Question:
    """A criterion on a metric in some cells."""

    evidence: Evidence
    keys: Sequence[CellKey]
    criterion: Criterion
    metric: Metric

    @property
    def measured(self) -> Metric:
        """The metric of answers itself: that of which it is the drop, or it."""
        return self.metric.drop_of or self.metric

    @property
    def whole(self) -> Metric:
        """The metric that has a value per image, of which it may be a multiple."""
        return self.evidence.bounded_by(self.measured)[0]

    @property
    def factor(self) -> float:
        """What the metric is times the one that has a value per image."""
        return self.evidence.bounded_by(self.measured)[1]

    def per_image(self, keys: Sequence[CellKey]) -> Floats:
        """The mean over cells of the values of images, (n,), to the digits that are stored of each."""
        return mean_per_image([self.evidence.cells[key] for key in keys], self.whole.name).round(STORED_DIGITS)

    @property
    def worse(self) -> float:
        """+1 where the figure grows with the values of images; -1 for the drop of what should be high."""
        return -1.0 if self.metric.drop_of and self.measured.higher_is_better else 1.0

    def images(self) -> ImageValues:
        """The values of images: of a drop, how much worse each is than undisturbed."""
        evidence, confidence = self.evidence, self.criterion.confidence
        low, high = self.whole.limits(len(evidence.class_names))
        best = high if self.criterion.sign * self.worse > 0 else low
        values = self.per_image(self.keys)
        if self.metric.drop_of is None:

            def bound(given: Floats) -> Estimate:
                if self.whole.proportion:
                    return proportion_interval(given, evidence.objects, confidence)
                return mean_interval(given.clip(low, high), evidence.objects, low, high, confidence)

            return ImageValues(values, np.full(len(values), best), evidence.objects, evidence.group_count, bound)
        room, firsts = high - low, {key.model: key for key in reversed(self.keys)}
        undisturbed = self.per_image([replace(key, shift=UNDISTURBED, level=0) for key in firsts.values()])

        def bound_of_drop(given: Floats) -> Estimate:
            return mean_interval(given.clip(-room, room), evidence.objects, -room, room, confidence)

        drops, least = self.worse * (values - undisturbed), self.worse * (best - undisturbed)
        return ImageValues(drops, least, evidence.objects, evidence.group_count, bound_of_drop)

    def classes(self) -> list[str]:
        """The class of every object: that of its first image."""
        _, firsts = np.unique(self.evidence.objects, return_index=True)
        return [self.evidence.class_names[int(self.evidence.labels[row])] for row in firsts]

    def condition_words(self) -> list[str]:
        """The conditions that are furthest from the threshold, where several are pooled."""
        if len(self.keys) < 2:
            return []
        better = self.criterion.sign * self.worse * self.factor
        means = {key: float(self.per_image([key]).mean()) for key in self.keys}
        worst = sorted(means, key=lambda key: (better * means[key], key.order()))[:CONDITIONS_NAMED]
        name = self.measured.name
        named = ", ".join(f"{key.model} {key.shift} level {key.level} {self.factor * means[key]:.4f}" for key in worst)
        return [f"Of the {len(self.keys)} conditions that are pooled, the furthest away ({name}): {named}."]

    def stands_for(self, images: ImageValues, index: int, contribution: float) -> DecidingObject:
        """An object with its image that weighs most, in the cell and repeat in which it weighs most."""
        evidence, sign = self.evidence, self.criterion.sign
        rows: NDArray[np.int64] = np.flatnonzero(evidence.objects == index)
        ordered = sorted(rows.tolist(), key=lambda row: evidence.ids[row])
        row = min(ordered, key=lambda row: sign * images.values[row])
        per_cell = {key: float(evidence.cells[key].per_image[self.whole.name][row]) for key in self.keys}
        key = min(per_cell, key=lambda key: sign * self.worse * per_cell[key])
        cases = [case for case in evidence.cases if type(key).of(case) == key]
        repeats = [(case, case.load().answers) for case in sorted(cases, key=lambda case: case.stimulus.repeat)]
        case, answers = min(repeats, key=lambda pair: sign * self.worse * float(self.whole.per_image(pair[1])[row]))
        return DecidingObject(
            group=evidence.groups[row],
            images=len(rows),
            value=self.factor * float(images.values[rows].mean()),
            contribution=self.factor * float(contribution),
            id=evidence.ids[row],
            label=evidence.class_names[int(answers.label[row])],
            prediction=evidence.class_names[int(answers.prediction[row])],
            confidence=float(answers.confidence[row]),
            model=key.model,
            case=case.hash,
            row=row,
            picture=picture_name(case, row),
        )
