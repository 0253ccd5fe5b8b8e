"""The plan of classification: every image undisturbed and under each shift at each level, shown to every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Bench, PlannedStimulus, plan_cases
from roadworthy.metrics import Metric, mean_confidence
from roadworthy.protocols import base
from roadworthy.protocols.classification.answers import FIGURES
from roadworthy.protocols.classification.human import QuizImages, check_answers, read_answers
from roadworthy.protocols.classification.looks import looked_at, parts_of
from roadworthy.protocols.classification.page import page
from roadworthy.protocols.classification.questions import QUESTIONS
from roadworthy.protocols.classification.settings import METRICS, NAME, Settings, metrics_of
from roadworthy.protocols.classification.stopped import Context, criterion_key
from roadworthy.protocols.classification.table_specs import CELL, TABLE_SPECS
from roadworthy.protocols.classification.tables import CellKey, Evidence, check_metric, select
from roadworthy.protocols.condition_columns import Breakdown, resolve_breakdown
from roadworthy.protocols.condition_slices import asked_slices, is_of_data
from roadworthy.protocols.shift_choices import ShiftChoice, shifted_stimuli
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.shifts.corruptions import COMMON, EXTRA
from roadworthy.verdict import Criterion


def planned_stimuli(settings: Settings, data: Dataset, seed: int, clean_repeats: int = 1) -> list[PlannedStimulus]:
    """Every stimulus of the protocol: undisturbed data first, then shift by shift, level by level, repeat by repeat.

    Undisturbed data is shown once, or once per repeat to models that are trained again for each.
    """
    fingerprint = data.fingerprint()
    planned = [
        PlannedStimulus(Stimulus(fingerprint, repeat=repeat, seed=seed), data) for repeat in range(clean_repeats)
    ]
    return [*planned, *shifted_stimuli(settings.shifts, settings.levels, settings.repeats, data, seed)]


@base.PROTOCOLS.register(NAME)
class Classification(base.Protocol):
    """Every stimulus shown to every model."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    is_default = True
    compared = ("accuracy", "auroc", "brier", "ece")
    pools_changes = True
    metrics = METRICS
    summary = "Accuracy, calibration and AUROC of right answers, undisturbed and under every shift at every level."
    limits = (
        "Shifts are drawn onto images, not filmed: a failure shows a weakness, a pass only that this one was not "
        "found. Levels of different shifts are not equally hard. What the model does with images that show none of "
        "its classes is not asked here."
    )
    repeat_questions = QUESTIONS
    question_figures = FIGURES
    label_free = frozenset({mean_confidence.name})
    suites: ClassVar[Mapping[str, Settings]] = {
        "quick@1": Settings(levels=[1, 3, 5]),
        "standard@1": Settings(),
        "full@1": Settings(repeats=5),
        "approval@1": Settings(),
        "corruptions@3": Settings(shifts=[ShiftChoice(name=name) for name in (*COMMON, *EXTRA)]),
    }

    def metrics_of(self, settings: Settings | None) -> tuple[Metric, ...]:
        """Those of every study, and those that the settings name."""
        return metrics_of(settings) if settings else METRICS

    def comparable(self, settings: Settings | None) -> tuple[Metric, ...]:
        """Those of which one way is better."""
        return tuple(metric for metric in self.metrics_of(settings) if metric.higher_is_better is not None)

    def describe(self, settings: Settings) -> str:
        """How many shifts are shown, at which levels and how often."""
        levels = ", ".join(map(str, settings.levels))
        return f"{len(settings.shifts)} shifts, levels {levels}, repeats {settings.repeats}"

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the level tables that lie in files, and the answers of people."""
        changed: dict[str, Any] = {"shifts": [choice.inlined(base) for choice in settings.shifts]}
        if isinstance(settings.human, str):
            changed["human"] = read_answers(base / settings.human)
        return settings.model_copy(update=changed)

    def check_settings(self, settings: Settings) -> None:
        """Raise an `InputError` where a metric or shift is unknown, or lacks a level that is asked for."""
        metrics_of(settings)
        if isinstance(settings.human, str):
            raise InputError(f"{NAME}: human: {settings.human} was not read: load the study with load_study")
        for choice in settings.shifts:
            choice.at(settings.levels)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Undisturbed data and every shift at every level, in every repeat."""
        conditions = sum(choice.count(settings.levels) for choice in settings.shifts)
        return (1 + conditions) * settings.repeats

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Undisturbed data, and every shift at every level in every repeat."""
        return planned_stimuli(settings, bench.data, bench.seed)

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Every stimulus shown to every model; undisturbed data in every repeat to those trained again for it.

        Where the data has conditions that figures are broken down by, one more case reads them.
        """
        stimuli = planned_stimuli(settings, bench.data, bench.seed, settings.repeats)
        if isinstance(settings.human, dict):
            if bench.source:
                raise InputError(f"{NAME}: human answers are for a study of one source, and this one has several")
            keys = [showing.stimulus.key for showing in stimuli]
            check_answers(settings.human, keys, QuizImages.of(bench.data))
        breakdown = resolve_breakdown(NAME, settings.conditions, bench.data)
        cases = [*plan_cases(NAME, stimuli, bench), *breakdown.plan(NAME, stimuli[0], bench)]
        return base.Planned(cases, Context(**dict(breakdown)))

    def looked_at(
        self,
        sources: Mapping[str, base.Planned],
        criteria: Sequence[Criterion],
        settings: Settings,
        asked_by_others: Mapping[str, str],
    ) -> Mapping[str, base.Planned]:
        """Cases whose criteria are all about means over images stop once these are decided."""
        matching = partial(self.matching_sources, parts_of(sources))
        return looked_at(sources, matching, criteria, settings, asked_by_others)

    def why_in_full(self, criterion: Criterion, parts: Sequence[base.Part]) -> str:
        """As it was planned; of a criterion that came later nothing was planned."""
        looks = [part.context.looks for part in parts if part.context.looks]
        return next((own.in_full[key] for own in looks if (key := criterion_key(criterion)) in own.in_full), "")

    def check(self, cases: Sequence[base.KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""
        asked = asked_slices(context or Breakdown(), criterion, CELL)
        select([CellKey.of(case) for case in cases if not is_of_data(case)], asked.criterion)

    def check_all(self, parts: Sequence[base.Part], criterion: Criterion, settings: Any = None) -> None:
        """Raise an `InputError` where a criterion names a metric that is not measured, or matches no case."""
        check_metric(criterion, self.metrics_of(settings))
        super().check_all(parts, criterion, settings)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say, cell by cell; so many bootstrap `resamples` are drawn, `RESAMPLES` unless given."""
        metrics = self.metrics_of(part.settings)
        human = part.settings.human if part.settings else None
        drawing: dict[str, Any] = {"seed": seed, "workers": workers, "resamples": resamples}
        return Evidence(part.cases, part.class_names, metrics, human, part.context, **drawing)
