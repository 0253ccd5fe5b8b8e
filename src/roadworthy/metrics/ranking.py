"""Ranking: how well a score separates two classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.metrics.weighting import Floats, Weights, ratio, weight_rows

Rows = NDArray[np.intp]
CHUNK_ELEMENTS = 300_000
"""Weights ranked at once: what stays in the processor's cache is twice as fast, and memory stays bounded."""


@overload
def binary_auroc(scores: ArrayLike, positive: ArrayLike, weights: None = None) -> float: ...
@overload
def binary_auroc(scores: ArrayLike, positive: ArrayLike, weights: NDArray[np.floating]) -> float | Floats: ...
def binary_auroc(scores: ArrayLike, positive: ArrayLike, weights: NDArray[np.floating] | None = None) -> float | Floats:
    """Area under the ROC curve: P(score of a positive > score of a negative) + 1/2 P(equal).

    scores (n,), positive (n,) bool, weights None or (n,) -> float, weights (B, n) -> (B,). NaN where the weighted rows
    hold no positive or no negative. Scores are sorted once for all B.

    >>> binary_auroc([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    0.875
    >>> binary_auroc([0.9, 0.8], [True, True])
    nan
    """
    score = np.asarray(scores)
    is_positive = np.asarray(positive)
    if score.ndim != 1 or is_positive.shape != score.shape or is_positive.dtype != np.bool_:
        raise ValueError(f"AUROC needs (n,) scores and (n,) booleans, not {score.shape} and {is_positive.shape}")
    area = Ranking(score, is_positive).auroc(weight_rows(weights, len(score)))
    return area if weights is not None and np.ndim(weights) == 2 else float(area[0])


@dataclass(frozen=True)
class RankedImages:
    """A figure of a ranking and what single images add to it, for bounds that count objects (`statistics.ranked`).

    value     AUROC, or the share of negatives that are accepted with a share `at` of the positives
    positive  (n,) bool
    placed    (n,) float64: of AUROC, the share of the other side that an image is in the right order with, ties half;
              of a rate, 1 where the image is accepted. AUROC is its mean over either side, a rate that over negatives
    rates     of a rate, (m,): the share of negatives accepted by a threshold at each positive, lowest score first
    at        the share of positives that a rate accepts; None for AUROC
    """

    value: float
    positive: NDArray[np.bool_]
    placed: Floats
    rates: Floats | None = None
    at: float | None = None


TIED = "have equal scores and are in no order"
"""What is said of pairs of a positive and a negative with equal scores."""


def tied_share(scores: ArrayLike, positive: ArrayLike) -> float:
    """The share of pairs of a positive and a negative with equal scores: P(equal); NaN where a side is missing.

    AUROC counts half of it; whatever the order of those pairs is, it moves by no more than that.

    >>> tied_share([1.0, 1.0, 0.9, 0.9], [True, False, True, False])
    0.5
    """
    is_positive = np.asarray(positive)
    values, index = np.unique(np.asarray(scores), return_inverse=True)
    sides = [np.bincount(index[side], minlength=len(values)) for side in (is_positive, ~is_positive)]
    pairs = float(is_positive.sum()) * float((~is_positive).sum())
    return float(sides[0] @ sides[1]) / pairs if pairs else float("nan")


def ties_in_words(share: float) -> str:
    """What must be known of a figure of a ranking with this share of tied pairs; empty where there are none.

    >>> ties_in_words(0.1234), ties_in_words(0.0), ties_in_words(float("nan"))
    ('12.34 % of pairs have equal scores and are in no order', '', '')
    """
    if not share > 0:
        return ""
    words = f"{100 * share:.2f} %" if share >= 5e-5 else "less than 0.01 %"
    return f"{words} of pairs {TIED}"


