"""Monitors of other packages: any detector of pytorch-ood, where that package can be imported."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.parameters import registered
from roadworthy.core.roles import BATCH, Model
from roadworthy.models import TorchModel
from roadworthy.models.head import network_here
from roadworthy.models.signals import Signals, Training
from roadworthy.models.torch_tensors import import_torch
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Learned


@registered(MONITORS, "pytorch_ood")
class PytorchOod(Monitor):
    """Minus the outlier score of a detector of pytorch-ood, given by the name of its class.

    What its constructor asks for by name is filled in: `model`, `encoder` or `backbone` (up to the last linear layer),
    `head` (that layer), `w` and `b` (its weights); the rest is given in `options`. A detector whose state is more than
    tensors and numbers works but cannot be saved.
    """

    detector: str
    options: Mapping[str, Any] = field(default_factory=dict)

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "logits"})
    differs_from_paper: ClassVar[str] = "whatever the implementation of the package differs in: see its documentation"

    def signals(self, model: Model) -> tuple[str, ...]:
        """The images: a detector asks its network itself."""
        return ("images",)

    def fit(self, training: Training) -> Arrays:
        """The tensors and numbers that the detector holds after its own fit, and the detector itself."""
        network = _network(training.model)
        detector = self._make(network)
        before = dict(vars(detector))
        if getattr(detector, "requires_fit", False):
            detector.fit(_Loader(network, training))
        tensor = import_torch().Tensor
        changed = {key: value for key, value in vars(detector).items() if value is not before.get(key)}
        plain = {key: value for key, value in changed.items() if isinstance(value, tensor | float | int | np.ndarray)}
        arrays = {key: np.array(v.detach().cpu().numpy() if isinstance(v, tensor) else v) for key, v in plain.items()}
        state = Learned(arrays)
        state.cached("detector", lambda: detector, of=network)
        state.cached("kept", lambda: sorted(set(changed) - set(plain)))
        return state

    def read(self, signals: Signals, state: Learned) -> NDArray[Any]:
        """Minus the outlier score, (N,)."""
        network = _network(signals.model)
        detector = state.cached("detector", lambda: self._restored(network, state), of=network)
        scores = detector.predict(import_torch().from_numpy(network.preprocess(signals.images)))
        return np.asarray(-scores.detach().cpu().double().numpy().reshape(len(signals)))

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """A note on the attributes that prevent the detector from being saved."""
        unsaved = state.cached("kept", list[str])
        return (f"{self.detector} cannot be saved: {', '.join(unsaved)}",) if unsaved else ()

    def check_savable(self, state: Learned) -> None:
        """Refuse also a detector that holds more than tensors and numbers."""
        for note in self.notes(state, Learned()):
            raise InputError(f"monitor {self.name}: {note} is neither a tensor nor a number; build it again")
        super().check_savable(state)

    def _restored(self, network: TorchModel, state: Learned) -> Any:
        detector = self._make(network)
        for key, array in state.items():
            setattr(detector, key, array.item() if array.ndim == 0 else import_torch().from_numpy(array.copy()))
        return detector

    def _make(self, network: TorchModel) -> Any:
        detectors = import_detectors()
        if not hasattr(detectors, self.detector):
            raise UnknownName("detector of pytorch-ood", self.detector, getattr(detectors, "__all__", ()))
        detector_class = getattr(detectors, self.detector)
        parameters = inspect.signature(detector_class).parameters
        arguments = dict(self.options)
        if "model" in parameters:
            arguments.setdefault("model", network.module.eval())
        if {"encoder", "backbone", "head", "w", "b"} & set(parameters):
            last = network.module.get_submodule(network.head().layer.rpartition(":")[0])
            parts = {"head": last, "w": last.weight, "b": last.bias, "encoder": _encoder(network.module, last)}
            parts["backbone"] = parts["encoder"]
            arguments = {key: part for key, part in parts.items() if key in parameters} | arguments
        try:
            return detector_class(**arguments)
        except TypeError as error:
            raise InputError(f"monitor {self.name} cannot make {self.detector}: {error}; give it in options") from None


def import_detectors() -> Any:
    """The module `pytorch_ood.detector`; where it cannot be imported, an `InputError` that says why."""
    try:
        return importlib.import_module("pytorch_ood.detector")
    except Exception as error:  # it imports torchvision, whose import fails in many ways
        reason = " ".join(str(error).split())
        raise InputError(
            f"monitor pytorch_ood needs the package pytorch-ood, which cannot be imported here ({reason}): "
            "pip install pytorch-ood, with the torchvision that fits your torch"
        ) from None


class _Loader:
    """The training data as batches of tensors and labels, as often as asked for."""

    def __init__(self, network: TorchModel, training: Training) -> None:
        self.network, self.training = network, training

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        torch = import_torch()
        for images, labels in self.training.parts("images", "labels"):
            for start in range(0, len(images), BATCH):
                rows = slice(start, start + BATCH)
                yield torch.from_numpy(self.network.preprocess(images[rows])), torch.from_numpy(labels[rows].copy())

    def __len__(self) -> int:
        return -(-len(self.training) // BATCH)


def _network(model: Model) -> TorchModel:
    network = network_here(model)
    if not isinstance(network, TorchModel):
        raise InputError(f"monitor pytorch_ood runs torch modules: supply a torch model in place of {model.name}")
    return network


def _encoder(module: Any, last: Any) -> Any:
    """The network up to its last linear layer."""

    def encode(tensor: Any) -> Any:
        layer_inputs = []
        handle = last.register_forward_pre_hook(lambda layer, inputs: layer_inputs.append(inputs[0]))
        try:
            module.eval()(tensor)
        finally:
            handle.remove()
        return layer_inputs[-1]

    return encode
