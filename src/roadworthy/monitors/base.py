"""The role Monitor: says of an image whether it is like those the model was trained on, in three stages.

build      fits what needs in-distribution training data (once per model and training set)
represent  what the monitor keeps of each image, (N, D): the expensive part, worth storing per data set
calibrate  a threshold from held-out images (cheap: once per pair of validation sets)

Then `score` (higher = more in-distribution, for every monitor) and `reject`. In-distribution is the positive class.
"""

from __future__ import annotations

import inspect
import json
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import Written, code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.protocols import Dataset, Model, asking
from roadworthy.core.registry import Registry
from roadworthy.core.types import Artifact, Batch
from roadworthy.core.validation import check_settings, require_file
from roadworthy.models.head import penultimate
from roadworthy.monitors.threads import one_thread
from roadworthy.monitors.threshold import (
    RejectedShare,
    TiesWarning,
    best_threshold,
    check_rejected,
    hinge_thresholds,
    share_threshold,
    side_weights,
)

Rep = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

BATCH_SIZE = 32
CHUNK = 512
THRESHOLDS = ("exact", "hinge")
FORMAT = 1
RECORD, ARRAYS = "monitor.json", "monitor.npz"

CAPABILITY = {"gradients": "input_gradient"}
"""The capability of a model behind a need, where it has another name."""
SUPPLY = {
    "logits": "a model that answers logits, or an ONNX model whose last node is a softmax",
    "features": "an ONNX model, or a torch module of Python code",
    "gradients": "a torch model (a module, or weights with their architecture) in place of a black box",
    "samples": "a model that answers several passes: MC-Dropout or an ensemble",
}
NEEDS = frozenset({"probabilities", "input", *SUPPLY})

MONITORS: Registry[type[Monitor]] = Registry("monitor")


@dataclass(frozen=True)
class Aim:
    """What a calibration aims at.

    rejected   share of in-distribution images to reject where no outliers are given
    prior      share of outliers expected;  cost: of an accepted outlier, where a rejected image inside costs 1
    threshold  `exact` (the best on the validation data) or `hinge` (the published fit)
    """

    rejected: float = 0.05
    prior: float = 0.5
    cost: float = 1.0
    threshold: str = "exact"

    def __post_init__(self) -> None:
        if self.threshold not in THRESHOLDS:
            raise UnknownName("threshold", self.threshold, THRESHOLDS)
        check_rejected(self.rejected)
        side_weights(self.prior, self.cost)

    def cut(self, inside: Floats, outside: Floats | None) -> float:
        """The threshold on scores (n,) and, where outliers are given, (m,)."""
        if outside is None:
            return share_threshold(inside, self.rejected)
        return float(self.cuts(inside[:, None], outside[:, None])[0])

    def cuts(self, inside: Floats, outside: Floats) -> Floats:
        """The threshold of each column of scores (n, C) and (m, C): (C,)."""
        if self.threshold == "hinge":
            return hinge_thresholds(inside, outside, prior=self.prior, cost=self.cost)
        columns = zip(inside.T, outside.T, strict=True)
        return np.array([best_threshold(ins, outs, prior=self.prior, cost=self.cost) for ins, outs in columns])

    def losses(self, inside: Floats, outside: Floats, thresholds: Floats) -> Floats:
        """The expected cost of a threshold for each column: (C,)."""
        lost, missed = (inside < thresholds).mean(axis=0), (outside >= thresholds).mean(axis=0)
        return np.asarray((1 - self.prior) * lost + self.prior * self.cost * missed)


