"""The role Monitor: says of an image whether it is like those the model was trained on. Three values, never changed:

Monitor            the settings; `build` learns from training data, once per model and training set
FittedMonitor      what was learned; `represent` is the expensive part, (N, D), worth storing per data set
CalibratedMonitor  with a threshold from held-out images (cheap: once per pair of validation sets)

`score` is higher the more in-distribution an image is, for every monitor. In-distribution is the positive class.
"""

from __future__ import annotations

import inspect
import json
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import Written, code_of
from roadworthy.core.errors import InputError, ModelError, RoadworthyError, UnknownName
from roadworthy.core.hashing import digest, digest_array
from roadworthy.core.protocols import BATCH, Dataset, Model
from roadworthy.core.registry import Registry
from roadworthy.core.types import Artifact, Batch
from roadworthy.core.validation import check_settings
from roadworthy.models.base import first_line
from roadworthy.models.signals import PART, SUPPLY, LiveTraining, Signals, Training, full_name
from roadworthy.monitors.saving import commit_monitor, read_monitor, write_monitor
from roadworthy.monitors.threads import one_thread
from roadworthy.monitors.threshold import Aim, RejectedShare, TiesWarning

Rep = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]
Made = TypeVar("Made")

CAPABILITY = {"gradients": "input_gradient"}
"""The capability of a model behind a need, where it has another name."""
SIGNAL = {"input": "images", "gradients": "images"}
"""The signal of training data behind a need, where it has another name."""
NEEDS = frozenset({"probabilities", "input", *SUPPLY})
TRAIN, VALID_OUTLIERS = "train", "valid_outliers"
ROLES = {TRAIN: "training images", VALID_OUTLIERS: "validation outliers (outliers=)"}
"""The data that a monitor can learn from, by role."""

MONITORS: Registry[type[Monitor]] = Registry("monitor")
_SEEN: dict[str, type[Monitor]] = {}
"""Classes that are not registered but were used in this process, by name."""


def remember_kind(kind: type[Monitor]) -> None:
    """Note a class of monitors, so that `find_kind` knows it; another class of the same name is an error."""
    name = kind.name
    known = MONITORS.get(name) if name in MONITORS else _SEEN.setdefault(name, kind)
    if known is kind:
        return
    if name in MONITORS or (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} bears the name {name} of another monitor, "
            f"{known.__module__}.{known.__qualname__}: give it a name of its own"
        )
    _SEEN[name] = kind  # a notebook cell that was run again


def find_kind(name: str) -> type[Monitor]:
    """The class of monitors of that name: registered, or used in this process."""
    if name not in MONITORS and name not in _SEEN:
        raise InputError(
            f"monitor {name} is not known here: import what defines and registers it, or install the package that "
            "declares it (entry point group roadworthy.monitors)"
        )
    return MONITORS.get(name) if name in MONITORS else _SEEN[name]


