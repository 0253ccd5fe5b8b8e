"""What the protocol `localization` says of one source, from its stored tables: cells, curves, costs and searches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from roadworthy.core.grouping import grouped
from roadworthy.core.tables import TableSpec
from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.localization import table_specs
from roadworthy.protocols.localization.metrics import METRICS, TASK_OF
from roadworthy.protocols.localization.names import ALL, BOXES, CLASSES, HULL, NAME, TASKS, TEST
from roadworthy.report.facts import NOT_RUN, Facts, estimate_of
from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_rows
from roadworthy.statistics import Estimate

PLAIN = "none"
"""The uncertainty of a network that is asked once."""
METHOD_LABELS = {
    PLAIN: "plain",
    "last_layer": "last-layer dropout",
    "after_backbone": "after-backbone dropout",
    "head": "head dropout",
    "full": "full dropout",
    "mc_dropout": "MC-Dropout",
    "ensemble": "ensemble",
}
"""What the report calls a way to know how sure a network is, in the order of figures."""


@dataclass(frozen=True)
class Network:
    """A model of the study: the network it is a variant of, its method, and what is known of each of its tasks."""

    name: str
    family: str
    method: str
    tasks: Mapping[str, Row]

    @property
    def method_label(self) -> str:
        """What the report calls its method."""
        return METHOD_LABELS.get(self.method, self.method.replace("_", " "))


@dataclass(frozen=True)
class ImageSet:
    """A set of images: its row in the table of sets, and a few of its images where the run has them, with answers."""

    name: str
    row: Row
    examples: Picture | None = None
    answers: tuple[Row, ...] = ()

    @property
    def answered(self) -> list[tuple[str, str, list[Row]]]:
        """Its examples one by one: the image, its true class (empty where it has none) and a row for each answer."""
        if self.examples is None:
            return []
        by_image = grouped((row["image"], row) for row in self.answers)
        return [(self.examples.tile(image), own[0]["label"], [*own]) for image, own in sorted(by_image.items())]

    @property
    def label(self) -> str:
        """Its name as columns and axes show it; that of the undisturbed test data is ID."""
        return "ID" if self.name == TEST else self.name.replace("_", " ")

    @property
    def is_labelled(self) -> bool:
        """Whether its images have a class of the source."""
        return bool(self.row.get("labelled", True))

    @property
    def has_hulls(self) -> bool:
        """Whether its true boxes are hulls of turned boxes, which are too large."""
        return bool(self.row.get("truth") == HULL)

    def has_task(self, task: str) -> bool:
        """Whether a task can be measured on it."""
        return self.is_labelled if task == CLASSES else bool(self.row.get("truth", True))


@dataclass(frozen=True)
class Curve:
    """Points of a line in the order of x, and beside y a second line or the number of images at each point."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    beside: tuple[float, ...]


@dataclass(frozen=True)
class SizeBin:
    """The objects from one size or distance to another, with the estimates of their boxes by metric."""

    low: float
    high: float
    cells: Mapping[str, Estimate]


