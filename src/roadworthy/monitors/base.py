"""The role Monitor: says of an image whether it is like those the model was trained on.

It is three values, never changed: `Monitor` holds the settings, and its `build` learns from training data, once per
model and training set; `FittedMonitor` and `CalibratedMonitor` (`fitted.py`). In-distribution is the positive class.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import CodeIdentified, code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.threads import one_thread
from roadworthy.core.types import Artifact
from roadworthy.core.validation import check_settings
from roadworthy.models.signals import OF_DATA, SUPPLY, LiveTraining, Signals, Training, full_name
from roadworthy.monitors.checks import checked_arrays
from roadworthy.monitors.fitted import FittedMonitor
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.networks.base import OwnNetwork
from roadworthy.monitors.threshold import Aim

CAPABILITY = {"gradients": "input_gradient"}
"""The capability of a model behind a need, where it has another name."""
SIGNAL = {"input": "images", "gradients": "images"}
"""The signal of training data behind a need, where it has another name."""
NEEDS = frozenset({"probabilities", "input", *SUPPLY})
TRAIN, VALID_OUTLIERS = "train", "valid_outliers"
ROLES = {TRAIN: "training images", VALID_OUTLIERS: "validation outliers (outliers=)"}
"""The data that a monitor can learn from, by role."""


@dataclass(frozen=True, kw_only=True)
class Monitor(CodeIdentified, ABC):
    """A detector of images outside the distribution: a frozen keyword-only dataclass whose fields are its settings.

    All it must say is `read`, what it keeps of each image. `fit` adds what it learns from training data, `rate` how a
    row becomes a score (default: the first column), `tune` what it learns from validation data beyond the threshold.

    needs        some of probabilities, logits, features, gradients, samples, input
    classes      how many classes the training data must hold at least
    learns_from  the data that `fit` reads, by role: `train`, and `valid_outliers` where it learns from those too
    differs_from_paper   what is other than in the method's paper, empty where nothing is known to be: shown by
                 `roadworthy list monitors`, the help of the class and the report of an OD-test
    draws        whether its `pictures` are drawn from what it has learned alone, whatever images it is given
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})
    classes: ClassVar[int] = 1
    learns_from: ClassVar[tuple[str, ...]] = (TRAIN,)
    differs_from_paper: ClassVar[str] = ""
    draws: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.differs_from_paper and vars(cls).get("__doc__"):
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nDiffers from the paper: {cls.differs_from_paper}."

    @abstractmethod
    def read(self, signals: Signals, state: Learned) -> NDArray[Any]:
        """What to keep of each image: (N,) or (N, D), finite."""

    def fit(self, training: Training) -> Arrays:
        """What to learn from in-distribution training data, as arrays by name: the `state` of the other methods."""
        return {}

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim, state: Learned) -> Arrays:
        """What to learn from validation data beyond a threshold, as arrays by name: the `rule` of `rate`."""
        return {}

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> NDArray[Any]:
        """Scores (N,) of rows (N, D), higher = more in-distribution."""
        return rows[:, 0]

    def cut(self, inside: Floats, outside: Floats | None, aim: Aim) -> float:
        """The threshold on scores (n,) and, where outliers are given, (m,); its own where it decides itself."""
        own = self.own_threshold if self.decides_itself else None
        return aim.cut(inside, outside) if own is None else own

    @property
    def own_threshold(self) -> float | None:
        """The score below which the method itself rejects, where its settings say so; None where it leaves that open.

        A threshold from in-distribution scores is found for every monitor, for one with a threshold of its own too.
        """
        return None

    @property
    def decides_itself(self) -> bool:
        """Whether it gives bare decisions, so that `own_threshold` is the only threshold that makes sense.

        A share of images to reject, or a promise on that share, cannot be reached by a threshold on decisions.
        """
        return False

    @property
    def is_sequential(self) -> bool:
        """Whether a decision also depends on the images before: then `in_order` says how."""
        return False

    @property
    def looks_back(self) -> int | None:
        """How many images a decision depends on, the newest included; None: on all since the start of the object."""
        return None if self.is_sequential else 1

    @property
    def is_per_object(self) -> bool:
        """Whether a decision depends on earlier images of the same object alone: `in_order` then reads `starts`."""
        return self.is_sequential

    @property
    def tunes_to_share(self) -> bool:
        """Whether `tune` reads the share of in-distribution images to reject, so that it counts for rule own too."""
        return False

    def in_order(
        self, rows: Rep, rejected: NDArray[np.bool_], starts: NDArray[np.bool_], rule: Learned, state: Learned
    ) -> NDArray[np.bool_]:
        """Decisions (N,), True = reject, of images that follow each other in a stream.

        rows      what `read` kept of each image, (N, D), in the order of the stream;  rejected: decisions (N,) of each
                  image by itself
        starts    (N,), True for the first image of an object: what was before it belongs to another
        """
        return rejected

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """What a reader should know of what was learned; `rule` is empty before a calibration."""
        return ()

    def networks(self, model: Model, train: Dataset, outliers: Dataset | None = None) -> Mapping[str, OwnNetwork]:
        """The networks of its own that `fit` reads as `training.networks`, by role; none unless a monitor says so.

        Each is trained before the fit, as an artifact: monitors that need the same one share it. `outliers` are those
        of validation, for a monitor that learns from them too.
        """
        return {}

    def pictures(self, images: NDArray[np.uint8], state: Learned) -> Mapping[str, NDArray[np.uint8]]:
        """Pictures (n, H, W, C) by their title that show a reader what was learned.

        They are as many as the images (n, H, W, C), one of each, unless the monitor `draws` them from nothing.
        """
        return {}

    @property
    def asks_model(self) -> bool:
        """Whether it reads anything of the model; one that does not is the same on every model."""
        return self.needs != frozenset({"input"})

    def work(self, images: int) -> int:
        """How many images `fit` counts, of so many to learn from: each once, unless it also reports progress itself."""
        return images

    def signals(self, model: Model) -> tuple[str, ...]:
        """The signals of training data that `fit` reads, with their layers; none where there is nothing to learn.

        They follow from `needs` and a setting `layer`, unless a monitor says otherwise.
        """
        if not self.learns:
            return ()
        known = {**SIGNAL, "features": f"features:{getattr(self, 'layer', None) or ''}"}
        return tuple(sorted({full_name(known.get(need, need)) for need in self.needs}))

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn from training data."""
        return type(self).fit is not Monitor.fit

    @property
    def tunes(self) -> bool:
        """Whether it learns anything from validation data beyond the threshold."""
        return type(self).tune is not Monitor.tune

    @property
    def learns_from_outliers(self) -> bool:
        """Whether it is fitted anew for each set of validation outliers."""
        return VALID_OUTLIERS in self.learns_from

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """The monitor with these settings, the others at their default; an unknown one is an error."""
        known = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(cls)}
        for parameter in parameters:
            if parameter not in known:
                raise UnknownName(f"parameter of monitor {cls.name}", str(parameter), known)
        for parameter in sorted(name for name, is_required in known.items() if is_required and name not in parameters):
            raise InputError(f"monitor {cls.name} lacks its parameter {parameter}")
        check_settings(cls, parameters, f"{cls.name} monitor setting")
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()})

    def parameters(self) -> dict[str, Any]:
        """The monitor's settings."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def recipe(
        self, model: Model, train: Dataset | None, *, outliers: Dataset | None = None, size: int = BATCH
    ) -> Artifact:
        """The fitted monitor as an artifact, known before it is built."""
        learned = [data.fingerprint() for data in (train, outliers) if data is not None and self.learns]
        inputs = (self.model_hash(model), *learned, code_of(type(self)), f"batches of {size}" if learned else "")
        return Artifact(f"monitor:{self.name}", self.parameters(), tuple(filter(None, inputs)))

    def model_hash(self, model: Model) -> str:
        """The fingerprint of the model it watches; empty where it asks none: then it learns from images alone."""
        if self.asks_model:
            return model.fingerprint()
        for signal in self.signals(model):
            if signal not in OF_DATA:
                raise InputError(f"monitor {self.name} learns from {signal} of the model: name that in its needs")
        return ""

    def check(self, model: Model) -> None:
        """Refuse a model that cannot give what the monitor needs."""
        for need in sorted(set(self.needs) - NEEDS):
            raise UnknownName(f"need of monitor {self.name}", need, NEEDS)
        for role in sorted(set(self.learns_from) - set(ROLES)):
            raise UnknownName(f"data that monitor {self.name} learns from", role, ROLES)
        for need in sorted(set(self.needs) - {"input", "probabilities"}):
            if CAPABILITY.get(need, need) not in model.capabilities:
                raise InputError(
                    f"monitor {self.name} needs {need}, which model {model.name} does not give: supply {SUPPLY[need]}"
                )

    def check_savable(self, state: Learned) -> None:
        """Refuse settings that JSON cannot hold."""
        for key, value in self.parameters().items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise InputError(
                    f"monitor {self.name}: its setting {key} must be a plain value to be saved (number, text, list or "
                    f"None), not {value!r}"
                ) from None

    def build(
        self,
        model: Model,
        train: Dataset | Training | None = None,
        *,
        outliers: Dataset | None = None,
        size: int = BATCH,
    ) -> FittedMonitor:
        """Learn from in-distribution training data; a monitor with nothing to learn does not look at any.

        train     a data set, whose signals are then computed in batches of `size`, or `Training` that has them stored
        outliers  validation outliers, for a monitor that learns from those too
        """
        self.check(model)
        others = train.outliers if isinstance(train, Training) else outliers
        if others is not None and not self.learns_from_outliers:
            raise InputError(f"monitor {self.name} does not learn from outliers: leave them out")
        if not self.learns:
            return FittedMonitor(self, Learned(), (self.model_hash(model),))
        training = self._checked_training(model, train, outliers, size)
        if not isinstance(train, Training):
            self._train_networks(model, training)
        with one_thread():
            state = checked_arrays(self, self.fit(training), "fit")
        for name, array in state.items():
            if not np.isfinite(array).all():
                raise InputError(f"monitor {self.name} cannot be built on {training.name}: {name} is NaN or infinite")
        return FittedMonitor(self, state, (self.model_hash(model), *training.fingerprints()))

    def _train_networks(self, model: Model, training: Training) -> None:
        """Train the networks of its own in the workshop of a fit that nobody prepared."""
        outliers = None if training.outliers is None else training.outliers.data
        training.networks = self.networks(model, training.data, outliers)
        for network in training.networks.values():
            home = training.workshop / network.recipe.hash
            network.competence = network.build(home, training.progress)
            network.load(home)

    def _checked_training(
        self, model: Model, train: Dataset | Training | None, outliers: Dataset | None, size: int
    ) -> Training:
        """What `fit` reads; an `InputError` where some of it is missing."""

        def live(data: Dataset | None, others: Training | None) -> Training | None:
            return None if data is None else LiveTraining(model, data, self.signals(model), others, size)

        training = train if isinstance(train, Training) else live(train, live(outliers, None))
        if training is None or (self.learns_from_outliers and training.outliers is None):
            role = TRAIN if training is None else VALID_OUTLIERS
            raise InputError(f"monitor {self.name} learns from {ROLES[role]}: give them to build")
        for part in (training, training.outliers):
            if part is not None and not len(part):
                raise InputError(f"monitor {self.name} cannot be built on {part.name}: it holds no images")
        held = len(np.unique(training.labels))
        if held < self.classes:
            raise InputError(
                f"monitor {self.name} needs images of at least {self.classes} classes: {training.name} has {held}"
            )
        return training
