"""Preparing a study: open and check everything that it names, source by source, and make its plan. Writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import BaseModel

from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.core.protocols import OUTLIERS, Dataset, Model, Outliers, leaves
from roadworthy.core.types import UNDISTURBED, Stimulus
from roadworthy.data import OpenedDataset, Subset, open_dataset, split_by_group
from roadworthy.data.subset import Mirrored
from roadworthy.engine.monitoring import PlannedTraining
from roadworthy.engine.plan import Bench, Plan, PlannedCase, Showing, check_plan_size, chunk_size
from roadworthy.engine.progress import ProgressBar, no_progress, terminal_progress
from roadworthy.models import StoredPredictions, align, load_model
from roadworthy.models.check import Rehearsal, chance_error
from roadworthy.models.check import rehearse as rehearse_model
from roadworthy.models.signals import LearningData
from roadworthy.monitors import MONITORS, Monitor, make_monitor
from roadworthy.outliers import make_outliers
from roadworthy.protocols import Protocol, protocol_of
from roadworthy.protocols.base import KnownCase, Part
from roadworthy.protocols.declared import check_declares
from roadworthy.study import Overlap, SourceSection, Study, parse_study, whole_paths
from roadworthy.verdict import Criterion, check_threshold, load_criteria, threshold_remark

FEW = 0.01
"""Share of test images that may be training images too, with a warning: published sets have a few such."""
LEARNING = {
    "train": "training data is needed (networks, monitors or GANs learn from it): name it under data: train, or cut it "
    "off the test data with data: split: [0.6, 0.2, 0.2]",
    "validation": "a temperature is fitted by the study: name held-out images under data: validation",
}
"""What a study must name for what learns from data, by role, as the sentence that asks for it."""


@dataclass(frozen=True)
class Given:
    """What is open already, or in memory, in place of what a study of one source names: from Python."""

    models: Mapping[str, Model] = field(default_factory=dict)
    builders: Mapping[str, Callable[..., Model]] = field(default_factory=dict)
    test: Any = None
    train: Any = None
    outliers: Mapping[str, Any] = field(default_factory=dict)
    monitors: Mapping[str, Monitor] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """A study whose data and models are open and checked, and its plan. Nothing has been written yet.

    sources     what each source puts on the table, by its name
    rehearsals  by source and model;  left_out: models by protocol and source, with the reason
    contexts    by protocol and source
    seen        ids of test and of validation images that are training images too, by source and role
    allowed     device, trust and the like
    """

    study: Study
    sources: Mapping[str, Bench]
    plan: Plan
    criteria: Sequence[Criterion]
    base: Path
    left_out: Mapping[str, Mapping[str, Mapping[str, str]]]
    contexts: Mapping[str, Mapping[str, BaseModel]]
    seen: Mapping[str, Mapping[str, Sequence[str]]]
    rehearsals: Mapping[tuple[str, str], Rehearsal] = field(default_factory=dict)
    allowed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> Mapping[str, Model]:
        """The models of all sources; named after their source, too, where there are several."""
        return {
            f"{source}/{name}" if source else name: model
            for source, bench in self.sources.items()
            for name, model in bench.models.items()
        }

    @property
    def parts(self) -> dict[str, list[Part]]:
        """What each protocol asks of each source."""
        parts: dict[str, list[Part]] = {}
        for protocol, contexts in self.contexts.items():
            for source, context in contexts.items():
                cases = [KnownCase(p.case.system, p.case.stimulus, p.labels) for p in self.plan.of(protocol, source)]
                names = self.sources[source].data.class_names
                parts.setdefault(protocol, []).append(Part(source, cases, context, names))
        return parts

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of each protocol."""
        return {protocol.name: settings for protocol, settings in self.study.protocols.chosen()}

    @property
    def remarks(self) -> dict[str, str]:
        """What must be said of the thresholds of criteria, by their id."""
        return remarks(self.criteria, self.parts, self.settings)

    def changes(self, source: str) -> dict[str, float]:
        """By how much the answers of the models of a source differ when they are asked again, by name."""
        return {name: float(found.changes_by) for (own, name), found in self.rehearsals.items() if own == source}

    def stored_study(self) -> Study:
        """The study with whole paths and its criteria inside, so that the copy in the run can be run by itself."""
        study, base = self.study, self.base.resolve()
        update: dict[str, Any] = {
            key: whole_paths(getattr(study, key), base) for key in ("data", "models", "sources", "outliers")
        }
        update["criteria"] = [criterion.model_dump(exclude_none=True) for criterion in self.criteria] or None
        return study.model_copy(update=update)

    def recipe(self) -> dict[str, Any]:
        """All that another process needs to prepare the same study, as JSON; an error where something is in memory."""
        study = yaml.safe_load(self.stored_study().to_yaml())
        monitors = next(iter(self.sources.values())).monitors
        unknown = [label for label, monitor in monitors.items() if monitor.name not in MONITORS]
        for name in (*_in_memory(study), *(f"the monitor {label}" for label in unknown)):
            raise InputError(
                f"{name} lives in the memory of this process alone, so it cannot be made anew elsewhere: name a file "
                "in the study, or register the class"
            )
        return {"study": study, "base": str(self.base), "allowed": dict(self.allowed)}


