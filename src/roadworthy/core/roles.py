"""The roles that plug into the flow: Dataset, Shift, Outliers, Model. Implement one of these to extend Roadworthy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import CodeIdentified, code_of
from roadworthy.core.errors import InputError, UnknownName, foreign_code
from roadworthy.core.random import Streams
from roadworthy.core.registry import Registry
from roadworthy.core.severity import level_rows, parameters_at, plain_severity
from roadworthy.core.types import STORED, Artifact, Batch, Prediction, Stimulus

BATCH = 64
"""Images that a model is asked about at once, wherever nothing else is planned: it fixes the bits of an answer."""


class Dataset(ABC):
    """Images that are read when asked for. `size` is (H, W) as delivered; `channels` is 1 or 3."""

    name: str
    class_names: tuple[str, ...]
    size: tuple[int, int]
    channels: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the content: ids, pixels as stored, labels and everything else a batch can hold; and the size."""

    @abstractmethod
    def batch(self, rows: slice | Sequence[int]) -> Batch:
        """Decode some images, in the order given."""

    @property
    @abstractmethod
    def ids(self) -> tuple[str, ...]:
        """Every image id, without decoding anything; unique."""

    @property
    @abstractmethod
    def labels(self) -> NDArray[np.int64]:
        """Every label, without decoding anything."""

    @property
    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """The physical object of every image, without decoding anything."""


@dataclass(frozen=True, kw_only=True)
class Shift(CodeIdentified, ABC):
    """A disturbance that keeps the label: a Batch to a Batch, boxes and masks moved with the image.

    A subclass is a frozen keyword-only dataclass whose fields are its parameters; `LEVELS` gives their values at levels
    1 to 5. Parameters in pixels are for 64x64 images and scale with the image. Between levels they follow the rules of
    `core.severity`: then `level` is not whole.
    """

    level: float = 0

    name: ClassVar[str]
    LEVELS: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    @property
    def keeps_label(self) -> bool:
        """Whether an image still shows what its label says; a sensor fault that leaves a black frame does not."""
        return True

    @property
    def keeps_places(self) -> bool:
        """Whether what an image shows stays where it is, so that boxes, masks and depth need not be moved."""
        return False

    @classmethod
    def at(cls, level: float, table: Mapping[int, Mapping[str, Any]] | None = None) -> Self:
        """The shift at a level of its own table, or of the one given (level -> parameters), or between two of them."""
        levels, level = level_rows(cls, table), plain_severity(level)
        if not levels or (isinstance(level, int) and not min(levels) <= level <= max(levels)):
            raise InputError(f"shift {cls.name} has levels {sorted(levels)}, not {level}")
        values = parameters_at(cls, level, levels)
        known = {f.name for f in fields(cls)} - {"level"}
        unknown = set(values) - known
        if unknown:
            raise InputError(f"shift {cls.name} has no parameter {sorted(unknown)}; it has {sorted(known)}")
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        missing = required - set(values)
        if missing:
            raise InputError(f"shift {cls.name} at level {level} lacks its parameter {sorted(missing)}")
        return cls(level=level, **values)

    def parameters(self) -> dict[str, Any]:
        """The parameters at this level: the shift's configuration."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "level"}

    def stimulus(self, data: str, *, seed: int, repeat: int = 0, name: str | None = None) -> Stimulus:
        """This shift of the data with that fingerprint, under its own name unless another is given."""
        return Stimulus(data, name or self.name, self.level, self.parameters(), repeat, seed, code_of(type(self)))

    def bound(self, model: Model) -> Self:
        """The shift as this model meets it: the same for all, unless it is made against a model."""
        return self

    def over(self, data: Dataset) -> Self:
        """The shift of this data: the same for all, unless it shows other images of the data (a frozen frame).

        Its parameters stay the same: a stimulus names the data already.
        """
        return self

    @abstractmethod
    def __call__(self, batch: Batch, streams: Streams) -> Batch:
        """The disturbed batch. All randomness comes from `streams.each(batch.ids)`; the input is left as it is."""


@dataclass(frozen=True, kw_only=True)
class Outliers(CodeIdentified, ABC):
    """A maker of images outside the domain of a data set, which a model should not be sure of: a Dataset to a Dataset.

    A subclass is a frozen keyword-only dataclass whose fields are its parameters.
    """

    name: ClassVar[str]

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """The maker with these parameters, the others at their default; an unknown one is an error."""
        known = {f.name for f in fields(cls)}
        for parameter in parameters:
            if parameter not in known:
                raise UnknownName(f"parameter of {cls.name} outliers", str(parameter), known)
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        if required - set(parameters):
            raise InputError(f"{cls.name} outliers lack their parameter {sorted(required - set(parameters))}")
        return cls(**parameters)

    def parameters(self) -> dict[str, Any]:
        """The maker's configuration."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @abstractmethod
    def make(self, data: Dataset, *, seed: int, foreign: Dataset | None = None) -> Dataset:
        """Outliers of the size and channels of `data`, at most as many, all labelled 0, the one class `outlier`.

        Pixels are computed when a batch is asked for, and an image's never depend on the batch or the order. Makers
        that use images from elsewhere take them from `foreign`.
        """