@dataclass
class Fitted:
    """What a monitor has learned, apart from its settings.

    built_from  fingerprints of the model and the training data;  arrays: what `fit` found;  notes: what is odd about it
    aim, columns, rule, threshold  what `calibrate` found, columns: of the representations it was given
    rejected    the share of images inside that was asked for and the one reached; None where outliers were given
    cache       what can be made again from the arrays
    """

    built_from: tuple[str, ...] = ()
    arrays: Arrays = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    aim: Aim | None = None
    columns: int | None = None
    rule: Arrays = field(default_factory=dict)
    threshold: float | None = None
    rejected: RejectedShare | None = None
    cache: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Monitor(Written, ABC):
    """A detector of images outside the distribution: a frozen keyword-only dataclass whose fields are its settings.

    All it must say is `read`, what it keeps of each image. `fit` adds what it learns from training data, `rate` how a
    row becomes a score (default: the first column), `tune` what it learns from validation data beyond the threshold.

    needs        some of probabilities, logits, features, gradients, samples, input
    classes      how many classes the training data must hold at least
    batch_size   images that `read` is given at once, always so many (the last ones repeated), so that results depend on
                 neither the number of images nor their neighbours; None where `read` keeps that promise by itself
    differs_from_paper   what is other than in the method's paper, empty where nothing is known to be: shown by
                 `roadworthy list monitors`, the help of the class and the report of an OD-test
    """

    fitted: Fitted = field(default_factory=Fitted, init=False, repr=False, compare=False)

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})
    classes: ClassVar[int] = 1
    batch_size: ClassVar[int | None] = BATCH_SIZE
    differs_from_paper: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.differs_from_paper and vars(cls).get("__doc__"):
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nDiffers from the paper: {cls.differs_from_paper}."

    def __str__(self) -> str:
        """The monitor with its settings, and what it is calibrated for."""
        if self.fitted.threshold is None:
            return repr(self)
        share = self.fitted.rejected
        return f"{self!r} with threshold {self.fitted.threshold:g}" + (f" {share.sentence()}" if share else "")

    @abstractmethod
    def read(self, model: Model, batch: Batch) -> NDArray[Any]:
        """What to keep of each image: (N,) or (N, D), finite."""

    def fit(self, model: Model, data: Dataset) -> Arrays:
        """What to learn from in-distribution training data, as arrays by name; `read` finds them in `state`."""
        return {}

    def tune(self, inside: Rep, outside: Rep | None, aim: Aim) -> Arrays:
        """What to learn from validation data beyond a threshold; `rate` finds it in `rule`."""
        return {}

    def rate(self, rows: Rep) -> NDArray[Any]:
        """Scores (N,) of rows (N, D), higher = more in-distribution."""
        return rows[:, 0]

    def cut(self, inside: Rep, outside: Rep | None, aim: Aim) -> float:
        """The threshold on the score."""
        return aim.cut(self._scored(inside), None if outside is None else self._scored(outside))

    @property
    def state(self) -> Arrays:
        """What `fit` learned; an error before."""
        self._require_built()
        return self.fitted.arrays

    @property
    def rule(self) -> Arrays:
        """What `tune` learned from validation data; empty where there was nothing to learn."""
        return self.fitted.rule

    @property
    def threshold(self) -> float:
        """Scores below are rejected; an error before `calibrate`."""
        if self.fitted.threshold is None:
            raise InputError(f"monitor {self.name} has no threshold yet: call calibrate with held-out representations")
        return self.fitted.threshold

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """The monitor with these settings, the others at their default; an unknown one is an error."""
        settable = [f for f in fields(cls) if f.init]
        for parameter in parameters:
            if parameter not in {f.name for f in settable}:
                raise UnknownName(f"parameter of monitor {cls.name}", str(parameter), {f.name for f in settable})
        required = {f.name for f in settable if f.default is MISSING and f.default_factory is MISSING}
        if required - set(parameters):
            raise InputError(f"monitor {cls.name} lacks its parameter {sorted(required - set(parameters))[0]}")
        check_settings(cls, parameters, f"{cls.name} monitor setting")
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
        return cls(**plain)

    def parameters(self) -> dict[str, Any]:
        """The monitor's settings."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def fingerprint(self) -> str:
        """A hash of all that decides a representation: name, settings, code, the model and data it was built from."""
        told = {"monitor": self.name, "parameters": self.parameters(), "built_from": self.fitted.built_from}
        code = code_of(type(self))
        return digest(told | ({"code": code} if code else {}))

    def recipe(self, model: Model, id_train: Dataset) -> Artifact:
        """The built monitor as an artifact, known before it is built."""
        code = code_of(type(self))
        inputs = (model.fingerprint(), id_train.fingerprint(), *([code] if code else []))
        return Artifact(f"monitor:{self.name}", self.parameters(), inputs)

    def check(self, model: Model) -> None:
        """Refuse a model that cannot give what the monitor needs."""
        for need in sorted(set(self.needs) - NEEDS):
            raise UnknownName(f"need of monitor {self.name}", need, NEEDS)
        for need in sorted(set(self.needs) - {"input", "probabilities"}):
            if CAPABILITY.get(need, need) not in model.capabilities:
                raise InputError(
                    f"monitor {self.name} needs {need}, which model {model.name} does not give: supply {SUPPLY[need]}"
                )

    def build(self, model: Model, id_train: Dataset) -> None:
        """Fit to in-distribution training data; what was fitted or calibrated before is gone."""
        self.check(model)
        if not len(id_train):
            raise InputError(f"monitor {self.name} cannot be built on {id_train.name}: it holds no images")
        held = len(np.unique(id_train.labels))
        if held < self.classes:
            raise InputError(
                f"monitor {self.name} needs images of at least {self.classes} classes: {id_train.name} has {held}"
            )
        self._keep(Fitted((model.fingerprint(), id_train.fingerprint())))
        try:
            arrays = self._named(self.fit(model, id_train), "fit")
            for name, array in arrays.items():
                if not np.isfinite(array).all():
                    raise InputError(
                        f"monitor {self.name} cannot be built on {id_train.name}: {name} is NaN or infinite"
                    )
        except BaseException:
            self._keep(Fitted())
            raise
        self.fitted.arrays = arrays

    def represent(self, model: Model, batch: Batch) -> Rep:
        """What the monitor keeps of each image: (N, D) float32."""
        self.check(model)
        self._require_built()
        with one_thread() if self.batch_size is not None else nullcontext():
            rows = in_batches(model, batch, self.batch_size, lambda part: self._rows(model, part))
        rows = np.ascontiguousarray(rows.reshape(len(batch), -1) if len(batch) else rows.reshape(0, 1), np.float32)
        return self._checked(rows, f"of {len(batch)} images")

    def calibrate(
        self,
        rep_id: Rep,
        rep_ood: Rep | None = None,
        *,
        rejected: float = 0.05,
        prior: float = 0.5,
        cost: float = 1.0,
        threshold: str = "exact",
    ) -> None:
        """Find the threshold on held-out representations (n, D): of in-distribution images alone, or against outliers.

        Alone, it rejects the share `rejected` of them, or less where images of equal score make that impossible: then a
        `TiesWarning` says so, and `fitted.rejected` holds both shares. With outliers it is the one of lowest expected
        cost: see `Aim`.
        """
        aim = Aim(rejected, prior, cost, threshold)
        inside = self._checked(rep_id, "of in-distribution images")
        outside = None if rep_ood is None else self._checked(rep_ood, "of outliers")
        if not len(inside) or (outside is not None and not len(outside)):
            side = "in-distribution images" if not len(inside) else "outliers"
            raise InputError(f"monitor {self.name} cannot be calibrated without {side}: the set is empty")
        if outside is not None and outside.shape[1] != inside.shape[1]:
            raise InputError(
                f"monitor {self.name}: {inside.shape[1]} columns inside but {outside.shape[1]} of the outliers"
            )
        self.fitted.aim, self.fitted.columns = aim, inside.shape[1]
        self.fitted.rule, self.fitted.threshold, self.fitted.rejected = {}, None, None
        self.fitted.rule = self._named(self.tune(inside, outside, aim), "tune")
        self.fitted.threshold = self.cut(inside, outside, aim)
        if outside is None:
            self.fitted.rejected = RejectedShare.of(self._scored(inside), self.fitted.threshold, rejected)
            if self.fitted.rejected.tied:
                warnings.warn(f"monitor {self.name} {self.fitted.rejected.sentence()}", TiesWarning, stacklevel=2)

    def score(self, rep: Rep) -> Floats:
        """Scores (N,) of representations (N, D), higher = more in-distribution."""
        rows, columns = self._checked(rep, "to score"), self.fitted.columns
        if len(rows) and columns is not None and rows.shape[1] != columns:
            raise InputError(
                f"monitor {self.name} was calibrated on representations of {columns} columns, not {rows.shape[1]}: "
                "represent the images with this monitor"
            )
        return self._scored(rows)

    def reject(self, rep: Rep) -> NDArray[np.bool_]:
        """(N,): True where the score lies below the threshold."""
        return self.score(rep) < self.threshold

    def decide(self, model: Model, batch: Batch) -> NDArray[np.bool_]:
        """(N,): True where an image is to be rejected; for one image or many, at deployment."""
        return self.reject(self.represent(model, batch))

    def save(self, folder: str | Path) -> Path:
        """Write settings, state and threshold to a folder: JSON and plain arrays."""
        self._require_built()
        self.check_plain()
        code = code_of(type(self))
        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        arrays = {f"state.{key}": array for key, array in self.fitted.arrays.items()}
        arrays |= {f"rule.{key}": array for key, array in self.fitted.rule.items()}
        if self.fitted.threshold is not None:
            arrays["threshold"] = np.float64(self.fitted.threshold)  # type: ignore[assignment]
        np.savez(home / ARRAYS, allow_pickle=False, **arrays)
        record = {
            "format": FORMAT,
            "monitor": self.name,
            "parameters": self.parameters(),
            "built_from": self.fitted.built_from,
            "notes": self.fitted.notes,
            "aim": None if self.fitted.aim is None else asdict(self.fitted.aim),
            "columns": self.fitted.columns,
            "rejected": None if self.fitted.rejected is None else asdict(self.fitted.rejected),
            "code": code,
            "arrays": digest_file(home / ARRAYS),
        }
        record["digest"] = digest(record)
        (home / RECORD).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return home

    @classmethod
    def load(cls, folder: str | Path, model: Model | None = None) -> Self:
        """What `save` wrote; where a model is given, it must be the one that the monitor was built on."""
        home = Path(folder)
        record = read_record(home)
        if record["monitor"] != cls.name:
            raise InputError(f"{home} holds a monitor {record['monitor']}, not {cls.name}")
        if "code" in record and record["code"] != code_of(cls):
            raise InputError(
                f"{home} holds a monitor {cls.name}; its code has changed since it was saved: build it anew"
            )
        monitor = cls.of(record["parameters"])
        arrays = _read_arrays(home / ARRAYS, record["arrays"])
        threshold = arrays.pop("threshold", None)
        built_from = tuple(record["built_from"])
        if model is not None and built_from and model.fingerprint() != built_from[0]:
            raise InputError(f"{home} was built on another model than {model.name}: build the monitor anew")
        monitor._keep(
            Fitted(
                built_from=built_from,
                arrays={key[6:]: array for key, array in arrays.items() if key.startswith("state.")},
                notes=tuple(record["notes"]),
                aim=record["aim"],
                columns=record.get("columns"),
                rule={key[5:]: array for key, array in arrays.items() if key.startswith("rule.")},
                threshold=None if threshold is None else float(threshold),
                rejected=record["rejected"],
            )
        )
        return monitor

    def check_plain(self) -> None:
        """Refuse settings that JSON cannot hold."""
        for key, value in self.parameters().items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise InputError(
                    f"monitor {self.name}: its setting {key} must be a plain value to be saved (number, text, list or "
                    f"None), not {value!r}"
                ) from None

    def _keep(self, fitted: Fitted) -> None:
        object.__setattr__(self, "fitted", fitted)

    def _require_built(self) -> None:
        if type(self).fit is not Monitor.fit and not self.fitted.built_from:
            raise InputError(f"monitor {self.name} is not built yet: call build with the model and its training data")

    def _scored(self, rows: Rep) -> Floats:
        scores = _numbers(self.rate(rows), f"monitor {self.name}: what rate returns").astype(np.float64, copy=False)
        if scores.shape != (len(rows),):
            raise InputError(
                f"monitor {self.name}: rate must return one score per image, ({len(rows)},), not {scores.shape}"
            )
        undefined = int(np.isnan(scores).sum())
        if undefined:
            raise InputError(f"monitor {self.name}: rate returned NaN for {undefined} of {len(rows)} images")
        return scores

    def _rows(self, model: Model, batch: Batch) -> NDArray[Any]:
        rows = _numbers(self.read(model, batch), f"monitor {self.name}: what read returns")
        if rows.ndim not in (1, 2) or len(rows) != len(batch) or not rows.size:
            raise InputError(
                f"monitor {self.name}: read must return one row per image, (N,) or (N, D) with N = {len(batch)}, "
                f"not {rows.shape}"
            )
        return rows

    def _named(self, found: Any, method: str) -> Arrays:
        if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
            raise InputError(f"monitor {self.name}: {method} must return arrays by name, not {type(found).__name__}")
        return {key: _numbers(value, f"monitor {self.name}: {key} of {method}") for key, value in found.items()}

    def _checked(self, rep: Rep, which: str) -> Rep:
        rows = _numbers(rep, f"monitor {self.name}: representations {which}").astype(np.float32, copy=False)
        if rows.ndim != 2:
            raise InputError(f"monitor {self.name}: representations {which} must be (N, D), not {rows.shape}")
        bad = int((~np.isfinite(rows)).any(axis=1).sum())
        if bad:
            raise InputError(
                f"monitor {self.name}: representations {which} hold NaN or infinity in {bad} of {len(rows)}"
            )
        return rows


def _numbers(value: Any, what: str) -> NDArray[Any]:
    """An array of numbers; what is none is an `InputError`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} must be an array of numbers, not {_told(value, array)}")
    return array