class Learned(Mapping[str, NDArray[Any]]):
    """Arrays by name that cannot be written to: what `fit` or `tune` has learned.

    `cached` keeps what can be made from them again, such as a search tree; nothing that decides a result.
    """

    def __init__(self, arrays: Arrays | None = None) -> None:
        self._arrays = {key: _read_only(array) for key, array in (arrays or {}).items()}
        self._lock, self._made = threading.RLock(), dict[str, tuple[Any, Any]]()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def cached(self, name: str, make: Callable[[], Made], of: Any = None) -> Made:
        """What `make` returns, made once; again where it is to be made for another object than the last time."""
        with self._lock:
            known, made = self._made.get(name, (None, None))
            if name not in self._made or known is not of:
                made = make()
                self._made[name] = of, made
            return made  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Monitor(Written, ABC):
    """A detector of images outside the distribution: a frozen keyword-only dataclass whose fields are its settings.

    All it must say is `read`, what it keeps of each image. `fit` adds what it learns from training data, `rate` how a
    row becomes a score (default: the first column), `tune` what it learns from validation data beyond the threshold.

    needs        some of probabilities, logits, features, gradients, samples, input
    classes      how many classes the training data must hold at least
    learns_from  the data that `fit` reads, by role: `train`, and `valid_outliers` where it learns from those too
    differs_from_paper   what is other than in the method's paper, empty where nothing is known to be: shown by
                 `roadworthy list monitors`, the help of the class and the report of an OD-test
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})
    classes: ClassVar[int] = 1
    learns_from: ClassVar[tuple[str, ...]] = (TRAIN,)
    differs_from_paper: ClassVar[str] = ""

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
        """The threshold on scores (n,) and, where outliers are given, (m,)."""
        return aim.cut(inside, outside)

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """What a reader should know of what was learned; `rule` is empty before a calibration."""
        return ()

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
        inputs = (model.fingerprint(), *learned, code_of(type(self)), f"batches of {size}" if learned else "")
        return Artifact(f"monitor:{self.name}", self.parameters(), tuple(filter(None, inputs)))

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
            return FittedMonitor(self, Learned(), (model.fingerprint(),))
        training = self._checked_training(model, train, outliers, size)
        with one_thread():
            state = _learned(self, self.fit(training), "fit")
        for name, array in state.items():
            if not np.isfinite(array).all():
                raise InputError(f"monitor {self.name} cannot be built on {training.name}: {name} is NaN or infinite")
        return FittedMonitor(self, state, (model.fingerprint(), *training.fingerprints()))

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
    built_from  fingerprints of the model and, where it learned anything, of the data
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
        return _checked(self.monitor, rows, f"of {len(signals)} images")

    def _rows(self, signals: Signals) -> NDArray[Any]:
        name = self.monitor.name
        rows = _numbers(self.monitor.read(signals, self.state), f"monitor {name}: what read returns")
        if rows.ndim not in (1, 2) or len(rows) != len(signals) or not rows.size:
            raise InputError(
                f"monitor {name}: read must return one row per image, (N,) or (N, D) with N = {len(signals)}, "
                f"not {rows.shape}"
            )
        return rows

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
        `TiesWarning` says so, and `rejected` of the result holds both shares. With outliers it is the one of lowest
        expected cost: see `Aim`.
        """
        aim, monitor = Aim(rejected, prior, cost, threshold), self.monitor
        inside = _checked(monitor, rep_id, "of in-distribution images")
        outside = None if rep_ood is None else _checked(monitor, rep_ood, "of outliers")
        for side, rows in (("in-distribution images", inside), ("outliers", outside)):
            if rows is not None and not len(rows):
                raise InputError(f"monitor {monitor.name} cannot be calibrated without {side}: the set is empty")
        if outside is not None and outside.shape[1] != inside.shape[1]:
            raise InputError(
                f"monitor {monitor.name}: {inside.shape[1]} columns inside but {outside.shape[1]} of the outliers"
            )
        rule = _learned(monitor, monitor.tune(inside, outside, aim, self.state), "tune")
        scores = _scored(self, rule, inside)
        cut = monitor.cut(scores, None if outside is None else _scored(self, rule, outside), aim)
        share = RejectedShare.of(scores, cut, rejected) if outside is None else None
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
        rows = _checked(self.fitted.monitor, rep, "to score")
        if len(rows) and self.columns is not None and rows.shape[1] != self.columns:
            raise InputError(
                f"monitor {self.fitted.monitor.name} was calibrated on representations of {self.columns} columns, not "
                f"{rows.shape[1]}: represent the images with this monitor"
            )
        return _scored(self.fitted, self.rule, rows)

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


