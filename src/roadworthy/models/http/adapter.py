"""A model behind HTTP: images go to a server that the user names, class scores come back and are checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.types import Prediction
from roadworthy.core.validation import MOST_BATCH, check_number, check_whole, parse_size
from roadworthy.models.base import Adapter
from roadworthy.models.classes import check_class_names, read_class_names
from roadworthy.models.http.address import parse_address
from roadworthy.models.http.client import Client, Effort, NoAnswer, Rejected
from roadworthy.models.http.connection import Answer
from roadworthy.models.http.formats import InputSettings, Scores, format_for
from roadworthy.models.http.headers import values_of, variables_of
from roadworthy.models.isolation import Isolation, Limits
from roadworthy.models.outputs import OUTPUTS, PROBE_SIZES, PROBES, are_probabilities, decide, probe_images
from roadworthy.models.preprocess import parse_choice

BATCH_IMAGES = 16
TRIED_SIZES = PROBE_SIZES[:3]
"""Sizes of the images that a server is tried with where nothing says which it takes."""
OF_SIZES = frozenset({400, 413, 415, 422, 500})
"""Statuses that a server may answer to images of a size which it does not take."""


def check_http_entry(url: Any, settings: Mapping[str, Any]) -> None:
    """Refuse an address or headers that hold a secret, before anything is asked or written."""
    parse_address(str(url))
    variables_of(settings.get("headers"))


class HttpModel(Adapter):
    """A classifier behind a web address, asked in a wire format.

    format       `json`, `multipart` or `kserve`; `auto` is `kserve` for .../v2/models/NAME, else `json`
    batch        images in one request;  the other settings of `Effort` say how hard the server is asked
    headers      names of headers and the environment variables that hold their values: `{Authorization: env:MY_TOKEN}`
    ca           a file of certificates (PEM) that are trusted besides the system's
    version      any text that changes when the answers do; of `kserve` the version that the server states
    output       of `kserve`: the output that holds the class scores;  range, layout, colour of its input
    size         (H, W) that images are brought to before they are sent;  classes names in the model's order
    """

    concurrent = True
    check_entry = staticmethod(check_http_entry)

    def __init__(
        self,
        url: str | Path,
        *,
        format: str = "auto",
        timeout: float = Effort.timeout,
        retries: int = Effort.retries,
        pause: float = Effort.pause,
        concurrency: int = Effort.concurrency,
        rate: float | None = Effort.rate,
        batch: int = BATCH_IMAGES,
        headers: Any = None,
        ca: str | Path | None = None,
        version: str | None = None,
        output: str | None = None,
        outputs: str = "auto",
        range: str | None = None,
        layout: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        classes: str | Path | Sequence[str] | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        self.address = parse_address(url)
        self.name = name or Path(self.address.path).stem or self.address.host
        effort = Effort(timeout, retries, pause, concurrency, rate)
        _check_effort(effort, batch)
        parse_choice("outputs", outputs, OUTPUTS)
        wire_format = format_for(format, self.address)
        names = read_class_names(classes, base)
        values = values_of(variables_of(headers))
        if values and self.address.scheme == "http" and not self.address.is_this_machine:
            warnings.warn(
                f"the header {', '.join(values)} goes to {self.address} without encryption: use https", stacklevel=2
            )
        self.client = Client(self.address, effort, values, None if ca is None else base / ca)
        settings = InputSettings(range, layout, colour, parse_size(size), output, version)
        with _as_input_error():
            self._format = wire_format(self.client, settings)
        self.preprocess, self.input_size = self._format.preprocess, self._format.preprocess.size
        self._batch = self._format.fixed_batch or batch
        self.images_per_second = None if rate is None else rate * self._batch
        with _as_input_error():
            self._settle(outputs)
        self.version = version if version is not None else self._format.version
        self.class_names = check_class_names(names, self.num_classes, str(self.address))
        self.details = {"kind": "http", "address": str(self.address), "format": wire_format.name}

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """The server's answer to a tensor of N images, asked in requests of `batch` images each."""
        rows = [scores.rows for scores in self._asked(tensor, self._checked)]
        return self.prediction_of(np.concatenate(rows), self.tensor_size(tensor))

    def _asked(
        self, tensor: NDArray[Any], checked: Callable[[Scores, int], None], settled: Collection[int] = ()
    ) -> list[Scores]:
        """The scores of each request for a tensor; `checked` refuses scores of so many images that are none."""
        parts = [tensor[start : start + self._batch] for start in range(0, len(tensor), self._batch)]

        def read(number: int, answer: Answer) -> Scores:
            count = len(parts[number])
            sent = self._format.fixed_batch or count
            scores = self._format.scores(answer, sent)
            checked(scores, sent)
            return Scores(scores.rows[:count], scores.kind)

        return self.client.ask_all([self._format.request(self._filled(part)) for part in parts], read, settled)

    def fingerprint(self) -> str:
        """Hash of the version, that of the server too, the address, the images per request and how images are sent and
        answers read."""
        if self.version is None:
            raise InputError(
                f"the model behind {self.address} can be replaced unseen, so that stored answers could be those of "
                "another: give `version='TEXT'`, and another text with every change"
            )
        settings = {**self.preprocess.settings(), **self._format.settings(), "outputs": self.outputs}
        known = {"kind": "http", "version": self.version, "address": self.address.whole, "batch": self._batch}
        if self._format.version not in (None, self.version):
            known["server_version"] = self._format.version
        return digest({**known, "format": self._format.name, "settings": settings})

    def describe(self) -> dict[str, Any]:
        """What is in use, for people, and how long requests took so far."""
        latency = self.client.times.text()
        return {**super().describe(), **({"latency": latency} if latency else {}), "batch": f"{self._batch} a request"}

    def _settle(self, declared: str) -> None:
        """Show probe images: how many classes come back, and whether they are probabilities."""
        self.num_classes = 0
        parts = self._probed()
        kinds, rows = {part.kind for part in parts}, np.concatenate([part.rows for part in parts])
        kind = kinds.pop()
        if kinds or (kind and declared not in ("auto", kind)):
            raise InputError(f"{self.address} answers {kind} where {declared} were declared: leave out `outputs=`")
        self.num_classes = rows.shape[1]
        self.outputs = decide(kind or declared, rows, str(self.address), "calls them" if kind else "")
        self.capabilities = frozenset({"probabilities"} | ({"logits"} if self.outputs == "logits" else set()))

    def _probed(self) -> list[Scores]:
        """The scores of a few probe images, of the first size that the server takes."""
        *others, last = [self.input_size] if self.input_size else TRIED_SIZES
        for size in others:
            try:
                return self._of_probes(size, OF_SIZES)
            except (NoAnswer, Rejected) as error:
                if error.status not in OF_SIZES:
                    raise
        try:
            return self._of_probes(last)
        except (NoAnswer, Rejected) as error:
            if self.input_size is not None or error.status not in OF_SIZES:
                raise
            hint = "if it needs images of a certain size, give `size='HxW'`"
            raise type(error)(f"{error}; {hint}", error.status) from None

    def _of_probes(self, size: tuple[int, int], settled: Collection[int] = ()) -> list[Scores]:
        images = probe_images(size, self.preprocess.channels or 3, PROBES)
        return self._asked(self.preprocess(images), self._check_shape, settled)

    def _filled(self, part: NDArray[Any]) -> NDArray[Any]:
        """A part with its last image repeated until the server's fixed batch is full."""
        lacking = (self._format.fixed_batch or len(part)) - len(part)
        return np.concatenate([part, np.repeat(part[-1:], lacking, axis=0)]) if lacking else part

    def _checked(self, scores: Scores, count: int) -> None:
        """Refuse scores that are not what the server answered when the model was opened."""
        if scores.kind not in ("", self.outputs):
            raise ModelError(f"{self.address} answered {scores.kind}, and {self.outputs} before")
        self._check_shape(scores, count)
        if self.outputs == "probabilities" and not are_probabilities(scores.rows).all():
            sums = scores.rows.sum(axis=1)
            raise ModelError(
                f"{self.address} answered rows that are not probabilities (smallest {scores.rows.min():.4g}, sums "
                f"{sums.min():.4g} to {sums.max():.4g})"
            )

    def _check_shape(self, scores: Scores, count: int) -> None:
        """Refuse scores that are not a row of finite numbers per image, of as many classes as before."""
        shape = scores.rows.shape
        if len(shape) != 2 or shape[0] != count or (self.num_classes and shape[1] != self.num_classes):
            wanted = f"{count} rows of {self.num_classes or 'at least 2'} classes"
            raise ModelError(f"{self.address} answered {'x'.join(map(str, shape))} to {count} images, not {wanted}")
        with np.errstate(over="ignore"):  # what is too large for float32 is infinite
            bad = int((~np.isfinite(scores.rows.astype(np.float32))).any(axis=1).sum())
        if bad:
            raise ModelError(f"{self.address} answered NaN or infinity for {bad} of {count} images")


