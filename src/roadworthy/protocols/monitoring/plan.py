"""The benchmark of monitors on the spine: which images of a source are shown to which models and monitors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError, RoadworthyError, UnknownName, foreign_code, is_the_machine_s
from roadworthy.core.roles import Model
from roadworthy.core.validation import check_no_nul
from roadworthy.data import OpenedDataset
from roadworthy.engine.monitor_systems import MonitorFit, MonitorOn, SignalOf
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus
from roadworthy.metrics import Metric
from roadworthy.models.head import network_of
from roadworthy.models.signals import PENULTIMATE, SUPPLY, full_name
from roadworthy.monitors import Monitor
from roadworthy.monitors.assertions import Assertion
from roadworthy.monitors.combined import leaf_monitors
from roadworthy.protocols import base
from roadworthy.protocols.base import Part
from roadworthy.protocols.monitoring.benchmarks import USUAL_SHIFTS, Profile, make_profile, shift_of
from roadworthy.protocols.monitoring.criteria import check_criterion
from roadworthy.protocols.monitoring.metrics import (
    COST_METRICS,
    DECISION_METRICS,
    EVENT_METRICS,
    MCC,
    METRICS,
    REJECTED,
)
from roadworthy.protocols.monitoring.names import ALL, ALONE, NAME, OOD_SETS, TEST, TRAIN, VALID, ood_set
from roadworthy.protocols.monitoring.rules import check_rule, chosen_rule, rule_of
from roadworthy.protocols.monitoring.settings import Context, MonitorNote, Settings
from roadworthy.protocols.monitoring.table_specs import TABLE_SPECS
from roadworthy.protocols.monitoring.tables import Evidence
from roadworthy.protocols.served import architecture_of, check_served, distinct_monitors, source_words
from roadworthy.verdict import Criterion

if TYPE_CHECKING:
    from roadworthy.report.facts import Facts
    from roadworthy.report.page import Page

OWN_DATA = 3
"""Training, validation and test data, which are shown besides the benchmarks."""


@base.PROTOCOLS.register(NAME)
class Monitoring(base.Protocol):
    """Streams of images from inside and outside, shown to every model and to every monitor on it."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    further_questions = frozenset({"outliers", "certainty"})
    summary = "Is a model safer with a runtime monitor: what it rejects of wrong answers and of images from outside."
    limits = (
        "The share of OOD images is chosen, while on a road they are rare: precision and MCC move with it, recall and"
        " false alarms do not. Thresholds come from ID images alone and promise nothing of OOD images. What the "
        "vehicle does once an answer is cancelled is not part of this test."
    )
    shows_outliers = True
    metrics = METRICS
    compared = (MCC.name,)
    label_free = frozenset({REJECTED.name})
    subject = "monitors"

    def learns_from(self, settings: Settings, monitors: Mapping[str, Monitor]) -> frozenset[str]:
        """Training data where a monitor learns from it."""
        return frozenset({TRAIN} if any(monitor.learns for monitor in monitors.values()) else ())

    def has_thresholds(self, settings: Settings) -> bool:
        """Those of its monitors."""
        return True

    def check_settings(self, settings: Settings) -> None:
        """Every shift is known and has the level asked for; every rule for a threshold is possible."""
        for name, choice in (settings.benchmarks or {}).items():
            if choice.shift is not None:
                try:
                    shift_of(choice)
                except InputError as error:
                    raise InputError(f"benchmark {name}: {error}") from None
        for threshold in (settings.threshold, *settings.thresholds.values()):
            rule_of(threshold)
        for layer in settings.layers:
            full_name(f"features:{layer}")

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """The data of the source and every benchmark, each shown to the model and to every monitor on it."""
        usual = foreign + len(USUAL_SHIFTS) + 1
        benchmarks = usual if settings.benchmarks is None else len(settings.benchmarks)
        return (OWN_DATA + benchmarks) * (1 + monitors + len(settings.layers))

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """The data of the source and the OOD side of every benchmark.

        Attacks are made against a model, in a run: they are left out here, and a warning says so.
        """
        profile = make_profile(settings, bench)
        attacks = [name for name, benchmark in profile.benchmarks.items() if benchmark.note.attacks]
        if attacks:
            named = ", ".join(attacks)
            sentence = f"benchmark {named} attacks the model under test: its images are made when that is run"
            warnings.warn(sentence, stacklevel=2)
        others = [own.showing for name, own in profile.benchmarks.items() if name not in attacks]
        return [*profile.own.values(), *others]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """The data of the source and every benchmark, shown to every model and to every monitor on it."""
        left_out = monitors_left_out(bench)
        monitors = {
            label: own
            for label, own in distinct_monitors(NAME, bench.monitors, check_label).items()
            if label not in left_out
        }
        for label in settings.thresholds:
            if label not in bench.monitors:
                raise UnknownName("monitor with a threshold of its own rule", label, bench.monitors)
        for label, monitor in monitors.items():
            check_rule(label, monitor, chosen_rule(settings, label, monitor))
        profile = make_profile(settings, bench)
        check_attacks(bench, profile)
        check_conditions(bench, profile, monitors)
        cases: list[PlannedCase] = []
        for name, model in bench.models.items():
            check_served(bench, model, monitors)
            check_layers(bench, model, settings.layers)
            cases += _model_cases(settings, bench, profile, name, model, monitors)
        context = Context(
            architectures={name: architecture_of(model) for name, model in bench.models.items()},
            networks={name: [part.recipe.hash for part in model.requires()] for name, model in bench.models.items()},
            monitors={
                label: MonitorNote(
                    monitor=monitor.name,
                    differs_from_paper=monitor.differs_from_paper,
                    parameters={key: str(value) for key, value in monitor.parameters().items()},
                    is_sequential=monitor.is_sequential,
                )
                for label, monitor in monitors.items()
            },
            benchmarks={name: benchmark.note for name, benchmark in profile.benchmarks.items()},
            skipped=dict(profile.skipped),
            left_out=left_out,
            valid_from=profile.valid_from,
            valid_note=profile.valid_note,
            leaked=profile.leaked,
        )
        return base.Planned(cases, context)

    def comparable(self, settings: Settings) -> tuple[Metric, ...]:
        """The metrics of decisions and of cost."""
        return (*DECISION_METRICS, *COST_METRICS)

    def check_against(self, criterion: Criterion, settings: Settings) -> None:
        """Refuse a criterion on cost: a run is judged before its times are written where a baseline could be read."""
        super().check_against(criterion, settings)
        if criterion.metric in {metric.name for metric in COST_METRICS}:
            raise InputError(
                f"criterion {criterion.id}: times are not judged against a baseline: name the most that they may be, "
                f"or compare the two runs by {criterion.metric}"
            )

    def is_over_objects(self, criterion: Criterion) -> bool:
        """The mean over benchmarks is not bounded by objects, nor are stretches, false alarms and times."""
        others = {metric.name for metric in (*EVENT_METRICS, *COST_METRICS)}
        return criterion.over != "pooled" and criterion.metric not in others

    def row_facts(self, case: base.KnownCase) -> Mapping[str, Any]:
        """The model, the monitor, and the benchmark whose OOD side the case is."""
        labels = case.labels
        facts = {"model": labels.get("model", case.system), "benchmark": labels["set"].removeprefix(OOD_SETS)}
        return {**facts, "monitor": ALONE if labels["role"] == "answers" else case.system}

    def check(self, cases: Sequence[Any], criterion: Criterion, context: Any = None) -> None:
        """Refuse a criterion that matches nothing that is measured of a source."""
        check_criterion(criterion, context)

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        from roadworthy.protocols.monitoring.page import page

        return page(run, facts)

    def evidence(self, part: Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What the stored answers and representations of one source say."""
        settings = part.settings or Settings()
        if resamples is not None:
            settings = settings.model_copy(update={"resamples": resamples})
        return Evidence(part, settings, seed=seed)


def _model_cases(
    settings: Settings, bench: Bench, profile: Profile, name: str, model: Model, monitors: Mapping[str, Monitor]
) -> Iterator[PlannedCase]:
    """All that one model and the monitors on it are shown."""
    shown: dict[str, tuple[PlannedStimulus, str]] = {key: (showing, "") for key, showing in profile.own.items()}
    for key, benchmark in profile.benchmarks.items():
        try:
            shown[ood_set(key)] = benchmark.showing.against(model), ""
        except InputError as error:
            shown[ood_set(key)] = benchmark.showing, str(error)
    for key, (showing, refused) in shown.items():
        labels = {"role": "answers", "set": key, "model": name}
        yield bench.case(showing, model, name=name, protocol=NAME, labels=labels, refused=refused)
    for layer in settings.layers:
        system = SignalOf(model, full_name(f"features:{layer}"), bench.fingerprint(model))
        for key, (showing, refused) in shown.items():
            labels = {"role": "layer", "set": key, "model": name, "layer": layer}
            yield bench.case(showing, system, protocol=NAME, labels=labels, refused=refused)
    for label, monitor in monitors.items():
        try:
            with foreign_code("", is_the_machine_s):
                watcher = MonitorOn(label, MonitorFit(monitor, model, bench))
                labels = {"role": "monitor", "model": name, "artifact": watcher.fit.recipe.hash}
        except RoadworthyError as error:
            planned = f"{source_words(bench)}: monitor {label} cannot be planned: {error}"
            why = f"{planned}; or leave the monitor out (leave_out)"
            raise InputError(why) from None
        for key, (showing, refused) in shown.items():
            if key != TRAIN:
                yield bench.case(showing, watcher, protocol=NAME, labels={**labels, "set": key}, refused=refused)


def check_label(label: str, monitor: Monitor) -> None:
    """Refuse a label of a monitor that the tables cannot have."""
    if not isinstance(label, str) or not label.strip() or label in (ALONE, ALL):
        raise InputError(f"a monitor cannot be called {label!r}, which means something else in the tables: rename it")
    check_no_nul("name of a monitor", [label])


def monitors_left_out(bench: Bench) -> dict[str, str]:
    """The monitors that a source does not test, by label, each with the reason."""
    names, monitors = bench.section.leave_out, bench.monitors
    for name in names:
        if name not in {*monitors, *(monitor.name for monitor in monitors.values())}:
            raise UnknownName(f"monitor to leave out of {source_words(bench)}", name, monitors)
    left_out = {
        label: "it learns from outliers, and a benchmark gives it none"
        for label, monitor in monitors.items()
        if monitor.learns_from_outliers
    }
    for label, monitor in monitors.items():
        if {label, monitor.name} & {*names}:
            left_out[label] = "left out by the study (leave_out)"
    if monitors and len(left_out) == len(monitors):
        raise InputError(
            f"{source_words(bench)} has no monitor left to test ({'; '.join(left_out.values())}): name another"
        )
    return left_out


def check_attacks(bench: Bench, profile: Profile) -> None:
    """Refuse an attack that no model can be attacked by."""
    for name, benchmark in profile.benchmarks.items():
        refusals = []
        for model in bench.models.values():
            try:
                benchmark.showing.against(model)
            except InputError as error:
                refusals.append(error)
        if refusals and len(refusals) == len(bench.models):
            raise InputError(f"benchmark {name}: {refusals[0]}")


def check_conditions(bench: Bench, profile: Profile, monitors: Mapping[str, Monitor]) -> None:
    """Refuse an assertion about a condition that the validation or test data of the source lack."""
    for label, monitor in monitors.items():
        for part in leaf_monitors(monitor):
            if not isinstance(part, Assertion):
                continue
            for name in (VALID, TEST):
                data = profile.own[name].data
                assert isinstance(data, OpenedDataset)
                try:
                    part.check_conditions(data.table.conditions, data.ids)
                except InputError as error:
                    raise InputError(f"{source_words(bench)}, {name} data: monitor {label}: {error}") from None


def check_layers(bench: Bench, model: Model, layers: Sequence[str]) -> None:
    """Refuse layers whose values a model does not give; of a network to be trained that is known once it is asked."""
    if layers and "features" not in model.capabilities:
        raise InputError(f"layers: model {model.name} gives no hidden values: supply {SUPPLY['features']}")
    network = network_of(model)
    known = getattr(network, "layers", None)
    for layer in layers:
        if layer == PENULTIMATE or known is None or not all(part.loaded for part in network.requires()):
            continue
        try:
            with foreign_code(f"model {model.name}"):
                network.features(bench.data.batch([0] * (network.fixed_batch or 1)), layer)
        except RoadworthyError:
            raise UnknownName(f"layer of model {model.name}", layer, known()) from None
