"""One connection to a server: a request and its whole answer within a time limit, whatever the server does."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roadworthy.models.http.address import Address

MOST_BYTES = 32 * 2**20
"""Bytes of an answer at most; what is longer is not read to its end."""
PIECE = 2**16


class TooLong(Exception):
    """An answer of more than `MOST_BYTES` bytes."""


class CutShort(Exception):
    """An answer that ended before its end."""


@dataclass(frozen=True)
class Request:
    """What is sent, but for the headers that every request has."""

    method: str
    target: str
    body: bytes = b""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came, whole: its status, its headers and its bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The type of its content without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Connection:
    """A connection that is kept between requests, for one thread."""

    def __init__(self, address: Address, context: ssl.SSLContext | None) -> None:
        self._address, self._context = address, context
        self._http: _TimedConnection | None = None

    def exchange(self, request: Request, headers: Mapping[str, str], seconds: float) -> Answer:
        """The answer to a request, all of it within so many seconds; what goes wrong is raised as it is.

        A connection that the server closed since the last request is opened again.
        """
        until = time.monotonic() + seconds
        was_open = self._http is not None
        try:
            return self._exchange(request, headers, until)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ConnectionAbortedError):
            if not was_open:
                raise
        return self._exchange(request, headers, until)

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _exchange(self, request: Request, headers: Mapping[str, str], until: float) -> Answer:
        try:
            if self._http is None:
                self._http = _TimedConnection(self._address, self._context)
            connection = self._http
            connection.until = until
            own = {"Content-Type": request.content_type} if request.content_type else {}
            sent = {"Accept": "application/json", "Accept-Encoding": "identity", **own, **request.headers, **headers}
            connection.request(request.method, request.target, request.body or None, sent)
            with connection.getresponse() as response:
                body = _whole(response)
                answer = Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, body)
                ends = response.will_close
        except BaseException:
            self.close()
            raise
        if ends:
            self.close()
        return answer


def _whole(response: http.client.HTTPResponse) -> bytes:
    """The bytes of an answer, no more than `MOST_BYTES`."""
    if (response.length or 0) > MOST_BYTES:
        raise TooLong
    pieces, count = [], 0
    while piece := response.read(PIECE):
        pieces.append(piece)
        count += len(piece)
        if count > MOST_BYTES:
            raise TooLong
    if response.length:  # of the bytes that it announced, so many did not come
        raise CutShort
    return b"".join(pieces)


class _TimedConnection(http.client.HTTPConnection):
    """An HTTP connection on which everything ends at one point in time, `until`: a server that drips cannot hold it."""

    until = 0.0

    def __init__(self, address: Address, context: ssl.SSLContext | None) -> None:
        super().__init__(address.host, address.port)
        self._context = context

    def left(self) -> float:
        """Seconds until the end."""
        seconds = self.until - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def connect(self) -> None:
        """Open the connection, with TLS where there is a context for it."""
        opened = socket.create_connection((self.host, self.port), self.left())
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                opened.settimeout(self.left())
                opened = self._context.wrap_socket(opened, server_hostname=self.host)
        except BaseException:
            opened.close()
            raise
        self.sock = _TimedSocket(opened, self)


class _TimedSocket:
    """What `http.client` uses of a socket; each step gets the time that is left.

    `http.client` closes it as soon as the head of an answer says that the server will, and reads the rest of the answer
    after that: so it stays open until the last of its files is closed, too.
    """

    def __init__(self, opened: socket.socket, connection: _TimedConnection) -> None:
        self._socket, self._connection = opened, connection
        self._files, self._is_closed = 0, False

    def sendall(self, content: Any) -> None:
        view = memoryview(content)
        for start in range(0, len(view), PIECE):
            self._socket.settimeout(self._connection.left())
            self._socket.sendall(view[start : start + PIECE])

    def receive(self, buffer: Any) -> int:
        self._socket.settimeout(self._connection.left())
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        self._files += 1
        return io.BufferedReader(_Incoming(self))

    def close_file(self) -> None:
        self._files -= 1
        self._close_unused()

    def close(self) -> None:
        self._is_closed = True
        self._close_unused()

    def _close_unused(self) -> None:
        if self._is_closed and not self._files:
            self._socket.close()


class _Incoming(io.RawIOBase):
    """What comes from a timed socket, as a file."""

    def __init__(self, timed: _TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._timed.receive(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._timed.close_file()
