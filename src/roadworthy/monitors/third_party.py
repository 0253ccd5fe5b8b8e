"""Monitors made elsewhere: a function of the user's, an ONNX file, or stored scores. None of them is opened up."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, foreign_code
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.parameters import registered
from roadworthy.core.validation import parse_size
from roadworthy.models.onnx import cpu_session, external_files, image_input, read_graph
from roadworthy.models.predictions import KEYS, AnswerIndex, answer_columns, answer_files, answer_tables
from roadworthy.models.preprocess import Preprocess, read_shape
from roadworthy.models.signals import Signals
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned
from roadworthy.monitors.opening import (
    MonitorOpening,
    NamesFiles,
    import_user_code,
    imported_code,
    whole_path,
)

DECISION_THRESHOLD = 0.5
"""Between a decision to reject, which scores 0, and one to accept, which scores 1."""
SHOWN = 3
"""Images that a message names."""


class ThirdParty(NamesFiles):
    """A monitor whose scores, or bare decisions (accept scores 1, reject scores 0), come from outside."""

    decides: bool | None
    sha256: str

    @property
    def own_threshold(self) -> float | None:
        """Between the two scores of a decision; None for scores."""
        return DECISION_THRESHOLD if self.decides else None

    @property
    def decides_itself(self) -> bool:
        """Whether it gives bare decisions."""
        return bool(self.decides)

    def as_named(self) -> dict[str, Any]:
        """Its settings but the hash."""
        return {key: value for key, value in self.parameters().items() if key != "sha256"}

    def checked_answer(self, answer: Any, images: int, source: str) -> Floats:
        """Scores (N,) from what was answered to N images: numbers, or True for accept where the monitor decides."""
        try:
            values = np.asarray(answer)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{source} must answer an array with one value per image: {error}") from None
        if values.shape != (images,):
            raise InputError(f"{source} answered {values.shape} to {images} images: it must answer one value per image")
        is_decision = values.dtype == np.bool_
        if is_decision and not self.decides:
            raise InputError(f"{source} answers True and False, not scores: set `decides=True` for decisions")
        if not is_decision and (self.decides or values.dtype.kind not in "iuf"):
            wanted = "True (accept) and False (reject), as `decides=True` says" if self.decides else "numbers"
            raise InputError(f"{source} answers values of type {values.dtype}: it must answer {wanted}")
        scores = values.astype(np.float64)
        undefined = int((~np.isfinite(scores)).sum())
        if undefined:
            raise InputError(f"{source} answered NaN or infinity to {undefined} of {images} images")
        return scores


@registered(MONITORS, "callable")
class CallableMonitor(ThirdParty):
    """A function of the user's from images to scores, higher = more in-distribution, or to decisions.

    function   `my.py:score`: it gets images (N, H, W, C) uint8, and the model's class probabilities (N, K) where it
               takes two arguments, and returns scores (N,). It is code, and so needs trust
    decides    True where it returns booleans (N,), True = accept
    version    any text that changes when the scores do, for a function in which such a change cannot be seen

    One thread at a time calls it. `sha256` is filled in: it stands for the function's code and all that it reads.
    """

    function: str
    decides: bool = False
    version: str = ""
    sha256: str = ""

    needs: ClassVar[frozenset[str]] = frozenset({"input", "probabilities"})

    def __post_init__(self) -> None:
        if not self.sha256:
            code = imported_code(self.name, self.function, self.version)
            object.__setattr__(self, "sha256", code.sha256(self.function, self.version))

    @classmethod
    def opened(cls, settings: Mapping[str, Any], opening: MonitorOpening) -> dict[str, Any]:
        """The settings with the whole name of the function, which is imported."""
        opened = dict(settings)
        if "function" in opened:
            opened["function"] = import_user_code(opened["function"], opening.base, opening.trust)
        return opened

    def read(self, signals: Signals, state: Learned) -> Floats:
        """What the function answers, (N,)."""
        code = imported_code(self.name, self.function, self.version, self.sha256)
        arguments: list[NDArray[Any]] = [signals.images.copy()]
        if _argument_count(code.function) > 1:
            arguments.append(signals.probabilities.copy())
        with code.lock, foreign_code(f"{self.function} of monitor {self.name}"):
            answer = code.function(*arguments)
        return self.checked_answer(answer, len(signals), f"{self.function} of monitor {self.name}")


def _argument_count(function: Any) -> int:
    """How many arguments a function must be given; one where this cannot be seen.

    >>> _argument_count(lambda images, probabilities: images), _argument_count(lambda images, scale=2: images)
    (2, 1)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional and parameter.default is parameter.empty for parameter in parameters)


