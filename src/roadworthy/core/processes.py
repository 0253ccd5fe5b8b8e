"""Processes that end together: a child that never outlives the process that started it."""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""The number by which Linux knows: send me this signal when the thread that started me ends (linux/prctl.h)."""


def die_with(parent: int) -> None:
    """Let the system kill this process as soon as the process `parent`, which started it, is gone.

    Linux does so by itself, whatever this process is doing then; elsewhere nothing happens. It counts the thread that
    started this process, so that thread must live as long as its process.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it was gone before the system was told
        os._exit(1)


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
