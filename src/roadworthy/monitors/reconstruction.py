"""AEThreshold: how well an autoencoder of the training images reconstructs an image, neither too badly nor too well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Dataset, Model
from roadworthy.models.autoencoders import LOSSES, reconstruction_errors
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.signals import Signals
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.networks.autoencoder import AutoencoderNetwork, make_autoencoder
from roadworthy.monitors.networks.base import Budget, OwnNetwork
from roadworthy.monitors.own_networks import NetworkMonitor, Outputs, images_alone, pass_of
from roadworthy.monitors.threshold import Aim, side_weights

ROLE = "autoencoder"
FIRST_WIDTH = 64
"""Filters of the first convolution, as OD-test has them."""
FEWER_EPOCHS = (
    "40 epochs, unless the setting epochs says otherwise, with a rate that falls along a cosine; the published code "
    "trains 240, or 480 from 64 pixels on (variational ones 480 from 32 and 960 from 64), and lowers the rate on "
    "plateaus; at most 256 filters, unless the setting most_width says otherwise, where the published code has 512 "
    "from 32 pixels on"
)
LEAST_BATCH = 3
"""Batches are of almost equal size, and batch normalisation of a code of one value needs two images in each."""


def _code_and_errors(network: Any, images: Any) -> tuple[Any, ...]:
    """The code (N, L), the reconstruction as logits (N, C, H, W), and its error (N,) by either loss."""
    code = network.encode(images)
    logits = network.decode(code)
    return code, logits, *(reconstruction_errors(logits, images, loss) for loss in LOSSES)


OUTPUTS = Outputs(("code", "logits", *LOSSES), _code_and_errors)


@dataclass(frozen=True, kw_only=True)
class AutoencoderMonitor(NetworkMonitor):
    """A monitor with an autoencoder of the training images; all that ask for the same one share it.

    width, most_width   filters of the first convolution, and at most (256; OD-test: 256 at 28 pixels, 512 from 32 on)
    bottleneck          values of the code, by the published rule where not given
    """

    most_width: int = 256
    bottleneck: int | None = None

    default_budget: ClassVar[Budget] = Budget(epochs=40, batch=64, learning_rate=1e-3, floor=0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "most_width")
        if self.batch is not None:
            require_count(self, "batch", least=LEAST_BATCH)
        if self.bottleneck is not None:
            require_count(self, "bottleneck")

    @property
    def trained_with(self) -> str:
        """The loss of its autoencoder: mse, bce, or vae for a variational one."""
        raise NotImplementedError  # abstract

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The autoencoder."""
        width = {"width": self.width or FIRST_WIDTH, "most_width": self.most_width}
        sizes = {"bottleneck": self.bottleneck, "size": list(train.size), "channels": train.channels}
        form = {"loss": self.trained_with, **width, **sizes}
        return {ROLE: AutoencoderNetwork(form, self.budget(), train, seed=self.seed)}

    def answer(self, output: str, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """One of the `OUTPUTS` for each image."""
        self.check_images(signals, state)
        return pass_of(signals, state, make_autoencoder, ROLE, OUTPUTS, output)


@registered(MONITORS, "ae_threshold")
class AeThreshold(AutoencoderMonitor):
    """AEThreshold: rejects where (e - mu)^2 > tau, e the error of an autoencoder's reconstruction of the image.

    The score is -(e - mu)^2. Against outliers, mu is the middle of the interval of errors that costs least: the exact
    one, by `best_interval`. Without any, mu is the median of the errors inside. The error is a mean over pixels from 0
    to 1, of the loss that the autoencoder was trained with.

    loss   `bce` (binary cross-entropy with the pixels as targets) or `mse`
    """

    loss: str = "bce"

    differs_from_paper: ClassVar[str] = (
        "mu and tau are those of the lowest expected cost, found exactly, where the published code finds them by "
        "gradient descent; without outliers, where the paper has no rule, mu is the median error of images inside; "
        f"{FEWER_EPOCHS}"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_choice(f"monitor {self.name}: loss", self.loss, LOSSES)

    @property
    def trained_with(self) -> str:
        """The loss of its settings."""
        return self.loss

    def read(self, signals: Signals, state: Learned) -> NDArray[np.float32]:
        """The error of each reconstruction, (N,)."""
        return self.answer(self.loss, signals, state)

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """mu."""
        if outside is None:
            return {"centre": np.asarray(np.median(inside[:, 0].astype(np.float64)))}
        lowest, highest = best_interval(inside[:, 0], outside[:, 0], prior=aim.prior, cost=aim.cost)
        return {"centre": np.asarray((lowest + highest) / 2)}

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> NDArray[Any]:
        """-(e - mu)^2."""
        return np.asarray(-np.square(rows[:, 0].astype(np.float64) - rule["centre"]))

    def pictures(self, images: NDArray[np.uint8], state: Learned) -> Mapping[str, NDArray[np.uint8]]:
        """The reconstructions of images."""
        return {"reconstruction": reconstructed(self, images, state)}


def reconstructed(monitor: AutoencoderMonitor, images: NDArray[np.uint8], state: Learned) -> NDArray[np.uint8]:
    """What the autoencoder of a fitted monitor makes of images (n, H, W, C)."""
    logits = monitor.answer("logits", images_alone(images), state)
    values = 255 / (1 + np.exp(-logits.astype(np.float64)))
    return np.ascontiguousarray(values.round().astype(np.uint8).transpose(0, 2, 3, 1))


def best_interval(
    inside: ArrayLike, outside: ArrayLike, *, prior: float = 0.5, cost: float = 1.0
) -> tuple[float, float]:
    """The interval of the lowest expected cost where values outside it are rejected, of inner (n,) and outer (m,) ones.

    (1 - prior) P(an inner value is outside it) + prior cost P(an outer value is in it). Each distinct value brings a
    gain, its share of the inner ones less its share of the outer ones, weighed; the best interval is the run of values
    of the largest sum, found exactly by one sort (maximum subarray). Its ends lie half way to the next values; where
    there are none, as far beyond the last value as the first and the last are apart. Of equally good ones, the first.

    >>> best_interval([5.0, 6.0, 7.0], [1.0, 9.0])
    (3.0, 8.0)
    """
    id_weight, outlier_weight = side_weights(prior, cost)
    accepted, refused = (np.asarray(values, np.float64).ravel() for values in (inside, outside))
    if not len(accepted) or not len(refused):
        raise InputError("the best interval needs values of both sides")
    values, index = np.unique(np.concatenate([accepted, refused]), return_inverse=True)
    gains = np.bincount(index[: len(accepted)], minlength=len(values)) * (id_weight / len(accepted))
    gains = gains - np.bincount(index[len(accepted) :], minlength=len(values)) * (outlier_weight / len(refused))
    sums = np.append(0.0, np.cumsum(gains)) / (id_weight + outlier_weight)
    lowest = np.minimum.accumulate(sums[:-1])
    stop = int(np.argmax((sums[1:] - lowest).round(12)))
    start = int(np.argmin(sums[: stop + 1].round(12)))
    return _half_way(values, start, stop)


def _half_way(values: Floats, start: int, stop: int) -> tuple[float, float]:
    """The ends of the interval that holds the values from one row to another."""
    beyond = values[-1] - values[0] or 1.0
    below = values[start - 1] if start else values[0] - 2 * beyond
    above = values[stop + 1] if stop + 1 < len(values) else values[-1] + 2 * beyond
    return float((below + values[start]) / 2), float((values[stop] + above) / 2)
