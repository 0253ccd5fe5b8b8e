"""Covariances of features, and what makes distances under them Euclidean: shared by all Mahalanobis distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist

from roadworthy.core.errors import InputError
from roadworthy.models.signals import Training
from roadworthy.monitors.learned import Arrays, Floats

SMALLEST_VARIANCE = 1e-10
"""Directions whose variance is below this share of the largest carry no information, and are left out."""


@dataclass(frozen=True)
class FeatureMoments:
    """Sums over the features of training images, as differences from an origin: what both covariances are made of.

    origin   (D,), the mean of the first images;  class_rows: the row of its class for each image, (n,)
    sums     of the features of each class, (K, D)
    squares  of all features, the matrix (D, D), where images outnumber features; else `rows` (n, D) holds all features
    """

    origin: Floats
    class_rows: NDArray[np.intp]
    sums: Floats
    squares: Floats | None
    rows: Floats | None

    @classmethod
    def of(cls, training: Training, layer: str | None) -> FeatureMoments:
        """The sums over a layer, batch by batch: memory grows with the data only while it is below that of a matrix."""
        sums = FeatureSums(training.labels)
        for rows, labels in training.parts(f"features:{layer or ''}", "labels"):
            sums.add(rows, labels)
        return sums.moments()

    @property
    def class_means(self) -> Floats:
        """The mean of each class, less the origin: (K, D)."""
        return np.asarray(self.sums / np.bincount(self.class_rows)[:, None])

    @property
    def mean(self) -> Floats:
        """The mean of all images, less the origin: (D,)."""
        return np.asarray(self.sums.sum(axis=0) / len(self.class_rows))

    def within_classes(self) -> Floats:
        """The whitening (D, R) of the covariance around the class means, one for all classes."""
        means = self.class_means
        if self.squares is None:
            return whitening_of_rows(self._held - means[self.class_rows])
        return whitening((self.squares - means.T @ self.sums) / len(self.class_rows))

    def of_all(self) -> Floats:
        """The whitening (D, R) of the covariance around the mean of all images, classes left aside."""
        if self.squares is None:
            return whitening_of_rows(self._held - self.mean)
        return whitening(self.squares / len(self.class_rows) - np.outer(self.mean, self.mean))

    def class_gaussians(self, refusal: str) -> dict[str, Floats]:
        """What `class_distances` reads: origin (D,), the whitening (D, R) within classes, whitened class means (K, R).

        Features that never vary within a class are an `InputError` that begins with the refusal.
        """
        within = self.within_classes()
        if not within.size:
            raise InputError(f"{refusal}: the features of a class never vary")
        return {"origin": self.origin, "whitening": within, "means": self.class_means @ within}

    @property
    def _held(self) -> Floats:
        assert self.rows is not None
        return self.rows


class FeatureSums:
    """Adds up the moments of features that come in parts.

    >>> rows, labels = np.array([[0.0], [2.0], [6.0], [8.0]]), np.array([0, 0, 1, 1])
    >>> sums = FeatureSums(labels)
    >>> sums.add(rows, labels)
    >>> class_distances(np.array([[3.0], [9.0]]), sums.moments().class_gaussians("it cannot be built")).round(6)
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

    def moments(self) -> FeatureMoments:
        """The moments of all parts."""
        class_rows = np.searchsorted(self._present, self._labels)
        squares, rows = (None, np.concatenate(self._kept)) if self._few else (self._squares, None)
        return FeatureMoments(self._origin, class_rows, self._sums, squares, rows)


def class_distances(features: NDArray[Any], gaussians: Arrays) -> Floats:
    """min_k (f - m_k)^T S^+ (f - m_k) of features (N, D): (N,), by what `FeatureMoments.class_gaussians` gives."""
    whitened = (features - gaussians["origin"]) @ gaussians["whitening"]
    return np.asarray(cdist(whitened, gaussians["means"], "sqeuclidean").min(axis=1))


def whitening(covariance: Floats) -> Floats:
    """W (D, R) with W W^T = S^+ of a covariance S (D, D).

    By Cholesky, S = L L^T and W = L^-T, where every direction varies, which the condition number shows; else by the
    eigenvectors of those directions that do. Features that never vary are left out before.

    >>> whitening(np.diag([4.0, 0.0]))
    array([[0.5],
           [0. ]])
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
    whitened = np.zeros((size, inverse.shape[1]))
    whitened[alive] = inverse
    return whitened


def whitening_of_rows(rows: Floats) -> Floats:
    """The same from centred rows (n, D), n at most D: the eigenvectors of X^T X from those of X X^T."""
    values, vectors = np.linalg.eigh(rows @ rows.T / len(rows))
    varies = values > max(SMALLEST_VARIANCE * values[-1], 0.0)
    return np.asarray(rows.T @ (vectors[:, varies] / (values[varies] * np.sqrt(len(rows)))))