@dataclass(frozen=True)
class LocalizationFacts:
    """What the tables say.

    cells           by (model, set, view, metric)
    repeats         values by (model, set, metric), one for each training
    sizes           bins by (model, set, size or distance)
    reliability     of classes, by (model, set, task): expected, observed and count;  sparsification, of both tasks:
                    kept, error and oracle
    coordinates     of boxes, by (model, set, coordinate): expected, observed and count; a run of an earlier version has
                    the mean of the four alone, whose coordinate is empty
    searches        trials by (model, task);  timing: rows by model
    undertrained    models with a network below its floor
    """

    networks: tuple[Network, ...]
    sets: tuple[ImageSet, ...]
    cells: Mapping[tuple[str, str, str, str], Estimate]
    repeats: Mapping[tuple[str, str, str], tuple[float, ...]] = field(default_factory=dict)
    sizes: Mapping[tuple[str, str, str], tuple[SizeBin, ...]] = field(default_factory=dict)
    reliability: Mapping[tuple[str, str, str], Curve] = field(default_factory=dict)
    coordinates: Mapping[tuple[str, str, str], Curve] = field(default_factory=dict)
    sparsification: Mapping[tuple[str, str, str], Curve] = field(default_factory=dict)
    searches: Mapping[tuple[str, str], tuple[Row, ...]] = field(default_factory=dict)
    timing: Mapping[str, Row] = field(default_factory=dict)
    undertrained: frozenset[str] = frozenset()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """The networks that models are variants of, in the order of the study."""
        return tuple(dict.fromkeys(network.family for network in self.networks))

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods of all models: those that are known in their order, then others."""
        used = dict.fromkeys(network.method for network in self.networks)
        return (*(method for method in METHOD_LABELS if method in used), *(m for m in used if m not in METHOD_LABELS))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that some model has."""
        return tuple(task for task in TASKS if any(task in network.tasks for network in self.networks))

    @cached_property
    def views(self) -> tuple[str, ...]:
        """The choices of classes, all of them first."""
        return tuple(dict.fromkeys([ALL, *(view for _, _, view, _ in self.cells)]))

    def sets_of(self, task: str) -> tuple[ImageSet, ...]:
        """The sets on which a task can be measured."""
        return tuple(image_set for image_set in self.sets if image_set.has_task(task))

    def shifted_sets(self, task: str) -> tuple[ImageSet, ...]:
        """The sets besides the undisturbed one that say how far a network falls: of boxes, those without hulls.

        Hulls of turned boxes are too large, so that IoU with them falls whatever the network does.
        """
        others = [image_set for image_set in self.sets_of(task) if image_set.name != TEST]
        return tuple(own for own in others if task == CLASSES or not own.has_hulls)

    def of_family(self, family: str, task: str) -> tuple[Network, ...]:
        """The models of a network for a task, one for each method, in the order of methods.

        Where several have the same method, the first of the study stands for them.
        """
        return tuple(network for method in self.methods if (network := self.variant(family, method, task)) is not None)

    def variant(self, family: str, method: str, task: str) -> Network | None:
        """The first model of a network with a method that has a task; None where there is none."""
        own = (network for network in self.networks if (network.family, network.method) == (family, method))
        return next((network for network in own if task in network.tasks), None)

    def representative(self, family: str, task: str) -> Network | None:
        """The plain model of a network for a task, or its first one; None where it has none."""
        return self.variant(family, PLAIN, task) or next(iter(self.of_family(family, task)), None)

    @cached_property
    def compared_families(self) -> tuple[str, ...]:
        """The networks with several methods, the one with most of them first."""
        counts = {family: max(len(self.of_family(family, task)) for task in TASKS) for family in self.families}
        several = [family for family in self.families if counts[family] > 1]
        return tuple(sorted(several, key=lambda family: -counts[family]))

    @cached_property
    def table_families(self) -> tuple[str, ...]:
        """The networks in the order of the tables by set: those with most methods first."""
        return (*self.compared_families, *(name for name in self.families if name not in self.compared_families))

    def cell(self, model: str, image_set: str, metric: str, view: str = ALL) -> Estimate:
        """A measured value; one that is not part of the run is missing, and says so."""
        return self.cells.get((model, image_set, view, metric), NOT_RUN)

    def best_model(self, models: Iterable[str], image_set: str, metric: str) -> str | None:
        """The best of some models in a metric on a set, those that are undertrained left out; None without a value."""
        known = [model for model in models if model not in self.undertrained]
        values = {model: self.cell(model, image_set, metric).value for model in known}
        measured = {model: value for model, value in values.items() if not math.isnan(value)}
        choose = max if self.metric(metric).higher_is_better else min
        return choose(measured, key=measured.__getitem__, default=None)

    def metric(self, name: str) -> Metric:
        """A metric of this protocol by name."""
        return find_metric(name, METRICS)

    def mean_over_shifts(self, model: str, metric: str) -> float:
        """The mean of a metric over the shifted sets; NaN where one of them has no value."""
        values = [self.cell(model, own.name, metric).value for own in self.shifted_sets(TASK_OF[metric])]
        return math.fsum(values) / len(values) if values else math.nan

    @cached_property
    def trained_variants(self) -> Mapping[tuple[str, str], Mapping[tuple[str, str], str]]:
        """Localizers by (family, method) that differ in their boxes or loss: model by (boxes, loss)."""
        variants = grouped(
            ((network.family, network.method), network) for network in self.networks if BOXES in network.tasks
        )
        by_training = {
            key: {_training(own.tasks[BOXES]): own.name for own in reversed(some)} for key, some in variants.items()
        }
        return {key: models for key, models in by_training.items() if len(models) > 1}

    @cached_property
    def undrawn(self) -> tuple[str, ...]:
        """The models that figures and tables leave out in a task, since another of the same kind comes first."""
        by_training = {model for models in self.trained_variants.values() for model in models.values()}
        return tuple(
            network.name
            for network in self.networks
            if network.name not in by_training and any(not self._stands_for_itself(network, t) for t in network.tasks)
        )

    def _stands_for_itself(self, network: Network, task: str) -> bool:
        shown = self.variant(network.family, network.method, task)
        return shown is not None and shown.name == network.name

    @cached_property
    def repeated(self) -> tuple[str, ...]:
        """The models that were trained several times."""
        return tuple(network.name for network in self.networks if self.trainings(network.name) > 1)

    def trainings(self, model: str) -> int:
        """How often a model was trained: how often it was shown the undisturbed data, which no other repeat changes."""
        own = [
            len(values) for (name, image_set, _), values in self.repeats.items() if (name, image_set) == (model, TEST)
        ]
        return max(own, default=1)

    @cached_property
    def detailed(self) -> tuple[tuple[str, ImageSet], ...]:
        """What a reader can choose where curves are shown: a network and a set."""
        known = {key[:2] for key in (*self.reliability, *self.coordinates, *self.sparsification, *self.sizes)}
        return tuple(
            (family, image_set)
            for family in self.table_families
            for image_set in self.sets
            if any((network.name, image_set.name) in known for network in self.networks if network.family == family)
        )


