"""Outside-the-Box: boxes around the features that training images of a class have, and how far outside an image is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.parameters import registered
from roadworthy.core.random import Streams
from roadworthy.core.validation import require_memory
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count, require_layer
from roadworthy.monitors.correct import correct_parts
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.kmeans import growing_k_means, k_means, nearest_centres
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.reduction import apply_isomap, apply_pca, fit_isomap, fit_pca

REDUCTIONS = ("none", "two_neurons", "pca", "isomap")
LEARNED_REDUCTIONS = {"pca": (fit_pca, apply_pca), "isomap": (fit_isomap, apply_isomap)}
DIMENSIONS = 2
TOLERANCE = 1e-6
"""How far over its edge a box still reaches, as a share of the largest coordinate of its class in absolute value."""
NEVER_INSIDE = -1e30
"""The score of an image whose predicted class has no box; no score is lower."""
MOST_CLUSTERS = 10_000
ENDS = ("lower", "upper")


@registered(MONITORS, "boxes")
class Boxes(Monitor):
    """-t, with t the least enlargement of the boxes of the predicted class at which one of them holds the features f.

    A class has a box for each k-means cluster of its correctly classified training images, from the least to the
    largest value in each direction d, with centre c and half-width h:

    t = max(0, min over boxes of max_d (|f_d - c_d| - h_d - e) / max(h_d, e))

    Boxes are closed and reach over their edge by a tolerance e, 1e-6 of the largest coordinate of the class; a
    half-width below e counts as e. So every enlargement can be judged from one stored score: the method itself, with
    its enlargement `tau`, rejects where the score is below -tau. A predicted class without a correctly classified
    training image has no box: its images score -1e30, and a note names it.

    clusters    boxes per class; None adds clusters while that lowers the k-means inertia by at least a tenth
    tau         the enlargement, in half-widths
    layer       whose features are used; None: what goes into the last linear layer
    reduction   none: all neurons;  two_neurons: the first and the last one;  pca, isomap: `dimensions` (2) directions,
                learned for each class from its correctly classified training images
    most        images of a class that clusters and reductions are learned from, at most: those with the smallest
                random numbers by image id. The boxes then hold all correctly classified training images: the data is
                read a second time where a class has more
    """

    clusters: int | None = None
    tau: float = 0.0001
    layer: str | None = None
    reduction: str = "none"
    dimensions: int | None = None
    most: int = 500

    needs: ClassVar[frozenset[str]] = frozenset({"features", "probabilities"})
    differs_from_paper: ClassVar[str] = (
        "one layer, where the paper can watch several; the score is the least enlargement at which an image lies "
        "inside, which answers for every enlargement at once; boxes reach over their edge by a tolerance; clusters "
        "and reductions are learned from at most 500 images of a class unless the setting most says otherwise; "
        "reductions are not the paper's but those of the SAS report D1.1"
    )

    def __post_init__(self) -> None:
        if self.clusters is not None:
            require_count(self, "clusters", most=MOST_CLUSTERS)
        if isinstance(self.tau, bool) or not isinstance(self.tau, int | float) or not 0 <= self.tau < -NEVER_INSIDE:
            raise InputError(f"monitor {self.name}: tau is a number of at least 0, not {self.tau!r}")
        require_layer(self, self.layer)
        if self.reduction not in REDUCTIONS:
            raise UnknownName(f"reduction of monitor {self.name}", str(self.reduction), REDUCTIONS)
        if self.dimensions is not None:
            require_count(self, "dimensions")
            if self.reduction not in LEARNED_REDUCTIONS:
                raise InputError(
                    f"monitor {self.name}: dimensions are those of the reductions pca and isomap: leave them out where "
                    f"the reduction is {self.reduction}"
                )
        require_count(self, "most")

    @property
    def own_threshold(self) -> float:
        """-tau: the score below which an image lies outside all enlarged boxes."""
        return -float(self.tau)

    def work(self, images: int) -> int:
        """Each image is counted twice: once for the clusters, once for the boxes."""
        return 2 * images

    def fit(self, training: Training) -> Arrays:
        """Boxes (B, d) by `centres` and `half_widths`, the class of each (B,), and the tolerance of each class (K,).

        `images` (K, 2) holds how many images of each class are in boxes, and of how many its clusters were learned. A
        reduction adds its arrays for each class, their names led by the number of the class.
        """
        samples = self._sample(training)
        learned = {f"{label}.{name}": array for label in samples for name, array in self._reduction(samples[label])}
        extents = {label: self._extent(self._reduced(sample.rows, label, learned)) for label, sample in samples.items()}
        if any(sample.seen > len(sample.rows) for sample in samples.values()):
            for features, labels, _ in correct_parts(self, training, self.layer):
                for label in np.unique(labels).tolist():
                    extents[label].include(self._reduced(self._columns(features[labels == label]), label, learned))
        else:
            training.progress(len(training))
        images, tolerances = np.zeros((training.model.num_classes, 2), np.int64), np.zeros(training.model.num_classes)
        for label, extent in extents.items():
            images[label] = samples[label].seen, len(samples[label].rows)
            tolerances[label] = TOLERANCE * (extent.largest or 1.0)
        lower, upper = (np.concatenate([getattr(extent, end) for extent in extents.values()]) for end in ENDS)
        classes = np.repeat([*extents], [len(extent.lower) for extent in extents.values()])
        boxes = {"centres": (lower + upper) / 2, "half_widths": (upper - lower) / 2, "classes": classes}
        return learned | boxes | {"tolerances": tolerances, "images": images}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Minus the least enlargement, (N,); NaN where a feature is not finite."""
        features = self._columns(signals.features(self.layer))
        predicted = signals.probabilities.argmax(axis=1)
        finite = np.isfinite(features).all(axis=1)
        scores = np.where(finite, NEVER_INSIDE, np.nan)
        for label in np.unique(predicted[finite]).tolist():
            own = state["classes"] == label
            if own.any():
                shown = finite & (predicted == label)
                points = self._reduced(features[shown], label, state)
                boxes = state["centres"][own], state["half_widths"][own]
                scores[shown] = 0.0 - least_enlargement(points, *boxes, float(state["tolerances"][label]))
        return np.asarray(np.maximum(scores, NEVER_INSIDE))

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """Notes on classes that have no box, on boxes without any width, and on images that clusters did not see."""
        boxed, sampled = state["images"].T
        flat = state["classes"][(state["half_widths"] == 0).all(axis=1)]
        sentences = {
            "classes without a correctly classified training image are always outside": np.flatnonzero(boxed == 0),
            "classes with a box that has no width, around one image or equal ones": np.unique(flat),
            f"classes whose clusters were learned from {self.most} of their images": np.flatnonzero(boxed > sampled),
        }
        return tuple(f"{sentence}: {classes.tolist()}" for sentence, classes in sentences.items() if len(classes))

    def _sample(self, training: Training) -> dict[int, _Sample]:
        """At most `most` correctly classified training images of each class, by class."""
        samples: dict[int, _Sample] = {}
        keys = np.array([rng.random() for rng in Streams(f"monitor {self.name}").each(training.ids)])
        for features, labels, numbers in correct_parts(self, training, self.layer):
            rows = self._columns(features)
            held = min(len(training), training.model.num_classes * self.most)
            require_memory(held * rows.shape[1] * rows.itemsize, f"a fit of monitor {self.name}")
            for label in np.unique(labels).tolist():
                own = labels == label
                sample = samples.setdefault(label, _Sample(self.most))
                sample.add(rows[own], keys[numbers[own]], numbers[own])
        for sample in samples.values():
            sample.trim()
        return dict(sorted(samples.items()))

    def _columns(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """The neurons that are used, of features (N, D)."""
        return features[:, [0, -1]] if self.reduction == "two_neurons" else features

    def _reduction(self, sample: _Sample) -> Sequence[tuple[str, NDArray[Any]]]:
        """What the reduction of one class learns, by name; nothing where nothing is to be learned."""
        if self.reduction not in LEARNED_REDUCTIONS:
            return ()
        learn, _ = LEARNED_REDUCTIONS[self.reduction]
        return tuple(learn(sample.rows.astype(np.float64), self.dimensions or DIMENSIONS).items())

    def _reduced(self, features: NDArray[np.float32], label: int, state: Arrays) -> Floats:
        """Coordinates (n, d) of features (n, D) in the space of a class."""
        points = features.astype(np.float64)
        if self.reduction not in LEARNED_REDUCTIONS:
            return points
        _, apply = LEARNED_REDUCTIONS[self.reduction]
        return apply(points, _of_class(label, state))

    def _extent(self, points: Floats) -> _Extent:
        """The extent of each cluster of a class, from the points (n, d) that were sampled."""
        clusters = growing_k_means(points) if self.clusters is None else k_means(points, self.clusters)
        extent = _Extent(clusters.centres)
        extent.include(points)
        return extent


def least_enlargement(points: Floats, centres: Floats, half_widths: Floats, tolerance: float) -> Floats:
    """t (N,): by how many half-widths boxes (B, d) must grow until one of them holds each point (N, d).

    t = max(0, min over boxes of max_d (|x_d - c_d| - h_d - e) / max(h_d, e)), with the tolerance e.

    >>> least_enlargement(np.array([[0.0], [1.0], [3.0]]), np.array([[0.0]]), np.array([[1.0]]), 1e-9).round(6)
    array([0., 0., 2.])
    """
    least = np.full(len(points), np.inf)
    for centre, half_width in zip(centres, half_widths, strict=True):
        beyond = (np.abs(points - centre) - half_width - tolerance) / np.maximum(half_width, tolerance)
        np.minimum(least, beyond.max(axis=1), out=least)
    return np.asarray(np.maximum(least, 0.0))


def _of_class(label: int, state: Arrays) -> Mapping[str, NDArray[Any]]:
    """The arrays of a state whose names are led by the number of a class, without it."""
    lead = f"{label}."
    return {name.removeprefix(lead): array for name, array in state.items() if name.startswith(lead)}


class _Extent:
    """The extent of the clusters of one class: from `lower` (B, d) to `upper`, and the `largest` absolute value."""

    def __init__(self, centres: Floats) -> None:
        self._centres = centres
        self.lower, self.upper, self.largest = np.full(centres.shape, np.inf), np.full(centres.shape, -np.inf), 0.0

    def include(self, points: Floats) -> None:
        """Widen the cluster with the nearest centre for each of the points (n, d)."""
        members = nearest_centres(points, self._centres)
        np.minimum.at(self.lower, members, points)
        np.maximum.at(self.upper, members, points)
        self.largest = max(self.largest, float(np.abs(points).max()))


class _Sample:
    """At most `most` rows, those with the smallest keys, in the order of their numbers; `seen` is how many there were.

    It holds twice as many rows at most, so memory does not grow with the data; which rows are kept depends on their
    keys alone, never on the parts they came in.
    """

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0
        self.rows: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._pending: list[tuple[NDArray[np.float32], Floats, NDArray[np.int64]]] = []
        self._held = 0

    def add(self, rows: NDArray[np.float32], keys: Floats, numbers: NDArray[np.int64]) -> None:
        """Take further rows (n, D) with their keys (n,) and numbers (n,)."""
        self.seen += len(rows)
        self._held += len(rows)
        self._pending.append((rows, keys, numbers))
        if self._held > 2 * self.most:
            self.trim()

    def trim(self) -> None:
        """Let go of all rows but those that are kept."""
        rows, keys, numbers = (np.concatenate(column) for column in zip(*self._pending, strict=True))
        kept = np.sort(np.argsort(keys, kind="stable")[: self.most])
        kept = kept[np.argsort(numbers[kept], kind="stable")]
        self.rows = rows[kept]
        self._pending, self._held = [(self.rows, keys[kept], numbers[kept])], len(kept)
