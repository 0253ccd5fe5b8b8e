"""The dependability procedure: what is shown to whom, and what criteria may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.roles import Dataset, Model, Shift, leaves
from roadworthy.core.types import Stimulus
from roadworthy.data import Subset
from roadworthy.data.subset import rows_over_classes
from roadworthy.data.table import Table
from roadworthy.engine.conditions import Conditions
from roadworthy.engine.monitor_systems import undisturbed
from roadworthy.engine.plan import Bench, PlannedCase, PlannedStimulus, is_stored, plan_cases
from roadworthy.metrics import METRICS, Metric
from roadworthy.metrics.occlusion import PatchGrid
from roadworthy.models.head import network_of
from roadworthy.models.signals import PENULTIMATE
from roadworthy.models.torch import INPUT_OF
from roadworthy.protocols import base
from roadworthy.protocols.base import KnownCase
from roadworthy.protocols.dependability import names
from roadworthy.protocols.dependability.context import Context, ModelContext, Resolved
from roadworthy.protocols.dependability.measures import MEASURES, BeforeRun
from roadworthy.protocols.dependability.measures.over_layers import layers_of
from roadworthy.protocols.dependability.names import DATA, NAME, TRAIN
from roadworthy.protocols.dependability.page import page
from roadworthy.protocols.dependability.probes import (
    HeatMaps,
    Layer,
    MaskedHeatMaps,
    ObjectBoxes,
    rows_with_objects,
)
from roadworthy.protocols.dependability.resolving import resolve, transformers_for
from roadworthy.protocols.dependability.settings import DEFAULT_ATTACKS, DEFAULT_SHIFTS, Settings, Transformer
from roadworthy.protocols.dependability.table_specs import TABLE_SPECS
from roadworthy.protocols.dependability.tables import Evidence
from roadworthy.report.facts import Facts
from roadworthy.report.page import Page
from roadworthy.statistics.estimates import RESAMPLES
from roadworthy.verdict import Criterion

VERSION = 2
"""Of the context: see `Context`."""


@base.PROTOCOLS.register(NAME)
class Dependability(base.Protocol):
    """Undisturbed images and every transformer shown to every model, to its layers, and under a patch."""

    name = NAME
    settings = Settings
    context = Context
    table_specs = TABLE_SPECS
    further_questions = frozenset({"conditions", "certainty"})
    metrics = tuple(metric for measure in MEASURES for metric in measure.metrics)
    summary = "The eight dependability metrics: coverage, neurons, confidence loss, degradation, heat maps, confusion."
    limits = (
        "None of the eight figures is a safety claim by itself: coverage says what was shown or used, never that it "
        "works. It counts the conditions that the study declares; what they leave out is not seen. Confidence loss is"
        " only as strong as the list of transformers, and heat maps hide one patch at a time."
    )

    def metrics_of(self, settings: Settings) -> tuple[Metric, ...]:
        """Those of every measure, as the settings ask for them."""
        return tuple(metric for measure in MEASURES for metric in measure.metrics_of(settings))

    def inlined(self, settings: Settings, base: Path) -> Settings:
        """With the conditions and severities that lie in files."""
        return settings.inlined(base)

    def check_settings(self, settings: Settings) -> None:
        """Every metric and transformer is known, and has the level or parameters asked for."""
        for name in settings.metrics:
            METRICS.get(name)
        for transformer in settings.transformers or ():
            transformer.shift()

    def count_stimuli(self, settings: Settings, foreign: int, monitors: int) -> int:
        """Undisturbed data and every transformer."""
        return 1 + len(settings.transformers or (*DEFAULT_SHIFTS, *DEFAULT_ATTACKS))

    def planned_stimuli(self, settings: Settings, bench: Bench) -> list[PlannedStimulus]:
        """Undisturbed data and every transformer that is named, else the usual shifts: attacks need a model.

        An export refuses attacks that are named.
        """
        data, seed = _loss_data(settings, bench.data), bench.seed
        transformers = settings.transformers or [Transformer(name=name) for name in DEFAULT_SHIFTS]
        disturbed = [_showing(data, seed, transformer.shift()) for transformer in transformers]
        return [_showing(bench.data, seed), *disturbed]

    def plan(self, settings: Settings, bench: Bench) -> base.Planned:
        """The conditions of the data, and every case of every model that its figures read."""
        if DATA in bench.models:
            raise InputError(f"{NAME}: no model can be called {DATA!r}: so the figures of the data are; rename it")
        resolved = resolve(settings, bench.data, bench.train)
        planner = _Planner(resolved, bench)
        plans = {name: planner.plan(name, model) for name, model in bench.models.items()}
        for wanted, sentence in next(iter(plans.values())).unmet.items():
            if all(wanted in plan.unmet for plan in plans.values()):
                raise InputError(f"{NAME}: {sentence}")
        cases = [*planner.of_data(), *(case for plan in plans.values() for case in plan.cases)]
        models = {name: plan.context for name, plan in plans.items()}
        return base.Planned(cases, Context(resolved=resolved, models=models, version=VERSION))

    def check(self, cases: Sequence[KnownCase], criterion: Criterion, context: Any = None) -> None:
        """Raise an `InputError` where a criterion matches no figure that the run will have."""
        names.select(context.figures(), criterion, of_test_alone=context.of_test_alone)

    def remark(self, criterion: Criterion, parts: Sequence[base.Part]) -> str:
        """That a criterion of an earlier version is read as one on the test data."""
        if names.read_as_test(criterion) and any(part.context.of_test_alone for part in parts):
            return f"it does not say on which data: read as data: {names.TEST}, all that the run counted"
        return ""

    def page(self, run: Path, facts: Facts) -> Page:
        """What the report shows of it."""
        return page(self.name, run, facts)

    def evidence(self, part: base.Part, *, seed: int, workers: int = 1, resamples: int | None = None) -> Evidence:
        """What stored cases say."""
        return Evidence(part.cases, part.class_names, part.context, seed=seed, resamples=resamples or RESAMPLES)


@dataclass(frozen=True)
class _ModelPlan:
    """The cases of one model, and what is noted of it.

    `unmet` are settings of the study that it cannot meet, each with a sentence: an error where no model can.
    """

    cases: Sequence[PlannedCase]
    context: ModelContext
    unmet: Mapping[str, str]


class _Planner:
    """Plans the cases of each model of a source. All are shown the data undisturbed, disturbed, and under a patch.

    rows      the row in the data of each image of heat maps, by its id; none where no object is marked
    trained   the training data, where the study names some
    """

    def __init__(self, resolved: Resolved, bench: Bench) -> None:
        self.resolved, self.bench, settings, data = resolved, bench, resolved.settings, bench.data
        rows = rows_with_objects(data, settings.heat_maps.images)
        if not rows and settings.occlusion is not None:
            raise InputError(f"{NAME}: occlusion needs masks or boxes, and the data set {data.name} has none")
        ids = data.ids
        self.rows = {ids[row]: row for row in rows}
        self.clean = _showing(data, bench.seed)
        self.trained = None if bench.train is None else undisturbed(bench, bench.train)
        self.heat = _showing(Subset(data, rows) if rows else data, bench.seed)
        self.disturbed = _loss_data(settings, data)

    def of_data(self) -> list[PlannedCase]:
        """What is read of the data alone: its conditions, those of the training data, and where its objects are."""
        bench, resolved = self.bench, self.resolved
        cases = [bench.case(self.clean, Conditions(), protocol=NAME, labels={"role": "conditions"})]
        if self.trained and resolved.conditions and not resolved.no_training_conditions:
            labels = {"role": "conditions", "data": TRAIN}
            cases.append(bench.case(self.trained, Conditions(), protocol=NAME, labels=labels))
        if self.rows:
            cases.append(bench.case(self.heat, ObjectBoxes(), protocol=NAME, labels={"role": "object boxes"}))
        return cases

    def plan(self, name: str, model: Model) -> _ModelPlan:
        """What one model is shown and what it cannot be asked."""
        bench, settings, alone = self.bench, self.resolved.settings, replace(self.bench, models={name: model})
        member, stored = model.for_repeat(0), is_stored(model)
        known = bench.fingerprint(member)
        cases = plan_cases(NAME, [self.clean], alone, {"role": "undisturbed"})
        reasons: dict[str, str] = {}
        unmet: dict[str, str] = {}
        for layer in layers_of(settings):
            why, advice = f"model {name} gives no features", "; use an ONNX or torch model, or leave it out"
            if "features" in model.capabilities:
                why, advice = _unknown_layer(member, layer, bench.data), ""
            if not why:
                system = Layer(member, known, layer, settings.activation_threshold)
                labels = {"role": "layer", "layer": layer}
                cases.append(bench.case(self.clean, system, name=name, protocol=NAME, labels=labels))
                if self.trained:
                    of_training = {**labels, "data": TRAIN}
                    cases.append(bench.case(self.trained, system, name=name, protocol=NAME, labels=of_training))
                continue
            reasons[names.layer_scope(layer)] = why
            if settings.layers:
                unmet[f"layer {layer}"] = f"layers: {why}{advice}"
        if stored:
            reasons["heat_maps"] = "stored predictions cannot be shown occluded images"
            if settings.occlusion is not None:
                unmet["occlusion"] = (
                    f"occlusion: model {name} is stored predictions, which cannot be shown occluded images: test the "
                    "model itself, or leave out occlusion"
                )
        elif not self.rows:
            reasons["heat_maps"] = f"the data set {bench.data.name} has neither masks nor boxes"
        else:
            fill, grid = settings.heat_maps.fill, PatchGrid(*self.resolved.grid)
            for kind in (HeatMaps, MaskedHeatMaps) if settings.heat_maps.control else (HeatMaps,):
                maps = kind(member, known, bench.data.name, self.rows, fill, grid, bench.seed)
                cases.append(bench.case(self.heat, maps, name=name, protocol=NAME, labels={"role": kind.kind}))
        choices = transformers_for(settings, model, stored)
        for choice in choices:
            if not choice.reason:
                labels = {"role": "transformer", "transformer": choice.label}
                cases += plan_cases(NAME, [_showing(self.disturbed, bench.seed, choice.shift)], alone, labels)
            elif stored and settings.transformers is not None:
                unmet[f"transformer {choice.label}"] = (
                    f"transformers: {choice.label} attacks model {name}, which is stored predictions: test the model "
                    "itself, or name shifts only"
                )
        refused = {choice.label: choice.reason for choice in choices if choice.reason}
        shown = [choice.label for choice in choices if not choice.reason]
        before, scopes = BeforeRun(self.resolved, bench.data.class_names, shown), dict[str, list[str]]()
        for measure in MEASURES:
            scopes |= measure.scopes(before)
        return _ModelPlan(cases, ModelContext(reasons=reasons, scopes=scopes, refused=refused), unmet)


def _showing(data: Dataset, seed: int, shift: Shift | None = None) -> PlannedStimulus:
    make = Stimulus if shift is None else shift.stimulus
    return PlannedStimulus(make(data.fingerprint(), seed=seed), data, shift)


def _loss_data(settings: Settings, data: Dataset) -> Dataset:
    """The images that transformers are shown on: all, or as many as the study says, spread over classes and objects."""
    if settings.loss_images is None or settings.loss_images >= len(data):
        return data
    table = Table(data.ids, data.labels, data.class_names, data.groups)
    return Subset(data, rows_over_classes(table, settings.loss_images, 0).tolist())


def _unknown_layer(model: Model, layer: str, data: Dataset) -> str:
    """What to say of a layer that the network does not have, else nothing; one that is not listed may go by another
    name, so it is asked.

    A baseline network is known only once it is trained: its layers are looked for when it is asked.
    """
    shown = network_of(leaves(model)[0])  # a model that gives features passes on those of a single one
    layers = getattr(shown, "layers", None)
    if layer == PENULTIMATE or layers is None or layer.removesuffix(INPUT_OF) in layers():
        return ""
    try:
        shown.features(data.batch([0] * (shown.fixed_batch or 1)), layer)
    except InputError:
        return str(UnknownName(f"layer of model {model.name}", layer, layers()))
    return ""
