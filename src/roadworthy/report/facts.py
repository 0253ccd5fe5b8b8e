"""Facts: a run folder read into plain values that template and figures show. No HTML, and no model is run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from roadworthy.core.types import UNDISTURBED
from roadworthy.report.reading import (
    Picture,
    Row,
    media_path,
    number_of,
    read_arrow,
    read_json,
    read_rows,
    read_text,
)
from roadworthy.report.words import bounds, number
from roadworthy.verdict import Criterion, Failed, failed_parts
from roadworthy.verdict.history import Entry, other_criteria, own_entry, read_history
from roadworthy.verdict.judge import never_pass

REPORT = "report.html"
WORST = 3
CLASSIFICATION = "classification"
ROLE = "accuracy"
"""The metric that ranks conditions."""


@dataclass(frozen=True)
class Cell:
    """A measured value with its bounds; where it is NaN, `reason` says why."""

    value: float
    lo: float = math.nan
    hi: float = math.nan
    n: int = 0
    groups: int = 0
    sd: float = math.nan
    method: str = ""
    reason: str = ""

    @property
    def missing(self) -> bool:
        """There is no value."""
        return math.isnan(self.value)


NOT_RUN = Cell(math.nan, reason="not part of this run")


@dataclass(frozen=True, order=True)
class Condition:
    """What was shown: a shift at a level.

    >>> str(Condition("fog", 3)), str(CLEAN)
    ('fog, level 3', 'undisturbed')
    """

    shift: str
    level: int

    def __str__(self) -> str:
        return "undisturbed" if self.shift == UNDISTURBED else f"{self.shift}, level {self.level}"


CLEAN = Condition(UNDISTURBED, 0)


@dataclass(frozen=True)
class Severity:
    """How much worse the highest level of a shift is than its lowest."""

    model: str
    shift: str
    from_level: int
    to_level: int
    metric: str
    drop: Cell


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
    """How often a class was taken for a class, by their places among the class names."""

    label: int
    prediction: int
    count: int


@dataclass(frozen=True)
class ClassRecall:
    """One class: recall undisturbed, on average under shifts, and where it is lowest."""

    name: str
    clean: Cell
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

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return self.picture.uri


@dataclass(frozen=True)
class JudgedRow:
    """One measurement of a criterion, and what follows from it, in words."""

    where: str
    status: str
    because: str
    value: str
    bounds: str
    n: int
    groups: int
    method: str
    further_groups: int | None


@dataclass(frozen=True)
class CriterionFacts:
    """One criterion and its finding."""

    criterion: Criterion
    status: str
    because: str
    decisive: JudgedRow
    rows: tuple[JudgedRow, ...]
    remark: str = ""

    @property
    def id(self) -> str:
        """The name by which the criterion is known."""
        return self.criterion.id


@dataclass(frozen=True)
class Failure:
    """A case that failed, with its cause."""

    model: str
    condition: str
    repeat: int
    reason: str


@dataclass(frozen=True)
class Network:
    """A network that the run trained: its recipe, and how it does on undisturbed images against its stated floor."""

    system: str
    builder: str
    seed: str
    parameters: str
    clean_accuracy: float
    floor: float
    hash: str

    @property
    def undertrained(self) -> bool:
        """Below its floor, what it answers says little about its method."""
        return self.clean_accuracy < self.floor


@dataclass(frozen=True)
class CorruptionErrors:
    """How often a model errs under the common corruptions, against a reference: 1 is as often, lower is better."""

    model: str
    reference: str
    corruptions: int
    mce: Cell
    relative_mce: Cell


@dataclass(frozen=True)
class Fitted:
    """Anything else that the run built before its cases: what it belongs to, and what is known of how good it is."""

    system: str
    builder: str
    competence: str
    hash: str


@dataclass(frozen=True)
class Facts:
    """What a run says of itself and of its models under shifts. `shifts` are ordered from the hardest to the easiest.

    Where the run has no classification, all that belongs to it is empty. `failed` names the cases or monitors that
    failed, `history` holds every verdict of the run.
    """

    record: Mapping[str, Any]
    study_file: str
    status: str
    models: tuple[str, ...]
    networks: tuple[Network, ...]
    fitted: tuple[Fitted, ...]
    failures: tuple[Failure, ...]
    failed: tuple[Failed, ...] = ()
    history: tuple[Entry, ...] = ()
    criteria: tuple[CriterionFacts, ...] = ()
    shifts: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    metrics: tuple[str, ...] = ()
    cells: Mapping[tuple[str, Condition, str], Cell] = field(default_factory=dict)
    by_shift: Mapping[tuple[str, str, str], Cell] = field(default_factory=dict)
    by_level: Mapping[tuple[str, int, str], Cell] = field(default_factory=dict)
    overall: Mapping[tuple[str, str], Cell] = field(default_factory=dict)
    severities: tuple[Severity, ...] = ()
    corruption_errors: tuple[CorruptionErrors, ...] = ()
    reliability: Mapping[tuple[str, Condition], tuple[Bin, ...]] = field(default_factory=dict)
    confusion: Mapping[tuple[str, Condition], tuple[Confusion, ...]] = field(default_factory=dict)
    recall: Mapping[str, tuple[ClassRecall, ...]] = field(default_factory=dict)
    gallery: tuple[Strip, ...] = ()
    mistakes: Mapping[str, tuple[Mistake, ...]] = field(default_factory=dict)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the labels."""
        return tuple(self.record["data"]["class_names"])

    @cached_property
    def protocols(self) -> tuple[str, ...]:
        """The test procedures of the run."""
        return tuple(dict.fromkeys(case["protocol"] for case in self.record["cases"]))

    @property
    def judged(self) -> bool:
        """There is something to be said of verdicts: criteria, or judgements besides the run's own."""
        return bool(self.criteria) or len(self.history) > 1

    @cached_property
    def has_other_criteria(self) -> bool:
        """The verdict is by other criteria than those that the study was run with."""
        return other_criteria(self.history)

    @cached_property
    def own(self) -> Entry | None:
        """The entry of the history that is the run's own verdict."""
        return own_entry(self.history)

    @property
    def classified(self) -> bool:
        """Classification under shifts is part of the run."""
        return CLASSIFICATION in self.protocols

    @cached_property
    def repeats(self) -> int:
        """How often every disturbed condition was shown."""
        return 1 + max((case["stimulus"]["repeat"] for case in self.record["cases"]), default=0)

    @cached_property
    def undertrained(self) -> frozenset[str]:
        """The models with a network that is below its floor."""
        return frozenset(network.system for network in self.networks if network.undertrained)

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """The models that rank conditions: those that are not undertrained, or all where none is left."""
        return tuple(model for model in self.models if model not in self.undertrained) or self.models

    def named(self, model: str) -> str:
        """A model's name, with a mark where it is undertrained."""
        return f"{model} (undertrained)" if model in self.undertrained else model

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Every disturbed condition of the run, hardest shift first."""
        known = {condition for _, condition, _ in self.cells if condition != CLEAN}
        return tuple(sorted(known, key=lambda c: (self.shifts.index(c.shift), c.level)))

    @cached_property
    def drops(self) -> tuple[str, ...]:
        """The metrics of change against undisturbed data."""
        return tuple(dict.fromkeys(metric for _, _, metric in self.by_shift if metric.endswith("_drop")))

    def cell(self, model: str, condition: Condition, metric: str) -> Cell:
        """A value of the run; one that is not part of it is missing, and says so."""
        return self.cells.get((model, condition, metric), NOT_RUN)

    def worst(self, model: str, count: int = WORST) -> tuple[Condition, ...]:
        """The disturbed conditions with the lowest accuracy, lowest first."""
        measured = [c for c in self.conditions if not self.cell(model, c, ROLE).missing]
        return tuple(sorted(measured, key=lambda c: self.cell(model, c, ROLE).value)[:count])

    def lowest(self, condition: Condition, models: Sequence[str]) -> float:
        """The lowest accuracy that any of the models has there; NaN where none was measured."""
        return min(_defined(self.cell(model, condition, ROLE).value for model in models), default=math.nan)

    def hardest(self, models: Sequence[str], count: int = WORST) -> tuple[Condition, ...]:
        """The hardest shifts for any of the models, each at its worst level, hardest first."""
        found: dict[str, Condition] = {}
        measured = [c for c in self.conditions if not math.isnan(self.lowest(c, models))]
        for condition in sorted(measured, key=lambda c: self.lowest(c, models)):
            found.setdefault(condition.shift, condition)
        return tuple(found.values())[:count]

    def shown(self, model: str) -> tuple[Condition, ...]:
        """The conditions of reliability diagrams and confusion matrices: undisturbed and the model's hardest shifts."""
        clean = () if self.cell(model, CLEAN, ROLE).missing else (CLEAN,)
        return (*clean, *self.hardest([model]))