@registered(MONITORS, "onnx_monitor")
class OnnxMonitor(ThirdParty):
    """An ONNX file from images to scores (N,) or (N, 1), higher = more in-distribution, or to decisions.

    input, output  their names in the graph, where it has several;  probabilities: the input, if any, that gets the
                   class probabilities (N, K) of the model
    range, layout, colour, size   as those of an ONNX model: see `OnnxModel`
    decides        True where the output holds booleans, True = accept

    `sha256` is filled in: that of the file and of the weights beside it.
    """

    path: str
    input: str = ""
    output: str = ""
    probabilities: str = ""
    range: str = "auto"
    layout: str = "auto"
    colour: str = "rgb"
    size: str | None = None
    decides: bool = False
    sha256: str = ""

    needs: ClassVar[frozenset[str]] = frozenset({"input", "probabilities"})

    def __post_init__(self) -> None:
        if not self.sha256:
            object.__setattr__(self, "sha256", self._open().sha256)

    @classmethod
    def opened(cls, settings: Mapping[str, Any], opening: MonitorOpening) -> dict[str, Any]:
        """The settings with the whole path."""
        return {key: whole_path(value, opening.base) if key == "path" else value for key, value in settings.items()}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """What the graph answers, (N,)."""
        graph = state.cached("graph", self._open, of=self.sha256)
        if graph.sha256 != self.sha256:
            raise InputError(f"monitor {self.name}: {self.path} has changed since the monitor was built: build it anew")
        probabilities = signals.probabilities if self.probabilities else None
        with foreign_code(f"{self.path} of monitor {self.name}"):
            answer = graph(signals.images, probabilities)
        return self.checked_answer(answer, len(signals), f"{self.path} of monitor {self.name}")

    def _open(self) -> _OnnxGraph:
        path = Path(self.path)
        graph = read_graph(path)
        hashes = [digest_file(file) for file in (path, *external_files(graph, path))]
        named = [value.name for value in graph.graph.output]
        output = self.output or (named[0] if len(named) == 1 else "")
        if output not in named:
            raise InputError(
                f"monitor {self.name}: {path} has the outputs {', '.join(named)}: name that of the scores as `output=`"
            )
        others = (self.probabilities,) if self.probabilities else ()
        name, dims, dtype = image_input(graph, path, self.input, others)
        layout, channels, size, batch = read_shape(dims, self.layout, parse_size(self.size), str(path))
        value_range = ("0-255" if dtype == "uint8" else "0-1") if self.range == "auto" else self.range
        preprocess = Preprocess(value_range, layout, self.colour, size, channels, dtype)
        with foreign_code(lambda error: InputError(f"ONNX Runtime cannot load {path}: {error}")):
            session = cpu_session(str(path))
        return _OnnxGraph(session, name, self.probabilities, output, preprocess, batch, digest(hashes))


@dataclass(frozen=True)
class _OnnxGraph:
    """A graph that is ready to run: `batch` is the number of images that it insists on, if it does."""

    session: Any
    image_input: str
    probabilities_input: str
    output: str
    preprocess: Preprocess
    batch: int | None
    sha256: str

    def __call__(self, images: NDArray[np.uint8], probabilities: NDArray[np.float32] | None) -> NDArray[Any]:
        """What it answers to images (N, H, W, C) and probabilities (N, K), one row per image; (N, 1) becomes (N,)."""
        step = self.batch or max(1, len(images))
        answers = []
        for start in range(0, len(images), step):
            rows = np.minimum(np.arange(start, start + step), len(images) - 1)
            feed: dict[str, Any] = {self.image_input: self.preprocess(images[rows])}
            if probabilities is not None:
                feed[self.probabilities_input] = probabilities[rows]
            (answer,) = self.session.run([self.output], feed)
            answers.append(np.asarray(answer))
        values = np.concatenate(answers)[: len(images)]
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


