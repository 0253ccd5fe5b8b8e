"""The role Monitor: says of an image whether it is like those the model was trained on. Three values, never changed:

Monitor            the settings; `build` learns from training data, once per model and training set
FittedMonitor      what was learned; `represent` is the expensive part, (N, D), worth storing per data set
CalibratedMonitor  with a threshold from held-out images (cheap: once per pair of validation sets)

`score` is higher the more in-distribution an image is, for every monitor. In-distribution is the positive class.
"""

from __future__ import annotations

import inspect
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import CodeIdentified, code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.roles import BATCH, Dataset, Model
from roadworthy.core.types import Artifact, Batch
from roadworthy.core.validation import check_settings
from roadworthy.models.signals import OF_DATA, PART, SUPPLY, LiveTraining, Signals, Training, full_name
from roadworthy.monitors.checks import checked_arrays, checked_reading, checked_rows, checked_scores
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Arrays, Floats, Learned, Rep
from roadworthy.monitors.networks.base import OwnNetwork
from roadworthy.monitors.saving import commit_monitor, read_monitor, write_monitor
from roadworthy.monitors.threads import one_thread
from roadworthy.monitors.threshold import Aim, RejectedShare, TiesWarning

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


@dataclass(frozen=True, eq=False, repr=False)
class FittedMonitor:
    """A monitor with what it has learned. Nothing in it changes: it can be calibrated in several ways at once.

    monitor     the settings;  state: what `fit` learned
    built_from  fingerprints of the model (empty where it asks none) and, where it learned anything, of the data
    """

    monitor: Monitor
    state: Learned
    built_from: tuple[str, ...]

    def __repr__(self) -> str:
        return f"fitted {self.monitor!r}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of what was learned."""
        return self.monitor.notes(self.state, Learned())

    def built_on(self, model: Model) -> bool:
        """Whether it was built on this model, or asks none, or does not say."""
        return not self.built_from or self.built_from[0] in ("", model.fingerprint())

    def fingerprint(self) -> str:
        """A hash of all that decides a representation: name, settings, code, the model and data it was built from."""
        monitor, code = self.monitor, code_of(type(self.monitor))
        known = {"monitor": monitor.name, "parameters": monitor.parameters(), "built_from": self.built_from}
        return digest(known | ({"code": code} if code else {}))

    def represent(self, model: Model, batch: Batch, size: int = BATCH) -> Rep:
        """What the monitor keeps of each image, (N, D) float32; the model is asked in batches of exactly `size`."""
        size = model.fixed_batch or size
        with one_thread():
            parts = [
                self.represent_signals(Signals(model, batch.take(slice(start, start + size)), size))
                for start in range(0, len(batch), size)
            ]
        return np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)

    def represent_signals(self, signals: Signals) -> Rep:
        """The same from signals that others read too."""
        self.monitor.check(signals.model)
        with one_thread():
            rows = np.concatenate([self._rows(piece) for piece in signals.pieces])[: len(signals)]
        rows = np.ascontiguousarray(rows.reshape(len(signals), -1), np.float32)
        return checked_rows(self.monitor, rows, f"of {len(signals)} images")

    def _rows(self, signals: Signals) -> NDArray[Any]:
        shown = signals if self.monitor.asks_model else signals.without_model()
        return checked_reading(self.monitor, self.monitor.read(shown, self.state), len(signals))

    def scores(self, rows: Rep, rule: Learned) -> Floats:
        """Scores (N,) of representations (N, D), by what `tune` learned; an `InputError` where one is NaN."""
        return checked_scores(self.monitor, self.monitor.rate(rows, rule, self.state), len(rows))

    def calibrate(
        self,
        rep_id: Rep,
        rep_ood: Rep | None = None,
        *,
        rejected: float = 0.05,
        prior: float = 0.5,
        cost: float = 1.0,
        threshold: str = "exact",
    ) -> CalibratedMonitor:
        """Find the threshold on held-out representations (n, D): of in-distribution images alone, or against outliers.

        Alone, it rejects the share `rejected` of them, or less where images of equal score make that impossible: then a
        `TiesWarning` says so, and `rejected` of the result holds both shares. A monitor that decides itself keeps its
        own threshold, and the share that this rejects counts as asked for. With outliers it is the one of lowest
        expected cost: see `Aim`.
        """
        aim, monitor = Aim(rejected, prior, cost, threshold), self.monitor
        inside = checked_rows(monitor, rep_id, "of in-distribution images")
        outside = None if rep_ood is None else checked_rows(monitor, rep_ood, "of outliers")
        for side, rows in (("in-distribution images", inside), ("outliers", outside)):
            if rows is not None and not len(rows):
                raise InputError(f"monitor {monitor.name} cannot be calibrated without {side}: the set is empty")
        if outside is not None and outside.shape[1] != inside.shape[1]:
            raise InputError(
                f"monitor {monitor.name}: {inside.shape[1]} columns inside but {outside.shape[1]} of the outliers"
            )
        rule = checked_arrays(monitor, monitor.tune(inside, outside, aim, self.state), "tune")
        scores = self.scores(inside, rule)
        cut = monitor.cut(scores, None if outside is None else self.scores(outside, rule), aim)
        asked = float((scores < cut).mean()) if monitor.decides_itself else rejected
        share = RejectedShare.of(scores, cut, asked) if outside is None else None
        if share is not None and share.tied:
            warnings.warn(f"monitor {monitor.name} {share.sentence()}", TiesWarning, stacklevel=2)
        hashes = tuple(digest_array(rows) for rows in (inside, outside) if rows is not None)
        return CalibratedMonitor(self, aim, inside.shape[1], rule, cut, share, hashes)

    def save(self, folder: str | Path) -> Path:
        """Write settings and state to a folder: JSON, plain arrays, and a manifest that has the hashes of both."""
        return commit_monitor(self.write_parts(folder), self.built_from)

    def write_parts(self, folder: str | Path) -> Path:
        """Write the same without the manifest, to a folder that the caller commits: that of an artifact."""
        return write_monitor(folder, *self._parts())

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The record and the arrays to be saved; an `InputError` where the monitor cannot be."""
        self.monitor.check_savable(self.state)
        record = {
            "monitor": self.monitor.name,
            "parameters": self.monitor.parameters(),
            "built_from": self.built_from,
            "notes": self.notes,
            "code": code_of(type(self.monitor)),
        }
        return record, {f"state.{key}": array for key, array in self.state.items()}

    @classmethod
    def load(
        cls, folder: str | Path, model: Model | None = None, *, kind: type[Monitor] | None = None
    ) -> FittedMonitor:
        """What `save` wrote, a threshold left aside; where a model is given, it must be the one it was built on.

        `kind` is the class of the monitor, where it is not registered.
        """
        return _loaded(folder, model, kind)[0]


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedMonitor:
    """A fitted monitor with a threshold: a small value that says which images to reject.

    aim, rule, threshold  what the calibration aimed at, what `tune` learned, and the score below which it rejects
    columns        of the representations it was calibrated on;  calibrated_on: hashes of these
    rejected       the share of images inside that was asked for and the one reached; None where outliers were given
    """

    fitted: FittedMonitor
    aim: Aim
    columns: int | None
    rule: Learned
    threshold: float
    rejected: RejectedShare | None
    calibrated_on: tuple[str, ...]

    def __repr__(self) -> str:
        share = f" {self.rejected.sentence()}" if self.rejected else ""
        return f"{self.fitted.monitor!r} with threshold {self.threshold:g}{share}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of what was learned."""
        return self.fitted.monitor.notes(self.fitted.state, self.rule)

    def fingerprint(self) -> str:
        """A hash of all that decides the threshold: the fitted monitor, the representations and the aim."""
        return digest({"fitted": self.fitted.fingerprint(), "aim": asdict(self.aim), "rows": self.calibrated_on})

    def score(self, rep: Rep) -> Floats:
        """Scores (N,) of representations (N, D), higher = more in-distribution."""
        rows = checked_rows(self.fitted.monitor, rep, "to score")
        if len(rows) and self.columns is not None and rows.shape[1] != self.columns:
            raise InputError(
                f"monitor {self.fitted.monitor.name} was calibrated on representations of {self.columns} columns, not "
                f"{rows.shape[1]}: represent the images with this monitor"
            )
        return self.fitted.scores(rows, self.rule)

    def reject(self, rep: Rep) -> NDArray[np.bool_]:
        """(N,): True where the score lies below the threshold."""
        return self.score(rep) < self.threshold

    def decide(self, model: Model, batch: Batch) -> NDArray[np.bool_]:
        """(N,): True where an image is to be rejected; for one image or many, at deployment.

        Nothing is filled up to a batch where one holds all images: what is asked of the model is this image alone. So
        the last bits of a score can differ from those of `represent`.
        """
        return self.reject(self.fitted.represent(model, batch, max(1, min(len(batch), BATCH))))

    def save(self, folder: str | Path) -> Path:
        """Write settings, state and threshold to a folder, as `FittedMonitor.save` does."""
        record, arrays = self.fitted._parts()
        record |= {
            "aim": asdict(self.aim),
            "columns": self.columns,
            "rejected": None if self.rejected is None else asdict(self.rejected),
            "calibrated_on": self.calibrated_on,
        }
        arrays |= {f"rule.{key}": array for key, array in self.rule.items()}
        arrays |= {"threshold": np.asarray(self.threshold, np.float64)}
        return commit_monitor(write_monitor(folder, record, arrays), self.fitted.built_from)

    @classmethod
    def load(
        cls, folder: str | Path, model: Model | None = None, *, kind: type[Monitor] | None = None
    ) -> CalibratedMonitor:
        """What `save` wrote; see `FittedMonitor.load`."""
        fitted, record, arrays = _loaded(folder, model, kind)
        if "threshold" not in arrays or record["aim"] is None:
            raise InputError(f"{folder} holds a monitor without a threshold: load it as a FittedMonitor, and calibrate")
        rule, threshold = _under("rule.", arrays), float(arrays["threshold"])
        calibrated_on = tuple(record["calibrated_on"])
        return cls(fitted, record["aim"], record["columns"], rule, threshold, record["rejected"], calibrated_on)


