"""Asking a server: several requests at once, at a limited rate, each repeated only where no whole answer came."""

from __future__ import annotations

import http.client
import queue
import random
import re
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin
from weakref import finalize

from roadworthy.core.errors import InputError, ModelError
from roadworthy.models.http.address import Address, parse_address
from roadworthy.models.http.connection import MOST_BYTES, Answer, Connection, CutShort, Request, TooLong
from roadworthy.models.http.headers import Secrets

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may get an answer."""
FOLLOWED = frozenset({307, 308})
"""Redirects that keep the request as it is; they are followed on the same server."""
MOST_REDIRECTS = 3
NAME_IT = "name the address that answers"
LONGEST_PAUSE = 30.0
"""Seconds between two tries at most, unless the server asks for more."""
LONGEST_WAIT = 60.0
"""Seconds that a server may ask to wait (`Retry-After`); one that asks for more has failed."""
KEPT_TIMES = 10_000
"""How many requests the median of their times is made of."""

Result = TypeVar("Result")


class _OfServer(ModelError):
    """What a server did; `status` is that of its last answer, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NoAnswer(_OfServer):
    """No whole answer came, however often it was asked."""


class Rejected(_OfServer):
    """The server has answered, and will answer the same request so again."""


@dataclass(frozen=True)
class Effort:
    """How hard a server is asked.

    timeout       seconds that one request may take, from the connection to the last byte
    retries       how often a request is repeated;  pause seconds before the first time, then twice as many each time
    concurrency   requests in flight at once;  rate requests per second, None: as fast as they are answered
    """

    timeout: float = 30.0
    retries: int = 4
    pause: float = 0.5
    concurrency: int = 4
    rate: float | None = None

    def backoff(self, attempt: int) -> float:
        """Seconds before try number `attempt` + 1: twice as many as before up to a limit, less a random part."""
        return float(min(LONGEST_PAUSE, self.pause * 2.0**attempt) * random.uniform(0.5, 1.0))

    @property
    def longest(self) -> float:
        """Seconds after which a request has ended that did not have to wait for its turn, whatever happens.

        A host may have two addresses to connect to.
        """
        return (self.retries + 1) * (2 * self.timeout + LONGEST_WAIT)


@dataclass
class Times:
    """How long requests took, in seconds, and how many were repeated."""

    seconds: list[float] = field(default_factory=list)
    repeated: int = 0

    def text(self) -> str:
        """For people; empty where nothing was asked.

        >>> Times([0.010, 0.020, 0.060], 1).text()
        'median 20.0 ms a request, slowest 60.0 ms, of 3; 1 repeated'
        """
        if not self.seconds:
            return ""
        median, slowest = statistics.median(self.seconds) * 1000, max(self.seconds) * 1000
        again = f"; {self.repeated} repeated" if self.repeated else ""
        return f"median {median:.1f} ms a request, slowest {slowest:.1f} ms, of {len(self.seconds)}{again}"


