"""OD-test from Python and from study files: opens and checks everything, represents each data set once, tabulates.

Models, then monitors, then representations are built in this order, each stored under the hash of what decides it:
whatever is there already, of a stopped run or of one with fewer monitors, is not computed again.
"""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roadworthy.api import (
    ProgressBar,
    Run,
    follows,
    model_builder,
    opened_folder,
    rehearsed,
    replace_results,
    terminal_progress,
    utc_now,
)
from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.core.manifests import check_whole
from roadworthy.core.protocols import OUTLIERS, Dataset, Model, entered_by
from roadworthy.core.random import Streams
from roadworthy.core.validation import check_no_nul, explain, parse_size, read_yaml
from roadworthy.data import OpenedDataset, Subset, open_dataset, split_by_group
from roadworthy.data.base import Size
from roadworthy.data.mirror import Mirrored
from roadworthy.engine.artifacts import build_part, ensure_artifact, read_artifact
from roadworthy.engine.folder import RunFolder, write_bytes
from roadworthy.engine.plan import BATCH, check_plan_size
from roadworthy.engine.provenance import environment
from roadworthy.engine.representations import Representations
from roadworthy.engine.workers import in_workers
from roadworthy.models import ReferenceModel, align
from roadworthy.models.head import find_head
from roadworthy.models.memory import RememberingModel
from roadworthy.monitors import MONITORS, Aim, FittedMonitor, Monitor, make_monitor, represent_data
from roadworthy.monitors.base import over
from roadworthy.outliers import make_outliers
from roadworthy.outliers.foreign import Foreign
from roadworthy.outliers.noise import NoiseImages
from roadworthy.protocols.latex import to_latex
from roadworthy.protocols.od_test.evaluation import (
    ACCURACY,
    ALL,
    NAME,
    NO_VALUE,
    PLACES,
    Overlap,
    Represented,
    Settings,
    check_criterion,
    check_places,
    criterion_remark,
    dropped_sources,
    evaluate,
    evaluate_unsupervised,
    matches_monitor,
    measure,
    monitor_errors,
    places,
    tables,
    threshold_row,
    without_value,
)
from roadworthy.statistics import proportion_interval
from roadworthy.study import whole_paths
from roadworthy.verdict import Criterion, Measurement, Verdict, failed_parts, judge, load_criteria

PARTS = (0.6, 0.2, 0.2)
"""Train, validation and test, where a source comes without training data; the last two are equal otherwise too."""
TIMING = f"timing_{NAME}"
COMPETENCE = f"{NAME}_competence"
WITHOUT_VALUE = f"{NAME}_missing"
THRESHOLDS = f"{NAME}_thresholds"
LEAST_SETS = 2
FEW = 0.01
"""Share of held-out images that may be training images too, with a warning: published sets have a few such."""

Parsed = TypeVar("Parsed", bound=BaseModel)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Protocols(_Section):
    od_test: Settings


