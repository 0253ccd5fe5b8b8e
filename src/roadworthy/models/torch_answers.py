"""What a torch module answers to images: how it is run, by several threads at once, and how its answers are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.types import Prediction
from roadworthy.core.validation import MOST_THREADS, check_whole, parse_size
from roadworthy.models.base import Adapter, pick_device, probe
from roadworthy.models.boxes import BoxReading, DeclaredBoxes, declared_boxes, output_rows
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.declared_input import read_declared
from roadworthy.models.outputs import as_rows, decide, refuse_detector, same_scores
from roadworthy.models.preprocess import Preprocess, read_shape
from roadworthy.models.torch_state import module_state
from roadworthy.models.torch_tensors import class_scores, dtype_of, import_torch, named_tensors

if TYPE_CHECKING:
    import torch

NO_CUDA = "torch here: install a CUDA build of torch"
ANY_SHAPE = (None, None, None, None)
MOST_CHANNELS = 4
FEW = 4
"""From how many images on a batch lies in memory pixel by pixel."""


class TorchAnswers(Adapter):
    """A `torch.nn.Module` as a black box; `TorchModel` says what the settings mean, and shows what is inside."""

    concurrent = True

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        range: str = "auto",
        layout: str = "auto",
        outputs: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        channels: int | None = None,
        classes: str | Path | Sequence[str] | None = None,
        boxes: str | None = None,
        box_output: str | Sequence[str] | None = None,
        class_output: str | None = None,
        device: str = "auto",
        threads: int = 1,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
        dims: Sequence[int | None] = ANY_SHAPE,
        preprocess: Preprocess | None = None,
    ) -> None:
        torch = import_torch()
        self.version = version
        check_whole("the threads of a torch model", threads, 1, MOST_THREADS)
        if channels is not None:
            check_whole("the channels of a torch model", channels, 1, MOST_CHANNELS)
        torch.set_num_threads(threads)
        self.name = name or type(module).__name__
        self._device = pick_device(device, bool(torch.cuda.is_available()), NO_CUDA)
        self.details = {"kind": "torch", "device": self._device}
        self.module = module.to(self._device)
        self._lock = threading.Lock()
        self._users = 0
        self._is_known = False
        self._were_training: list[Any] = []
        self._convolves = self._device == "cpu" and any(isinstance(p, torch.nn.Conv2d) for p in module.modules())
        self._known_shapes: dict[tuple[int, ...], bool] = {}
        layout, read_channels, image_size, batch = read_shape(
            dims, "nchw" if layout == "auto" else layout, parse_size(size), f"model {self.name}"
        )
        known = channels or (read_channels if dims is not ANY_SHAPE else None)
        whole, taken_over = (preprocess, "") if preprocess else read_declared(module, range, image_size, layout, colour)
        self.notes = (taken_over,) if taken_over else ()
        if whole is not None:
            image_size, known = whole.data_size, whole.channels
        self.input_size = image_size

        declared = declared_boxes(boxes, box_output, class_output)

        def run(images: NDArray[np.uint8], channels: int) -> NDArray[Any] | None:
            plain = Preprocess("0-1" if range == "auto" else range, layout, colour, image_size, channels)
            self.preprocess = whole or plain
            tensor = self.preprocess(images)
            if declared is not None and self.reading is None:
                self.reading = self._found_reading(tensor, declared)
            return as_rows(self._forward(tensor), len(images))

        tried = (known,) if known else (3, 1)
        rows, self.fixed_batch = probe(run, size=image_size, channels=tried, batch=batch, what=f"model {self.name}")
        self._is_known = True
        if self.reading is None:
            self.num_classes = rows.shape[1]
            self.outputs = decide(outputs, rows, f"model {self.name}")
            self.capabilities = frozenset({"probabilities", *(["logits"] if self.outputs == "logits" else [])})
        else:
            self.settle_reading(rows, outputs, f"model {self.name}")
        self.class_names = check_class_names(read_class_names(classes, base), self.num_classes, f"model {self.name}")
        self.capabilities |= self.inner_capabilities()

    def fed(self, **changes: Any) -> TorchAnswers:
        """The same module fed in another way; what is known of how batches lie in memory stays apart."""
        other = super().fed(**changes)
        assert isinstance(other, TorchAnswers)
        other._known_shapes = dict(self._known_shapes)
        return other

    def inner_capabilities(self) -> frozenset[str]:
        """What it shows besides answers; nothing of a black box."""
        return frozenset()

    def _found_reading(self, tensor: NDArray[Any], declared: DeclaredBoxes) -> BoxReading | None:
        """How the boxes of a localizer are read, from what it answers to a tensor; None where no answer has rows."""
        torch = import_torch()
        with self._evaluating(), torch.inference_mode():
            values = torch.from_numpy(tensor).to(self._device, dtype_of(self.module))
            answer = self.module(values)
            refuse_detector(answer, len(tensor), f"model {self.name}")
            answers = {name: value.float().cpu().numpy() for name, value in named_tensors(answer).items()}
        rows = output_rows(answers, len(tensor))
        return declared.reading(rows, f"model {self.name}") if rows else None

    def scores_of(self, output: Any) -> Any:
        """The class scores in what the module answers, as a tensor."""
        if self.reading is None:
            return class_scores(output)
        if self.reading.classes is None:
            raise InputError(f"model {self.name} answers boxes and no class scores")
        return named_tensors(output)[self.reading.classes]

    def rows_of(self, output: Any) -> Any:
        """All that counts in what the module answers, as one tensor: class scores, of a localizer (N, 4 or 8 + K)."""
        if self.reading is None:
            return class_scores(output)
        tensors = named_tensors(output)
        parts = [tensors[name] for name in self.reading.names]
        if len(parts) == 1 and parts[0].ndim == 2:
            return parts[0]
        return import_torch().cat([part.reshape(part.shape[0], -1).float() for part in parts], 1)

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The answer to a tensor in the module's layout."""
        rows = as_rows(self._forward(tensor), len(tensor))
        if rows is None:
            raise ModelError(f"model {self.name} does not answer one row of class scores per image")
        return self.prediction_of(rows, self.tensor_size(tensor))

    def fingerprint(self) -> str:
        """Hash of the weights, the structure with its attributes, the code of its classes, and the settings.

        A `version` stands for all but the settings.

        Made anew at each call, since a live module can be trained on. Files that a module reads are not seen.
        """
        settings = {**self.preprocess.settings(), "outputs": self.outputs, "device": self._device}
        state = module_state(self.module) if self.version is None else {"version": self.version}
        return digest({"kind": "torch", **state, "settings": {**settings, **self.reading_settings()}})

    def _forward(self, tensor: NDArray[Any]) -> NDArray[Any]:
        torch = import_torch()
        pixels_first = self._takes_pixels_first(torch, tensor.shape)
        with self._evaluating(), torch.inference_mode():
            return self._scores(torch, tensor, pixels_first)

    def _scores(self, torch: Any, tensor: NDArray[Any], pixels_first: bool) -> NDArray[Any]:
        values = self._values(torch, tensor, pixels_first)
        answer = self.module(values)
        if not self._is_known:
            refuse_detector(answer, len(tensor), f"model {self.name}")
        scores: NDArray[Any] = self.rows_of(answer).float().cpu().numpy()
        return scores

    def _values(self, torch: Any, tensor: NDArray[Any], pixels_first: bool) -> Any:
        values = torch.from_numpy(tensor).to(self._device, dtype_of(self.module))
        return values.contiguous(memory_format=torch.channels_last) if pixels_first else values

    def _takes_pixels_first(self, torch: Any, shape: tuple[int, ...]) -> bool:
        """Whether a batch lies in memory pixel by pixel, with which convolutions on a CPU are up to twice as fast.

        It does for a few images or more, where the module answers as many random images the same: code that looks at
        the memory itself (`Tensor.view`) can refuse them. Asked once per shape of an image.
        """
        if shape[0] < FEW or len(shape) != 4 or self.preprocess.layout != "nchw" or not self._convolves:
            return False
        if shape[1:] not in self._known_shapes:
            count, channels, *size = shape
            images = np.random.default_rng(0).integers(0, 256, (count, *size, channels), dtype=np.uint8)
            with self._evaluating(), torch.inference_mode(), torch.random.fork_rng(devices=[]):
                try:
                    scores, expected = (self._scores(torch, self.preprocess(images), way) for way in (True, False))
                    self._known_shapes[shape[1:]] = same_scores(scores, expected)
                except KeyboardInterrupt:
                    raise
                except BaseException:  # any failure: the images themselves will show it
                    self._known_shapes[shape[1:]] = False
        return self._known_shapes[shape[1:]]

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Eval mode while any thread runs the module; the last one out puts the training flags back."""
        with self._lock:
            if not self._users:
                self._were_training = _stop_training(self.module)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    for module in self._were_training:
                        module.training = True


def _stop_training(module: Any) -> list[Any]:
    """Put a module in eval mode and return the submodules that were in training mode."""
    training = [part for part in module.modules() if part.training]
    if not training:
        return []
    try:
        module.eval()
    except NotImplementedError:
        return []
    return training
