"""The process of an isolated model, as the process that started it sees it: asked, watched, and ended where it must."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from weakref import finalize

from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, RoadworthyError
from roadworthy.core.keeper import SECONDS_TO_END
from roadworthy.core.processes import IS_LINUX, signal_name
from roadworthy.models.isolation.channel import Arrays, Closed, SharedMemory, receive, send
from roadworthy.models.isolation.limits import Limits, written_memory

KEEPER, PROGRAM = "roadworthy.core.keeper", "roadworthy.models.isolation.serving"
SHOWN_LINES, SHOWN_CHARACTERS = 50, 10_000
"""How much of what a model prints is passed on to standard error; the rest is read and dropped."""


class ProcessFailed(ModelError):
    """The process of a model ended, or had to be ended: it hangs, takes too much memory, or has killed itself."""


class CannotBeIsolated(InputError):
    """A model that is built in the run, made of others, or only read from a file: it has no use for a process."""


ERRORS: Mapping[str, type[RoadworthyError]] = {
    kind.__name__: kind for kind in (InputError, ModelError, CannotBeIsolated)
}
"""Errors that the other process reports, by the name that it gives them."""


class Printed:
    """What a model prints, from all its processes: the first lines go to standard error, the rest is dropped."""

    def __init__(self, name: str) -> None:
        self.name, self.last = name, ""
        self._lines, self._characters, self._first, self._lock = 0, 0, "", threading.Lock()

    @property
    def _is_cut(self) -> bool:
        """Whether more was printed than is shown, which is said once, at the line that was one too many."""
        return self._lines > SHOWN_LINES or self._characters > SHOWN_CHARACTERS

    def drain(self, pipe: int) -> None:
        """Read all that comes through a pipe until it is closed, and keep no more than a line of it."""
        with os.fdopen(pipe, "rb", buffering=0) as output:
            rest = b""
            while part := output.read(65536):
                if self._is_cut:
                    continue
                *lines, rest = (rest + part).split(b"\n")
                for line in [*lines, rest[:SHOWN_CHARACTERS]] if len(rest) > SHOWN_CHARACTERS else lines:
                    self._show(line)
            self._show(rest)

    def _show(self, content: bytes) -> None:
        text = "".join(c if c.isprintable() else " " for c in content.decode("utf-8", "replace")).rstrip()
        with self._lock:
            if not text or self._is_cut:
                return
            self._first, self.last = self._first or text[:200], text[:200]
            self._lines, self._characters = self._lines + 1, self._characters + len(text)
            if not self._is_cut:
                sys.stderr.write(f"{self.name}: {text}\n")
                return
        warnings.warn(
            f"model {self.name} prints more than {SHOWN_LINES} lines or {SHOWN_CHARACTERS:,} characters, of which no "
            f"more is shown; it began: {self._first}",
            stacklevel=2,
        )


class ModelProcess:
    """A process that holds a model and answers what it is asked, one question at a time, and its keeper above it.

    recipe   what makes the model there, as JSON;  limits what it may take
    """

    def __init__(self, recipe: Mapping[str, Any], limits: Limits, printed: Printed) -> None:
        started = time.perf_counter()
        self.limits, self.printed, self.name = limits, printed, printed.name
        self._asked, self._answers = SharedMemory.new(), SharedMemory.new()
        child_reads, self._questions = os.pipe()
        self._replies, child_writes = os.pipe()
        output, child_prints = os.pipe()
        self._number, child_tells = os.pipe()
        os.set_blocking(self._number, False)
        self._holder = 0
        passed = [*map(str, (child_reads, child_writes, self._asked.descriptor, self._answers.descriptor))]
        keeper = [sys.executable, "-m", KEEPER, str(os.getpid()), str(child_tells), ",".join(passed)]
        self._process = _start(
            lambda: subprocess.Popen(
                [*keeper, PROGRAM, *passed],
                stdin=subprocess.DEVNULL,
                stdout=child_prints,
                stderr=child_prints,
                pass_fds=(child_tells, *map(int, passed)),
                start_new_session=True,  # Ctrl-C is for the process that started it
            )
        )
        for descriptor in (child_reads, child_writes, child_prints, child_tells):
            os.close(descriptor)
        self._drain = threading.Thread(target=printed.drain, args=(output,), name="output", daemon=True)
        self._drain.start()
        pipes = (self._questions, self._replies, self._number)
        self._end = finalize(self, _ended, self._process, pipes, self._asked, self._answers)
        self.description, _ = self.ask({"open": dict(recipe)}, {}, limits.start)
        self.start_seconds = time.perf_counter() - started

    def ask(
        self, question: Mapping[str, Any], arrays: Arrays, seconds: float
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Its answer: a message and arrays. What goes wrong is a `ModelError`, a `ProcessFailed` where it has ended."""
        until = time.monotonic() + seconds
        opens = "open" in question

        def watch() -> None:
            self._check_memory()
            if time.monotonic() >= until:
                verb = "was not ready" if opens else "did not answer"
                self._fail(f"model {self.name} {verb} within {seconds:g} s")
            if self._process.poll() is not None:
                raise Closed

        try:
            send(self._questions, {**question, "arrays": self._asked.write(arrays)}, watch)
            reply = receive(self._replies, watch)
        except (Closed, ValueError, OSError):
            self._fail(self._cause("while it was opened" if opens else "while it was asked"))
        self._check_memory()
        for text in reply.get("warnings", ()):
            warnings.warn(text, stacklevel=4)
        if "error" in reply:
            if opens:
                self.close()
            raise ERRORS[reply["error"]](reply["text"])
        return reply, self._answers.read(reply["arrays"])

    def close(self) -> None:
        """End the process, and wait until it is gone."""
        self._end()

    @property
    def holder(self) -> int:
        """The number of the process that holds the model, below the one that was started; 0 until it is known."""
        if not self._holder:
            with suppress(BlockingIOError):
                self._holder = int(os.read(self._number, 32) or 0)
        return self._holder

    def _check_memory(self) -> None:
        held = resident(self.holder)
        if held > self.limits.bytes:
            limit, rounded_up = written_memory(self.limits.bytes), written_memory(-(-held // 10**5) * 10**5)
            self._fail(f"model {self.name} held {rounded_up} of memory, more than its limit of {limit}")

    def _cause(self, when: str) -> str:
        """In plain words how a process ended that has closed its pipes."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"the process of model {self.name} has closed its pipes {when}"
        self._drain.join(0.5)
        last = f" (it printed at last: {self.printed.last})" if code > 0 and self.printed.last else ""
        if code >= 0:
            return f"model {self.name} ended its process with exit code {code} {when}{last}"
        memory = ", as the system does where memory has run out" if -code == signal.SIGKILL else ""
        return f"the process of model {self.name} was ended by signal {signal_name(-code)} {when}{memory}"

    def _fail(self, cause: str) -> None:
        self.close()
        raise ProcessFailed(cause)


def resident(process: int) -> int:
    """The memory that a process holds, in bytes; 0 where it is gone or the system does not say."""
    try:
        return int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _ended(process: subprocess.Popen[bytes], pipes: tuple[int, ...], *memory: SharedMemory) -> None:
    """End a process and all that was started below it, and take back what was shared with it."""
    if IS_LINUX:  # it is the keeper, which kills all that is below it
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END + 1)
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    for pipe in pipes:
        os.close(pipe)
    for part in memory:
        part.close()


@cache
def _starting() -> queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    """The work of the one thread that starts processes: they live as long as it does, which is as long as this process.

    A process started by a worker would die with that worker.
    """
    waiting: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            start, done = waiting.get()
            try:
                done.set_result(start())
            except BaseException as error:
                done.set_exception(error)

    threading.Thread(target=work, name="starting", daemon=True).start()
    return waiting


def _start(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    done: Future[subprocess.Popen[bytes]] = Future()
    _starting().put((start, done))
    return done.result()
