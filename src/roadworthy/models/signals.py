"""Signals: what a model says of some images, asked once for all that read it. Monitors read nothing else of a model."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, RoadworthyError, UnknownName, foreign_code
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.types import STORED, Batch, Images, Prediction
from roadworthy.models.head import can_watch, penultimate, watched_layer, watching

LAYERED = ("features", "activations")
"""Signals of a layer, `features:24/Relu`."""
PENULTIMATE = "penultimate"
"""The layer where none is named: what goes into the last linear one, whatever it is called."""
OF_DATA = ("images", "labels")
"""Signals that the data has by itself: they are not stored."""
NAMES = (*OF_DATA, "logits", *STORED, *LAYERED)
PART = 512
"""Rows of training data that a fit reads at once: a fixed number, so that sums over parts have the same bits."""
SUPPLY = {
    "logits": "a model that answers logits, or an ONNX model whose last node is a softmax",
    "features": "an ONNX model, or a torch module of Python code",
    "gradients": "a torch model (a module, or weights with their architecture) in place of a black box",
    "samples": "a model that answers several passes: MC-Dropout or an ensemble",
}
"""What to use in place of a model that does not give a signal."""


Answer = TypeVar("Answer")


class Signals:
    """What one model says of one batch: every signal is asked for when it is first read, and only once.

    The model is asked in batches of exactly `size` images, the last one repeated to fill up; a model that insists on a
    size gets its own. So the bits of a signal depend on the images and this size, never on what else is read. What goes
    into the last linear layer of a torch network comes with the answer, from the same pass. Arrays cannot be written
    to, since several read them. An instance lives for one batch.

    `with_answer` are layers of a network that can tell them (`head.can_watch`) which come with the answer too. Of an
    ONNX model that can change the last bits of answer and layers, so it is for deployment (`OnePass`), not for what is
    stored. `asked_apart` are the layers that took a pass of their own.

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> signals = Signals(ToyModel(), toy_data()[0].batch(slice(0, 5)))
    >>> signals.logits.shape, signals.features().shape, signals["probabilities"] is signals.probabilities
    ((5, 4), (5, 24), True)
    """

    def __init__(self, model: Model | None, batch: Batch, size: int = BATCH, with_answer: Sequence[str] = ()) -> None:
        self._model, self.batch, self.size = model, batch.read_only(), getattr(model, "fixed_batch", None) or size
        self._with_answer, self.asked_apart = tuple(with_answer), set[str]()
        self._seen: dict[str, NDArray[np.float32]] = {}
        self._answer: Prediction | None = None  # no cached_property: its lock would be one for all threads
        self._failure: RoadworthyError | None = None
        self._cut: tuple[Signals, ...] | None = None
        self._known: dict[str, NDArray[Any]] = {}
        self._cost: dict[str, float] = {}
        self._touched: set[str] = set()

    def timed(self, read: Callable[[Signals], Answer]) -> tuple[Answer, float]:
        """What a reader makes of the signals, and the seconds it would have taken alone: with all that it read."""
        asked_before, self._touched = dict(self._cost), set()
        started = time.perf_counter()
        answer = read(self)
        elapsed = time.perf_counter() - started
        return answer, elapsed + sum(asked_before.get(name, 0.0) for name in self._touched)

    @property
    def model(self) -> Model:
        """The model that is asked; an error where there are only images to be read."""
        if self._model is None:
            raise InputError(
                "no model is asked here, only images are shown: a monitor names what it reads of one in its needs"
            )
        return self._model

    def without_model(self) -> Signals:
        """The same signals, what was computed so far among them, for a reader that may ask no model."""
        alone = copy(self)
        alone._model = None
        return alone

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def nbytes(self) -> int:
        """The memory that all signals asked so far take, the images too."""
        columns = () if self._answer is None else self._answer.columns.values()
        return int(sum(array.nbytes for array in (self.images, *self._known.values(), *columns)))

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A signal by its name, a row per image: one of `NAMES`, those of a layer as in `features:24/Relu`."""
        kind, _, layer = name.partition(":")
        if kind not in NAMES:
            raise UnknownName("signal", name, NAMES)
        if kind in LAYERED:
            return self.features(layer or None) if kind == "features" else self.activations(layer or None)
        if kind in OF_DATA:
            return self.images if kind == "images" else self.batch.labels
        return np.moveaxis(self._given(kind), 1, 0) if kind == "samples" else self._given(kind)

    @property
    def pieces(self) -> tuple[Signals, ...]:
        """The batch in pieces of exactly `size` images, the last one filled up; always the same objects."""
        if len(self) == self.size:
            return (self,)
        if self._cut is None:
            last = len(self) - 1
            rows = (np.minimum(np.arange(start, start + self.size), last) for start in range(0, len(self), self.size))
            parts = (self.batch.take(part.tolist()) for part in rows)
            self._cut = tuple(Signals(self._model, part, self.size, self._with_answer) for part in parts)
            for piece in self._cut:
                piece.asked_apart = self.asked_apart
        return self._cut

    @property
    def images(self) -> Images:
        """The pixels (N, H, W, C)."""
        return self.batch.images

    @property
    def prediction(self) -> Prediction:
        """The whole answer, checked."""
        self._touched.add("prediction")
        if self._failure is not None:
            raise self._failure
        if self._answer is None:
            started = time.perf_counter()
            try:
                self._answer = self._ask()
            except RoadworthyError as error:
                self._failure = error  # a model that failed is not asked again by the next that reads its answer
                raise
            self._cost["prediction"] = time.perf_counter() - started
        return self._answer

    def _ask(self) -> Prediction:
        if len(self) == self.size:
            with watching(self.model, self._watched) as seen:
                answer = self.model.answer(self.batch, self.size)
            self._seen = {
                layer: passes[-1] for layer, passes in seen.items() if passes and len(passes[-1]) == len(self)
            }
        else:
            parts = [piece.prediction for piece in self.pieces]
            answer = Prediction.concatenate(parts, self.model.num_classes).rows(len(self))
        for column in answer.columns.values():
            column.flags.writeable = False
        return answer

    @property
    def probabilities(self) -> NDArray[np.float32]:
        """The probabilities (N, K) of the classes."""
        return self._given("probabilities")

    @property
    def logits(self) -> NDArray[np.float32]:
        """The logits (N, K); a model that gives none is an `InputError`."""
        return self._given("logits")

    def features(self, layer: str | None = None) -> NDArray[np.float32]:
        """Features (N, D) of a layer, by default what goes into the last linear one; maps (N, C, H, W) are averaged."""
        layer = self._named(layer)
        self._pass_of(layer)
        return self._once(f"features:{layer}", lambda piece: _averaged(piece.activations(layer)))

    def activations(self, layer: str | None = None) -> NDArray[np.float32]:
        """What a layer gives as it is, (N, ...)."""
        layer = self._named(layer)
        self._pass_of(layer)
        return self._once(f"activations:{layer}", lambda piece: piece._asked(layer))

    def computed(self, name: str, make: Callable[[Images], NDArray[np.float32]]) -> NDArray[np.float32]:
        """What `make` gives for the images (N, H, W, C), a row each: made once for all readers that ask by this name.

        For what several monitors compute of the same batch with the same network of their own; the name says all that
        decides it.
        """
        return self._once(f"computed:{name}", lambda piece: make(piece.images))

    def _named(self, layer: str | None) -> str:
        return penultimate(self.model) if layer in (None, PENULTIMATE) else layer

    @property
    def _watched(self) -> tuple[str, ...]:
        """The layers that come with the answer."""
        return tuple(filter(None, dict.fromkeys([watched_layer(self.model), *self._with_answer])))

    def _pass_of(self, layer: str) -> None:
        """Ask for the answer where the layer comes with it: then whoever reads the layer has its time to pay for."""
        if layer in self._watched:
            _ = self.prediction

    def _given(self, column: str) -> NDArray[np.float32]:
        if column not in self.prediction.columns:
            better = SUPPLY.get(column, f"a model that answers {column}")
            raise InputError(f"model {self.model.name} gives no {column}: supply {better}")
        return self.prediction.columns[column]

    def _once(self, name: str, make: Callable[[Signals], NDArray[np.float32]]) -> NDArray[np.float32]:
        """What was made under this name before; else made now, piece by piece."""
        self._touched.add(name)
        if name not in self._known:
            started = time.perf_counter()
            if len(self) == self.size:
                values = make(self)
            elif self.pieces:
                values = np.concatenate([piece._once(name, make) for piece in self.pieces])[: len(self)]
            else:
                values = np.zeros((0, 1), np.float32)
            values.flags.writeable = False
            self._known[name], self._cost[name] = values, time.perf_counter() - started
        return self._known[name]

    def _asked(self, layer: str) -> NDArray[np.float32]:
        if layer in self._seen:
            return self._seen[layer]
        self.asked_apart.add(layer)
        with foreign_code(f"model {self.model.name}"):
            values = np.array(self.model.features(self.batch.copy(), layer))
        if not values.ndim or len(values) != len(self):
            raise ModelError(f"layer {layer!r} of model {self.model.name} gives {values.shape} for {len(self)} images")
        return values


