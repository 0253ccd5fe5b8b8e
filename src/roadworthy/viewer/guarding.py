"""What stands before the viewer: only questions, only to hosts that it is known by, and answers that load nothing else.

A page of a stranger that a browser shows can make it ask an address of this machine under a name of its own (DNS
rebinding); so a request that names another host is refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""The content security policy of the viewer's own pages."""
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""That of a report, which somebody else may have written: its own policy holds too, and it belongs to no origin."""
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """Whether an address to listen at reaches this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str | None:
    """The host that a Host header names, without its port; None where it makes no sense.

    >>> host_of("localhost:8723"), host_of("[::1]:8723"), host_of("127.0.0.1"), host_of("a b"), host_of("")
    ('localhost', '::1', '127.0.0.1', None, None)
    """
    host, port = header, ""
    if header.startswith("["):
        host, bracket, port = header[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    elif header.count(":") == 1:
        host, _, port = header.partition(":")
    if not host or (port and not port.isdigit()) or any(sign in host for sign in " \t\"'<>/\\@?#%"):
        return None
    return host.lower().rstrip(".") if not header.startswith("[") else host.lower()


class Guard:
    """Wraps an application: checks host and method of every request, and adds headers to every answer.

    A viewer that listens everywhere is known by the names of this machine, and by any number: a number is no name that
    somebody could make lead here.
    """

    def __init__(self, app: App, host: str) -> None:
        self._app = app
        self._names = {*LOOPBACK, host.strip("[]").lower()} - {*EVERYWHERE}
        self._everywhere = host.strip("[]") in EVERYWHERE
        if self._everywhere:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def knows(self, header: str) -> bool:
        """Whether a Host header names this viewer."""
        host = host_of(header)
        if host is None:
            return False
        if host in self._names:
            return True
        try:
            number = ipaddress.ip_address(host)
        except ValueError:
            return False
        return self._everywhere or number.is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a web socket is not answered
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self.knows(hosts[0].decode("latin-1")):
            await _refuse(send, 421, "This viewer is not known by that name.")
            return
        if scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "This viewer only answers; it changes nothing.", [(b"allow", b"GET, HEAD")])
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [*message.get("headers", [])]
                there = {name.lower() for name, _ in own}
                added = {b"content-security-policy": POLICY.encode(), **HEADERS}
                message["headers"] = own + [(name, value) for name, value in added.items() if name not in there]
            await send(message)

        await self._app(scope, receive, send_guarded)


async def _refuse(send: Send, status: int, why: str, further: list[tuple[bytes, bytes]] | None = None) -> None:
    body = f"{why}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"content-security-policy", POLICY.encode()), *HEADERS.items(), *(further or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
