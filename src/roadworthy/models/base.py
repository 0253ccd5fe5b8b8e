"""What the adapters share: preprocessing in front of a network, reading of its output behind it."""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, RoadworthyError, first_line, foreign_code
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.boxes import BoxForm, BoxReading, scaled_to
from roadworthy.models.outputs import PROBE_SIZES, PROBES, decide, prediction, probe_images
from roadworthy.models.preprocess import Preprocess, parse_choice

Run = Callable[[NDArray[np.uint8], int], NDArray[Any] | None]
DEVICES = ("auto", "cpu", "cuda")
Loader = TypeVar("Loader", bound=Callable[..., Model])


def passes_settings_to(model: Callable[..., Model], *but: str) -> Callable[[Loader], Loader]:
    """State in a loader's signature, in place of its `**settings`, the keywords of what it passes them to, `but` some.

    Those who check the settings of a study read names and types there.
    """

    def state(loader: Loader) -> Loader:
        called: Any = model.__init__ if isinstance(model, type) else model  # type: ignore[misc]
        signature, names = inspect.signature(loader, eval_str=True), inspect.unwrap(called).__globals__
        passed_on = [p for p in inspect.signature(model).parameters.values() if p.kind is p.KEYWORD_ONLY]
        added = [p for p in passed_on if p.name not in {*signature.parameters, *but}]
        typed = [p.replace(annotation=eval(p.annotation, names)) for p in added]
        kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        loader.__signature__ = signature.replace(parameters=[*kept, *typed])  # type: ignore[attr-defined]
        return loader

    return state


class Adapter(Model):
    """A network with its preprocessing. A subclass sets the fields and says how a tensor is run."""

    preprocess: Preprocess
    outputs: str
    """`probabilities` or `logits`, as decided when the model was loaded; `boxes` where it answers no classes."""
    reading: BoxReading | None = None
    """How the boxes of a localizer are read from its outputs; None for a classifier."""
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = {}
    """What else `describe` says, such as the kind of the adapter."""
    images_per_second: float | None = None
    """How many images its user lets it be asked about per second; None: as many as it answers."""

    @abstractmethod
    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The network's answer to a preprocessed tensor; boxes are in pixels of the tensor."""

    def predict(self, batch: Batch) -> Prediction:
        """Preprocess the images and run the network; boxes are brought to the size of the batch's images."""
        with self.guarded(batch):
            tensor = self.preprocess(batch.images)
            answer = self.run(tensor)
        return scaled_to(answer, self.tensor_size(tensor), batch.images.shape[1:3]) if self.reading else answer

    def tensor_size(self, tensor: NDArray[Any]) -> tuple[int, int]:
        """The height and width of the images in a preprocessed tensor."""
        height, width = tensor.shape[2:4] if self.preprocess.layout == "nchw" else tensor.shape[1:3]
        return int(height), int(width)

    def prediction_of(
        self, rows: NDArray[Any], size: tuple[int, int], logits: NDArray[Any] | None = None
    ) -> Prediction:
        """The answer in rows (N, K) of class scores; of a localizer (N, 4 or 8 + K), boxes in pixels of `size` (H, W).

        `logits` (N, K) are given where the class scores are probabilities and the model has both.
        """
        if self.reading is None:
            return prediction(rows, self.outputs, logits)
        columns = self.reading.form.columns
        boxes, variance = self.reading.form.read(rows[:, :columns], size, size)
        if not self.num_classes:
            return Prediction(boxes=boxes, box_variance=variance)
        return prediction(rows[:, columns:], self.outputs, logits).changed(boxes=boxes, box_variance=variance)

    def settle_reading(self, rows: NDArray[Any], declared: str, what: str) -> None:
        """Take what the answers (N, 4 or 8 + K) of a localizer to probe images say: classes, outputs and capabilities.

        `declared` is what the user says of the class scores. A variance that cannot be one is refused here.
        """
        assert self.reading is not None
        columns = self.reading.form.columns
        self.num_classes = rows.shape[1] - columns
        if self.num_classes:
            self.outputs = decide(declared, rows[:, columns:], what)
        elif declared == "logits":
            raise InputError(f"{what} answers boxes and no class scores: leave out `outputs=`")
        else:
            self.outputs = "boxes"
        try:
            self.reading.form.read(rows[:, :columns], (1, 1), (1, 1))
        except ModelError as error:
            raise InputError(f"{what}: {error}") from None
        has_classes = {"probabilities"} | ({"logits"} if self.outputs == "logits" else set())
        self.capabilities = self.reading.capabilities | (has_classes if self.num_classes else set())

    def fed(self, **changes: Any) -> Adapter:
        """The same network with its images prepared in another way: `range`, `colour` or `layout`. Nothing is loaded.

        Preprocessing that a model brings along as a whole cannot be changed: an `InputError`.
        """
        if type(self.preprocess) is not Preprocess:
            raise InputError(f"model {self.name} prepares its images by steps of its own: {self.preprocess}")
        other = copy.copy(self)
        other.preprocess = replace(self.preprocess, **changes)
        return other

    @property
    def box_form(self) -> BoxForm | None:
        """The form in which it is taken to write boxes; None for a classifier."""
        return None if self.reading is None else self.reading.form

    def reading_settings(self) -> dict[str, Any]:
        """What a fingerprint says of how boxes are read; nothing for a classifier."""
        return {} if self.reading is None else self.reading.settings()

    def guarded(self, batch: Batch) -> AbstractContextManager[None]:
        """While the network works on a batch: what it raises becomes a `ModelError` with its first line."""

        def explain(error: BaseException) -> ModelError:
            height, width = batch.images.shape[1:3]
            hint = f"; if {height}x{width} does not fit it, give `size='HxW'`" if self.input_size is None else ""
            return ModelError(f"model {self.name} failed on {len(batch)} images: {first_line(error)}{hint}")

        return foreign_code(explain)

    def describe(self) -> dict[str, Any]:
        """What is in use, for people: input, outputs, batch size, notes."""
        batch = "any" if self.fixed_batch is None else str(self.fixed_batch)
        known = {"input": str(self.preprocess), "outputs": self.outputs, "batch": batch, "notes": self.notes}
        boxes = {} if self.reading is None else {"boxes": str(self.reading.form)}
        return {**known, **boxes, **self.details}


def pick_device(device: str, available: bool, advice: str) -> str:
    """`cuda` or `cpu` for one of `DEVICES`; `cuda` where there is none is an error that ends in the advice."""
    if parse_choice("device", device, DEVICES) == "cuda" and not available:
        raise InputError(f"there is no CUDA for {advice}, or use `device='cpu'`")
    return "cuda" if available and device != "cpu" else "cpu"


def probe(
    run: Run, *, size: tuple[int, int] | None, channels: tuple[int, ...], batch: int | None, what: str
) -> tuple[NDArray[Any], int | None]:
    """Show probe images to a model whose needs are only partly known: its rows (N, K) and its batch size.

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
                    return np.concatenate(rows), batch if batch is not None or tried_batch > 1 else 1
                failures.append("its answer is not one row of class scores per image")
    hint = "" if size is not None else "; if it needs a certain size, give `size='HxW'`"
    raise InputError(f"{what} does not answer a probe image: {failures[0]}{hint}")
