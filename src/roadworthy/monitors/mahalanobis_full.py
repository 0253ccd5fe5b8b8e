"""Mahalanobis as its paper has it: a step towards the nearest class, and several layers weighed against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.random import Streams
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models import TorchModel
from roadworthy.models.head import penultimate
from roadworthy.models.signals import PART, Signals, Training
from roadworthy.models.torch_tensors import import_torch
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.logistic import Logistic, fit_logistic
from roadworthy.monitors.stages import require_layers, stage_layers, torch_network
from roadworthy.monitors.threshold import Aim
from roadworthy.monitors.whitening import FeatureSums, class_distances
from roadworthy.shifts.adversarial import Fgsm

EPSILONS = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)
"""The steps that the paper chooses from: shares of the pixel range."""
SAME_FEATURES = 1e-5
GAUSSIANS = ("origin", "whitening", "means")


@registered(MONITORS, "mahalanobis_full")
class MahalanobisFull(Monitor):
    """sum_l a_l M_l(x_l) + b: the distances in several layers l, each after a step towards that layer's nearest class.

    M_l(x) = -min_k (f_l - m_lk)^T S_l^+ (f_l - m_lk), features f_l the channel means of the layer, class means m_lk and
    a covariance S_l shared by all classes; x_l = x + epsilon sign(dM_l / dx), x from 0 to 1, not clipped.

    The weights a, b are those of a logistic regression. Against outliers it is learned from those, and epsilon is the
    one of the lowest expected cost. Without, both come from the paper's second protocol, which sees no outliers: at
    most `most` training images stand against their FGSM copies, changed by `attack` pixel values. The representation
    holds the distances of all layers and epsilons: for each layer a gradient and a forward pass per epsilon above 0.

    layers  names of layers (`NAME:input` for what goes into one). None: the last map of each stage (`stage_layers`),
            and what goes into the last linear layer unless that is the mean of the last map
    """

    layers: tuple[str, ...] | None = None
    epsilons: tuple[float, ...] = EPSILONS
    most: int = 500
    attack: int = 13

    needs: ClassVar[frozenset[str]] = frozenset({"features", "gradients"})
    classes: ClassVar[int] = 2
    differs_from_paper: ClassVar[str] = (
        "epsilon is the one of the lowest expected cost, that of the paper has the highest TNR at 95 % TPR; without "
        "outliers weights and epsilon are learned from training images and their FGSM copies, successful or not, where "
        "the paper attacks test images and keeps the copies that mislead; one layer per size of the feature maps; "
        "directions without variance are left out"
    )

    def __post_init__(self) -> None:
        require_layers(self, self.layers)
        if not self.epsilons or not all(0 <= value < np.inf for value in self.epsilons):
            raise InputError(f"monitor {self.name}: epsilons are numbers of at least 0, not {self.epsilons!r}")
        require_count(self, "most")
        require_count(self, "attack", most=255)

    def check(self, model: Model) -> None:
        """Refuse a model that is not a torch network whose layers can be read."""
        super().check(model)
        torch_network(self, model)

    def signals(self, model: Model) -> tuple[str, ...]:
        """The images: the layers are read here, and the model is asked about steps and copies."""
        return ("images",)

    def work(self, images: int) -> int:
        """All images, whose features are read, and those that are copied."""
        return images + min(images, self.most)

    def fit(self, training: Training) -> Arrays:
        """The layers, the class means and covariance of each, and the rule for a calibration without outliers."""
        network = torch_network(self, training.model)
        layers = self.layers or _default_layers(network, training.data.batch([0]))
        sums = [FeatureSums(training.labels) for _ in layers]
        for start in range(0, len(training), PART):
            rows = slice(start, min(start + PART, len(training)))
            signals = Signals(network, training.data.batch(rows))
            for layer, layer_sums in zip(layers, sums, strict=True):
                layer_sums.add(signals.features(layer), training.labels[rows])
            training.progress(len(signals))
        learned: dict[str, NDArray[Any]] = {"layers": np.frombuffer("\n".join(layers).encode(), np.uint8)}
        for number, (layer, layer_sums) in enumerate(zip(layers, sums, strict=True)):
            refusal = f"monitor {self.name} cannot use layer {layer!r} of model {network.name} on {training.name}"
            gaussians = layer_sums.moments().class_gaussians(refusal)
            learned |= {f"{number}.{key}": array for key, array in gaussians.items()}
        clean, copies = self._attacked_rows(training, Learned(learned))
        rule = self._rule(clean, copies, Aim())
        return learned | {f"rule.{key}": array for key, array in rule.items()} | {"copies": np.asarray(len(copies))}

    def _attacked_rows(self, training: Training, state: Learned) -> tuple[Rep, Rep]:
        """The representations of some training images and of their FGSM copies."""
        keys = np.array([rng.random() for rng in Streams(f"monitor {self.name}").each(training.ids)])
        rows = np.sort(np.argsort(keys, kind="stable")[: self.most]).tolist()
        attack = Fgsm(epsilon=self.attack).bound(training.model)
        clean: list[Rep] = []
        copies: list[Rep] = []
        for start in range(0, len(rows), PART):
            batch = training.data.batch(rows[start : start + PART])
            for shown, kept in ((batch, clean), (attack(batch, Streams(attack.name)), copies)):
                pieces = [self.read(piece, state) for piece in Signals(training.model, shown).pieces]
                kept.append(np.concatenate(pieces)[: len(batch)].astype(np.float32))
            training.progress(len(batch))
        return np.concatenate(clean), np.concatenate(copies)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The scores M_l(x_l) of every epsilon and layer, (N, E L), the layers of the first epsilon first."""
        network, batch = torch_network(self, signals.model), signals.batch.copy()
        grid = np.empty((len(self.epsilons), len(batch), len(_names(state))))
        for number, layer in enumerate(_names(state)):
            gaussians = {key: state[f"{number}.{key}"] for key in GAUSSIANS}
            nearness = state.cached(f"nearness {number}", partial(_nearness, gaussians))
            stepped = network.stepped_features(batch, layer, nearness, self.epsilons)
            grid[:, :, number] = [-class_distances(features, gaussians) for features in stepped]
        return grid.transpose(1, 0, 2).reshape(len(batch), -1)

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """The epsilon, by its number, and the weights of the layers; empty where there are no outliers."""
        return {} if outside is None else self._rule(inside, outside, aim)

    def _rule(self, inside: Rep, outside: Rep, aim: Aim) -> dict[str, NDArray[Any]]:
        """The epsilon of the lowest expected cost, the first of equal ones, with the weights that belong to it."""
        sides = [rows.astype(np.float64).reshape(len(rows), len(self.epsilons), -1) for rows in (inside, outside)]
        best: tuple[float, int, Logistic] | None = None
        for number in range(len(self.epsilons)):
            within, beyond = (side[:, number] for side in sides)
            weighed = fit_logistic(within, beyond, prior=aim.prior, cost=aim.cost)
            scores = weighed(within)[:, None], weighed(beyond)[:, None]
            cost = round(float(aim.losses(*scores, aim.cuts(*scores))[0]), 12)
            if best is None or cost < best[0]:
                best = cost, number, weighed
        assert best is not None
        _, number, weighed = best
        return {"epsilon": np.asarray(number), "weights": weighed.weights, "bias": np.asarray(weighed.bias)}

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> Floats:
        """The weighed sum of the chosen epsilon's scores, (N,): the log odds of being in-distribution."""
        rule = rule or _own_rule(state)
        grid = rows.reshape(len(rows), len(self.epsilons), len(rule["weights"]))
        return Logistic(rule["weights"], float(rule["bias"]))(grid[:, int(rule["epsilon"])])

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the epsilon and the weights of the layers, and on what they were learned from."""
        source = "validation outliers" if rule else f"FGSM copies of {int(state['copies'])} training images"
        rule = rule or _own_rule(state)
        pairs = zip(_names(state), rule["weights"], strict=True)
        weights = ", ".join(f"{layer} {weight:.3g}" for layer, weight in pairs)
        return (
            f"epsilon is {self.epsilons[int(rule['epsilon'])]:g} and the weights of layers are {weights}: {source}",
        )


def _default_layers(network: TorchModel, batch: Batch) -> tuple[str, ...]:
    """The last map of each stage, and what goes into the last linear layer where that is something else."""
    signals, stages = Signals(network, batch), stage_layers(network, Signals(network, batch).pieces[0].batch)
    last = penultimate(network)
    if not stages:
        return (last,)
    maps, features = signals.features(stages[-1]), signals.features(last)
    if maps.shape == features.shape and np.allclose(maps, features, rtol=SAME_FEATURES, atol=SAME_FEATURES):
        return stages
    return (*stages, last)


def _nearness(gaussians: Arrays) -> Callable[[Any], Any]:
    """M_l of a tensor of features (N, D), (N,), in double precision: a function whose gradient torch follows."""
    torch = import_torch()
    origin, whitening, means = (torch.from_numpy(np.array(gaussians[key])) for key in GAUSSIANS)

    def nearness(features: Any) -> Any:
        whitened = (features.double().cpu() - origin) @ whitening
        squares = (whitened**2).sum(1, keepdim=True) - 2 * whitened @ means.T + (means**2).sum(1)
        return -squares.amin(1)

    return nearness


def _names(state: Learned) -> Sequence[str]:
    """The names of the layers, as a fit has stored them."""
    return state["layers"].tobytes().decode().split("\n")


def _own_rule(state: Learned) -> Learned:
    return Learned({key: state[f"rule.{key}"] for key in ("epsilon", "weights", "bias")})
