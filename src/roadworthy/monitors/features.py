"""Monitors of a network's features: Mahalanobis, ViM and ReAct. By default what goes into the last linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack, solve_triangular
from scipy.spatial.distance import cdist

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.head import find_head
from roadworthy.models.signals import PART, Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count, require_layer
from roadworthy.monitors.confidence import energy
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned

SMALLEST_VARIANCE = 1e-10
"""Directions whose variance is below this share of the largest carry no information, and are left out."""
HEAD_TOLERANCE = 1e-3
NOTHING_LEFT = 1e-6
"""Residuals that are shorter than this share of the features are rounding."""


@registered(MONITORS, "mahalanobis")
class Mahalanobis(Monitor):
    """-min_k (f - m_k)^T S^+ (f - m_k): class means m_k, one covariance S shared by all classes, of features f.

    It is the method's plain form, one layer and the image as it is; `mahalanobis_full` is the whole. S^+ leaves out
    directions without variance. Where there are more images than features, sums are made batch by batch, so memory does
    not grow with the data; else the images are kept, which are the fewer.
    """

    layer: str | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"features"})
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "neither the input perturbation nor the ensemble of layers of the paper: it is the distance of the unchanged "
        "image in one layer; mahalanobis_full has both; directions without variance are left out"
    )

    def __post_init__(self) -> None:
        require_layer(self, self.layer)

    def fit(self, training: Training) -> Arrays:
        """Whitened class means (K, R) and the whitening (D, R): distances are Euclidean behind it."""
        gaussians = ClassGaussians(training.labels)
        for rows, labels in training.parts(f"features:{self.layer or ''}", "labels"):
            gaussians.add(rows, labels)
        return gaussians.learned(f"monitor {self.name} cannot be built on {training.name}")

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the squared distance from the nearest class mean, (N,)."""
        return -class_distances(signals.features(self.layer), state)


