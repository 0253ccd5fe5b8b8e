"""Any detector of the package pytorch-ood as a monitor, where that package can be imported."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.protocols import Dataset, Model
from roadworthy.core.types import Batch
from roadworthy.models import TorchModel
from roadworthy.models.memory import network_of
from roadworthy.models.torch import import_torch
from roadworthy.monitors.base import MONITORS, Arrays, Monitor, over


@MONITORS.register("pytorch_ood")
@dataclass(frozen=True, kw_only=True)
class PytorchOod(Monitor):
    """Minus the outlier score of a detector of pytorch-ood, given by the name of its class.

    What its constructor asks for by name is filled in: `model`, `encoder` or `backbone` (up to the last linear layer),
    `head` (that layer), `w` and `b` (its weights); the rest stands in `options`. A detector whose state is more than
    tensors and numbers works but cannot be saved.
    """

    detector: str
    options: Mapping[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "pytorch_ood"
    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "logits"})
    differs_from_paper: ClassVar[str] = "whatever the implementation of the package differs in: see its documentation"

    def fit(self, model: Model, data: Dataset) -> Arrays:
        """The tensors and numbers that the detector holds after its own fit."""
        network = _network(model)
        detector = self._make(network)
        before = dict(vars(detector))
        if getattr(detector, "requires_fit", False):
            detector.fit(_Loader(network, data))
        self.fitted.cache["detector"] = (network, detector)
        tensor = import_torch().Tensor
        changed = {key: value for key, value in vars(detector).items() if value is not before.get(key)}
        plain = {key: value for key, value in changed.items() if isinstance(value, tensor | float | int | np.ndarray)}
        if len(plain) < len(changed):
            self.fitted.notes = (f"{self.detector} cannot be saved: {', '.join(sorted(set(changed) - set(plain)))}",)
        return {key: np.array(v.detach().cpu().numpy() if isinstance(v, tensor) else v) for key, v in plain.items()}

    def read(self, model: Model, batch: Batch) -> NDArray[Any]:
        """(N,)."""
        network = _network(model)
        known, detector = self.fitted.cache.get("detector", (None, None))
        if known is not network:
            detector = self._make(network)
            for key, array in self.state.items():
                setattr(detector, key, array.item() if array.ndim == 0 else import_torch().from_numpy(array.copy()))
            self.fitted.cache["detector"] = (network, detector)
        scores = detector.predict(import_torch().from_numpy(network.preprocess(batch.images)))
        return np.asarray(-scores.detach().cpu().double().numpy().reshape(len(batch)))

    def save(self, folder: str | Path) -> Path:
        """Write the monitor to a folder, unless its detector holds more than tensors and numbers."""
        if self.fitted.notes:
            raise InputError(f"monitor {self.name}: {self.fitted.notes[0]} is neither tensor nor number; build it anew")
        return super().save(folder)

    def _make(self, network: TorchModel) -> Any:
        detectors = import_detectors()
        if not hasattr(detectors, self.detector):
            raise UnknownName("detector of pytorch-ood", self.detector, getattr(detectors, "__all__", ()))
        kind = getattr(detectors, self.detector)
        wanted = inspect.signature(kind).parameters
        given = dict(self.options)
        if "model" in wanted:
            given.setdefault("model", network.module.eval())
        if {"encoder", "backbone", "head", "w", "b"} & set(wanted):
            last = network.module.get_submodule(network.head().layer.rpartition(":")[0])
            parts = {"head": last, "w": last.weight, "b": last.bias, "encoder": _encoder(network.module, last)}
            parts["backbone"] = parts["encoder"]
            given = {key: part for key, part in parts.items() if key in wanted} | given
        try:
            return kind(**given)
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

    def __init__(self, network: TorchModel, data: Dataset) -> None:
        self.network, self.data = network, data

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        torch = import_torch()
        for batch in over(self.data, 128):
            yield torch.from_numpy(self.network.preprocess(batch.images)), torch.from_numpy(batch.labels.copy())

    def __len__(self) -> int:
        return -(-len(self.data) // 128)


def _network(model: Model) -> TorchModel:
    network = network_of(model)
    if not isinstance(network, TorchModel):
        raise InputError(f"monitor pytorch_ood runs torch modules: supply a torch model in place of {model.name}")
    return network


def _encoder(module: Any, last: Any) -> Any:
    """The network up to its last linear layer."""

    def encode(tensor: Any) -> Any:
        found = []
        handle = last.register_forward_pre_hook(lambda layer, inputs: found.append(inputs[0]))
        try:
            module.eval()(tensor)
        finally:
            handle.remove()
        return found[-1]

    return encode
