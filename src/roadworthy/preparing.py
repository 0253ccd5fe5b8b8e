"""Preparing a study: open and check everything that it names, source by source, and make its plan. Writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.remote import absolute_location
from roadworthy.core.roles import Dataset, Model, leaves
from roadworthy.core.types import UNDISTURBED, Stimulus
from roadworthy.data.base import contents, image_notes
from roadworthy.engine.monitor_systems import MonitorOn
from roadworthy.engine.plan import Bench, Plan, PlannedCase, PlannedStimulus
from roadworthy.engine.progress import ProgressBar, no_progress, terminal_progress
from roadworthy.metrics import Metric, find_metric
from roadworthy.metrics.base import Range
from roadworthy.models import StoredPredictions
from roadworthy.models.isolation import UnopenedModel
from roadworthy.models.rehearsal import Rehearsal, better_ways, chance_error
from roadworthy.models.rehearsal import rehearse as rehearse_model
from roadworthy.monitors import MONITORS, NamesFiles, StoredMonitor
from roadworthy.monitors.combined import leaf_monitors
from roadworthy.opening import Given, OpeningSource, check_study_size, open_monitors
from roadworthy.protocols import Protocol, protocol_of
from roadworthy.protocols.base import KnownCase, Part, Planned
from roadworthy.protocols.declared import check_declares
from roadworthy.study import Study, parse_study, whole_paths
from roadworthy.verdict import (
    Criterion,
    DecidedCriteria,
    Decision,
    check_threshold,
    load_decided,
    threshold_remark,
)

STAND_IN = (
    "No foreign images were given: drawn scenery that comes along serves as the foreign set, in place of photographs "
    "of what the model does not know."
)


@dataclass(frozen=True)
class Prepared:
    """A study whose data and models are open and checked, and its plan. Nothing has been written yet.

    sources     what each source puts on the table, by its name
    rehearsals  by source and model;  left_out: models by protocol and source, with the reason
    contexts    by protocol and source
    seen        ids of test and of validation images that are training images too, by source and role
    allowed     device, trust and the like;  decision: who decided on the thresholds of criteria, where it is known
    refused     why a model is not asked that failed in its rehearsal, by source and model
    found       what the rehearsal found that does not stop the run, by source and model
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
    decision: Decision | None = None
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    found: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)

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
        return remarks(self.criteria, self.parts, self.settings, bool(self.study.until_decided))

    def changes(self, source: str) -> dict[str, float]:
        """By how much the answers of the models of a source differ when they are asked again, by name."""
        return {
            name: float(rehearsal.steadiness.again.probabilities)
            for (own, name), rehearsal in self.rehearsals.items()
            if own == source
        }

    def found_in(self, source: str) -> dict[str, Sequence[str]]:
        """What the rehearsal found of the models of a source that does not stop the run, by name."""
        return {name: texts for (own, name), texts in self.found.items() if own == source}

    def notes(self, source: str) -> list[str]:
        """What a reader must know of what was shown besides the data that the study names, and how that was divided."""
        stands_in = () if self.study.outliers else tuple(self.sources[source].foreign)
        shown = {planned.showing.data.name for planned in self.plan.cases if planned.source == source}
        division = self.sources[source].division()
        return [
            *([STAND_IN] if shown.intersection(stands_in) else []),
            *([division] if division else []),
            *self.image_notes(source),
        ]

    def image_notes(self, source: str) -> list[str]:
        """Which data besides the test data and recorded sets hold pictures that are converted, or copies, with their
        note.
        """
        bench = self.sources[source]
        roles = {"training data": bench.train, "validation data": bench.validation}
        others = {**roles, **{f"outliers {name}": data for name, data in bench.foreign.items()}}
        own = image_notes(bench.data)
        return [f"{what}: {note}" for what, data in others.items() for note in image_notes(data) if note not in own]

    def stored_study(self) -> Study:
        """The study with whole paths and its criteria inside, so that the copy in the run can be run by itself."""
        study, base = self.study, self.base.resolve()
        update: dict[str, Any] = {
            key: whole_paths(getattr(study, key), base) for key in ("data", "models", "sources", "outliers")
        }
        monitors = next(iter(self.sources.values())).monitors
        update["monitors"] = {
            label: {"monitor": monitor.name, **monitor.as_named()} if isinstance(monitor, NamesFiles) else chosen
            for label, chosen in study.monitors.items()
            for monitor in [monitors.get(label)]
        }
        update["criteria"] = DecidedCriteria(tuple(self.criteria), self.decision).content()
        update["baseline"] = None if study.baseline is None else str(absolute_location(study.baseline, base))
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
        refused = [[*model, cause] for model, cause in self.refused.items()]
        return {"study": study, "base": str(self.base), "allowed": dict(self.allowed), "refused": refused}


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
    study = parse_study(recipe["study"], "study", trust=recipe["allowed"]["trust"])
    prepared = prepare(
        study, base=Path(recipe["base"]), **recipe["allowed"], accept_chance=True, rehearse=False, progress=no_progress
    )
    return _without_refused(prepared, {(source, name): cause for source, name, cause in recipe["refused"]})


