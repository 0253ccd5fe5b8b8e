"""ODIN: the confidence at a high temperature after a small step that raises it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.random import Streams
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models import TorchModel
from roadworthy.models.head import network_of
from roadworthy.models.quick import QuickForward
from roadworthy.models.signals import PART, SUPPLY, Signals, Training
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.grid import GridMonitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep

TEMPERATURES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
EPSILONS = tuple(round(0.0002 * step, 4) for step in range(21))
MAGNITUDES = (0.0, 0.0014, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
"""None, that of Liang et al. 2018 for CIFAR-10, and those of Hsu et al. 2020: shares of the pixel range."""


@runtime_checkable
class Steps(Protocol):
    """A model that can follow the gradient of its own confidence."""

    def stepped_logits(
        self, batch: Batch, temperatures: Sequence[float], steps: Sequence[float]
    ) -> NDArray[np.float32]:
        """Logits (T, E, N, K) after a step of each size along the sign of the gradient at each temperature."""


@registered(MONITORS, "odin")
class Odin(GridMonitor):
    """S(x') with S(x) = max_k softmax(f(x) / T)_k and x' = x + epsilon sign(d log S / dx), x from 0 to 1, not clipped.

    The representation holds the whole grid. Against outliers, calibration takes the pair (T, epsilon) of lowest cost
    (of equal ones the first). Without, T is the largest and epsilon the one of the highest mean score inside (Hsu et
    al. 2020). Gradients are torch's; the passes behind the steps of a batch run in ONNX Runtime where its answers to
    the images themselves are torch's: their last bits can differ.
    """

    temperatures: tuple[float, ...] = TEMPERATURES
    epsilons: tuple[float, ...] = EPSILONS

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "logits"})
    differs_from_paper: ClassVar[str] = (
        "T and epsilon are those of the lowest expected cost on the outliers it is calibrated with, those of the "
        "paper have the lowest FPR at 95 % TPR; without outliers T is the largest and epsilon is found as Hsu et al. "
        "2020 do"
    )

    def __post_init__(self) -> None:
        if not self.temperatures or not all(0 < value < np.inf for value in self.temperatures):
            raise InputError(f"monitor {self.name}: temperatures are numbers above 0, not {self.temperatures!r}")
        if not self.epsilons or not all(0 <= value < np.inf for value in self.epsilons):
            raise InputError(f"monitor {self.name}: epsilons are numbers of at least 0, not {self.epsilons!r}")

    def read(self, signals: Signals, state: Learned) -> Floats:
        """Confidences (N, T E), the epsilons of the first temperature first."""
        return _confidences(signals.model, signals.batch, self.temperatures, self.epsilons, state)

    def column_inside(self, inside: Rep, state: Learned) -> int:
        """The largest temperature, and of its epsilons the one of the highest mean score inside."""
        hottest = int(np.argmax(self.temperatures)) * len(self.epsilons)
        means = inside.mean(axis=0, dtype=np.float64)[hottest : hottest + len(self.epsilons)]
        return hottest + int(np.argmax(means))

    def choice(self, rule: Learned) -> tuple[float, float]:
        """The temperature and epsilon of a calibration."""
        row, column = divmod(int(rule["column"]), len(self.epsilons))
        return self.temperatures[row], self.epsilons[column]


@registered(MONITORS, "odin_id")
class OdinId(Monitor):
    """ODIN whose step is chosen on training images alone: S(x') with the epsilon of the highest mean S(x') on those.

    S(x) = max_k softmax(f(x) / T)_k and x' = x + epsilon sign(d log S / dx), x from 0 to 1, not clipped, as in `Odin`.
    No outlier is looked at, for the step or for anything else. An image costs one gradient and one further pass.

    temperature  T
    magnitudes   the epsilons to choose from; of equal means the first
    most         training images that the choice is made on, at most: those with the smallest random numbers by image id
    """

    temperature: float = 1000.0
    magnitudes: tuple[float, ...] = MAGNITUDES
    most: int = 1000

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "logits"})
    differs_from_paper: ClassVar[str] = (
        "T is 1000 and epsilon the one of the highest mean score on at most 1000 training images, as Hsu et al. 2020 "
        "choose it on validation images; those of the ODIN paper have the lowest FPR at 95 % TPR on outliers"
    )

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise InputError(f"monitor {self.name}: the temperature is a number above 0, not {self.temperature!r}")
        if not self.magnitudes or not all(0 <= value < np.inf for value in self.magnitudes):
            raise InputError(f"monitor {self.name}: magnitudes are numbers of at least 0, not {self.magnitudes!r}")
        require_count(self, "most")

    def signals(self, model: Model) -> tuple[str, ...]:
        """The images: the model is asked about steps away from them."""
        return ("images",)

    def work(self, images: int) -> int:
        """The images that the choice is made on."""
        return min(images, self.most)

    def fit(self, training: Training) -> Arrays:
        """The mean score of each magnitude (E,), the magnitude of the highest, and the number of images."""
        keys = np.array([rng.random() for rng in Streams(f"monitor {self.name}").each(training.ids)])
        rows = np.sort(np.argsort(keys, kind="stable")[: self.most]).tolist()
        sums, cache = np.zeros(len(self.magnitudes)), Learned()
        for start in range(0, len(rows), PART):
            shown = Signals(training.model, training.data.batch(rows[start : start + PART]))
            scores = [
                _confidences(piece.model, piece.batch, (self.temperature,), self.magnitudes, cache)
                for piece in shown.pieces
            ]
            sums += np.concatenate(scores)[: len(shown)].sum(axis=0)
            training.progress(len(shown))
        means = sums / len(rows)
        magnitude = self.magnitudes[int(np.argmax(means))]
        return {"means": means, "magnitude": np.asarray(magnitude, np.float64), "images": np.asarray(len(rows))}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The confidence after the step, (N, 1)."""
        return _confidences(signals.model, signals.batch, (self.temperature,), (float(state["magnitude"]),), state)

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the magnitude that was chosen."""
        chosen, images = float(state["magnitude"]), int(state["images"])
        return (f"epsilon is {chosen:g}: of {len(self.magnitudes)} the highest mean score on {images} training images",)


def _confidences(
    model: Model, batch: Batch, temperatures: Sequence[float], epsilons: Sequence[float], cache: Learned
) -> Floats:
    """S(x') of images, (N, T E), the epsilons of the first temperature first; `cache` keeps what makes passes quick."""
    network = network_of(model)
    if not isinstance(network, Steps):
        raise InputError(f"model {model.name} cannot follow its gradient: supply {SUPPLY['gradients']}")
    quick: dict[str, Any] = {"quick": cache.cached("quick", QuickForward)} if isinstance(network, TorchModel) else {}
    logits = np.asarray(network.stepped_logits(batch.copy(), temperatures, epsilons, **quick), np.float64)
    scaled = logits / np.array(temperatures)[:, None, None, None]
    confidence = 1.0 / np.exp(scaled - scaled.max(axis=-1, keepdims=True)).sum(axis=-1)
    return np.asarray(confidence.transpose(2, 0, 1).reshape(len(batch), -1))
