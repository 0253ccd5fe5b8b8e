"""MC-Dropout: the mean of several passes through a network whose dropout stays active."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.random import Streams
from roadworthy.core.roles import Model
from roadworthy.core.types import Prediction
from roadworthy.core.validation import MOST_PASSES, check_whole, parse_size
from roadworthy.models.base import Adapter
from roadworthy.models.outputs import as_rows, probe_images
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.reference import OPENERS, ReferenceModel
from roadworthy.models.torch import TorchModel
from roadworthy.models.torch_tensors import class_scores, import_torch
from roadworthy.uncertainty.measures import mixture, tasks_of

if TYPE_CHECKING:
    import torch

    from roadworthy.uncertainty.subnetworks import Layer

RUNTIMES = ("auto", "torch")
MASK_BYTES = 2**28
"""Masks are kept where all of them are no larger than this; else they are drawn anew for each batch, the same ones."""


class McDropout(Adapter):
    """A torch network answered by the mean of `passes` sub-networks that dropout draws from it.

    p_nk = 1/S sum_s softmax(f(x_n; m_s))_k, with m_s ~ Bernoulli(1 - p) / (1 - p) for each unit behind a dropout

    Of a localizer (`boxes`), the box is the mean of the passes and `box_variance` their variance per coordinate,
    divided by S and not S - 1, plus the mean of the variance that the passes state, where the network states one.

    The masks of pass s are drawn once, keyed by (seed, pass, layer), and are the same for every image. To one image
    that is the same distribution as masks of its own; between images it makes a pass one fixed sub-network, so answers
    depend on neither batch, order nor worker. `samples` (S, N, K) are the passes; `certainty` is the largest mean
    probability.

    placement  `all` dropout layers of the network, or names or patterns of modules (`head.*`, `dropout_1` for the
               second call of `F.dropout`). A pattern that matches dropout makes it active; one that matches only other
               modules puts a new dropout of probability `p` behind each (a wildcard means modules without children)
    runtime    `auto`: ONNX Runtime where it gives torch's answers, else torch;  `torch`
    network    a torch module, or a `TorchModel`, which has its size and settings
    size       (H, W) of the input, which decides the shapes of the masks
    settings   those of `TorchModel`: range, layout, outputs, colour, channels, classes, boxes, box_output, class_output
    uncertainty, family   how tables call the method, and the network that it is a variant of

    What precedes the first active dropout is computed once for all passes. The network is copied: later changes to it
    do not count. It runs on the CPU. `layers` are the active dropout layers (name, probability, shape of the mask),
    `runtime` is what runs the passes, `onnx` or `torch`.

    >>> nn = import_torch().nn
    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4))
    >>> model = McDropout(network, passes=5, size=2, seed=1, runtime="torch")
    >>> [layer.name for layer in model.layers], sorted(model.capabilities)
    (['3'], ['certainty', 'log_odds', 'probabilities', 'samples'])
    """

    def __init__(
        self,
        network: torch.nn.Module | TorchModel,
        *,
        passes: int = 20,
        seed: int = 0,
        size: str | int | Sequence[int] | None = None,
        placement: str | Sequence[str] = "all",
        p: float | None = None,
        runtime: str = "auto",
        name: str | None = None,
        uncertainty: str = "mc_dropout",
        family: str = "",
        **settings: Any,
    ) -> None:
        torch = import_torch()
        from roadworthy.uncertainty.subnetworks import subnetworks

        check_whole("the passes of MC-Dropout", passes, 1, MOST_PASSES)
        parse_choice("runtime", runtime, RUNTIMES)
        whole = _copied(network, size, name, settings)
        if whole.input_size is None:
            raise InputError(f"model {whole.name}: MC-Dropout must know the input size: give `size='HxW'`")
        if any(weight.dtype != torch.float32 for weight in whole.module.parameters()):
            raise InputError(f"model {whole.name}: MC-Dropout takes networks of float32 weights")
        self.name, self.passes, self.seed = whole.name, passes, seed
        self.preprocess, self.outputs, self.num_classes = whole.preprocess, whole.outputs, whole.num_classes
        self.class_names, self.input_size, self.fixed_batch = whole.class_names, whole.input_size, whole.fixed_batch
        self.reading, self.uncertainty, self.family = whole.reading, uncertainty, family or whole.family
        of_classes = {"probabilities", "samples", "certainty"} if self.num_classes else set()
        of_classes |= {"log_odds"} if self.num_classes and self.outputs == "logits" else set()
        self.capabilities = frozenset(of_classes | ({"boxes", "box_variance"} if self.reading else set()))
        self._weights = sum(weight.numel() for weight in whole.module.parameters())
        example = self.preprocess(probe_images(whole.input_size, self.preprocess.channels))
        read = class_scores if self.reading is None else whole.rows_of
        self._parts = subnetworks(whole.module, example, placement, p, runtime, f"model {self.name}", read)
        self.layers, self.runtime = self._parts.layers, self._parts.runtime
        self.concurrent, self.notes = self._parts.concurrent, self._parts.notes
        active = ", ".join(f"{layer.name} (p = {layer.p:g})" for layer in self.layers)
        self.details = {"kind": "mc_dropout", "passes": passes, "dropout": active}
        layers = [[layer.name, layer.p, list(layer.shape)] for layer in self.layers]
        known = {"kind": "mc_dropout", "network": whole.fingerprint(), "layers": layers}
        self._fingerprint = digest({**known, "passes": passes, "seed": seed, "runtime": self.runtime})
        self._lock = threading.Lock()
        self._kept: dict[int, list[NDArray[np.float32]]] = {}
        bytes_of_all = 4 * passes * sum(int(np.prod(layer.shape)) for layer in self.layers)
        self._keeps = bytes_of_all <= MASK_BYTES

    def fingerprint(self) -> str:
        """Hash of the network as it was copied, its settings, the active dropout, passes and seed."""
        return self._fingerprint

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The passes and their mean; of boxes their mean and variance."""
        values = self._parts.before(tensor)
        answers, size = [], self.tensor_size(tensor)
        for index in range(self.passes):
            rows = as_rows(self._parts.after(values, self.masks(index)), len(tensor))
            if rows is None:
                raise ModelError(f"model {self.name} does not answer one row of class scores per image")
            answers.append(self.prediction_of(rows, size))
        return mixture(answers)

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """The number of passes, the weights that are held, and the probability of dropout where there is one."""
        probabilities = {layer.p for layer in self.layers}
        facts: dict[str, Any] = {"passes": self.passes, "weights": self._weights}
        facts |= {"dropout": probabilities.pop()} if len(probabilities) == 1 else {}
        return dict.fromkeys(tasks_of(self), facts)

    def masks(self, index: int) -> list[NDArray[np.float32]]:
        """The masks of one pass, a layer each: 0 where a unit is dropped, else 1 / (1 - p)."""
        with self._lock:
            if index in self._kept:
                return self._kept[index]
            keys = [f"pass {index} {layer.name}" for layer in self.layers]
            streams = Streams("mc_dropout", self.seed).each(keys)
            drawn = [_mask(rng, layer) for rng, layer in zip(streams, self.layers, strict=True)]
            if self._keeps:
                self._kept[index] = drawn
            return drawn


def _copied(network: torch.nn.Module | TorchModel, size: Any, name: str | None, settings: dict[str, Any]) -> TorchModel:
    """The network as a model of its own, which later changes do not reach."""
    if not isinstance(network, TorchModel):
        whole = TorchModel(copy.deepcopy(network).eval(), size=parse_size(size), name=name, device="cpu", **settings)
    elif size is not None or settings:
        raise InputError(f"model {network.name} is complete: its size and settings cannot be set any more")
    else:
        whole = copy.copy(network)
        whole.module, whole.name = copy.deepcopy(network.module).cpu().eval(), name or network.name
    return whole


def _mask(rng: np.random.Generator, layer: Layer) -> NDArray[np.float32]:
    if layer.p >= 1:
        return np.zeros(layer.shape, np.float32)
    kept = rng.random(layer.shape, np.float32) >= np.float32(layer.p)
    return kept * np.float32(1 / (1 - layer.p))


@OPENERS.register("mc_dropout")
def open_mc_dropout(model: ReferenceModel, home: Path) -> Model:
    """A trained reference network with its dropout active."""
    return McDropout(model.trained(home), passes=model.passes, seed=model.seed, **model.form())
