"""The self-test: known answers that a user asks for on their own machine before an assessment.

Every metric, statistic, shift, maker of outliers and monitor, the verdict, the built-in data and the way through the
engine have an item each; see `items`. A kind is a module of this folder with `items` and `names`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, UnknownName, printable
from roadworthy.selftest.items import (
    BITS,
    FAIL,
    NUMBERS,
    PASS,
    SKIPPED,
    STATUSES,
    TOLERANCE,
    UNKNOWN,
    Item,
    ItemResult,
    truths,
)
from roadworthy.selftest.machine import LEARNING, machine_type

__all__ = ["KINDS", "Item", "ItemResult", "SelfTest", "self_test"]

KINDS = {
    "metrics": "metrics",
    "statistics": "statistics",
    "shifts": "shifts and attacks",
    "outliers": "makers of outliers",
    "monitors": "monitors",
    "verdict": "rules of the verdict",
    "data": "built-in data",
    "engine": "a study from end to end",
}
"""Every kind of item, each a module of this folder, and what it is called."""
WORDS = {
    NUMBERS: "compared with known numbers",
    BITS: "compared bit by bit, as this is the machine type of the truths",
    TOLERANCE: "compared within a tolerance, as this is another machine type than that of the truths",
}
Advance = Callable[[int], None]


@dataclass(frozen=True)
class SelfTest:
    """What came of all items that were asked, where and when."""

    results: tuple[ItemResult, ...]
    environment: dict[str, Any]
    machine: dict[str, str]
    recorded_on: dict[str, str]
    date: str
    seconds: float
    only: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no item failed."""
        return not self.of_status(FAIL)

    @property
    def same_machine_type(self) -> bool:
        """Whether this is the machine type on which bits were recorded."""
        return self.machine == self.recorded_on

    def of_status(self, status: str) -> tuple[ItemResult, ...]:
        """The items with one status."""
        return tuple(result for result in self.results if result.status == status)

    def of_kind(self, kind: str) -> tuple[ItemResult, ...]:
        """The items of one kind; what a reader should see first comes first."""
        own = [result for result in self.results if result.kind == kind]
        return tuple(sorted(own, key=lambda result: STATUSES.index(result.status)))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of which anything was asked."""
        return tuple(dict.fromkeys(result.kind for result in self.results))

    def counts(self, kind: str | None = None) -> dict[str, int]:
        """How many items of a kind, or of all, have each status."""
        counts = Counter(result.status for result in self.results if kind in (None, result.kind))
        return {status: counts[status] for status in STATUSES}

    def comparisons(self) -> tuple[tuple[str, int], ...]:
        """In which ways items were compared, in words, and how many each."""
        counts = Counter(result.compared for result in self.results)
        return tuple((words, counts[way]) for way, words in WORDS.items() if counts[way])

    def lines(self) -> list[str]:
        """One line per kind, then all that did not pass, in full."""
        return [printable(line) for line in self._lines()]

    def _lines(self) -> Iterator[str]:
        for kind in self.kinds:
            counts = self.counts(kind)
            summary = ", ".join(f"{count} {_said(status)}" for status, count in counts.items() if count)
            yield f"{'FAIL' if counts[FAIL] else 'ok':<5}{KINDS[kind]:<24}{summary}"
        for result in (*self.of_status(SKIPPED), *self.of_status(UNKNOWN)):
            yield f"{result.kind} {result.name}: {result.status}" + (f", {result.note}" if result.note else "")
        for result in self.of_status(FAIL):
            yield from result.lines()
        for words, count in self.comparisons():
            yield f"{count} {words}"
        yield self.sentence()

    def sentence(self) -> str:
        """What came out, in one sentence."""
        failed, asked = len(self.of_status(FAIL)), len(self.results)
        part = f" (only {', '.join(self.only)})" if self.only else ""
        if failed:
            return (
                f"{failed} of {asked} items fail{part}: do not rely on results of this installation; install into a "
                "new environment, and report it where that does not help"
            )
        passed = len(self.of_status(PASS))
        return f"{passed} of {asked} items pass and none fails{part}, in {self.seconds:.0f} s"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "ok": self.ok,
            "date": self.date,
            "seconds": round(self.seconds, 1),
            "only": [*self.only],
            "same_machine_type": self.same_machine_type,
            "machine": self.machine,
            "recorded_on": self.recorded_on,
            "environment": self.environment,
            "counts": self.counts(),
            "items": [result.to_json() for result in self.results],
        }

    def write_json(self, path: str | Path) -> None:
        """Write all of it to a JSON file."""
        _write(path, json.dumps(self.to_json(), indent=1) + "\n")

    def write_page(self, path: str | Path) -> None:
        """Write a page for the file of an assessment: one HTML file that opens offline."""
        from roadworthy.selftest.page import render

        _write(path, render(self))


def self_test(
    only: Sequence[str] = (), *, progress: Callable[[str, int], AbstractContextManager[Advance]] | None = None
) -> SelfTest:
    """Ask for known answers, and compare; it needs no network and leaves nothing on disk.

    `only` names kinds (`metrics`) or items (`ece`, `metrics/ece`); without it everything is asked.

    >>> self_test(["ece", "wilson"]).counts()["pass"]
    2
    """
    from roadworthy.engine.provenance import environment

    started, chosen = time.perf_counter(), _chosen(only)
    with (progress or _silent)("asking for known answers", len(chosen)) as advance:
        results = []
        for one in chosen:
            results.append(one if isinstance(one, ItemResult) else one.run())
            advance(1)
    return SelfTest(
        results=tuple(results),
        environment=environment(),
        machine=machine_type(*LEARNING),
        recorded_on=dict(next(iter(truths("monitors").values())).machine),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=time.perf_counter() - started,
        only=tuple(only),
    )


def _silent(title: str, total: int) -> AbstractContextManager[Advance]:
    return nullcontext(lambda amount: None)


def _chosen(only: Collection[str]) -> list[Item | ItemResult]:
    """The items that are asked; of components that others wrote, and that have none, the result."""
    import roadworthy.api  # noqa: F401 (registers everything)

    kinds = [kind for kind in KINDS if not only or any(_may_be_of(kind, name) for name in only)]
    known = [(kind, one) for kind in kinds for one in _of_kind(kind)]
    if not only:
        return [one for _, one in known]
    chosen = []
    for name in only:
        named = [one for kind, one in known if name in (kind, one.name, f"{kind}/{one.name}")]
        if not named:
            raise UnknownName("item of the self-test", name, [*KINDS, *(one.name for _, one in known)])
        chosen += [one for one in named if one not in chosen]
    return chosen


def _may_be_of(kind: str, name: str) -> bool:
    """Whether an item of this name may be of a kind, so that its module must be looked at."""
    first, slash, _ = name.partition("/")
    return first == kind if slash or first in KINDS else True


def _of_kind(kind: str) -> Iterator[Item | ItemResult]:
    module = import_module(f"roadworthy.selftest.{kind}")
    yield from module.items()
    for name, is_ours in module.names():
        if not is_ours:
            yield ItemResult(kind, name, UNKNOWN, note="it is not one of Roadworthy's own")


def _said(status: str) -> str:
    words: dict[str, str] = {PASS: "passed", FAIL: "failed", SKIPPED: "skipped", UNKNOWN: "without a known answer"}
    return words[status]


def _write(path: str | Path, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