class System(ABC):
    """What is asked about a batch and answers in columns: a model, or something that reads what a model says.

    Its columns follow from the system alone, never from who asks.
    """

    name: str
    kind: ClassVar[str] = "system"
    """What it is, in one word, for people: model, monitor, layer."""
    num_classes: int = 0
    part_images: int | None = None
    """Images whose answers are stored together, where a system takes long for each; None: as many as the plan says."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of all that decides an answer."""

    @property
    def underlying(self) -> Model | None:
        """The model whose signals it reads; None where it reads the data alone."""
        return None

    @abstractmethod
    def read(self, signals: Any) -> Mapping[str, NDArray[Any]]:
        """Its columns, a row per image, from the `Signals` of one batch."""

    def requires(self) -> tuple[Buildable, ...]:
        """The artifacts that it is made of."""
        return () if self.underlying is None else self.underlying.requires()


@dataclass(frozen=True)
class Origin:
    """Where a model comes from: its kind, as a study names it, and the SHA-256 of every file that its entry names."""

    kind: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


class Model(System):
    """A system under test. Images in, class probabilities out is enough; more is declared in `capabilities`.

    A model that only says where the object is declares `boxes` instead of `probabilities`, and has no classes.
    """

    kind: ClassVar[str] = "model"
    class_names: tuple[str, ...] | None = None
    own_labels: tuple[int | str, ...] | None = None
    """What its columns stand for, where `for_classes` has yet to put them in the order of the data; else None."""
    input_size: tuple[int, int] | None = None
    """(H, W) that the model needs; None where it takes any size."""
    fixed_batch: int | None = None
    """The batch size the model insists on; None where it takes any."""
    concurrent: bool = False
    """True where `predict` may be called from several threads at once."""
    only_reads: bool = False
    """True where `predict` never writes into its batch, so that it needs no copy of the images."""
    isolated: bool = False
    """True where it runs in a process of its own."""
    varies: bool = False
    """True where its user knows that it answers the same images differently when asked again, and wants that."""
    capabilities: frozenset[str] = frozenset({"probabilities"})
    learns_from: frozenset[str] = frozenset()
    """The data that a study must give it before it is complete: `train`, `validation`."""
    chooses_on_validation: bool = False
    """True where it chooses something by validation data, such as its epoch, if a study has some."""
    origin: Origin = Origin()
    """Where it comes from, as far as that is known when it is loaded; no hash depends on it."""
    family: str = ""
    """The network that it is a variant of, so that variants are shown side by side; empty: its own name."""
    uncertainty: str = "none"
    """How it says how sure it is: `none`, `ensemble`, `mc_dropout`, or the part of a network that drops units."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its answers that are stored: they follow from its capabilities alone, never from who asks.

        One that answers logits has `log_odds`, too.
        """
        known = self.capabilities | ({"log_odds"} if {"probabilities", "logits"} <= self.capabilities else frozenset())
        return tuple(name for name in STORED if name in known)

    @property
    def underlying(self) -> Model:
        """Itself."""
        return self

    def read(self, signals: Any) -> Mapping[str, NDArray[Any]]:
        """The columns of its answer that are stored."""
        return {name: signals.prediction.columns[name] for name in self.columns}

    @abstractmethod
    def predict(self, batch: Batch) -> Prediction:
        """Answer to a batch of uint8 RGB images. Resizing, layout, range and normalisation are the model's own."""

    def answer(self, batch: Batch, size: int) -> Prediction:
        """Predict in batches of exactly `size` images (the last one padded) and check every answer.

        A result can change in its last bits with the batch size; with a fixed size it never depends on how many images
        there are. What the model raises becomes a `ModelError` with its first line. The model gets arrays of its own,
        and its answer is copied: it may write into the one and use the memory of the other again.
        """
        size = self.fixed_batch or size
        parts = []
        for start in range(0, len(batch), size):
            rows = range(start, min(start + size, len(batch)))
            is_view = self.only_reads and len(rows) == size
            with foreign_code(f"model {self.name}"):
                prediction = self.predict(batch.take(slice(start, start + size) if is_view else padded(rows, size)))
                ids = batch.ids[rows.start : rows.stop]
                parts.append(prediction.check(size, self.num_classes, self.name, self.columns, ids).rows(len(rows)))
        return Prediction.concatenate(parts, self.num_classes)

    def turn_key(self) -> Hashable:
        """What only one thread may enter at a time where the model is not `concurrent`; models that share it are equal.

        The model itself, unless it is an adapter of something that others can adapt as well.
        """
        return id(self)

    def for_repeat(self, repeat: int) -> Model:
        """What answers in this repeat of a study: the model itself, unless it is trained anew for each."""
        return self

    def with_data(self, data: Mapping[str, Dataset]) -> Model:
        """The model with the data it `learns_from`, by role; then its classes, input size and fingerprint are known."""
        return self

    def for_classes(self, class_names: Sequence[str]) -> Model:
        """The model as it answers about these classes: itself, unless it knows fewer and can say so.

        A model that is made of others asks each of them.
        """
        return self

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What a report says of it, by task (`classes`, `boxes`): passes, members, weights, loss, learning rate, ..."""
        return {}

    def requires(self) -> tuple[Buildable, ...]:
        """The artifacts that must be built before it can answer."""
        return (self,) if isinstance(self, Buildable) else ()

    def wrapped(self) -> tuple[Model, ...]:
        """The models whose answers this one passes on; none where it answers by itself."""
        return ()

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """Activations (N, ...) of a named layer; only where `features` is among the capabilities."""
        raise InputError(f"model {self.name} gives no features: use an ONNX or torch model")

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """Gradient (N, H, W, C) of the loss of the true label by the image; only with that capability."""
        raise InputError(f"model {self.name} gives no gradients: use a torch model")


@dataclass(frozen=True)
class Trial:
    """What a little of the work of a `Buildable` says of all of it, in seconds.

    per_work   of each unit of its `work`, on the threads that it uses
    per_image  of each image that it is used for: asked about, or drawn
    """

    per_work: float
    per_image: float


class Buildable(ABC):
    """Something built as an artifact of the run before cases are shown: a network to train, a monitor to fit."""

    activity = "building"
    """What `build` does, in one word, for a progress bar."""
    threads: int | None = None
    """How many threads `build` uses, where that is known: those that use one are built several at a time."""

    @property
    @abstractmethod
    def recipe(self) -> Artifact:
        """What it is made from; its hash is known before it is built."""

    @abstractmethod
    def build(self, workshop: Path, progress: Callable[[int], None], store: Any = None) -> dict[str, Any]:
        """Write it into a folder, continuing from a checkpoint found there; returns its competence.

        `progress` is called for each of the `work` units that are done; `store` finds the readouts of cases that the
        recipe requires.
        """

    @property
    @abstractmethod
    def work(self) -> int:
        """How many units `build` counts, for a progress bar."""

    def trial(self) -> Trial | None:
        """Build a little of it elsewhere and use that, to tell how long all of it takes; None where it cannot be tried.

        Nothing of that is kept: it is no more built or loaded than before.
        """
        return None

    @property
    def trial_key(self) -> Hashable:
        """Equal for those of which a unit of work takes as long, so that one trial speaks for all of them."""
        return self.recipe.hash

    @abstractmethod
    def load(self, home: Path) -> None:
        """Make it ready for use from the folder it was built in."""

    @property
    @abstractmethod
    def loaded(self) -> bool:
        """True once it is ready for use."""


def leaves(model: Model) -> list[Model]:
    """The models that answer by themselves, whatever they are wrapped in."""
    return [leaf for inner in model.wrapped() for leaf in leaves(inner)] or [model]


def fits_validation(model: Model) -> bool:
    """Whether a model, or one whose answers it passes on, is fitted on the validation data of a study, or chosen by it.

    >>> from roadworthy.models import CallableModel
    >>> fits_validation(CallableModel(lambda images: images, num_classes=2, version="1"))
    False
    """
    if "validation" in model.learns_from or (model.chooses_on_validation and model.learns_from):
        return True
    return any(fits_validation(inner) for inner in model.wrapped())


def entered_by(model: Model) -> dict[Hashable, bool]:
    """All that is entered when a model answers, the models it passes on included; True where one thread at a time may.

    >>> from roadworthy.models import CallableModel
    >>> model = CallableModel(lambda images: images, num_classes=2, version="1", concurrent=True)
    >>> [*entered_by(model).values()]
    [False]
    """
    exclusive = {model.turn_key(): not model.concurrent}
    for inner in model.wrapped():
        for key, alone in entered_by(inner).items():
            exclusive[key] = alone or exclusive.get(key, False)
    return exclusive


def padded(rows: range, size: int) -> list[int]:
    """These rows and the last one again, until there are `size`."""
    return [*rows] + [rows[-1]] * (size - len(rows))


SHIFTS: Registry[type[Shift]] = Registry("shift")
OUTLIERS: Registry[type[Outliers]] = Registry("outlier")
