"""Facts: a run folder read into plain values that template and figures show. No HTML, and no model is run."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image

from roadworthy.core.errors import InputError
from roadworthy.core.types import UNDISTURBED
from roadworthy.report.words import bounds, number
from roadworthy.verdict import Criterion

REPORT = "report.html"
WORST = 3
ROLE = "accuracy"
"""The metric that ranks conditions."""

PICTURE_QUALITY = 90
"""WebP quality at which compression is not seen."""

Row = dict[str, Any]


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
class Strip:
    """Example images of one condition, as a data URI."""

    condition: Condition
    uri: str
    images: int


@dataclass(frozen=True)
class Mistake:
    """A wrong answer with the picture that was shown, as a data URI."""

    condition: Condition
    id: str
    label: str
    prediction: str
    confidence: float
    p_label: float
    uri: str


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

    id: str
    hazard: str
    requirement: str
    status: str
    because: str
    decisive: JudgedRow
    rows: tuple[JudgedRow, ...]


@dataclass(frozen=True)
class Failure:
    """A case that failed, with its cause."""

    model: str
    condition: Condition
    repeat: int
    reason: str


@dataclass(frozen=True)
class Facts:
    """All that the report shows. `shifts` are ordered from the hardest to the easiest over all models."""

    record: Mapping[str, Any]
    study_file: str
    status: str
    criteria: tuple[CriterionFacts, ...]
    models: tuple[str, ...]
    shifts: tuple[str, ...]
    levels: tuple[int, ...]
    metrics: tuple[str, ...]
    cells: Mapping[tuple[str, Condition, str], Cell]
    by_shift: Mapping[tuple[str, str, str], Cell]
    by_level: Mapping[tuple[str, int, str], Cell]
    overall: Mapping[tuple[str, str], Cell]
    severities: tuple[Severity, ...]
    reliability: Mapping[tuple[str, Condition], tuple[Bin, ...]]
    confusion: Mapping[tuple[str, Condition], tuple[Confusion, ...]]
    recall: Mapping[str, tuple[ClassRecall, ...]]
    gallery: tuple[Strip, ...]
    mistakes: Mapping[str, tuple[Mistake, ...]]
    failures: tuple[Failure, ...]

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the labels."""
        return tuple(self.record["data"]["class_names"])

    @cached_property
    def repeats(self) -> int:
        """How often every disturbed condition was shown."""
        return 1 + max((case["stimulus"]["repeat"] for case in self.record["cases"]), default=0)

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

    def shown(self, model: str) -> tuple[Condition, ...]:
        """The conditions that reliability diagrams and confusion matrices show: undisturbed and the worst."""
        chosen = (CLEAN, *self.worst(model))
        return tuple(condition for condition in chosen if not self.cell(model, condition, ROLE).missing)


def load_facts(path: str | Path) -> Facts:
    """Read a run folder: run.json, study.yaml, verdict.json, tables and media."""
    run = Path(path)
    record, verdict = _json(run / "run.json"), _json(run / "verdict.json")
    rows = _rows(run, "classification")
    cells = {(row["model"], _condition(row), row["metric"]): _cell(row) for row in rows}
    models = tuple(record["models"])
    facts = Facts(
        record=record,
        study_file=_text(run / "study.yaml"),
        status=verdict["status"],
        criteria=tuple(_criterion(entry) for entry in verdict["criteria"]),
        models=models,
        shifts=_hardest_first(cells),
        levels=tuple(sorted({condition.level for _, condition, _ in cells if condition != CLEAN})),
        metrics=tuple(dict.fromkeys(row["metric"] for row in rows if not row["metric"].endswith("_drop"))),
        cells=cells,
        by_shift={(r["model"], r["shift"], r["metric"]): _cell(r) for r in _rows(run, "classification_by_shift")},
        by_level={(r["model"], r["level"], r["metric"]): _cell(r) for r in _rows(run, "classification_by_level")},
        overall={(r["model"], r["metric"]): _cell(r) for r in _rows(run, "classification_overall")},
        severities=tuple(
            Severity(r["model"], r["shift"], r["from_level"], r["to_level"], r["metric"], _cell(r))
            for r in _rows(run, "classification_severity")
        ),
        reliability=_reliability(run),
        confusion={},
        recall=_recall(_rows(run, "classification_recall"), models, record["data"]["class_names"]),
        gallery=_gallery(run),
        mistakes=_mistakes(run, models),
        failures=tuple(
            Failure(case["system"], _stimulus(case), case["stimulus"]["repeat"], case["reason"])
            for case in record["cases"]
            if case["status"] == "failed"
        ),
    )
    return replace(facts, confusion=_confusion(run, facts))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read: {error}; finish the run first, or check it with roadworthy verify"
        ) from None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}; check the run with roadworthy verify") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no record; check the run with roadworthy verify")
    return content


def _arrow(run: Path, name: str) -> Any:
    path = run / "tables" / f"{name}.parquet"
    try:
        return pq.read_table(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {error}; finish the run first, or check it with roadworthy verify"
        ) from None


