"""Forward passes of a torch network by ONNX Runtime, several times as fast on a CPU, where they are the same."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from roadworthy.models.networks import onnx_bytes
from roadworthy.models.onnx import session_options
from roadworthy.models.torch import class_scores, import_torch

SAME = 1e-4
"""The largest difference from torch's scores, as a share of the largest score (of 1 where that is smaller)."""

Forward = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class QuickForward:
    """The forward pass of a network of float32 weights on the CPU, exported once and checked every time it is asked.

    `of(module, images, scores)` is the pass by ONNX Runtime where it gives these scores (N, K) for these images, as
    torch found them; a network that was trained on since is exported anew. None where it cannot be had.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._module: Any = None
        self._forward: Forward | None = None

    def of(self, module: Any, images: NDArray[Any], scores: NDArray[np.float32]) -> Forward | None:
        """The pass, or None."""
        with self._lock:
            if self._module is not module:
                self._module, self._forward = module, _export(module, images)
            if self._forward is not None and not _agrees(self._forward, images, scores):
                self._forward = _export(module, images)
                if self._forward is not None and not _agrees(self._forward, images, scores):
                    self._forward = None
            return self._forward


def _export(module: Any, images: NDArray[Any]) -> Forward | None:
    """The network as a session; whatever keeps it from becoming one leaves the work to torch."""
    torch = import_torch()
    weights = [*module.parameters(), *module.buffers()]
    if images.dtype != np.float32 or any(weight.device.type != "cpu" for weight in weights):
        return None
    try:
        graph = onnx_bytes(_scores_of(copy.deepcopy(module)), {"image": torch.from_numpy(images[:2])}, ["scores"])
        session = onnxruntime.InferenceSession(graph, session_options(), ["CPUExecutionProvider"])
    except Exception:
        return None
    return lambda values: np.asarray(session.run(None, {"image": values})[0])


def _scores_of(module: Any) -> Any:
    """The module as one that answers its class scores alone, in single precision."""

    class Scores(import_torch().nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, image: Any) -> Any:
            return class_scores(self.module(image)).float().reshape(image.shape[0], -1)

    return Scores()


def _agrees(forward: Forward, images: NDArray[Any], scores: NDArray[np.float32]) -> bool:
    try:
        found = forward(images)
    except Exception:
        return False
    limit = SAME * max(1.0, float(np.abs(scores).max()))
    return found.shape == scores.shape and bool(np.abs(found - scores).max() <= limit)
