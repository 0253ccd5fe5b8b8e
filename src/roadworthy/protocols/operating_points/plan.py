"""The plan of operating points: held-out images, test data under every shift, and outliers, shown to every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Stimulus
from roadworthy.data import OpenedDataset
from roadworthy.engine.plan import Bench, PlannedStimulus, plan_cases
from roadworthy.monitors.id_calibration import note_of_mix
from roadworthy.protocols import base
from roadworthy.protocols.base import KnownCase
from roadworthy.protocols.monitor_scores import HELD_OUT, SHOWN, scored_cases, scoring_data
from roadworthy.protocols.ood.gans import Gans
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.protocols.ood.sides import Side, check_outliers, count_outliers, outlier_sides
from roadworthy.protocols.ood.tables import gan_keys
from roadworthy.protocols.operating_points.answers import FIGURES
from roadworthy.protocols.operating_points.keys import (
    HELD_OUT_OUTLIERS,
    ConditionKey,
    asked,
    is_inside,
    is_outside,
)
from roadworthy.protocols.operating_points.metrics import ACCEPTED_OUTLIER, ACCEPTED_WRONG, METRICS, REJECTED
from roadworthy.protocols.operating_points.page import page
from roadworthy.protocols.operating_points.settings import (
    HALF,
    NAME,
    NOTHING,
    VALIDATION,
    VALIDATION_HALF,
    Context,
    Settings,
)
from roadworthy.protocols.operating_points.table_specs import TABLE_SPECS
from roadworthy.protocols.operating_points.tables import Evidence
from roadworthy.protocols.shift_choices import shifted_stimuli
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.shifts import Attack
from roadworthy.verdict import Criterion


@base.PROTOCOLS.register(NAME)
class OperatingPoints(base.Protocol):
    """Held-out images, every condition of the test data and every set of outliers, shown to every model."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    summary = (
        "How often does it fail silently: accepted wrong answers and outliers at a threshold from held-out images."
    )
    limits = (
        "A threshold is fixed on held-out images of other objects, so the share that it rejects differs on the test "
        "images. Rates count how often a wrong answer passes, not how bad it is. The outliers are examples; what "
        "occurs on a road is in none of the sets."
    )
    shows_outliers = True
    metrics = METRICS
    compared = (ACCEPTED_WRONG.name, ACCEPTED_OUTLIER.name)
    subject = "operating points"
    question_figures = FIGURES
    label_free = frozenset({REJECTED.name})
    suites: ClassVar[Mapping[str, Settings]] = {"approval@1": Settings()}
    uses = frozenset({"outliers", "train", "validation", "monitor"})

    def describe(self, settings: Settings) -> str:
        """How the threshold is fixed."""
        return f"{settings.rule}: validation data, or half of the test groups"

    def suite_settings(self, settings: Settings, given: Mapping[str, Any]) -> Settings:
        """With GANs of the six kinds where there is training data for them, and the score of a given monitor."""
        changed: dict[str, Any] = {"score": given["monitor"]} if "monitor" in given else {}
        if "train" in given and settings.outliers is not None:
            changed["outliers"] = settings.outliers.model_copy(update={"gans": Gans()})
        return settings.model_copy(update=changed)

    def learns_from(self, settings: Settings, monitors: Mapping[str, Any]) -> frozenset[str]:
        """Training data where there are GANs to train; what a monitor learns from that gives the score."""
        gans = settings.outliers is not None and settings.outliers.gans is not None
        return frozenset({"train"} if gans else ()) | scoring_data(settings.score, monitors)

    def has_thresholds(self, settings: Settings) -> bool:
        """That of each model, unless the study gives it."""
        return settings.threshold is None

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the level tables that lie in files."""
        return settings.inlined(base)

    def check_settings(self, settings: Settings) -> None:
        """Every shift is known and has the levels asked for; outliers as `ood` checks them."""
        for choice in settings.shifts:
            if any(isinstance(shift, Attack) for shift in choice.at(settings.levels)):
                raise InputError(
                    f"{choice.name} is an attack on a model: {NAME} shows shifts, classification shows attacks too"
                )
        if settings.outliers is not None:
            check_outliers(settings.outliers, NAME)

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Held-out and undisturbed data, every shift at every level, and the sides of outliers, in every repeat."""
        conditions = sum(choice.count(settings.levels) for choice in settings.shifts)
        outliers = count_outliers(settings.outliers, foreign) if settings.outliers else 0
        shown = (2 + conditions + outliers) * settings.repeats
        return shown if settings.score is None else 2 * shown

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Everything that is shown."""
        return [showing for showing, _ in _sides(settings, bench)]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Everything shown to every model, and to the monitor that gives the score, if one does."""
        planned = [plan_cases(NAME, [showing], bench, labels) for showing, labels in _sides(settings, bench)]
        cases = [case for own in planned for case in own]
        mix = note_of_mix(bench.data if bench.validation is None else bench.validation)
        note = "; ".join(filter(None, [mix, bench.threshold_note()]))
        context = Context(held_out=_held_out(settings, bench), note=note, seed=bench.seed)
        return base.Planned(scored_cases(NAME, settings.score, bench, cases), context)

    def row_facts(self, case: KnownCase) -> Mapping[str, Any]:
        """The columns that name a condition of the test data, or a set of outliers; what is held out has no row."""
        if is_inside(case):
            return ConditionKey.of(case).where()
        return SetKey.of(case).where() if is_outside(case) else {"model": ""}

    def check(self, cases: Sequence[KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches none of the cases."""
        conditions = [*dict.fromkeys(ConditionKey.of(case) for case in cases if is_inside(case))]
        asked(conditions, [SetKey.of(case) for case in cases if is_outside(case)], gan_keys(cases), criterion)

    def remark(self, criterion: Criterion, parts: Sequence[base.Part]) -> str:
        """That the figures are over half of the test data, where the threshold was fixed on the other half."""
        if all(part.context.held_out != HALF for part in parts):
            return ""
        if criterion.metric == ACCEPTED_OUTLIER.name:
            return "at a threshold that was fixed on half of the test groups"
        return "over the half of the test groups that the threshold was not fixed on"

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say; bounds are closed forms by group, so that nothing is resampled."""
        return Evidence(part.cases, part.settings or Settings(), part.context or Context(), workers=workers)


def _held_out(settings: Settings, bench: Bench) -> str:
    """What the threshold is fixed on."""
    if bench.validation is not None:
        return VALIDATION if bench.fitting is None else VALIDATION_HALF
    return HALF if settings.threshold is None else NOTHING


def _sides(settings: Settings, bench: Bench) -> list[Side]:
    """What is shown, each once, with its labels: the test data has none."""
    held_out = _held_out(settings, bench)
    assert isinstance(bench.data, OpenedDataset)
    if held_out == HALF and len({*bench.data.groups}) < 2:
        raise InputError(
            f"{NAME} fixes a threshold on held-out images: name data: validation, or test data of two groups or more, "
            f"or write the threshold itself under {NAME}: threshold"
        )
    shown: list[tuple[Dataset, dict[str, str]]] = [(bench.data, {})]
    shown += [] if bench.validation is None else [(bench.validation, {SHOWN: HELD_OUT})]
    sides: list[Side] = []
    for data, labels in shown:
        for repeat in range(settings.repeats):
            stimulus = Stimulus(data.fingerprint(), repeat=repeat, seed=bench.seed)
            sides.append((PlannedStimulus(stimulus, data), labels))
    shifted = shifted_stimuli(settings.shifts, settings.levels, settings.repeats, bench.data, bench.seed)
    sides += [(showing, {}) for showing in shifted]
    if settings.outliers is not None:
        sides += _outliers(settings, bench)
    by_key = {(showing.stimulus.hash, *sorted(labels.items())): (showing, labels) for showing, labels in sides}
    return [*by_key.values()]


def _outliers(settings: Settings, bench: Bench) -> list[Side]:
    """The sides of outliers; the set that a cost names is held out instead of shown as the others are."""
    assert settings.outliers is not None
    sides, named = outlier_sides(settings.outliers, settings.repeats, bench), settings.cost and settings.cost.outliers
    if not named:
        return sides
    known = [labels["ood_set"] for _, labels in sides if labels.get("kind") == "literature"]
    if named not in known:
        raise UnknownName("set of outliers to hold out for cost (noise or a foreign set)", named, dict.fromkeys(known))
    if any(labels.get("foreign") == named and "shift" in labels for _, labels in sides):
        raise InputError(
            f"the outliers {named} are held out for cost, and shown under shifts too: name another set for one of "
            "these (cost: outliers, outliers: foreign), or no shifts (outliers: transformed: [])"
        )
    held = {SHOWN: HELD_OUT_OUTLIERS}
    return [(showing, held if labels.get("ood_set") == named else labels) for showing, labels in sides]
