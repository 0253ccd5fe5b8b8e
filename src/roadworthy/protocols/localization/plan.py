"""Localization on the spine: which images of a source, and of sets outside, are shown to which models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.engine.conditions import Conditions
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus, plan_cases
from roadworthy.metrics import Metric
from roadworthy.protocols import base
from roadworthy.protocols.base import Part
from roadworthy.protocols.localization.metrics import METRICS
from roadworthy.protocols.localization.names import ALL, ANSWERS, BOXES, CLASSES, CONDITIONS, NAME, TEST
from roadworthy.protocols.localization.sets import PlannedSet, plan_sets, shift_of
from roadworthy.protocols.localization.settings import Context, ModelNote, Settings, suite_settings
from roadworthy.protocols.localization.table_specs import TABLE_SPECS
from roadworthy.protocols.localization.tables import Evidence, cell_keys, select, view_of
from roadworthy.protocols.served import source_words
from roadworthy.verdict import Criterion

if TYPE_CHECKING:
    from roadworthy.report.facts import Facts
    from roadworthy.report.page import Page

COLUMN_OF = {CLASSES: "probabilities", BOXES: "boxes"}


@base.PROTOCOLS.register(NAME)
class Localization(base.Protocol):
    """Every set shown to every model that says what it sees, where, or both."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    further_questions = frozenset({"conditions", "certainty"})
    columns = frozenset[str]()
    summary = "What and where a network sees, and how well it knows how sure it is, under natural and simulated shift."
    limits = (
        "One object per image: this is localization, not detection, so missed and invented objects are not counted. "
        "Rain and fog are simulated; real weather needs a set of its own. A network that states no variance has no "
        "figures of box uncertainty."
    )
    shows_outliers = True
    metrics = METRICS
    suites: ClassVar[Mapping[str, Settings]] = {"localization@1": suite_settings()}

    def describe(self, settings: Settings) -> str:
        """How many sets are shown beside the test data, and how often."""
        return f"boxes and classes on {len(settings.chosen_sets())} sets, repeats {settings.repeats}"

    def check_settings(self, settings: Settings) -> None:
        """Every shift is known and has the level asked for."""
        for name, choice in settings.chosen_sets().items():
            if choice.shift is not None:
                try:
                    shift_of(choice)
                except InputError as error:
                    raise InputError(f"set {name}: {error}") from None

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """The test data and every set, in every repeat."""
        return (1 + len(settings.chosen_sets())) * settings.repeats

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """The first repeat of every set."""
        return [planned.showings[0] for planned in plan_sets(settings, bench).values()]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Every set shown to every model, and the conditions of its images."""
        sets = plan_sets(settings, bench)
        models = {name: _noted(name, model) for name, model in bench.models.items()}
        if any(BOXES in note.tasks for note in models.values()) and not sets[TEST].note.truth:
            raise InputError(
                f"{source_words(bench)}: the test data has no boxes, so where an object is cannot be tested: give "
                "boxes, or leave out what answers them"
            )
        context = Context(
            models=models,
            sets={name: planned.note for name, planned in sets.items()},
            size=list(bench.data.size),
            views=[*settings.views],
            hull_truth=settings.hull_truth,
            by_coordinate=True,
            networks={name: [part.recipe.hash for part in model.requires()] for name, model in bench.models.items()},
        )
        for key in cell_keys(context):
            try:
                view_of(key.view, context.sets[key.set], settings, bench.data.class_names)
            except InputError as error:
                named = f"set {key.set}" if key.view == ALL else f"view {key.view}"
                raise InputError(f"{named}: {error}") from None
        return base.Planned([case for name, own in sets.items() for case in _cases(name, own, bench)], context)

    def metrics_of(self, settings: Settings | None) -> tuple[Metric, ...]:
        """Those of classes, then those of boxes."""
        return METRICS

    def row_facts(self, case: base.KnownCase) -> Mapping[str, Any]:
        """The model, the set, and which repeat of it."""
        return {"model": case.system, "set": case.labels["set"], "repeat": case.stimulus.repeat}

    def check(self, cases: Sequence[Any], criterion: Criterion, context: Any = None) -> None:
        """Refuse a criterion that matches nothing, or that judges boxes by turned ones without saying so."""
        select(cell_keys(context), criterion, context)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        from roadworthy.protocols.localization.page import page

        return page(run, facts)

    def evidence(self, part: Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What the stored answers of one source say."""
        return Evidence(part, part.settings or Settings(), seed=seed, workers=workers, resamples=resamples)


def _cases(name: str, planned: PlannedSet, bench: Bench) -> list[PlannedCase]:
    """All that is asked about one set."""
    cases = plan_cases(NAME, planned.showings, bench, {"role": ANSWERS, "set": name})
    if planned.showings[0].shift is None and planned.data.batch([0]).conditions:
        labels = {"role": CONDITIONS, "set": name}
        cases.append(bench.case(planned.showings[0], Conditions(), protocol=NAME, labels=labels))
    return cases


def _noted(name: str, model: Model) -> ModelNote:
    """What the tables say of a model."""
    tasks = [task for task, column in COLUMN_OF.items() if column in model.columns]
    if not tasks:
        raise InputError(f"model {name} answers neither classes nor boxes: leave it out of {NAME}")
    facts = {task: dict(model.facts().get(task, {})) for task in tasks}
    searches = {task: own.pop("search") for task, own in facts.items() if "search" in own}
    return ModelNote(family=model.family or name, uncertainty=model.uncertainty, tasks=facts, searches=searches)
