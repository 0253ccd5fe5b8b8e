"""The plan of ood: both sides of every set, shown to every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roadworthy.core.code import code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import OUTLIERS, Dataset, Outliers
from roadworthy.core.types import Stimulus
from roadworthy.engine.plan import Bench, PlannedStimulus, plan_cases
from roadworthy.outliers import make_outliers
from roadworthy.outliers.gan import GanOutliers
from roadworthy.protocols import base
from roadworthy.protocols.base import KnownCase
from roadworthy.protocols.ood.answers import FIGURES
from roadworthy.protocols.ood.gan_bounds import GANS
from roadworthy.protocols.ood.gans import Gans, planned_gans
from roadworthy.protocols.ood.metrics import METRICS
from roadworthy.protocols.ood.page import page
from roadworthy.protocols.ood.questions import QUESTIONS
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.settings import DERIVED, FOREIGN, NAME, NOISE, SetChoice, Settings
from roadworthy.protocols.ood.table_specs import GAN, TABLE_SPECS
from roadworthy.protocols.ood.tables import Evidence, asked_sets, gan_keys
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.shifts import Attack
from roadworthy.verdict import Criterion

Side = tuple[PlannedStimulus, Mapping[str, str]]
"""One showing of a set: what is shown, and labels that say which set it belongs to."""


@base.PROTOCOLS.register(NAME)
class OutOfDistribution(base.Protocol):
    """Every set, and the in-distribution side it is mixed with, shown to every model."""

    name = NAME
    settings = Settings
    table_specs = TABLE_SPECS
    summary = "Is the classifier less sure of what it cannot know: noise, foreign images, shifted ones, GAN-made ones."
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
    uses = frozenset({"outliers", "train"})

    def describe(self, settings: Settings) -> str:
        """Which makers and how many transformed sets there are."""
        makers = "named sets" if settings.sets else f"{len((*NOISE, *DERIVED))} makers and every foreign set"
        levels = ", ".join(map(str, settings.levels))
        return f"{makers}, {len(settings.transformed)} transformed at level {levels}; GANs where training data is given"

    def suite_settings(self, settings: Settings, given: Mapping[str, Any]) -> Settings:
        """With the GANs of the thesis, of preset small, where there is training data for them."""
        return settings.model_copy(update={"gans": Gans()}) if "train" in given else settings

    def learns_from(self, settings: Settings, monitors: Mapping[str, Any]) -> frozenset[str]:
        """Training data where there are GANs to train."""
        return frozenset({"train"} if settings.gans is not None else ())

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the level tables that lie in files."""
        return settings.model_copy(update={"transformed": [choice.inlined(base) for choice in settings.transformed]})

    def check_settings(self, settings: Settings) -> None:
        """Every shift is known, has the levels asked for, and is no attack; every GAN is known."""
        if settings.gans is not None:
            settings.gans.check()
        for choice in settings.transformed:
            if any(isinstance(shift, Attack) for shift in choice.at(settings.levels)):
                raise InputError(
                    f"{choice.name} is an attack on a model, and outliers are shown to all alike: name shifts under "
                    "ood: transformed, and attacks under classification: shifts"
                )

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Undisturbed data, every set, both sides of every transformed one, and every GAN, in every repeat."""
        sets = len(settings.sets) if settings.sets else len(NOISE) + foreign + len(DERIVED)
        transformed = sum(choice.count(settings.levels) for choice in settings.transformed)
        gans = len(settings.gans.configurations) * settings.gans.count if settings.gans else 0
        return (1 + sets + 2 * transformed + gans) * settings.repeats

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Both sides of every set."""
        return [showing for showing, _ in _sides(settings, bench)]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Both sides of every set shown to every model."""
        planned = [plan_cases(NAME, [showing], bench, labels) for showing, labels in _sides(settings, bench)]
        return base.Planned([case for cases in planned for case in cases])

    def check(self, cases: Sequence[KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""
        asked_sets([SetKey.of(case) for case in cases if "ood_set" in case.labels], gan_keys(cases), criterion)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say, set by set; `resamples` are drawn, the usual number unless given."""
        return Evidence(part.cases, part.class_names, seed=seed, workers=workers, resamples=resamples)