def _told(value: Any, array: NDArray[Any]) -> str:
    return f"an array of {array.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


def require_count(monitor: Monitor, setting: str, least: int = 1, most: int | None = None) -> None:
    """Refuse a setting that is no whole number of at least `least`, and at most `most` where there is one."""
    value = getattr(monitor, setting)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"monitor {monitor.name}: {setting} is a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise InputError(f"monitor {monitor.name}: {setting} is at most {most:,}, not {value:,}")


def require_layer(monitor: Monitor, layer: Any) -> None:
    """Refuse what is no name of a layer; None stands for the default one."""
    if layer is not None and not (isinstance(layer, str) and layer):
        raise InputError(f"monitor {monitor.name}: layer is the name of a layer of the model, or None, not {layer!r}")


def in_batches(model: Model, batch: Batch, size: int | None, function: Callable[[Batch], NDArray[Any]]) -> NDArray[Any]:
    """Apply a function of a batch to `size` images at a time, the last repeated to fill up; None: to all at once."""
    size = model.fixed_batch or size
    if size is None or not len(batch):
        return function(batch.copy()) if len(batch) else np.zeros((0, 1), np.float32)
    parts = []
    for start in range(0, len(batch), size):
        rows = np.minimum(np.arange(start, start + size), len(batch) - 1)
        parts.append(np.asarray(function(batch.take(rows.tolist())))[: len(batch) - start])
    return np.concatenate(parts)


