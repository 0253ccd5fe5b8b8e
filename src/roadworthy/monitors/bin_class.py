"""BinClass: a network that is trained to tell the training images from the validation outliers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models.signals import Signals
from roadworthy.monitors.base import TRAIN, VALID_OUTLIERS
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned
from roadworthy.monitors.networks.base import Budget, OwnNetwork
from roadworthy.monitors.networks.classes import TwoSidedNetwork, make_two_sided
from roadworthy.monitors.own_networks import ClassifierMonitor
from roadworthy.monitors.threshold import Aim, side_weights

ROLE = "two_sided"


@registered(MONITORS, "bin_class")
class BinClass(ClassifierMonitor):
    """BinClass: the answer of a network trained by binary cross-entropy on training images (1) and D_v (0).

    It is fitted anew for each set of validation outliers D_v, and optimistic by construction: what it has learned of
    one kind of outliers need not hold for another. The network is the architecture of the model with one more linear
    layer. It is trained on as many images of either side, so that its answer z stands for the odds exp(z) of an image
    inside: what lies below log(prior cost / (1 - prior)) is rejected, below 0 where both errors cost the same. Epochs,
    batch, learning rate and floor that are not given are its own, not those of the model.
    """

    learns_from: ClassVar[tuple[str, ...]] = (TRAIN, VALID_OUTLIERS)
    default_budget: ClassVar[Budget] = Budget(epochs=30, batch=64, learning_rate=1e-3, floor=0.9, patience=5)
    differs_from_paper: ClassVar[str] = (
        "the side inside are training images alone, as many as there are outliers, where the paper adds validation "
        "images and cuts both sides to the shorter; a fifth of either side chooses the epoch and is learned from in no "
        "other way; the added layer is linear, as the paper says, without the batch normalisation of the published code"
    )

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The network of two sides, for these outliers."""
        if outliers is None:
            raise InputError(f"monitor {self.name} learns from validation outliers (outliers=): give them to build")
        inside, outside = ((*data.size, data.channels) for data in (train, outliers))
        if inside != outside:
            raise InputError(
                f"monitor {self.name}: {outliers.name} holds images {outside}, and the training images are {inside}: "
                "give both the same size and channels"
            )
        form = self.form(model, train)
        return {ROLE: TwoSidedNetwork(form, self.budget(), train, outliers=outliers, seed=self.seed)}

    def read(self, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """The answer (N, 1), higher = more like the training images."""
        return self.answers(signals, state, [ROLE])[0]

    def make_network(self, form: Mapping[str, Any]) -> Any:
        """The classifier with one more layer."""
        return make_two_sided(form)

    def cut(self, inside: Floats, outside: Floats | None, aim: Aim) -> float:
        """The boundary of the network where there are outliers; else the share asked for."""
        if outside is None:
            return super().cut(inside, outside, aim)
        id_weight, outlier_weight = side_weights(aim.prior, aim.cost)
        return math.log(outlier_weight / id_weight)