def remarks(
    criteria: Sequence[Criterion],
    parts: Mapping[str, Sequence[Part]],
    settings: Mapping[str, Any],
    until_decided: bool = False,
) -> dict[str, str]:
    """What must be said of the thresholds of criteria and of how they are read, by their id.

    Of a run `until_decided` also why a criterion was not judged while answers came in.
    """
    by_id = {}
    for criterion in criteria:
        protocol = protocol_of(criterion, parts)
        measured, values = _metric_and_range(protocol, criterion, parts, settings)
        over_objects = protocol.is_over_objects(criterion)
        of_threshold = threshold_remark(criterion, measured, values, over_objects=over_objects)
        of_reading = protocol.remark(criterion, parts[protocol.name])
        in_full = protocol.why_in_full(criterion, parts[protocol.name]) if until_decided else ""
        of_run = in_full and f"run in full: {in_full}"
        by_id[criterion.id] = "; ".join(filter(None, [of_threshold, of_reading, of_run]))
    return {name: remark for name, remark in by_id.items() if remark}


def check_criteria(
    criteria: Sequence[Criterion],
    parts: Mapping[str, Sequence[Part]],
    settings: Mapping[str, Any],
    questions: Sequence[str],
    has_baseline: bool = False,
) -> None:
    """Refuse criteria that match nothing of the parts, by protocol, or whose threshold the metric cannot have.

    So are those that answer a question which is not asked, where `questions` are, or which their metric cannot answer,
    and those against a baseline where there is none, or which the protocol cannot compare.
    """
    for criterion in criteria:
        if criterion.against and not has_baseline:
            raise InputError(no_baseline(criterion))
        protocol = protocol_of(criterion, parts)
        protocol.check_question(criterion)
        if questions and criterion.question not in (None, *questions):
            raise InputError(
                f"criterion {criterion.id} answers the question {criterion.question}, which the study does not ask: "
                "add it to questions"
            )
        protocol.check_all(parts[protocol.name], criterion, settings[protocol.name])
        if criterion.against:
            protocol.check_against(criterion, settings[protocol.name])
        check_threshold(criterion, _metric_and_range(protocol, criterion, parts, settings)[1])


def no_baseline(criterion: Criterion) -> str:
    """What is wrong with a criterion against a baseline where there is none."""
    return (
        f"criterion {criterion.id} is judged against a baseline, and none is named: name the run of an earlier version "
        "with `baseline=`, or leave the criterion out"
    )


def _metric_and_range(
    protocol: Protocol, criterion: Criterion, parts: Mapping[str, Sequence[Part]], settings: Mapping[str, Any]
) -> tuple[Metric, Range]:
    measured = find_metric(criterion.metric, protocol.metrics_of(settings[protocol.name]))
    measured = measured.drop() if criterion.against else measured
    return measured, measured.limits(max(len(part.class_names) for part in parts[protocol.name]))


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
    decided = load_decided(study.criteria, base)
    criteria = decided.criteria
    chosen = study.protocols.chosen()
    sections = study.by_source()
    check_study_size(study, sum(len(section.models) for section in sections.values()))
    for protocol, settings in chosen:
        check_declares(protocol.name)
        protocol.check_settings(settings)
    monitors = dict(given.monitors) or open_monitors(study, base, trust=trust)
    benches, builders, seen = {}, {}, {}
    for name, section in sections.items():
        opening = OpeningSource(study, name, section, base, monitors, progress, given, on_bad_image, allowed)
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
    options: dict[str, Any] = {"allowed": allowed, "decision": decided.decision}
    prepared = Prepared(study, benches, plan, criteria, base, left_out, contexts, seen, **options)
    check_criteria(criteria, prepared.parts, prepared.settings, study.questions, study.baseline is not None)
    prepared = _looked_at(prepared) if study.until_decided else prepared
    if not rehearse:
        return prepared
    _warn_of_images(prepared)
    return _rehearse_all(prepared, builders, accept_chance)