class OdStudy(_Section):
    """A study file of the protocol od_test, which names data and models of its own: see `Settings`."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^/\\\x00-\x1f]*$")] = "od-test"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    protocols: _Protocols
    criteria: str | list[Any] | None = None


@dataclass(frozen=True)
class SourceTest:
    """A source with all that it meets, open and checked: every set at its size and channels, in a random order.

    overlap    labels of the source to leave out where it meets a set;  left_out: labels of monitors that its model
               cannot serve
    excluded   sets that it never meets;  architecture: what its model is
    seen       the held-out images that are training images too, by id
    """

    name: str
    model: Model
    train: OpenedDataset
    valid: OpenedDataset
    test: OpenedDataset
    outliers: Mapping[str, OpenedDataset]
    monitors: Mapping[str, Monitor]
    near: frozenset[str] = frozenset()
    overlap: Mapping[str, frozenset[int]] | None = None
    left_out: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """What its model is: the kind of a reference network, else the name of its file."""
        return self.model.architecture if isinstance(self.model, ReferenceModel) else self.model.name

    @property
    def sets(self) -> dict[str, OpenedDataset]:
        """Everything that monitors represent."""
        return {"valid": self.valid, "test": self.test, **{f"outliers/{k}": v for k, v in self.outliers.items()}}


@dataclass(frozen=True)
class PreparedOdTest:
    """An OD-test whose data, models and criteria are open and checked. Nothing has been written yet."""

    name: str
    seed: int
    aim: Aim
    resamples: int
    sources: tuple[SourceTest, ...]
    study: Mapping[str, Any]
    criteria: Sequence[Criterion] = ()

    def __post_init__(self) -> None:
        _check_criteria(self.criteria, self.aim, self.places)

    @property
    def remarks(self) -> dict[str, str]:
        """What must be said of the thresholds of criteria, by their id."""
        return _remarks(self.criteria, self.aim)

    @property
    def places(self) -> list[dict[str, str]]:
        """Every (source, D_v, D_t, monitor)."""
        return [place for s in self.sources for place in places(s.name, [*s.monitors], [*s.outliers], s.near)]

    @property
    def triples(self) -> int:
        """How many places there are."""
        return len(self.places)


class OdTestRun(Run):
    """A finished OD-test: `run.tables["od_test_methods"]` says how well each monitor did; `verify` recomputes.

    kinds   classes of monitors by name, where they are not registered
    """

    def __init__(self, path: str | Path, kinds: Mapping[str, type[Monitor]] | None = None) -> None:
        super().__init__(path)
        self._kinds = dict(kinds or {})

    def check_criteria(self, criteria: Sequence[Criterion]) -> None:
        """Refuse criteria that speak of what the run does not hold, or whose threshold cannot be met or missed."""
        what = self.record[NAME]
        _check_criteria(criteria, Aim(**what["aim"]), _all_places(what))

    def judge(self, criteria: Sequence[Criterion]) -> Verdict:
        """Judge the triples by criteria that were checked."""
        return _judge(criteria, self.folder, self.record, self._kinds)

    def verify(self) -> list[str]:
        """What is wrong with the run: files missing, changed or added, tables that do not follow from those stored."""
        problems = self.file_problems()
        if problems:
            return problems
        for name, table in _tables(self.folder, self.record, self._kinds).items():
            if name in self.tables and not follows(table, self.tables[name]):
                problems.append(f"table {name} does not follow from the representations")
        return problems + self.verdict_problems("representations")


def od_test(
    model: Any,
    *,
    monitors: Sequence[str | Monitor],
    source: Any,
    outliers: Mapping[str, Any],
    train: Any = None,
    out: str | Path | None = None,
    name: str = "source",
    near: Sequence[str] = (),
    overlap: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    size: Size | str | int | None = None,
    limit: int | None = None,
    mirror: bool = False,
    prior: float = 0.5,
    cost: float = 1.0,
    threshold: str = "exact",
    rejected: float = 0.05,
    resamples: int = 0,
    criteria: str | Path | list[Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
    **model_settings: Any,
) -> OdTestRun:
    """Evaluate monitors of one model by OD-test: calibrated against each set of outliers, tested on every other.

    source     held-out images, split by group into validation and test; into three parts where `train` is not given
    train      what the monitors learn from
    outliers   data sets by name (paths, arrays, data sets), or makers of noise such as "uniform_noise"
    near, overlap   see `SourceSettings`;  the others: see `Settings`
    criteria   what must hold for triples: `where` may name source, valid_set, test_set, ood and monitor

    The run lands in `out` (default: runs/od-test). With one more monitor the same call computes only that one.
    """
    base = Path.cwd()  # code of a model may change it
    given = {"limit": limit, "mirror": mirror, "prior": prior, "cost": cost, "threshold": threshold}
    options = {"rejected": rejected, "resamples": resamples, "monitors": ["random"], "outliers": {}} | given
    source_options = {"near": [*near], "overlap": {key: dict(value) for key, value in (overlap or {}).items()}}
    content = {**options, "sources": {name: {"model": "given", "data": "given", **source_options}}}
    settings = _parsed(Settings, content, "od_test")
    chosen = _labelled([make_monitor(each) if isinstance(each, str) else each for each in monitors])
    allowed = {"trust": trust, "unpickle": unpickle, "device": device}
    build = model_builder(model, parse_size(size), base=base, **allowed, **model_settings)
    prepared = _prepare_source(
        name,
        build,
        source,
        train,
        outliers,
        chosen,
        settings=settings,
        size=size,
        seed=seed,
        base=base,
        accept_chance=accept_chance,
    )
    plain = content | {"monitors": [*chosen], "outliers": {key: _described(value) for key, value in outliers.items()}}
    wanted = _checked_criteria(criteria, base, settings.aim)
    study = {"name": "od-test", "seed": seed, "protocols": {NAME: plain}, "criteria": _stored_criteria(wanted)}
    whole = PreparedOdTest("od-test", seed, settings.aim, resamples, (prepared,), study, wanted)
    target = base / (out or Path("runs") / "od-test")
    return execute_od_test(whole, target, workers=workers, fresh=fresh, progress=progress)


def run_od_study(
    source: str | Path | dict[str, Any],
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
) -> OdTestRun:
    """Run an od_test study file (or its content) into `out` (default: runs/<its name>); resumes by itself."""
    base = Path.cwd()  # code of a model may change it
    prepared = prepare_od_study(source, trust=trust, unpickle=unpickle, device=device, accept_chance=accept_chance)
    target = base / (out or Path("runs") / prepared.name)
    return execute_od_test(prepared, target, workers=workers, fresh=fresh, progress=progress)


def prepare_od_study(
    source: str | Path | dict[str, Any],
    *,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    accept_chance: bool = False,
) -> PreparedOdTest:
    """Open and check everything that an od_test study names. Writes nothing, so a mistake leaves no trace."""
    if isinstance(source, dict):
        content, base, what = source, Path.cwd(), "study"
    else:
        content, base, what = read_yaml(Path(source), "study"), Path(source).absolute().parent, f"study {source}"
    study = _parsed(OdStudy, content, what)
    settings = study.protocols.od_test
    criteria = _checked_criteria(study.criteria, base, settings.aim)
    sets = len(settings.outliers)
    check_plan_size(len(settings.sources) * len(settings.monitors) * sets * (sets - 1), "triples")
    monitors = _labelled([make_monitor(choice.name, **choice.parameters) for choice in settings.monitors])
    sources = []
    for name, given in settings.sources.items():
        for excluded in given.exclude:
            if excluded not in settings.outliers:
                raise UnknownName("set of outliers", excluded, settings.outliers)
        met = {key: spec for key, spec in settings.outliers.items() if key != name and key not in given.exclude}
        size = parse_size(tuple(given.size) if isinstance(given.size, list) else given.size)
        sources.append(
            _prepare_source(
                name,
                model_builder(given.model, size, trust=trust, unpickle=unpickle, device=device, base=base),
                given.data,
                given.train,
                met,
                monitors,
                settings=settings,
                size=size,
                seed=study.seed,
                base=base,
                accept_chance=accept_chance,
            )
        )
    stored = study.model_dump(mode="json") | {"criteria": _stored_criteria(criteria)}
    for key in ("sources", "outliers"):
        stored["protocols"][NAME][key] = whole_paths(stored["protocols"][NAME][key], base.resolve())
    return PreparedOdTest(study.name, study.seed, settings.aim, settings.resamples, tuple(sources), stored, criteria)


def _checked_criteria(source: str | Path | list[Any] | None, base: Path, aim: Aim) -> list[Criterion]:
    criteria = load_criteria(source, base)
    for criterion in criteria:
        check_criterion(criterion, aim)
    return criteria


def _check_criteria(criteria: Sequence[Criterion], aim: Aim, triples: Sequence[Mapping[str, str]]) -> None:
    for criterion in criteria:
        check_criterion(criterion, aim)
        check_places(criterion, triples)


def _stored_criteria(criteria: Sequence[Criterion]) -> list[dict[str, Any]] | None:
    return [criterion.model_dump(exclude_none=True) for criterion in criteria] or None


def _parsed(kind: type[Parsed], content: Any, what: str) -> Parsed:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{what}: {explain(error, kind)}") from None


def _described(spec: Any) -> str:
    return str(spec) if isinstance(spec, str | Path) else f"<{type(spec).__name__}>"


def _labelled(monitors: Sequence[Monitor]) -> dict[str, Monitor]:
    """Monitors by name and the settings that are not the default; two equal ones, or two classes of one name, are an
    error.
    """
    if not monitors:
        raise InputError(f"od_test needs a monitor: name at least one of {', '.join(sorted(MONITORS))}")
    labelled: dict[str, Monitor] = {}
    kinds: dict[str, type[Monitor]] = {}
    for monitor in monitors:
        if not isinstance(monitor, Monitor):
            raise InputError(f"a monitor is a name or a Monitor, not {type(monitor).__name__}")
        kind, name = type(monitor), monitor.name
        _check_name("monitor", name)
        known = MONITORS.get(name) if name in MONITORS else kinds.setdefault(name, kind)
        if known is not kind:
            raise InputError(
                f"{kind.__module__}.{kind.__qualname__} bears the name {name} of another monitor, "
                f"{known.__module__}.{known.__qualname__}: give it a name of its own"
            )
        label = _label(monitor)
        if label in labelled:
            raise InputError(f"monitor {label} is named twice: leave one out")
        labelled[label] = monitor
    return labelled


def _check_name(what: str, name: Any) -> None:
    """Refuse what cannot name a row of the tables."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"the name {name!r} of a {what} is empty or no text: give it a name")
    check_no_nul(f"name of a {what}", [name])
    if name == ALL:
        raise InputError(f"a {what} cannot be called {ALL}, which stands for all of them in the tables: rename it")


