"""Monitors of a network's features: Mahalanobis, ViM and ReAct. By default what goes into the last linear layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.protocols import Dataset, Model
from roadworthy.core.types import Batch
from roadworthy.models.head import Head, find_head
from roadworthy.monitors.base import MONITORS, Arrays, Floats, Monitor, features_of, in_batches, logits_of, over
from roadworthy.monitors.confidence import energy

SMALLEST_VARIANCE = 1e-10
"""Directions whose variance is below this share of the largest carry no information, and are left out."""
HEAD_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class FeatureMonitor(Monitor):
    """A monitor that learns from the features of the training images, a batch at a time."""

    needs: ClassVar[frozenset[str]] = frozenset({"features"})

    def each(self, model: Model, data: Dataset, layer: str | None) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
        """Features (n, D) and labels (n,) of the training data, in parts."""
        for batch in over(data):
            values = in_batches(model, batch, self.batch_size, lambda part: features_of(model, part, layer))
            yield values.astype(np.float64), batch.labels


@MONITORS.register("mahalanobis")
@dataclass(frozen=True, kw_only=True)
class Mahalanobis(FeatureMonitor):
    """-min_k (f - m_k)^T S^+ (f - m_k): class means m_k, one covariance S shared by all classes, of features f.

    Sums are made batch by batch, so memory does not grow with the data. S^+ leaves out directions without variance.
    """

    layer: str | None = None

    name: ClassVar[str] = "mahalanobis"
    classes: ClassVar[int] = 2

    def fit(self, model: Model, data: Dataset) -> Arrays:
        """Whitened class means (K, R) and the whitening (D, R): distances are Euclidean behind it."""
        present, origin = np.unique(data.labels), None
        for values, labels in self.each(model, data, self.layer):
            if origin is None:
                origin = values.mean(axis=0)
                counts, sums = np.zeros(len(present)), np.zeros((len(present), len(origin)))
                squares = np.zeros((len(origin), len(origin)))
            index = np.searchsorted(present, labels)
            shifted = values - origin
            np.add.at(counts, index, 1.0)
            np.add.at(sums, index, shifted)
            squares += shifted.T @ shifted
        assert origin is not None
        scatter = squares - np.einsum("kd,ke->de", sums / counts[:, None], sums)
        values, vectors = np.linalg.eigh(scatter / counts.sum())
        kept = values > SMALLEST_VARIANCE * values[-1]
        if values[-1] <= 0:
            raise InputError(f"monitor {self.name} cannot be built on {data.name}: the features of a class never vary")
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        return {"origin": origin, "whitening": whitening, "means": sums / counts[:, None] @ whitening}

    def read(self, model: Model, batch: Batch) -> Floats:
        """(N,)."""
        state = self.state
        white = (features_of(model, batch, self.layer) - state["origin"]) @ state["whitening"]
        nearest = np.full(len(white), np.inf)
        for mean in state["means"]:
            np.minimum(nearest, np.square(white - mean).sum(axis=1), out=nearest)
        return -nearest


@MONITORS.register("vim")
@dataclass(frozen=True, kw_only=True)
class Vim(FeatureMonitor):
    """log sum_k exp z_k - a |R^T (f - o)|: the energy less the length of what leaves the principal space.

    o = -W^+ b is the origin of the last layer z = W f + b; R spans all but the `dimensions` strongest directions of the
    training features around o; a = mean max_k z_k / mean |R^T (f - o)|. By default half of the directions are
    principal.
    """

    dimensions: int | None = None

    name: ClassVar[str] = "vim"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def fit(self, model: Model, data: Dataset) -> Arrays:
        """The origin (D,), the residual space (D, R), a, and the last layer."""
        head = checked_head(self, model, data)
        weights, bias = head.weights.astype(np.float64), head.bias.astype(np.float64)
        size = weights.shape[1]
        principal = size // 2 if self.dimensions is None else self.dimensions
        if not 0 <= principal < size:
            raise InputError(
                f"monitor {self.name}: dimensions must be from 0 to {size - 1} for this model, not {principal}"
            )
        origin = -np.linalg.pinv(weights) @ bias
        squares = np.zeros((size, size))
        for values, _ in self.each(model, data, head.layer):
            squares += (values - origin).T @ (values - origin)
        residual = np.linalg.eigh(squares)[1][:, : size - principal]
        lengths = largest = 0.0
        for values, _ in self.each(model, data, head.layer):
            lengths += float(np.linalg.norm((values - origin) @ residual, axis=1).sum())
            largest += float((values @ weights.T + bias).max(axis=1).sum())
        if lengths <= 0:
            raise InputError(
                f"monitor {self.name} cannot be built on {data.name}: no feature leaves the principal space"
            )
        scale = np.asarray(largest / lengths)
        return {"origin": origin, "residual": residual, "scale": scale, "weights": weights, "bias": bias}

    def read(self, model: Model, batch: Batch) -> Floats:
        """(N,)."""
        state = self.state
        values = features_of(model, batch).astype(np.float64)
        virtual = state["scale"] * np.linalg.norm((values - state["origin"]) @ state["residual"], axis=1)
        return np.asarray(energy(values @ state["weights"].T + state["bias"]) - virtual)


@MONITORS.register("react")
@dataclass(frozen=True, kw_only=True)
class React(FeatureMonitor):
    """log sum_k exp (W min(f, c) + b)_k: the energy, features f cut at c, their `quantile` over the training data."""

    quantile: float = 0.9

    name: ClassVar[str] = "react"
    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})

    def __post_init__(self) -> None:
        if not 0 < self.quantile <= 1:
            raise InputError(
                f"monitor {self.name}: the quantile is a share above 0 and at most 1, not {self.quantile!r}"
            )

    def fit(self, model: Model, data: Dataset) -> Arrays:
        """The cut c and the last layer."""
        head = checked_head(self, model, data)
        values = np.concatenate([part.astype(np.float32) for part, _ in self.each(model, data, head.layer)])
        cut = np.asarray(np.quantile(values, self.quantile, overwrite_input=True), np.float64)
        return {"cut": cut, "weights": head.weights.astype(np.float64), "bias": head.bias.astype(np.float64)}

    def read(self, model: Model, batch: Batch) -> Floats:
        """(N,)."""
        state = self.state
        values = np.minimum(features_of(model, batch).astype(np.float64), state["cut"])
        return energy(values @ state["weights"].T + state["bias"])


def checked_head(monitor: Monitor, model: Model, data: Dataset) -> Head:
    """The last linear layer, after checking on some images that it makes the model's logits."""
    head = find_head(model)

    def both(batch: Batch) -> NDArray[Any]:
        made = features_of(model, batch, head.layer) @ head.weights.T + head.bias
        return np.stack([made, logits_of(model, batch)], axis=1)

    answers = in_batches(model, data.batch(slice(0, min(len(data), 8))), monitor.batch_size, both)
    if np.abs(answers[:, 0] - answers[:, 1]).max() > HEAD_TOLERANCE * max(1.0, np.abs(answers[:, 1]).max()):
        raise InputError(
            f"monitor {monitor.name} cannot use model {model.name}: its last linear layer does not make its logits"
        )
    return head