def _in_memory(content: Any, name: str = "") -> Iterator[str]:
    """What a study names as an object of the process that made it: `<function>`."""
    if isinstance(content, str) and content.startswith("<") and content.endswith(">"):
        yield f"{name} {content}"
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _in_memory(value, str(key))
    elif isinstance(content, list):
        for value in content:
            yield from _in_memory(value, name)


def prepare_recipe(recipe: Mapping[str, Any]) -> Prepared:
    """The study of a `Prepared.recipe`, prepared in this process: the same graph, node by node."""
    study = parse_study(recipe["study"], "study")
    return prepare(
        study, base=Path(recipe["base"]), **recipe["allowed"], accept_chance=True, rehearse=False, progress=no_progress
    )


def remarks(
    criteria: Sequence[Criterion], parts: Mapping[str, Sequence[Part]], settings: Mapping[str, Any]
) -> dict[str, str]:
    """What must be said of the thresholds of criteria, by their id."""
    by_id = {}
    for criterion in criteria:
        protocol = protocol_of(criterion, parts)
        values = _range(protocol, criterion, parts, settings)
        by_id[criterion.id] = threshold_remark(criterion, values, over_objects=protocol.is_over_objects(criterion))
    return {name: remark for name, remark in by_id.items() if remark}


def check_criteria(
    criteria: Sequence[Criterion], parts: Mapping[str, Sequence[Part]], settings: Mapping[str, Any]
) -> None:
    """Refuse criteria that match nothing of the parts, by protocol, or whose threshold the metric cannot have."""
    for criterion in criteria:
        protocol = protocol_of(criterion, parts)
        protocol.check_all(parts[protocol.name], criterion, settings[protocol.name])
        check_threshold(criterion, _range(protocol, criterion, parts, settings))


def _range(
    protocol: Protocol, criterion: Criterion, parts: Mapping[str, Sequence[Part]], settings: Mapping[str, Any]
) -> tuple[float, float]:
    classes = max(len(part.class_names) for part in parts[protocol.name])
    return protocol.metric_range(criterion.metric, settings[protocol.name], classes)


def prepare(
    study: Study,
    *,
    base: Path = Path(),
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    on_bad_image: str = "error",
    given: Given | None = None,
    models: Mapping[str, Model] | None = None,
    accept_chance: bool = False,
    rehearse: bool = True,
    progress: ProgressBar = terminal_progress,
) -> Prepared:
    """Open and check everything a study names and make its plan. Writes nothing, so a mistake leaves no trace.

    `given` is what is open already, `models` stands for `Given(models=...)`. A model that is no better than chance on
    undisturbed images is an error, unless `accept_chance` is set.
    """
    base = base.absolute()
    given = given or Given(models=models or {})
    allowed: dict[str, Any] = {"trust": trust, "unpickle": unpickle, "device": device}
    criteria = load_criteria(study.criteria, base)
    chosen = study.protocols.chosen()
    sections = study.by_source()
    check_study_size(study, sum(len(section.models) for section in sections.values()))
    for protocol, settings in chosen:
        check_declares(protocol.name)
        protocol.check_settings(settings)
    monitors = dict(given.monitors) or open_monitors(study)
    benches, builders, seen = {}, {}, {}
    for name, section in sections.items():
        opening = _Opening(study, name, section, base, monitors, progress, given, on_bad_image, allowed)
        benches[name], builders[name], seen[name] = opening.bench()
    cases: list[PlannedCase] = []
    left_out: dict[str, dict[str, dict[str, str]]] = {}
    contexts: dict[str, dict[str, BaseModel]] = {}
    for protocol, settings in chosen:
        for name in settings.sources or sections:
            lacking = _left_out(protocol, benches[name].models)
            planned = protocol.plan(settings, benches[name].without(lacking))
            left_out.setdefault(protocol.name, {})[name] = lacking
            contexts.setdefault(protocol.name, {})[name] = planned.context
            cases += planned.cases
    plan = Plan(tuple(cases), study.batch)
    allowed |= {"on_bad_image": on_bad_image}
    prepared = Prepared(study, benches, plan, criteria, base, left_out, contexts, seen, allowed=allowed)
    check_criteria(criteria, prepared.parts, prepared.settings)
    return replace(prepared, rehearsals=_rehearse_all(prepared, builders, accept_chance)) if rehearse else prepared