def _training(row: Row) -> tuple[str, str]:
    """The form of the boxes and the loss that a localizer was trained with."""
    return _text(row, "boxes"), _text(row, "loss")


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def load_localization(path: str | Path, facts: Facts) -> LocalizationFacts:
    """Read the tables of a run, or those of one source of it."""
    run, source = Path(path), facts.source

    def rows(table: TableSpec) -> list[Row]:
        return read_rows(run, table.name, source) if has_table(run, table.name) else []

    cells, repeats = rows(table_specs.CELLS), rows(table_specs.REPEATS)
    kept = grouped((row["task"], row) for row in rows(table_specs.RELIABILITY))
    gallery = {row["set"]: Picture(media_path(run, row["media"]), row["images"]) for row in rows(table_specs.GALLERY)}
    searches = grouped(((row["model"], row["task"]), row) for row in rows(table_specs.SEARCH))
    return LocalizationFacts(
        networks=_networks(rows(table_specs.MODELS), cells),
        sets=_sets(rows(table_specs.SETS), cells, gallery, rows(table_specs.GALLERY_ANSWERS)),
        cells={(row["model"], row["set"], row["view"], row["metric"]): estimate_of(row) for row in cells},
        repeats={
            key: tuple(number_of(row["value"]) for row in sorted(own, key=lambda row: row["repeat"]))
            for key, own in grouped(((row["model"], row["set"], row["metric"]), row) for row in repeats).items()
        },
        sizes=_sizes(rows(table_specs.BY_SIZE)),
        reliability=_curves(kept.get(CLASSES, ()), "task", "expected", "observed", "count"),
        coordinates=_curves(kept.get(BOXES, ()), "coordinate", "expected", "observed", "count"),
        sparsification=_curves(rows(table_specs.SPARSIFICATION), "task", "kept", "error", "oracle"),
        searches={key: tuple(sorted(own, key=lambda row: row["trial"])) for key, own in searches.items()},
        timing={row["model"]: row for row in rows(table_specs.TIMING)},
        undertrained=facts.undertrained,
        settings=facts.record.protocols[NAME].settings,
    )


def _networks(rows: Sequence[Row], cells: Sequence[Row]) -> tuple[Network, ...]:
    """The models in the order of their table; without one, those that have cells, each with the tasks of these."""
    tasks = grouped((row["model"], (row["task"], row)) for row in rows)
    known = {row["model"]: (row["family"], row["uncertainty"]) for row in (*rows, *cells)}
    measured: dict[str, tuple[tuple[str, Row], ...]] = grouped(
        (row["model"], (TASK_OF[row["metric"]], {})) for row in cells if row["metric"] in TASK_OF
    )
    return tuple(
        Network(model, family or model, method or PLAIN, dict(tasks.get(model) or measured[model]))
        for model, (family, method) in known.items()
    )


def _sets(
    rows: Sequence[Row], cells: Sequence[Row], gallery: Mapping[str, Picture], answers: Sequence[Row]
) -> tuple[ImageSet, ...]:
    """The sets in the order of their table, the undisturbed test data first."""
    known: dict[str, Row] = {row["set"]: row for row in rows}
    names = dict.fromkeys([*known, *(row["set"] for row in cells)])
    order = sorted(names, key=lambda name: name != TEST)
    answered = grouped((row["set"], row) for row in answers)
    return tuple(ImageSet(name, known.get(name, {}), gallery.get(name), answered.get(name, ())) for name in order)


def _sizes(rows: Sequence[Row]) -> dict[tuple[str, str, str], tuple[SizeBin, ...]]:
    bins = grouped(((row["model"], row["set"], row["by"]), row) for row in rows)
    sizes = {}
    for key, own in bins.items():
        by_edges = grouped(((number_of(row["from"]), _upper(row["to"])), row) for row in own)
        sizes[key] = tuple(
            SizeBin(low, high, {row["metric"]: estimate_of(row) for row in some})
            for (low, high), some in sorted(by_edges.items())
        )
    return sizes


def _upper(value: float | None) -> float:
    """The upper edge of a bin, which a table may hold as null where it is infinite."""
    edge = number_of(value)
    return math.inf if math.isnan(edge) else edge


def _curves(rows: Sequence[Row], of: str, x: str, y: str, beside: str) -> dict[tuple[str, str, str], Curve]:
    """A line per model, set and what the column `of` says; points without a value are left out of it."""
    points = grouped(
        (
            (row["model"], row["set"], row.get(of) or ""),
            (number_of(row[x]), number_of(row[y]), number_of(row[beside])),
        )
        for row in rows
    )
    curves = {}
    for key, own in points.items():
        known = sorted(point for point in own if not math.isnan(point[0] + point[1]))
        if known:
            curves[key] = Curve(*zip(*known, strict=True))
    return curves
