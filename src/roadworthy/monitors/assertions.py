"""Model assertions: a predicate over the last answers about an object that says that something is wrong.

Kang, Raghavan, Bailis, Zaharia: Model Assertions for Monitoring and Improving ML Models (2020).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName, foreign_code
from roadworthy.core.parameters import registered
from roadworthy.models.signals import Signals
from roadworthy.monitors.checks import require_count
from roadworthy.monitors.kinds import MONITORS
from roadworthy.monitors.learned import Floats, Learned, Rep
from roadworthy.monitors.opening import MonitorOpening, NamesFiles, import_user_code, imported_code, is_code_name

ACCEPTED = 1.0
"""The score of every image: by itself, none is rejected."""
MOST_FRAMES = 10_000
"""Frames that a predicate may look back on."""


@dataclass(frozen=True)
class Frame:
    """What a predicate sees of one image: the class the model answers, its probability, and condition columns."""

    prediction: int
    confidence: float
    conditions: Mapping[str, float]


Predicate = Callable[[tuple[Frame, ...]], bool]


def flicker(frames: tuple[Frame, ...]) -> bool:
    """Whether the answer changes and changes back: some class is answered, then another, then the first again.

    >>> answers = [Frame(prediction, 0.9, {}) for prediction in (3, 3, 7, 3)]
    >>> flicker(tuple(answers)), flicker(tuple(answers[:3]))
    (True, False)
    """
    changes = [frame.prediction for frame in frames]
    runs = [now for before, now in zip([None, *changes[:-1]], changes, strict=True) if now != before]
    return len(set(runs)) < len(runs)


def jump(frames: tuple[Frame, ...], limit: float) -> bool:
    """Whether any condition changes by more than `limit` from one frame to the next.

    >>> frames = tuple(Frame(0, 0.9, {"speed": speed}) for speed in (50.0, 51.0, 80.0))
    >>> jump(frames, 10.0), jump(frames[:2], 10.0), jump(frames, 29.0)
    (True, False, False)
    """
    return any(
        abs(now.conditions[name] - before.conditions[name]) > limit
        for before, now in pairwise(frames)
        for name in now.conditions
    )


BUILT_IN = ("flicker", "jump")
LEAST_WINDOW = {"flicker": 3, "jump": 2}
"""Frames that a built-in predicate needs to say anything."""


@registered(MONITORS, "assertion")
class Assertion(NamesFiles):
    """A model assertion: rejects an image where a predicate over the last answers about its object holds.

    predicate   `flicker` (the answer changes and changes back), `jump` (a condition changes by more than `limit` from
                a frame to the next), or `my.py:function`: code, and so it needs trust. A function gets a tuple of
                `Frame`s, the newest last, and returns True where something is wrong
    window      how many frames it sees, the newest included; fewer at the start of an object
    conditions  numeric columns of the data that it sees too: for `jump` those that must not jump
    limit       for `jump` alone;  version: as that of the monitor `callable`

    It decides about frames in order alone: by itself, an image is accepted. `sha256` is filled in for code.
    """

    predicate: str = "flicker"
    window: int = 5
    conditions: tuple[str, ...] = ()
    limit: float | None = None
    version: str = ""
    sha256: str = ""

    needs: ClassVar[frozenset[str]] = frozenset({"probabilities"})
    code_settings: ClassVar[tuple[str, ...]] = ("predicate",)
    differs_from_paper: ClassVar[str] = (
        "a predicate says only whether something is wrong, in the paper it gives a severity score; nothing is "
        "corrected and no training images are chosen"
    )

    def __post_init__(self) -> None:
        require_count(self, "window", LEAST_WINDOW.get(self.predicate, 1), MOST_FRAMES)
        if len({*self.conditions}) < len(self.conditions):
            raise InputError(f"monitor {self.name}: a condition is named twice in {', '.join(self.conditions)}")
        if self.predicate == "jump":
            self._check_jump()
        elif self.limit is not None:
            raise InputError(f"monitor {self.name}: limit belongs to the predicate jump, not to {self.predicate}")
        if self.predicate == "flicker" and self.conditions:
            raise InputError(f"monitor {self.name}: the predicate flicker looks at no conditions: leave them out")
        if self.predicate in BUILT_IN:
            if self.version:
                raise InputError(f"monitor {self.name}: version belongs to code of your own, not to {self.predicate}")
            return
        if not is_code_name(self.predicate):
            raise UnknownName(f"predicate of monitor {self.name}", self.predicate, [*BUILT_IN, "my.py:function"])
        if not self.sha256:
            code = imported_code(self.name, self.predicate, self.version)
            object.__setattr__(self, "sha256", code.sha256(self.predicate, self.version))

    def _check_jump(self) -> None:
        if self.limit is None or not 0 <= self.limit < np.inf:
            raise InputError(f"monitor {self.name}: jump needs a limit, a number of at least 0, not {self.limit!r}")
        if not self.conditions:
            raise InputError(f"monitor {self.name}: jump needs the names of conditions that must not jump")

    @classmethod
    def opened(cls, settings: Mapping[str, Any], opening: MonitorOpening) -> dict[str, Any]:
        """The settings with the whole name of a predicate of the user's, which is imported."""
        opened = dict(settings)
        predicate = opened.get("predicate")
        if isinstance(predicate, str) and is_code_name(predicate):
            opened["predicate"] = import_user_code(predicate, opening.base, opening.trust)
        return opened

    def as_named(self) -> dict[str, Any]:
        """Its settings but the hash."""
        return {key: value for key, value in self.parameters().items() if key != "sha256"}

    @property
    def own_threshold(self) -> float | None:
        """Below the score of every image."""
        return ACCEPTED / 2

    @property
    def decides_itself(self) -> bool:
        """True: it gives decisions alone."""
        return True

    @property
    def is_sequential(self) -> bool:
        """True."""
        return True

    @property
    def looks_back(self) -> int | None:
        """The window."""
        return self.window

    def read(self, signals: Signals, state: Learned) -> Floats:
        """The class answered, its probability and the conditions of each image, (N, 2 + conditions)."""
        answers = signals.probabilities
        columns = [answers.argmax(axis=1), answers.max(axis=1)]
        batch = signals.batch
        columns += [self._condition(batch.conditions, batch.ids, name) for name in self.conditions]
        return np.column_stack(columns).astype(np.float64)

    def check_conditions(self, known: Mapping[str, NDArray[Any]], ids: Sequence[str]) -> None:
        """Refuse data whose conditions, (N,) each, lack one that the predicate sees, or a number for an image."""
        for name in self.conditions:
            self._condition(known, ids, name)

    def _condition(self, known: Mapping[str, NDArray[Any]], ids: Sequence[str], name: str) -> Floats:
        if name not in known:
            raise UnknownName(f"condition of the data that monitor {self.name} is shown", name, known)
        try:
            values = np.asarray(known[name]).astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"monitor {self.name}: the condition {name} holds values that are not numbers") from None
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            raise InputError(
                f"monitor {self.name}: image {ids[missing[0]]} has no finite value of the condition {name}"
            )
        return values

    def rate(self, rows: Rep, rule: Learned, state: Learned) -> Floats:
        """The same score for every image, (N,)."""
        return np.full(len(rows), ACCEPTED)

    def notes(self, state: Learned, rule: Learned) -> tuple[str, ...]:
        """That it needs an order."""
        return ("it decides about frames in order: an image by itself is accepted",)

    def in_order(
        self, rows: Rep, rejected: NDArray[np.bool_], starts: NDArray[np.bool_], rule: Learned, state: Learned
    ) -> NDArray[np.bool_]:
        """Rejected (N,) already, or where the predicate holds over the last `window` frames of the object."""
        holds, window = self._predicate(), deque[Frame](maxlen=self.window)
        alarms = np.zeros(len(rows), np.bool_)
        for number, (row, is_start) in enumerate(zip(rows.tolist(), starts.tolist(), strict=True)):
            if is_start:
                window.clear()
            window.append(Frame(int(row[0]), row[1], dict(zip(self.conditions, row[2:], strict=True))))
            alarms[number] = holds(tuple(window))
        return np.asarray(rejected | alarms)

    def _predicate(self) -> Predicate:
        if self.predicate == "flicker":
            return flicker
        if self.predicate == "jump":
            limit = self.limit
            assert limit is not None
            return lambda frames: jump(frames, limit)
        code = imported_code(self.name, self.predicate, self.version, self.sha256)

        def holds(frames: tuple[Frame, ...]) -> bool:
            with code.lock, foreign_code(f"{self.predicate} of monitor {self.name}"):
                answer = code.function(frames)
            if not isinstance(answer, bool | np.bool_):
                raise InputError(f"{self.predicate} of monitor {self.name} must return True or False, not {answer!r}")
            return bool(answer)

        return holds
