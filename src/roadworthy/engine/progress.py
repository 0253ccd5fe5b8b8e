"""How far a stage of a run has come: a bar on a terminal, a few lines in a log, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Lock, Thread

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar from a title and a total (0: not known); what it yields is told about each advance."""

ANNOUNCED_AFTER = 5.0
REPEATED_AFTER = 60.0


@contextmanager
def no_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar that shows nothing."""
    yield lambda amount: None


@contextmanager
def terminal_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left on standard error; lines for a log where that is not a terminal."""
    if not sys.stderr.isatty():
        with log_progress(title, total) as advance:
            yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total or None, rate="")

        def advance(amount: int) -> None:
            bar.advance(task, amount)
            speed = bar.tasks[task].speed
            bar.update(task, rate=f"{speed:,.0f} images/s" if speed else "")

        yield advance


@contextmanager
def log_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """One line on standard error when a stage is done: `reading images: 1,000 done in 3 s`.

    A stage that takes longer than a few seconds is announced, and says once a minute how far it is.
    """
    started, stream = time.monotonic(), sys.stderr
    done, lock, over = 0, Lock(), Event()

    def say(text: str) -> None:
        with suppress(OSError, ValueError):  # a log that was closed does not stop the run
            print(f"{title}{text}", file=stream, flush=True)

    def advance(amount: int) -> None:
        nonlocal done
        with lock:
            done += amount

    def watch() -> None:
        if not over.wait(ANNOUNCED_AFTER):
            say(" ...")
        while not over.wait(REPEATED_AFTER):
            count = f"{done:,} of {total:,}" if total else "at work"
            say(f": {count} after {duration(time.monotonic() - started)}")

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield advance
    finally:
        over.set()
        watcher.join()
    count = f"{done or total:,} " if done or total else ""
    say(f": {count}done in {duration(time.monotonic() - started)}")


def duration(seconds: float) -> str:
    """A time that people read.

    >>> duration(4.2), duration(95), duration(7300)
    ('4 s', '2 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
