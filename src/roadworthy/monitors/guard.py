"""A guard: a model, a fitted monitor on it and a threshold from in-distribution images, as one thing for deployment.

    guard = Guard.make("m.onnx", "energy", train, validation, IdRule("conformal"))
    guard.save("guard")
    guard = load_guard("guard")
    guard.check(image).accept

FOLDER/
  guard.json     the threshold and its rule; the outliers it was tried on; the model: its entry, file and hashes; the
                 classes and size of the images
  monitor/       the monitor, as `CalibratedMonitor.save` writes it
  manifest.json  the SHA-256 of both
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.checked import read_checked
from roadworthy.core.errors import DamagedFile, InputError, first_line, foreign_code
from roadworthy.core.files import inside, write_json
from roadworthy.core.hashing import digest_file
from roadworthy.core.manifests import MANIFEST, NO_NODE, check_whole, commit
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Images
from roadworthy.core.validation import MAX_SIDE, read_classes, require_file
from roadworthy.data.base import OpenedDataset, identities, image_notes
from roadworthy.data.images import resize
from roadworthy.data.leaks import check_apart, counted_once
from roadworthy.models import align, load_model
from roadworthy.models.live import live_kind
from roadworthy.models.signals import OnePass
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.fitted import CalibratedMonitor, FittedMonitor
from roadworthy.monitors.id_calibration import calibrate_inside, note_of_mix
from roadworthy.monitors.id_threshold import IdRule, IdThreshold
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.memory import Memory
from roadworthy.monitors.saving import ARRAYS, RECORD
from roadworthy.monitors.threshold import Aim
from roadworthy.monitors.trials import Trial, readings, tried_sentence, try_on
from roadworthy.uncertainty.validation_fit import ValidationFit

FORMAT = 1
GUARD, MONITOR = "guard.json", "monitor"


@dataclass(frozen=True)
class Decision:
    """What a guard says of one image.

    accept      whether the model's answer may be used
    score       of the monitor, higher = more in-distribution;  threshold: the score below which an image by itself is
                rejected. A monitor that looks back can decide otherwise than these two
    prediction  the class that the model answers, as an index;  class_name: its name;  confidence: its probability
    """

    accept: bool
    score: float
    threshold: float
    prediction: int
    class_name: str
    confidence: float


class Guard:
    """A model with a monitor that says of each image whether the model's answer may be used.

    model        as it answers in the order of `class_names`, its own names where none are given
    fitted       the monitor, built on this model;  rule: what its `tune` learned from in-distribution rows
    threshold    from in-distribution scores: see `id_threshold`
    size         (H, W) that images are resized to, as data sets do it; None: they are taken as they come
    channels     1 or 3 of the images that it was made from;  grey images are repeated where it is 3
    entry        the model as a study file names it, {"onnx": "m.onnx", "range": "0-1"}, where it can be loaded again;
                 paths in it start from `base`
    tried_on     the sets of outliers that it was tried on, and what it rejected of each

    `check` may be called from several threads: where the model or the monitor's memory need it, they wait for each
    other. A monitor that looks back sees images in the order of the calls.

    >>> from roadworthy.monitors.conformance import ToyModel, toy_data
    >>> train, held_out, test, outliers = toy_data()
    >>> guard = Guard.make(ToyModel(), "energy", train, held_out, IdRule("conformal"))
    >>> decision = guard.check(test.batch([0]).images[0])
    >>> decision.accept, decision.accept == (decision.score >= decision.threshold)
    (True, True)
    """

    def __init__(
        self,
        model: Model,
        fitted: FittedMonitor,
        rule: Learned,
        threshold: IdThreshold,
        *,
        class_names: Sequence[str] = (),
        size: tuple[int, int] | None = None,
        channels: int = 3,
        entry: Mapping[str, Any] | None = None,
        base: Path = Path(),
        tried_on: Sequence[Trial] = (),
    ) -> None:
        if not fitted.built_on(model):
            raise InputError(f"the monitor was built on another model than {model.name}: build it anew")
        if "probabilities" not in model.columns:
            raise InputError(f"model {model.name} answers no class probabilities: a guard needs a classifier")
        if channels not in (1, 3):
            raise InputError(f"images have 1 or 3 channels, not {channels!r}")
        names = tuple(class_names) or model.class_names or tuple(map(str, range(model.num_classes)))
        if len(names) != model.num_classes:
            raise InputError(f"model {model.name} answers {model.num_classes} classes, but {len(names)} are named")
        self.model, self.fitted, self.rule, self.threshold = model, fitted, rule, threshold
        self.class_names, self.size, self.channels = names, size, channels
        self.entry = _entry_of(model) if entry is None else dict(entry)
        self.base, self.tried_on = base, tuple(tried_on)
        self._lock = threading.Lock()
        self._waits = fitted.monitor.is_sequential or not model.concurrent
        self._memory = Memory(fitted.monitor, rule, fitted.state)
        self._one_pass = OnePass(model)

    def __repr__(self) -> str:
        return f"guard of {self.model.name}: {self.fitted.monitor!r} {self.sentence()}"

    def sentence(self) -> str:
        """What its threshold does, and what it rejects of outliers, with a monitor as the subject."""
        return f"{self.threshold.sentence()}; {tried_sentence(self.tried_on)}"

    @classmethod
    def make(
        cls,
        model: str | Path | Mapping[str, Any] | Model,
        monitor: str | Monitor,
        train: Dataset | None,
        validation: Dataset,
        rule: IdRule | None = None,
        *,
        outliers: Mapping[str, Dataset] | None = None,
        seed: int = 0,
    ) -> Self:
        """A guard from a model, a monitor or its name, and in-distribution images; by default of rule share, 5 %.

        model       a path, an entry or a `Model`: of a torch module, `rw.load_model(net, range=..., size=...)`
        train       what the monitor learns from; None where it learns nothing
        validation  images of other objects, which the threshold is found on; where more than 1 % of them are training
                    images too, that is an `InputError`, and fewer give a warning. No temperature or epoch of a
                    network may come from these images
        outliers    sets outside the domain by name, to try the guard on besides drawn noise; nothing is learned from
                    them. What it rejects of each stands in `tried_on`, its sentence and its record: see `try_on`
        seed        of the draw of one image per object, and of the half of the objects that a monitor learns from: both
                    belong to rule conformal, see `calibrate_inside`; and of the noise
        """
        if not len(validation):
            raise InputError(f"a guard cannot be made from {validation.name}: it holds no images")
        if train is not None:
            check_apart({f"training data {train.name}": train}, {f"validation data {validation.name}": validation})
        if isinstance(validation, OpenedDataset):
            validation = counted_once(validation)
            for note in image_notes(validation):
                warnings.warn(f"validation data {validation.name}: {note}", stacklevel=2)
        settings = MONITORS.get(monitor)() if isinstance(monitor, str) else monitor
        opened = _loaded(model)
        entry = dict(model) if isinstance(model, Mapping) else _entry_of(opened)
        _check_not_fitted_on(opened, validation)
        loaded = align(opened, validation.class_names)
        fitted = settings.build(loaded, train)
        rows, predictions = readings(fitted, loaded, validation)
        groups = np.asarray(validation.groups)
        mix = note_of_mix(validation)
        calibrated = calibrate_inside(
            fitted, rows, groups, rule or IdRule(), predictions=predictions, seed=seed, note=mix
        )
        parts = loaded, fitted, calibrated.rule, calibrated.threshold
        return cls(
            *parts,
            tried_on=try_on(*parts, validation, outliers=outliers, seed=seed),
            class_names=validation.class_names,
            size=validation.size,
            channels=validation.channels,
            entry=entry,
        )

    def reset(self) -> None:
        """Forget the images before: the next one belongs to another object."""
        with self._lock:
            self._memory.reset()

    def check(self, image: NDArray[np.uint8], conditions: Mapping[str, Any] | None = None) -> Decision:
        """Whether the model's answer to one image may be used; the model is shown this image alone, nothing is padded.

        image       uint8 (H, W, 3) RGB, or grey (H, W) or (H, W, 1);  conditions: its operating conditions by name,
                    for a monitor that reads them

        The layers that the monitor reads come with the model's answer, from one pass, where the network can tell them.
        An exception means that nothing was decided: treat it as a rejection. Scores can differ in their last bits from
        those of a run, which asks in batches of 64 and for layers apart.
        """
        columns = {name: np.asarray([value]) for name, value in (conditions or {}).items()}
        return self.check_batch(
            Batch(("image",), self._prepared(image)[None], np.zeros(1, np.int64), conditions=columns)
        )

    def check_batch(self, batch: Batch) -> Decision:
        """The same of a batch of one image, which has the size and the channels of the guard."""
        if not self._waits:
            return self._decide(batch)
        with self._lock:
            return self._decide(batch)

    def _decide(self, batch: Batch) -> Decision:
        with foreign_code(self._does_not_fit):
            signals, rows = self._one_pass.read(batch, self.fitted.represent_signals)
        probabilities = signals.probabilities[0]
        prediction = int(probabilities.argmax())
        labels = np.array([prediction])
        with foreign_code(self._does_not_fit):
            scores = self.fitted.scores(rows, self.rule)
            is_rejected = self._memory.decide(rows, bool(self.threshold.reject(scores, labels)[0]))
            threshold = float(self.threshold.thresholds(1, labels)[0])
        return Decision(
            accept=not is_rejected,
            score=float(scores[0]),
            threshold=threshold,
            prediction=prediction,
            class_name=self.class_names[prediction],
            confidence=float(probabilities[prediction]),
        )

    def _does_not_fit(self, error: BaseException) -> InputError:
        """What is said where the monitor fails on what it learned, which may have been read from a damaged file."""
        name = self.fitted.monitor.name
        return InputError(
            f"monitor {name} cannot decide ({first_line(error)}): what it learned does not fit; build it anew"
        )

    def _prepared(self, image: NDArray[np.uint8]) -> Images:
        """The image (H, W, C) in the channels and the size of the guard; an `InputError` where it is not an image."""
        pixels = np.asarray(image)
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or 0 in pixels.shape:
            raise InputError(
                f"an image is uint8 (H, W, 3) RGB or (H, W) grey, not {np.asarray(image).dtype} {np.shape(image)}"
            )
        if pixels.shape[2] > self.channels:
            raise InputError("this guard was made from grey images: give the image in grey, (H, W)")
        if pixels.shape[2] < self.channels:
            pixels = np.repeat(pixels, self.channels, axis=2)
        return np.ascontiguousarray(pixels if self.size is None else resize(pixels, self.size))

    def calibrated(self) -> CalibratedMonitor:
        """The monitor with its threshold, which can be saved by itself."""
        aim = Aim(self.threshold.rule.rejected)
        return CalibratedMonitor(self.fitted, aim, None, self.rule, self.threshold.threshold, None, ())

    def save(self, folder: str | Path) -> Path:
        """Write the monitor, the threshold and what is needed to find the model to a folder; the model stays where it
        is. Nothing is pickled."""
        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        (home / MANIFEST).unlink(missing_ok=True)
        self.calibrated().save(home / MONITOR)
        entry, sha = _plain_entry(self.entry, self.base, home)
        model = {
            "name": self.model.name,
            "fingerprint": self.model.fingerprint(),
            "entry": entry,
            "sha256": sha,
        }
        facts = {"class_names": self.class_names, "size": self.size, "channels": self.channels}
        tried = {"threshold": self.threshold.record(), "tried_on": [trial.record() for trial in self.tried_on]}
        write_json(home / GUARD, {"format": FORMAT, **tried, "model": model, **facts})
        commit(home, {"guard": FORMAT}, (GUARD, *(f"{MONITOR}/{name}" for name in (RECORD, ARRAYS, MANIFEST))))
        return home

    @classmethod
    def load(cls, folder: str | Path, model: str | Path | Mapping[str, Any] | Model | None = None) -> Self:
        """What `save` wrote. `model` is the one it was made with, where it is not found by its file; no other is taken.

        An ONNX model is looked for in the folder, then where it was when the guard was saved.
        """
        home = Path(folder)
        record = _read_record(home)
        try:
            stored, threshold = record["model"], IdThreshold.of_record(record["threshold"])
            class_names, channels = tuple(map(str, record["class_names"])), record["channels"]
            size = None if record["size"] is None else (int(record["size"][0]), int(record["size"][1]))
            if channels not in (1, 3) or (size is not None and not all(1 <= side <= MAX_SIDE for side in size)):
                raise ValueError("no picture has these channels and this size")
            name, fingerprint = str(stored["name"]), str(stored["fingerprint"])
            entry, sha = stored["entry"], stored["sha256"]
            tried_on = tuple(map(Trial.of_record, record.get("tried_on", ())))  # earlier versions tried none
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError, InputError):
            raise DamagedFile(f"{home / GUARD} is not a valid record of a guard: save the guard again") from None
        given = _found_entry(home, entry, sha, name) if model is None else model
        loaded = align(_loaded(given), class_names)
        if loaded.fingerprint() != fingerprint:
            raise InputError(
                f"the guard in {home} was made with another model than {loaded.name} with these settings: give that "
                f"one, {name}, as `model=`"
            )
        calibrated = CalibratedMonitor.load(home / MONITOR, loaded)
        kept = dict(given) if isinstance(given, Mapping) else None
        options = {"class_names": class_names, "size": size, "channels": channels, "entry": kept}
        return cls(loaded, calibrated.fitted, calibrated.rule, threshold, tried_on=tried_on, **options)


def load_guard(folder: str | Path, model: str | Path | Mapping[str, Any] | Model | None = None) -> Guard:
    """A saved guard, ready to check images; `model` where it is not found by its file: see `Guard.load`."""
    return Guard.load(folder, model)


def _check_not_fitted_on(model: Model, validation: Dataset) -> None:
    """Refuse images that a temperature or a variance of the model was fitted on."""
    if isinstance(model, ValidationFit) and model.loaded:
        known = {*identities(model.validation)} & {*identities(validation)}
        if known:
            raise InputError(
                f"the {model.fitted_thing} of model {model.name} was fitted on {len(known)} of the validation images: "
                "find the threshold on images of other objects"
            )
    for inner in model.wrapped():
        _check_not_fitted_on(inner, validation)


def _loaded(model: str | Path | Mapping[str, Any] | Model) -> Model:
    """The model; a bare torch module is refused: what pixels it takes stands nowhere, and a wrong guess is silent."""
    kind = None if isinstance(model, str | Path | Mapping | Model) else live_kind(model)
    if kind is not None and kind.kind == "torch":
        raise InputError(
            "a torch module does not say which pixels it takes: give `rw.load_model(net, range=..., size=...)` in its "
            "place, such as range='imagenet', size=224"
        )
    return load_model(model)


def _entry_of(model: Model) -> dict[str, Any] | None:
    """The entry of a model that was loaded from one ONNX file; None where it is not known how to load it again."""
    files = list(model.origin.files)
    return {"onnx": files[0]} if model.origin.kind == "onnx" and len(files) == 1 else None


def _plain_entry(
    entry: Mapping[str, Any] | None, base: Path, home: Path
) -> tuple[dict[str, Any], str] | tuple[None, None]:
    """The entry of an ONNX model with its path as it is seen from the folder of the guard, and the SHA-256 of its file.

    None and None for other models: they are given again when the guard is loaded.
    """
    if entry is None or not isinstance(entry.get("onnx"), str | Path):
        return None, None
    path = (base / entry["onnx"]).absolute()
    require_file(path, "model")
    plain = {**entry, "onnx": Path(os.path.relpath(path, home.absolute())).as_posix()}
    if isinstance(plain.get("classes"), str | Path):
        plain["classes"] = list(read_classes(base / plain["classes"]))
    try:
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError("the settings of the model cannot be saved: give numbers, texts and lists alone") from None
    return plain, digest_file(path)


def _found_entry(home: Path, entry: Any, sha: Any, name: str) -> dict[str, Any]:
    """The entry with the path of the model's file, in the folder or where it was; an `InputError` where it is not."""
    classes = entry.get("classes") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(entry.get("onnx"), str) or isinstance(classes, str):
        raise InputError(f"the guard in {home} cannot load its model {name} by itself: give it as `model=`")
    path = Path(entry["onnx"])
    file = next((candidate for candidate in (home / path.name, home / path) if candidate.is_file()), None)
    if file is None:
        raise InputError(f"the model {path.name} is not in {home}, nor where it was: put it there, or give `model=`")
    if digest_file(file) != sha:
        raise InputError(f"{file} is not the model that the guard in {home} was made with: put that one there")
    return {**entry, "onnx": str(file)}


def _read_record(home: Path) -> dict[str, Any]:
    """The record of a guard whose folder is whole."""
    require_file(home / GUARD, "guard")
    _, parts = check_whole(home, NO_NODE)
    if GUARD not in parts:
        raise DamagedFile(f"the manifest in {home} does not name a guard: save the guard again")
    try:
        record: Any = json.loads(read_checked(inside(home, GUARD), parts[GUARD]).decode("utf-8"))
    except (ValueError, RecursionError):
        raise DamagedFile(f"{home / GUARD} is not a valid record of a guard: save the guard again") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{home / GUARD} is of a format that this version does not read: save the guard again")
    return record
