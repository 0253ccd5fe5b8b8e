"""Opening what a source of a study names: data by role, sets outside, monitors and models, each checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.core.fetching import fetch_named
from roadworthy.core.roles import OUTLIERS, Dataset, Model, Outliers, fits_validation
from roadworthy.data import OpenedDataset, Subset, open_dataset, split_by_group
from roadworthy.data.base import identities
from roadworthy.data.folder import level_hint
from roadworthy.data.leaks import check_apart, counted_once, shared_ids
from roadworthy.data.relabelled import Relabelled
from roadworthy.data.subset import Mirrored, in_random_order
from roadworthy.engine.monitor_systems import PlannedTraining
from roadworthy.engine.plan import LOOK_IMAGES, Bench, check_plan_size, chunk_size
from roadworthy.engine.progress import ProgressBar, no_progress
from roadworthy.models import align, entry_fits_validation, load_model
from roadworthy.models.callable import check_versions
from roadworthy.models.classes import box_hint
from roadworthy.models.isolation import FOREIGN, UnopenedModel
from roadworthy.models.signals import LearningData
from roadworthy.monitors import MONITORS, Monitor, MonitorOpening, NamesFiles, open_monitor
from roadworthy.monitors.id_calibration import object_halves
from roadworthy.outliers import make_outliers
from roadworthy.protocols import PROTOCOLS, Protocol
from roadworthy.report.words import plural
from roadworthy.study import Overlap, SourceSection, Study

LEARNING = {
    "train": "training data is needed (networks, monitors or GANs learn from it): name it under data: train, or cut it "
    "off the test data with data: split: [0.6, 0.2, 0.2]",
    "validation": "a temperature or a variance is fitted by the study: name held-out images under data: validation (a "
    "monitor that gives a score may learn from them, too)",
}
"""What a study must name for what learns from data, by role, as the sentence that asks for it."""

SPLIT_ROLES = {2: ("train", "test"), 3: ("train", "validation", "test")}
"""What the parts of a split are, by how many there are."""


@dataclass(frozen=True)
class Given:
    """What is open already, or in memory, in place of what a study of one source names: from Python."""

    models: Mapping[str, Model] = field(default_factory=dict)
    builders: Mapping[str, Callable[..., Model]] = field(default_factory=dict)
    test: Any = None
    train: Any = None
    validation: Any = None
    outliers: Mapping[str, Any] = field(default_factory=dict)
    monitors: Mapping[str, Monitor] = field(default_factory=dict)


@dataclass(frozen=True)
class OpeningSource:
    """What is needed to open one source of a study. `allowed` are settings of all models: device, trust, unpickle.

    `isolate` is what holds for models whose entry says nothing of it.
    """

    study: Study
    name: str
    section: SourceSection
    base: Path
    monitors: Mapping[str, Monitor]
    progress: ProgressBar
    given: Given = Given()
    on_bad_image: str = "error"
    allowed: Mapping[str, Any] = field(default_factory=dict)
    isolate: bool | str = FOREIGN

    def bench(self) -> tuple[Bench, dict[str, Callable[..., Model]], dict[str, Sequence[str]]]:
        """Its bench, what makes its models anew, and which held-out images are training images too, by role."""
        asked = self._asked()
        outliers = {} if self.given.outliers else self.study.outliers
        fetch_named([self.section.models, self.section.data.model_dump(), outliers], self.progress)
        opened, builders = dict(self.given.models), dict(self.given.builders)
        for name, spec in self.section.models.items():
            if name not in opened:
                settings = {"name": name, "base": self.base, "isolate": self.isolate, **self.allowed}
                builders[name] = model_builder(spec, self.section.size, **settings)
                opened[name] = open_or_stand_in(builders[name], name, spec)
        check_versions(opened)
        inputs = [model.input_size for model in opened.values() if model.input_size]
        roles = self._data(max(inputs, default=None))
        data = roles["test"]
        wanted = frozenset[str]().union(
            *(model.learns_from for model in opened.values()),
            *(protocol.learns_from(settings, self.monitors) for protocol, settings in asked),
        )
        for role in sorted(wanted - set(roles)):
            raise InputError(LEARNING[role])
        self._check_learning(roles)
        recorded = self._recorded(data, any(protocol.shows_recorded for protocol, _ in asked))
        meets_outliers = any(protocol.shows_outliers for protocol, _ in asked)
        bench = self._without_models(roles, recorded, meets_outliers, opened.values())
        seen = self._check_apart(roles, recorded, bench.foreign)
        fitting = {} if bench.fitting is None else {"validation": bench.fitting}
        learning = LearningData({**roles, **fitting}, partial(PlannedTraining, bench), bench.seed)
        opened = {name: self._fitted(name, model.with_data(learning), data) for name, model in opened.items()}
        return replace(bench, models=opened), builders, seen

    def images(self, fallback_size: tuple[int, int] | None) -> Bench:
        """Its images alone, to make its stimuli again: no model is opened, nothing is compared."""
        asked = [protocol for protocol, _ in self._asked()]
        roles = self._data(fallback_size)
        recorded = self._recorded(roles["test"], any(protocol.shows_recorded for protocol in asked))
        return self._without_models(roles, recorded, any(protocol.shows_outliers for protocol in asked))

    def _asked(self) -> list[tuple[Protocol, Any]]:
        """The protocols that run on it, with their settings."""
        return [(p, s) for p, s in self.study.protocols.chosen() if self.name in (s.sources or [self.name])]

    def _without_models(
        self,
        roles: Mapping[str, OpenedDataset],
        recorded: Mapping[str, OpenedDataset],
        meets_outliers: bool,
        opened: Iterable[Model] = (),
    ) -> Bench:
        """Its bench with all images; those of a study that runs until it is decided are in random order.

        `opened` are the models, before they have their data, as far as they are open.
        """
        data, seed, batch = roles["test"], self.study.seed, self.study.batch
        foreign, makers, order = self._outliers(data) if meets_outliers else ({}, {}, [])
        chunk = chunk_size(data, batch)
        if self.study.until_decided:
            data, chunk = in_random_order(data, seed), chunk_size(data, batch, LOOK_IMAGES)
        train, validation = roles.get("train"), roles.get("validation")
        fitting: Dataset | None = None
        if validation is not None and self._fits_and_calibrates(opened):
            fitting, validation = halves_by_object(validation, seed)
        own = self.monitors, self.name, self.section, order, recorded, fitting
        return Bench(data, {}, seed, batch, chunk, foreign, makers, train, validation, *own)

    def _fits_and_calibrates(self, opened: Iterable[Model]) -> bool:
        """Whether validation data is fitted on, and a threshold found on it: then the two take different objects.

        The entries of all models of the study count, so that an export and a single model opened again see the halves
        of the run.
        """
        calibrating = [(p, s) for p, s in self._asked() if p.has_thresholds(s)]
        entries = self.study.by_source()[self.name].models.values()
        return bool(calibrating) and (
            any(map(entry_fits_validation, entries))
            or any(map(fits_validation, opened))
            or any("validation" in protocol.learns_from(settings, self.monitors) for protocol, settings in calibrating)
        )

    def _data(self, fallback_size: tuple[int, int] | None) -> dict[str, OpenedDataset]:
        """Its data sets by role."""
        section, given, seed = self.section.data, self.given, self.study.seed
        opened = partial(self._read, classes=section.classes)
        test_spec = section.test if given.test is None else given.test
        test = opened("images", test_spec, size=self.section.size, fallback_size=fallback_size)
        roles = {"test": test}
        if section.split is not None:
            parts = split_by_group(test, section.split, seed)
            roles = dict(zip(SPLIT_ROLES[len(parts)], parts, strict=True))
        train_spec = section.train if given.train is None else given.train
        validation_spec = section.validation if given.validation is None else given.validation
        for role, spec in (("train", train_spec), ("validation", validation_spec)):
            if spec is not None:
                roles[role] = opened(f"{role} images", spec, size=test.size)
        if section.mirror and "train" in roles:
            roles["train"] = Mirrored(roles["train"])
        return roles

    def _read(self, what: str, spec: Any, **options: Any) -> OpenedDataset:
        """A data set whose images were all read, with copies among them counted once."""
        data = open_dataset(spec, base=self.base, on_bad_image=self.on_bad_image, seed=self.study.seed, **options)
        if not len(data):
            raise InputError(f"data set {data.name} holds no image")
        with self.progress(f"reading {what}", len(data)) as advance:
            data.verify_all(advance)
        return counted_once(data)

    def _check_learning(self, roles: Mapping[str, OpenedDataset]) -> None:
        """Refuse training and validation data that do not fit the test data."""
        data = roles["test"]
        for role, learned in roles.items():
            what = "training" if role == "train" else role
            if learned.class_names != data.class_names:
                raise InputError(f"{what} data {learned.name} has other classes than test data {data.name}")
            if learned.channels != data.channels:
                raise InputError(f"{what} data {learned.name} has other channels than test data {data.name}")

    def _check_apart(
        self,
        roles: Mapping[str, OpenedDataset],
        recorded: Mapping[str, OpenedDataset],
        foreign: Mapping[str, Dataset],
    ) -> dict[str, Sequence[str]]:
        """Refuse sets of different roles that share images; the ids of held-out ones that are trained on, by set."""
        of_source = f" of source {self.name}" if self.name else ""
        called = {"train": "training data", "validation": "validation data", "test": "test data"}
        check_apart(
            *({f"{called[role]} {roles[role].name}{of_source}": roles[role]} for role in called if role in roles),
            {f"recorded set {name}{of_source}": data for name, data in recorded.items()},
            {f"outliers {name}": data for name, data in foreign.items()},
        )
        if "train" not in roles:
            return {}
        known = set(identities(roles["train"]))
        held_out = {**{role: data for role, data in roles.items() if role != "train"}, **recorded}
        return {name: shared_ids(data, known) for name, data in held_out.items()}

    def _recorded(self, data: OpenedDataset, shown: bool) -> dict[str, OpenedDataset]:
        """Its recorded sets by name, read and checked, labelled by class name in the order of the test data."""
        section = self.section.data
        recorded: dict[str, OpenedDataset] = {}
        if section.recorded and not shown:
            able = [name for name in PROTOCOLS if PROTOCOLS.get(name).shows_recorded]
            raise InputError(
                f"data: recorded names {next(iter(section.recorded))}, but no protocol of the study shows recorded "
                f"sets: ask for one that does ({', '.join(able)}), or leave them out"
            )
        for name, spec in section.recorded.items():
            opened = self._read(f"images of {name}", spec, size=data.size, name=name)
            if opened.channels != data.channels:
                raise InputError(f"recorded set {name} has other channels than test data {data.name}")
            recorded[name] = Relabelled(opened, data.class_names)
        return recorded

    def _fitted(self, name: str, model: Model, data: OpenedDataset) -> Model:
        """The model with its answers in the order of the data's classes."""
        if "probabilities" not in model.columns:
            return model
        model = model.for_classes(data.class_names)
        if model.num_classes != len(data.class_names):
            raise InputError(
                f"model {name} answers {model.num_classes} classes, but data set {data.name} has "
                f"{len(data.class_names)}: fix the order and number of classes with `classes=`"
                f"{box_hint(model.num_classes)}{level_hint(data.notes)}"
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
                whole = self._open_outliers(name, spec, data.size)
                foreign[name] = _without(whole, section.overlap.get(name))
        return foreign, makers, [*met]

    def _open_outliers(self, name: str, spec: Any, size: tuple[int, int] | None = None) -> OpenedDataset:
        """A set outside, which needs no labels: a folder that holds nothing but images is one, too."""
        options: dict[str, Any] = {"base": self.base, "seed": self.study.seed, "name": name, "unlabelled": True}
        return counted_once(open_dataset(spec, size=size, **options))

    def _check_namesake(self, spec: Any, data: OpenedDataset) -> None:
        """A set of outliers that bears a source's name is that source, which never meets it; other data is an error."""
        section = self.section.data
        if spec in (section.test, section.train, section.validation):
            return
        made = isinstance(spec, str) and spec in OUTLIERS
        known = set(identities(data))
        if made or known.isdisjoint(identities(self._open_outliers(self.name, spec))):
            raise InputError(
                f"outliers {self.name} bear the name of source {self.name} but are other data: give them a name of "
                f"their own, or leave them out there (exclude: [{self.name}])"
            )


def halves_by_object(validation: OpenedDataset, seed: int) -> tuple[Subset, Subset]:
    """What is fitted on, and what thresholds are found on: two random halves of the objects of validation data.

    >>> from roadworthy.data import BuiltinDataset
    >>> fitting, thresholds = halves_by_object(BuiltinDataset("signs", n=70), 0)
    >>> len(fitting) + len(thresholds), {*fitting.groups} & {*thresholds.groups}
    (70, set())
    """
    fitting, thresholds = object_halves(validation.groups, seed)
    if not len(fitting):
        raise InputError(
            f"validation data {validation.name} holds {plural(len({*validation.groups}), 'object')}: the study fits on "
            "one half of its objects and finds thresholds on the other, so name images of two objects or more"
        )
    return Subset(validation, fitting.tolist()), Subset(validation, thresholds.tolist())


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
    """What each source puts on the table but its models, for an export.

    Monitors that come from files are left out: their files may be made from what is exported.
    """
    monitors = _monitors_of_study(study)
    bare = {name: section.model_copy(update={"models": {}}) for name, section in study.by_source().items()}
    return {
        name: OpeningSource(study, name, section, base, monitors, progress).bench()[0] for name, section in bare.items()
    }


def images_bench(study: Study, source: str, base: Path, size: tuple[int, int] | None) -> Bench:
    """The images of one source of a study: see `OpeningSource.images`.

    `size` is that of its data where the study names none and the images differ: the one that a model asked for.
    """
    section, monitors = study.by_source()[source], _monitors_of_study(study)
    return OpeningSource(study, source, section, base, monitors, no_progress, on_bad_image="skip").images(size)


def _monitors_of_study(study: Study) -> dict[str, Monitor]:
    """The monitors of a study that name no files, neither by themselves nor by their parts."""
    in_files = {label for label, chosen in study.monitors.items() if _names_files(chosen, label)}
    known = {
        label: chosen
        for label, chosen in study.monitors.items()
        if label not in in_files and in_files.isdisjoint(chosen.get("of") or ())
    }
    return open_monitors(study.model_copy(update={"monitors": known}))


def model_builder(spec: Any, size: tuple[int, int] | None, **settings: Any) -> Callable[..., Model]:
    """What makes a model, as given or with some of its settings changed."""
    return partial(_load_sized, spec, size, **settings)


def open_or_stand_in(build: Callable[..., Model], name: str, entry: Any) -> Model:
    """The model that is made; one whose process fails meanwhile has a stand-in, so that others can go on without it."""
    try:
        return build()
    except ModelError as error:
        return UnopenedModel(name, entry, str(error))


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


def _names_files(chosen: Mapping[str, Any], label: str) -> bool:
    name = chosen.get("monitor", label)
    return name in MONITORS and issubclass(MONITORS.get(name), NamesFiles)


def open_monitors(study: Study, base: Path = Path(), *, trust: bool = False) -> dict[str, Monitor]:
    """The monitors of a study by their label; files that they name start from `base`, code in them needs `trust`."""
    monitors = {}
    for label, chosen in study.monitors.items():
        if isinstance(chosen, Mapping):
            _check_not_itself(label, chosen)
        others = {other: entry for other, entry in study.monitors.items() if other != label}
        monitors[label] = open_monitor(chosen, MonitorOpening(base, trust, others), label=label)
    return monitors


def _check_not_itself(label: str, chosen: Mapping[str, Any]) -> None:
    """Refuse a combination with its own label among its parts, unless that is the name of a registered monitor."""
    parts = chosen.get("of")
    if isinstance(parts, list | tuple) and label in parts and label not in MONITORS:
        raise InputError(f"monitor {label} names itself among its parts (of): name other monitors there")


def check_study_size(study: Study, models: int) -> None:
    """Refuse a study of more cases than can be planned, before anything is opened."""
    foreign, monitors = len(study.outliers) or 1, len(study.monitors)
    stimuli = sum(p.count_stimuli(settings, foreign, monitors) for p, settings in study.protocols.chosen())
    check_plan_size(stimuli * models)
