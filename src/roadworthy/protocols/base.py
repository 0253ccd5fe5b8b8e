"""What a test procedure is: which cases it shows, what it reads from their readouts, which tables it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from pydantic import BaseModel

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.registry import Registry
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Bench, PlannedCase, Showing
from roadworthy.engine.readouts import Readouts
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.verdict import Criterion, Measurement


@dataclass(frozen=True)
class KnownCase:
    """A case as planned or as recorded: who was shown what. `tags` are what its protocol noted."""

    system: str
    stimulus: Stimulus
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredCase(KnownCase):
    """A case of a run on disk: its readouts, or why there are none, and the artifacts of the run by their hash."""

    failure: str = ""
    load: Callable[[], Readouts] = lambda: _nothing()
    artifact: Callable[[str], Path] = lambda recipe: _no_artifact(recipe)


def _nothing() -> Readouts:
    raise InputError("a failed case has no readouts")


def _no_artifact(recipe: str) -> Path:
    raise InputError(f"the run has no artifact {recipe}: run the study again")


class Evidence(ABC):
    """What the readouts of one run say under one protocol."""

    @abstractmethod
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table of the protocol, from stored readouts alone."""

    @abstractmethod
    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """What matches a criterion: a measurement per condition, or one for all where `over` is pooled."""

    @abstractmethod
    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """Write what the report shows of the stimuli; the tables say which file is what."""


class Protocol(ABC):
    """A test procedure. `name` is its key in a study."""

    name: ClassVar[str]
    summary: ClassVar[str]
    settings: ClassVar[type[BaseModel]]
    """What a study may say of it: a frozen model; every field has a default."""
    columns: ClassVar[frozenset[str]] = frozenset({"probabilities"})
    """What a system must answer in to be asked; others are left out and named."""
    is_default: ClassVar[bool] = False
    """True for the protocol of studies that name none, and of criteria that name none."""
    wants_foreign: ClassVar[bool] = False
    """True where it shows data from outside the domain."""
    shows_sources_together: ClassVar[bool] = False
    """True where one page of the report shows all sources; else each has a page of its own."""

    def inlined(self, settings: Any, base: Path) -> Any:
        """The settings with the content of the files that they name, paths starting from `base`."""
        return settings

    def wants(self, settings: Any) -> frozenset[str]:
        """The data besides the test data that it must be given on the bench: `train`."""
        return frozenset()

    @abstractmethod
    def check_settings(self, settings: Any) -> None:
        """Raise an `InputError` for what is wrong whatever the data: an unknown shift, a level it does not have."""

    @abstractmethod
    def count_stimuli(self, settings: Any, foreign: int) -> int:
        """How many stimuli it shows each model, given the number of foreign sets: by arithmetic, without a plan."""

    @abstractmethod
    def showings(self, settings: Any, bench: Bench) -> list[Showing]:
        """Every stimulus it shows."""

    @abstractmethod
    def plan(self, settings: Any, bench: Bench) -> list[PlannedCase]:
        """Every case it needs."""

    @abstractmethod
    def check(self, cases: Iterable[KnownCase], criterion: Criterion) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""

    @abstractmethod
    def evidence(
        self, cases: Sequence[StoredCase], class_names: Sequence[str], *, seed: int, workers: int = 1
    ) -> Evidence:
        """What stored cases say."""

    def page(self, run: Path, facts: Facts) -> Page | None:
        """What the report shows of the run in a folder; None shows the table of the protocol's name."""
        return None


PROTOCOLS: Registry[type[Protocol]] = Registry("protocol")
"""The test procedures by name; third parties add theirs under the entry point group `roadworthy.protocols`."""


def matching(label: str, rows: list[Any], columns: Sequence[str], criterion: Criterion) -> list[Any]:
    """The rows (with the columns as attributes) that a criterion's `where` asks for; nothing found is an error."""
    chosen = rows
    for column, wanted in criterion.where.items():
        if column == "protocol":
            continue
        if column not in columns:
            raise InputError(f"{label}: {UnknownName('condition', column, [*columns, 'protocol'])}")
        values = wanted if isinstance(wanted, list) else [wanted]
        known = sorted({getattr(row, column) for row in chosen})
        for value in values:
            if value not in known:
                raise InputError(f"{label} asks for {column} {value!r}, but the run has {column} {known}")
        chosen = [row for row in chosen if getattr(row, column) in values]
    if not chosen:
        raise InputError(f"{label} matches no case of the run")
    return chosen
