"""Damage of the weights: noise in every kernel of a network, as a faulty memory or a bad conversion would leave it.

It is possible for ONNX files and torch modules alone: nobody else's weights can be reached.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import Streams
from roadworthy.core.roles import Model
from roadworthy.damages.base import DAMAGES, Damage, DamagedModel, Load
from roadworthy.models import MODELS, TorchModel, kind_of

KINDS = ("onnx", "torch")
"""Kinds of models whose weights can be reached."""
FLOATS = ("float16", "float32", "float64")


@registered(DAMAGES, "weight_noise")
class WeightNoise(Damage):
    """Normal noise in every kernel, of `sigma` times the root mean square of its weights; offsets stay as they are."""

    sigma: float = parameter(within=(0.0, 10.0), default=0.1)
    seed: int = 0

    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = tuple({"sigma": sigma} for sigma in (0.02, 0.05, 0.1, 0.2, 0.4))

    @property
    def label(self) -> str:
        """The damage in words."""
        return f"{self.sigma:.0%} noise in the weights" + (f", seed {self.seed}" if self.seed else "")

    def problem(self, spec: Any) -> str:
        """Why the weights of a model with this entry cannot be reached."""
        kind = _kind(spec)
        return "" if kind in KINDS else f"not possible for a model of kind {kind}: only for ONNX and torch"

    def opened(self, spec: Any, load: Load) -> Model:
        """The model with noise in its weights."""
        if _kind(spec) == "onnx":
            return self._onnx(spec, load)
        model = load(spec, isolate=False)
        if not isinstance(model, TorchModel):
            raise InputError(f"model {model.name} cannot be damaged by {self.name}: it is not a torch module")
        self._disturb_module(model)
        return DamagedModel(model, self)

    def noisy(self, weights: NDArray[Any], name: str) -> NDArray[Any]:
        """The weights of one kernel with noise, which its name, its shape and the seed decide."""
        (rng,) = Streams("weight noise", self.seed).each([f"{name} {weights.shape}"])
        values = weights.astype(np.float64)
        size = float(np.sqrt(np.mean(values**2)))
        return np.asarray(values + self.sigma * size * rng.standard_normal(weights.shape), weights.dtype)

    def _onnx(self, spec: Any, load: Load) -> Model:
        """The same entry with a file whose initializers hold noise; the file is gone once it is read."""
        import onnx

        entry = dict(spec) if isinstance(spec, Mapping) else {"onnx": spec}
        whole = load(spec)  # refuses what is no model, in its own words
        path: Path = whole.path  # type: ignore[attr-defined]
        graph = onnx.load(str(path))
        kernels = [tensor for tensor in graph.graph.initializer if len(tensor.dims) > 1]
        disturbed = 0
        for tensor in kernels:
            weights = onnx.numpy_helper.to_array(tensor)
            if weights.dtype.name in FLOATS:
                tensor.CopyFrom(onnx.numpy_helper.from_array(self.noisy(weights, tensor.name), tensor.name))
                disturbed += 1
        if not disturbed:
            raise InputError(f"model {whole.name} cannot be damaged by {self.name}: {path} holds no kernel of floats")
        with tempfile.TemporaryDirectory(prefix="roadworthy-damaged-") as folder:
            file = Path(folder) / path.name
            onnx.save(graph, str(file))
            return DamagedModel(load({**entry, "onnx": str(file)}), self)

    def _disturb_module(self, model: TorchModel) -> None:
        import torch

        disturbed = 0
        with torch.no_grad():
            for name, weights in model.module.named_parameters():
                if weights.ndim > 1 and weights.is_floating_point():
                    noisy = self.noisy(weights.detach().cpu().numpy(), name)
                    weights.copy_(torch.from_numpy(noisy).to(weights))
                    disturbed += 1
        if not disturbed:
            raise InputError(f"model {model.name} cannot be damaged by {self.name}: it has no kernel of floats")


def _kind(spec: Any) -> str:
    if isinstance(spec, Mapping):
        return next((key for key in spec if key in MODELS), "unknown")
    return kind_of(str(spec)) if isinstance(spec, str | Path) else type(spec).__name__
