"""Boxes: how well a localizer finds an object, and how well it knows where it does not.

The metrics here are objects like those of classes, called as `iou(answers, weights=None)`, but on `BoxAnswers`. They
are not in the registry of metrics of class answers: a protocol about classes cannot be asked for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roadworthy.metrics.base import Ceiling, Metric
from roadworthy.metrics.box_overlap import distance_iou, intersection_over_union
from roadworthy.metrics.box_uncertainty import (
    LEVELS,
    QUANTILE_CEILING,
    VARIANCE_FLOOR,
    BoxReliability,
    box_cdf,
    gaussian_nll,
    interval_ece,
    observed_shares,
    quantile_ece,
    spread_of_sigma,
)
from roadworthy.metrics.selective import weighted_risk_area
from roadworthy.metrics.sparsification import sparsification_area
from roadworthy.metrics.weighting import Floats, Weights

NO_UNCERTAINTY = "this model states no uncertainty of its boxes"
LEAST_IOU = 0.5
"""A box with at least this IoU counts as right in `iou_at_50`."""


@dataclass(frozen=True)
class BoxAnswers:
    """The boxes that a localizer gave for n images, beside the true ones; rows correspond across all fields.

    true      (n, 4) float64: x0, y0, x1, y1 in pixels, the right and the bottom edge exclusive
    boxes     (n, 4) float64: the predicted boxes, likewise; crossed corners are a box without area
    variance  (n, 4) float64: the variance of each predicted coordinate in square pixels; None where none is stated

    Every number must be finite: an image without a true box is left out before. Anything else is a `ValueError`.

    >>> answers = BoxAnswers([[0, 0, 4, 4]], [[2, 0, 6, 4]])
    >>> len(answers), answers.overlap.round(4), answers.variance
    (1, array([0.3333]), None)
    """

    true: Floats
    boxes: Floats
    variance: Floats | None = None
    num_classes: int = 1

    def __post_init__(self) -> None:
        for name in ("true", "boxes", "variance"):
            given = getattr(self, name)
            if given is None and name == "variance":
                continue
            table = np.asarray(given, dtype=np.float64)
            if table.shape != (len(np.asarray(self.true)), 4) or not np.isfinite(table).all():
                raise ValueError(f"{name} must be finite numbers (n, 4), one row per image, not {table.shape}")
            object.__setattr__(self, name, table)
        if self.variance is not None and bool((self.variance < 0).any()):
            raise ValueError(f"a variance must not be negative, but one is {self.variance.min():g}")

    def __len__(self) -> int:
        return len(self.true)

    @property
    def overlap(self) -> Floats:
        """The IoU (n,) of each predicted box with the true one."""
        return intersection_over_union(self.true, self.boxes)

    @property
    def sigma(self) -> Floats:
        """The mean standard deviation (n,) of the four coordinates of each box, in pixels, as stated."""
        mean: Floats = np.sqrt(self.stated_variance).mean(axis=1)
        return mean

    @property
    def stated_variance(self) -> Floats:
        """The variance (n, 4); a model that states none is a `ValueError`."""
        if self.variance is None:
            raise ValueError(NO_UNCERTAINTY)
        return self.variance

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> BoxAnswers:
        """The answers for some of the images, chosen by flags (n,) or indices."""
        variance = None if self.variance is None else self.variance[chosen]
        return BoxAnswers(self.true[chosen], self.boxes[chosen], variance)


def box_reliability(answers: BoxAnswers) -> BoxReliability:
    """The levels (10,) and the observed share (4, 10) of images whose CDF is at most each level, per coordinate.

    >>> box_reliability(BoxAnswers([[0, 0, 4, 4]], [[0, 0, 4, 4]], [[1, 1, 1, 1]])).observed[0]
    array([0., 0., 0., 0., 1., 1., 1., 1., 1., 1.])
    """
    probability = box_cdf(answers.true, answers.boxes, answers.stated_variance)
    return BoxReliability(LEVELS, observed_shares(probability, np.ones((1, len(answers))))[0])


def _absolute_error(answers: BoxAnswers) -> Floats:
    mean: Floats = np.abs(answers.true - answers.boxes).mean(axis=1)
    return mean


def _is_right(answers: BoxAnswers) -> Floats:
    return (answers.overlap >= LEAST_IOU).astype(np.float64)


def _nll(answers: BoxAnswers) -> Floats:
    return gaussian_nll(answers.true, answers.boxes, answers.stated_variance)


def _quantile_ece(answers: BoxAnswers, weights: Weights) -> Floats:
    return quantile_ece(answers.true, answers.boxes, answers.stated_variance, weights)


def _interval_ece(answers: BoxAnswers, weights: Weights) -> Floats:
    return interval_ece(answers.true, answers.boxes, answers.stated_variance, weights)


def _spread(answers: BoxAnswers, weights: Weights) -> Floats:
    return spread_of_sigma(answers.stated_variance, weights)


def _aurc(answers: BoxAnswers, weights: Weights) -> Floats:
    return weighted_risk_area(-answers.sigma, 1 - answers.overlap, weights)


def _ause(answers: BoxAnswers, weights: Weights) -> Floats:
    return sparsification_area(1 - answers.overlap, answers.sigma, weights)


def _states_none(answers: BoxAnswers) -> str | None:
    return NO_UNCERTAINTY if answers.variance is None else None


iou = Metric(
    "iou",
    label="IoU",
    sentence="Intersection over union of the predicted box and the true one, averaged over images. 1 is perfect, 0 "
    "is no overlap; a box without area counts 0.",
    higher_is_better=True,
    of_images=lambda answers: answers.overlap,
    mean_over_objects=True,
)
mae = Metric(
    "mae",
    label="MAE (pixels)",
    sentence="Mean absolute error of the four coordinates of a box, in pixels of the tested images. 0 is perfect.",
    higher_is_better=False,
    range=(0.0, math.inf),
    digits=2,
    of_images=_absolute_error,
)
diou = Metric(
    "diou",
    label="Distance-IoU",
    sentence="IoU less the squared distance of the centres, as a share of the squared diagonal of the smallest box "
    "around both. 1 is perfect; it falls below 0 where boxes do not meet.",
    higher_is_better=True,
    range=(-1.0, 1.0),
    of_images=lambda answers: distance_iou(answers.true, answers.boxes),
    mean_over_objects=True,
)
iou_at_50 = Metric(
    "iou_at_50",
    label="Boxes with IoU of at least 0.5",
    sentence="Share of images whose predicted box has an IoU of at least 0.5 with the true one.",
    higher_is_better=True,
    percent=True,
    of_images=_is_right,
    mean_over_objects=True,
    proportion=True,
)
box_nll = Metric(
    "box_nll",
    label="NLL of boxes",
    sentence="Negative log-likelihood of the true coordinates in nats, each read as normal with the predicted mean "
    f"and variance, averaged over coordinates and images. A variance below {VARIANCE_FLOOR:g} square pixels counts as "
    "this. Lower is better; it can be negative.",
    higher_is_better=False,
    range=(0.5 * math.log(2 * math.pi * VARIANCE_FLOOR), math.inf),
    digits=2,
    of_images=_nll,
    why_missing=_states_none,
)
box_ece_interval = Metric(
    "box_ece_interval",
    label="ECE of boxes (intervals)",
    sentence="Calibration error of the stated uncertainty by central intervals: how far the share of true coordinates "
    "inside each predicted interval (10 % to 100 %) lies from what it should be, averaged over ten levels and four "
    "coordinates. 0 is perfect, 0.45 the worst. Published figures are on this scale; to which side errors go it does "
    "not see.",
    higher_is_better=False,
    range=(0.0, 0.45),
    of_answers=_interval_ece,
    why_missing=_states_none,
)
box_ece = Metric(
    "box_ece",
    label="ECE of boxes (quantiles)",
    sentence="Calibration error of the stated uncertainty by one-sided quantiles, which shows bias: how far the share "
    "of true coordinates below each predicted quantile (10 % to 100 %) lies from what it should be, averaged over ten "
    f"levels and four coordinates. 0 is perfect, 0.45 the worst; above {QUANTILE_CEILING:g} only where errors go to "
    "one side more often than to the other (or are exactly 0), however wrong the uncertainty is.",
    higher_is_better=False,
    range=(0.0, 0.45),
    ceiling=Ceiling(
        QUANTILE_CEILING,
        of="a model whose errors go to both sides equally often, however wrong the uncertainty is that it states",
        instead="box_ece_interval",
    ),
    of_answers=_quantile_ece,
    why_missing=_states_none,
)
sharpness = Metric(
    "sharpness",
    label="Mean sigma (pixels)",
    sentence="Sharpness: the mean standard deviation that the model states for a coordinate, in pixels. Lower is "
    "sharper, which is good only where the uncertainty is calibrated.",
    higher_is_better=None,
    range=(0.0, math.inf),
    digits=2,
    of_images=lambda answers: answers.sigma,
    why_missing=_states_none,
)
uncertainty_variance = Metric(
    "uncertainty_variance",
    label="Variance of sigma (square pixels)",
    sentence="Variance, over images and coordinates, of the stated standard deviation: whether the uncertainty tells "
    "images apart. 0 where every image gets the same.",
    higher_is_better=None,
    range=(0.0, math.inf),
    digits=2,
    of_answers=_spread,
    why_missing=_states_none,
)
box_aurc = Metric(
    "box_aurc",
    label="AURC of boxes",
    sentence="Area under risk and coverage: 1 - IoU of the boxes kept, averaged over how many are kept, the smallest "
    "mean sigma first. Lower is better.",
    higher_is_better=False,
    of_answers=_aurc,
    why_missing=_states_none,
)
box_ause = Metric(
    "box_ause",
    label="Sparsification error of boxes",
    sentence="AURC of boxes less that of an oracle which knows the errors: what a better order of the images by "
    "uncertainty could still gain. 0 is perfect.",
    higher_is_better=False,
    of_answers=_ause,
    why_missing=_states_none,
)
UNCERTAIN: tuple[Metric, ...] = (
    *(box_ece_interval, box_ece, box_nll),
    *(sharpness, uncertainty_variance, box_aurc, box_ause),
)
"""The metrics that need a variance, in the order of tables."""
BOX_METRICS: tuple[Metric, ...] = (iou, mae, diou, iou_at_50, *UNCERTAIN)
"""The metrics of boxes, in the order of tables."""
