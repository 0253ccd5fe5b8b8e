"""Ctrl-C and SIGTERM: a command ends within a few seconds, whatever the code of a model does."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import NoReturn

from roadworthy.cli.messages import say
from roadworthy.cli.supervision import say_code

STOPPED = 130
"""The exit code after Ctrl-C, which is also what typer makes of it."""
TERMINATED = 143
"""The exit code after SIGTERM, by which a system asks a process to end."""
PATIENCE = 3.0
"""Seconds that a command has after either to end by itself."""
CONTINUES = "run the same command again to continue from here"
"""What is said after Ctrl-C unless a command says otherwise: it keeps what it has done."""
STARTS_OVER = "the result is put in place as a whole at the end, so the same command starts over"
"""What is said after Ctrl-C in a command that writes all of its result at the end."""

_advice = CONTINUES
"""What the command that is running says after Ctrl-C: one for the process, since a thread of its own may say it."""
_stopped, _terminated = False, False
"""Whether Ctrl-C or SIGTERM, or SIGTERM alone, asked the command that is running to end: for the process too."""


def after_interrupt(advice: str) -> None:
    """Say from now on, until the command ends, this after Ctrl-C; a command calls it before its work begins."""
    global _advice
    _advice = advice


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Do on SIGTERM what Ctrl-C does, under an exit code of its own."""
    global _terminated
    _terminated = True
    raise KeyboardInterrupt


@contextmanager
def watched() -> Iterator[None]:
    """End the process a few seconds after the first Ctrl-C or SIGTERM, even where code of a model hangs.

    The interpreter writes the signal to a pipe at once, whatever its main thread does, and a thread waits for that. A
    child process that a model forks writes nothing there, and SIGTERM ends it as it ends any process.
    """
    global _stopped, _terminated
    _note_nothing_in_children()
    after_interrupt(CONTINUES)
    _stopped, _terminated = False, False
    process = os.getpid()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ended_by = signal.getsignal(signal.SIGTERM)
    if ended_by is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)

    def watch() -> None:
        global _stopped, _terminated
        while (byte := os.read(reading, 1)) and byte[0] not in (signal.SIGINT, signal.SIGTERM):
            pass
        if not byte:
            os.close(reading)
        else:  # it stays open: a second signal is written there, too
            _stopped = True
            _terminated = _terminated or byte[0] == signal.SIGTERM
            time.sleep(PATIENCE)
            leave()

    threading.Thread(target=watch, name="interrupt", daemon=True).start()
    try:
        yield
    finally:
        if os.getpid() == process:
            signal.set_wakeup_fd(before)
            if ended_by is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, signal.SIG_IGN if _stopped else ended_by)
            os.close(writing)


@cache
def _note_nothing_in_children() -> None:
    def forget() -> None:
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) is terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    os.register_at_fork(after_in_child=forget)


def was_stopped() -> bool:
    """True where the command was asked to end by Ctrl-C or SIGTERM, however it ended then."""
    time.sleep(0.1)  # the thread that waits for the signal is told at once, but may be late
    return _stopped


def leave() -> NoReturn:
    """Say that the command was stopped and exit at once, without waiting for threads: no file is ever half written."""
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    say(f"{show_cursor}stopped; {_advice}")
    sys.stdout.flush()
    sys.stderr.flush()
    code = TERMINATED if _terminated else STOPPED
    say_code(code)
    os._exit(code)
