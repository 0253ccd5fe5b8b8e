"""Where to cut a score: the exact best threshold, a share of the in-distribution images, the published hinge fit, and
the linear SVM for monitors of many columns. Higher scores are more in-distribution; what lies below a threshold is
rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.threads import one_thread

Floats = NDArray[np.float64]

THRESHOLDS = ("exact", "hinge")
TRAIN_SHARE = 0.8
EPOCHS = 100
HINGE_BATCH = 2048
LEARNING_RATE = 0.1
PATIENCE, RELATIVE_GAIN, DECAY, LOWEST_RATE = 10, 0.1, 0.1, 1e-8
SVM_GAP, SVM_STEPS = 1e-8, 200
"""The solver ends where its objective is proven to be within this share of the least one, or after so many steps."""


def share_threshold(inside: ArrayLike, rejected: float = 0.05) -> float:
    """The threshold that rejects at most this share of held-out scores (n,): the one of rank floor(rejected n).

    Equal scores fall on one side, so that fewer can be rejected: `RejectedShare` says how many are.

    >>> share_threshold(np.arange(100.0), 0.05)
    5.0
    """
    check_rejected(rejected)
    scores = np.sort(_checked(inside, "in-distribution"))
    return float(scores[allowed_images(rejected, len(scores))])


class TiesWarning(UserWarning):
    """Images of equal score keep a threshold from rejecting the share that was asked for."""


@dataclass(frozen=True)
class RejectedShare:
    """The share of in-distribution images that a threshold was asked to reject, and what it rejects of those `images`
    that it was calibrated on.

    >>> share = RejectedShare.of(np.array([0.1, 0.2, 0.9, 0.9, 0.9]), 0.9, asked=0.6)
    >>> share.achieved, share.tied
    (0.4, True)
    >>> print(share.sentence().partition(", as ")[0])
    rejects 40 % of the 5 in-distribution images it was calibrated on, not the 60 % asked for: ties prevent it
    """

    asked: float
    achieved: float
    images: int

    @classmethod
    def of(cls, inside: Floats, threshold: float, asked: float) -> Self:
        """What a threshold rejects of held-out scores (n,)."""
        return cls(asked, float((inside < threshold).mean()), len(inside))

    @property
    def tied(self) -> bool:
        """Whether it rejects at least one image fewer than the share allows."""
        return round(self.achieved * self.images) < allowed_images(self.asked, self.images)

    def sentence(self) -> str:
        """What the threshold does, with a monitor as the subject."""
        start = f"rejects {percent(self.achieved)} of the {self.images:,} in-distribution images it was calibrated on"
        if not self.tied:
            return f"{start}, asked for {percent(self.asked)}"
        return (
            f"{start}, not the {percent(self.asked)} asked for: ties prevent it, as images of equal score are rejected "
            "together and the next ones would exceed the share"
        )


def percent(share: float) -> str:
    """A share in percent, to three digits.

    >>> percent(0.0201), percent(0.05)
    ('2.01 %', '5 %')
    """
    return f"{100 * share:.3g} %"


def allowed_images(rejected: float, images: int) -> int:
    """How many images may be rejected for this share."""
    return int(np.floor(rejected * images + 1e-9))


def best_threshold(inside: ArrayLike, outside: ArrayLike, *, prior: float = 0.5, cost: float = 1.0) -> float:
    """The threshold t of the lowest expected cost on these scores, inside (n,) and outside (m,).

    (1 - prior) P(inside < t) + prior cost P(outside >= t): `prior` is the share of outliers that is expected, `cost`
    that of an accepted outlier where a rejected in-distribution image costs 1. With 0.5 and 1 it is the one of highest
    balanced accuracy. All cut points are tried by one sort: below all scores (-inf), between neighbours (half way),
    above all (inf). Of equally good ones the lowest is taken, which rejects least.

    >>> best_threshold([9.0, 8.0, 7.0], [1.0, 2.0, 7.5])
    4.5
    """
    id_weight, outlier_weight = side_weights(prior, cost)
    accepted, refused = _checked(inside, "in-distribution"), _checked(outside, "outlier")
    values, index = np.unique(np.concatenate([accepted, refused]), return_inverse=True)
    rejected_inside = np.bincount(index[: len(accepted)], minlength=len(values))
    rejected_outside = np.bincount(index[len(accepted) :], minlength=len(values))
    lost = np.append(0, np.cumsum(rejected_inside)) * (id_weight / len(accepted))
    missed = (len(refused) - np.append(0, np.cumsum(rejected_outside))) * (outlier_weight / len(refused))
    cost_at = lost + missed
    cut = int(np.flatnonzero(cost_at <= cost_at.min() * (1 + 1e-12))[0])
    if cut in (0, len(values)):
        return -np.inf if cut == 0 else np.inf
    half = values[cut - 1] / 2 + values[cut] / 2
    return float(half if half > values[cut - 1] else values[cut])


def hinge_threshold(inside: ArrayLike, outside: ArrayLike, *, prior: float = 0.5, cost: float = 1.0) -> float:
    """The published fit: minimise the mean of max(0, y (s - t)), y = -1 inside and 1 outside, by Adagrad.

    On a random 80 %, in 100 epochs of batches of 2048, from the middle between the two means; the rate falls tenfold
    where ten epochs bring no gain of 10 %. Kept is the epoch that is most accurate on the other 20 %. It need not find
    the best threshold; `best_threshold` does.

    >>> bool(0.2 < hinge_threshold([0.9, 0.8, 0.7] * 9, [0.1, 0.2, 0.15] * 9) < 0.7)
    True
    """
    columns = (np.asarray(scores, np.float64)[:, None] for scores in (inside, outside))
    return float(hinge_thresholds(*columns, prior=prior, cost=cost)[0])


def hinge_thresholds(inside: ArrayLike, outside: ArrayLike, *, prior: float = 0.5, cost: float = 1.0) -> Floats:
    """`hinge_threshold` of each column of scores (n, C) and (m, C), all at once: (C,).

    >>> hinge_thresholds(np.ones((9, 2)), np.zeros((9, 2))).shape
    (2,)
    """
    id_weight, outlier_weight = side_weights(prior, cost)
    accepted, refused = _checked(inside, "in-distribution"), _checked(outside, "outlier")
    sides = [len(accepted), len(refused)]
    scores, targets = np.concatenate([accepted, refused]), np.repeat([-1.0, 1.0], sides)
    weights = np.repeat([id_weight / sides[0], outlier_weight / sides[1]], sides)
    weights *= len(weights) / weights.sum()
    rng = np.random.default_rng(0)
    train, valid = np.split(rng.permutation(len(scores)), [round(TRAIN_SHARE * len(scores))])
    if not len(valid) or len(set(targets[train])) < 2:
        raise InputError(f"the hinge fit needs more images than {sides[0]} and {sides[1]}: use the exact threshold")
    threshold = best = sum(scores[train][targets[train] == side].mean(axis=0) for side in (-1.0, 1.0)) / 2
    count = scores.shape[1]
    highest, lowest_loss, squares = np.full(count, -np.inf), np.full(count, np.inf), np.zeros(count)
    rate, waited = np.full(count, LEARNING_RATE), np.zeros(count)
    for _ in range(EPOCHS):
        losses = np.zeros(count)
        for rows in np.array_split(rng.permutation(train), -(-len(train) // HINGE_BATCH)):
            pull, wrong_by = weights[rows] * targets[rows], targets[rows, None] * (scores[rows] - threshold)
            losses += weights[rows] @ np.maximum(0.0, wrong_by) / len(train)
            gradient = -(pull @ (wrong_by > 0)) / len(rows)
            squares = squares + gradient**2
            threshold = threshold - rate * gradient / (np.sqrt(squares) + 1e-10)
        accuracy = weights[valid] @ ((scores[valid] < threshold) == (targets[valid, None] > 0))
        best = np.where(accuracy > highest, threshold, best)
        highest = np.maximum(highest, accuracy)
        gained = losses < lowest_loss * (1 - RELATIVE_GAIN)
        lowest_loss = np.where(gained, losses, lowest_loss)
        waited = np.where(gained, 0, waited + 1)
        rate = np.where(waited > PATIENCE, np.maximum(rate * DECAY, LOWEST_RATE), rate)
        waited = np.where(waited > PATIENCE, 0, waited)
    return np.asarray(best, np.float64)


@dataclass(frozen=True)
class Aim:
    """What a calibration aims at.

    rejected   share of in-distribution images to reject where no outliers are given
    prior      share of outliers expected;  cost: of an accepted outlier, where a rejected image inside costs 1
    threshold  `exact` (the best on the validation data) or `hinge` (the published fit)
    """

    rejected: float = 0.05
    prior: float = 0.5
    cost: float = 1.0
    threshold: str = "exact"

    def __post_init__(self) -> None:
        if self.threshold not in THRESHOLDS:
            raise UnknownName("threshold", self.threshold, THRESHOLDS)
        check_rejected(self.rejected)
        side_weights(self.prior, self.cost)

    def cut(self, inside: Floats, outside: Floats | None) -> float:
        """The threshold on scores (n,) and, where outliers are given, (m,)."""
        if outside is None:
            return share_threshold(inside, self.rejected)
        return float(self.cuts(inside[:, None], outside[:, None])[0])

    def cuts(self, inside: Floats, outside: Floats) -> Floats:
        """The threshold of each column of scores (n, C) and (m, C): (C,)."""
        if self.threshold == "hinge":
            return hinge_thresholds(inside, outside, prior=self.prior, cost=self.cost)
        columns = zip(inside.T, outside.T, strict=True)
        return np.array([best_threshold(ins, outs, prior=self.prior, cost=self.cost) for ins, outs in columns])

    def losses(self, inside: Floats, outside: Floats, thresholds: Floats) -> Floats:
        """The expected cost of a threshold for each column: (C,)."""
        lost, missed = (inside < thresholds).mean(axis=0), (outside >= thresholds).mean(axis=0)
        return np.asarray((1 - self.prior) * lost + self.prior * self.cost * missed)


@dataclass(frozen=True)
class LinearSvm:
    """w . (x - mean) / scale + bias: above 0 is in-distribution. mean, scale and weights are (D,)."""

    mean: Floats
    scale: Floats
    weights: Floats
    bias: float
    converged: bool = True

    def __call__(self, rows: ArrayLike) -> Floats:
        """The signed distance (N,) of rows (N, D), in units of the margin."""
        standard = (np.asarray(rows, np.float64) - self.mean) / self.scale
        return np.asarray(np.einsum("nd,d->n", standard, self.weights) + self.bias)


def fit_svm(inside: ArrayLike, outside: ArrayLike, *, prior: float = 0.5, cost: float = 1.0) -> LinearSvm:
    """The linear SVM between rows (n, D) and (m, D): mean of max(0, 1 - y f(x)) + |w, b|^2 / (2 N), N = n + m.

    Columns are standardised over both sides (batch normalisation without its redundant gain). Weight decay 1/N on a
    mean over N is C = 1 in scikit-learn's `LinearSVC(loss="hinge")`; both sides weigh the same unless `prior` and
    `cost` say otherwise. The minimum is unique and found by `solve_hinge`, however alike the columns are.

    >>> svm = fit_svm(np.eye(4) + 1, -np.eye(4))
    >>> (svm(np.eye(4) + 1) > 0).all(), (svm(-np.eye(4)) < 0).all()
    (np.True_, np.True_)
    """
    id_weight, outlier_weight = side_weights(prior, cost)
    accepted, refused = _checked(inside, "in-distribution"), _checked(outside, "outlier")
    rows = np.concatenate([accepted, refused])
    sides = [len(accepted), len(refused)]
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
    share = np.array([id_weight, outlier_weight]) / (id_weight + outlier_weight)
    weights = np.repeat(share * len(rows) / np.array(sides), sides)
    signed = np.column_stack([(rows - mean) / scale, np.ones(len(rows))]) * np.repeat([1.0, -1.0], sides)[:, None]
    with one_thread():
        vector, converged = solve_hinge(signed, weights)
    return LinearSvm(mean, scale, vector[:-1], float(vector[-1]), converged)


def solve_hinge(signed: Floats, weights: Floats) -> tuple[Floats, bool]:
    """The w (D,) of least |w|^2 / 2 + sum_i c_i max(0, 1 - z_i w) for rows z_i (N, D) and weights c (N,) above 0.

    With it comes whether it is proven to be so up to `SVM_GAP` of the objective. A primal-dual interior point method
    (Mehrotra 1992): w = sum_i a_i z_i, b = c - a, margins z_i w - 1 = s_i - x_i, and all of a, b, s, x stay above 0
    while a s and b x fall to 0; their sum is the distance to the minimum. A step costs O(N D^2).

    >>> vector, proven = solve_hinge(np.array([[2.0], [4.0]]), np.ones(2))
    >>> vector.round(6), proven
    (array([0.5]), True)
    """
    a = b = weights / 2
    vector = a @ signed
    margins = signed @ vector - 1
    s, x = np.maximum(margins, 0) + 1, np.maximum(-margins, 0) + 1
    for _ in range(SVM_STEPS):
        gap = a @ s + b @ x
        if gap <= SVM_GAP * (vector @ vector / 2 + weights @ np.maximum(0, 1 - signed @ vector)):
            return vector, True
        damping = 1 / (s / a + x / b)
        factor = cho_factor(np.eye(len(vector)) + (signed.T * damping) @ signed)
        target, along, across = 0.0, np.zeros(len(a)), np.zeros(len(a))
        for is_final in (False, True):
            first, second = (target - along) / a - s, (target + across) / b - x
            move = cho_solve(factor, signed.T @ (damping * (first - second)))
            da = damping * (first - second - signed @ move)
            ds, dx = first - s * da / a, second + x * da / b
            steepest = max(np.max(-da / a), np.max(da / b), np.max(-ds / s), np.max(-dx / x))
            length = min(1.0, 0.99 / steepest) if steepest > 0 else 1.0
            if not is_final:
                ahead = (a + length * da) @ (s + length * ds) + (b - length * da) @ (x + length * dx)
                target, along, across = (ahead / gap) ** 3 * gap / (2 * len(a)), da * ds, da * dx
        vector, a, b = vector + length * move, a + length * da, b - length * da
        s, x = s + length * ds, x + length * dx
    return vector, False


def check_rejected(rejected: float) -> None:
    """Refuse a value that is not a valid share of in-distribution images to reject."""
    if not 0 <= rejected < 1:
        raise InputError(f"the share of in-distribution images to reject is from 0 to below 1, not {rejected!r}")


def side_weights(prior: float, cost: float) -> tuple[float, float]:
    """The weights of both sides, (1 - prior, prior cost); an invalid prior or cost is refused."""
    if not 0 < prior < 1:
        raise InputError(f"the prior of outliers is a share between 0 and 1, not {prior!r}")
    if not (np.isfinite(cost) and cost > 0):
        raise InputError(f"the cost of an accepted outlier is a number above 0, not {cost!r}")
    return 1 - prior, prior * cost


def _checked(values: ArrayLike, side: str) -> Floats:
    array = np.asarray(values, np.float64)
    if not len(array):
        raise InputError(f"there are no {side} images to calibrate on: give at least one")
    if not np.isfinite(array).all():
        raise InputError(f"the {side} scores hold NaN or infinity: the monitor cannot be calibrated on them")
    return array
