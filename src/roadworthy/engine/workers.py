"""Worker threads that never keep a process from ending: code under test may hang for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TypeVar

from roadworthy.core.roles import Model, entered_by
from roadworthy.engine.memory import MemoryLimit

GRACE = 1.0
"""Seconds that workers are given to finish what they are at once the run is stopped."""

Task = TypeVar("Task")


def in_workers(
    work: Callable[[Task], None],
    tasks: Sequence[Task],
    workers: int,
    stopped: threading.Event,
    limit: MemoryLimit | None = None,
) -> None:
    """Do all tasks, begun in their order, in that many threads; the first error stops the rest and is raised here.

    Where there is a `limit`, a thread takes a task when there is memory for it.

    Ctrl-C stops at once: workers get `GRACE` seconds to end, and one that hangs in the code of a model is left behind.
    `stopped` is set then, so that such a worker can see that nobody waits for it any more.
    """
    left, taking, errors = iter(tasks), threading.Lock(), list[BaseException]()

    def worker() -> None:
        while not stopped.is_set():
            try:
                with limit.turn(stopped) if limit else nullcontext():
                    with taking:
                        task = next(left, None)
                    if task is None or stopped.is_set():
                        return
                    work(task)
            except BaseException as error:
                errors.append(error)
                stopped.set()

    threads = [threading.Thread(target=worker, name=f"worker-{number}", daemon=True) for number in range(workers)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stopped.set()
        until = time.monotonic() + GRACE
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))
        raise
    if errors:
        raise errors[0]


class Turns:
    """Whose turn it is: what is not `concurrent` is entered by one thread at a time, whatever it is wrapped in.

    A function that is a model by itself and a member of an ensemble has one lock. Locks are taken in one order by all,
    so that nobody waits in a circle.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        entered = {id(model): entered_by(model) for model in models}
        alone = dict.fromkeys(key for keys in entered.values() for key, single in keys.items() if single)
        self._locks = {key: threading.Lock() for key in alone}
        self._of = {model: [lock for key, lock in self._locks.items() if key in entered[model]] for model in entered}

    @contextmanager
    def of(self, model: Model | None) -> Iterator[None]:
        """While the model is asked; None needs no turn."""
        with ExitStack() as held:
            for lock in self._of[id(model)] if model is not None else ():
                held.enter_context(lock)
            yield
