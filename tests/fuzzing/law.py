"""The law for every input: success or one clear sentence, in time; no write, program or connection."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roadworthy.core.errors import RoadworthyError
from roadworthy.models.isolation.process import KEEPER

CPU_SECONDS = 5.0
HANG_SECONDS = 60

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")
STARTING = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "pickle.find_class", "ctypes.dlopen"),
)


class Watch:
    """An audit hook, which cannot be taken off again: it notes writes, programs and connections while it is on.

    A study may name a server, which is asked from a process of its own: that one is no foreign program.
    """

    def __init__(self) -> None:
        self.on = False
        self.allowed: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.on:
            return
        is_write = event in CHANGING or (event == "open" and words[0] != os.devnull and (words[2] or 0) & WRITING)
        if event == "subprocess.Popen" and [*words[1]][:3] == [sys.executable, "-m", KEEPER]:
            return
        if event in STARTING or (is_write and not self._is_allowed(words)):
            self.seen.append(f"{event} {words[0]!r}")

    def _is_allowed(self, words: tuple[Any, ...]) -> bool:
        """Whether what is written lies in the folder for it; a name may start from an open folder, the last word."""
        if self.allowed is None or not isinstance(words[0], str | bytes | os.PathLike):
            return False
        folder = (
            f"/proc/self/fd/{words[-1]}" if isinstance(words[-1], int) and words[-1] > 2 and len(words) == 2 else ""
        )
        return Path(os.path.realpath(Path(folder, os.fsdecode(words[0])))).is_relative_to(self.allowed)


WATCH = Watch()


class Unlawful(AssertionError):
    """An input for which the law does not hold."""


def _stop(*_: object) -> None:
    raise Unlawful(f"no answer in {HANG_SECONDS} s")


@contextmanager
def lawful(writes: Path | None = None) -> Iterator[list[RoadworthyError]]:
    """The law: success or a `RoadworthyError` of one line; little time; no program, no warning; no write elsewhere.

    The error that was raised, where one was, is appended to the list that is given. `writes` is the folder in which
    the code under test may write; by default it may nowhere.
    """
    old = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(HANG_SECONDS)
    started = time.process_time()
    WATCH.seen.clear()
    WATCH.allowed = None if writes is None else os.path.realpath(writes)
    WATCH.on = True
    refusals: list[RoadworthyError] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # as on the command line
            warnings.filterwarnings("ignore", category=ResourceWarning)
            yield refusals
    except RoadworthyError as error:
        refusals.append(error)
    finally:
        WATCH.on = False
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    for error in refusals:
        check_words(str(error))
    if WATCH.seen:
        raise Unlawful(f"it did what it must not: {WATCH.seen[:3]}")
    if time.process_time() - started > CPU_SECONDS:
        raise Unlawful(f"it took {time.process_time() - started:.1f} s")


def check_words(text: str) -> None:
    """Raise where the words of an error are no single line of bounded length that a terminal can show."""
    if not text.strip():
        raise Unlawful("an error without words")
    if "\n" in text or len(text) > 10_000:
        raise Unlawful(f"an error of several lines or of {len(text)} characters: {text[:300]!r}")
    if any(character < " " or character == "\x7f" for character in text):
        raise Unlawful(f"an error with control characters: {text[:300]!r}")
