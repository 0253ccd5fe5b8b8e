"""K-means whose bits depend on the points alone: a fixed seed, one thread, sums in the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from roadworthy.monitors.learned import Floats

STARTS = 4
"""How often the search starts anew from other points; the result of least inertia is kept."""
MOST_ROUNDS = 300
LEAST_GAIN = 0.1
"""Further clusters are added until they lower the inertia by less than this share."""


@dataclass(frozen=True)
class Clusters:
    """Clusters of points.

    centres  (k, d);  members: the cluster of each point, (n,);  inertia: the sum of squared distances to the centres
    """

    centres: Floats
    members: NDArray[np.int64]
    inertia: float


def k_means(points: Floats, count: int, seed: int = 0) -> Clusters:
    """At most `count` clusters of points (n, d): Lloyd's algorithm from starts chosen by k-means++.

    There are never more clusters than distinct points.

    >>> clusters = k_means(np.array([[0.0], [1.0], [10.0], [11.0]]), 2)
    >>> sorted(clusters.centres.ravel().tolist()), clusters.inertia
    ([0.5, 10.5], 1.0)
    """
    count = min(count, len(np.unique(points, axis=0)))
    if count == 1:
        return _settled(points, points.mean(axis=0, keepdims=True))
    rng = np.random.Generator(np.random.Philox(key=seed, counter=count))
    attempts = [_settled(points, _starting_centres(points, count, rng)) for _ in range(STARTS)]
    return min(attempts, key=lambda attempt: attempt.inertia)


def growing_k_means(points: Floats, least_gain: float = LEAST_GAIN, seed: int = 0) -> Clusters:
    """Clusters of points (n, d), one more at a time while that lowers the inertia by at least the share `least_gain`.

    >>> len(growing_k_means(np.array([[0.0], [0.1], [10.0], [10.1]]), least_gain=0.9995).centres)
    2
    """
    clusters, distinct = k_means(points, 1, seed), len(np.unique(points, axis=0))
    while len(clusters.centres) < distinct and clusters.inertia > 0:
        larger = k_means(points, len(clusters.centres) + 1, seed)
        if clusters.inertia - larger.inertia < least_gain * clusters.inertia:
            break
        clusters = larger
    return clusters


def nearest_centres(points: Floats, centres: Floats) -> NDArray[np.int64]:
    """The index (n,) of the centre, of centres (k, d), that is nearest to each point (n, d); the first of equal ones.

    >>> nearest_centres(np.array([[0.0], [5.0], [9.0]]), np.array([[1.0], [9.0]]))
    array([0, 0, 1])
    """
    return np.asarray(cdist(points, centres, "sqeuclidean").argmin(axis=1), np.int64)


def _starting_centres(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Points far from each other: each further one is drawn in proportion to its squared distance from those before."""
    chosen = [int(rng.integers(len(points)))]
    squared = cdist(points, points[chosen], "sqeuclidean")[:, 0]
    while len(chosen) < count:
        cumulated = np.cumsum(squared)
        drawn = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
        chosen.append(min(drawn, int(np.flatnonzero(squared)[-1])))
        squared = np.minimum(squared, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
    return points[chosen]


def _settled(points: Floats, centres: Floats) -> Clusters:
    """Clusters once no point changes its cluster; a cluster that loses all its points starts anew at the farthest."""
    members = np.full(len(points), -1, np.int64)
    for _ in range(MOST_ROUNDS):
        squared = cdist(points, centres, "sqeuclidean")
        nearest = squared.argmin(axis=1)
        own = squared[np.arange(len(points)), nearest]
        counts = np.bincount(nearest, minlength=len(centres))
        for empty in np.flatnonzero(counts == 0):
            farthest = int(np.where(counts[nearest] > 1, own, -1.0).argmax())
            counts[nearest[farthest]] -= 1
            nearest[farthest], counts[empty] = empty, 1
        if np.array_equal(nearest, members):
            break
        members = nearest
        centres = np.stack([points[members == label].mean(axis=0) for label in range(len(centres))])
    inertia = float(((points - centres[members]) ** 2).sum())
    return Clusters(centres, members, inertia)