class OnePass:
    """Signals of one image at a time for a reader whose layers come with the answer, from one pass of the network.

    Which layers it reads is seen on the first image, which is read twice; so is a later one on which it reads further
    ones. A network that cannot tell its layers (`head.can_watch`) has a pass for each, as in a run.

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> one_pass, batch = OnePass(ToyModel()), toy_data()[0].batch([0])
    >>> one_pass.read(batch, lambda signals: signals.features().shape)[1]
    (1, 24)
    """

    def __init__(self, model: Model) -> None:
        self.model, self._layers = model, tuple[str, ...]()

    def read(self, batch: Batch, reader: Callable[[Signals], Answer]) -> tuple[Signals, Answer]:
        """The signals of a batch of one image, and what the reader makes of them."""
        signals = Signals(self.model, batch, 1, self._layers)
        answer = reader(signals)
        further = signals.asked_apart.difference(self._layers)
        if not (further and can_watch(self.model)):
            return signals, answer
        self._layers = tuple(sorted({*self._layers, *further}))
        return self.read(batch, reader)


def _averaged(values: NDArray[np.float32]) -> NDArray[np.float32]:
    if values.ndim == 4:
        values = values.mean(axis=(2, 3))
    return values.reshape(len(values), -1)


def full_name(name: str) -> str:
    """The name of a signal with its layer, by which planners and stores know it.

    >>> full_name("features"), full_name("logits")
    ('features:penultimate', 'logits')
    """
    kind, _, layer = name.partition(":")
    if kind not in NAMES:
        raise UnknownName("signal", name, NAMES)
    return f"{kind}:{layer or PENULTIMATE}" if kind in LAYERED else kind


