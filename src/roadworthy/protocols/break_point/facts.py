"""Break points in the report: from which severity on a model misses its threshold, as facts and in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roadworthy.protocols.break_point import table_specs
from roadworthy.protocols.break_point.metrics import BREAK_SEVERITY, FAILURE_PROBABILITY
from roadworthy.report.facts import NOT_RUN, Facts, bounded, estimate_of
from roadworthy.report.page import ModelWords
from roadworthy.report.reading import Picture, Row, media_path, number_of, read_rows
from roadworthy.report.words import NO_BREAK, bounds, number, plural, words_of
from roadworthy.statistics import Estimate

ROLE = BREAK_SEVERITY.name
CLOSER_STEP = 0.05
"""How fine a second look is, as the report proposes it."""


@dataclass(frozen=True)
class CurvePoint:
    """The metric at a severity, and the quantity there where the shift has a unit."""

    severity: float
    cell: Estimate
    in_unit: float


@dataclass(frozen=True)
class Strip:
    """Images of a shift at a severity."""

    severity: float
    picture: Picture


@dataclass(frozen=True)
class Point:
    """The break point of one model under one shift."""

    shift: str
    cell: Estimate
    last: float = math.nan
    quantity: str = ""
    unit: str = ""
    in_unit: tuple[float, float, float] = (math.nan, math.nan, math.nan)

    @property
    def is_beyond(self) -> bool:
        """Whether the threshold is met up to the last level."""
        return self.cell.value == math.inf

    def quantity_words(self) -> str:
        """The quantity at the break point with its bounds; empty where the shift has no unit.

        Of a shift that is met up to the last level, the quantity there.
        """
        if not self.unit or self.cell.missing:
            return ""
        value, lo, hi = self.in_unit
        if self.is_beyond:
            return f"{self.quantity} {short(lo)}{NO_BREAK}{self.unit} is surely met" if self.cell.lo else ""
        ends = " to ".join(short(end) for end in (lo, hi) if math.isfinite(end))
        inside = f" ({ends})" if math.isfinite(lo) and math.isfinite(hi) else ""
        return f"{self.quantity} {short(value)}{inside}{NO_BREAK}{self.unit}"


@dataclass(frozen=True)
class BreakFacts:
    """All that the report shows of break points; shifts go from the weakest to the strongest."""

    models: tuple[str, ...]
    shifts: tuple[str, ...]
    points: Mapping[tuple[str, str], Point]
    curves: Mapping[tuple[str, str], tuple[CurvePoint, ...]]
    strips: Mapping[tuple[str, str, str], Strip]
    metric: str
    limit: str
    threshold: float
    confidence: float
    images: int
    objects: int

    @cached_property
    def shown_metric(self) -> str:
        """The metric of the curves: failures where accuracy is measured."""
        return FAILURE_PROBABILITY.name if self.metric == "accuracy" else self.metric

    @property
    def shown_threshold(self) -> float:
        """The threshold on the scale of the curves."""
        return 1 - self.threshold if self.metric == "accuracy" else self.threshold

    @property
    def requirement(self) -> str:
        """What must hold, in words."""
        return f"{words_of(self.metric).label.lower()} {self.limit} {number(self.metric, self.threshold)}"

    def point(self, model: str, shift: str) -> Point:
        """The break point of a model under a shift; one that was not run says so."""
        return self.points.get((model, shift)) or Point(shift, NOT_RUN)

    def captioned(self, shift: str) -> list[tuple[str, Picture]]:
        """The pictures of a shift, each once, by severity, with what they show of which models."""
        roles: dict[tuple[float, Path], dict[str, list[str]]] = {}
        for (model, name, side), strip in self.strips.items():
            if name == shift:
                role = "the last level" if self.point(model, shift).is_beyond else f"just {side}"
                roles.setdefault((strip.severity, strip.picture.path), {}).setdefault(role, []).append(model)
        pictures = {strip.picture.path: strip.picture for strip in self.strips.values()}
        captions = []
        for (severity, path), models in sorted(roles.items(), key=lambda item: item[0]):
            shown = f"Severity {severity_words(severity)}" if severity else "Undisturbed"
            several = len(self.models) > 1
            words = [f"{role} ({', '.join(own)})" if several else role for role, own in models.items()]
            captions.append((f"{shown}: {', '.join(words)}", pictures[path]))
        return captions

    def of_model(self, model: str) -> list[Point]:
        """Those of a model that have a value, the weakest first."""
        own = [self.point(model, shift) for shift in self.shifts]
        return sorted((point for point in own if not point.cell.missing), key=_weakness)


def short(value: float) -> str:
    """A quantity to three digits.

    >>> short(62.347), short(0.0312), short(10.0), short(math.inf), short(1234.5)
    ('62.3', '0.0312', '10', 'unlimited', '1,234')
    """
    if not math.isfinite(value):
        return "unlimited"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def severity_words(severity: float) -> str:
    """A severity to two digits.

    >>> severity_words(2.7), severity_words(3)
    ('2.7', '3')
    """
    return f"{severity:.2f}".rstrip("0").rstrip(".")


def _weakness(point: Point) -> tuple[float, float, str]:
    """Sorts by the break point, then by its lower bound."""
    return point.cell.value, point.cell.lo, point.shift


def load_breaks(run: Path, facts: Facts) -> BreakFacts:
    """Read the tables and pictures of break points."""
    rows = read_rows(run, table_specs.POINTS.name, facts.source)
    points = {(row["model"], row["shift"]): _point(row) for row in rows}
    curve_rows = read_rows(run, table_specs.CURVE.name, facts.source)
    metric = rows[0]["of_metric"] if rows else "accuracy"
    shown = FAILURE_PROBABILITY.name if metric == "accuracy" else metric
    curves: dict[tuple[str, str], list[CurvePoint]] = {}
    for row in curve_rows:
        if row["metric"] == shown:
            value = CurvePoint(row["severity"], estimate_of(row), number_of(row["in_unit"]))
            curves.setdefault((row["model"], row["shift"]), []).append(value)
    return BreakFacts(
        models=facts.models,
        shifts=_weakest_first(points, facts.ranked),
        points=points,
        curves={key: tuple(sorted(own, key=lambda point: point.severity)) for key, own in curves.items()},
        strips={
            (row["model"], row["shift"], row["side"]): Strip(
                row["severity"], Picture(media_path(run, row["media"]), row["images"])
            )
            for row in read_rows(run, table_specs.GALLERY.name, facts.source)
        },
        metric=metric,
        limit=rows[0]["limit"] if rows else "at least",
        threshold=number_of(rows[0]["threshold"]) if rows else math.nan,
        confidence=number_of(rows[0]["confidence"]) if rows else math.nan,
        images=max((row["n"] for row in rows), default=0),
        objects=max((row["groups"] for row in rows), default=0),
    )


def _point(row: Row) -> Point:
    value, lo, hi = (number_of(row[f"{name}_in_unit"]) for name in ("value", "lo", "hi"))
    return Point(
        row["shift"],
        estimate_of(row),
        last=number_of(row["last"]),
        quantity=row["quantity"] or "",
        unit=row["unit"] or "",
        in_unit=(value, lo, hi),
    )


def _weakest_first(points: Mapping[tuple[str, str], Point], ranked: Iterable[str]) -> tuple[str, ...]:
    """The shifts by the lowest break point that any of the models has; those without a value last."""
    models = set(ranked)

    def order(shift: str) -> tuple[float, float, str]:
        own = [point for (model, name), point in points.items() if name == shift and model in models]
        measured = [_weakness(point) for point in own if not point.cell.missing]
        return min(measured, default=(math.inf, math.inf, f"~{shift}"))

    return tuple(sorted(dict.fromkeys(shift for _, shift in points), key=order))


def sentence(breaks: BreakFacts, point: Point) -> str:
    """From which severity on, in one sentence."""
    if point.cell.missing:
        return f"No break point: {point.cell.reason.rstrip('.')}."
    requirement = breaks.requirement
    if point.is_beyond:
        last = severity_words(point.last)
        sure = severity_words(point.cell.lo)
        certain = f"surely up to {sure}" if point.cell.lo else "but for no severity surely"
        text = f"Beyond level {last}: {requirement} is met up to the strongest level, {certain}"
        return f"{text} ({point.quantity_words()})." if point.quantity_words() else f"{text}."
    if point.cell.value == 0:
        return f"Already undisturbed it misses {requirement}."
    unit = f", {point.quantity_words()}" if point.quantity_words() else ""
    sure = f"bounds {bounds(BREAK_SEVERITY, point.cell.lo, point.cell.hi)}"
    if math.isinf(point.cell.hi):
        sure = f"surely not before {severity_words(point.cell.lo)}" if point.cell.lo else "too few objects for bounds"
    remark = f" It is {point.cell.reason}." if point.cell.reason else ""
    return f"From severity {severity_words(point.cell.value)} on ({sure}{unit}) it misses {requirement}.{remark}"


def closer(breaks: BreakFacts) -> list[str]:
    """What a study may say of the shifts that break, to look closer between the bounds of all models.

    One line per shift, as YAML; where there is no upper bound, up to its last level.
    """
    lines = []
    for shift in breaks.shifts:
        points = [breaks.point(model, shift) for model in breaks.models]
        broken = [point for point in points if not point.cell.missing and 0 < point.cell.value < math.inf]
        if broken:
            start = min(point.cell.lo for point in broken)
            end = max(min(point.cell.hi, point.last) for point in broken)
            lines.append(f"{{name: {shift}, finer: {{start: {start:g}, end: {end:g}, step: {CLOSER_STEP}}}}}")
    return lines


def weakest(breaks: BreakFacts, model: str) -> Point | None:
    """The break point of the shift that a model stands least of; None where there is none."""
    return next(iter(breaks.of_model(model)), None)


def model_words(breaks: BreakFacts, model: str) -> ModelWords:
    """What the summary says of a model."""
    point = weakest(breaks, model)
    if point is None:
        return ModelWords((), ("No break point could be measured.",), ("no break point",))
    broken = [one for one in breaks.of_model(model) if not one.is_beyond]
    met = f"{breaks.requirement} is met up to the strongest level of every shift"
    words = f"{plural(len(broken), 'shift')} of {len(breaks.shifts)} break it" if broken else met
    weak = f"Weakest under {point.shift}. {sentence(breaks, point)}"
    brief = f"weakest under {point.shift}: break point {number(BREAK_SEVERITY, point.cell.value)}"
    figure = (f"Break point, {point.shift}", ROLE, point.cell)
    return ModelWords(
        (figure,), (weak, f"{words[0].upper()}{words[1:]}."), (brief,), rule=f"Required: {breaks.requirement}."
    )


def headline(breaks: BreakFacts, facts: Facts) -> list[str]:
    """A line for a terminal: the weakest shift of every model."""
    words = []
    for model in breaks.models:
        point = weakest(breaks, model)
        if point is not None:
            words.append(f"{facts.named(model)} {point.shift} {bounded(BREAK_SEVERITY, point.cell)}")
    return [f"Break points ({breaks.requirement}), weakest shift: {'; '.join(words) or 'none measured'}"]
