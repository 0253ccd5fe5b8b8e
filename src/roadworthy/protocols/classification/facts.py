"""Classification under shifts in the report: its tables and pictures as plain values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roadworthy.core.grouping import grouped
from roadworthy.core.tables import TableSpec
from roadworthy.protocols.classification import table_specs
from roadworthy.report.estimates import EstimateTable, Extent, axis, estimates_by, joined, no_estimates
from roadworthy.report.facts import CLEAN, NOT_RUN, WORST, Condition, Facts, defined, estimate_of, mean_of
from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_arrow, read_rows
from roadworthy.statistics import Estimate

ROLE = "accuracy"
"""The metric that ranks conditions."""
CONDITION, METRIC = 1, 2
"""Where condition and metric stand in the key of a cell."""
WHOLE_MATRIX = 100
"""Up to this many classes a confusion matrix shows all of them."""
SHOWN_SHIFTS = 60
"""How many shifts charts and galleries show where there are more: the hardest. Tables hold all."""
SHOWN_MISTAKES = 600
"""How many mistakes the report shows at most, of all models together; each model has at least `FEWEST_MISTAKES`."""
FEWEST_MISTAKES = 12
MATRIX_CLASSES = 60
"""How many classes it shows where there are more: so many that its rows have room for their names."""


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability diagram; `confidence` and `accuracy` are NaN where it is empty."""

    start: float
    end: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Confusion:
    """How often images of one class were given a class; both are indices into the class names."""

    label: int
    prediction: int
    count: int


@dataclass(frozen=True)
class ClassRecall:
    """One class: recall undisturbed, on average under shifts, and where it is lowest."""

    name: str
    clean: Estimate
    shifted: float
    worst: Condition | None
    worst_value: float


@dataclass(frozen=True)
class Strip(Picture):
    """Example images of one condition, side by side in one stored picture."""

    condition: Condition = CLEAN


@dataclass(frozen=True)
class Mistake:
    """A wrong answer with the stored picture of what was shown."""

    condition: Condition
    id: str
    label: str
    prediction: str
    confidence: float
    p_label: float
    picture: Picture


@dataclass(frozen=True)
class CorruptionErrors:
    """How often a model errs under the common corruptions, against a reference: 1 is as often, lower is better."""

    model: str
    reference: str
    corruptions: int
    mce: Estimate
    relative_mce: Estimate


@dataclass(frozen=True)
class Quiz:
    """What people answered under one condition, and every model to the same images."""

    condition: Condition
    people: int
    cannot_tell: int
    human: Estimate
    models: Mapping[str, Estimate]


