"""The few values everything is made of: Batch, Prediction, Stimulus, Case, Artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core import showing
from roadworthy.core.errors import ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.random import derive

Images = NDArray[np.uint8]
Floats = NDArray[np.floating[Any]]

NO_CONDITIONS: Mapping[str, NDArray[Any]] = MappingProxyType({})
UNDISTURBED = "none"


@dataclass(frozen=True)
class Batch:
    """Some images with all that is known of them. Rows correspond across all fields.

    images      (N, H, W, C) uint8, C = 1 or 3 (RGB), at the study's size
    labels      (N,) int64, index into the data set's class names
    boxes       (N, 4) float32 x0, y0, x1, y1 in pixels, right and bottom edge exclusive; NaN where an image has none
    masks       (N, H, W) bool
    conditions  operating conditions by name, (N,) each
    group       the physical object each image shows; frames of one sign share it. Default: the image id
    stimulus    key of the stimulus these pixels belong to; stored predictions are looked up by it
    depth       (N, H, W) float32, metres to what each pixel shows, infinite for the sky
    box_inflation  (N,) float32, where a shift moved boxes without masks: the area of the moved box over that of the
                moved rectangle it surrounds, at least 1
    """

    ids: tuple[str, ...]
    images: Images
    labels: NDArray[np.int64]
    boxes: NDArray[np.float32] | None = None
    masks: NDArray[np.bool_] | None = None
    conditions: Mapping[str, NDArray[Any]] = field(default_factory=lambda: NO_CONDITIONS)
    group: tuple[str, ...] = ()
    stimulus: str = ""
    depth: NDArray[np.float32] | None = None
    box_inflation: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[-1] not in (1, 3):
            raise ValueError(f"images must be uint8 (N, H, W, 1 or 3), not {self.images.dtype} {self.images.shape}")
        if not self.group:
            object.__setattr__(self, "group", self.ids)
        n = len(self.ids)
        columns: list[Sized] = [self.images, self.labels, self.group, *self.conditions.values()]
        optional = (self.boxes, self.masks, self.depth, self.box_inflation)
        columns += [column for column in optional if column is not None]
        if any(len(column) != n for column in columns):
            raise ValueError(f"a batch of {n} ids has columns of lengths {[len(column) for column in columns]}")

    def __len__(self) -> int:
        return len(self.ids)

    def _repr_html_(self) -> str:
        """For a notebook: the first images with their ids and labels, and what else the batch holds."""
        rows = zip(self.images, self.ids, self.labels.tolist(), strict=True)
        shown = [(image, f"{name}: {label}") for image, name, label in rows]
        extras = [name for name in ("boxes", "masks", "depth") if getattr(self, name) is not None]
        size = "x".join(map(str, self.images.shape[1:]))
        facts = f"{size}; {', '.join([*extras, *self.conditions]) or 'no boxes, masks or conditions'}"
        return showing.card(f"Batch of {len(self):,} images", facts, showing.pictures(shown))

    def with_images(self, images: Images, **changes: Any) -> Batch:
        """The same rows with other pixels (and, where given, other boxes, masks or stimulus)."""
        return replace(self, images=images, **changes)

    def read_only(self) -> Batch:
        """The same rows as views that cannot be written to: what several readers share stays as it is."""
        return replace(self, **self._arrays(_read_only))

    def copy(self) -> Batch:
        """The same rows in arrays of their own, for a reader that may write into them."""
        return self.take(range(len(self)))

    def take(self, rows: slice | Sequence[int]) -> Batch:
        """Some of the rows, in the order given: a slice as views, single rows in arrays of their own."""
        index = range(len(self))[rows] if isinstance(rows, slice) else list(rows)
        pick: Any = rows if isinstance(rows, slice) else np.asarray(index, dtype=np.int64)
        ids, group = (tuple(names[i] for i in index) for names in (self.ids, self.group))
        return replace(self, ids=ids, group=group, **self._arrays(lambda array: array[pick]))

    def _arrays(self, change: Callable[[Any], Any]) -> dict[str, Any]:
        """Its arrays by their field, each changed in the same way."""
        names = ("images", "labels", "boxes", "masks", "depth", "box_inflation")
        arrays = {name: getattr(self, name) for name in names}
        changed = {name: None if array is None else change(array) for name, array in arrays.items()}
        return changed | {"conditions": {name: change(column) for name, column in self.conditions.items()}}


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


STORED = ("probabilities", "log_odds", "certainty", "samples", "boxes", "box_variance")
"""The columns of an answer that are stored, where a system declares them; logits are a signal and are not."""
LOG_ODDS = "log_odds"
"""The column that puts answers in order where a model knows logits, and the name of that score in tables."""
MOST_NAMED = 3
"""Images that a message names at most."""
MOST_LOG_ODDS = 1e300
"""Log-odds where every other class is ruled out: finite, and above all that logits in single precision can give."""
Column = NDArray[np.float32]


class Prediction:
    """What a model answers to a batch of N images, column by column: those that it declares, and logits where it can.

    probabilities  (N, K) float32, rows sum to 1; an error where a model has no classes
    logits         (N, K) float32
    log_odds       (N,) float64, log p - log(1 - p) of the predicted class, from logits: see `log_odds`
    certainty      (N,) float32, higher = more certain, where the model has a measure of its own
    samples        (S, N, K) float32, one set of probabilities per stochastic pass or ensemble member
    boxes          (N, 4) float32 x0, y0, x1, y1 in pixels of the batch;  box_variance (N, 4)

    >>> answer = Prediction(np.float32([[0.9, 0.1]]), certainty=np.float32([0.5]))
    >>> len(answer), sorted(answer.columns), answer.boxes is None
    (1, ['certainty', 'probabilities'], True)
    """

    def __init__(
        self,
        probabilities: Column | None = None,
        *,
        logits: Column | None = None,
        log_odds: NDArray[np.float64] | None = None,
        certainty: Column | None = None,
        samples: Column | None = None,
        boxes: Column | None = None,
        box_variance: Column | None = None,
    ) -> None:
        self._probabilities = probabilities
        self.logits = logits
        self.log_odds = log_odds
        self.certainty = certainty
        self.samples = samples
        self.boxes = boxes
        self.box_variance = box_variance

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """The columns that there are, by their name."""
        known: dict[str, NDArray[Any] | None] = {"probabilities": self._probabilities, "logits": self.logits}
        known |= {"log_odds": self.log_odds, "certainty": self.certainty}
        known |= {"samples": self.samples, "boxes": self.boxes, "box_variance": self.box_variance}
        return {name: column for name, column in known.items() if column is not None}

    @property
    def probabilities(self) -> Column:
        """(N, K); an error where there are none."""
        if self._probabilities is None:
            raise ModelError("this model answers no class probabilities")
        return self._probabilities

    def __len__(self) -> int:
        name, column = next(iter(self.columns.items()))
        return int(column.shape[_axis(name)])

    def changed(self, **columns: NDArray[Any] | None) -> Prediction:
        """The same answer with other columns; None takes one away."""
        return Prediction(**{**self.columns, **columns})

    def rows(self, stop: int) -> Prediction:
        """The first `stop` rows, without what padded a batch, in arrays of their own."""
        return Prediction(**{name: first_rows(name, column, stop).copy() for name, column in self.columns.items()})

    @staticmethod
    def concatenate(parts: Sequence[Prediction], classes: int) -> Prediction:
        """The answers to several batches as one."""
        if not parts:
            return Prediction(np.zeros((0, classes), np.float32))
        return Prediction(**join_columns([part.columns for part in parts]))

    def check(
        self,
        n: int,
        classes: int,
        model: str,
        declared: Sequence[str] = ("probabilities",),
        ids: Sequence[str] = (),
    ) -> Prediction:
        """The answer, with `log_odds` where these are declared and follow from its logits.

        A `ModelError` says what is wrong with it. `ids` are those of the images, without what pads them to `n`.
        """
        if "log_odds" in declared and self.log_odds is None and self.logits is not None:
            return self._with_log_odds(n, classes, model).check(n, classes, model, declared, ids)
        lacking = [name for name in declared if name not in self.columns]
        if lacking:
            raise ModelError(f"model {model} declares {lacking[0]} and does not answer them")
        extra = [name for name in STORED if name in self.columns and name not in declared]
        if extra:
            raise ModelError(f"model {model} answers {extra[0]} without declaring them: add it to its capabilities")
        shapes = {
            "probabilities": (n, classes),
            "log_odds": (n,),
            "certainty": (n,),
            "boxes": (n, 4),
            "box_variance": (n, 4),
        }
        for name, shape in shapes.items():
            column = self.columns.get(name)
            if column is None:
                continue
            if column.shape != shape:
                of = f" of {classes} classes" if name == "probabilities" else f", as {name}"
                raise ModelError(f"model {model} answered {column.shape} to {n} images{of}, not {shape}")
            if not np.isfinite(column).all():
                bad = np.flatnonzero(~np.isfinite(column.reshape(n, -1)).all(axis=1)[: len(ids) or n])
                named = ", ".join(repr(ids[row]) for row in bad[:MOST_NAMED] if ids)
                more = ", ..." if named and len(bad) > MOST_NAMED else ""
                raise ModelError(
                    f"model {model} answered NaN or infinity for {len(bad)} of {len(ids) or n} images"
                    f"{f': {named}{more}' if named else ''}"
                )
        if "probabilities" in self.columns:
            self._check_probabilities(model)
        return self

    def _with_log_odds(self, n: int, classes: int, model: str) -> Prediction:
        for name in ("probabilities", "logits"):
            shape = getattr(self.columns.get(name), "shape", None)
            if shape != (n, classes):
                raise ModelError(f"model {model} answered {name} {shape} to {n} images of {classes} classes")
        assert self.logits is not None
        return self.changed(log_odds=log_odds(self.logits, self.probabilities.argmax(axis=1)))

    def _check_probabilities(self, model: str) -> None:
        total = self.probabilities.sum(axis=1, dtype=np.float64)
        if self.probabilities.min(initial=0.0) < -1e-6 or np.abs(total - 1.0).max(initial=0.0) > 1e-3:
            raise ModelError(
                f"model {model}: rows are not probabilities (smallest {self.probabilities.min():.4g}, "
                f"sums {total.min():.4g} to {total.max():.4g}); if it answers logits, declare `outputs='logits'`"
            )


def log_odds(logits: Floats, classes: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """log p - log(1 - p) (N,) of the probability p of one class of each row, from logits (N, K) or log probabilities.

        z_k - log sum_{j != k} exp z_j,  in float64, row by row

    It grows with p and goes on growing where p has become 1 by rounding. Where all other logits are minus infinity it
    is `MOST_LOG_ODDS`, and NaN where a logit is NaN or infinite.

    >>> log_odds(np.array([[0.0, np.log(3.0)], [200.0, 0.0], [0.0, 40.0]]), np.array([1, 0, 1])).round(4).tolist()
    [1.0986, 200.0, 40.0]
    """
    values = np.array(logits, np.float64, order="C")
    rows = np.arange(len(values))
    own = values[rows, classes]
    values[rows, classes] = -np.inf
    top = values.max(axis=1, initial=-np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        exponents = np.exp(values - np.where(np.isneginf(top), 0.0, top)[:, None])
        odds = own - (top + np.log(exponents.sum(axis=1)))
        return np.asarray(np.clip(odds, -MOST_LOG_ODDS, MOST_LOG_ODDS), np.float64)


def _axis(column: str) -> int:
    """The axis of a column along which the images lie."""
    return 1 if column == "samples" else 0


def first_rows(name: str, values: NDArray[Any], count: int) -> NDArray[Any]:
    """A column's values for the first `count` images."""
    return values[:, :count] if _axis(name) else values[:count]