def open_monitors(study: Study) -> dict[str, Monitor]:
    """The monitors of a study by their label."""
    monitors = {}
    for label, chosen in study.monitors.items():
        name = chosen.get("monitor", label)
        if name not in MONITORS:
            raise UnknownName("monitor", str(name), MONITORS)
        monitors[label] = make_monitor(name, **{key: value for key, value in chosen.items() if key != "monitor"})
    return monitors


def _left_out(protocol: Protocol, models: Mapping[str, Model]) -> dict[str, str]:
    """The models that do not answer in the columns a protocol needs, with the reason; all of them is an error."""
    reasons = {}
    for name, model in models.items():
        lacking = sorted(protocol.columns - set(model.columns))
        if lacking:
            reasons[name] = f"model {name} answers no {' and no '.join(lacking)}"
    if len(reasons) == len(models):
        raise InputError(f"protocol {protocol.name} has no model to ask: {'; '.join(reasons.values())}")
    return reasons


def check_study_size(study: Study, models: int) -> None:
    """Refuse a study of more cases than can be planned, before anything is opened."""
    foreign, monitors = len(study.outliers) or 1, len(study.monitors)
    stimuli = sum(p.count_stimuli(settings, foreign, monitors) for p, settings in study.protocols.chosen())
    check_plan_size(stimuli * models)