def load_facts(path: str | Path) -> Facts:
    """Read a run folder: run.json, study.yaml, verdict.json, and the tables and media of classification."""
    run = Path(path)
    record, verdict = read_json(run / "run.json"), read_json(run / "verdict.json")
    built, failed = record.get("artifacts", []), failed_parts(record)
    facts = Facts(
        record=record,
        study_file=read_text(run / "study.yaml"),
        status=never_pass(verdict["status"], failed),
        failed=failed,
        history=tuple(read_history(run)),
        models=tuple(record["models"]),
        networks=tuple(_network(entry) for entry in built if _is_classifier(entry)),
        fitted=tuple(_fitted(entry) for entry in built if not _is_classifier(entry)),
        failures=tuple(
            Failure(case["system"], _shown_to(case), case["stimulus"]["repeat"], case["reason"])
            for case in record["cases"]
            if case["status"] == "failed"
        ),
    )
    facts = replace(facts, criteria=tuple(_criterion(entry, facts) for entry in verdict["criteria"]))
    return _classification(run, facts) if facts.classified else facts


def _classification(run: Path, facts: Facts) -> Facts:
    """With what classification under shifts says."""

    def rows_of(part: str) -> list[Row]:
        return read_rows(run, f"{CLASSIFICATION}_{part}")

    rows = read_rows(run, CLASSIFICATION)
    cells = {(row["model"], _condition(row), row["metric"]): cell_of(row) for row in rows}
    facts = replace(
        facts,
        shifts=_hardest_first(cells, facts.ranked),
        levels=tuple(sorted({condition.level for _, condition, _ in cells if condition != CLEAN})),
        metrics=tuple(dict.fromkeys(row["metric"] for row in rows if not row["metric"].endswith("_drop"))),
        cells=cells,
        by_shift={(r["model"], r["shift"], r["metric"]): cell_of(r) for r in rows_of("by_shift")},
        by_level={(r["model"], r["level"], r["metric"]): cell_of(r) for r in rows_of("by_level")},
        overall={(r["model"], r["metric"]): cell_of(r) for r in rows_of("overall")},
        severities=tuple(
            Severity(r["model"], r["shift"], r["from_level"], r["to_level"], r["metric"], cell_of(r))
            for r in rows_of("severity")
        ),
        corruption_errors=_corruption_errors(run),
        reliability=_reliability(rows_of("reliability")),
        recall=_recall(rows_of("recall"), facts.models, facts.class_names),
        gallery=tuple(
            Strip(media_path(run, row["media"]), row["images"], _condition(row)) for row in rows_of("gallery")
        ),
        mistakes=_mistakes(run, rows_of("mistakes"), facts.models),
    )
    return replace(facts, confusion=_confusion(run, facts))


