"""Classification under shifts in the report: its tables and pictures as plain values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

import pyarrow.compute as pc

from roadworthy.core.grouping import grouped
from roadworthy.core.tables import TableSpec
from roadworthy.protocols.classification import table_specs
from roadworthy.report.facts import CLEAN, NOT_RUN, WORST, Condition, Facts, defined, estimate_of, mean_of
from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_arrow, read_rows
from roadworthy.statistics import Estimate

ROLE = "accuracy"
"""The metric that ranks conditions."""
WHOLE_MATRIX = 100
"""Up to this many classes a confusion matrix shows all of them."""
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
class GalleryAnswer:
    """What a model answered to one image of a strip; `image` is the index of the image in it."""

    model: str
    image: int
    label: str
    prediction: str
    confidence: float


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
    cells: Mapping[tuple[str, Condition, str], Estimate] = field(default_factory=dict)
    by_shift: Mapping[tuple[str, str, str], Estimate] = field(default_factory=dict)
    by_level: Mapping[tuple[str, float, str], Estimate] = field(default_factory=dict)
    overall: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    severities: Mapping[tuple[str, str], tuple[str, Estimate]] = field(default_factory=dict)
    corruption_errors: tuple[CorruptionErrors, ...] = ()
    quiz: tuple[Quiz, ...] = ()
    reliability: Mapping[tuple[str, Condition], tuple[Bin, ...]] = field(default_factory=dict)
    confusion: Mapping[tuple[str, Condition], tuple[Confusion, ...]] = field(default_factory=dict)
    recall: Mapping[str, tuple[ClassRecall, ...]] = field(default_factory=dict)
    gallery: tuple[Strip, ...] = ()
    gallery_answers: Mapping[Condition, tuple[GalleryAnswer, ...]] = field(default_factory=dict)
    mistakes: Mapping[str, tuple[Mistake, ...]] = field(default_factory=dict)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Every disturbed condition of the run, hardest shift first."""
        known = {condition for _, condition, _ in self.cells if condition != CLEAN}
        return tuple(sorted(known, key=lambda c: (self.shifts.index(c.shift), c.level)))

    @cached_property
    def drops(self) -> tuple[str, ...]:
        """The metrics of change against undisturbed data."""
        return tuple(dict.fromkeys(metric for _, _, metric in self.by_shift if metric.endswith("_drop")))

    def cell(self, model: str, condition: Condition, metric: str) -> Estimate:
        """A value of the run; one that is not part of it is missing, and says so."""
        return self.cells.get((model, condition, metric), NOT_RUN)

    def worst(self, model: str, count: int = WORST) -> tuple[Condition, ...]:
        """The disturbed conditions with the lowest accuracy, lowest first."""
        measured = [c for c in self.conditions if not self.cell(model, c, ROLE).missing]
        return tuple(sorted(measured, key=lambda c: self.cell(model, c, ROLE).value)[:count])

    def lowest(self, condition: Condition, models: Sequence[str]) -> float:
        """The lowest accuracy that any of the models has there; NaN where none was measured."""
        return min(defined(self.cell(model, condition, ROLE).value for model in models), default=math.nan)

    def hardest(self, models: Sequence[str], count: int = WORST) -> tuple[Condition, ...]:
        """The hardest shifts for any of the models, each at its worst level, hardest first."""
        worst_by_shift: dict[str, Condition] = {}
        measured = [c for c in self.conditions if not math.isnan(self.lowest(c, models))]
        for condition in sorted(measured, key=lambda c: self.lowest(c, models)):
            worst_by_shift.setdefault(condition.shift, condition)
        return tuple(worst_by_shift.values())[:count]

    def shown(self, model: str) -> tuple[Condition, ...]:
        """The conditions of reliability diagrams and confusion matrices: undisturbed and the model's hardest shifts."""
        clean = () if self.cell(model, CLEAN, ROLE).missing else (CLEAN,)
        return (*clean, *self.hardest([model]))

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

    rows = rows_of(table_specs.CELLS)
    cells = {(row["model"], _condition(row), row["metric"]): estimate_of(row) for row in rows}
    classification = ClassificationFacts(
        **{attribute.name: getattr(facts, attribute.name) for attribute in fields(Facts)},
        shifts=_hardest_first(cells, facts.ranked),
        levels=tuple(sorted({condition.level for _, condition, _ in cells if condition != CLEAN})),
        metrics=tuple(dict.fromkeys(row["metric"] for row in rows if not row["metric"].endswith("_drop"))),
        cells=cells,
        by_shift={(r["model"], r["shift"], r["metric"]): estimate_of(r) for r in rows_of(table_specs.BY_SHIFT)},
        by_level={(r["model"], r["level"], r["metric"]): estimate_of(r) for r in rows_of(table_specs.BY_LEVEL)},
        overall={(r["model"], r["metric"]): estimate_of(r) for r in rows_of(table_specs.OVERALL)},
        severities={
            (r["model"], r["shift"]): (f"level {r['from_level']} to {r['to_level']}", estimate_of(r))
            for r in rows_of(table_specs.SEVERITY)
            if r["metric"] == f"{ROLE}_drop"
        },
        corruption_errors=_corruption_errors(run, facts.source),
        quiz=_quiz(run, facts.source),
        reliability=_reliability(rows_of(table_specs.RELIABILITY)),
        recall=_recall(rows_of(table_specs.RECALL), facts.models, facts.class_names),
        gallery=tuple(
            Strip(media_path(run, row["media"]), row["images"], _condition(row)) for row in rows_of(table_specs.GALLERY)
        ),
        gallery_answers=_gallery_answers(run, facts.source),
        mistakes=_mistakes(run, rows_of(table_specs.MISTAKES), facts.models),
    )
    return replace(classification, confusion=_confusion(run, classification))


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


