"""RankFeat: the energy of what a network answers when the strongest rank-1 part of its feature maps is taken out."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import registered
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models import TorchModel
from roadworthy.models.signals import Signals
from roadworthy.models.torch_tensors import import_torch
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.confidence import energy
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned
from roadworthy.monitors.stages import require_layers, stage_layers, torch_network

FUSED = 2
"""The last so many stages are changed where no layers are named."""
MOST_STEPS = 10_000


@registered(MONITORS, "rankfeat")
class RankFeat(Monitor):
    """log sum_k exp z_k, z the mean of the logits behind each layer's map X - s1 u1 v1^T.

    X is the map of an image as a matrix (C, H W), s1 its largest singular value and u1, v1 the vectors that belong to
    it, found by `steps` steps of power iteration from the same start for every image. The rest of the network goes on
    from the changed map: a forward pass for each layer.

    layers  the names of submodules that give maps (N, C, H, W). None: the last stage and the one before, that is the
            submodules that are the last to give maps of the two last sizes (`stage_layers`)
    """

    layers: tuple[str, ...] | None = None
    steps: int = 20

    needs: ClassVar[frozenset[str]] = frozenset({"features", "logits"})
    differs_from_paper: ClassVar[str] = (
        "the singular vectors come from 20 steps of power iteration with a fixed start, which the paper offers as its "
        "quick form beside an exact decomposition; the two layers are found by the sizes of the maps, in the paper "
        "they are blocks 3 and 4 of ResNet-like networks"
    )

    def __post_init__(self) -> None:
        require_layers(self, self.layers)
        require_count(self, "steps", most=MOST_STEPS)

    def check(self, model: Model) -> None:
        """Refuse a model that is not a torch network whose activations can be replaced."""
        super().check(model)
        torch_network(self, model)

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The energy of the mean logits, (N,)."""
        network, batch = torch_network(self, signals.model), signals.batch.copy()
        known = state.cached("layers", dict[tuple[int, ...], tuple[str, ...]], of=network)
        size = batch.images.shape[1:]
        if size not in known:
            known[size] = self.layers or self._last_stages(network, batch)
        logits = []
        for layer in known[size]:
            change = partial(self._changed, layer=layer, model=network.name)
            logits.append(network.predict_replacing(batch, layer, change).columns["logits"])
        return energy(np.mean(logits, axis=0, dtype=np.float64))

    def _last_stages(self, network: TorchModel, batch: Batch) -> tuple[str, ...]:
        layers = stage_layers(network, batch)[-FUSED:]
        if not layers:
            raise InputError(
                f"monitor {self.name} finds no feature maps in model {network.name}: name submodules that give maps "
                "(N, C, H, W) in its setting layers"
            )
        return layers

    def _changed(self, maps: Any, layer: str, model: str) -> Any:
        if maps.ndim != 4:
            raise InputError(
                f"monitor {self.name}: layer {layer!r} of model {model} gives {tuple(maps.shape)}, not maps (N, C, H, "
                "W): name another in its setting layers"
            )
        return without_rank_one(maps, self.steps)


def without_rank_one(maps: Any, steps: int) -> Any:
    """X - s1 u1 v1^T of each image's map X (C, H W), for a tensor of maps (N, C, H, W).

    v <- X^T X v / |X^T X v|, `steps` times, then X - (X v) v^T. The error falls like (s2 / s1)^(2 steps). The start
    is the same for every image: positive, so that it is never orthogonal to the v1 of a map behind a ReLU, and of
    random lengths, so that it is not to those of others.

    >>> maps = import_torch().tensor([[[[3.0, 6.0]], [[0.0, 0.0]]]])
    >>> without_rank_one(maps, 20).abs().max().item() < 1e-6
    True
    """
    torch = import_torch()
    flat = maps.flatten(2)
    start = np.random.default_rng(0).uniform(0.5, 1.5, flat.shape[2]).astype(np.float32)
    right = torch.from_numpy(start).to(flat).reshape(1, -1, 1).expand(len(flat), -1, 1)
    for _ in range(steps):
        right = flat.transpose(1, 2) @ (flat @ right)
        right = right / right.norm(dim=1, keepdim=True).clamp_min(torch.finfo(right.dtype).tiny)
    return (flat - (flat @ right) @ right.transpose(1, 2)).reshape(maps.shape)
