"""The command line under supervision: no end of a model can look like a verdict.

Code of a model that runs in the process of the command can end it at any moment: `os._exit(0)`, a segmentation fault,
the system that needs memory. A pipeline would read its exit code as a verdict. So a command runs in a child process,
which says its exit code through a pipe as its last act. Where it ends without that word, the exit code is `UNSAID`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from roadworthy.cli.messages import say
from roadworthy.core.processes import MODEL_IS_HERE, die_with, signal_name, tell_of_models

UNSAID = 71
"""The exit code of a command whose process ended without a result."""
STOPPED_CODES = (130, 143)
"""Exit codes of a command that was stopped: they are no verdict, and need no word."""
FORWARDED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
"""Signals that are meant for the command and reach the process that supervises it."""
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE})
"""Signals by which users and systems end a command: one that ends by them has not failed."""
SENT_BY_KERNEL = 0x80
"""The `si_code` of a signal from the terminal, which the whole group of processes gets (asm-generic/siginfo.h)."""

_word: int | None = None
"""Where this process says its exit code; None in a process that nobody supervises."""


def supervised(command: Callable[[], None]) -> None:
    """Run a command, which ends in `SystemExit`, in a child process, and end with the exit code that it says.

    In a process that has more loaded than the command line, and where signals cannot be waited for, it runs here.
    """
    if not hasattr(os, "fork") or not hasattr(signal, "sigwaitinfo") or _is_busy():
        command()
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, nobody is told that a child has ended
    reading, writing = os.pipe()
    supervisor, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    child = os.fork()
    if not child:
        os.close(reading)
        die_with(supervisor)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _run(command, writing)
        return
    os.close(writing)
    status = _wait(child)
    _end(_said(reading), status)


def say_code(code: int) -> None:
    """Tell the process that supervises this one with which exit code it ends; nothing where there is none."""
    global _word
    if _word is not None:
        tell_of_models(None)
        os.write(_word, b"%d\n" % code)
        os.close(_word)
        _word = None


def _is_busy() -> bool:
    """Whether this process holds more than the command line: a copy of its threads and libraries would not work."""
    return threading.active_count() > 1 or "numpy" in sys.modules


def _run(command: Callable[[], None], writing: int) -> None:
    """Run the command in this process, and say its exit code when it has ended."""
    global _word
    _word = writing
    tell_of_models(writing)
    os.register_at_fork(after_in_child=_say_nothing)
    try:
        command()
    except SystemExit as left:
        code = left.code
        say_code(code if isinstance(code, int) else 0 if code is None else 1)
        raise
    else:
        say_code(0)
    finally:
        gc.collect()
        gc.freeze()  # the end of the interpreter searches all that is loaded for garbage, again and again


def _say_nothing() -> None:
    """In a process that code of a model forks: what it ends with is not the result of the command."""
    global _word
    if _word is not None:
        tell_of_models(None)
        os.close(_word)
        _word = None


def _wait(child: int) -> int:
    """The status that a child ends with; signals for the command are passed on to it until then.

    A signal from the terminal goes to both by itself.
    """
    while True:
        came = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif came.si_code != SENT_BY_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(child, came.si_signo)


def _said(reading: int) -> bytes:
    """What the process that has ended said, without waiting for others that it started and that live on."""
    os.set_blocking(reading, False)
    try:
        return os.read(reading, 64)
    except BlockingIOError:
        return b""


def _end(word: bytes, status: int) -> NoReturn:
    """End as the command did: by its word, by the signal that stopped it, or with the sentence that it said nothing.

    The sentence advises processes of their own only where a model ran in that of the command.
    """
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else UNSAID
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED | {signal.SIGCHLD})
    model_was_here, word = word.startswith(MODEL_IS_HERE), word.removeprefix(MODEL_IS_HERE)
    if word.endswith(b"\n"):
        sys.exit(int(word) or code)
    if ended_by in ENDING:
        signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)
    if code in STOPPED_CODES:
        sys.exit(code)
    how = f"by signal {signal_name(ended_by)}" if ended_by else f"with exit code {code}"
    why = (
        "as where code of a model calls os._exit(), crashes or takes all memory: this is no verdict; run models in "
        "processes of their own (`isolate=True`)"
        if model_was_here
        else "as where memory runs out or somebody ends it; no model ran in it: this is no verdict"
    )
    say(f"error: the process of this command ended {how} before it had a result, {why}")
    sys.exit(UNSAID)
