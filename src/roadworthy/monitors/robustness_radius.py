"""The robustness radius: how far every pixel can move before the network's answer is no longer proven to stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Model
from roadworthy.models import TorchModel
from roadworthy.models.head import network_here
from roadworthy.models.preprocess import parse_range
from roadworthy.models.signals import Signals
from roadworthy.models.torch_tensors import import_torch
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned
from roadworthy.monitors.network_bounds import Box, Chain, chain_of, parts_of

NUMBERS = {"interval": "float64", "linear": "float32"}
"""The numbers that each kind of bounds is computed with: intervals are small, linear functions are many."""
MOST_STEPS = 40
SAFE_SHARE = 1e-5
"""A margin must exceed this share of the terms it is the sum of: the rest could be rounding."""
SAME_LOGITS = 1e-3
SHORT = 0.999
"""A radius is tried this far on the way to where the margin should cross 0: there rounding does not decide."""
MOST_VALUES = 2**24
"""How many values a tensor of bounds may hold; images are taken so many at a time that it does not hold more."""


@registered(MONITORS, "robustness_radius")
class RobustnessRadius(Monitor):
    """The largest r found for which argmax f(x') = argmax f(x) is proven for all x' with max |x' - x| <= r.

    r is in pixel values (0 to 255) of the image as the network takes it, resized and in its channels; pixels beyond 0
    and 255 count too. Of `steps` radii that are tried, the first half halves the range from `smallest` to `largest` on
    a logarithmic scale, the others are where a line through the margins proven so far crosses 0; r is 0 where none is
    proven. The proof bounds every margin z_y - z_k from below: by `interval` bounds, or by `linear` ones, which prove
    several times the radius at the cost of a pass per class. It leaves room for the rounding of the network: a margin
    must exceed 0.001 % of the terms it is the sum of.
    """

    bounds: str = "interval"
    steps: int = 10
    smallest: float = 2.0**-16
    largest: float = 256.0

    needs: ClassVar[frozenset[str]] = frozenset({"gradients"})
    differs_from_paper: ClassVar[str] = (
        "the radius is a lower bound by intervals or linear functions, where the paper runs a complete or incomplete "
        "verifier; a threshold alone decides, the paper's second test of whether the radius fits a normal distribution "
        "of radii is not part of it"
    )

    def __post_init__(self) -> None:
        if self.bounds not in NUMBERS:
            raise InputError(f"monitor {self.name}: bounds are {' or '.join(NUMBERS)}, not {self.bounds!r}")
        require_count(self, "steps", most=MOST_STEPS)
        if not 0 < self.smallest < self.largest < math.inf:
            raise InputError(
                f"monitor {self.name}: radii are numbers with 0 < smallest < largest, not {self.smallest!r} and "
                f"{self.largest!r}"
            )

    def check(self, model: Model) -> None:
        """Refuse a model that is not a torch network of layers that can be bounded."""
        super().check(model)
        network = network_here(model)
        if not isinstance(network, TorchModel):
            raise InputError(
                f"monitor {self.name} bounds torch networks: supply a torch model in place of {model.name}"
            )
        parts_of(network.module, network.name)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The radii (N,)."""
        network = network_here(signals.model)
        assert isinstance(network, TorchModel)
        tensor = network.preprocess(signals.images)
        chain = chain_of(network.module, tensor.shape[1:], network.name, NUMBERS[self.bounds])
        self._check_chain(chain, network, tensor)
        unit = _pixel_unit(network, tensor)
        functions = network.num_classes if self.bounds == "linear" else 1
        at_once = max(1, MOST_VALUES // (functions * chain.widest))
        parts = [self._radii(chain, tensor[start : start + at_once], unit) for start in range(0, len(tensor), at_once)]
        rows = np.concatenate(parts)
        return np.asarray(np.nextafter(rows.astype(np.float32), np.float32(0)), np.float64)

    def _check_chain(self, chain: Chain, network: TorchModel, tensor: NDArray[Any]) -> None:
        """Refuse a network that answers other than its layers one after the other do."""
        answer = network.run(tensor)
        logits = self._logits(chain, tensor)
        expected = answer.logits
        if expected is None:
            shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
            logits, expected = shifted / shifted.sum(axis=1, keepdims=True), answer.probabilities
        room = SAME_LOGITS * (1 + np.abs(logits).max())
        if expected is None or logits.shape != expected.shape or np.abs(logits - expected).max() > room:
            raise InputError(
                f"the network of model {network.name} cannot be bounded: it answers other than its layers one after "
                "the other do; remove hooks and code around them"
            )

    def _logits(self, chain: Chain, tensor: NDArray[Any]) -> Floats:
        torch = import_torch()
        with torch.inference_mode():
            return np.asarray(
                chain.apply(torch.from_numpy(tensor).to(getattr(torch, NUMBERS[self.bounds]))).numpy(), np.float64
            )

    def _radii(self, chain: Chain, tensor: NDArray[Any], unit: Floats) -> Floats:
        torch = import_torch()
        with torch.inference_mode():
            centre = torch.from_numpy(tensor).to(getattr(torch, NUMBERS[self.bounds]))
            logits = chain.apply(centre)
            identity = torch.eye(logits.shape[1]).to(logits)
            margins = identity[logits.argmax(1)][:, None] - identity
            is_rival = (margins != 0).any(2)

            def proven_margin(radii: Floats) -> Floats:
                reach = torch.from_numpy(radii[:, None, None, None] * unit).to(centre)
                boxes = chain.boxes(Box(centre - reach, centre + reach).widened())
                lowest, scale = chain.lowest(margins, boxes, linear=self.bounds == "linear")
                safe = torch.where(is_rival, lowest - SAFE_SHARE * scale, math.inf)
                return np.asarray(safe.amin(1).numpy(), np.float64)

            return self._search(proven_margin, len(tensor))

    def _search(self, proven_margin: Callable[[Floats], Floats], images: int) -> Floats:
        """The largest radii (N,) that were tried and have a proven margin above 0: false position (Illinois)."""
        low, high = np.zeros(images), np.full(images, self.largest)
        of_low, of_high = proven_margin(low), np.full(images, math.nan)
        moved_low, moved_high = np.zeros(images, bool), np.zeros(images, bool)
        for step in range(self.steps):
            with np.errstate(invalid="ignore", divide="ignore"):
                crossing = low + SHORT * (high - low) * of_low / (of_low - of_high)
            is_known = (crossing > low) & (crossing < high) & (step >= self.steps // 2)
            tried = np.where(is_known, crossing, np.sqrt(np.maximum(low, self.smallest) * high))
            margin = proven_margin(tried)
            holds = margin > 0
            of_low, of_high = (
                np.where(holds, margin, np.where(moved_high & is_known, of_low / 2, of_low)),
                np.where(holds, np.where(moved_low & is_known, of_high / 2, of_high), margin),
            )
            low, high = np.where(holds, np.maximum(tried, low), low), np.where(holds, high, tried)
            moved_low, moved_high = holds, ~holds
        return np.where(of_low > 0, low, 0.0)


def _pixel_unit(network: TorchModel, tensor: NDArray[Any]) -> Floats:
    """How far a pixel value of 1 goes in the network's input: 1 / (255 std), broadcast to its layout."""
    preprocess = network.preprocess
    channels = tensor.shape[1 if preprocess.layout == "nchw" else 3]
    unit = 1 / (255 * np.broadcast_to(parse_range(preprocess.range)[1], channels))
    unit = unit[::-1] if preprocess.colour == "bgr" else unit
    return unit.reshape((1, -1, 1, 1) if preprocess.layout == "nchw" else (1, 1, 1, -1))