def load_monitor(folder: str | Path, model: Model | None = None) -> CalibratedMonitor:
    """A saved monitor of any registered kind, ready to decide."""
    return CalibratedMonitor.load(folder, model)


def _loaded(
    folder: str | Path, model: Model | None, kind: type[Monitor] | None
) -> tuple[FittedMonitor, dict[str, Any], dict[str, NDArray[Any]]]:
    record, arrays = read_monitor(folder)
    name = record["monitor"]
    kind = kind or MONITORS.get(name)
    if name != kind.name:
        raise InputError(f"{folder} holds a monitor {name}, not {kind.name}")
    if "code" in record and record["code"] != code_of(kind):
        raise InputError(f"{folder} holds a monitor {name}; its code has changed since it was saved: build it anew")
    fitted = FittedMonitor(kind.of(record["parameters"]), _under("state.", arrays), tuple(record["built_from"]))
    if model is not None and not fitted.built_on(model):
        raise InputError(f"{folder} was built on another model than {model.name}: build the monitor anew")
    return fitted, record, arrays


def _under(prefix: str, arrays: Arrays) -> Learned:
    return Learned({key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)})


def represent_data(fitted: FittedMonitor, model: Model, data: Dataset, size: int = BATCH) -> Rep:
    """The representations (N, D) of a whole data set."""
    if not len(data):
        raise InputError(f"monitor {fitted.monitor.name} cannot represent {data.name}: it holds no images")
    parts = (data.batch(slice(start, min(start + PART, len(data)))) for start in range(0, len(data), PART))
    return np.concatenate([fitted.represent(model, batch, size) for batch in parts])