def _label(monitor: Monitor) -> str:
    """`knn_svm k=2`."""
    changed = []
    for each in fields(monitor):
        value = getattr(monitor, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if value != default:
            changed.append(f"{each.name}={value}")
    return " ".join([monitor.name, *changed])


def _prepare_source(
    name: str,
    build: Callable[..., Model],
    held_out: Any,
    train: Any,
    outliers: Mapping[str, Any],
    monitors: Mapping[str, Monitor],
    *,
    settings: Settings,
    size: Size | str | int | None,
    seed: int,
    base: Path,
    accept_chance: bool,
) -> SourceTest:
    """Open and check a source, its model and the sets it meets."""
    given, model = settings.sources[name], build()
    _check_name("source", name)
    for met_name in (*outliers, *given.exclude):
        _check_name("set of outliers", met_name)
    data = open_dataset(
        held_out, size=parse_size(size), fallback_size=model.input_size, base=base, seed=seed, name=f"{name}_data"
    )
    learned: OpenedDataset
    valid: OpenedDataset
    test: OpenedDataset
    seen: tuple[str, ...]
    if train is None:
        learned, valid, test = split_by_group(data, PARTS, seed)
        contents, seen = set(_contents(data)), ()
    else:
        learned = open_dataset(train, size=data.size, base=base, seed=seed, name=f"{name}_train")
        valid, test = split_by_group(data, (0.5, 0.5), seed)
        contents, seen = _apart(data, learned)
    if learned.class_names != data.class_names or learned.channels != data.channels:
        raise InputError(f"training data and held-out data of source {name} differ in classes or channels")
    if len(np.unique(learned.labels)) < 2 or len(np.unique(data.labels)) < 2:
        raise InputError(f"source {name} holds images of one class only: od_test needs a source of at least two")
    if len(outliers) < LEAST_SETS:
        raise InputError(
            f"source {name} meets {len(outliers)} sets of outliers: od_test needs at least {LEAST_SETS}, one to "
            "calibrate with and another to test with"
        )
    if name in settings.outliers and name not in given.exclude:
        _check_namesake(name, contents, settings, seed, base)
    mirror = settings.mirror if given.mirror is None else given.mirror
    limited = [_first(_shuffled(part, seed), settings.limit) for part in (valid, test)]
    met = _open_outliers(name, max(limited, key=len), contents, outliers, settings, seed, base)
    learned_on, valid, test, *others = [
        _shuffled(Mirrored(part), seed) if mirror else part for part in (learned, *limited, *met.values())
    ]
    if model.wants - {"train"}:
        raise InputError(f"the model of source {name} wants data to be fitted on: give its temperature as a value")
    overlap = {key: _labels_of(data, given.overlap[key].source) for key in _known_sets(given.overlap, outliers)}
    _check_left(name, {"validation": valid, "test": test}, overlap)
    bound = model.given({"train": learned_on})
    left_out = _left_out(name, monitors, given.leave_out)
    planned = _planned(name, bound, data)
    if all(part.loaded for part in bound.parts()):
        rehearsed(planned, data, seed, BATCH, build, accept_chance)
    chosen = _served(name, planned, learned_on, {k: v for k, v in monitors.items() if k not in left_out})
    return SourceTest(
        name,
        bound,
        learned_on,
        valid,
        test,
        dict(zip(met, others, strict=True)),
        chosen,
        frozenset(_known_sets(given.near, outliers)),
        overlap,
        left_out,
        tuple(given.exclude),
        seen,
    )


def _check_left(source: str, parts: Mapping[str, Dataset], overlap: Mapping[str, Collection[int]]) -> None:
    """Refuse shared classes that leave nothing of a source where it meets a set."""
    for key, shared in overlap.items():
        for part, data in parts.items():
            if np.isin(data.labels, list(shared)).all():
                raise InputError(
                    f"source {source} has no {part} image left without the classes that it shares with outliers {key}: "
                    "name fewer of them (overlap), or leave the set out (exclude)"
                )


def _check_namesake(source: str, contents: set[str], settings: Settings, seed: int, base: Path) -> None:
    """A set of outliers that bears a source's name is that source, which never meets it; other data are an error."""
    spec, given = settings.outliers[source], settings.sources[source]
    if spec in (given.data, given.train):
        return
    noise = isinstance(spec, str) and spec in OUTLIERS
    if noise or contents.isdisjoint(_contents(open_dataset(spec, base=base, seed=seed, name=source))):
        raise InputError(
            f"outliers {source} bear the name of source {source} but are other data: give them a name of their own, or "
            f"leave them out there (exclude: [{source}])"
        )


def _contents(data: OpenedDataset) -> list[str]:
    return data.content(range(len(data)))


def _known_sets(names: Sequence[str] | Mapping[str, Any], outliers: Mapping[str, Any]) -> list[str]:
    for name in names:
        if name not in outliers:
            raise UnknownName("set of outliers", name, outliers)
    return [*names]


def _labels_of(data: Dataset, classes: Sequence[str]) -> frozenset[int]:
    for name in classes:
        if name not in data.class_names:
            raise UnknownName(f"class of {data.name}", name, data.class_names)
    return frozenset(data.class_names.index(name) for name in classes)


def _apart(data: OpenedDataset, train: OpenedDataset) -> tuple[set[str], tuple[str, ...]]:
    """The hashes of all images of a source, and the ids of held-out images that are trained on.

    A few give a warning, more are an error.
    """
    held, learned = _contents(data), set(_contents(train))
    seen = tuple(name for name, content in zip(data.ids, held, strict=True) if content in learned)
    if len(seen) == len(held):
        raise InputError(f"held-out data {data.name} and training data {train.name} are the same images")
    if seen:
        found = (
            f"{len(seen)} of {len(held)} held-out images of {data.name} are training images too, such as {seen[0]}: "
            "take them out of one side"
        )
        if len(seen) > FEW * len(held):
            raise InputError(found)
        warnings.warn(found, stacklevel=2)
    return learned.union(held), seen


def _shuffled(data: OpenedDataset, seed: int) -> OpenedDataset:
    """The same images in an order drawn by their ids, so that the first n are a fair part."""
    drawn = [rng.random() for rng in Streams("od_test order", seed).each(data.ids)]
    return Subset(data, np.argsort(drawn, kind="stable").tolist())


def _first(data: OpenedDataset, limit: int | None) -> OpenedDataset:
    return data if limit is None or limit >= len(data) else Subset(data, range(limit))


def _open_outliers(
    source: str,
    like: OpenedDataset,
    contents: set[str],
    outliers: Mapping[str, Any],
    settings: Settings,
    seed: int,
    base: Path,
) -> dict[str, OpenedDataset]:
    """Every set of outliers at the size and channels of the source, without shared classes and at most as many."""
    overlap = settings.sources[source].overlap
    made: dict[str, OpenedDataset] = {}
    seen: dict[str, set[str]] = {}
    for name, spec in outliers.items():
        if isinstance(spec, str) and spec in OUTLIERS:
            maker = make_outliers(spec)
            if not isinstance(maker, NoiseImages):
                raise InputError(f"outliers {name}: od_test takes data sets and makers of noise, and {spec} is neither")
            made[name] = maker.make(like, seed=seed)
            continue
        data = _without(open_dataset(spec, size=like.size, base=base, seed=seed, name=name), overlap.get(name))
        found = _contents(data)
        for other, known in [(f"source {source}", contents), *((f"outliers {key}", seen[key]) for key in seen)]:
            shared = sum(content in known for content in found)
            if shared:
                raise InputError(f"outliers {name} and {other} share {shared} of {len(found)} images: give another set")
        seen[name] = set(found)
        made[name] = _shuffled(Foreign().make(like, seed=seed, foreign=data), seed)
    for one, other in combinations(made, 2):
        if made[one].fingerprint() == made[other].fingerprint():
            raise InputError(f"outliers {one} and {other} are the same images: leave one out")
    return made


def _without(data: OpenedDataset, overlap: Overlap | None) -> OpenedDataset:
    """A set of outliers without the classes that it shares with the source."""
    shared = _labels_of(data, overlap.outliers if overlap else ())
    rows = np.flatnonzero(~np.isin(data.labels, list(shared)))
    if not len(rows):
        raise InputError(f"outliers {data.name} are empty without the classes that they share with the source")
    return Subset(data, rows.tolist()) if shared else data


def _left_out(source: str, monitors: Mapping[str, Monitor], names: Sequence[str]) -> tuple[str, ...]:
    """The labels of the monitors to leave out; `knn_svm` stands for all of that name, whatever their settings."""
    for name in names:
        if name not in {*monitors, *(monitor.name for monitor in monitors.values())}:
            raise UnknownName(f"monitor to leave out of source {source}", name, monitors)
    return tuple(label for label, monitor in monitors.items() if {label, monitor.name} & {*names})


def _planned(source: str, model: Model, data: OpenedDataset) -> Model:
    """The model of a source as it will answer, so far as that is known before it is trained."""
    if model.num_classes != len(data.class_names):
        raise InputError(
            f"the model of source {source} answers {model.num_classes} classes, but its data has "
            f"{len(data.class_names)}"
        )
    return model.untrained() if isinstance(model, ReferenceModel) else align(model, data.class_names)


def _served(source: str, planned: Model, train: OpenedDataset, monitors: Mapping[str, Monitor]) -> dict[str, Monitor]:
    """The monitors of a source, each checked against what its model can give."""
    ready, chosen = all(part.loaded for part in planned.parts()), {}
    classes = len(np.unique(train.labels))
    for label, monitor in monitors.items():
        try:
            monitor.check(planned)
            if ready and "features" in monitor.needs and getattr(monitor, "layer", None) is None:
                find_head(planned)
        except InputError as error:
            raise InputError(f"source {source}: {error}; or leave the monitor out (leave_out)") from None
        if classes < monitor.classes:
            raise InputError(
                f"source {source}: monitor {label} needs images of {monitor.classes} classes to learn from: "
                f"there are {classes}"
            )
        chosen[label] = monitor
    if not chosen:
        raise InputError(f"source {source} leaves out every monitor: keep at least one")
    return chosen


def execute_od_test(
    prepared: PreparedOdTest,
    out: str | Path,
    *,
    workers: int | None = None,
    fresh: bool = False,
    progress: ProgressBar = terminal_progress,
) -> OdTestRun:
    """Run a prepared OD-test into a folder; what is there already is not computed again, unless it is to be `fresh`.

    Results that are there stay until all new ones are known: an attempt that fails leaves a finished run as it was.
    """
    workers = workers or os.cpu_count() or 1
    study = yaml.safe_dump(dict(prepared.study), sort_keys=False, allow_unicode=True)
    kinds = {monitor.name: type(monitor) for source in prepared.sources for monitor in source.monitors.values()}
    with opened_folder(out, study, fresh) as folder:
        Representations(folder.path).drop_damaged()
        before = set(folder.files())
        sources, artifacts = {}, []
        for source in prepared.sources:
            stored, built = _represent_source(source, folder, workers, progress)
            sources[source.name] = stored
            artifacts += built
        record = _record(prepared, folder, sources, artifacts)
        started = time.perf_counter()
        try:
            found = _tables(folder, record, kinds)
        except ModelError:
            if folder.is_finished:
                _take_back(folder, before, artifacts)
            raise
        found[TIMING] = _timing(folder, sources, time.perf_counter() - started, prepared.triples)
        printed = {name: to_latex(table).encode() for name, table in found.items()}
        verdict = _judge(prepared.criteria, folder, record, kinds)
        replace_results(folder, study, record)
        for name, table in found.items():
            folder.write_table(name, table)
            write_bytes(folder.path / "tables" / f"{name}.tex", printed[name])
        run = OdTestRun(folder.path, kinds)
        run.conclude(record, verdict)
    return run


def _take_back(folder: RunFolder, before: Collection[Path], artifacts: Sequence[Mapping[str, Any]]) -> None:
    """Remove what an attempt without any result has left in a finished run, but the networks that it trained."""
    networks = {folder.artifact(built["hash"]) for built in artifacts}
    for path in folder.files():
        if path not in before and path.parent not in networks:
            path.unlink()


def _represent_source(
    source: SourceTest, folder: RunFolder, workers: int, progress: ProgressBar
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Build the model and every monitor, represent every set; says where all of it is stored."""
    store, given_model = Representations(folder.path), source.model
    artifacts = [build_part(source.name, part, folder, progress) for part in given_model.parts()]
    if isinstance(given_model, ReferenceModel):
        given_model = given_model.opened()
    model = RememberingModel(align(given_model, source.train.class_names))
    stored: dict[str, Any] = {
        "model": model.fingerprint(),
        "architecture": source.architecture,
        "classes": len(source.train.class_names),
        "size": [*source.test.size, source.test.channels],
        "near": sorted(source.near),
        "overlap": {key: sorted(labels) for key, labels in (source.overlap or {}).items() if labels},
        "left_out": [*source.left_out],
        "excluded": [*source.excluded],
        "failed": {},
        "seen": {"images": len(source.seen), "first": source.seen[0]} if source.seen else {},
        "images": {key: len(data) for key, data in source.sets.items()} | {"train": len(source.train)},
        "fingerprints": {key: data.fingerprint() for key, data in source.sets.items()},
        "answers": _answers(store, model, source),
        "monitors": {},
    }
    total = len(source.monitors) * sum(map(len, source.sets.values()))
    with progress(f"{NAME} {source.name}", total) as advance:
        for label, given in source.monitors.items():
            try:
                with monitor_errors(OSError):
                    recipe = given.recipe(model, source.train)
                    home = ensure_artifact(folder, recipe, partial(_build, given, model, source.train))
                    fitted = FittedMonitor.load(home, model, kind=type(given))
                    keys = _represent_sets(store, fitted, model, source.sets, workers, advance)
            except (InputError, ModelError) as error:
                stored["failed"][label] = str(error)
                continue
            stored["monitors"][label] = {
                "monitor": given.name,
                "artifact": recipe.hash,
                "keys": keys,
                "differs_from_paper": given.differs_from_paper,
            }
    return stored, artifacts


def _build(monitor: Monitor, model: RememberingModel, train: Dataset, workshop: Path) -> dict[str, Any]:
    model.seconds_spared()
    started = time.perf_counter()
    with monitor_errors():
        fitted = monitor.build(model, train)
    seconds = time.perf_counter() - started + model.seconds_spared()
    fitted.write_parts(workshop)
    kept = sum(array.nbytes for array in fitted.state.values())
    return {"seconds": seconds, "state_bytes": kept, "notes": [*fitted.notes]}


def _represent_sets(
    store: Representations,
    monitor: FittedMonitor,
    model: RememberingModel,
    sets: Mapping[str, OpenedDataset],
    workers: int,
    advance: Callable[[int], None],
) -> dict[str, str]:
    """The key of each set's representation; sets side by side where the model can answer several threads at once."""

    def represent(data: Dataset) -> NDArray[np.float32]:
        with monitor_errors():
            return represent_data(monitor, model, data)

    keys: dict[str, str] = {}

    def ensure(item: tuple[str, OpenedDataset]) -> None:
        name, data = item
        recipe = {"monitor": monitor.fingerprint(), "model": model.fingerprint(), "data": data.fingerprint()}
        recipe["batch"] = str(BATCH)
        keys[name] = store.ensure(recipe, data, represent, model.seconds_spared)
        advance(len(data))

    first, *others = sets.items()
    ensure(first)
    alone = any(entered_by(model).values())
    in_workers(ensure, others, 1 if alone else workers, threading.Event())
    return {name: keys[name] for name in sets}


def _answers(store: Representations, model: Model, source: SourceTest) -> dict[str, str]:
    """Where it is stored which training and test images the model classifies correctly."""

    def correct(data: Dataset) -> NDArray[np.float32]:
        right = [model.answer(part, BATCH).probabilities.argmax(axis=1) == part.labels for part in over(data)]
        return np.concatenate(right).astype(np.float32)[:, None]

    return {
        part: store.ensure({"correct": model.fingerprint(), "data": data.fingerprint()}, data, correct)
        for part, data in (("train", source.train), ("valid", source.valid), ("test", source.test))
    }


def _represented(
    folder: RunFolder,
    record: Mapping[str, Any],
    kinds: Mapping[str, type[Monitor]],
    wanted: Callable[[str, str], bool] = lambda source, monitor: True,
) -> Iterator[Represented]:
    """What every monitor keeps of every source, read from disk one by one; of those that are `wanted`."""
    store, weak = Representations(folder.path), _undertrained(record)
    for name, source in record[NAME]["sources"].items():
        for label, stored in source["monitors"].items():
            if not wanted(name, label):
                continue
            home = folder.artifact(stored["artifact"])
            check_whole(home)
            kind = kinds.get(stored["monitor"]) or _registered(stored["monitor"], folder)
            samples = {key: store.load(place) for key, place in stored["keys"].items()}
            yield Represented(
                name,
                label,
                FittedMonitor.load(home, kind=kind),
                samples.pop("valid"),
                samples.pop("test"),
                {key.partition("/")[2]: sample for key, sample in samples.items()},
                frozenset(source["near"]),
                {key: frozenset(labels) for key, labels in source["overlap"].items()},
                source["architecture"],
                name in weak,
            )


def _registered(name: str, folder: RunFolder) -> type[Monitor]:
    if name not in MONITORS:
        raise InputError(
            f"monitor {name} of {folder.path} is not known here: import what defines and registers it, or install the "
            "package that declares it (entry point group roadworthy.monitors)"
        )
    return MONITORS.get(name)


def _undertrained(record: Mapping[str, Any]) -> set[str]:
    """The sources whose network is below the clean accuracy that was asked of it."""
    networks = [(entry["system"], entry["competence"]) for entry in record["artifacts"]]
    return {source for source, found in networks if found.get("clean_accuracy", 1.0) < found.get("floor", 0.0)}


def _tables(
    folder: RunFolder, record: Mapping[str, Any], kinds: Mapping[str, type[Monitor]]
) -> dict[str, pd.DataFrame]:
    """Every table that follows from what is stored."""
    what = record[NAME]
    aim, options = Aim(**what["aim"]), {"resamples": what["resamples"], "seed": record["seed"]}
    triples: list[dict[str, Any]] = []
    alone: list[dict[str, Any]] = []
    thresholds: list[dict[str, Any]] = []
    for represented in _represented(folder, record, kinds):
        triples += evaluate(represented, aim, **options)
        alone += evaluate_unsupervised(represented, aim, **options)
        thresholds.append(threshold_row(represented, aim))
    if all(math.isnan(row["value"]) for row in triples):
        reasons = [why for source in what["sources"].values() for why in source["failed"].values()]
        reasons += [row["reason"] or NO_VALUE for row in triples]
        raise ModelError(f"every monitor failed; the first: {reasons[0]}")
    found = tables(triples, alone)
    return found | {
        COMPETENCE: _competence(folder, record),
        WITHOUT_VALUE: _missing(found[NAME], what["sources"]),
        THRESHOLDS: pd.DataFrame(thresholds),
    }


def _missing(matrix: pd.DataFrame, sources: Mapping[str, Any]) -> pd.DataFrame:
    """Every triple without a value and why; `all` stands for every one. `triples` says how many a row stands for."""
    rows = []
    for name, source in sources.items():
        sets = len(_outlier_sets(source))
        pairs = sets * (sets - 1)
        every = {"source": name, "valid_set": ALL, "test_set": ALL}
        for label in source["left_out"]:
            rows.append({**every, "monitor": label, "triples": pairs, "reason": "left out by the study (leave_out)"})
        for label, reason in source["failed"].items():
            rows.append({**every, "monitor": label, "triples": pairs, "reason": f"failed: {reason}"})
        for key in source["excluded"]:
            why = f"the source never meets {key} by the study (exclude)"
            rows.append({**every, "test_set": key, "monitor": ALL, "triples": 0, "reason": why})
    lost = matrix[(matrix["metric"] == ACCURACY) & matrix["value"].isna()]
    rows += [
        {**{key: row[key] for key in PLACES}, "triples": 1, "reason": row["reason"] or NO_VALUE}
        for _, row in lost.iterrows()
    ]
    return pd.DataFrame(rows, columns=["source", "valid_set", "test_set", "monitor", "triples", "reason"])


def _judge(
    criteria: Sequence[Criterion], folder: RunFolder, record: Mapping[str, Any], kinds: Mapping[str, type[Monitor]]
) -> Verdict:
    """The verdict from what is stored, evaluated anew with the confidence that a criterion asks for."""
    what = record[NAME]
    aim, options = Aim(**what["aim"]), {"resamples": what["resamples"], "seed": record["seed"]}
    failed = [
        row
        for name, source in what["sources"].items()
        for label, reason in source["failed"].items()
        for row in without_value(_places(name, source, [label]), reason)
    ]
    weak = _undertrained(record)

    def measured(criterion: Criterion, confidence: float) -> list[Measurement]:
        wanted = partial(matches_monitor, criterion=criterion)
        rows = [
            row
            for represented in _represented(folder, record, kinds, wanted)
            for row in evaluate(represented, aim, **options, confidence=confidence)
        ]
        dropped = dropped_sources({name: name in weak for name in what["sources"]}, criterion)
        return measure([*rows, *failed], criterion, confidence, dropped)

    return judge(criteria, measured, remarks=_remarks(criteria, aim), failed=failed_parts(record))


def _remarks(criteria: Sequence[Criterion], aim: Aim) -> dict[str, str]:
    found = {criterion.id: criterion_remark(criterion, aim) for criterion in criteria}
    return {name: remark for name, remark in found.items() if remark}


def _all_places(what: Mapping[str, Any]) -> list[dict[str, str]]:
    """The triples of every stored source, those of monitors that failed too."""
    return [place for name, source in what["sources"].items() for place in _places(name, source, _monitors_of(source))]


def _monitors_of(stored: Mapping[str, Any]) -> list[str]:
    """The monitors of a source, those that failed too."""
    return [*stored["monitors"], *stored["failed"]]


def _places(name: str, stored: Mapping[str, Any], monitors: Sequence[str]) -> list[dict[str, str]]:
    """The triples of some monitors of a stored source."""
    return places(name, monitors, _outlier_sets(stored), stored["near"])


def _outlier_sets(stored: Mapping[str, Any]) -> list[str]:
    """The outlier sets that a stored source meets."""
    return [key.partition("/")[2] for key in stored["images"] if key.startswith("outliers/")]


def _competence(folder: RunFolder, record: Mapping[str, Any]) -> pd.DataFrame:
    """The clean accuracy of each source's model, on the images it was trained on and on others."""
    store, weak = Representations(folder.path), _undertrained(record)
    rows = []
    for name, source in record[NAME]["sources"].items():
        for part, key in source["answers"].items():
            sample = store.load(key)
            share = proportion_interval(sample.rows[:, 0], sample.groups)
            what = {"source": name, "architecture": source["architecture"], "undertrained": name in weak}
            where = {**what, "part": part, "metric": ACCURACY, "value": share.value}
            rows.append(where | {"lo": share.lo, "hi": share.hi, "n": len(sample), "groups": share.groups})
    return pd.DataFrame(rows)


def _timing(folder: RunFolder, sources: Mapping[str, Any], seconds: float, triples: int) -> pd.DataFrame:
    """What each monitor cost: to build, per image, in memory; and the share of all calibrations and tests."""
    store = Representations(folder.path)
    rows = []
    for name, source in sources.items():
        for label, stored in source["monitors"].items():
            competence = read_artifact(folder.artifact(stored["artifact"]))["competence"]
            costs = [store.cost(key) for key in stored["keys"].values()]
            images = sum(cost.images for cost in costs)
            columns = store.load(next(iter(stored["keys"].values()))).rows.shape[1]
            pairs = (len(costs) - 2) * (len(costs) - 3)
            rows.append(
                {
                    "source": name,
                    "monitor": label,
                    "build_seconds": competence["seconds"],
                    "state_bytes": competence["state_bytes"],
                    "images": images,
                    "seconds_per_image": sum(cost.seconds for cost in costs) / images,
                    "bytes_per_image": 4 * columns,
                    "pairs": pairs,
                    "matrix_seconds": seconds * pairs / triples,
                }
            )
    return pd.DataFrame(rows)


def _record(
    prepared: PreparedOdTest, folder: RunFolder, sources: Mapping[str, Any], artifacts: list[dict[str, Any]]
) -> dict[str, Any]:
    before = folder.earlier_record()
    first = prepared.sources[0]
    return {
        "kind": NAME,
        "study": prepared.name,
        "seed": prepared.seed,
        "created": before.get("created", utc_now()),
        "environment": environment(),
        "data": {"name": first.name, "class_names": [*first.train.class_names]},
        "models": {name: {"fingerprint": source["model"]} for name, source in sources.items()},
        "criteria": [criterion.model_dump() for criterion in prepared.criteria],
        "cases": [],
        "artifacts": artifacts,
        NAME: {
            "aim": {each.name: getattr(prepared.aim, each.name) for each in fields(Aim)},
            "resamples": prepared.resamples,
            "sources": dict(sources),
        },
    }