@contextmanager
def _as_input_error() -> Iterator[None]:
    """While a model is opened: an answer that is none is a mistake of the settings; no answer is the server's."""
    try:
        yield
    except NoAnswer:
        raise
    except ModelError as error:
        raise InputError(str(error)) from None


def _check_effort(effort: Effort, batch: int) -> None:
    """Refuse settings that no server can be asked with."""
    check_number("timeout of an http model", effort.timeout, 0.01, 3600)
    check_whole("retries of an http model", effort.retries, 0, 100)
    check_number("pause of an http model", effort.pause, 0.001, 60)
    check_whole("concurrency of an http model", effort.concurrency, 1, 256)
    check_whole("batch of an http model", batch, 1, MOST_BATCH)
    if effort.rate is not None:
        check_number("rate of an http model", effort.rate, 0.001, 1_000_000)


def http_limits(settings: Mapping[str, Any]) -> Limits:
    """What the process of a model behind HTTP may take: each request has its own time limit, so that this one only
    ends what hangs in spite of it."""
    known = {key: settings[key] for key in ("timeout", "retries", "concurrency", "rate") if settings.get(key)}
    effort = Effort(**known)
    of_batch = math.ceil(MOST_BATCH / max(1, settings.get("batch") or BATCH_IMAGES))
    at_start = len(TRIED_SIZES) * PROBES + 2

    def seconds(requests: int) -> float:
        turns = requests * (effort.retries + 1) / effort.rate if effort.rate else 0.0
        return math.ceil(requests / max(1, effort.concurrency)) * effort.longest + turns

    return Limits(seconds=seconds(of_batch), start=Limits.start + seconds(at_start))


HTTP_ISOLATION = Isolation(needs_trust=False, most_processes=1, limits=http_limits)
"""One process, so that concurrency and rate are those of the model; no code of its owner runs here."""