def _corruption_errors(run: Path) -> tuple[CorruptionErrors, ...]:
    """Against every reference; nothing where the run has one model only, or no common corruption."""
    rows = read_rows(run, "corruption_error") if (run / "tables" / "corruption_error.parquet").is_file() else []
    means = {(r["model"], r["reference"], r["metric"]): r for r in rows if r["shift"] == "mean"}
    return tuple(
        CorruptionErrors(
            model=model,
            reference=reference,
            corruptions=row["corruptions"],
            mce=cell_of(row),
            relative_mce=cell_of(means[found]) if (found := (model, reference, "relative_mce")) in means else NOT_RUN,
        )
        for (model, reference, metric), row in means.items()
        if metric == "mce"
    )


def _is_classifier(entry: Row) -> bool:
    return "clean_accuracy" in entry["competence"]


def _fitted(entry: Row) -> Fitted:
    known = ((name.replace("_", " "), value) for name, value in entry["competence"].items())
    figures = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in known
        if value not in ("", [])
    )
    return Fitted(str(entry["system"]), str(entry["builder"]), ", ".join(figures), str(entry["hash"]))


def _network(entry: Row) -> Network:
    competence = entry["competence"]
    return Network(
        system=str(entry["system"]),
        builder=str(entry["builder"]),
        seed=str(entry["seed"]),
        parameters=", ".join(f"{name} {value}" for name, value in entry["parameters"].items()),
        clean_accuracy=number_of(competence.get("clean_accuracy")),
        floor=number_of(competence.get("floor")),
        hash=str(entry["hash"]),
    )


def _shown_to(case: Row) -> str:
    """What a case showed, in words."""
    tags = case.get("tags", {})
    if "ood_set" in tags:
        return f"outliers {tags['ood_set']}"
    return str(Condition(case["stimulus"]["name"], case["stimulus"]["level"]))


def cell_of(row: Row) -> Cell:
    """A row's value with its bounds."""
    return Cell(
        value=number_of(row["value"]),
        lo=number_of(row["lo"]),
        hi=number_of(row["hi"]),
        n=row["n"],
        groups=row["groups"],
        sd=number_of(row.get("sd")),
        method=row.get("method") or "",
        reason=row.get("reason") or "",
    )


