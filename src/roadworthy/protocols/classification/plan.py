"""The plan of classification: every image undisturbed and under each shift at each level, shown to every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roadworthy.core.protocols import Dataset
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Bench, Showing, plan_cases
from roadworthy.metrics import (
    HIGHER_IS_BETTER,
)
from roadworthy.protocols import base
from roadworthy.protocols.classification.page import page
from roadworthy.protocols.classification.settings import NAME, Settings, ShiftChoice
from roadworthy.protocols.classification.tables import CellKey, Evidence, select
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.shifts import shift_levels
from roadworthy.shifts.corruptions import COMMON, EXTRA
from roadworthy.verdict import Criterion


def showings(settings: Settings, data: Dataset, seed: int, clean_repeats: int = 1) -> list[Showing]:
    """Every stimulus of the protocol: undisturbed data first, then shift by shift, level by level, repeat by repeat.

    Undisturbed data is shown once, or once per repeat to models that are trained again for each.
    """
    fingerprint = data.fingerprint()
    planned = [Showing(Stimulus(fingerprint, repeat=repeat, seed=seed), data) for repeat in range(clean_repeats)]
    for choice in settings.shifts:
        for shift in shift_levels(choice.name, settings.levels, choice.levels):
            for repeat in range(settings.repeats):
                stimulus = shift.stimulus(fingerprint, seed=seed, repeat=repeat, name=choice.name)
                planned.append(Showing(stimulus, data, shift))
    return planned


@base.PROTOCOLS.register(NAME)
class Classification(base.Protocol):
    """Every stimulus shown to every model."""

    name = NAME
    settings = Settings
    is_default = True
    compared = ("accuracy", "auroc", "brier", "ece")
    comparable = tuple(name for name, better in HIGHER_IS_BETTER.items() if better is not None)
    resampled = tuple(name for name in comparable if name not in ("accuracy", "brier", "brier_mean"))
    summary = "Accuracy, calibration and AUROC of right answers, undisturbed and under every shift at every level."
    suites: ClassVar[Mapping[str, Settings]] = {
        "quick@1": Settings(levels=[1, 3, 5]),
        "standard@1": Settings(),
        "full@1": Settings(repeats=5),
        "corruptions@2": Settings(shifts=[ShiftChoice(name=name) for name in (*COMMON, *EXTRA)]),
    }

    def describe(self, settings: Settings) -> str:
        """How many shifts are shown, at which levels and how often."""
        levels = ", ".join(map(str, settings.levels))
        return f"{len(settings.shifts)} shifts, levels {levels}, repeats {settings.repeats}"

    def check_settings(self, settings: Settings) -> None:
        """Raise an `InputError` where a shift is unknown or lacks a level that is asked for."""
        for choice in settings.shifts:
            shift_levels(choice.name, settings.levels, choice.levels)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Undisturbed data and every shift at every level, in every repeat."""
        conditions = sum(len(choice.levels or settings.levels) for choice in settings.shifts)
        return (1 + conditions) * settings.repeats

    def showings(self, settings: Settings, bench: Bench) -> list[Showing]:
        """Undisturbed data, and every shift at every level in every repeat."""
        return showings(settings, bench.data, bench.seed)

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Every stimulus shown to every model; undisturbed data in every repeat to those trained again for it."""
        return base.Planned(plan_cases(NAME, showings(settings, bench.data, bench.seed, settings.repeats), bench))

    def check(self, cases: Sequence[base.KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""
        select([CellKey.of(case) for case in cases], criterion)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say, cell by cell; so many bootstrap `resamples` are drawn, `RESAMPLES` unless given."""
        return Evidence(part.cases, part.class_names, seed=seed, workers=workers, resamples=resamples)
