"""OpenMax: logits weighed by their distance from those of their class; what is taken off makes one more class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.svm import SvmMonitor
from roadworthy.monitors.threshold import Aim

EUCLIDEAN_SCALE = 200.0
LARGEST_SHAPE = float(np.finfo(np.float32).max)
FEWEST = 3
"""Correctly classified training images that a class must have for a Weibull of its own."""


def fit_weibull(values: ArrayLike, location: float) -> tuple[float, float]:
    """Shape c and scale, by maximum likelihood, of the Weibull F(x) = 1 - exp(-((x - location) / scale)^c).

    With y = log(x - location), c is the only root of sum exp(c y) y / sum exp(c y) - 1 / c - mean y, which grows with
    c, and scale^c the mean of exp(c y). Values that are all the same make a step there: a very large shape.

    >>> from scipy import stats
    >>> shape, scale = fit_weibull(stats.weibull_min.rvs(2.0, loc=5.0, scale=3.0, size=4000, random_state=0), 5.0)
    >>> abs(shape - 2) < 0.1 and abs(scale - 3) < 0.1
    True
    """
    distances = np.asarray(values, np.float64) - location
    largest = float(distances.max())
    logs = np.log(distances / largest)
    if not logs.any():
        return LARGEST_SHAPE, largest

    def slope(shape: float) -> float:
        powers = np.exp(shape * logs)
        return float(powers @ logs / powers.sum() - 1 / shape - logs.mean())

    low = high = 1.0
    while slope(low) > 0:
        low /= 2
    while slope(high) < 0:
        high *= 2
    shape = float(brentq(slope, low, high, rtol=1e-12)) if low < high else 1.0
    return shape, float(largest * np.mean(np.exp(shape * logs)) ** (1 / shape))


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

    v'_k = v_k (1 - w_k), w_k = F_k(d_k) (alpha - i + 1) / alpha;  unknown v_0 = sum_k v_k w_k;  softmax over all

    d_k is the `distance` of the logits to the mean ones m_k of correctly classified training images of class k, F_k
    the Weibull of the `tail` largest such distances. Against outliers a linear SVM on the probabilities decides;
    without, the score is 1 - P(unknown). A class with fewer than three correct training images keeps its logit; a note
    says which.

    shift    how far below the smallest distance t of the tail the Weibull starts. libMR, the library of the paper's
             authors, fits x - t + shift from 0 on: with 1 in its present source, with 10,000 in older releases
    epsilon  the paper's own decision: reject where the unknown class is the most probable, or where no class has a
             probability of at least epsilon. The score is then max_k P(k), or -P(unknown) where that is larger, and
             epsilon the monitor's own threshold; no SVM is learned. None: as above
    """

    tail: int = 20
    alpha: int = 10
    shift: float = 1.0
    epsilon: float | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "the Weibull starts 1 below the smallest distance of the tail, as in the present source of libMR, its "
        "authors' library; the setting shift=10000 gives the weights of older releases; the score is 1 - P(unknown), "
        "or an SVM on all probabilities where there are outliers (Shafaei et al. 2018); the paper rejects where the "
        "unknown class is the most probable or no probability reaches epsilon, which the setting epsilon does"
    )

    def __post_init__(self) -> None:
        require_count(self, "tail", least=FEWEST)
        require_count(self, "alpha")
        if isinstance(self.shift, bool) or not 0 < self.shift < np.inf:
            raise InputError(f"monitor {self.name}: shift is a number above 0, not {self.shift!r}")
        if self.epsilon is not None and (isinstance(self.epsilon, bool) or not 0 <= self.epsilon <= 1):
            raise InputError(
                f"monitor {self.name}: epsilon is a probability from 0 to 1, or None, not {self.epsilon!r}"
            )

    @property
    def own_threshold(self) -> float | None:
        """The probability below which the paper rejects, where the setting `epsilon` gives it."""
        return self.epsilon

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
            location = largest[0] - self.shift
            shape, scale = fit_weibull(largest, location)
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

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """The SVM against the outliers, unless the paper's own decision is asked for."""
        return super().tune(inside, outside, aim, state) if self.epsilon is None else {}

    def cut(self, inside: Floats, outside: Floats | None, aim: Aim) -> float:
        """The boundary of the SVM where there is one; of the paper's own score a threshold like that of others."""
        return super().cut(inside, outside, aim) if self.epsilon is None else Monitor.cut(self, inside, outside, aim)

    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """1 - P(unknown); with `epsilon` max_k P(k), or -P(unknown) where that is larger."""
        unknown = rows[:, 0].astype(np.float64)
        if self.epsilon is None:
            return 1.0 - unknown
        highest = rows[:, 1:].max(axis=1).astype(np.float64)
        return np.where(unknown > highest, -unknown, highest)
