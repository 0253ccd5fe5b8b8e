"""The program of a process that holds one isolated model: it makes it from its recipe and answers what it is asked.

Run below a keeper (`core.keeper`) with four descriptors: the pipes for questions and answers, and the shared memory of
each. It ends when its questions do, and with the process that asks them; whatever the model started ends with it.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from roadworthy.core.errors import RoadworthyError, foreign_code

Reply = tuple[dict[str, Any], dict[str, Any]]


def main(arguments: list[str]) -> None:
    """Answer until the questions end."""
    questions, answers, asked, answered = map(int, arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that started this one
    gc.disable()  # nothing that is imported is garbage
    from roadworthy.models.isolation.answering import Host  # what is heavy comes when the process can be watched
    from roadworthy.models.isolation.channel import SharedMemory, send

    gc.freeze()
    gc.enable()
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(questions, waiting), daemon=True).start()
    host, arrays, results = Host(), SharedMemory(asked), SharedMemory(answered)
    while True:
        question = waiting.get()
        message, columns = _guarded(lambda q=question: host.answer(q, arrays.read(q["arrays"], host.keeps_input)), host)  # type: ignore[misc]
        send(answers, {**message, "arrays": results.write(columns)})


def _guarded(answer: Callable[[], Reply], host: Any) -> Reply:
    """What the model answers, or its error; warnings for users come with both."""
    caught: list[str] = []

    def keep(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, UserWarning):
            caught.append(str(message))

    from roadworthy.models.isolation.process import ERRORS

    warnings.showwarning = keep  # type: ignore[assignment]
    try:
        with foreign_code(f"model {host.name}"):
            message, columns = answer()
    except RoadworthyError as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__name__ in ERRORS)
        return {"error": kind.__name__, "text": str(error), "warnings": caught}, {}
    return {**message, "warnings": caught}, columns


def _read(questions: int, waiting: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass on the questions; where they end, so does the process, whatever it is doing."""
    from roadworthy.models.isolation.channel import Closed, receive

    try:
        while True:
            waiting.put(receive(questions))
    except (Closed, OSError, ValueError):
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
