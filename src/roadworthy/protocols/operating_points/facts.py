"""Operating points in the report: thresholds, rates and curves as facts, and in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scipy.special import expit

from roadworthy.core.grouping import grouped
from roadworthy.core.types import LOG_ODDS, UNDISTURBED
from roadworthy.protocols.operating_points import table_specs
from roadworthy.protocols.operating_points.metrics import (
    ACCEPTED_ERROR,
    ACCEPTED_OUTLIER,
    ACCEPTED_WRONG,
    INSIDE_METRICS,
    REJECTED,
    REJECTED_RIGHT,
)
from roadworthy.report.facts import CLEAN, NOT_RUN, Condition, Facts, bounded, estimate_of
from roadworthy.report.page import ModelWords
from roadworthy.report.reading import number_of, read_rows
from roadworthy.report.words import number, plural, whole
from roadworthy.statistics import Estimate

WRONG, RIGHT, OUTLIER = ACCEPTED_WRONG.name, REJECTED_RIGHT.name, ACCEPTED_OUTLIER.name
SHARE, ERROR = REJECTED.name, ACCEPTED_ERROR.name
HALF, NOTHING = "half of the test groups", "nothing"
"""What a threshold is fixed on, as the table says it, where it is not validation data."""
KINDS = ("literature", "derived", "transformed", "gan")
SCORES = {
    "confidence": "its largest class probability",
    "log_odds": "the log-odds of its largest class probability",
    "certainty": "the certainty that it states itself",
}
PER = 1000
"""Rates are told as so many of a thousand images."""


@dataclass(frozen=True)
class Threshold:
    """The threshold of one model, what it is on, how it was fixed, and what it rejects of `images` held-out images."""

    score: str
    rule: str
    value: float
    held_out: str
    images: int
    groups: int
    rejected: float
    reason: str

    @property
    def score_words(self) -> str:
        """What the threshold is on."""
        return SCORES.get(self.score, f"the score of the monitor {self.score}")

    @property
    def words(self) -> str:
        """The number, as people read it."""
        if math.isnan(self.value):
            return "n/a"
        if math.isinf(self.value):
            return "above all scores"
        return f"{self.value:.4g}{f' on log-odds{of_log_odds(self.value)}' if self.score == LOG_ODDS else ''}"


def of_log_odds(threshold: float) -> str:
    """What a threshold on log-odds is as a probability, near 1 by what it lacks.

    >>> of_log_odds(2.2), of_log_odds(20.0)
    (', probability 0.9002', ', probability 1 - 2.1e-09')
    """
    rest = float(expit(-threshold))
    return f", probability {f'{1 - rest:.4f}' if rest >= 1e-3 else f'1 - {rest:.2g}'}"


@dataclass(frozen=True)
class OutlierSet:
    """A set of outliers; `condition` is what both sides are under."""

    name: str
    kind: str
    condition: Condition

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Point:
    """A rate at one threshold of the curve; `ood_set` is the worst set there, where it is about outliers."""

    asked: float
    threshold: float
    reached: float
    value: float
    ood_set: str


@dataclass(frozen=True)
class OperatingFacts:
    """All that the report shows of operating points."""

    models: tuple[str, ...]
    thresholds: Mapping[str, Threshold]
    conditions: tuple[Condition, ...]
    sets: tuple[OutlierSet, ...]
    cells: Mapping[tuple[str, Condition, str, str], Estimate]
    curves: Mapping[tuple[str, str, str], tuple[Point, ...]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The rates of in-distribution images."""
        return tuple(metric.name for metric in INSIDE_METRICS)

    @cached_property
    def shifts(self) -> tuple[str, ...]:
        """The shifts, in the order of the table."""
        return tuple(dict.fromkeys(c.shift for c in self.conditions if c.shift != UNDISTURBED))

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The levels at which some shift was shown, from low to high."""
        return tuple(sorted({c.level for c in self.conditions if c.shift != UNDISTURBED}))

    def cell(self, model: str, condition: Condition, metric: str, ood_set: str = "") -> Estimate:
        """A rate of the run; one that is not part of it is missing, and says so."""
        return self.cells.get((model, condition, ood_set, metric), NOT_RUN)

    def of_set(self, model: str, outliers: OutlierSet) -> Estimate:
        """The share of accepted outliers of a set."""
        return self.cell(model, outliers.condition, OUTLIER, outliers.name)

    def worst_condition(self, model: str) -> Condition | None:
        """The condition in which it fails silently most often; the worst shift at the highest level, of equal ones."""
        known = [c for c in self.conditions if c != CLEAN and not self.cell(model, c, WRONG).missing]
        return max(known, key=lambda c: (self.cell(model, c, WRONG).value, c.level), default=None)

    def worst_set(self, model: str) -> OutlierSet | None:
        """The set of which it accepts most."""
        known = [outliers for outliers in self.sets if not self.of_set(model, outliers).missing]
        return max(known, key=lambda outliers: self.of_set(model, outliers).value, default=None)

    @property
    def joint(self) -> tuple[OutlierSet, ...]:
        """The sets where both sides are under one shift."""
        return tuple(outliers for outliers in self.sets if outliers.condition != CLEAN)


def load_operating(run: Path, facts: Facts) -> OperatingFacts:
    """Read the tables."""
    rows = read_rows(run, table_specs.RATES.name, facts.source)
    located = [(row, Condition(row["shift"], row["level"])) for row in rows]
    sets = {
        row["ood_set"]: OutlierSet(row["ood_set"], row["kind"], condition)
        for row, condition in located
        if row["ood_set"]
    }
    return OperatingFacts(
        models=facts.models,
        thresholds={
            row["model"]: Threshold(
                row["score"],
                row["rule"],
                number_of(row["threshold"]),
                row["held_out"],
                row["images"],
                row["groups"],
                number_of(row["rejected"]),
                row["reason"] or "",
            )
            for row in read_rows(run, table_specs.THRESHOLDS.name, facts.source)
        },
        conditions=tuple(dict.fromkeys(condition for row, condition in located if not row["ood_set"])),
        sets=tuple(sorted(sets.values(), key=lambda own: ([*KINDS, own.kind].index(own.kind), own.name))),
        cells={
            (row["model"], condition, row["ood_set"] or "", row["metric"]): estimate_of(row)
            for row, condition in located
        },
        curves=grouped(
            (
                (row["model"], row["condition"], row["metric"]),
                Point(row["asked"], row["threshold"], row["reached"], row["value"], row["ood_set"] or ""),
            )
            for row in read_rows(run, table_specs.CURVE.name, facts.source)
        ),
    )


def held_out_words(threshold: Threshold) -> str:
    """What the threshold was fixed on, and what it rejects there."""
    if threshold.held_out == NOTHING:
        return "given by the study"
    return f"rejects {number(REJECTED, threshold.rejected)} of {plural(threshold.images, 'held-out image')}"


def sentences(facts: OperatingFacts, model: str) -> Iterator[str]:
    """What the first screen says of one model."""
    yield from of_model(facts, model)
    if halves := of_halves(facts):
        yield halves


def of_model(facts: OperatingFacts, model: str) -> Iterator[str]:
    """How often one model fails silently, what it accepts from outside, and what that costs."""
    threshold = facts.thresholds.get(model)
    if threshold is None or math.isnan(threshold.value):
        yield f"There is no threshold: {threshold.reason if threshold else 'not part of this run'}."
        return
    clean, worst, outliers = facts.cell(model, CLEAN, WRONG), facts.worst_condition(model), facts.worst_set(model)
    words = f"At the threshold {threshold.words} ({held_out_words(threshold)}) it fails silently in "
    words += per_thousand(clean, "undisturbed images")
    if worst is not None:
        failures = per_thousand(facts.cell(model, worst, WRONG), "images")
        words += f" and in {failures} under the worst condition, {worst}"
    if outliers is not None:
        accepted = per_thousand(facts.of_set(model, outliers), "outliers")
        words += f"; it accepts {accepted} of the worst set, {outliers}"
    yield f"{words}."
    price = facts.cell(model, CLEAN, RIGHT)
    if not price.missing:
        yield f"The price: {per_thousand(price, 'undisturbed images')} are answered right and yet rejected."
    if threshold.reason:
        yield f"Of the threshold: {threshold.reason}."


def of_halves(facts: OperatingFacts) -> str:
    """That the figures are over half of the test data; empty where they are over all."""
    halved = [model for model, threshold in facts.thresholds.items() if threshold.held_out == HALF]
    if not halved:
        return ""
    clean = facts.cell(halved[0], CLEAN, WRONG)
    over = f"{whole(clean.n)} images of {whole(clean.groups)} groups"
    return (
        "There is no validation data: one half of the test groups fixed the threshold, and these figures are over the "
        f"other half alone ({over})."
    )


def per_thousand(cell: Estimate, noun: str) -> str:
    """A rate as so many of 1,000, with its 95 % bounds.

    >>> per_thousand(Estimate(0.0125, 0.004, 0.031), "images")
    '12 of 1,000 images (4 to 31)'
    """
    if cell.missing:
        return f"an unknown share of {noun} ({cell.reason})"
    bounds = "no bounds" if cell.unbounded else f"{_count(cell.lo)} to {_count(cell.hi)}"
    return f"{_count(cell.value)} of {PER:,} {noun} ({bounds})"


def _count(share: float) -> str:
    """So many of a thousand: whole numbers, below ten one digit where it says more."""
    count = PER * share
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}".removesuffix(".0")


def brief(facts: OperatingFacts, model: str) -> tuple[str, ...]:
    """The same in one line."""
    worst, outliers = facts.worst_condition(model), facts.worst_set(model)
    parts = [f"Silent failures: undisturbed {bounded(ACCEPTED_WRONG, facts.cell(model, CLEAN, WRONG))}"]
    if worst is not None:
        parts.append(f"worst {bounded(ACCEPTED_WRONG, facts.cell(model, worst, WRONG))} ({worst})")
    if outliers is not None:
        parts.append(f"outliers accepted {bounded(ACCEPTED_OUTLIER, facts.of_set(model, outliers))} ({outliers})")
    return ("; ".join(parts) + ".",)


def model_words(facts: OperatingFacts, model: str) -> ModelWords:
    """What the summary says of one model."""
    worst, outliers = facts.worst_condition(model), facts.worst_set(model)
    figures = [("Silent failures, undisturbed", WRONG, facts.cell(model, CLEAN, WRONG))]
    if worst is not None:
        figures.append(("Silent failures, worst condition", WRONG, facts.cell(model, worst, WRONG)))
    if outliers is not None:
        figures.append(("Outliers accepted, worst set", OUTLIER, facts.of_set(model, outliers)))
    return ModelWords(
        figures=tuple(figures),
        sentences=tuple(sentences(facts, model)),
        brief=brief(facts, model),
        rule="Operating points: what scores below the threshold is rejected; a silent failure is accepted and wrong.",
    )


def headline(facts: OperatingFacts, named: Facts) -> list[str]:
    """A line per model for a terminal."""
    return [f"{named.named(model)}: {next(sentences(facts, model))}" for model in facts.models]