def join_columns(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The columns of several batches as one; a `ModelError` where a column is in some batches only."""
    names = list(parts[0]) if parts else []
    for column in {name for part in parts for name in set(part) ^ set(names)}:
        raise ModelError(f"the column {column} is answered for some batches and not for others")
    return {name: np.concatenate([part[name] for part in parts], axis=_axis(name)) for name in names}


@dataclass(frozen=True)
class Stimulus:
    """What is shown: data, disturbed in one way, once. Its hash keys the random streams, exports and stored answers.

    `level` 0 and name `none` is undisturbed data. `parameters` are those of the shift or outliers at that level, `code`
    stands for the code that makes it where that is not Roadworthy's first.

    >>> a = Stimulus(data="f00", name="fog", level=2, parameters={"strength": 0.4}, seed=0)
    >>> b = Stimulus(data="f00", name="fog", level=2, parameters={"strength": 0.5}, seed=0)
    >>> a.key[:9], a.hash == b.hash
    ('fog-2-r0-', False)
    """

    data: str
    name: str = UNDISTURBED
    level: float = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 0
    seed: int = 0
    code: str = ""

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that determines the pixels."""
        return digest(self.config())

    def config(self) -> dict[str, Any]:
        """The fields as a plain dictionary: `Stimulus(**config)` is the same stimulus. An empty `code` is left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {"parameters": dict(self.parameters)}
        return values if self.code else {key: value for key, value in values.items() if key != "code"}

    @property
    def key(self) -> str:
        """A short unique name that a person can read, safe as a folder name."""
        return f"{self.name}-{self.level}-r{self.repeat}-{self.hash[:8]}"


@dataclass(frozen=True)
class Case:
    """One stimulus shown to one system: the unit that is run, stored and resumed. Who asked for it does not count.

    `system` is the model's name in the study; `recipe` holds the hashes of all that decides the answer (the model's
    fingerprint, its settings, the batch size and threads of the plan).
    """

    stimulus: Stimulus
    system: str
    recipe: Mapping[str, Any]

    @cached_property
    def hash(self) -> str:
        """SHA-256 of stimulus and recipe; the name of the system does not count."""
        return digest({"stimulus": self.stimulus.hash, "recipe": dict(self.recipe)})

    @property
    def key(self) -> str:
        """The folder of the case under `readouts/`."""
        return f"{self.stimulus.name}-{self.stimulus.level}-r{self.stimulus.repeat}-{self.hash[:16]}"


@dataclass(frozen=True)
class Artifact:
    """Something built before cases run (a trained network, a fitted monitor): the recipe, not the result.

    `inputs` are the hashes of the data sets, models and artifacts it is made from; `requires` are the artifacts and
    cases that must be there before it is built, which these hashes stand for.
    """

    builder: str
    parameters: Mapping[str, Any]
    inputs: tuple[str, ...] = ()
    seed: int = 0
    requires: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the recipe: the folder under `artifacts/`."""
        return digest(self.config())

    def config(self) -> dict[str, Any]:
        """The recipe as a plain dictionary."""
        return {**self._made_from(), "seed": self.seed}

    def _made_from(self) -> dict[str, Any]:
        return {"builder": self.builder, "parameters": dict(self.parameters), "inputs": list(self.inputs)}

    def seeded(self, seed: int, *index: int) -> Artifact:
        """The same recipe with a seed that follows from a study's, from all else in the recipe, and from an index.

        So equal recipes of a study are one artifact, whatever they are called there, and unlike ones share no stream.

        >>> recipe = Artifact("gan", {"width": 64})
        >>> recipe.seeded(0, 1) == recipe.seeded(0, 1), recipe.seeded(0, 1).seed == recipe.seeded(1, 0).seed
        (True, False)
        """
        return replace(self, seed=derive(seed, self.builder, digest(self._made_from()), *index))