def _hardest_first(cells: Mapping[tuple[str, Condition, str], Estimate], models: Sequence[str]) -> tuple[str, ...]:
    """Shifts by their mean accuracy over the models and levels; those without a value come first."""
    values = grouped(
        (condition.shift, cell.value if model in models else math.nan)
        for (model, condition, metric), cell in cells.items()
        if condition != CLEAN and metric == ROLE
    )
    return tuple(sorted(values, key=lambda shift: mean_of(values[shift], -math.inf)))


def _reliability(rows: Sequence[Row]) -> dict[tuple[str, Condition], tuple[Bin, ...]]:
    return grouped(((row["model"], _condition(row)), _bin(row)) for row in rows)


def _bin(row: Row) -> Bin:
    return Bin(row["from"], row["to"], row["count"], number_of(row["confidence"]), number_of(row["accuracy"]))


def _confusion(run: Path, facts: ClassificationFacts) -> dict[tuple[str, Condition], tuple[Confusion, ...]]:
    """The confusion matrices of the conditions that the report shows; the others are not read."""
    table = read_arrow(run, table_specs.CONFUSION.name, facts.source)
    labels = {name: label for label, name in enumerate(facts.class_names)}
    matrices = {}
    for model in facts.models:
        for condition in facts.shown(model):
            chosen = (pc.field("model") == model) & (pc.field("shift") == condition.shift)
            rows = table.filter(chosen & (pc.field("level") == condition.level)).to_pylist()
            counts = (Confusion(labels[row["label"]], labels[row["prediction"]], row["count"]) for row in rows)
            matrices[model, condition] = tuple(counts)
    return matrices


def _recall(rows: Sequence[Row], models: Sequence[str], classes: Sequence[str]) -> dict[str, tuple[ClassRecall, ...]]:
    cells: dict[tuple[str, str], dict[Condition, Estimate]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["class"]), {})[_condition(row)] = estimate_of(row)
    return {model: tuple(_class_recall(name, cells.get((model, name), {})) for name in classes) for model in models}


def _class_recall(name: str, by_condition: Mapping[Condition, Estimate]) -> ClassRecall:
    shifted = {c: cell.value for c, cell in by_condition.items() if c != CLEAN and not cell.missing}
    worst = min(shifted, key=lambda condition: shifted[condition], default=None)
    return ClassRecall(
        name=name,
        clean=by_condition.get(CLEAN, NOT_RUN),
        shifted=mean_of(shifted.values()),
        worst=worst,
        worst_value=shifted[worst] if worst else math.nan,
    )


def _gallery_answers(run: Path, source: str | None) -> dict[Condition, tuple[GalleryAnswer, ...]]:
    """The answers to the images of the gallery; none in a run of a version that did not store them."""
    name = table_specs.GALLERY_ANSWERS.name
    rows = read_rows(run, name, source) if has_table(run, name) else []
    columns = [column.name for column in fields(GalleryAnswer)]
    return grouped((_condition(row), GalleryAnswer(**{column: row[column] for column in columns})) for row in rows)


def _mistakes(run: Path, rows: Sequence[Row], models: Sequence[str]) -> dict[str, tuple[Mistake, ...]]:
    """The wrong answers of each model, the most confident first."""
    by_model: dict[str, list[Mistake]] = {model: [] for model in models}
    for row in rows:
        texts = (str(row["id"]), row["label"], row["prediction"])
        picture = Picture(media_path(run, row["media"]))
        by_model[row["model"]].append(Mistake(_condition(row), *texts, row["confidence"], row["p_label"], picture))
    return {model: tuple(sorted(wrong, key=lambda m: -m.confidence)) for model, wrong in by_model.items()}