@dataclass(frozen=True)
class _Opening:
    """What is needed to open one source of a study. `allowed` are settings of all models: device, trust, unpickle."""

    study: Study
    name: str
    section: SourceSection
    base: Path
    monitors: Mapping[str, Monitor]
    progress: ProgressBar
    given: Given = Given()
    on_bad_image: str = "error"
    allowed: Mapping[str, Any] = field(default_factory=dict)

    def bench(self) -> tuple[Bench, dict[str, Callable[..., Model]], dict[str, Sequence[str]]]:
        """Its bench, what makes its models anew, and which held-out images are training images too, by role."""
        asked = [(p, s) for p, s in self.study.protocols.chosen() if self.name in (s.sources or [self.name])]
        opened, builders = dict(self.given.models), dict(self.given.builders)
        for name, spec in self.section.models.items():
            if name not in opened:
                builders[name] = model_builder(spec, self.section.size, name=name, base=self.base, **self.allowed)
                opened[name] = builders[name]()
        inputs = [model.input_size for model in opened.values() if model.input_size]
        roles = self._data(max(inputs, default=None))
        data = roles["test"]
        if not len(data):
            raise InputError(f"data set {data.name} holds no image")
        with self.progress("reading images", len(data)) as advance:
            data.verify_all(advance)
        wanted = frozenset[str]().union(
            *(model.learns_from for model in opened.values()),
            *(protocol.learns_from(settings, self.monitors) for protocol, settings in asked),
        )
        for role in sorted(wanted - set(roles)):
            raise InputError(LEARNING[role])
        seen = self._check_learning(roles)
        meets_outliers = any(protocol.wants_foreign for protocol, _ in asked)
        foreign, makers, order = self._outliers(data) if meets_outliers else ({}, {}, [])
        seed, batch, chunk = self.study.seed, self.study.batch, chunk_size(data, self.study.batch)
        train, validation = roles.get("train"), roles.get("validation")
        own = self.monitors, self.name, self.section, order
        bench = Bench(data, {}, seed, batch, chunk, foreign, makers, train, validation, *own)
        learning = LearningData(roles, partial(PlannedTraining, bench))
        opened = {name: self._fitted(name, model.with_data(learning), data) for name, model in opened.items()}
        return replace(bench, models=opened), builders, seen

    def _data(self, fallback_size: tuple[int, int] | None) -> dict[str, OpenedDataset]:
        """Its data sets by role."""
        section, given, seed = self.section.data, self.given, self.study.seed
        opened = partial(
            open_dataset, classes=section.classes, base=self.base, on_bad_image=self.on_bad_image, seed=seed
        )
        test_spec = section.test if given.test is None else given.test
        test = opened(test_spec, size=self.section.size, fallback_size=fallback_size)
        roles = {"test": test}
        if section.split is not None:
            parts = split_by_group(test, section.split, seed)
            roles = dict(zip(("train", "validation", "test"), parts, strict=True))
        train_spec = section.train if given.train is None else given.train
        for role, spec in (("train", train_spec), ("validation", section.validation)):
            if spec is not None:
                roles[role] = opened(spec, size=test.size)
        if section.mirror and "train" in roles:
            roles["train"] = Mirrored(roles["train"])
        return roles

    def _check_learning(self, roles: Mapping[str, OpenedDataset]) -> dict[str, Sequence[str]]:
        """Refuse training and validation data that do not fit the test data; by role, images that are trained on."""
        data = roles["test"]
        for role, learned in roles.items():
            what = "training" if role == "train" else role
            if learned.class_names != data.class_names:
                raise InputError(f"{what} data {learned.name} has other classes than test data {data.name}")
            if learned.channels != data.channels:
                raise InputError(f"{what} data {learned.name} has other channels than test data {data.name}")
            if role != "test" and learned.fingerprint() == data.fingerprint():
                raise InputError(f"{what} data {learned.name} and test data {data.name} are the same images")
        if "train" not in roles or self.section.data.split is not None:
            return {}
        known = set(contents(roles["train"]))
        return {role: _trained_on(roles[role], known) for role in ("test", "validation") if role in roles}

    def _fitted(self, name: str, model: Model, data: OpenedDataset) -> Model:
        """The model with its answers in the order of the data's classes."""
        if "probabilities" not in model.columns:
            return model
        if model.num_classes != len(data.class_names):
            raise InputError(
                f"model {name} answers {model.num_classes} classes, but data set {data.name} has "
                f"{len(data.class_names)}: fix the order and number of classes with `classes=`"
            )
        return align(model, data.class_names)

    def _outliers(self, data: OpenedDataset) -> tuple[dict[str, Dataset], dict[str, Outliers], list[str]]:
        """The sets outside that the source meets, at the size of its data and without shared classes; and makers.

        The names of both come last, in the order of the study.

        The built-in scenery stands in where the study names none.
        """
        sources = dict(self.given.outliers) or dict(self.study.outliers)
        section = self.section
        for name in section.exclude:
            if name not in sources:
                raise UnknownName("set of outliers", name, sources)
        if self.name in sources and self.name not in section.exclude:
            self._check_namesake(sources[self.name], data)
        met = {name: spec for name, spec in sources.items() if name != self.name and name not in section.exclude}
        for name in (*section.near, *section.overlap):
            if name not in met:
                raise UnknownName("set of outliers", name, met)
        if not sources:
            met = {"scenery": {"builtin": "scenery", "n": len(data)}}
        makers = {name: make_outliers(spec) for name, spec in met.items() if isinstance(spec, str) and spec in OUTLIERS}
        foreign: dict[str, Dataset] = {}
        for name, spec in met.items():
            if name not in makers:
                whole = open_dataset(spec, size=data.size, base=self.base, seed=self.study.seed, name=name)
                foreign[name] = _without(whole, section.overlap.get(name))
        return foreign, makers, [*met]

    def _check_namesake(self, spec: Any, data: OpenedDataset) -> None:
        """A set of outliers that bears a source's name is that source, which never meets it; other data is an error."""
        section = self.section.data
        if spec in (section.test, section.train, section.validation):
            return
        made = isinstance(spec, str) and spec in OUTLIERS
        known = set(contents(data))
        if made or known.isdisjoint(contents(open_dataset(spec, base=self.base, seed=self.study.seed, name=self.name))):
            raise InputError(
                f"outliers {self.name} bear the name of source {self.name} but are other data: give them a name of "
                f"their own, or leave them out there (exclude: [{self.name}])"
            )


def contents(data: OpenedDataset) -> list[str]:
    """A hash of every image."""
    return data.content(range(len(data)))


def _trained_on(data: OpenedDataset, known: set[str]) -> Sequence[str]:
    """The ids of images that are trained on: a few give a warning, more are an error."""
    held = contents(data)
    seen = [name for name, content in zip(data.ids, held, strict=True) if content in known]
    if len(seen) == len(held):
        raise InputError(f"all images of {data.name}, which are held out, are training images too: name others")
    if seen:
        sentence = (
            f"{len(seen)} of {len(held)} held-out images of {data.name} are training images too, such as {seen[0]}: "
            "take them out of one side"
        )
        if len(seen) > FEW * len(held):
            raise InputError(sentence)
        warnings.warn(sentence, stacklevel=2)
    return seen