def _warn_of_images(prepared: Prepared) -> None:
    """Say which pictures are converted when they are read, and which are copies, before a model is asked about any."""
    for source, bench in prepared.sources.items():
        of_source = f" of {source}" if source else ""
        named = {"test data": bench.data, **{f"recorded set {name}": data for name, data in bench.recorded.items()}}
        texts = [f"{what}: {note}" for what, data in named.items() for note in image_notes(data)]
        for text in (*texts, *prepared.image_notes(source)):
            what, _, note = text.partition(": ")
            warnings.warn(f"{what}{of_source}: {note}", stacklevel=4)


def _looked_at(prepared: Prepared) -> Prepared:
    """The same study with rules by which cases stop once their criteria are decided; none where it is completed."""
    if not prepared.criteria:
        raise InputError("`until_decided=True` needs criteria that can be decided: name some with `criteria=`")
    if prepared.decision and prepared.decision.correction != "none":
        raise InputError(
            f"criteria with correction: {prepared.decision.correction} are judged once all answers are there: leave "
            "out the correction, or `until_decided=True`"
        )
    parts, cases = prepared.parts, list[PlannedCase]()
    contexts = {name: dict(own) for name, own in prepared.contexts.items()}
    for protocol, settings in prepared.study.protocols.chosen():
        own = [c for c in prepared.criteria if protocol_of(c, parts).name == protocol.name]
        asked = {
            source: Planned(prepared.plan.of(protocol.name, source), context)
            for source, context in contexts[protocol.name].items()
        }
        others = {p.case.hash: p.protocol for p in prepared.plan.cases if p.protocol != protocol.name}
        for source, planned in protocol.looked_at(asked, own, settings, others).items():
            contexts[protocol.name][source] = planned.context
            cases += planned.cases
    if prepared.study.until_decided == "complete":
        cases = [replace(planned, stop=None) for planned in cases]
    return replace(prepared, plan=replace(prepared.plan, cases=tuple(cases)), contexts=contexts)


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


def _rehearse_all(
    prepared: Prepared, builders: Mapping[str, Mapping[str, Callable[..., Model]]], accept_chance: bool
) -> Prepared:
    """Find what would spoil every figure before anything is written: a rehearsal of each model that is ready.

    A model that fails in it, or that answers differently when asked twice, is not asked in the run: its cases fail with
    that cause, and the others go on. Where there are no others, that is an error.

    Of a wrapper that is still to be fitted, the model inside is asked, so that nothing is fitted to one at chance.
    Stored answers must be complete, and are looked at where they hold those to undisturbed test data.
    """
    rehearsals, refused = dict[tuple[str, str], Rehearsal](), dict[tuple[str, str], str]()
    found = dict[tuple[str, str], Sequence[str]]()
    cases = [node.planned for node in prepared.plan.graph().cases.values() if not node.planned.refused]
    asked_models = [(planned.showing, planned.system.underlying) for planned in cases]
    planned_stimuli = [(showing, {*map(id, leaves(model))}) for showing, model in asked_models if model is not None]
    _check_stored_scores(cases)
    for source, bench in prepared.sources.items():
        clean = Stimulus(bench.data.fingerprint(), seed=bench.seed)
        for name, model in bench.models.items():
            inner = _ready_part(model)
            can_be_asked = inner is not None
            for own in leaves(model):
                if isinstance(own, StoredPredictions):
                    shown = [showing for showing, asked in planned_stimuli if id(own) in asked]
                    _check_answered(own, shown, bench.data)
                    can_be_asked &= clean.key in {showing.stimulus.key for showing in shown}
            if inner is None or not can_be_asked:
                continue
            build = builders[source].get(name) if inner is model else None
            try:
                rehearsal = _rehearsed(inner, bench, clean.key)
            except ModelError as error:
                refused[source, name] = str(error)
                continue
            if cause := _unsteady(inner, rehearsal):
                refused[source, name] = cause
            elif not accept_chance:
                _check_above_chance(inner, bench, rehearsal, build)
            rehearsals |= {(source, name): rehearsal} if inner is model else {}
            better = better_ways(inner, bench.data, rehearsal, stimulus=clean.key, batch=bench.batch)
            if texts := [*filter(None, [rehearsal.steadiness.note]), *better]:
                found[source, name] = texts
    for (source, name), said in found.items():
        for text in said:
            warnings.warn(f"model {f'{name} of {source}' if source else name}: {text}", stacklevel=3)
    if len(refused) == len(prepared.models):
        raise ModelError(next(iter(refused.values())))
    return replace(_without_refused(prepared, refused), rehearsals=rehearsals, found=found)


