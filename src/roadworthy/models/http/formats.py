"""Wire formats: how a tensor is written into a request and class scores are read from its answer. A file each."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.registry import Registry
from roadworthy.models.http.address import Address
from roadworthy.models.http.client import Client
from roadworthy.models.http.connection import Answer, Request
from roadworthy.models.preprocess import Preprocess


@dataclass(frozen=True)
class InputSettings:
    """What the user says of the input and output; None (or `auto`) where nothing was said."""

    range: str | None = None
    layout: str = "auto"
    colour: str = "rgb"
    size: tuple[int, int] | None = None
    output: str | None = None
    version: str | None = None

    def given(self) -> list[str]:
        """The settings that were given, but for size and version, which every format takes."""
        fresh = InputSettings()
        return [name for name in ("range", "layout", "colour", "output") if getattr(self, name) != getattr(fresh, name)]


@dataclass(frozen=True)
class Scores:
    """Class scores (N, K) of one answer. `kind` is what the answer calls them, empty where it does not say."""

    rows: NDArray[np.float64]
    kind: str = ""


class WireFormat(ABC):
    """How one server is asked. It is made with a client, and may ask it what it takes.

    preprocess     from images to the tensor that `request` writes
    fixed_batch    images that a request must hold; None: any number
    version        the version that the server states for the model; None where it states none
    """

    name: ClassVar[str]
    preprocess: Preprocess
    fixed_batch: int | None = None
    version: str | None = None

    @abstractmethod
    def __init__(self, client: Client, settings: InputSettings) -> None:
        """Prepare for a server; settings that mean nothing to the format are refused."""

    @classmethod
    def fits(cls, address: Address) -> bool:
        """Whether an address by itself says that this format is spoken there."""
        return False

    @abstractmethod
    def request(self, tensor: NDArray[Any]) -> Request:
        """The request for a tensor of N images."""

    @abstractmethod
    def scores(self, answer: Answer, count: int) -> Scores:
        """The class scores in the answer about `count` images; what is not that is a `ModelError`."""

    def settings(self) -> dict[str, Any]:
        """What besides the tensor decides an answer, for the fingerprint."""
        return {}


FORMATS: Registry[type[WireFormat]] = Registry("http_format")
"""Wire formats by name. Another one is a class in a file of this folder that `__init__.py` imports."""


def format_for(chosen: str, address: Address) -> type[WireFormat]:
    """The format that was chosen; `auto` is the one that the address names, else `json`."""
    if chosen != "auto":
        return FORMATS.get(chosen)
    return next((FORMATS.get(name) for name in FORMATS if FORMATS.get(name).fits(address)), FORMATS.get("json"))


class _Twice(ValueError):
    """A key of a JSON object that it has twice, of which it cannot be told which counts."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise _Twice(name)
        content[name] = value
    return content


def read_json(client: Client, answer: Answer) -> dict[str, Any]:
    """The JSON object in an answer; anything else is a `ModelError`."""
    kind = answer.content_type
    if kind != "application/json" and not kind.endswith("+json"):
        raise ModelError(f"{client.address} answered {client.secrets.safe(kind) or 'no content type'}, not JSON")
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise ModelError(f"{client.address} answered compressed content, which was not asked for")
    try:
        content = json.loads(answer.body, object_pairs_hook=_each_once)
    except _Twice as error:
        name = client.secrets.safe(str(error))
        raise ModelError(f"{client.address} answered JSON that has the key {name!r} twice") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{client.address} answered {len(answer.body):,} bytes that are not JSON") from None
    if not isinstance(content, dict):
        raise ModelError(f"{client.address} answered a JSON {type(content).__name__}, not an object")
    return content


def read_array(client: Client, values: Any, what: str) -> NDArray[np.float64]:
    """Nested lists of numbers from JSON as an array; all else, such as true, null and text, is a `ModelError`."""
    try:
        array = np.array(values)
    except (ValueError, RecursionError, OverflowError):
        array = np.array(None)
    if not isinstance(values, list) or array.dtype.kind not in "fiu" or _holds_booleans(values):
        raise ModelError(f"{client.address} answered {what} that are not lists of numbers of equal length")
    return array.astype(np.float64)


def _holds_booleans(values: list[Any]) -> bool:
    """Whether true or false stands somewhere in nested lists; NumPy takes them for 1 and 0 where numbers are beside."""
    return any(_holds_booleans(value) if isinstance(value, list) else isinstance(value, bool) for value in values)


def refuse_settings(name: str, given: list[str], instead: str) -> None:
    """Refuse settings that a format makes no use of."""
    if given:
        raise InputError(f"the http format {name} makes no use of `{given[0]}=`: {instead}")


def check_version(client: Client, content: Mapping[str, Any], expected: str | None) -> None:
    """Refuse an answer whose `model_version` is not the one that was expected: the model was replaced meanwhile."""
    stated = content.get("model_version")
    if expected is None or stated is None or str(stated) == expected:
        return
    raise ModelError(
        f"{client.address} answered for the model version {client.secrets.safe(str(stated))!r}, not {expected!r}: give "
        "that as `version=`"
    )