def _condition(row: Row) -> Condition:
    return Condition(row["shift"], int(row["level"]))


def _hardest_first(cells: Mapping[tuple[str, Condition, str], Cell], models: Sequence[str]) -> tuple[str, ...]:
    """Shifts by their mean accuracy over the models and levels; those without a value come first."""
    values: dict[str, list[float]] = {}
    for (model, condition, metric), cell in cells.items():
        if condition != CLEAN and metric == ROLE:
            values.setdefault(condition.shift, []).append(cell.value if model in models else math.nan)
    return tuple(sorted(values, key=lambda shift: mean_of(values[shift], -math.inf)))


def _defined(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def mean_of(values: Iterable[float], default: float = math.nan) -> float:
    """The mean of the values that exist."""
    defined = _defined(values)
    return math.fsum(defined) / len(defined) if defined else default


def _criterion(entry: Row, facts: Facts) -> CriterionFacts:
    criterion = Criterion.model_validate({name: entry[name] for name in Criterion.model_fields if name in entry})
    rows = tuple(_judged(row, criterion.metric, facts) for row in entry["rows"])
    return CriterionFacts(
        criterion=criterion,
        status=entry["status"],
        because=entry["because"],
        decisive=next(row for row in rows if row.status == entry["status"]),
        rows=rows,
        remark=entry.get("remark", ""),
    )


def _judged(row: Row, metric: str, facts: Facts) -> JudgedRow:
    where = {n: facts.named(value) if n in ("model", "source") else value for n, value in row["where"].items()}
    return JudgedRow(
        where=", ".join(f"{name} {value}" for name, value in where.items()),
        status=row["status"],
        because=row["because"],
        value=number(metric, number_of(row["value"])),
        bounds=bounds(metric, number_of(row["lo"]), number_of(row["hi"])),
        n=row["n"],
        groups=row["groups"],
        method=row["method"],
        further_groups=row["further_groups"],
    )


def _reliability(rows: Sequence[Row]) -> dict[tuple[str, Condition], tuple[Bin, ...]]:
    bins: dict[tuple[str, Condition], tuple[Bin, ...]] = {}
    for row in rows:
        key = (row["model"], _condition(row))
        found = Bin(row["from"], row["to"], row["count"], number_of(row["confidence"]), number_of(row["accuracy"]))
        bins[key] = (*bins.get(key, ()), found)
    return bins


def _confusion(run: Path, facts: Facts) -> dict[tuple[str, Condition], tuple[Confusion, ...]]:
    """The confusion matrices of the conditions shown; those of the rest are never made."""
    table = read_arrow(run, "classification_confusion")
    place = {name: index for index, name in enumerate(facts.class_names)}
    found = {}
    for model in facts.models:
        for condition in facts.shown(model):
            chosen = (pc.field("model") == model) & (pc.field("shift") == condition.shift)
            rows = table.filter(chosen & (pc.field("level") == condition.level)).to_pylist()
            counts = (Confusion(place[row["label"]], place[row["prediction"]], row["count"]) for row in rows)
            found[model, condition] = tuple(counts)
    return found


def _recall(rows: Sequence[Row], models: Sequence[str], classes: Sequence[str]) -> dict[str, tuple[ClassRecall, ...]]:
    found: dict[tuple[str, str], dict[Condition, Cell]] = {}
    for row in rows:
        found.setdefault((row["model"], row["class"]), {})[_condition(row)] = cell_of(row)
    return {model: tuple(_class_recall(name, found.get((model, name), {})) for name in classes) for model in models}


def _class_recall(name: str, by_condition: Mapping[Condition, Cell]) -> ClassRecall:
    shifted = {c: cell.value for c, cell in by_condition.items() if c != CLEAN and not cell.missing}
    worst = min(shifted, key=lambda condition: shifted[condition], default=None)
    return ClassRecall(
        name=name,
        clean=by_condition.get(CLEAN, NOT_RUN),
        shifted=mean_of(shifted.values()),
        worst=worst,
        worst_value=shifted[worst] if worst else math.nan,
    )


def _mistakes(run: Path, rows: Sequence[Row], models: Sequence[str]) -> dict[str, tuple[Mistake, ...]]:
    """Per model the wrong answers, the most confident first."""
    found: dict[str, list[Mistake]] = {model: [] for model in models}
    for row in rows:
        texts = (str(row["id"]), row["label"], row["prediction"])
        seen = Picture(media_path(run, row["media"]))
        found[row["model"]].append(Mistake(_condition(row), *texts, row["confidence"], row["p_label"], seen))
    return {model: tuple(sorted(wrong, key=lambda m: -m.confidence)) for model, wrong in found.items()}
