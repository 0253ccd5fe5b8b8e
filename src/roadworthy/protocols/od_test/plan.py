"""OD-test on the spine: which sets of a source are shown to which monitors on which models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roadworthy.core.code import code_of
from roadworthy.core.errors import InputError, RoadworthyError, UnknownName, foreign_code, is_the_machine_s
from roadworthy.core.random import Streams
from roadworthy.core.roles import Dataset, Model, Outliers
from roadworthy.core.types import Stimulus
from roadworthy.core.validation import check_no_nul
from roadworthy.data import OpenedDataset, Subset, split_by_group
from roadworthy.data.base import identities
from roadworthy.data.subset import Mirrored, rows_in_rounds
from roadworthy.engine.monitor_systems import MonitorFit, MonitorOn, undisturbed
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus
from roadworthy.metrics import Metric
from roadworthy.monitors import Monitor
from roadworthy.outliers import make_outliers
from roadworthy.outliers.makers import Foreign, NoiseImages
from roadworthy.protocols import base
from roadworthy.protocols.base import Part
from roadworthy.protocols.od_test.criteria import check_criterion, check_triples
from roadworthy.protocols.od_test.metrics import ACCURACY, EXPECTED_COST, METRICS
from roadworthy.protocols.od_test.names import ALL, ANSWERS, NAME, OUTLIERS
from roadworthy.protocols.od_test.settings import Context, MonitorNote, Settings
from roadworthy.protocols.od_test.table_specs import TABLE_SPECS
from roadworthy.protocols.od_test.tables import Evidence, subjects_of
from roadworthy.protocols.served import architecture_of, check_served, class_labels, distinct_monitors, source_words
from roadworthy.verdict import Criterion

if TYPE_CHECKING:
    from roadworthy.report.facts import Facts
    from roadworthy.report.page import Page

LEAST_SETS = 2
ORDER = "od_test order"
"""The purpose of the draws of a limit and of an order."""
NOISE = ("uniform_noise", "normal_noise")


@base.PROTOCOLS.register(NAME)
class OdTest(base.Protocol):
    """Validation and test images and every set outside, represented by every monitor on every model."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    further_questions = frozenset({"outliers"})
    summary = "OD-test: how well a monitor rejects outliers of a kind that it was not calibrated with."
    limits = (
        "Both sides count half unless the study says otherwise, while outliers are rare on a road: accuracy here is "
        "no forecast for it. The sets were chosen, not drawn, so a ranking may change with other outliers. Classes "
        "that a set shares with the source are those that the study declares."
    )
    shows_outliers = True
    prints_latex = True
    metrics = METRICS
    compared = (ACCURACY.name,)
    subject = "monitors"
    shows_sources_together = True

    def learns_from(self, settings: Settings, monitors: Mapping[str, Monitor]) -> frozenset[str]:
        """Training data where a monitor learns from it."""
        return frozenset({"train"} if any(monitor.learns for monitor in monitors.values()) else ())

    def has_thresholds(self, settings: Settings) -> bool:
        """Those of its monitors."""
        return True

    def check_settings(self, settings: Settings) -> None:
        """Nothing is wrong whatever the data."""

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """As many as there are triples of each model: monitors, by ordered pairs of sets."""
        sets = len(settings.sets) if settings.sets else foreign + len(NOISE)
        return monitors * sets * (sets - 1)

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Validation, test and training images, and every set outside."""
        return [*_shown(settings, bench).values()]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """Every set shown to every monitor on every model, and to the model itself, training data included."""
        left_out = _left_out(bench)
        nowhere = [label for label in bench.monitors if all(label in labels for labels in left_out.values())]
        monitors = {
            label: monitor
            for label, monitor in distinct_monitors(NAME, bench.monitors, _check_names).items()
            if label not in nowhere
        }
        shown = _shown(settings, bench)
        overlap = {
            name: sorted(class_labels(bench.data, shared.source)) for name, shared in bench.section.overlap.items()
        }
        _check_left(bench, shown, overlap)
        cases: list[PlannedCase] = []
        if not monitors:
            raise InputError(f"{source_words(bench)} leaves out every monitor: keep at least one")
        for name, model in bench.models.items():
            served = {label: monitor for label, monitor in monitors.items() if label not in left_out[name]}
            check_served(bench, model, served)
            for key in sorted(shown, key=lambda key: key != "train"):
                labels = {"role": ANSWERS, "set": key, "model": name}
                cases.append(bench.case(shown[key], model, name=name, protocol=NAME, labels=labels))
            for label, monitor in served.items():
                cases += _monitor_cases(bench, shown, name, model, label, monitor)
        context = Context(
            architectures={name: architecture_of(model) for name, model in bench.models.items()},
            networks={name: [part.recipe.hash for part in model.requires()] for name, model in bench.models.items()},
            classes=len(bench.data.class_names),
            size=[*bench.data.size, bench.data.channels],
            near=sorted(name for name in {*bench.section.near} if OUTLIERS + name in shown),
            overlap={key: shared for key, shared in overlap.items() if shared},
            left_out=nowhere,
            left_out_of={
                name: [label for label in labels if label not in nowhere]
                for name, labels in left_out.items()
                if {*labels} - {*nowhere}
            },
            excluded=list(bench.section.exclude),
            images={key: len(showing.data) for key, showing in shown.items()},
            monitors={
                label: MonitorNote(
                    monitor=monitor.name,
                    differs_from_paper=monitor.differs_from_paper,
                    asks_model=monitor.asks_model,
                )
                for label, monitor in monitors.items()
            },
            valid_note=bench.threshold_note(),
        )
        return base.Planned(cases, context)

    def metrics_of(self, settings: Settings) -> tuple[Metric, ...]:
        """The metrics; the expected cost is highest where every decision is wrong."""
        cost = replace(EXPECTED_COST, range=(0.0, (1 - settings.prior) + settings.prior * settings.cost))
        return tuple(cost if metric is EXPECTED_COST else metric for metric in METRICS)

    def comparable(self, settings: Settings) -> tuple[Metric, ...]:
        """Accuracy alone."""
        return (ACCURACY,)

    def is_over_objects(self, criterion: Criterion) -> bool:
        """The mean over triples is not bounded by objects."""
        return criterion.over != "pooled"

    def row_facts(self, case: base.KnownCase) -> Mapping[str, Any]:
        """The model, the set as D_t, and the monitor where one was asked."""
        facts = {"model": case.labels.get("model", case.system), "test_set": case.labels["set"].removeprefix(OUTLIERS)}
        return facts if case.labels["role"] == ANSWERS else {**facts, "monitor": case.system}

    def check(self, cases: Sequence[Any], criterion: Criterion, context: Any = None) -> None:
        """Sources are looked at together: see `check_all`."""

    def check_all(self, parts: Sequence[Part], criterion: Criterion, settings: Any = None) -> None:
        """Refuse a criterion that speaks of what is not measured, or matches no triple of any source."""
        subjects = subjects_of(parts)
        check_criterion(criterion, subjects.columns)
        check_triples(subjects.translated(criterion), subjects.triples())

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        from roadworthy.protocols.od_test.page import page

        return page(run, facts)

    def evidence(self, part: Part, *, seed: int, **options: Any) -> Evidence:
        """What the representations of one source say."""
        return self.evidence_of([part], seed=seed)

    def evidence_of(self, parts: Sequence[Part], settings: Any = None, *, seed: int, **options: Any) -> Evidence:
        """What the representations of all sources say; resamples are those of the settings."""
        return Evidence(parts, settings or Settings(), seed=seed)


def _monitor_cases(
    bench: Bench, shown: Mapping[str, PlannedStimulus], name: str, model: Model, label: str, monitor: Monitor
) -> Iterator[PlannedCase]:
    """Every set shown to one monitor; fitted once, or once per D_v where it learns from those."""
    outliers = [key for key in shown if key.startswith(OUTLIERS)]
    for fitted_on in outliers if monitor.learns_from_outliers else [""]:
        try:
            with foreign_code("", is_the_machine_s):
                system = MonitorOn(label, MonitorFit(monitor, model, bench, shown.get(fitted_on)))
                labels = {"role": "monitor", "model": name, "artifact": system.fit.recipe.hash}
        except RoadworthyError as error:
            planned = f"{source_words(bench)}: monitor {label} cannot be planned: {error}"
            why = f"{planned}; or leave the monitor out (leave_out)"
            raise InputError(why) from None
        labels |= {"fitted_on": fitted_on.removeprefix(OUTLIERS)} if fitted_on else {}
        for key in ("valid", "test", *outliers):
            yield bench.case(shown[key], system, protocol=NAME, labels={**labels, "set": key})


def _check_names(label: str, monitor: Monitor) -> None:
    _check_name("monitor", label)
    _check_name("monitor", monitor.name)


def _check_name(what: str, name: Any) -> None:
    """Refuse what cannot name a row of the tables."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"the name {name!r} of a {what} is empty or no text: give it a name")
    check_no_nul(f"name of a {what}", [name])
    if name == ALL:
        raise InputError(f"a {what} cannot be called {ALL}, which stands for all of them in the tables: rename it")