@registered(MONITORS, "stored")
class StoredMonitor(ThirdParty):
    """Scores, or decisions, that a monitor gave elsewhere: a CSV or Parquet file, or a folder of them.

    scores     the path. Columns are `stimulus` and `id`, as in the manifest that `roadworthy export` writes, and
               `score` (higher = more in-distribution) or `reject` (1 = reject, 0 = accept); others are not read
    decides    filled in: True where the column is `reject`

    Every image that is shown needs a row of its own. `sha256` is filled in: that of the files.
    """

    scores: str
    decides: bool | None = None
    sha256: str = ""

    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def __post_init__(self) -> None:
        if self.sha256 and self.decides is not None:
            return
        stored = _StoredScores(Path(self.scores))
        if self.decides not in (None, stored.decides):
            wanted, held = ("reject", "score") if self.decides else ("score", "reject")
            raise InputError(f"monitor {self.name}: {self.scores} has a column {held}, not {wanted}: leave decides out")
        object.__setattr__(self, "decides", stored.decides)
        object.__setattr__(self, "sha256", stored.sha256)

    @classmethod
    def opened(cls, settings: Mapping[str, Any], opening: MonitorOpening) -> dict[str, Any]:
        """The settings with the whole path."""
        return {key: whole_path(value, opening.base) if key == "scores" else value for key, value in settings.items()}

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The stored scores, (N,), by the stimulus and the id of each image."""
        stored = state.cached("scores", lambda: _StoredScores(Path(self.scores)), of=self.sha256)
        if stored.sha256 != self.sha256:
            raise InputError(
                f"monitor {self.name}: {self.scores} has changed since the monitor was built: build it anew"
            )
        return stored.of(signals.batch.stimulus, signals.batch.ids)

    def check_complete(self, expected: Mapping[str, Any]) -> None:
        """Refuse, before anything runs, a file that lacks an image of a stimulus (key -> ids) that will be shown."""
        stored = _StoredScores(Path(self.scores))
        for stimulus, ids in expected.items():
            stored.of(stimulus, ids)


class _StoredScores:
    """The rows of the files of a stored monitor: scores by stimulus and image id, decisions as 1 (accept) and 0."""

    def __init__(self, path: Path) -> None:
        self.path, files = path, answer_files(path, "scores of a monitor")
        columns = answer_columns(files[0])
        for key in KEYS:
            if key not in columns:
                raise InputError(f"{files[0]} has no column {key!r}: take both from the manifest of an exported study")
        named = [name for name in ("score", "reject") if name in columns]
        if len(named) != 1:
            raise InputError(
                f"{files[0]} needs a column score, or a column reject, and not {' and '.join(named) or 'neither'}"
            )
        self.decides = named == ["reject"]
        self._index, parts = AnswerIndex(path), []
        for file in files:
            missing = {*KEYS, named[0]} - set(answer_columns(file))
            if missing:
                raise InputError(f"{file} has no column {min(missing)!r}: all files of a folder need the same ones")
            for table in answer_tables(file, [*KEYS, named[0]], named[0]):
                if any(table[key].null_count for key in KEYS):
                    raise InputError(f"{file} has rows without {' or '.join(KEYS)}")
                self._index.add(table["stimulus"], table["id"])
                parts.append(_numbers(table, named[0], file))
        self._index.finish()
        if not self._index.rows:
            raise InputError(f"{path} holds no scores")
        values = np.concatenate(parts)
        is_wrong = ~np.isin(values, (0.0, 1.0)) if self.decides else ~np.isfinite(values)
        if is_wrong.any():
            held = "other values than 0 and 1" if self.decides else "NaN, infinity or gaps"
            named_rows = self._index.some(np.flatnonzero(is_wrong))
            raise InputError(f"{path} holds {held} in {int(is_wrong.sum())} of {len(values)} rows: {named_rows}")
        self._scores: Floats = 1.0 - values if self.decides else values
        self.sha256 = digest([digest_file(file) for file in files])

    def of(self, stimulus: str, ids: Any) -> Floats:
        """The scores (N,) of images; an `InputError` that names those without one."""
        rows = self._index.find(stimulus, ids)
        missing = [image for image, row in zip(ids, rows, strict=True) if row < 0]
        if missing:
            named = ", ".join(f"({stimulus}, {image})" for image in dict.fromkeys(missing[:SHOWN]))
            more = ", ..." if len(missing) > SHOWN else ""
            raise InputError(
                f"{self.path} holds no score of {len({*missing})} images that are shown: {named}{more}; export the "
                "study, and give every image of the manifest a score"
            )
        return np.asarray(self._scores[rows])


def _numbers(table: pa.Table, column: str, file: Path) -> Floats:
    """A column (N,) as numbers, gaps as NaN."""
    try:
        return np.asarray(table[column].cast(pa.float64(), safe=False).to_numpy(), np.float64)
    except pa.ArrowException:
        raise InputError(f"{file}: the column {column!r} holds no numbers") from None