def _without(data: OpenedDataset, overlap: Overlap | None) -> OpenedDataset:
    """A set of outliers without the classes that it shares with the source; one that it does not have is an error."""
    shared = overlap.outliers if overlap else []
    for name in shared:
        if name not in data.class_names:
            raise UnknownName(f"class of {data.name}", name, data.class_names)
    rows = np.flatnonzero(~np.isin(data.labels, [data.class_names.index(name) for name in shared]))
    if not len(rows):
        raise InputError(f"outliers {data.name} are empty without the classes that they share with the source")
    return Subset(data, rows.tolist()) if shared else data


def open_benches(study: Study, base: Path, progress: ProgressBar) -> dict[str, Bench]:
    """What each source puts on the table but its models, for an export."""
    monitors = open_monitors(study)
    bare = {name: section.model_copy(update={"models": {}}) for name, section in study.by_source().items()}
    return {name: _Opening(study, name, section, base, monitors, progress).bench()[0] for name, section in bare.items()}


def model_builder(spec: Any, size: tuple[int, int] | None, **settings: Any) -> Callable[..., Model]:
    """What makes a model, as given or with some of its settings changed."""
    return partial(_load_sized, spec, size, **settings)


def _load_sized(spec: Any, size: tuple[int, int] | None, **settings: Any) -> Model:
    """Load a model; one that cannot do without being told its input size is told the study's."""
    try:
        return load_model(spec, **settings)
    except InputError as error:
        if size is None:
            raise
        try:
            return load_model(spec, size=size, **settings)
        except InputError:
            raise error from None


def _rehearse_all(
    prepared: Prepared, builders: Mapping[str, Mapping[str, Callable[..., Model]]], accept_chance: bool
) -> dict[tuple[str, str], Rehearsal]:
    """Find what would spoil every figure before anything is written: a rehearsal of each model that is ready.

    Stored answers must be complete, and are looked at where they hold those to undisturbed test data.
    """
    rehearsals = {}
    cases = [node.planned for node in prepared.plan.graph().cases.values() if not node.planned.refused]
    asked_models = [(planned.showing, planned.system.underlying) for planned in cases]
    showings = [(showing, {*map(id, leaves(model))}) for showing, model in asked_models if model is not None]
    for source, bench in prepared.sources.items():
        clean = Stimulus(bench.data.fingerprint(), seed=bench.seed)
        for name, model in bench.models.items():
            can_be_asked = all(part.loaded for part in model.requires()) and "probabilities" in model.columns
            for own in leaves(model):
                if isinstance(own, StoredPredictions):
                    shown = [showing for showing, asked in showings if id(own) in asked]
                    _check_answered(own, shown, bench.data)
                    can_be_asked &= clean.key in {showing.stimulus.key for showing in shown}
            if can_be_asked:
                build = builders[source].get(name)
                rehearsals[source, name] = _rehearsed(model, bench, clean.key, build, accept_chance)
    return rehearsals


def _identities(data: Dataset) -> set[tuple[str, str]]:
    """The id and the content of every image."""
    hashes = contents(data) if isinstance(data, OpenedDataset) else [data.fingerprint()] * len(data)
    return set(zip(data.ids, hashes, strict=True))


def _check_answered(model: StoredPredictions, shown: Sequence[Showing], test: Dataset) -> None:
    """Refuse stored answers that do not hold all that is shown.

    Those that do not say which stimulus they answer are to the test data alone: ids of training images may be the same.
    """
    if model.stimuli() == ("",):
        known = _identities(test)
        for showing in shown:
            if showing.stimulus.name == UNDISTURBED and not known.issuperset(_identities(showing.data)):
                raise InputError(
                    f"{model.path} has no column 'stimulus', so it answers undisturbed test data only, and not other "
                    "data that the study shows: export the study, and answer every image with its stimulus"
                )
    model.check_complete({showing.stimulus.key: showing.data.ids for showing in shown})


def _rehearsed(
    model: Model, bench: Bench, stimulus: str, build: Callable[..., Model] | None, accept_chance: bool
) -> Rehearsal:
    """Ask a model about a sample of undisturbed images; refuse one that is no better than chance."""
    try:
        rehearsal = rehearse_model(model, bench.data, stimulus=stimulus, batch=bench.batch)
    except ModelError as error:
        raise ModelError(f"{error} (on undisturbed images)") from error
    if rehearsal.changes_by:
        change = f"its probabilities change by up to {rehearsal.changes_by:.2g}"
        warnings.warn(
            f"model {model.name} answers the same images differently when asked again: {change}", stacklevel=2
        )
    if rehearsal.result.is_chance and not accept_chance:
        raise InputError(chance_error(model, bench.data, rehearsal.result, build))
    return rehearsal
