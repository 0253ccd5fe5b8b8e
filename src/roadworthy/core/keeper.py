"""The program of a keeper: a small process above one that runs code of others, which leaves nothing running behind.

Run with the number of the process that started it, a descriptor for the number of the process below it, the
descriptors that are for that one alone, divided by commas, and then the module that it runs with its arguments. All
that is forked below it becomes its child when it loses its parent, however often it forks and whatever session it is
in. When the process below it ends, or the one that started it, or on SIGTERM, it kills them all, and ends as the
process below it did. It forks before anything is imported that starts threads.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from roadworthy.core.processes import IS_LINUX, adopt_orphans, die_with

SECONDS_TO_END = 5.0
"""How long processes that were killed are waited for."""


def main(arguments: list[str]) -> None:
    """Keep a process that runs a module; in that process, run it."""
    parent, told, passed, module, *rest = arguments
    keep(int(parent), int(told), [int(number) for number in passed.split(",")])
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__")


def keep(parent: int, told: int, passed: Iterable[int]) -> None:
    """Go on in a child of this process, in a session of its own, whose keeper this process is from then on.

    Where the system is not Linux there is no keeper: it goes on in this process, which dies with its parent.
    """
    if not IS_LINUX:
        os.write(told, b"%d\n" % os.getpid())
        os.close(told)
        die_with(parent)
        return
    watched = {signal.SIGCHLD, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with(parent, signal.SIGTERM)
    adopt_orphans()
    keeper, child = os.getpid(), os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.setsid()
        die_with(keeper)
        os.write(told, b"%d\n" % os.getpid())
        os.close(told)
        return
    _wait(child, [*passed, told], watched)


def _wait(child: int, descriptors: Iterable[int], watched: set[signal.Signals]) -> NoReturn:
    """Wait until the child ends, or this process is told to; kill what is left and end as the child did."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (1, 2):
        os.dup2(nowhere, standard)
    for descriptor in descriptors:
        os.close(descriptor)
    ended: dict[int, int] = {}
    while child not in ended and signal.sigwait(watched) != signal.SIGTERM:
        _collect(ended)
    until = time.monotonic() + SECONDS_TO_END
    while _collect(ended) and time.monotonic() < until:
        for process in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.002)
    status = ended.get(child, 0)
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with suppress(OSError):  # of SIGKILL there is no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _collect(ended: dict[int, int]) -> bool:
    """Note the status of every child that has ended; False where there is no child left."""
    with suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return True
            ended[process] = status
    return False


def descendants(process: int) -> set[int]:
    """The numbers of all processes below one, on Linux; without those that have ended and are not collected yet."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.parent.name)] = int(parent)
    below, seen = {process}, set[int]()
    while below:
        below = {child for child, parent in parents.items() if parent in below} - seen
        seen |= below
    return seen


if __name__ == "__main__":
    main(sys.argv[1:])
