"""Which objects decide a figure: what each adds to the shortfall from a threshold, and how few make up for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.statistics.nested import smallest_settled

Floats = NDArray[np.float64]

DIGITS = 12
"""Contributions that agree to so many digits are equal: rounding must not decide which object is named first."""


def shortfall_by_object(values: ArrayLike, objects: ArrayLike, count: int, threshold: float, sign: int) -> Floats:
    """What each of `count` objects adds to the shortfall of a mean from its threshold, (count,), in the metric's unit.

    With v_i the values of n images, t the threshold, and sign +1 where the mean must reach t from below (at least), -1
    where it must not exceed t (at most):

        c_g = sign * sum over the images i of object g of (t - v_i) / n,      sum of c_g = sign * (t - mean)

    An object that does better than the threshold has a negative contribution.

    >>> shortfall_by_object([0, 1, 1, 1], [0, 0, 1, 2], 3, 0.9, 1).round(3).tolist()
    [0.2, -0.025, -0.025]
    """
    per_image = np.asarray(values, np.float64)
    lacking = sign * (threshold - per_image)
    return np.bincount(np.asarray(objects), lacking, count) / max(len(per_image), 1)


def heaviest_first(contributions: ArrayLike) -> NDArray[np.int64]:
    """The indices of objects, the largest contribution first; of equal ones the first index.

    >>> heaviest_first([0.1, 0.3, 0.1 + 1e-17, 0.3]).tolist()
    [1, 3, 0, 2]
    """
    return np.argsort(-np.round(np.asarray(contributions, np.float64), DIGITS), kind="stable")


def fewest(count: int, reaches: Callable[[int], bool]) -> int | None:
    """The smallest number of objects, taken in their order, with which a figure reaches its threshold.

    `reaches(k)` says whether it does where the first k have the best possible values. None where it does not even with
    all of them.

    >>> fewest(10, lambda k: k >= 4), fewest(10, lambda k: True), fewest(10, lambda k: False)
    (4, 0, None)
    """
    if reaches(0):
        return 0
    return smallest_settled(reaches, 0, count) if reaches(count) else None


def lost_pairs(scores: ArrayLike, inside: ArrayLike) -> Floats:
    """The share of pairs (inside, outside) that each image loses, (n,): what it costs the AUROC.

    An image inside loses to every image outside that scores higher, one outside to every image inside that scores
    lower; a tie is half a loss. Every lost pair is shared by its two images, so that the sum is 1 - AUROC.

    >>> lost_pairs([0.9, 0.4, 0.4, 0.1], [True, True, False, False]).tolist()
    [0.0, 0.0625, 0.0625, 0.0]
    """
    score, is_inside = np.asarray(scores, np.float64), np.asarray(inside, np.bool_)
    sides = np.sort(score[is_inside]), np.sort(score[~is_inside])
    pairs = len(sides[0]) * len(sides[1])
    if not pairs:
        return np.zeros(len(score))
    below = [np.searchsorted(side, score, "left").astype(np.float64) for side in sides]
    up_to = [np.searchsorted(side, score, "right").astype(np.float64) for side in sides]
    beaten_by_outside = len(sides[1]) - (below[1] + up_to[1]) / 2
    beats_inside = (below[0] + up_to[0]) / 2
    return np.asarray(np.where(is_inside, beaten_by_outside, beats_inside) / (2 * pairs))