def over(data: Dataset, size: int = CHUNK) -> Iterator[Batch]:
    """The whole of a data set, some images at a time."""
    for start in range(0, len(data), size):
        yield data.batch(slice(start, min(start + size, len(data))))


def represent_data(monitor: Monitor, model: Model, data: Dataset) -> Rep:
    """The representations (N, D) of a whole data set."""
    if not len(data):
        raise InputError(f"monitor {monitor.name} cannot represent {data.name}: it holds no images")
    return np.concatenate([monitor.represent(model, batch) for batch in over(data)])


def logits_of(model: Model, batch: Batch) -> NDArray[np.float32]:
    """Logits (N, K) of a batch; a model that gives none is an error."""
    logits = model.answer(batch, len(batch)).logits
    if logits is None:
        raise InputError(f"model {model.name} gives no logits: supply {SUPPLY['logits']}")
    return logits


def features_of(model: Model, batch: Batch, layer: str | None = None) -> NDArray[np.float32]:
    """Features (N, D) of a layer, by default what goes into the last linear one; maps (N, C, H, W) are averaged."""
    place = layer or penultimate(model)
    with asking(model):
        values = model.features(batch.copy(), place)
    if values.ndim == 4:
        values = values.mean(axis=(2, 3))
    return values.reshape(len(batch), -1)