def _shown(settings: Settings, bench: Bench) -> dict[str, PlannedStimulus]:
    """What a source shows, checked against each other: `valid`, `test` and `outliers/NAME`, each in a random order.

    Where there is training data, it comes last: `train`, as it is. Models are asked about it, not monitors.
    """
    data, seed = bench.data, bench.seed
    assert isinstance(data, OpenedDataset)
    valid, test = (bench.validation, data) if bench.validation is not None else split_by_group(data, (0.5, 0.5), seed)
    if any(len(np.unique(part.labels)) < 2 for part in (data, bench.train) if part is not None):
        raise InputError(
            f"{source_words(bench)} holds images of one class only: od_test needs a source of at least two"
        )
    limited = {key: _shuffled(part, seed, settings.limit) for key, part in (("valid", valid), ("test", test))}
    like = max(limited.values(), key=len)
    makers = {name: _maker(name, bench) for name in _chosen(settings, bench)}
    if len(makers) < LEAST_SETS:
        raise InputError(
            f"{source_words(bench)} meets {len(makers)} sets of outliers: od_test needs at least {LEAST_SETS}, one to "
            "calibrate with and another to test with"
        )
    _check_apart(bench, makers)
    outside: dict[str, OpenedDataset] = {}
    for name, maker in makers.items():
        made = maker.make(like, seed=seed, foreign=bench.foreign.get(name))
        outside[name] = _shuffled(made, seed) if isinstance(maker, Foreign) else Subset(made, range(len(made)))
    for one, other in combinations(outside, 2):
        if outside[one].fingerprint() == outside[other].fingerprint():
            raise InputError(f"outliers {one} and {other} are the same images: leave one out")
    shown = {}
    for key, part in (*limited.items(), *((OUTLIERS + name, data) for name, data in outside.items())):
        final = _shuffled(Mirrored(part), seed) if bench.section.data.mirror else part
        stimulus = Stimulus(final.fingerprint(), seed=seed)
        if key not in limited:
            name = key.removeprefix(OUTLIERS)
            code = code_of(type(makers[name]))
            stimulus = replace(stimulus, name=name, parameters=makers[name].parameters(), code=code)
        shown[key] = PlannedStimulus(stimulus, final)
    return shown if bench.train is None else shown | {"train": undisturbed(bench, bench.train)}