class ClassGaussians:
    """Class means and the covariance that all classes share, of features that come in parts.

    >>> rows, labels = np.array([[0.0], [2.0], [6.0], [8.0]]), np.array([0, 0, 1, 1])
    >>> gaussians = ClassGaussians(labels)
    >>> gaussians.add(rows, labels)
    >>> class_distances(np.array([[3.0], [9.0]]), gaussians.learned("it cannot be built")).round(6)
    array([4., 4.])
    """

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self._labels, self._present = labels, np.unique(labels)
        self._origin = np.zeros(0)
        self._kept: list[Floats] = []

    def add(self, rows: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Count a part, features (n, D) and labels (n,); all parts together have the labels given at the start."""
        values = rows.astype(np.float64)
        if not len(self._origin):
            self._origin = values.mean(axis=0)
            size = len(self._origin)
            self._few = len(self._labels) <= size
            self._sums = np.zeros((len(self._present), size))
            self._squares = np.zeros((0, 0) if self._few else (size, size))
        shifted = values - self._origin
        self._sums += (labels == self._present[:, None]).astype(np.float64) @ shifted
        if self._few:
            self._kept.append(shifted)
        else:
            self._squares += shifted.T @ shifted

    def learned(self, refusal: str) -> dict[str, Floats]:
        """An origin (D,), a whitening (D, R) behind which distances are Euclidean, and the whitened means (K, R).

        Features that never vary within a class are an `InputError` that begins with the refusal.
        """
        rows = np.searchsorted(self._present, self._labels)
        means = self._sums / np.bincount(rows)[:, None]
        if self._few:
            whitening = _whitening_of_rows(np.concatenate(self._kept) - means[rows])
        else:
            whitening = _whitening((self._squares - means.T @ self._sums) / len(self._labels))
        if not whitening.size:
            raise InputError(f"{refusal}: the features of a class never vary")
        return {"origin": self._origin, "whitening": whitening, "means": means @ whitening}


def class_distances(features: NDArray[Any], gaussians: Arrays) -> Floats:
    """min_k (f - m_k)^T S^+ (f - m_k) of features (N, D): (N,), by what `ClassGaussians` learned."""
    whitened = (features - gaussians["origin"]) @ gaussians["whitening"]
    return np.asarray(cdist(whitened, gaussians["means"], "sqeuclidean").min(axis=1))


def _whitening(covariance: Floats) -> Floats:
    """W (D, R) with W W^T = S^+ of a covariance S (D, D).

    By Cholesky, S = L L^T and W = L^-T, where every direction varies, which the condition number shows; else by the
    eigenvectors of those directions that do. Features that never vary are left out before.
    """
    size, alive = len(covariance), np.diag(covariance) > 0
    inner = covariance[np.ix_(alive, alive)]
    if not len(inner):
        return np.zeros((size, 0))
    factor, singular = lapack.dpotrf(inner, lower=1)
    share = 0.0 if singular else lapack.dpocon(factor, np.abs(inner).sum(axis=0).max(), uplo="L")[0]
    if share > 10 * SMALLEST_VARIANCE:
        inverse = solve_triangular(factor, np.eye(len(inner)), lower=True).T
    else:
        values, vectors = np.linalg.eigh(inner)
        varies = values > SMALLEST_VARIANCE * values[-1]
        inverse = vectors[:, varies] / np.sqrt(values[varies])
    whitening = np.zeros((size, inverse.shape[1]))
    whitening[alive] = inverse
    return whitening


def _whitening_of_rows(rows: Floats) -> Floats:
    """The same from centred rows (n, D), n at most D: the eigenvectors of X^T X from those of X X^T."""
    values, vectors = np.linalg.eigh(rows @ rows.T / len(rows))
    varies = values > max(SMALLEST_VARIANCE * values[-1], 0.0)
    return np.asarray(rows.T @ (vectors[:, varies] / (values[varies] * np.sqrt(len(rows)))))


@dataclass(frozen=True, kw_only=True)
class LastLayerMonitor(Monitor):
    """A monitor that learns from the features of the training images and the layer that makes logits of them."""

    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def head_and_features(self, training: Training) -> tuple[Floats, Floats, NDArray[np.float32]]:
        """Weights (K, D) and bias (K,) of the last linear layer, and all features (n, D).

        On some images it is checked that the layer makes the model's logits.
        """
        head = find_head(training.model)
        kept: list[NDArray[np.float32]] = []
        for features, logits in training.parts("features", "logits"):
            computed = features @ head.weights.T + head.bias
            if not kept and np.abs(computed - logits).max() > HEAD_TOLERANCE * max(1.0, np.abs(logits).max()):
                raise InputError(
                    f"monitor {self.name} cannot use model {training.model.name}: its last linear layer does not make "
                    "its logits"
                )
            kept.append(features)
        return head.weights.astype(np.float64), head.bias.astype(np.float64), np.concatenate(kept)


@registered(MONITORS, "vim")
class Vim(LastLayerMonitor):
    """log sum_k exp z_k - a |R^T (f - o)|: the energy less the length of what leaves the principal space.

    o = -W^+ b is the origin of the last layer z = W f + b; R spans all but the `dimensions` strongest directions of the
    training features around o; a = mean max_k z_k / mean |R^T (f - o)|. By default half of the directions are
    principal, or half as many as there are images where those are fewer. They are what is kept, P: R^T (f - o) is as
    long as what P P^T (f - o) leaves of f - o.
    """

    dimensions: int | None = None

    differs_from_paper: ClassVar[str] = (
        "half of the directions are principal unless the setting dimensions says otherwise; the published code takes "
        "1000 where features have 2048 values or more, else 512"
    )

    def __post_init__(self) -> None:
        if self.dimensions is not None:
            require_count(self, "dimensions", least=0)

    def fit(self, training: Training) -> Arrays:
        """The origin (D,), the principal space (D, P), a, and the last layer."""
        weights, bias, rows = self.head_and_features(training)
        size = weights.shape[1]
        principal = min(size, len(rows)) // 2 if self.dimensions is None else self.dimensions
        if principal >= size:
            raise InputError(
                f"monitor {self.name}: dimensions must be from 0 to {size - 1} for this model, not {principal}"
            )
        origin = -np.linalg.pinv(weights) @ bias
        space = _strongest(rows, origin, principal)
        lengths = largest = whole = 0.0
        for start in range(0, len(rows), PART):
            values = rows[start : start + PART].astype(np.float64)
            lengths += float(_residual_lengths(values - origin, space).sum())
            whole += float(np.linalg.norm(values - origin, axis=1).sum())
            largest += float((values @ weights.T + bias).max(axis=1).sum())
        if lengths <= NOTHING_LEFT * whole:
            raise InputError(
                f"monitor {self.name} cannot be built on {training.name}: no feature leaves the principal space; give "
                f"it fewer dimensions than {principal}, or more training images than {len(rows)}"
            )
        scale = np.asarray(largest / lengths)
        return {"origin": origin, "principal": space, "scale": scale, "weights": weights, "bias": bias}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy less the scaled length of the residual, (N,)."""
        values = signals.features().astype(np.float64)
        virtual = state["scale"] * _residual_lengths(values - state["origin"], state["principal"])
        return np.asarray(energy(values @ state["weights"].T + state["bias"]) - virtual)


def _strongest(rows: NDArray[np.float32], origin: Floats, count: int) -> Floats:
    """The `count` strongest directions (D, at most count) of rows (n, D) around an origin, orthonormal."""
    size = len(origin)
    if len(rows) <= size:
        shifted = rows - origin
        values, vectors = np.linalg.eigh(shifted @ shifted.T)
        kept = slice(max(0, len(values) - count), None) if count else slice(0, 0)
        strong = values[kept] > SMALLEST_VARIANCE * max(values[-1], 0.0)
        return np.asarray(shifted.T @ (vectors[:, kept][:, strong] / np.sqrt(values[kept][strong])))
    squares = np.zeros((size, size))
    for start in range(0, len(rows), PART):
        shifted = rows[start : start + PART] - origin
        squares += shifted.T @ shifted
    if not count:
        return np.zeros((size, 0))
    return np.asarray(eigh(squares, subset_by_index=(size - count, size - 1), overwrite_a=True)[1])


def _residual_lengths(shifted: Floats, space: Floats) -> Floats:
    """The lengths (n,) of rows (n, D) less their projection on a space (D, P)."""
    return np.asarray(np.linalg.norm(shifted - (shifted @ space) @ space.T, axis=1))


@registered(MONITORS, "react")
class React(LastLayerMonitor):
    """log sum_k exp (W min(f, c) + b)_k: the energy, features f cut at c, their `quantile` over the training data."""

    quantile: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.quantile <= 1:
            raise InputError(
                f"monitor {self.name}: the quantile is a share above 0 and at most 1, not {self.quantile!r}"
            )

    def fit(self, training: Training) -> Arrays:
        """The cut c and the last layer."""
        weights, bias, values = self.head_and_features(training)
        cut = np.asarray(np.quantile(values, self.quantile, overwrite_input=True), np.float64)
        return {"cut": cut, "weights": weights, "bias": bias}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy of the cut features, (N,)."""
        values = np.minimum(signals.features().astype(np.float64), state["cut"])
        return energy(values @ state["weights"].T + state["bias"])
