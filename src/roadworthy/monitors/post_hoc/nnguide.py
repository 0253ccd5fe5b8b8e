"""NNGuide: the energy, guided by how much the features resemble those of confident training images."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.random import Streams
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.confidence import energy
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.neighbours import check_count, largest_products, normalised


@registered(MONITORS, "nnguide")
class NnGuide(Monitor):
    """NNGuide: E(x) times the mean of the k largest E(t) cos(f(x), f(t)), t training images (Park et al. 2023).

    E is the energy log sum_k exp z_k of the logits z, f are the pooled features that go into the last linear layer.

    k      images of the bank that count for an image
    alpha  share of the training images in the bank, those with the smallest random numbers by image id; at least k
           images are in it, and a note says so where this is more than the share

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> train, _, test, outliers = toy_data()
    >>> fitted = NnGuide(k=5, alpha=0.25).build(ToyModel(), train)
    >>> fitted.state["bank"].shape
    (60, 24)
    >>> inside, outside = (fitted.represent(ToyModel(), data.batch(slice(None))) for data in (test, outliers))
    >>> bool(inside.mean() > outside.mean())
    True
    """

    k: int = 10
    alpha: float = 0.01

    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    differs_from_paper: ClassVar[str] = (
        "the bank holds at least k images, however small alpha is; k and alpha are those that the published code takes "
        "for ImageNet, a larger alpha suits smaller training data"
    )

    def __post_init__(self) -> None:
        require_count(self, "k")
        if not 0 < self.alpha <= 1:
            raise InputError(f"monitor {self.name}: alpha is a share above 0 and at most 1, not {self.alpha!r}")

    def fit(self, training: Training) -> Arrays:
        """The bank: E(t) f(t) / |f(t)| of some training images, (m, D)."""
        check_count(self, self.k, len(training))
        chosen = self._chosen(training.ids)
        parts, start = [], 0
        for features, logits in training.parts("features", "logits"):
            own = chosen[start : start + len(features)]
            parts.append(normalised(features[own]) * energy(logits[own])[:, None].astype(np.float32))
            start += len(features)
        return {"bank": np.concatenate(parts)}

    def _chosen(self, ids: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which training images are in the bank, (n,)."""
        count = max(self.k, int(np.ceil(self.alpha * len(ids) - 1e-9)))
        chosen = np.ones(len(ids), bool)
        if count < len(ids):
            keys = np.array([rng.random() for rng in Streams(f"monitor {self.name}").each(ids)])
            chosen[np.argsort(keys, kind="stable")[count:]] = False
        return chosen

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note where the share of the training images is smaller than k."""
        return (
            () if len(state["bank"]) > self.k else (f"the bank holds no more than the k = {self.k} images that count",)
        )

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The guided energy, (N,)."""
        guidance = largest_products(normalised(signals.features()), state["bank"], self.k).mean(
            axis=1, dtype=np.float64
        )
        return np.asarray(guidance * energy(signals.logits))
