"""Headers whose values come from environment variables, and the care that no message repeats them."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from roadworthy.core.errors import InputError, one_line

OURS = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("host", "inference-header-content-length", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that follow from the request itself."""
FROM_ENVIRONMENT = "env:"
HOW = "write `headers: {Authorization: env:MY_TOKEN}` and set the environment variable MY_TOKEN to the value"
LEAST_REPEATED = 6
"""So many characters of a secret in a row count as a repetition of it."""
SHOWN = 200
"""Characters of a server's text that a message shows at most."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variables_of(headers: Any) -> dict[str, str]:
    """The environment variable of each header, by its name; a value that is written out is an `InputError`.

    No message repeats a value: it may be the secret.

    >>> variables_of({"Authorization": "env:MY_TOKEN"})
    {'Authorization': 'MY_TOKEN'}
    """
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise InputError(f"headers of an http model are a mapping of names to environment variables: {HOW}")
    variables = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError("headers of an http model hold a name that no header can have: use letters, digits and -")
        if name.lower() in OURS:
            raise InputError(f"the header {name} of an http model follows from the request: leave it out")
        variable = value.removeprefix(FROM_ENVIRONMENT) if isinstance(value, str) else ""
        if not isinstance(value, str) or variable == value or not _VARIABLE.fullmatch(variable):
            raise InputError(
                f"the value of the header {name} stands in the settings, so that it would be written into the run: "
                f"{HOW}"
            )
        variables[name] = variable
    return variables


def values_of(variables: Mapping[str, str]) -> dict[str, str]:
    """The value of each header, from its environment variable; one that is not set or cannot be sent is an error."""
    values = {}
    for name, variable in variables.items():
        value = os.environ.get(variable, "").strip()
        if not value:
            raise InputError(
                f"the environment variable {variable}, which holds the header {name} of an http model, is not set"
            )
        if not re.fullmatch(r"[\x20-\x7e]+", value):
            raise InputError(
                f"the environment variable {variable}, which holds the header {name} of an http model, has a line "
                "break or a character that is not ASCII"
            )
        values[name] = value
    return values


class Secrets:
    """What no message may repeat: the values of headers, as they are and in usual encodings.

    >>> secrets = Secrets(["Bearer abcdefghij"])
    >>> secrets.safe("no class stop"), secrets.safe("bad token ABCDEFG")
    ('no class stop', 'a text that is left out, as it repeats a part of a header')
    """

    def __init__(self, values: Iterable[str]) -> None:
        pieces = {piece for value in values for piece in _forms(value)}
        self._pieces = {
            piece[start : start + LEAST_REPEATED].lower()
            for piece in pieces
            for start in range(max(1, len(piece) - LEAST_REPEATED + 1))
        } - {""}

    def __repr__(self) -> str:
        return "Secrets()"

    def safe(self, text: str) -> str:
        """A text from a server as one short line, or words in its place where it repeats a part of a secret."""
        lowered = text.lower()
        if any(piece in lowered for piece in self._pieces):
            return "a text that is left out, as it repeats a part of a header"
        line = one_line(text)
        return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _forms(value: str) -> set[str]:
    """The parts of a header's value but for its scheme (`Bearer`), plain, decoded and encoded."""
    words = value.split()
    parts = set(words[1:] or words)
    for part in [*parts]:
        with suppress(ValueError):  # binascii.Error is one
            parts.add(base64.b64decode(part, validate=True).decode("ascii"))
        parts |= {quote(part, safe=""), base64.b64encode(part.encode()).decode().rstrip("="), part.encode().hex()}
    return parts