def load_monitor(folder: str | Path, model: Model | None = None) -> Monitor:
    """A saved monitor of any registered kind."""
    return MONITORS.get(read_record(Path(folder))["monitor"]).load(folder, model)


def read_record(home: Path) -> dict[str, Any]:
    """The JSON record of a saved monitor, its aim as an `Aim` and its share rejected as a `RejectedShare`.

    What is no such record, or was edited, is an `InputError`.
    """
    path = home / RECORD
    require_file(path, "monitor")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version = record["format"]
        complete = {"monitor", "parameters", "built_from", "notes", "aim", "arrays"} <= set(record)
        found = digest({key: value for key, value in record.items() if key != "digest"})
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{path} is no record of a monitor: save the monitor again") from None
    if version != FORMAT or not complete:
        raise InputError(f"{path} is of format {version!r}, which this version does not read: save the monitor again")
    if record.get("digest", found) != found:
        raise InputError(f"{path} was edited since the monitor was saved: build and save it anew")
    try:
        aim = None if record["aim"] is None else Aim(**record["aim"])
    except (TypeError, InputError):
        raise _damaged(path, "aim") from None
    try:
        rejected = RejectedShare(**record["rejected"]) if record.get("rejected") is not None else None
    except TypeError:
        raise _damaged(path, "rejected") from None
    for key, kind in (("monitor", str), ("parameters", dict), ("arrays", str)):
        if not isinstance(record[key], kind):
            raise _damaged(path, key)
    for key in ("built_from", "notes"):
        if not isinstance(record[key], list) or not all(isinstance(value, str) for value in record[key]):
            raise _damaged(path, key)
    return {**record, "aim": aim, "rejected": rejected}


def _damaged(path: Path, key: str) -> InputError:
    return InputError(f"{path} is damaged, its {key} cannot be read: save the monitor again")


def _read_arrays(path: Path, expected: str) -> Arrays:
    require_file(path, "monitor")
    if digest_file(path) != expected:
        raise InputError(f"{path} is not the file that was saved: save the monitor again")
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as plain arrays: {error}") from None
