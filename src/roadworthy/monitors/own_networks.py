"""What monitors share that train networks of their own: the budget among their settings, and the networks at work."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch
from roadworthy.core.validation import MOST_SEED
from roadworthy.models.networks import onnx_bytes
from roadworthy.models.onnx import cpu_session
from roadworthy.models.signals import Signals, Training
from roadworthy.models.torch_tensors import import_torch
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.learned import Arrays, Learned
from roadworthy.monitors.networks.base import Budget, kept_weights, with_weights
from roadworthy.monitors.networks.classes import architecture_settings, make_classifier, reference_of

FORM = "form"
"""The name under which a fit keeps what its networks are made with, as the bytes of a JSON text."""
MOST_SESSIONS = 64


@dataclass(frozen=True)
class Outputs:
    """What is asked of a network: the names of its outputs, and how all are computed from (network, images)."""

    names: tuple[str, ...]
    compute: Callable[[Any, Any], tuple[Any, ...]]


LOGITS = Outputs(("logits",), lambda network, images: (network(images),))


@dataclass(frozen=True, kw_only=True)
class NetworkMonitor(Monitor):
    """A monitor that trains networks of its own, each an artifact of the run with a competence and a floor.

    width          filters of the first layer
    epochs, batch, learning_rate   of the training;  a training on one thread, the best epoch on held-out images
    seed           in place of the study's, from which the seeds of its networks follow
    seconds        of processor time; where given, a training ends with the epoch that uses them up, so that what it has
                   learned depends on the speed of the machine
    floor          of the competence; below it the rows of the monitor are marked undertrained
    """

    width: int | None = None
    epochs: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    seconds: float | None = None
    floor: float | None = None
    seed: int | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"input"})
    default_budget: ClassVar[Budget]
    """What holds where the settings say nothing."""

    def __post_init__(self) -> None:
        if self.width is not None:
            require_count(self, "width")
        if self.seed is not None:
            require_count(self, "seed", least=0, most=MOST_SEED)
        self.budget().check(f"monitor {self.name}")

    def budget(self, like: Budget | None = None) -> Budget:
        """The settings, and what they leave open as in another budget or by default."""
        known = like or self.default_budget
        names = ("epochs", "batch", "learning_rate", "seconds", "floor")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(known, **given)

    def fit(self, training: Training) -> Arrays:
        """The weights of its networks, and what they are made with: the same for all of them."""
        settings = next(iter(training.networks.values())).settings
        text = json.dumps(dict(settings), sort_keys=True)
        return {FORM: np.frombuffer(text.encode(), np.uint8), **kept_weights(training.networks)}

    def signals(self, model: Model) -> tuple[str, ...]:
        """None: the networks were trained from the data itself, unless a monitor says otherwise."""
        return ()

    def check_images(self, signals: Signals, state: Learned) -> None:
        """Refuse images of another size than those that it was fitted on."""
        shape, form = signals.images.shape[1:], form_of(state)
        known = (*form["size"], form["channels"])
        if shape != known:
            raise InputError(f"monitor {self.name} was built on images {known}, not {shape}: resize them")


@dataclass(frozen=True, kw_only=True)
class ClassifierMonitor(NetworkMonitor):
    """A monitor whose networks are classifiers: of the architecture of the model it watches, unless settings say other.

    architecture   of a reference network: vgg, resnet, ...; None: that of the model where it is a reference network,
                   and with it the width, epochs, batch, learning rate and floor that are not given; else vgg
    """

    architecture: str | None = None

    default_budget: ClassVar[Budget] = Budget(epochs=8, batch=128, learning_rate=1e-3, floor=0.9)

    @property
    def asks_model(self) -> bool:
        """Yes: its networks are like the model, even though it asks nothing of the model itself."""
        return True

    def form(self, model: Model, train: Dataset) -> dict[str, Any]:
        """What its networks are made with."""
        given = {"architecture": self.architecture, "width": self.width}
        return architecture_settings(f"monitor {self.name}", model, train, given)

    def budget_like(self, model: Model) -> Budget:
        """The budget, as that of the model where the settings leave it open."""
        reference = reference_of(model)
        if reference is None or self.architecture not in (None, reference.architecture):
            return self.budget()
        names = ("epochs", "batch", "learning_rate", "schedule", "floor")
        return self.budget(Budget(**{name: getattr(reference, name) for name in names}))

    def answers(self, signals: Signals, state: Learned, roles: Sequence[str]) -> list[NDArray[np.float32]]:
        """What its networks of these roles answer to images, (N, K) each."""
        self.check_images(signals, state)
        return [pass_of(signals, state, self.make_network, role, LOGITS, "logits") for role in roles]

    def make_network(self, form: Mapping[str, Any]) -> Any:
        """A network of this form, before training."""
        return make_classifier(form)


def form_of(state: Learned) -> dict[str, Any]:
    """What the networks of a fitted monitor are made with: size (height, width) and channels of the images among it."""
    form: dict[str, Any] = state.cached("form of the networks", lambda: json.loads(state[FORM].tobytes()))
    return form


def pass_of(
    signals: Signals, state: Learned, make: Callable[[Mapping[str, Any]], Any], role: str, outputs: Outputs, asked: str
) -> NDArray[np.float32]:
    """One output, a row per image, of a network that a fit keeps under a role, by ONNX Runtime.

    make      makes the network of its form;  asked: the name of the output

    Monitors that keep the same network share its session, and its answer to a batch.
    """
    key = state.cached(f"digest of {role}", lambda: _digest(state, role))
    session = state.cached(f"session of {role}", lambda: _session(key, state, make, role, outputs))
    return signals.computed(
        f"{asked} of {key}", lambda images: np.asarray(session.run([asked], {"image": values_of(images)})[0])
    )


_SESSIONS: OrderedDict[str, Any] = OrderedDict()
_SESSIONS_LOCK = threading.Lock()


def _session(key: str, state: Learned, make: Callable[[Mapping[str, Any]], Any], role: str, outputs: Outputs) -> Any:
    """The session of a network, made once for all that keep the same weights; the last ones are held."""
    with _SESSIONS_LOCK:
        if key not in _SESSIONS:
            torch, settings = import_torch(), form_of(state)
            network = with_weights(make(settings), state, f"{role}/")
            example = torch.zeros(2, settings["channels"], *settings["size"])
            _SESSIONS[key] = cpu_session(onnx_bytes(_all_outputs(network, outputs), {"image": example}, outputs.names))
        _SESSIONS.move_to_end(key)
        while len(_SESSIONS) > MOST_SESSIONS:
            _SESSIONS.popitem(last=False)
        return _SESSIONS[key]


def _digest(state: Learned, role: str) -> str:
    """The hash of a network that a fit keeps: of its form and its weights."""
    arrays = {name: digest_array(array) for name, array in state.items() if name.startswith(f"{role}/")}
    return digest({"form": form_of(state), "weights": {name.removeprefix(role): arrays[name] for name in arrays}})


def _all_outputs(network: Any, outputs: Outputs) -> Any:
    """A network that answers all outputs of another one."""

    class AllOutputs(import_torch().nn.Module):  # type: ignore[misc]
        """The outputs in their order."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: Any) -> Any:
            return outputs.compute(self.network, images)

    return AllOutputs()


def values_of(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Images (N, H, W, C) as networks take them: (N, C, H, W) from 0 to 1."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32) / np.float32(255)


def images_alone(images: NDArray[np.uint8]) -> Signals:
    """Signals of images (n, H, W, C) that no model is asked about."""
    ids = tuple(str(row) for row in range(len(images)))
    return Signals(None, Batch(ids, images, np.zeros(len(images), np.int64)))