@dataclass(frozen=True)
class ClassificationFacts(Facts):
    """A run, or a source, with what its models do under shifts, which are ordered from the hardest to the easiest."""

    shifts: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    metrics: tuple[str, ...] = ()
    cells: EstimateTable = field(default_factory=no_estimates)
    by_shift: EstimateTable = field(default_factory=no_estimates)
    by_level: Mapping[tuple[str, float, str], Estimate] = field(default_factory=dict)
    overall: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    severities: Mapping[tuple[str, str], tuple[str, Estimate]] = field(default_factory=dict)
    corruption_errors: tuple[CorruptionErrors, ...] = ()
    quiz: tuple[Quiz, ...] = ()
    reliability: Mapping[tuple[str, Condition], tuple[Bin, ...]] = field(default_factory=dict)
    confusion: Mapping[tuple[str, Condition], tuple[Confusion, ...]] = field(default_factory=dict)
    recall: Mapping[str, tuple[ClassRecall, ...]] = field(default_factory=dict)
    gallery: tuple[Strip, ...] = ()
    gallery_answers: Mapping[Condition, tuple[Row, ...]] = field(default_factory=dict)
    mistakes: Mapping[str, tuple[Mistake, ...]] = field(default_factory=dict)
    mistake_counts: Mapping[str, int] = field(default_factory=dict)
    """How many mistakes of each model the run keeps; the report shows as many as `mistakes` has."""
    class_pictures: Mapping[str, tuple[Picture, int]] = field(default_factory=dict)
    """The picture that holds an image of a class, and the index of the image in it; runs of earlier versions have none.
    """

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Every disturbed condition of the run, hardest shift first."""
        known = {condition for condition in self.cells.axes[CONDITION].values if condition != CLEAN}
        order = {shift: index for index, shift in enumerate(self.shifts)}
        return tuple(sorted(known, key=lambda c: (order[c.shift], c.level)))

    @cached_property
    def levels_of(self) -> Mapping[str, tuple[float, ...]]:
        """The levels of every shift, from the lowest on."""
        return grouped((condition.shift, condition.level) for condition in self.conditions)

    @property
    def shown_shifts(self) -> tuple[str, ...]:
        """The shifts that charts and galleries show: all, or of many the hardest."""
        return self.shifts[:SHOWN_SHIFTS]

    def extent(self, metric: str) -> Extent | None:
        """How far the values of a metric reach over all models and conditions; None where none was measured."""
        return self.cells.extent(METRIC, metric)

    @cached_property
    def drops(self) -> tuple[str, ...]:
        """The metrics of change against undisturbed data."""
        return tuple(metric for metric in self.by_shift.axes[METRIC].values if metric.endswith("_drop"))

    def cell(self, model: str, condition: Condition, metric: str) -> Estimate:
        """A value of the run; one that is not part of it is missing, and says so."""
        return self.cells.get((model, condition, metric), NOT_RUN)

    @cached_property
    def accuracies(self) -> Mapping[tuple[str, Condition], float]:
        """The accuracy of every model under every condition, NaN where it was not measured."""
        return {(model, condition): value for (model, condition, _), value in self.cells.of(METRIC, ROLE)}

    def worst(self, model: str, count: int = WORST) -> tuple[Condition, ...]:
        """The disturbed conditions with the lowest accuracy, lowest first."""
        values = {c: self.accuracies.get((model, c), math.nan) for c in self.conditions}
        measured = [condition for condition, value in values.items() if not math.isnan(value)]
        return tuple(sorted(measured, key=lambda condition: values[condition])[:count])

    def lowest(self, condition: Condition, models: Sequence[str]) -> float:
        """The lowest accuracy that any of the models has there; NaN where none was measured."""
        return min(defined(self.accuracies.get((model, condition), math.nan) for model in models), default=math.nan)

    def hardest(self, models: Sequence[str], count: int = WORST) -> tuple[Condition, ...]:
        """The hardest shifts for any of the models, each at its worst level, hardest first."""
        key = tuple(models)
        if key not in self._hardest:
            worst_by_shift: dict[str, Condition] = {}
            lowest = {condition: self.lowest(condition, models) for condition in self.conditions}
            measured = [condition for condition, value in lowest.items() if not math.isnan(value)]
            for condition in sorted(measured, key=lambda condition: lowest[condition]):
                worst_by_shift.setdefault(condition.shift, condition)
            self._hardest[key] = tuple(worst_by_shift.values())
        return self._hardest[key][:count]

    @cached_property
    def _hardest(self) -> dict[tuple[str, ...], tuple[Condition, ...]]:
        """What `hardest` found before."""
        return {}

    def shown(self, model: str) -> tuple[Condition, ...]:
        """The conditions of reliability diagrams and confusion matrices: undisturbed and the model's hardest shifts."""
        clean = () if self.cell(model, CLEAN, ROLE).missing else (CLEAN,)
        return (*clean, *self.hardest([model]))

    def class_picture(self, name: str) -> str:
        """An image of a class as a data URI; empty where the run has none."""
        if name not in self.class_pictures:
            return ""
        picture, image = self.class_pictures[name]
        return picture.tile(image)

    def matrix_classes(self, model: str, condition: Condition) -> tuple[int, ...]:
        """The classes that a confusion matrix shows, in their order: all, or of many those with most confusions.

        A wrong answer counts for its true class and for the class that it names.
        """
        if len(self.class_names) <= WHOLE_MATRIX:
            return tuple(range(len(self.class_names)))
        confusions: Counter[int] = Counter()
        for entry in self.confusion[model, condition]:
            if entry.label != entry.prediction:
                confusions.update({entry.label: entry.count})
                confusions.update({entry.prediction: entry.count})
        return tuple(
            sorted(sorted(range(len(self.class_names)), key=lambda label: -confusions[label])[:MATRIX_CLASSES])
        )