@contextmanager
def monitor_errors(*through: type[BaseException]) -> Iterator[None]:
    """Turn whatever a monitor raises into a `ModelError` of one line, but what is out of its hands, and `through`.

    >>> with monitor_errors():
    ...     [][1]
    Traceback (most recent call last):
    roadworthy.core.errors.ModelError: IndexError: list index out of range
    """
    unchanged: tuple[type[BaseException], ...] = (RoadworthyError, MemoryError, KeyboardInterrupt, *through)
    try:
        yield
    except unchanged:
        raise
    except BaseException as error:
        kind, line = type(error).__name__, first_line(error)
        raise ModelError(kind if line == kind else f"{kind}: {line}") from error


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
    built_from = tuple(record["built_from"])
    if model is not None and built_from and model.fingerprint() != built_from[0]:
        raise InputError(f"{folder} was built on another model than {model.name}: build the monitor anew")
    return FittedMonitor(kind.of(record["parameters"]), _under("state.", arrays), built_from), record, arrays


def _under(prefix: str, arrays: Arrays) -> Learned:
    return Learned({key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)})


def _learned(monitor: Monitor, arrays: Any, method: str) -> Learned:
    """What `fit` or `tune` returned; an `InputError` where it is other than arrays of numbers by name."""
    if not isinstance(arrays, Mapping) or not all(isinstance(key, str) for key in arrays):
        raise InputError(f"monitor {monitor.name}: {method} must return arrays by name, not {type(arrays).__name__}")
    numbers = {key: _numbers(array, f"monitor {monitor.name}: {key} of {method}") for key, array in arrays.items()}
    return arrays if isinstance(arrays, Learned) else Learned(numbers)


def _scored(fitted: FittedMonitor, rule: Learned, rows: Rep) -> Floats:
    name = fitted.monitor.name
    rated = fitted.monitor.rate(rows, rule, fitted.state)
    scores = _numbers(rated, f"monitor {name}: what rate returns").astype(np.float64, copy=False)
    if scores.shape != (len(rows),):
        raise InputError(f"monitor {name}: rate must return one score per image, ({len(rows)},), not {scores.shape}")
    undefined = int(np.isnan(scores).sum())
    if undefined:
        raise InputError(f"monitor {name}: rate returned NaN for {undefined} of {len(rows)} images")
    return scores


def _checked(monitor: Monitor, rep: Rep, which: str) -> Rep:
    """Representations as rows that cannot be written to; an `InputError` where they are none."""
    rows = _numbers(rep, f"monitor {monitor.name}: representations {which}").astype(np.float32, copy=False)
    if rows.ndim != 2:
        raise InputError(f"monitor {monitor.name}: representations {which} must be (N, D), not {rows.shape}")
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    if bad:
        raise InputError(
            f"monitor {monitor.name}: representations {which} hold NaN or infinity in {bad} of {len(rows)}"
        )
    return _read_only(rows)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _numbers(value: Any, what: str) -> NDArray[Any]:
    """An array of numbers; what is none is an `InputError`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"{what} must be an array of numbers, not {kind}")
    return array


def require_count(monitor: Monitor, setting: str, least: int = 1, most: int | None = None) -> None:
    """Refuse a setting that is no whole number of at least `least`, and at most `most` where there is one."""
    value = getattr(monitor, setting)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"monitor {monitor.name}: {setting} is a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise InputError(f"monitor {monitor.name}: {setting} is at most {most:,}, not {value:,}")


def require_layer(monitor: Monitor, layer: Any) -> None:
    """Refuse what is not the name of a layer; None stands for the default one."""
    if layer is not None and not (isinstance(layer, str) and layer):
        raise InputError(f"monitor {monitor.name}: layer is the name of a layer of the model, or None, not {layer!r}")


def represent_data(fitted: FittedMonitor, model: Model, data: Dataset, size: int = BATCH) -> Rep:
    """The representations (N, D) of a whole data set."""
    if not len(data):
        raise InputError(f"monitor {fitted.monitor.name} cannot represent {data.name}: it holds no images")
    parts = (data.batch(slice(start, min(start + PART, len(data)))) for start in range(0, len(data), PART))
    return np.concatenate([fitted.represent(model, batch, size) for batch in parts])
