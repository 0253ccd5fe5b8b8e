"""K-MNNSVM, K-BNNSVM and K-VNNSVM: nearest training images in the code of an autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.neighbours import check_count, search_of
from roadworthy.monitors.networks.autoencoder import VARIATIONAL
from roadworthy.monitors.networks.base import OwnNetwork
from roadworthy.monitors.own_networks import images_alone
from roadworthy.monitors.reconstruction import FEWER_EPOCHS, AutoencoderMonitor, reconstructed
from roadworthy.monitors.svm import SOLVED_EXACTLY, SvmMonitor

CODES = "codes"
DIFFERS = f"{SOLVED_EXACTLY} minus the mean distance; {FEWER_EPOCHS}"


@dataclass(frozen=True, kw_only=True)
class LatentNeighbours(AutoencoderMonitor, SvmMonitor):
    """A linear SVM on the sorted Euclidean distances to the k nearest training images, in an autoencoder's code.

    Without outliers the score is minus the mean distance. The autoencoder is shared with AEThreshold
    where both have the same settings.
    """

    k: int = 1

    autoencoder_loss: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "k")

    @property
    def trained_with(self) -> str:
        """The loss that its name stands for."""
        return self.autoencoder_loss

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The autoencoder; fewer training images than neighbours are refused before it is trained."""
        check_count(self, self.k, len(train))
        return super().networks(model, train, outliers)

    def signals(self, model: Model) -> tuple[str, ...]:
        """The training images: each gets a code."""
        return ("images",)

    def fit(self, training: Training) -> Arrays:
        """The weights of the autoencoder, and the codes of the training images (n, L)."""
        known = super().fit(training)
        state = Learned(known)
        codes = [self.answer("code", images_alone(images), state) for (images,) in training.parts("images")]
        return {**known, CODES: np.concatenate(codes)}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Distances (N, k), ascending."""
        return search_of(state, CODES).distances(self.answer("code", signals, state), self.k)

    def unsupervised(self, rows: Rep) -> NDArray[Any]:
        """Minus the mean distance."""
        return np.asarray(-rows.mean(axis=1, dtype=np.float64))

    def pictures(self, images: NDArray[np.uint8], state: Learned) -> Mapping[str, NDArray[np.uint8]]:
        """The reconstructions of images."""
        return {"reconstruction": reconstructed(self, images, state)}


@registered(MONITORS, "mnn_svm")
class MnnSvm(LatentNeighbours):
    """K-MNNSVM: K-NNSVM in the code of an autoencoder that was trained with mean squared error."""

    autoencoder_loss: ClassVar[str] = "mse"
    differs_from_paper: ClassVar[str] = DIFFERS


@registered(MONITORS, "bnn_svm")
class BnnSvm(LatentNeighbours):
    """K-BNNSVM: K-NNSVM in the code of an autoencoder that was trained with binary cross-entropy."""

    autoencoder_loss: ClassVar[str] = "bce"
    differs_from_paper: ClassVar[str] = DIFFERS


@registered(MONITORS, "vnn_svm")
class VnnSvm(LatentNeighbours):
    """K-VNNSVM: K-NNSVM in the code of a variational autoencoder, the mean of its normal distribution."""

    autoencoder_loss: ClassVar[str] = VARIATIONAL
    differs_from_paper: ClassVar[str] = DIFFERS