def _chosen(settings: Settings, bench: Bench) -> list[str]:
    """The names of the sets that a source meets."""
    known = bench.outliers
    if settings.sets is None:
        named = any(isinstance(maker, NoiseImages) for maker in bench.makers.values())
        return [*known, *(name for name in NOISE if not named and name not in bench.section.exclude)]
    skipped = {*bench.section.exclude, bench.source}
    for name in settings.sets:
        if name not in (*known, *NOISE, *skipped):
            raise UnknownName("set of outliers", name, [*known, *NOISE])
    return [name for name in settings.sets if name not in skipped]


def _maker(name: str, bench: Bench) -> Outliers:
    """What makes a set: the data set of that name, or noise."""
    _check_name("set of outliers", name)
    if name in bench.foreign:
        return Foreign()
    maker = bench.makers.get(name) or make_outliers(name)
    if not isinstance(maker, NoiseImages):
        raise InputError(f"outliers {name}: od_test takes data sets and makers of noise, and {maker.name} is neither")
    return maker


def _check_apart(bench: Bench, names: Collection[str]) -> None:
    """Refuse sets outside that share images: monitors are calibrated with one and tested with another."""
    known: dict[str, set[str]] = {}
    for name in (name for name in names if name in bench.foreign):
        images = identities(bench.foreign[name])
        for other, seen in known.items():
            shared = sum(image in seen for image in images)
            if shared:
                raise InputError(
                    f"outliers {name} and outliers {other} share {shared} of {len(images)} images: give another set"
                )
        known[name] = set(images)


def _shuffled(data: Dataset, seed: int, limit: int | None = None) -> OpenedDataset:
    """At most `limit` images, drawn in rounds over objects, in an order drawn by their ids: the first n are a fair part
    of them.
    """
    rows = np.sort(rows_in_rounds(data, ORDER, seed)[:limit])
    drawn = [rng.random() for rng in Streams(ORDER, seed).each(data.ids[row] for row in rows)]
    return Subset(data, rows[np.argsort(drawn, kind="stable")].tolist())


def _check_left(bench: Bench, shown: Mapping[str, PlannedStimulus], overlap: Mapping[str, Collection[int]]) -> None:
    """Refuse shared classes that leave nothing of a source where it meets a set."""
    for key, shared in overlap.items():
        for part, what in (("valid", "validation"), ("test", "test")):
            if np.isin(shown[part].data.labels, list(shared)).all():
                raise InputError(
                    f"{source_words(bench)} has no {what} image left without the classes that it shares with outliers "
                    f"{key}: "
                    "name fewer of them (overlap), or leave the set out (exclude)"
                )


def _left_out(bench: Bench) -> dict[str, list[str]]:
    """The labels of the monitors to leave out, by model.

    `knn_svm` stands for all of that name, whatever their settings; `resnet/mc_dropout` for one on the model `resnet`.
    """
    monitors = bench.monitors
    left_out: dict[str, list[str]] = {name: [] for name in bench.models}
    for entry in bench.section.leave_out:
        model, _, name = entry.partition("/") if entry.partition("/")[0] in bench.models else ("", "", entry)
        labels = [label for label, monitor in monitors.items() if name in (label, monitor.name)]
        if not labels:
            raise UnknownName(f"monitor to leave out of {source_words(bench)}", name, monitors)
        for own in [model] if model else [*bench.models]:
            left_out[own] += [label for label in labels if label not in left_out[own]]
    return left_out
