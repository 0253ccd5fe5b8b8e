"""The plan of break points: undisturbed data, and every shift at every severity of its grid, shown to every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roadworthy.core.types import UNDISTURBED, Stimulus
from roadworthy.engine.plan import Bench, PlannedStimulus, plan_cases
from roadworthy.protocols import base
from roadworthy.protocols.break_point.metrics import METRICS
from roadworthy.protocols.break_point.page import page
from roadworthy.protocols.break_point.settings import NAME, Settings, chosen_metric
from roadworthy.protocols.break_point.table_specs import TABLE_SPECS
from roadworthy.protocols.break_point.tables import Evidence, PointKey, asked_points
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.shifts import make_shift
from roadworthy.verdict import Criterion


@base.PROTOCOLS.register(NAME)
class BreakPoints(base.Protocol):
    """Every stimulus shown to every model."""

    name = NAME
    settings = Settings
    table_specs = TABLE_SPECS
    further_questions = frozenset({"conditions"})
    metrics = METRICS
    summary = "From which severity of a shift on a metric misses its threshold, with bounds, and its curve up to there."
    limits = (
        "Severity is a scale of its own for every shift: a lower break point does not make a shift more dangerous. "
        "Between two severities of the grid a curve could dip and come back unseen. Bounds say what other images of "
        "the same kind would show, not what real weather does."
    )

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the level tables that lie in files."""
        return settings.model_copy(update={"shifts": [choice.inlined(base) for choice in settings.shifts]})

    def check_settings(self, settings: Settings) -> None:
        """The metric has a threshold, and every shift all severities of its grid."""
        chosen_metric(settings)
        for choice in settings.shifts:
            for severity in choice.grid(settings.step):
                make_shift(choice.name, severity, choice.rows)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Undisturbed data and every shift at every severity, in every repeat."""
        return (1 + sum(len(choice.grid(settings.step)) for choice in settings.shifts)) * settings.repeats

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Undisturbed data, and every shift at every severity in every repeat."""
        return _planned_stimuli(settings, bench, clean_repeats=1)

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Every stimulus shown to every model; undisturbed data in every repeat to those trained again for it."""
        return base.Planned(plan_cases(NAME, _planned_stimuli(settings, bench, settings.repeats), bench))

    def row_facts(self, case: base.KnownCase) -> Mapping[str, Any]:
        """The model, the shift and its severity."""
        stimulus = case.stimulus
        return {"model": case.system, "shift": stimulus.name, "severity": stimulus.level, "repeat": stimulus.repeat}

    def check(self, cases: Sequence[base.KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""
        asked_points([PointKey.of(case) for case in cases if case.stimulus.name != UNDISTURBED], criterion)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say, shift by shift; nothing is resampled."""
        return Evidence(part.cases, part.settings, part.class_names, workers=workers)


def _planned_stimuli(settings: Settings, bench: Bench, clean_repeats: int) -> list[PlannedStimulus]:
    """Undisturbed data first, then shift by shift, severity by severity, repeat by repeat."""
    fingerprint, seed = bench.data.fingerprint(), bench.seed
    planned = [
        PlannedStimulus(Stimulus(fingerprint, repeat=repeat, seed=seed), bench.data) for repeat in range(clean_repeats)
    ]
    for choice in settings.shifts:
        for severity in choice.grid(settings.step):
            shift = make_shift(choice.name, severity, choice.rows)
            for repeat in range(settings.repeats):
                stimulus = shift.stimulus(fingerprint, seed=seed, repeat=repeat)
                planned.append(PlannedStimulus(stimulus, bench.data, shift))
    return planned