class Ranking:
    """Scores (n,) of positives and negatives, put in order once, however many weights (B, n) they are counted with.

    Resamples come some rows at a time, the fewer the more images there are: what depends on the scores alone must not
    be done for each of them, or time grows with the square of n.
    """

    def __init__(self, score: NDArray[np.floating], positive: NDArray[np.bool_]) -> None:
        if np.isnan(score).any():
            raise ValueError("scores must not be NaN")
        self._score, self._positive = score, positive
        self.one_sided = bool(positive.all() or not positive.any())

    @cached_property
    def _sides(self) -> tuple[Rows, Rows]:
        """The rows of positives and of negatives, lowest score first."""
        ascending = np.argsort(self._score, kind="stable")
        of_positive = self._positive[ascending]
        return ascending[of_positive], ascending[~of_positive]

    @cached_property
    def _below(self) -> Rows:
        """For each positive, how many negatives score lower."""
        positives, negatives = self._sides
        return np.searchsorted(self._score[negatives], self._score[positives], side="left")

    @cached_property
    def _not_above(self) -> Rows | None:
        """For each positive, how many negatives score lower or the same; None where no score is shared by both."""
        positives, negatives = self._sides
        not_above = np.searchsorted(self._score[negatives], self._score[positives], side="right")
        return not_above if (self._below < not_above).any() else None

    @cached_property
    def _descending(self) -> tuple[Rows, Rows, NDArray[np.bool_]]:
        """All rows, highest score first; the last of each run of equal scores; and which of the rows are positive."""
        descending = np.argsort(-self._score, kind="stable")
        ordered = self._score[descending]
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        return descending, ends, self._positive[descending]

    @cached_property
    def reversed(self) -> Ranking:
        """The same with the other side as the positive class."""
        return Ranking(-self._score, ~self._positive)

    def auroc(self, rows: Weights) -> Floats:
        """The area under the ROC curve for weights (B, n): see `binary_auroc`."""
        return self._collected(rows, lambda ordered: (self._area(ordered),))[0]

    def false_positive_rate(self, rows: Weights, at: float = 0.95) -> Floats:
        """The share of negatives accepted for weights (B, n): see `false_positive_rate`."""
        return self._collected(rows, lambda ordered: (self._rate(ordered, at),))[0]

    def auroc_and_rate(self, rows: Weights) -> RankedPair:
        """Both of the above for weights (B, n), which are put in order once."""
        return RankedPair(*self._collected(rows, lambda ordered: (self._area(ordered), self._rate(ordered, 0.95))))

    def area_by_image(self) -> RankedImages:
        """AUROC with the placement of every image; both sides must be there.

        >>> Ranking(np.array([0.9, 0.2, 0.5]), np.array([True, True, False])).area_by_image().placed
        array([1. , 0. , 0.5])
        """
        positives, negatives = self._sides
        placed = np.empty(len(self._score))
        for own, others, sign in ((positives, negatives, 1), (negatives, positives, -1)):
            scores, ordered = sign * self._score[own], np.sort(sign * self._score[others])
            below = [np.searchsorted(ordered, scores, side=side) for side in ("left", "right")]
            placed[own] = (below[0] + below[1]) / (2 * len(others))
        return RankedImages(float(placed[positives].mean()), self._positive, placed)

    def rate_by_image(self, at: float = 0.95) -> RankedImages:
        """The share of negatives accepted with a share `at` of the positives, and which images are accepted.

        >>> Ranking(np.array([0.9, 0.2, 0.5]), np.array([True, True, False])).rate_by_image().placed
        array([1., 1., 1.])
        """
        positives, negatives = self._sides
        threshold = self._score[positives[int((1 - at) * len(positives) + 1e-9)]]
        accepted = (self._score >= threshold).astype(np.float64)
        rates = 1 - self._below / len(negatives)
        return RankedImages(float(accepted[negatives].mean()), self._positive, accepted, rates, at)

    def reversed_rate_by_image(self) -> RankedImages:
        """The share of positives rejected where 95 % of the negatives are, as `rate_by_image` gives it."""
        return self.reversed.rate_by_image()

    def average_precision(self, rows: Weights, *, equal_shares: bool = False) -> Floats:
        """The area under the precision-recall curve for weights (B, n): see `average_precision`.

        With `equal_shares` the negatives together weigh as much as the positives, in each of the B rows: a score that
        knows nothing then has 0.5, however many images either side has.
        """
        if not len(self._score):
            return np.full(len(rows), np.nan)
        descending, ends, of_positive = self._descending
        areas = np.empty(len(rows))
        for part in _parts(rows):
            weights = np.take(rows[part], descending, axis=1)
            positives = np.cumsum(weights * of_positive, axis=1, dtype=np.float64)
            negatives = np.cumsum(weights, axis=1, dtype=np.float64) - positives
            true, false = (np.take(accepted, ends, axis=1) for accepted in (positives, negatives))
            retrieved = true + (false * ratio(true[:, -1], false[:, -1])[:, None] if equal_shares else false)
            precision = np.divide(true, retrieved, out=np.zeros_like(true), where=retrieved > 0)
            area = np.einsum("br,br->b", np.diff(true, axis=1, prepend=0.0), precision)
            areas[part] = np.where(false[:, -1] > 0, ratio(area, true[:, -1]), np.nan)
        return areas

    def separation(self, weights: NDArray[np.floating] | None = None, *, equal_shares: bool = False) -> Separation:
        """All of `separation` for weights None, (n,) or (B, n)."""
        rows = weight_rows(weights, len(self._score))
        area, rate = self.auroc_and_rate(rows)
        return Separation(
            auroc=area,
            aupr_in=self.average_precision(rows, equal_shares=equal_shares),
            aupr_out=self.reversed.average_precision(rows, equal_shares=equal_shares),
            fpr95_in=rate,
            fpr95_out=self.reversed.false_positive_rate(rows),
        )

    def _collected(self, rows: Weights, measure: Callable[[_Ordered], tuple[Floats, ...]]) -> list[Floats]:
        """What a function says of the weights (B, n), some rows at a time, each (B,); NaN where a side is missing."""
        if self.one_sided:
            return [np.full(len(rows), np.nan)] * 2
        positives, negatives = self._sides
        measured = []
        for part in _parts(rows):
            lowest = np.zeros((len(rows[part]), len(negatives) + 1))
            np.cumsum(np.take(rows[part], negatives, axis=1), axis=1, dtype=np.float64, out=lowest[:, 1:])
            measured.append(measure(_Ordered(np.take(rows[part], positives, axis=1), lowest)))
        return [np.concatenate(column) for column in zip(*measured, strict=True)]

    def _area(self, ordered: _Ordered) -> Floats:
        positives, lowest = ordered.positives, ordered.lowest
        won = np.einsum("bp,bp->b", positives, np.take(lowest, self._below, axis=1))
        if self._not_above is not None:
            won_or_tied = np.einsum("bp,bp->b", positives, np.take(lowest, self._not_above, axis=1))
            won = (won + won_or_tied) / 2
        return ratio(won, positives.sum(axis=1, dtype=np.float64) * lowest[:, -1])

    def _rate(self, ordered: _Ordered, at: float) -> Floats:
        all_true, all_false = ordered.positives.sum(axis=1, dtype=np.float64), ordered.lowest[:, -1]
        index = _last_index(ordered.positives, (1 - at) * all_true + 1e-9)
        rejected = ordered.lowest[np.arange(len(index)), self._below[index]]
        return np.where(all_true > 0, ratio(all_false - rejected, all_false), np.nan)