def load_classification(path: str | Path, facts: Facts) -> ClassificationFacts:
    """Read the tables and pictures of classification under shifts."""
    run = Path(path)

    def rows_of(spec: TableSpec) -> list[Row]:
        return read_rows(run, spec.name, facts.source)

    cells = _cells(run, facts.source)
    conditions = cells.axes[CONDITION]
    classification = ClassificationFacts(
        **{attribute.name: getattr(facts, attribute.name) for attribute in fields(Facts)},
        shifts=_hardest_first(cells, facts.ranked),
        levels=tuple(sorted({condition.level for condition in conditions.values if condition != CLEAN})),
        metrics=tuple(metric for metric in cells.axes[METRIC].values if not metric.endswith("_drop")),
        cells=cells,
        by_shift=estimates_by(read_arrow(run, table_specs.BY_SHIFT.name, facts.source), "model", "shift", "metric"),
        by_level={(r["model"], r["level"], r["metric"]): estimate_of(r) for r in rows_of(table_specs.BY_LEVEL)},
        overall={(r["model"], r["metric"]): estimate_of(r) for r in rows_of(table_specs.OVERALL)},
        severities={
            (r["model"], r["shift"]): (f"level {r['from_level']} to {r['to_level']}", estimate_of(r))
            for r in rows_of(table_specs.SEVERITY)
            if r["metric"] == f"{ROLE}_drop"
        },
        corruption_errors=_corruption_errors(run, facts.source),
        quiz=_quiz(run, facts.source),
        recall=_recall(
            read_arrow(run, table_specs.RECALL.name, facts.source, encoded=True), facts.models, facts.class_names
        ),
        gallery=tuple(
            Strip(media_path(run, row["media"]), row["images"], _condition(row)) for row in rows_of(table_specs.GALLERY)
        ),
        class_pictures=_class_pictures(run, facts.source),
        **_mistakes(run, read_arrow(run, table_specs.MISTAKES.name, facts.source, encoded=True), facts.models),
    )
    return replace(
        classification,
        confusion=_confusion(run, classification),
        reliability=_reliability(run, classification),
        gallery_answers=_gallery_answers(run, classification),
    )


def _cells(run: Path, source: str | None) -> EstimateTable:
    """The estimates by model, condition and metric; the table they are read from is let go."""
    table = read_arrow(run, table_specs.CELLS.name, source, encoded=True)
    conditions = joined(axis(table["shift"]), axis(table["level"]), lambda shift, level: Condition(shift, int(level)))
    return EstimateTable(table, [axis(table["model"]), conditions, axis(table["metric"])])


def _corruption_errors(run: Path, source: str | None) -> tuple[CorruptionErrors, ...]:
    """The errors of each model against every other; none where the run has one model or no common corruption."""
    name = table_specs.CORRUPTION_ERROR.name
    rows = read_rows(run, name, source) if has_table(run, name) else []
    means = {(r["model"], r["reference"], r["metric"]): r for r in rows if r["shift"] == "mean"}
    return tuple(
        CorruptionErrors(
            model=model,
            reference=reference,
            corruptions=row["corruptions"],
            mce=estimate_of(row),
            relative_mce=estimate_of(means[key]) if (key := (model, reference, "relative_mce")) in means else NOT_RUN,
        )
        for (model, reference, metric), row in means.items()
        if metric == "mce"
    )


def _quiz(run: Path, source: str | None) -> tuple[Quiz, ...]:
    """What people answered, condition by condition; nothing where none was asked."""
    name = table_specs.HUMAN.name
    rows = read_rows(run, name, source) if has_table(run, name) else []
    models: dict[Condition, dict[str, Estimate]] = {}
    for row in rows:
        if row["answered_by"] == "model":
            models.setdefault(_condition(row), {})[row["model"]] = estimate_of(row)
    people = [(_condition(row), row) for row in rows if row["answered_by"] == "people"]
    return tuple(
        Quiz(condition, row["people"], row["cannot_tell"], estimate_of(row), models.get(condition, {}))
        for condition, row in people
    )


def _condition(row: Row) -> Condition:
    return Condition(row["shift"], int(row["level"]))


def _hardest_first(cells: EstimateTable, models: Sequence[str]) -> tuple[str, ...]:
    """Shifts by their mean accuracy over the models and levels; those without a value come first."""
    values = grouped(
        (condition.shift, value if model in models else math.nan)
        for (model, condition, _), value in cells.of(METRIC, ROLE)
        if condition != CLEAN
    )
    return tuple(sorted(values, key=lambda shift: mean_of(values[shift], -math.inf)))


Case = tuple[str, Condition]
"""A model under a condition."""


def _shown_rows(run: Path, spec: TableSpec, facts: ClassificationFacts) -> dict[Case, list[Row]]:
    """The rows of a table on the models and conditions that the report shows in detail; the others stay columns."""
    table = read_arrow(run, spec.name, facts.source, encoded=True)
    model, shift, level = (axis(table[name]) for name in ("model", "shift", "level"))

    def rows_of(name: str, condition: Condition) -> list[Row]:
        asked = ((model, name), (shift, condition.shift), (level, condition.level))
        matching = [own.codes == own.index.get(value, -1) for own, value in asked]
        rows: list[Row] = table.take(np.flatnonzero(np.logical_and.reduce(matching))).to_pylist()
        return rows

    return {(name, condition): rows_of(name, condition) for name in facts.models for condition in facts.shown(name)}


