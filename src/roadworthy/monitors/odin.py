"""ODIN: the confidence at a high temperature after a small step that raises it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.types import Batch
from roadworthy.models import TorchModel
from roadworthy.models.head import network_of
from roadworthy.models.quick import QuickForward
from roadworthy.models.signals import SUPPLY, Signals
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.threshold import Aim

TEMPERATURES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
EPSILONS = tuple(round(0.0002 * step, 4) for step in range(21))


@runtime_checkable
class Steps(Protocol):
    """A model that can follow the gradient of its own confidence."""

    def stepped_logits(
        self, batch: Batch, temperatures: Sequence[float], steps: Sequence[float]
    ) -> NDArray[np.float32]:
        """Logits (T, E, N, K) after a step of each size along the sign of the gradient at each temperature."""


@registered(MONITORS, "odin")
class Odin(Monitor):
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
        network = network_of(signals.model)
        if not isinstance(network, Steps):
            raise InputError(f"model {signals.model.name} cannot follow its gradient: supply {SUPPLY['gradients']}")
        quick: dict[str, Any] = (
            {"quick": state.cached("quick", QuickForward)} if isinstance(network, TorchModel) else {}
        )
        stepped = network.stepped_logits(signals.batch.copy(), self.temperatures, self.epsilons, **quick)
        logits = np.asarray(stepped, np.float64)
        scaled = logits / np.array(self.temperatures)[:, None, None, None]
        confidence = 1.0 / np.exp(scaled - scaled.max(axis=-1, keepdims=True)).sum(axis=-1)
        return np.asarray(confidence.transpose(2, 0, 1).reshape(len(signals), -1))

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """The column of the grid to use."""
        if outside is None:
            hottest = int(np.argmax(self.temperatures)) * len(self.epsilons)
            means = inside.mean(axis=0, dtype=np.float64)[hottest : hottest + len(self.epsilons)]
            return {"column": np.asarray(hottest + int(np.argmax(means)))}
        grids = inside.astype(np.float64), outside.astype(np.float64)
        costs = aim.losses(*grids, aim.cuts(*grids))
        return {"column": np.asarray(int(np.argmin(costs.round(12))))}

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> NDArray[Any]:
        """The chosen column."""
        return rows[:, int(rule["column"])]

    def choice(self, rule: Learned) -> tuple[float, float]:
        """The temperature and epsilon of a calibration."""
        row, column = divmod(int(rule["column"]), len(self.epsilons))
        return self.temperatures[row], self.epsilons[column]
