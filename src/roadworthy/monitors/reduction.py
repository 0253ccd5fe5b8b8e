"""Fewer dimensions by PCA and ISOMAP: learned once, as plain arrays, and applied to new points as they are."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import cdist

from roadworthy.monitors.learned import Arrays, Floats

NEIGHBOURS = 5
"""How many of its nearest points a point is joined with in the graph of ISOMAP."""
SMALLEST_SHARE = 1e-10
"""Directions with less than this share of the largest eigenvalue carry nothing: their coordinate is 0."""


def fit_pca(points: Floats, dimensions: int) -> Arrays:
    """The mean (D,) and the strongest directions (D, `dimensions`) of points (n, D); zeros where points have fewer.

    >>> fit_pca(np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]]), 2)["directions"]
    array([[1., 0.],
           [0., 0.]])
    """
    mean = points.mean(axis=0)
    _, lengths, rows = np.linalg.svd(points - mean, full_matrices=False)
    strong = np.flatnonzero(lengths**2 > SMALLEST_SHARE * max(lengths[0] ** 2, np.finfo(float).tiny))[:dimensions]
    directions = np.zeros((points.shape[1], dimensions))
    directions[:, : len(strong)] = _with_fixed_signs(rows[strong].T)
    return {"mean": mean, "directions": directions}


def apply_pca(points: Floats, learned: Arrays) -> Floats:
    """Coordinates (N, `dimensions`) of points (N, D).

    >>> line = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    >>> apply_pca(np.array([[5.0, 7.0]]), fit_pca(line, 2))
    array([[3., 0.]])
    """
    return np.asarray((points - learned["mean"]) @ learned["directions"])


def fit_isomap(points: Floats, dimensions: int) -> Arrays:
    """What ISOMAP learns of points (n, D); points that are equal count once, so u of them are left.

    points      (u, D) float32
    geodesics   (u, u) float32: the length of the shortest way from point to point along edges, which join each point
                with its `NEIGHBOURS` nearest; parts that no edge joins are joined where they are nearest
    projection  (u, `dimensions`): eigenvectors v / sqrt(l) of the centred kernel -g^2 / 2; zeros where there are fewer
    row_means   (u,) of that kernel

    >>> sorted(fit_isomap(np.array([[0.0], [1.0], [3.0]]), 1))
    ['geodesics', 'points', 'projection', 'row_means']
    """
    distinct = np.unique(points.astype(np.float32), axis=0)
    geodesics = _geodesics(distinct.astype(np.float64)).astype(np.float32)
    kernel = -0.5 * geodesics.astype(np.float64) ** 2
    row_means = kernel.mean(axis=0)
    centred = kernel - row_means - row_means[:, None] + row_means.mean()
    values, vectors = np.linalg.eigh(centred)
    strong = np.argsort(-values, kind="stable")[:dimensions]
    strong = strong[values[strong] > SMALLEST_SHARE * max(values[-1], np.finfo(float).tiny)]
    projection = np.zeros((len(distinct), dimensions))
    projection[:, : len(strong)] = _with_fixed_signs(vectors[:, strong]) / np.sqrt(values[strong])
    return {"points": distinct, "geodesics": geodesics, "projection": projection, "row_means": row_means}


def apply_isomap(points: Floats, learned: Arrays) -> Floats:
    """Coordinates (N, `dimensions`) of points (N, D), as `sklearn.manifold.Isomap.transform` finds them.

    A new point reaches every learned one through that of its nearest learned points that makes the way shortest.

    >>> line = fit_isomap(np.array([[0.0], [1.0], [3.0]]), 1)
    >>> np.abs(np.diff(apply_isomap(np.array([[0.0], [3.0]]), line), axis=0)).round(5)
    array([[3.]])
    """
    known, geodesics = learned["points"].astype(np.float64), learned["geodesics"]
    distances = cdist(points, known)
    count = min(NEIGHBOURS, len(known))
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :count]
    ways = np.full(distances.shape, np.inf)
    for column in nearest.T:
        own = distances[np.arange(len(points)), column]
        np.minimum(ways, own[:, None] + geodesics[column], out=ways)
    kernel = -0.5 * ways**2
    row_means = learned["row_means"]
    centred = kernel - row_means - kernel.mean(axis=1, keepdims=True) + row_means.mean()
    return np.asarray(centred @ learned["projection"])


def _geodesics(points: Floats) -> Floats:
    """Lengths (u, u) of the shortest ways along the edges between distinct points (u, D)."""
    distances = cdist(points, points)
    if len(points) == 1:
        return np.zeros((1, 1))
    ranked = distances.copy()
    np.fill_diagonal(ranked, np.inf)
    nearest = np.argsort(ranked, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(points) - 1)]
    starts, ends = np.repeat(np.arange(len(points)), nearest.shape[1]), nearest.ravel()
    graph = coo_matrix((distances[starts, ends], (starts, ends)), shape=distances.shape)
    parts, part_of = connected_components(graph, directed=False)
    further = [_nearest_pair(distances, part_of == one, part_of == two) for two in range(parts) for one in range(two)]
    if further:
        joined = np.array(further)
        starts, ends = np.concatenate([starts, joined[:, 0]]), np.concatenate([ends, joined[:, 1]])
        graph = coo_matrix((distances[starts, ends], (starts, ends)), shape=distances.shape)
    return np.asarray(shortest_path(graph.tocsr(), method="D", directed=False))


def _nearest_pair(distances: Floats, first: Floats, second: Floats) -> tuple[int, int]:
    """The point of each of two parts, given as masks (u,), between which the distance is least."""
    rows, columns = np.flatnonzero(first), np.flatnonzero(second)
    closest = int(distances[np.ix_(rows, columns)].argmin())
    return int(rows[closest // len(columns)]), int(columns[closest % len(columns)])


def _with_fixed_signs(vectors: Floats) -> Floats:
    """Columns (n, d), each turned so that its largest entry in absolute value is positive."""
    if not vectors.size:
        return vectors
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return np.asarray(vectors * np.where(largest < 0, -1.0, 1.0))
