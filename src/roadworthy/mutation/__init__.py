"""Does my study notice? Damages a model on purpose, runs the study for each damage, and says which are caught."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, printable
from roadworthy.mutation.outcomes import (
    CAUGHT,
    IMPOSSIBLE,
    LARGE_DROP,
    MISSED,
    OUTCOMES,
    UNSURE,
    DamageResult,
    Nearest,
    Outcome,
    Turned,
)
from roadworthy.mutation.running import mutate_study

__all__ = ["DamageResult", "Mutation", "Nearest", "Outcome", "Turned", "mutate"]

PAGE, RECORD = "mutation.html", "mutation.json"


@dataclass(frozen=True)
class Mutation:
    """What came of all damages of one model, missed ones first, and of its undamaged copy.

    undamaged   clean accuracy of the undamaged model, and the status of each criterion for its copy, by id
    notes       what a reader must know, a sentence each
    """

    study: str
    model: str
    accuracy: float
    criteria: dict[str, str]
    copy: DamageResult
    results: tuple[DamageResult, ...]
    folder: Path
    environment: dict[str, Any]
    date: str
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every damage with a large drop of clean accuracy is caught, and the undamaged copy is not."""
        return self.copy.outcome == MISSED and not self.large_missed

    @property
    def large_missed(self) -> tuple[DamageResult, ...]:
        """The damages that cost much clean accuracy and are not caught."""
        return tuple(one for one in self.results if one.is_large and one.outcome in (MISSED, UNSURE))

    def of(self, outcome: str) -> tuple[DamageResult, ...]:
        """The damages of which this came."""
        return tuple(one for one in self.results if one.outcome == outcome)

    def counts(self) -> dict[str, int]:
        """How many damages came to what."""
        return {outcome: len(self.of(outcome)) for outcome in OUTCOMES}

    def turned_by(self, criterion: str, status: str) -> int:
        """How many damages turned a criterion from pass to a status."""
        return sum(
            (criterion, status) == (one.criterion, one.status) for result in self.results for one in result.turned
        )

    def sentence(self) -> str:
        """What came out, in one sentence."""
        tried = len(self.results) - len(self.of(IMPOSSIBLE))
        if self.copy.outcome != MISSED:
            return (
                f"the undamaged copy of {self.model} is {self.copy.outcome} ({self.copy.caught_by}): the study calls "
                "damaged what is not, so that nothing else here counts"
            )
        large = [one for one in self.results if one.is_large]
        limit = f"{LARGE_DROP:.0%}".replace("%", " points")
        if self.large_missed:
            return (
                f"{len(self.large_missed)} of {len(large)} damages that cost {limit} of clean accuracy or more are "
                f"not caught: tighten the criteria that came nearest, or add one against the baseline"
            )
        return (
            f"all {len(large)} damages that cost {limit} of clean accuracy or more are caught, and the undamaged copy "
            f"is not; of {tried} tried, {len(self.of(MISSED))} are missed"
        )

    def lines(self) -> list[str]:
        """A line per damage, missed ones first, then what follows."""
        return [printable(line) for line in self._lines()]

    def _lines(self) -> Iterator[str]:
        yield f"{self.model}, undamaged: clean accuracy {shown(self.accuracy)}"
        yield _line(self.copy, "not caught" if self.copy.outcome == MISSED else self.copy.outcome)
        for result in self.results:
            yield _line(result)
            if result.nearest is not None and result.outcome in (MISSED, UNSURE):
                yield f"{'':>19}{result.nearest.sentence()}"
        yield from (f"note: {note}" for note in self.notes)
        yield self.sentence()

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "ok": self.ok,
            "sentence": self.sentence(),
            "date": self.date,
            "study": self.study,
            "model": self.model,
            "clean_accuracy": None if math.isnan(self.accuracy) else self.accuracy,
            "large_drop": LARGE_DROP,
            "criteria": self.criteria,
            "undamaged_copy": self.copy.to_json(),
            "damages": [result.to_json() for result in self.results],
            "notes": [*self.notes],
            "environment": self.environment,
        }

    def write(self) -> tuple[Path, Path]:
        """Write the page and the JSON beside the runs; returns where they are."""
        from roadworthy.mutation.page import render

        page, record = self.folder / PAGE, self.folder / RECORD
        try:
            record.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
            page.write_text(render(self), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {error.filename}: {error.strerror}") from None
        return page, record


def mutate(study: Any, **options: Any) -> Mutation:
    """Damage a model of a study on purpose and say which damages its criteria catch; see `mutate_study`.

    `study` is a study file or its content, with criteria. Every run is kept below `out`, and resumed from there.
    """
    return Mutation(**mutate_study(study, **options))


def shown(value: float) -> str:
    """A share in percent with one digit, or a dash where it was not measured.

    >>> shown(0.9514), shown(float("nan"))
    ('95.1 %', '–')
    """
    return "–" if math.isnan(value) else f"{100 * value:.1f} %"


def points(value: float) -> str:
    """A difference of shares in percentage points, or a dash where it was not measured.

    >>> points(0.0514), points(float("nan"))
    ('5.1 points', '–')
    """
    return "–" if math.isnan(value) else f"{100 * value:.1f} points"


def _line(result: DamageResult, outcome: str = "") -> str:
    head = f"{outcome or result.outcome:<19}{result.label}"
    if result.outcome == IMPOSSIBLE:
        return f"{head}: {result.note}"
    by = {CAUGHT: f"; caught by {result.caught_by}", UNSURE: f"; inconclusive: {result.caught_by}"}
    dropped = (
        "" if math.isnan(result.drop) else f": clean accuracy {shown(result.accuracy)}, drop {points(result.drop)}"
    )
    return head + dropped + by.get(result.outcome, "") + (f" ({result.note})" if result.note else "")
