"""PixelCNN++: how likely an image is by a density of the training images, pixel after pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models.signals import Signals, Training
from roadworthy.models.torch_tensors import import_torch
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.monitors.networks.base import Budget, OwnNetwork, with_weights
from roadworthy.monitors.networks.density import DensityNetwork, make_density, reduced, reduced_size
from roadworthy.monitors.own_networks import NetworkMonitor, form_of, values_of

ROLE = "density"
DRAWN = "drawn"
"""The name under which a fit keeps images that it drew."""
FILTERS = ((28, 32), (32, 64))
"""Filters for images whose longer side has at most so many pixels, before any reduction. They are ours: OD-test has 32
for MNIST, 64 for FashionMNIST (both 28 pixels) and 160 for all of its sets of 32 pixels."""
MOST_FILTERS = 160


@registered(MONITORS, "pixelcnn")
class PixelCnnPlusPlus(NetworkMonitor):
    """PixelCNN++: the log-likelihood of an image per value, log p(x) / D = sum_i log p(x_i | x_1, ..., x_i-1) / D.

    Each pixel is a mixture of discretised logistics whose parameters a network of causal convolutions gives from the
    pixels before it (Salimans et al. 2017). Images larger than 32 pixels are reduced first. It asks no model.

    width     filters; not given: 32 up to 28 pixels, 64 up to 32, else 160 (OD-test: 160 from 32 pixels on)
    blocks    gated residual blocks per resolution and way;  mixtures: logistics, 5 for grey and 10 for colour
    images    at most so many training images, spread evenly; None: all
    drawn     images that the fit draws from what it has learned, to be looked at
    """

    blocks: int = 5
    mixtures: int | None = None
    dropout: float = 0.5
    images: int | None = None
    drawn: int = 16

    draws: ClassVar[bool] = True
    default_budget: ClassVar[Budget] = Budget(epochs=30, batch=16, learning_rate=1e-3, floor=0.1)
    differs_from_paper: ClassVar[str] = (
        "32 filters up to 28 pixels and 64 up to 32 unless the setting width says otherwise, where the paper has 160, "
        "as OD-test (Shafaei et al. 2018) has for all sets of 32 pixels; the weights are those of the best epoch, not "
        "a moving average"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "blocks")
        require_count(self, "drawn", least=0)
        for setting in ("mixtures", "images"):
            if getattr(self, setting) is not None:
                require_count(self, setting)
        if not 0 <= self.dropout < 1:
            raise InputError(f"monitor {self.name}: dropout is at least 0 and below 1, not {self.dropout!r}")

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The density."""
        longest = max(train.size)
        usual = next((filters for side, filters in FILTERS if longest <= side), MOST_FILTERS)
        form: dict[str, Any] = {"filters": self.width or usual, "blocks": self.blocks, "mixtures": self.mixtures}
        form |= {"dropout": self.dropout, "images": self.images, "size": list(train.size), "channels": train.channels}
        return {ROLE: DensityNetwork(form, self.budget(), train, seed=self.seed)}

    def fit(self, training: Training) -> Arrays:
        """The weights of the network, and images that it draws."""
        from roadworthy.models.density.sampling import sample

        known = super().fit(training)
        if not self.drawn:
            return known
        state = Learned(known)
        size, seed = reduced_size(training.data.size), training.networks[ROLE].recipe.seed
        return {**known, DRAWN: sample(self._network(state), self.drawn, size, training.data.channels, seed)}

    def _network(self, state: Learned) -> Any:
        def make() -> Any:
            import_torch().set_num_threads(1)  # as for every torch model: the number of threads changes the bits
            return with_weights(make_density(form_of(state)), state, f"{ROLE}/")

        return state.cached("network", make)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The mean log-likelihood of a value of each image, (N,)."""
        from roadworthy.models.density.logistics import log_likelihood

        torch = import_torch()
        self.check_images(signals, state)
        images = torch.from_numpy(values_of(reduced(signals.images)))
        with torch.inference_mode():
            likelihood = log_likelihood(self._network(state)(images), images)
        return np.asarray(likelihood.double().numpy() / images[0].numel())

    def pictures(self, images: NDArray[np.uint8], state: Learned) -> Mapping[str, NDArray[np.uint8]]:
        """Images that were drawn from the density."""
        return {"drawn from the density": state[DRAWN]} if DRAWN in state else {}
