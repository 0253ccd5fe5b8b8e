"""The processes of one isolated model: one, more where several threads wait for it, a new one where one failed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError, RoadworthyError
from roadworthy.models.isolation.channel import Arrays
from roadworthy.models.isolation.limits import Limits
from roadworthy.models.isolation.process import ModelProcess, Printed, ProcessFailed


class Pool:
    """Processes with the same model, each asked by one thread at a time.

    There is one at first. Another one is started when threads have waited for an answer longer, all in all, than the
    first took to start: then it would have paid off. There are never more than `most` (default: processors). What is
    answered does not depend on how many there are: each makes its model from the same recipe, and one that is made
    anew and is not the same model any more is an error.
    """

    def __init__(self, recipe: Mapping[str, Any], limits: Limits, name: str, most: int | None = None) -> None:
        self.recipe, self.limits, self._printed = recipe, limits, Printed(name)
        self._most = most or os.cpu_count() or 1
        self._free, self._number, self._waited = list[ModelProcess](), 0, 0.0
        self._changed = threading.Condition()
        self.description: dict[str, Any] = {}
        first = self._started()
        self.description, self._start_seconds = first.description, first.start_seconds
        self._free.append(first)
        self._number = 1

    @property
    def processes(self) -> int:
        """How many there are."""
        return self._number

    def ask(self, question: Mapping[str, Any], arrays: Arrays) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The answer of one of them; where it fails, the next question gets a new one."""
        process = self._taken()
        try:
            answer = process.ask(question, arrays, self.limits.seconds)
        except ProcessFailed:
            self._note_end()
            raise
        except RoadworthyError:  # its code raised, and the process goes on
            self._give_back(process)
            raise
        except BaseException:  # nobody waits for the answer that is on its way
            self._note_end()
            process.close()
            raise
        self._give_back(process)
        return answer

    def close(self) -> None:
        """End those that nobody asks now."""
        with self._changed:
            free, self._free = self._free, []
            self._number -= len(free)
        for process in free:
            process.close()

    def _taken(self) -> ModelProcess:
        """One that is free, or a new one."""
        with self._changed:
            while True:
                if self._free:
                    return self._free.pop()
                if self._number == 0 or (self._number < self._most and self._waited >= self._start_seconds):
                    self._number, self._waited = self._number + 1, 0.0
                    break
                since = time.perf_counter()
                self._changed.wait(max(0.01, self._start_seconds - self._waited))
                self._waited += time.perf_counter() - since
        try:
            return self._started()
        except BaseException:
            self._note_end()
            raise

    def _started(self) -> ModelProcess:
        try:
            process = ModelProcess(self.recipe, self.limits, self._printed)
        except InputError as error:
            raise ModelError(str(error)) if self.description else error from None
        if self.description and process.description["fingerprint"] != self.description["fingerprint"]:
            process.close()
            raise ModelError(f"model {self._printed.name} is not the one any more that it was when it was opened")
        return process

    def _note_end(self) -> None:
        with self._changed:
            self._number -= 1
            self._changed.notify_all()

    def _give_back(self, process: ModelProcess) -> None:
        with self._changed:
            self._free.append(process)
            self._changed.notify()
