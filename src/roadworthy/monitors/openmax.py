"""OpenMax: logits weighed by their distance from those of their class; what is taken off makes one more class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.svm import SvmMonitor

EUCLIDEAN_SCALE = 200.0
SHIFT = 1.0
"""The Weibull starts this far below the smallest distance of the tail."""
FEWEST = 3
"""Correctly classified training images that a class must have for a Weibull of its own."""


def fit_weibull(values: ArrayLike, location: float) -> tuple[float, float]:
    """Shape and scale, by maximum likelihood, of the Weibull F(x) = 1 - exp(-((x - location) / scale)^shape).

    >>> from scipy import stats
    >>> shape, scale = fit_weibull(stats.weibull_min.rvs(2.0, loc=5.0, scale=3.0, size=4000, random_state=0), 5.0)
    >>> abs(shape - 2) < 0.1 and abs(scale - 3) < 0.1
    True
    """
    from scipy import stats  # slow to import, so only where it is needed

    shape, _, scale = stats.weibull_min.fit(np.asarray(values, np.float64), floc=location)
    return float(shape), float(scale)


def weibull_cdf(values: ArrayLike, shape: float, location: float, scale: float) -> Floats:
    """F(x) = 1 - exp(-((x - location) / scale)^shape), 0 below the location.

    >>> weibull_cdf([0.0, 1.0, 9.0], 500.0, 0.0, 1.0).round(4)
    array([0.    , 0.6321, 1.    ])
    """
    standard = np.maximum(np.asarray(values, np.float64) - location, 0.0) / scale
    with np.errstate(over="ignore"):
        return np.asarray(-np.expm1(-np.power(standard, shape)))


def distance(logits: Floats, centre: Floats) -> Floats:
    """|v - m| / 200 + 1 - cos(v, m) of logits (N, K) to a centre (K,): (N,).

    >>> distance(np.array([[200.0, 0.0]]), np.array([0.0, 0.0001])).round(6)
    array([2.])
    """
    lengths = np.linalg.norm(logits, axis=1) * np.linalg.norm(centre)
    cosine = np.einsum("nk,k->n", logits, centre) / np.maximum(lengths, 1e-12)
    return np.asarray(np.linalg.norm(logits - centre, axis=1) / EUCLIDEAN_SCALE + 1.0 - cosine)


@registered(MONITORS, "openmax")
class OpenMax(SvmMonitor):
    """Probabilities of K + 1 classes, the unknown first: logits lose to it by their distance from their class.

    For the `alpha` largest logits v, ranks i = 1, 2, ...:

    v'_k = v_k (1 - w_k), w_k = F_k(d_k) (alpha - i + 1) / alpha;  unknown v_0 = sum_k v_k w_k;  softmax over all d_k is
    the `distance` of the logits to the mean ones m_k of correctly classified training images of class k, F_k the
    Weibull of the `tail` largest such distances. Against outliers a linear SVM on the probabilities decides; without,
    the score is 1 - P(unknown). A class with fewer than three correct training images keeps its logit; a note says
    which.
    """

    tail: int = 20
    alpha: int = 10

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "the Weibull starts 1 below the smallest distance of the tail, as in the present source of libMR, its "
        "authors' library; releases of libMR that start it 10,000 below give other weights; the paper rejects where "
        "the unknown class is the most probable or no probability is high, here the score is 1 - P(unknown), or an "
        "SVM on all probabilities where there are outliers (Shafaei et al. 2018)"
    )

    def __post_init__(self) -> None:
        require_count(self, "tail", least=FEWEST)
        require_count(self, "alpha")

    def fit(self, training: Training) -> Arrays:
        """Mean logits (K, K), and shape, location and scale of each class's Weibull (K, 3), zeros where it has none."""
        logits, classes = training.gather("logits").astype(np.float64), training.model.num_classes
        correct = logits.argmax(axis=1) == training.labels
        centres, weibulls = np.zeros((classes, classes)), np.zeros((classes, 3))
        for label in range(classes):
            own = logits[correct & (training.labels == label)]
            if len(own) < FEWEST:
                continue
            centres[label] = own.mean(axis=0)
            largest = np.sort(distance(own, centres[label]))[-self.tail :]
            location = largest[0] - SHIFT
            varies = largest[-1] > largest[0]
            shape, scale = fit_weibull(largest, location) if varies else (np.finfo(np.float32).max, 1.0)
            weibulls[label] = shape, location, scale
        if not weibulls.any():
            raise InputError(
                f"monitor {self.name} cannot be built: model {training.model.name} classifies fewer than {FEWEST} "
                f"images of every class of {training.name} correctly"
            )
        return {"centres": centres, "weibulls": weibulls}

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the classes without a Weibull, besides those of the SVM."""
        without = np.flatnonzero(~state["weibulls"].any(axis=1)).tolist()
        few = f"classes with fewer than {FEWEST} correct training images keep their logit: {without}"
        return (*([few] if without else []), *super().notes(state, rule))

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Probabilities (N, K + 1), the unknown first."""
        logits = signals.logits.astype(np.float64)
        cdfs = np.zeros_like(logits)
        for label, (shape, location, scale) in enumerate(state["weibulls"]):
            if shape > 0:
                cdfs[:, label] = weibull_cdf(distance(logits, state["centres"][label]), shape, location, scale)
        alpha = min(self.alpha, logits.shape[1])
        ranks = np.argsort(np.argsort(-logits, axis=1, kind="stable"), axis=1, kind="stable")
        moved = logits * cdfs * np.maximum(alpha - ranks, 0) / alpha
        open_logits = np.concatenate([moved.sum(axis=1, keepdims=True), logits - moved], axis=1)
        exponents = np.exp(open_logits - open_logits.max(axis=1, keepdims=True))
        return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))

    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """1 - P(unknown)."""
        return 1.0 - rows[:, 0].astype(np.float64)