def _without_refused(prepared: Prepared, refused: Mapping[tuple[str, str], str]) -> Prepared:
    """The study in which nothing is asked of the models that are refused, nor of what is inside them alone."""
    causes: dict[int, str] = {}
    healthy: set[int] = set()
    for source, bench in prepared.sources.items():
        for name, model in bench.models.items():
            if (source, name) in refused:
                causes |= {id(part): f"not asked: {refused[source, name]}" for part in _with_parts(model)}
            else:
                healthy |= {id(part) for part in _with_parts(model)}
    asked = replace(prepared.plan, refused={part: cause for part, cause in causes.items() if part not in healthy})
    return replace(prepared, plan=asked, refused=refused)


def _with_parts(model: Model) -> Iterator[Model]:
    """A model and all that it passes answers on from."""
    yield model
    for inner in model.wrapped():
        yield from _with_parts(inner)


def _ready_part(model: Model) -> Model | None:
    """The model, or the one inside its wrappers that answers before anything is built; None where there is none."""
    while not all(part.loaded for part in model.requires()):
        inside = model.wrapped()
        if len(inside) != 1:
            return None
        model = inside[0]
    return model


def _check_stored_scores(cases: Sequence[PlannedCase]) -> None:
    """Refuse stored scores of monitors that do not hold all that is shown to them."""
    for planned in cases:
        for part in leaf_monitors(planned.system.fit.monitor) if isinstance(planned.system, MonitorOn) else ():
            if isinstance(part, StoredMonitor):
                _check_scored(part, planned.showing)


def _check_scored(monitor: StoredMonitor, showing: PlannedStimulus) -> None:
    """Refuse stored scores that lack an image of a stimulus; those of attacks cannot be there."""
    try:
        monitor.check_complete({showing.stimulus.key: showing.data.ids})
    except InputError:
        if showing.attacked is None:
            raise
        raise InputError(
            f"{monitor.scores} holds no scores of the images with which {showing.stimulus.name} attacks model "
            f"{showing.attacked.name}; they are made in the run, and export leaves them out: leave out the attack or "
            "the monitor"
        ) from None


def _identities(data: Dataset) -> set[tuple[str, str]]:
    """The id and the content of every image."""
    return set(zip(data.ids, contents(data), strict=True))


def _check_answered(model: StoredPredictions, shown: Sequence[PlannedStimulus], test: Dataset) -> None:
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


def _rehearsed(model: Model, bench: Bench, stimulus: str) -> Rehearsal:
    """Ask a model twice about a sample of undisturbed images."""
    try:
        return rehearse_model(model, bench.data, stimulus=stimulus, batch=bench.batch)
    except ModelError as error:
        unopened = any(isinstance(leaf, UnopenedModel) for leaf in leaves(model))
        raise ModelError(str(error) if unopened else f"in the check before the run, {error}") from error


def _unsteady(model: Model, rehearsal: Rehearsal) -> str:
    """Why a model cannot be tested whose answers differ when it is asked twice; a warning where that is accepted."""
    steadiness = rehearsal.steadiness
    if steadiness.is_late:
        return f"model {model.name} {steadiness.reason}"
    if not steadiness.again:
        return ""
    if steadiness.again.is_rounding or any(leaf.varies for leaf in leaves(model)):
        again = f"model {model.name} answers the same images differently when asked again"
        warnings.warn(f"{again}: {steadiness.again}", stacklevel=2)
        return ""
    return (
        f"model {model.name} {steadiness.reason}; switch off dropout, fix its seed, or declare that it does so on "
        "purpose with `varies=True`"
    )


def _check_above_chance(model: Model, bench: Bench, rehearsal: Rehearsal, build: Callable[..., Model] | None) -> None:
    """Refuse a model that is no better than chance. Of a localizer, chance is to answer the mean box always."""
    refusal = chance_error(model, bench.data, rehearsal, build)
    if refusal:
        raise InputError(refusal)
