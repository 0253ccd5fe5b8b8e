"""The plan of expected situations: every situation shown to every model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.engine.plan import Bench, PlannedStimulus, plan_cases
from roadworthy.metrics import Metric
from roadworthy.protocols import base
from roadworthy.protocols.situations.criteria import check_metric, select
from roadworthy.protocols.situations.expected import Context, find_situations, make_context, showing_of
from roadworthy.protocols.situations.metrics import USUAL, all_metrics, measured_metrics
from roadworthy.protocols.situations.page import page
from roadworthy.protocols.situations.settings import Settings, entries
from roadworthy.protocols.situations.table_specs import NAME, TABLE_SPECS
from roadworthy.protocols.situations.tables import Evidence
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.verdict import Criterion


@base.PROTOCOLS.register(NAME)
class Situations(base.Protocol):
    """Every expected situation shown to every model."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    further_questions = frozenset({"conditions"})
    summary = "Expected performance, and the share of expected situations in which requirements are met, by frequency."
    limits = (
        "The figures are as good as the frequencies that the study states. What occurs and is not listed is not in "
        "them. A drawn shift stands for weather only as far as it looks like it."
    )
    shows_recorded = True
    compared = ("expected_accuracy",)
    subject = NAME
    metrics = all_metrics(USUAL)

    def metrics_of(self, settings: Settings | None) -> tuple[Metric, ...]:
        """Those of every study, and those that the settings name."""
        return all_metrics(measured_metrics(settings.metrics)) if settings else self.metrics

    def comparable(self, settings: Settings | None) -> tuple[Metric, ...]:
        """The expectations of metrics of which one way is better."""
        measured = measured_metrics(settings.metrics if settings else ())
        return tuple(metric.expected() for metric in measured if metric.higher_is_better is not None)

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the level tables that lie in files."""
        return settings.model_copy(update={"shifts": [choice.inlined(base) for choice in settings.shifts]})

    def check_settings(self, settings: Settings) -> None:
        """Every shift is known, has the levels asked for, and is no attack; requirements are on measured metrics."""
        known = {metric.name: metric for metric in measured_metrics(settings.metrics)}
        named = [name for name, _, _ in entries(settings.frequencies)]
        for choice in settings.shifts:
            if choice.name not in named:
                raise InputError(f"{NAME}: shifts names {choice.name}, which has no frequency: give it one by level")
        for requirement in settings.requirements:
            check_metric(f"requirement {requirement.name!r}", requirement.metric, known.values())
        find_situations(settings)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """One per situation; undisturbed data may be one more that gets the rest."""
        return len([*entries(settings.frequencies)]) + (settings.rest is not None)

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """What is shown in every situation."""
        return [showing_of(situation, settings, bench) for situation in make_context(settings, bench).situations]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Every situation shown to every model."""
        context = make_context(settings, bench)
        if context.example:
            warnings.warn(
                f"{NAME}: no frequencies are given, so an example stands in for how often situations are expected: "
                "name your own under frequencies",
                stacklevel=2,
            )
        for requirement in context.requirements:
            metric = next(own for own in measured_metrics(settings.metrics) if own.name == requirement.metric)
            low, high = metric.limits(len(bench.data.class_names))
            if not low <= requirement.threshold <= high:
                raise InputError(
                    f"{NAME}: requirement {requirement.name!r} lies outside the range of {metric.name}, which is "
                    f"{low:g} to {high:g}"
                )
        cases = [
            case
            for situation in context.situations
            for case in plan_cases(NAME, [showing_of(situation, settings, bench)], bench, {"situation": situation.name})
        ]
        return base.Planned(cases, context)

    def check(self, cases: Sequence[base.KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches nothing that is measured."""
        select({case.system for case in cases}, context, criterion)

    def check_all(self, parts: Sequence[base.Part], criterion: Criterion, settings: Any = None) -> None:
        """Raise an `InputError` where a criterion names a metric that is not measured, or matches nothing."""
        check_metric(f"criterion {criterion.id}", criterion.metric, self.metrics_of(settings))
        super().check_all(parts, criterion, settings)

    def is_over_objects(self, criterion: Criterion) -> bool:
        """The share of situations is not bounded as a mean over objects is."""
        return criterion.metric != "share_met"

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say, situation by situation."""
        measured = measured_metrics(part.settings.metrics if part.settings else ())
        return Evidence(part.cases, part.class_names, part.context, measured, workers=workers)
