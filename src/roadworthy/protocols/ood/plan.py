"""The plan of ood: both sides of every set, shown to every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roadworthy.engine.plan import Bench, PlannedStimulus, plan_cases
from roadworthy.protocols import base
from roadworthy.protocols.base import KnownCase
from roadworthy.protocols.condition_columns import Breakdown, resolve_breakdown
from roadworthy.protocols.condition_slices import asked_slices
from roadworthy.protocols.monitor_scores import scored_cases, scoring_data
from roadworthy.protocols.ood.answers import FIGURES
from roadworthy.protocols.ood.by_condition import WHERE
from roadworthy.protocols.ood.gans import Gans
from roadworthy.protocols.ood.metrics import METRICS
from roadworthy.protocols.ood.page import page
from roadworthy.protocols.ood.questions import QUESTIONS
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.settings import DERIVED, NAME, NOISE, Settings
from roadworthy.protocols.ood.sides import check_outliers, count_outliers, outlier_sides
from roadworthy.protocols.ood.table_specs import TABLE_SPECS
from roadworthy.protocols.ood.tables import Evidence, asked_sets, gan_keys
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.verdict import Criterion


@base.PROTOCOLS.register(NAME)
class OutOfDistribution(base.Protocol):
    """Every set, and the in-distribution side it is mixed with, shown to every model."""

    name = NAME
    settings = Settings
    context = Breakdown
    table_specs = TABLE_SPECS
    summary = "Is the classifier less sure of what it cannot know: noise, foreign images, shifted ones, GAN-made ones."
    limits = (
        "No set here is what a road will bring: sets find blind spots and rank models, and a high AUROC on noise "
        "proves little. The hardest set is chosen after the fact, so it looks a little worse than a fresh measurement"
        " would. Whether answers to known classes are right is not asked here."
    )
    shows_outliers = True
    compared = ("auroc", "fpr95_in")
    subject = "outliers"
    former_data_keys: ClassVar[Mapping[str, str]] = {
        NAME: f"sets from outside stand at the top of a study now: write outliers: instead of data: {NAME}:"
    }
    metrics = METRICS
    repeat_questions = QUESTIONS
    question_figures = FIGURES
    suites: ClassVar[Mapping[str, Settings]] = {"approval@1": Settings()}
    uses = frozenset({"outliers", "train", "monitor"})

    def describe(self, settings: Settings) -> str:
        """Which makers and how many transformed sets there are."""
        makers = "named sets" if settings.sets else f"{len((*NOISE, *DERIVED))} makers and every foreign set"
        levels = ", ".join(map(str, settings.levels))
        return f"{makers}, {len(settings.transformed)} transformed at level {levels}; GANs where training data is given"

    def suite_settings(self, settings: Settings, given: Mapping[str, Any]) -> Settings:
        """With GANs of the six kinds where there is training data for them, and the score of a given monitor."""
        changed = {"gans": Gans()} if "train" in given else {}
        return settings.model_copy(update=changed | ({"monitor": given["monitor"]} if "monitor" in given else {}))

    def learns_from(self, settings: Settings, monitors: Mapping[str, Any]) -> frozenset[str]:
        """Training data where there are GANs to train; what a monitor learns from that gives the score."""
        return frozenset({"train"} if settings.gans is not None else ()) | scoring_data(settings.monitor, monitors)

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the level tables that lie in files."""
        return settings.inlined(base)

    def check_settings(self, settings: Settings) -> None:
        """Every shift is known, has the levels asked for, and is no attack; every GAN is known."""
        check_outliers(settings, NAME)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Undisturbed data, every set, both sides of every transformed one, and every GAN, in every repeat."""
        shown = (1 + count_outliers(settings, foreign)) * settings.repeats
        return shown if settings.monitor is None else 2 * shown + 1

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Both sides of every set."""
        return [showing for showing, _ in outlier_sides(settings, settings.repeats, bench)]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Both sides of every set shown to every model, and to the monitor that gives the score, if one does.

        One more case reads the conditions of the data.
        """
        sides = outlier_sides(settings, settings.repeats, bench)
        planned = [plan_cases(NAME, [showing], bench, labels) for showing, labels in sides]
        cases = scored_cases(NAME, settings.monitor, bench, [case for own in planned for case in own])
        breakdown = resolve_breakdown(NAME, settings.conditions, bench.data)
        return base.Planned([*cases, *breakdown.plan(NAME, sides[0][0], bench)], breakdown)

    def row_facts(self, case: KnownCase) -> Mapping[str, Any]:
        """Of the outliers of a set: the columns that name it, and which repeat or GAN it is; of test data the model."""
        if "ood_set" not in case.labels:
            return {"model": case.system}
        drawn = {"gan": case.labels["gan"]} if "gan" in case.labels else {}
        return {**SetKey.of(case).where(), "repeat": case.stimulus.repeat, **drawn}

    def check(self, cases: Sequence[KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""
        asked = asked_slices(context or Breakdown(), criterion, WHERE)
        sets = [SetKey.of(case) for case in cases if "ood_set" in case.labels]
        asked_sets(sets, gan_keys(cases), asked.criterion)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say, set by set; `resamples` are drawn, the usual number unless given."""
        settings = part.settings or Settings()
        drawing: dict[str, Any] = {"seed": seed, "workers": workers, "resamples": resamples, "sides": settings.sides}
        return Evidence(part.cases, part.class_names, settings.monitor, **drawing, breakdown=part.context)
