"""MSP after temperature scaling: the largest probability of a network whose confidence was corrected."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned
from roadworthy.uncertainty.temperature import fit_temperature

BOUNDS = (1.0, 20.0)
"""Training answers are right too often: a temperature below 1 would only say that the network has seen the images."""


def scaled_confidence(logits: ArrayLike, temperature: float) -> Floats:
    """max_k softmax(z / T)_k of logits (N, K): (N,).

    >>> scaled_confidence([[2 * np.log(3.0), 0.0]], 2.0)
    array([0.75])
    """
    scaled = np.asarray(logits, np.float64) / temperature
    return np.asarray(1.0 / np.exp(scaled - scaled.max(axis=1, keepdims=True)).sum(axis=1))


@registered(MONITORS, "temperature_msp")
class TemperatureMsp(Monitor):
    """max_k softmax(z / T)_k of the logits z: MSP after temperature scaling (Guo et al. 2017).

    temperature  T; by default the one from 1 to 20 of the least negative log-likelihood on the training images. One
                 that was fitted on held-out images, as in the paper, can be given: then nothing is learned
    """

    temperature: float | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})
    differs_from_paper: ClassVar[str] = (
        "T is fitted on training images, as a monitor learns from those alone, and is at least 1: answers to training "
        "images are right too often, so T is too low; the paper fits it on held-out images, and such a T can be given "
        "as the setting temperature"
    )

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 < self.temperature < np.inf:
            raise InputError(
                f"monitor {self.name}: the temperature is a number above 0, or None, not {self.temperature!r}"
            )

    @property
    def learns(self) -> bool:
        """Whether the temperature is still to be fitted."""
        return self.temperature is None

    def fit(self, training: Training) -> Arrays:
        """The temperature, and the mean negative log-likelihood at 1 and at that temperature."""
        fitted = fit_temperature(training.gather("logits"), training.labels, bounds=BOUNDS)
        losses = np.array([fitted.nll_before, fitted.nll])
        return {"temperature": np.asarray(fitted.temperature), "negative_log_likelihood": losses}

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the temperature that was fitted."""
        if "temperature" not in state:
            return ()
        temperature = float(state["temperature"])
        bound = f", the {'least' if temperature == BOUNDS[0] else 'largest'} allowed" if temperature in BOUNDS else ""
        return (f"the temperature is {temperature:.4g}{bound}, fitted on training images",)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The largest scaled probability, (N,)."""
        temperature = float(state["temperature"]) if self.temperature is None else self.temperature
        return scaled_confidence(signals.logits, temperature)
