"""The web address of a model: what may stand in it, and how messages name it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from roadworthy.core.errors import InputError

PORTS = {"http": 80, "https": 443}
AS_HEADER = "give it in a header from an environment variable: `headers: {Authorization: env:MY_TOKEN}`"
_START = re.compile(r"(https?):(//|/(?!/))", re.IGNORECASE)
"""How an address begins; in a `Path` two slashes become one."""
_SECRET_NAMES = re.compile(
    r"(.*[_.-])?(\w*key|\w*token|\w*secret|pass\w*|pwd|sig|\w*signature|\w*auth\w*|credentials?|code|jwt|bearer"
    r"|session\w*|appid)"
)


@dataclass(frozen=True)
class Address:
    """Where a server is asked: scheme, host and port, and the path with its query as it stands in a request."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.target.partition("?")[0]

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: only there are requests sent."""
        return self.scheme, self.host, self.port

    @property
    def is_this_machine(self) -> bool:
        """Whether requests stay on this machine."""
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")

    @property
    def whole(self) -> str:
        """The address with its query, in one form."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.target}"

    def at(self, target: str) -> Address:
        """The same server at another path."""
        return Address(self.scheme, self.host, self.port, target)

    def __str__(self) -> str:
        """As messages name it: without its query."""
        return self.whole.partition("?")[0]


def is_web_model(text: str | os.PathLike[str]) -> bool:
    """Whether a text names a model behind HTTP.

    >>> is_web_model("http://127.0.0.1:8080/predict"), is_web_model("s3://bucket/v3.onnx")
    (True, False)
    """
    return _START.match(os.fspath(text)) is not None


def parse_address(text: str | os.PathLike[str]) -> Address:
    """The address in a text; one that is not complete, or holds a secret, is an `InputError` that does not repeat it.

    >>> print(parse_address("HTTP://localhost:8080/v2/models/signs?x=1"))
    http://localhost:8080/v2/models/signs
    """
    given = _START.sub(lambda start: f"{start[1].lower()}://", os.fspath(text), count=1)
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError("the web address of a model cannot be read: write http://HOST:PORT/PATH") from None
    if parts.username is not None or parts.password is not None:
        raise InputError(f"the web address of a model at {host} holds a user or a password: {AS_HEADER}")
    if parts.scheme not in PORTS or not host:
        raise InputError("the web address of a model needs a host: write http://HOST:PORT/PATH")
    if port == 0:
        raise InputError(f"the web address of a model at {host} has the port 0: write http://HOST:PORT/PATH")
    if not re.fullmatch(r"[\x21-\x7e]+", given) or parts.fragment:
        raise InputError(
            f"the web address of a model at {host!r} has a blank, a fragment (#) or a character that is not ASCII: "
            "write it percent-encoded"
        )
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET_NAMES.fullmatch(name.lower()):
            raise InputError(
                f"{name!r} in the web address of a model at {host} looks like a secret, which would be written into "
                f"the run: {AS_HEADER}"
            )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, host, port or PORTS[parts.scheme], target)