def _rows(run: Path, name: str) -> list[Row]:
    rows: list[Row] = _arrow(run, name).to_pylist()
    return rows


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _cell(row: Row) -> Cell:
    return Cell(
        value=_number(row["value"]),
        lo=_number(row["lo"]),
        hi=_number(row["hi"]),
        n=row["n"],
        groups=row["groups"],
        sd=_number(row.get("sd")),
        method=row.get("method") or "",
        reason=row.get("reason") or "",
    )


def _condition(row: Row) -> Condition:
    return Condition(row["shift"], int(row["level"]))


def _stimulus(case: Row) -> Condition:
    return Condition(case["stimulus"]["name"], case["stimulus"]["level"])


def _hardest_first(cells: Mapping[tuple[str, Condition, str], Cell]) -> tuple[str, ...]:
    """Shifts by their mean accuracy over models and levels; those without a value come first."""
    values: dict[str, list[float]] = {}
    for (_, condition, metric), cell in cells.items():
        if condition != CLEAN and metric == ROLE:
            values.setdefault(condition.shift, []).append(cell.value)
    return tuple(sorted(values, key=lambda shift: _mean(values[shift], -math.inf)))


def _mean(values: Iterable[float], default: float = math.nan) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else default


def _criterion(entry: Row) -> CriterionFacts:
    criterion = Criterion.model_validate({name: entry[name] for name in Criterion.model_fields if name in entry})
    rows = tuple(_judged(row, criterion.metric) for row in entry["rows"])
    return CriterionFacts(
        id=criterion.id,
        hazard=criterion.hazard,
        requirement=criterion.sentence(),
        status=entry["status"],
        because=entry["because"],
        decisive=next(row for row in rows if row.status == entry["status"]),
        rows=rows,
    )


def _judged(row: Row, metric: str) -> JudgedRow:
    return JudgedRow(
        where=", ".join(f"{name} {value}" for name, value in row["where"].items()),
        status=row["status"],
        because=row["because"],
        value=number(metric, _number(row["value"])),
        bounds=bounds(metric, _number(row["lo"]), _number(row["hi"])),
        n=row["n"],
        groups=row["groups"],
        method=row["method"],
        further_groups=row["further_groups"],
    )


def _reliability(run: Path) -> dict[tuple[str, Condition], tuple[Bin, ...]]:
    bins: dict[tuple[str, Condition], tuple[Bin, ...]] = {}
    for row in _rows(run, "classification_reliability"):
        key = (row["model"], _condition(row))
        found = Bin(row["from"], row["to"], row["count"], _number(row["confidence"]), _number(row["accuracy"]))
        bins[key] = (*bins.get(key, ()), found)
    return bins


def _confusion(run: Path, facts: Facts) -> dict[tuple[str, Condition], tuple[Confusion, ...]]:
    """The confusion matrices of the conditions shown; those of the rest are never made."""
    table = _arrow(run, "classification_confusion")
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
        found.setdefault((row["model"], row["class"]), {})[_condition(row)] = _cell(row)
    return {model: tuple(_class_recall(name, found.get((model, name), {})) for name in classes) for model in models}


def _class_recall(name: str, by_condition: Mapping[Condition, Cell]) -> ClassRecall:
    shifted = {c: cell.value for c, cell in by_condition.items() if c != CLEAN and not cell.missing}
    worst = min(shifted, key=lambda condition: shifted[condition], default=None)
    return ClassRecall(
        name=name,
        clean=by_condition.get(CLEAN, NOT_RUN),
        shifted=_mean(shifted.values()),
        worst=worst,
        worst_value=shifted[worst] if worst else math.nan,
    )


def _gallery(run: Path) -> tuple[Strip, ...]:
    rows = _rows(run, "classification_gallery")
    return tuple(Strip(_condition(row), _picture(run, row["media"]), row["images"]) for row in rows)


def _mistakes(run: Path, models: Sequence[str]) -> dict[str, tuple[Mistake, ...]]:
    """Per model the wrong answers, the most confident first."""
    found: dict[str, list[Mistake]] = {model: [] for model in models}
    for row in _rows(run, "classification_mistakes"):
        texts = (str(row["id"]), row["label"], row["prediction"])
        picture = _picture(run, row["media"])
        found[row["model"]].append(Mistake(_condition(row), *texts, row["confidence"], row["p_label"], picture))
    return {model: tuple(sorted(wrong, key=lambda m: -m.confidence)) for model, wrong in found.items()}


def _picture(run: Path, name: str) -> str:
    """A stored picture as a data URI, compressed for the page; the exact one stays in the run's media folder."""
    path = run / "media" / name
    content = io.BytesIO()
    try:
        if Path(name).name != name:
            raise OSError("it lies outside the run")
        with Image.open(path) as image:
            image.convert("RGB").save(content, "WEBP", quality=PICTURE_QUALITY, method=4)
    except OSError as error:
        raise InputError(f"{path} cannot be shown: {error}; check the run with roadworthy verify") from None
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"
