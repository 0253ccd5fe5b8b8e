"""Ctrl-C: a command ends within a few seconds, whatever the code of a model does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NoReturn

from roadworthy.cli.messages import say

STOPPED = 130
"""The exit code after Ctrl-C, which is also what typer makes of it."""
PATIENCE = 3.0
"""Seconds that a command has after Ctrl-C to end by itself."""
CONTINUES = "run the same command again to continue from here"
"""What is said after Ctrl-C unless a command says otherwise: it keeps what it has done."""
STARTS_OVER = "the result is put in place as a whole at the end, so the same command starts over"
"""What is said after Ctrl-C in a command that writes all of its result at the end."""

_advice = CONTINUES
"""What the command that is running says after Ctrl-C: one for the process, since a thread of its own may say it."""


def after_interrupt(advice: str) -> None:
    """Say from now on, until the command ends, this after Ctrl-C; a command calls it before its work begins."""
    global _advice
    _advice = advice


@contextmanager
def watched() -> Iterator[None]:
    """End the process a few seconds after the first Ctrl-C, even where code of a model hangs and does not notice it.

    The interpreter writes the signal to a pipe at once, whatever its main thread does, and a thread waits for that. A
    child process that a model forks writes nothing there.
    """
    _note_nothing_in_children()
    after_interrupt(CONTINUES)
    process = os.getpid()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while (byte := os.read(reading, 1)) and byte != bytes([signal.SIGINT]):
            pass
        os.close(reading)
        if byte:
            time.sleep(PATIENCE)
            leave()

    threading.Thread(target=watch, name="interrupt", daemon=True).start()
    try:
        yield
    finally:
        if os.getpid() == process:
            signal.set_wakeup_fd(before)
            os.close(writing)


@cache
def _note_nothing_in_children() -> None:
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


def leave() -> NoReturn:
    """Say that the command was stopped and exit at once, without waiting for threads: no file is ever half written."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    say(f"{show_cursor}stopped; {_advice}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)
