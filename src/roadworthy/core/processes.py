"""Processes that end together: a child that never outlives the process that started it."""

from __future__ import annotations

import os
import signal
import sys

IS_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
"""The number by which Linux knows: send me this signal when the thread that started me ends (linux/prctl.h)."""
_PR_SET_CHILD_SUBREAPER = 36
"""The number by which Linux knows: whoever below me loses its parent becomes my child (linux/prctl.h)."""
MODEL_IS_HERE = b"h"
"""What a process tells its supervisor once it holds a model itself, whose code can end it."""

_supervisor: int | None = None
"""Where this process tells that; None where nobody asks, or it was told."""


def tell_of_models(descriptor: int | None) -> None:
    """Let `model_is_here` write to a descriptor; None: nowhere."""
    global _supervisor
    _supervisor = descriptor


def model_is_here() -> None:
    """Tell who supervises this process, once, that a model runs in it and not in a process of its own."""
    global _supervisor
    if _supervisor is not None:
        os.write(_supervisor, MODEL_IS_HERE)
        _supervisor = None


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the system send this process a signal as soon as the process `parent`, which started it, is gone.

    Linux does so by itself, whatever this process is doing then; elsewhere nothing happens. It counts the thread that
    started this process, so that thread must live as long as its process.
    """
    if not IS_LINUX:
        return
    _tell_system(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it was gone before the system was told
        os._exit(1)


def adopt_orphans() -> None:
    """Let all processes below this one become its children when they lose their parent; on Linux alone."""
    _tell_system(_PR_SET_CHILD_SUBREAPER, 1)


def _tell_system(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def is_alive(number: int) -> bool:
    """True where a process of that number is there, whoever's it is.

    >>> is_alive(os.getpid())
    True
    """
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's, or its number cannot be one
        return True
    return True


def signal_name(number: int) -> str:
    """The name of a signal by its number.

    >>> signal_name(9), signal_name(64 + 4)
    ('SIGKILL', 'number 68')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"number {number}"
