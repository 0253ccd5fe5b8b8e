"""Calibration of every class: metrics that need all probabilities of an image, not only two of them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.metrics.answers import Answers
from roadworthy.metrics.base import Metric
from roadworthy.metrics.binning import ProbabilityBins
from roadworthy.metrics.calibration import ece_adaptive
from roadworthy.metrics.selective import class_aurc
from roadworthy.metrics.weighting import Floats, Weights, ratio

NO_PROBABILITIES = "class-wise ECE needs the probabilities of all classes, and these answers hold only some"


@dataclass(frozen=True)
class ProbabilityAnswers(Answers):
    """Answers that also hold the probabilities (n, K) of all classes; every metric of answers works on them.

    >>> answers = ProbabilityAnswers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], labels=[0, 0])
    >>> answers.probabilities.shape, answers.correct.tolist()
    ((2, 2), [True, False])
    """

    _: KW_ONLY
    probabilities: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        table = np.asarray(self.probabilities, dtype=np.float64)
        if table.shape != (len(self.label), self.num_classes):
            raise ValueError(f"probabilities must be ({len(self.label)}, {self.num_classes}), not {table.shape}")
        object.__setattr__(self, "probabilities", table)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, labels: ArrayLike) -> Self:
        """Answers from probabilities (n, K) and labels (n,), checked as those of `Answers` are."""
        reduced = Answers.from_probabilities(probabilities, labels)
        return cls(**vars(reduced), probabilities=np.asarray(probabilities, dtype=np.float64))


def classwise_ece(probabilities: Floats, labels: ArrayLike, weights: Weights) -> Floats:
    """Class-wise ECE (B,) of probabilities (n, K) and labels (n,), for weights (B, n).

        mean over classes k of sum_b n_b/n | mean p_k in bin b  -  share of images of class k in bin b |

    The ten bins are those of `ece`, here of p_k over all images. A class that no image shows counts like the others.

    >>> classwise_ece(np.array([[0.9, 0.1], [0.7, 0.3]]), [0, 1], np.ones((1, 2))).round(6)
    array([0.4])
    """
    label = np.asarray(labels)
    gaps = np.zeros(len(weights))
    for index, of_class in enumerate(probabilities.T):
        gaps += np.abs(ProbabilityBins(of_class).sums(of_class - (label == index), weights)).sum(axis=1)
    total = probabilities.shape[1] * weights.sum(axis=1, dtype=np.float64)
    return ratio(gaps, total)


def _classwise(answers: ProbabilityAnswers, weights: Weights) -> Floats:
    return classwise_ece(answers.probabilities, answers.label, weights)


def _holds_too_few(answers: Answers) -> str | None:
    return None if isinstance(answers, ProbabilityAnswers) else NO_PROBABILITIES


ece_classwise = Metric(
    "ece_classwise",
    label="Class-wise ECE",
    sentence="ECE of the probability of each class, whether it is the largest or not, averaged over classes. 0 is "
    "perfect.",
    higher_is_better=False,
    of_answers=_classwise,
    why_missing=_holds_too_few,
)
CLASS_METRICS: tuple[Metric, ...] = (ece_adaptive, ece_classwise, class_aurc)
"""Metrics of classes that are measured beside boxes, in the order of tables; not registered."""