class RankedPair(NamedTuple):
    """The area under the ROC curve and the share of negatives accepted with 95 % of the positives, (B,) each."""

    auroc: Floats
    false_positive_rate: Floats


class _Ordered(NamedTuple):
    """Weights (B, n) in the order of the scores.

    positives  (B, positives), lowest score first
    lowest     (B, negatives + 1): the weight of the k negatives of lowest score, k from 0 on
    """

    positives: Weights
    lowest: Floats


def separation(
    scores: ArrayLike,
    positive: ArrayLike,
    weights: NDArray[np.floating] | None = None,
    *,
    equal_shares: bool = False,
) -> Separation:
    """How well a score tells positives (high scores) from negatives: AUROC, and both AUPR and FPR95 with either side
    as the positive class: see `Separation`.

    scores (n,), positive (n,) bool, weights None, (n,) or (B, n); each field is (B,), NaN where a side is missing.
    With `equal_shares` both sides weigh the same in AUPR, so that guessing has 0.5; nothing else depends on it.

    >>> result = separation([0.9, 0.8, 0.7, 0.1], [True, True, False, True])
    >>> result.fpr95_in, result.fpr95_out.round(4)
    (array([1.]), array([0.3333]))
    """
    ranking = Ranking(np.asarray(scores, dtype=np.float64), np.asarray(positive))
    return ranking.separation(weights, equal_shares=equal_shares)


@dataclass(frozen=True)
class Separation:
    """What `separation` finds, each (B,). In-distribution images should score high; `_in` and `_out` name the side that
    is the positive class.

    aupr_in    average precision where in-distribution images are sought from the top
    aupr_out   average precision where outliers are sought from the bottom
    fpr95_in   share of outliers accepted by the strictest threshold that accepts 95 % or more of in-distribution images
    fpr95_out  share of in-distribution images rejected by the mildest threshold that rejects 95 % or more of outliers
    """

    auroc: Floats
    aupr_in: Floats
    aupr_out: Floats
    fpr95_in: Floats
    fpr95_out: Floats


def average_precision(score: NDArray[np.floating], positive: NDArray[np.bool_], rows: Weights) -> Floats:
    """Area under the precision-recall curve, sum_k (R_k - R_{k-1}) P_k over distinct scores from the top: (B,).

    >>> average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True]), np.ones((1, 3))).round(4)
    array([0.8333])
    """
    return Ranking(score, positive).average_precision(rows)


def false_positive_rate(
    score: NDArray[np.floating], positive: NDArray[np.bool_], rows: Weights, at: float = 0.95
) -> Floats:
    """Share of negatives accepted by the strictest threshold that accepts at least `at` of the positives: (B,).

    A threshold accepts all scores at or above it, so images of equal score are accepted together. It is one of the
    scores, the exact step of the ROC curve: nothing is interpolated. NaN where there is no positive or no negative.

    >>> scores, positive = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False])
    >>> false_positive_rate(scores, positive, np.ones((1, 4)))
    array([0.5])
    """
    return Ranking(score, positive).false_positive_rate(rows, at)


def _last_index(weights: Weights, most: Floats) -> NDArray[np.intp]:
    """The last column (B,) of weights (B, n) before which, from the first on, lies at most this much weight (B,)."""
    columns = max(1, weights.shape[1] // 8)
    while True:
        before = np.cumsum(weights[:, :columns], axis=1, dtype=np.float64)
        if columns == weights.shape[1] or (before[:, -1] > most).all():
            return np.asarray(np.minimum((before <= most[:, None]).sum(axis=1), weights.shape[1] - 1), np.intp)
        columns = min(weights.shape[1], 2 * columns)


def _parts(rows: Weights) -> Iterator[slice]:
    step = max(1, CHUNK_ELEMENTS // max(1, rows.shape[1]))
    return (slice(start, start + step) for start in range(0, len(rows), step))
