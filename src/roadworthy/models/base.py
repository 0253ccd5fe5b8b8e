"""What the adapters share: preprocessing in front of a network, reading of its output behind it."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, RoadworthyError, foreign_code
from roadworthy.core.protocols import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.outputs import PROBE_SIZES, PROBES, probe_images
from roadworthy.models.preprocess import Preprocess

T = TypeVar("T")


class Adapter(Model):
    """A network with its preprocessing. A subclass sets the fields and says how a tensor is run."""

    preprocess: Preprocess
    outputs: str
    """`probabilities` or `logits`, as decided when the model was loaded."""
    notes: tuple[str, ...] = ()

    @abstractmethod
    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The network's answer to a preprocessed tensor."""

    def predict(self, batch: Batch) -> Prediction:
        """Preprocess the images and run the network."""
        return self.guarded(lambda: self.run(self.preprocess(batch.images)), batch)

    def guarded(self, work: Callable[[], T], batch: Batch) -> T:
        """Do some work on a batch; what the network raises becomes a `ModelError` with its first line."""

        def explain(error: BaseException) -> ModelError:
            height, width = batch.images.shape[1:3]
            hint = f"; if {height}x{width} does not fit it, give `size='HxW'`" if self.input_size is None else ""
            return ModelError(f"model {self.name} failed on {len(batch)} images: {first_line(error)}{hint}")

        with foreign_code(explain):
            return work()

    def describe(self) -> dict[str, Any]:
        """What is in use, for people: input, outputs, batch size, notes."""
        return {
            "input": str(self.preprocess),
            "outputs": self.outputs,
            "batch": "any" if self.fixed_batch is None else str(self.fixed_batch),
            "notes": self.notes,
        }


def first_line(error: BaseException) -> str:
    """The first line of an error's message, shortened and without codes; its type where it has none.

    >>> first_line(KeyError()), first_line(ValueError("no such layer\\ntrace"))
    ('KeyError', 'no such layer')
    """
    if isinstance(error, SystemExit):
        return "it called sys.exit()"
    line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line)
    return line if len(line) <= 300 else line[:297] + "..."


def probe(
    run: Callable[[NDArray[np.uint8], int], NDArray[Any] | None],
    *,
    size: tuple[int, int] | None,
    channels: tuple[int, ...],
    batch: int | None,
    what: str,
) -> tuple[NDArray[Any], int, int | None]:
    """Show probe images to a model whose needs are only partly known: its rows (N, K), its channels, its batch size.

    `run(images, channels)` answers (N, K), or None where the answer has another shape. Tried are a batch of several
    images, then single ones (a graph can claim to take any batch and fail on all but one).
    """
    failures: list[str] = []
    for tried_size in [size] if size is not None else PROBE_SIZES:
        for tried_channels in channels:
            for tried_batch in [batch] if batch is not None else (PROBES, 1):
                count = -(-PROBES // tried_batch) * tried_batch
                images = probe_images(tried_size, tried_channels, count)
                try:
                    with foreign_code(lambda error: ModelError(first_line(error))):
                        parts = [run(part, tried_channels) for part in np.split(images, count // tried_batch)]
                except InputError:
                    raise
                except RoadworthyError as error:
                    failures.append(first_line(error))
                    continue
                rows = [part for part in parts if part is not None]
                if len(rows) == len(parts):
                    fixed = batch if batch is not None or tried_batch > 1 else 1
                    return np.concatenate(rows), tried_channels, fixed
                failures.append("its answer is not one row of class scores per image")
    hint = "" if size is not None else "; if it wants a certain size, give `size='HxW'`"
    raise InputError(f"{what} does not answer a probe image: {failures[0]}{hint}")