def _reliability(run: Path, facts: ClassificationFacts) -> dict[Case, tuple[Bin, ...]]:
    """The bins of the conditions that the report shows."""
    rows = _shown_rows(run, table_specs.RELIABILITY, facts)
    return {case: tuple(_bin(row) for row in own) for case, own in rows.items()}


def _bin(row: Row) -> Bin:
    return Bin(row["from"], row["to"], row["count"], number_of(row["confidence"]), number_of(row["accuracy"]))


def _confusion(run: Path, facts: ClassificationFacts) -> dict[Case, tuple[Confusion, ...]]:
    """The confusion matrices of the conditions that the report shows."""
    labels = {name: label for label, name in enumerate(facts.class_names)}
    return {
        case: tuple(Confusion(labels[row["label"]], labels[row["prediction"]], row["count"]) for row in own)
        for case, own in _shown_rows(run, table_specs.CONFUSION, facts).items()
    }


def _recall(table: Any, models: Sequence[str], classes: Sequence[str]) -> dict[str, tuple[ClassRecall, ...]]:
    """Every class of every model: undisturbed, on average and at worst under shifts."""
    undisturbed = table.filter(pc.field("shift") == CLEAN.shift).to_pylist()
    clean = {(row["model"], row["class"]): estimate_of(row) for row in undisturbed}
    columns = table.select(["model", "class", "shift", "level", "value"])
    measured = columns.filter((pc.field("shift") != CLEAN.shift) & pc.field("value").is_valid()).to_pandas()
    by_class = measured[measured["value"].notna()].groupby(["model", "class"], sort=False, observed=True)["value"]
    means, lowest = by_class.mean().to_dict(), by_class.idxmin().to_dict()
    worst = {key: measured.loc[row] for key, row in lowest.items()}

    def recall(model: str, name: str) -> ClassRecall:
        row = worst.get((model, name))
        return ClassRecall(
            name=name,
            clean=clean.get((model, name), NOT_RUN),
            shifted=float(means.get((model, name), math.nan)),
            worst=None if row is None else Condition(row["shift"], int(row["level"])),
            worst_value=math.nan if row is None else float(row["value"]),
        )

    return {model: tuple(recall(model, name) for name in classes) for model in models}


def _gallery_answers(run: Path, facts: ClassificationFacts) -> dict[Condition, tuple[Row, ...]]:
    """The answers to the images that the gallery shows; none in a run of a version that did not store them."""
    name = table_specs.GALLERY_ANSWERS.name
    if not has_table(run, name):
        return {}
    shown = pa.array(
        [CLEAN.shift, *facts.shown_shifts, *(condition.shift for condition in facts.hardest(facts.ranked))]
    )
    rows = read_arrow(run, name, facts.source).filter(pc.field("shift").isin(shown)).to_pylist()
    return grouped((_condition(row), row) for row in rows)


def _class_pictures(run: Path, source: str | None) -> dict[str, tuple[Picture, int]]:
    """The pictures of the classes; none in a run of a version that did not store them."""
    name = table_specs.CLASSES.name
    rows = read_rows(run, name, source) if has_table(run, name) else []
    files = {row["media"]: Picture(media_path(run, row["media"]), row["images"]) for row in rows}
    return {row["class"]: (files[row["media"]], row["image"]) for row in rows}


def _mistakes(run: Path, table: Any, models: Sequence[str]) -> dict[str, Any]:
    """The wrong answers of each model, the most confident first, where there are very many the first of them.

    And how many there are of each model in all.
    """
    most = max(SHOWN_MISTAKES // max(len(models), 1), FEWEST_MISTAKES)
    confidence = -table["confidence"].to_numpy()
    owners = axis(table["model"])
    by_model: dict[str, tuple[Mistake, ...]] = {}
    counts: dict[str, int] = {}
    for model in models:
        own = np.flatnonzero(owners.codes == owners.index.get(model, -1))
        rows = table.take(own[np.argsort(confidence[own], kind="stable")][:most]).to_pylist()
        by_model[model] = tuple(_mistake(run, row) for row in rows)
        counts[model] = len(own)
    return {"mistakes": by_model, "mistake_counts": counts}


def _mistake(run: Path, row: Row) -> Mistake:
    texts = (str(row["id"]), row["label"], row["prediction"])
    picture = Picture(media_path(run, row["media"]))
    return Mistake(_condition(row), *texts, row["confidence"], row["p_label"], picture)