class Training(ABC):
    """What a fit reads of training data: what is known without asking the model at once, its signals part by part.

    Whether the signals are computed now or were stored before makes no difference to the fit: a subclass only says how
    some rows are read. `names` are the signals that were announced, with their layers; no others can be read, but
    labels. `outliers` is the same of validation outliers, for a monitor that learns from those too. `networks` are
    those that were trained for the fit before, by their role. `progress` is told of images that are read, and by a fit
    of those that it works on otherwise.
    """

    progress: Callable[[int], None] = staticmethod(lambda images: None)
    networks: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, model: Model, data: Dataset, names: Sequence[str], outliers: Training | None = None) -> None:
        self.model, self.data, self.names, self.outliers = model, data, (*names, "labels"), outliers
        self.name, self.class_names = data.name, data.class_names
        self.ids, self.groups, self.labels = data.ids, data.groups, data.labels

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def workshop(self) -> Path:
        """A folder for files of the fit's own, such as a checkpoint: a run gives one that survives a kill."""
        self._temporary = TemporaryDirectory(prefix="roadworthy-fit-")
        return Path(self._temporary.name)

    def fingerprints(self) -> tuple[str, ...]:
        """Those of the data, the outliers' last."""
        return (self.data.fingerprint(), *(self.outliers.fingerprints() if self.outliers is not None else ()))

    @abstractmethod
    def read(self, rows: slice, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
        """These signals, by their full names, of some rows: an array (n, ...) each."""

    def parts(self, *names: str) -> Iterator[tuple[NDArray[Any], ...]]:
        """These signals of all rows in order, `PART` rows at a time: an array (n, ...) each. `labels` is one too."""
        asked = [full_name(name) for name in names]
        for name in asked:
            if name not in self.names:
                raise InputError(f"the signal {name} was not announced: return it from the monitor's method signals")
        for start in range(0, len(self), PART):
            rows = slice(start, min(start + PART, len(self)))
            yield self.read(rows, asked)
            self.progress(rows.stop - start)

    def gather(self, name: str) -> NDArray[Any]:
        """A signal of all rows at once, (n, ...)."""
        rows = np.zeros(0)
        for number, (part,) in enumerate(self.parts(name)):
            if not number:
                rows = np.empty((len(self), *part.shape[1:]), part.dtype)
            rows[number * PART : number * PART + len(part)] = part
        return rows


class LearningData(dict[str, Dataset]):
    """The data that models of a study learn from, by role, and the study's seed.

    `plan(model, data, names)` plans what their fits read.
    """

    def __init__(self, data: Mapping[str, Dataset], plan: Callable[..., Any], seed: int) -> None:
        super().__init__(data)
        self.plan, self.seed = plan, seed


class LiveTraining(Training):
    """Training data whose signals are computed now, in batches of `size` images."""

    def __init__(
        self, model: Model, data: Dataset, names: Sequence[str], outliers: Training | None = None, size: int = BATCH
    ) -> None:
        super().__init__(model, data, names, outliers)
        self.size = size

    def read(self, rows: slice, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
        """The signals of these rows, each asked once."""
        signals = Signals(self.model, self.data.batch(rows), self.size)
        return tuple(signals[name] for name in names)