def _sides(settings: Settings, bench: Bench) -> list[Side]:
    """In-distribution sides first, then every set; in each repeat."""
    chosen = settings.sets
    if chosen is None:
        named = [name for name in bench.makers if name not in (*NOISE, *DERIVED)]
        chosen = [SetChoice(name=name) for name in (*NOISE, *bench.foreign, *named, *DERIVED)]
    known = [name for name in OUTLIERS if name != FOREIGN]
    for choice in chosen:
        if choice.name not in known and choice.name not in (*bench.foreign, *bench.makers):
            raise UnknownName("set of outliers", choice.name, [*known, *bench.foreign, *bench.makers])
    for name in bench.foreign:
        if name in known:
            raise InputError(f"the foreign set {name!r} has the name of a maker of outliers: call it otherwise")
    for name, own in bench.makers.items():
        if name in known and name != own.name:
            raise InputError(f"the outliers {name!r}, made by {own.name}, have the name of another maker: rename them")
    if settings.foreign is not None and settings.foreign not in bench.foreign:
        raise UnknownName("foreign set", settings.foreign, bench.foreign)
    shifts = [shift for choice in settings.transformed for shift in choice.at(settings.levels)]
    generators = planned_gans(settings.gans, bench)
    for gan in generators:
        if gan.configuration.name in (*known, *bench.foreign, *(f"{shift.name}-{shift.level}" for shift in shifts)):
            raise InputError(f"the GAN {gan.configuration.name!r} has the name of another set: call it otherwise")
    test, seed = bench.data.fingerprint(), bench.seed
    sides: list[Side] = []
    for repeat in range(settings.repeats):
        sides.append((PlannedStimulus(Stimulus(test, repeat=repeat, seed=seed), bench.data), {}))
        for shift in shifts:
            sides.append((PlannedStimulus(shift.stimulus(test, seed=seed, repeat=repeat), bench.data, shift), {}))
        for choice in chosen:
            made, maker = _made(choice, bench, repeat)
            code = code_of(type(maker))
            stimulus = Stimulus(made.fingerprint(), choice.name, 0, maker.parameters(), repeat, seed, code)
            kind = "literature" if maker.name in (*NOISE, FOREIGN) else "derived"
            fresh = choice.name not in bench.foreign
            labels = {"ood_set": choice.name, "kind": kind} | ({} if fresh else {"foreign": choice.name})
            sides.append((PlannedStimulus(stimulus, made, fresh=fresh), labels))
        if shifts:
            name = settings.foreign or next(iter(bench.foreign))
            made, _ = _made(SetChoice(name=name), bench, repeat)
            for shift in shifts:
                shown_as = f"{name}_{shift.name}"
                stimulus = shift.stimulus(made.fingerprint(), seed=seed, repeat=repeat, name=shown_as)
                labels = {"ood_set": f"{shift.name}-{shift.level}", "kind": "transformed"}
                labels |= {"shift": shift.name, "foreign": name}
                sides.append((PlannedStimulus(stimulus, made, shift), labels))
        for gan in generators:
            name, drawer = gan.configuration.name, GanOutliers(gan=gan)
            drawn = drawer.make(bench.data, seed=seed + repeat)
            stimulus = Stimulus(drawn.fingerprint(), name, 0, drawer.parameters(), repeat, seed)
            labels = {"ood_set": name, "kind": GAN, "gan": str(gan.index), "artifact": gan.recipe.hash, "unit": GANS}
            sides.append((PlannedStimulus(stimulus, drawn, fresh=True, requires=(gan,)), labels))
    return sides


def _made(choice: SetChoice, bench: Bench, repeat: int) -> tuple[Dataset, Outliers]:
    """The outliers of a choice for a repeat, and what makes them."""
    foreign = bench.foreign.get(choice.name)
    own = bench.makers.get(choice.name)
    maker = own or make_outliers(FOREIGN if foreign is not None else choice.name, **choice.parameters)
    seed = bench.seed if foreign is not None else bench.seed + repeat
    return maker.make(bench.data, seed=seed, foreign=foreign), maker