class Client:
    """Asks one server. Threads may ask at once; never more requests are in flight than its effort says."""

    def __init__(
        self, address: Address, effort: Effort, headers: Mapping[str, str], certificates: Path | None = None
    ) -> None:
        self.address, self.effort, self.secrets = address, effort, Secrets(headers.values())
        self.times = Times()
        self._headers = dict(headers)
        self._context = _tls(address, certificates)
        self._connections, self._lock = threading.local(), threading.Lock()
        self._next_start = 0.0
        self._tasks: _Tasks = queue.SimpleQueue()
        self._threads = 0
        finalize(self, _end, self._tasks, effort.concurrency).atexit = False

    def ask_all(
        self, requests: Sequence[Request], read: Callable[[int, Answer], Result], settled: Collection[int] = ()
    ) -> list[Result]:
        """What `read` makes of the answer to each request, in their order; the first that fails is raised.

        A request is not repeated after a status that is `settled`.
        """
        given_up = threading.Event()

        def ask_one(number: int) -> Result:
            return read(number, self._asked(requests[number], settled, given_up))

        futures = [self._submit(partial(ask_one, number)) for number in range(len(requests))]
        try:
            return [future.result() for future in futures]
        finally:
            given_up.set()
            for future in futures:
                future.cancel()

    def ask(self, request: Request) -> Answer:
        """The answer to one request."""
        return self.ask_all([request], lambda _, answer: answer)[0]

    def _submit(self, task: Callable[[], Result]) -> Future[Result]:
        """Let one of the threads do it: as many as requests may be in flight, started when they are needed."""
        future: Future[Result] = Future()
        with self._lock:
            if self._threads < self.effort.concurrency:
                self._threads += 1
                threading.Thread(target=_work, args=(self._tasks,), name="http", daemon=True).start()
        self._tasks.put((task, future))
        return future

    def _asked(self, request: Request, settled: Collection[int], given_up: threading.Event) -> Answer:
        """A whole answer with a status of success, asked for as often as its effort says."""
        tries = self.effort.retries + 1
        cause, status = "was not asked", 0
        for attempt in range(tries):
            self._wait_for_turn(given_up)
            wait = self.effort.backoff(attempt)
            try:
                answer = self._exchange(request)
            except _Failed as failure:
                cause, status = str(failure), 0
            else:
                if 200 <= answer.status < 300:
                    return answer
                cause, status = f"answered {self.status_text(answer)}", answer.status
                if answer.status not in PASSING or answer.status in settled:
                    raise Rejected(f"{self.address} {cause}{_advice(answer.status)}", answer.status)
                wait = max(wait, self._asked_to_wait(answer))
            if attempt + 1 < tries:
                with self._lock:
                    self.times.repeated += 1
                if given_up.wait(wait):
                    break
        raise NoAnswer(f"{self.address} {cause}{f' (asked {tries} times)' if tries > 1 else ''}", status)

    def _wait_for_turn(self, given_up: threading.Event) -> None:
        """Wait until the rate allows another request."""
        if not self.effort.rate:
            return
        with self._lock:
            start = max(time.monotonic(), self._next_start)
            self._next_start = start + 1 / self.effort.rate
        given_up.wait(start - time.monotonic())

    def _asked_to_wait(self, answer: Answer) -> float:
        """The seconds that an answer asks to wait; so many that it is of no use are a failure."""
        seconds = _retry_after(answer.headers.get("retry-after", ""))
        if seconds > LONGEST_WAIT:
            raise NoAnswer(
                f"{self.address} answered {self.status_text(answer)} and asks to wait {seconds:,.0f} s, longer than "
                f"the {LONGEST_WAIT:g} s that are waited for a server"
            )
        return seconds

    def _exchange(self, request: Request) -> Answer:
        """One try, redirects on the same server followed."""
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._exchange_once(request)
            if answer.status not in FOLLOWED:
                if 300 <= answer.status < 400:
                    raise Rejected(
                        f"{self.address} answered {self.status_text(answer)}, which is not followed: {NAME_IT}"
                    )
                return answer
            request = Request(request.method, self._same_server(answer, request), *_rest(request))
        raise Rejected(f"{self.address} redirects more than {MOST_REDIRECTS} times: {NAME_IT}")

    def _same_server(self, answer: Answer, request: Request) -> str:
        """Where a redirect leads, on the same server; another one is refused: it would get images and headers."""
        try:
            leads_to = parse_address(urljoin(self.address.at(request.target).whole, answer.headers.get("location", "")))
        except (InputError, ValueError):
            raise Rejected(f"{self.address} redirects to what is no address") from None
        if leads_to.origin != self.address.origin:
            where = self.secrets.safe(f"{leads_to.scheme}://{leads_to.host}:{leads_to.port}")
            raise Rejected(
                f"{self.address} redirects to another server ({where}), which is not followed: name that address if it "
                "is the right one"
            )
        return leads_to.target

    def _exchange_once(self, request: Request) -> Answer:
        connection: Connection | None = getattr(self._connections, "own", None)
        if connection is None:
            connection = self._connections.own = Connection(self.address, self._context)
        started = time.perf_counter()
        try:
            answer = connection.exchange(request, self._headers, self.effort.timeout)
        except TooLong:
            raise Rejected(
                f"{self.address} sends more than {MOST_BYTES // 2**20} MiB in one answer, which is not read further"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise Rejected(
                f"{self.address} has a certificate that is not trusted ({self.secrets.safe(error.verify_message)}): "
                "name the file of its authority with `ca='FILE'`"
            ) from None
        except (OSError, http.client.HTTPException, ValueError, CutShort) as error:
            raise _Failed(_reason(error, self.effort.timeout)) from None
        with self._lock:
            if request.method == "POST" and len(self.times.seconds) < KEPT_TIMES:
                self.times.seconds.append(time.perf_counter() - started)
        return answer

    def status_text(self, answer: Answer) -> str:
        """The status of an answer in the words of the standard, and where it is an error what the server says of it."""
        with suppress(ValueError):
            phrase = f" {HTTPStatus(answer.status).phrase}"
            return f"{answer.status}{phrase}{self._server_text(answer)}"
        return str(answer.status)

    def _server_text(self, answer: Answer) -> str:
        if answer.status < 400 or not answer.body or answer.content_type not in ("application/json", "text/plain"):
            return ""
        return f" ({self.secrets.safe(answer.body[:4096].decode('utf-8', 'replace'))})"


class _Failed(Exception):
    """One try that brought no whole answer; its text says why."""


_Tasks = queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
"""What the threads of a client have to do; None ends one of them."""


def _end(tasks: _Tasks, threads: int) -> None:
    """End the threads of a client that is gone, and with them their connections."""
    for _ in range(threads):
        tasks.put(None)


def _work(tasks: _Tasks) -> None:
    """Do tasks, one after the other, as long as the client lives."""
    while (given := tasks.get()) is not None:
        task, future = given
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
        del given, task, future  # they hold the client


def _tls(address: Address, certificates: Path | None) -> ssl.SSLContext | None:
    """What verifies the server; certificates of authorities besides the system's may be in a file."""
    if address.scheme != "https":
        if certificates is not None:
            raise InputError(f"{address} is not encrypted, so that `ca=` would be ignored: leave it out, or use https")
        return None
    context = ssl.create_default_context()
    if certificates is not None:
        try:
            context.load_verify_locations(cafile=certificates)
        except OSError as error:  # ssl.SSLError is one
            reason = "it holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise InputError(f"the certificates {certificates} of an http model cannot be read: {reason}") from None
    return context


def _rest(request: Request) -> tuple[bytes, str, Mapping[str, str]]:
    return request.body, request.content_type, request.headers


def _advice(status: int) -> str:
    """What a user can do about a status."""
    return {
        401: ": give the header that it asks for with `headers=`",
        403: ": give the header that it asks for with `headers=`",
        404: ": check the path of the address",
        405: ": check the path of the address",
        413: ": ask for fewer images at once with `batch=`",
    }.get(status, "")


def _retry_after(text: str) -> float:
    """Seconds from a `Retry-After` header: a number, or a date; 0 where it is neither.

    >>> _retry_after("3"), _retry_after("soon"), _retry_after("Fri, 31 Dec 1999 23:59:59 GMT")
    (3.0, 0.0, 0.0)
    """
    if re.fullmatch(r"\s*\d{1,9}\s*", text):
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _reason(error: Exception, timeout: float) -> str:
    """Why a try brought no whole answer, in our own words: those of the error may repeat what was sent."""
    if isinstance(error, TimeoutError):
        return f"did not answer within {timeout:g} s"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
        return "closed the connection without an answer"
    if isinstance(error, CutShort | http.client.IncompleteRead):
        return "cut its answer short"
    if isinstance(error, socket.gaierror):
        return f"cannot be found: {error.strerror}"
    if isinstance(error, ssl.SSLError):
        return f"does not speak TLS as it should ({error.reason or 'it closed the connection'})"
    if isinstance(error, OSError):
        return f"cannot be reached: {error.strerror or type(error).__name__}"
    return "sent what is not HTTP"
