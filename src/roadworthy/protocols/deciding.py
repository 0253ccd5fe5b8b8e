"""What decides a criterion that is not met, in the words that protocols share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.protocols.base import StoredCase
from roadworthy.statistics import Estimate
from roadworthy.statistics.deciding import DIGITS, Floats, fewest, heaviest_first, shortfall_by_object
from roadworthy.verdict import Criterion
from roadworthy.verdict.why import OBJECTS_SHOWN

CLASSES_NAMED = 3


@dataclass(frozen=True)
class ImageValues:
    """A mean over images that misses its threshold.

    values, best   (n,) of the images: as measured, and the best that each could be
    objects, count the object of each image, and how many objects there are
    bound          from values (n,) to their mean with bounds
    """

    values: Floats
    best: Floats
    objects: NDArray[np.int64]
    count: int
    bound: Callable[[Floats], Estimate]

    def contributions(self, criterion: Criterion, threshold: float) -> Floats:
        """What each object adds to the shortfall, (count,)."""
        return shortfall_by_object(self.values, self.objects, self.count, threshold, criterion.sign)

    def repaired(self, order: NDArray[np.int64], first: int) -> Floats:
        """The values where the first so many objects of an order have the best ones."""
        chosen = np.zeros(self.count, np.bool_)
        chosen[order[:first]] = True
        return np.where(chosen[self.objects], self.best, self.values)

    def words(self, criterion: Criterion, threshold: float, order: NDArray[np.int64]) -> list[str]:
        """How few objects, in an order, would have to be as good as they can be for value and bound to reach it."""
        sign, count = criterion.sign, self.count
        side = "lower" if sign > 0 else "upper"

        def bound_reaches(first: int) -> bool:
            estimate = self.bound(self.repaired(order, first))
            return sign * ((estimate.lo if sign > 0 else estimate.hi) - threshold) >= 0

        def value_reaches(first: int) -> bool:
            return bool(sign * (self.repaired(order, first).mean() - threshold) >= -1e-12)

        of_value, of_bound = fewest(count, value_reaches), fewest(count, bound_reaches)
        reach = f"{'reach' if sign > 0 else 'come down to'} {criterion.threshold:g}"
        words = []
        if of_value:
            words.append(f"{_had(of_value, count)}, the value would {reach}.")
        if of_bound:
            words.append(f"{_had(of_bound, count)}, the {side} bound would {reach}.")
        if of_bound == 0:
            words.append(f"The {side} bound is as it must be; what lacks is the number of objects.")
        if of_bound is None:
            words.append(
                f"Even with the best possible answers for all {objects_in_words(count)} the {side} bound would not "
                f"{reach}: there are too few objects."
            )
        return words


def _had(first: int, count: int) -> str:
    number = f"first {first:,}" if first > 1 else "first"
    return f"Had the answers been as good as possible for the {number} of {objects_in_words(count)}"


def objects_in_words(count: int) -> str:
    """A number of objects.

    >>> objects_in_words(1200), objects_in_words(1)
    ('1,200 objects', '1 object')
    """
    return f"{count:,} object{'s' if count != 1 else ''}"


def weighing_objects(contributions: Floats) -> list[int]:
    """The objects that weigh against a threshold, the heaviest first."""
    return [int(index) for index in heaviest_first(contributions) if round(float(contributions[index]), DIGITS) > 0]


def weight_words(contributions: Floats, weighing: Sequence[int]) -> str:
    """How many objects weigh against the threshold, and how much of that lies in those that are listed."""
    start = f"{len(weighing):,} of {objects_in_words(len(contributions))} weigh against the threshold"
    if len(weighing) <= OBJECTS_SHOWN:
        return f"{start}."
    share = 100 * contributions[weighing[:OBJECTS_SHOWN]].sum() / contributions[weighing].sum()
    in_words = f"{share:.0f} %" if share >= 1 else "less than 1 %"
    return f"{start}; the {OBJECTS_SHOWN} shown make up {in_words} of that."


def class_words(classes: Sequence[str], weighing: Sequence[int], contributions: Floats) -> str:
    """In which classes what weighs against a threshold concentrates, and how many objects of each it is.

    `classes` and `contributions` are those of all objects, `weighing` are the objects that count.

    >>> class_words(["stop", "yield", "stop", "yield"], [0, 2, 3], np.array([0.1, -0.3, 0.1, 0.4]))
    'yield 1 of 2, stop 2 of 2'
    """
    in_all, counted = Counter(classes), Counter(classes[index] for index in weighing)
    weights = dict.fromkeys(counted, 0.0)
    for index in weighing:
        weights[classes[index]] += float(contributions[index])
    most = sorted(counted, key=lambda name: (-round(weights[name], DIGITS), name))
    named = ", ".join(f"{name} {counted[name]} of {in_all[name]}" for name in most[:CLASSES_NAMED])
    return named + (f", {len(most) - CLASSES_NAMED} more classes" if len(most) > CLASSES_NAMED else "")


def picture_name(case: StoredCase, row: int) -> str:
    """The file that shows an image as it was shown in a case."""
    return f"seen-{case.stimulus.key}-{row}.png"
