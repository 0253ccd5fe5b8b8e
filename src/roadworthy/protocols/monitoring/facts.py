"""What the protocol `monitoring` says of one source, from its stored tables: decisions, costs, streams and promises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from roadworthy.core.grouping import grouped
from roadworthy.core.tables import TableSpec
from roadworthy.protocols.monitoring import table_specs
from roadworthy.protocols.monitoring.metrics import AURC, FNR, MCC
from roadworthy.protocols.monitoring.names import (
    ALL,
    ALONE,
    CONFORMAL,
    DETECTION,
    GUARD,
    KINDS,
    NAME,
    STREAM,
    SYSTEM,
    VIEWS,
)
from roadworthy.protocols.monitoring.settings import Context
from roadworthy.report.facts import NOT_RUN, Facts, estimate_of, mean_of
from roadworthy.report.reading import Picture, Row, has_table, media_path, number_of, read_rows
from roadworthy.statistics import Estimate

TESTS_OF_RANKS = ("friedman", "friedman_p", "iman_davenport", "iman_davenport_p")
NOT_STORED: Row = dict.fromkeys(table_specs.TIMING.added_later)
"""Columns of timings that runs of earlier versions lack."""
FEWEST_SETS = 10
"""A comparison of ranks over fewer benchmarks has little power."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its name, kind of OOD data, whether it is near to the source, and its row in the table of sets.

    `examples` are a few images of its OOD side, where the run has them, `answers` what the models answered to them.
    """

    name: str
    kind: str
    near: bool
    row: Row
    examples: Picture | None = None
    answers: tuple[Row, ...] = ()

    @property
    def label(self) -> str:
        """Its name, with a mark where its OOD side is near to the source."""
        return f"{self.name} (near)" if self.near else self.name


@dataclass(frozen=True)
class Curve:
    """Points of a line, in the order of x; `threshold` has the threshold of each point."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    threshold: tuple[float, ...]


@dataclass(frozen=True)
class Ranking:
    """A critical-difference test: the mean ranks of monitors over benchmarks, best first, and what follows.

    `cliques` are the monitors that the test does not tell apart, each from its best to its worst.
    """

    model: str
    view: str
    ranks: Mapping[str, float]
    cliques: tuple[tuple[str, ...], ...]
    sets: int
    distance: float
    tests: Row
    warning: str
    pairs: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """The stream of a benchmark in bins: shares that are the same for all monitors, and those of each."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    ood: tuple[float, ...]
    wrong: tuple[float, ...]
    monitors: Mapping[str, tuple[Row, ...]]


@dataclass(frozen=True)
class MonitoringFacts:
    """What the tables say. Keys start with the model; the model alone is the monitor `none`.

    cells       by (model, benchmark, monitor, view, metric), of the whole stream
    overall     means over benchmarks by (model, kind or `all`, monitor, view, metric); n counts benchmarks
    on_id       by (model, monitor, metric), on ID test data alone
    sweep       by (model, benchmark or `all`, monitor): residual hazard over availability cost
    risk        by (model, benchmark, monitor): risk over coverage
    stream      by (model, benchmark, monitor, metric);  alarms: rows by (model, benchmark, monitor)
    timing      rows by (model, monitor, form)
    unranked    (view, model, why) of comparisons of ranks that could not be made
    context     what the run noted of the source: its monitors and benchmarks, and what was left out
    """

    models: tuple[str, ...]
    benchmarks: tuple[Benchmark, ...]
    cells: Mapping[tuple[str, str, str, str, str], Estimate]
    overall: Mapping[tuple[str, str, str, str, str], Estimate]
    on_id: Mapping[tuple[str, str, str], Estimate]
    competence: Mapping[tuple[str, str, str], Estimate]
    undertrained: frozenset[str]
    thresholds: tuple[Row, ...]
    sweep: Mapping[tuple[str, str, str], Curve]
    risk: Mapping[tuple[str, str, str], Curve]
    rankings: tuple[Ranking, ...]
    stream: Mapping[tuple[str, str, str, str], Estimate]
    timelines: Mapping[tuple[str, str], Timeline]
    alarms: Mapping[tuple[str, str, str], tuple[Row, ...]]
    timing: Mapping[tuple[str, str, str], Row]
    unranked: tuple[tuple[str, str, str], ...] = ()
    id_examples: Picture | None = None
    id_answers: tuple[Row, ...] = ()
    context: Context | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def monitors(self) -> tuple[str, ...]:
        """The monitors, the one with the best mean MCC in the view of the system first, those without one last."""
        names = dict.fromkeys(monitor for _, _, monitor, _, _ in self.cells if monitor != ALONE)
        means = {name: mean_of(self.mean(model, name).value for model in self.models) for name in names}
        return tuple(sorted(names, key=lambda name: math.inf if math.isnan(means[name]) else -means[name]))

    @cached_property
    def views(self) -> tuple[str, ...]:
        """The views that the run has, in their order."""
        known = {view for _, _, _, view, _ in self.cells}
        return tuple(view for view in VIEWS if view in known)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of OOD data that the run has, in their order."""
        return tuple(kind for kind in KINDS if any(benchmark.kind == kind for benchmark in self.benchmarks))

    def of_kind(self, kind: str) -> tuple[Benchmark, ...]:
        """The benchmarks of a kind."""
        return tuple(benchmark for benchmark in self.benchmarks if benchmark.kind == kind)

    def cell(self, model: str, benchmark: str, monitor: str, metric: str = MCC.name, view: str = SYSTEM) -> Estimate:
        """A measured value; one that is not part of the run is missing, and says so."""
        return self.cells.get((model, benchmark, monitor, view, metric), NOT_RUN)

    def mean(self, model: str, monitor: str, metric: str = MCC.name, view: str = SYSTEM, kind: str = ALL) -> Estimate:
        """The mean over benchmarks; of a single benchmark the value itself, with its own bounds."""
        own = self.benchmarks if kind == ALL else self.of_kind(kind)
        if len(own) == 1:
            return self.cell(model, own[0].name, monitor, metric, view)
        return self.overall.get((model, kind, monitor, view, metric), NOT_RUN)

    def has_metric(self, view: str, metric: str) -> bool:
        """Whether a view has a metric for some monitor."""
        return any(key[3:] == (view, metric) for key in self.cells)

    def id_value(self, model: str, monitor: str, metric: str) -> Estimate:
        """A value on ID test data alone."""
        return self.on_id.get((model, monitor, metric), NOT_RUN)

    def best(self, model: str, metric: str = MCC.name, view: str = SYSTEM) -> str | None:
        """The monitor with the highest mean, among those with a value on most benchmarks; None where none has one.

        Means over fewer benchmarks do not compare.
        """
        means = {name: self.mean(model, name, metric, view) for name in self.monitors}
        known = {name: mean for name, mean in means.items() if not mean.missing}
        most = max((mean.n for mean in known.values()), default=0)
        return max((name for name in known if known[name].n == most), key=lambda name: known[name].value, default=None)

    def risk_area(self, model: str, benchmark: str, monitor: str) -> Estimate:
        """The area under the curve of risk over coverage."""
        views = [view for view in VIEWS if (model, benchmark, monitor, view, AURC.name) in self.cells]
        return self.cell(model, benchmark, monitor, AURC.name, views[0]) if views else NOT_RUN

    @cached_property
    def missing(self) -> tuple[tuple[str, str, str, int], ...]:
        """Monitors without a decision on some benchmarks: (model, monitor, reason, how many benchmarks)."""
        lost = grouped(
            ((model, monitor, cell.reason), benchmark)
            for (model, benchmark, monitor, view, metric), cell in self.cells.items()
            if (view, metric) == (DETECTION, FNR.name) and cell.missing and monitor != ALONE
        )
        return tuple((*key, len(benchmarks)) for key, benchmarks in lost.items())

    def by_promise(self, model: str, promise: str) -> list[str]:
        """The monitors of a model with a threshold that keeps its promise, breaks it, or promises nothing, each once.

        Thresholds of single classes count: a monitor can keep the promise for one class and break that for another.
        """
        rows = [row for row in self.thresholds if (row["model"], row["promise"]) == (model, promise)]
        return [*dict.fromkeys(row["monitor"] for row in rows)]

    def conformal(self, model: str, monitors: Sequence[str]) -> list[Row]:
        """The thresholds of monitors of a model that the rule conformal gave, for all classes together."""
        rows = [row for row in self.thresholds if row["model"] == model and row["monitor"] in monitors]
        of_all = [row for row in rows if not row["class"] and not math.isnan(row["threshold"])]
        return [row for row in of_all if row["rule"].startswith(CONFORMAL)]

    def event(self, model: str, benchmark: str, monitor: str, metric: str) -> Estimate:
        """What happened in the course of a stream."""
        return self.stream.get((model, benchmark, monitor, metric), NOT_RUN)

    def alarm(self, model: str, benchmark: str, monitor: str, test: str) -> Row | None:
        """What a test of the assumption said of a stream; None where it was not run."""
        return next((row for row in self.alarms.get((model, benchmark, monitor), ()) if row["test"] == test), None)

    def competence_of(self, model: str, part: str, metric: str) -> Estimate:
        """How good a model is on a part of the undisturbed data."""
        return self.competence.get((model, part, metric), NOT_RUN)


def load_monitoring(path: str | Path, facts: Facts) -> MonitoringFacts:
    """Read the tables of a run, or those of one source of it."""
    run, source = Path(path), facts.source

    def rows(table: TableSpec) -> list[Row]:
        return read_rows(run, table.name, source) if has_table(run, table.name) else []

    ranks = rows(table_specs.RANKS)
    decisions, competence = rows(table_specs.DECISIONS), rows(table_specs.COMPETENCE)
    events = rows(table_specs.EVENTS)
    gallery = {
        row["benchmark"]: Picture(media_path(run, row["media"]), row["images"]) for row in rows(table_specs.GALLERY)
    }
    answers = grouped((row["benchmark"], row) for row in rows(table_specs.GALLERY_ANSWERS))
    models = dict.fromkeys([*facts.models, *(row["model"] for row in decisions)])
    asked = {row["model"] for row in decisions}
    return MonitoringFacts(
        models=tuple(model for model in models if model in asked),
        benchmarks=_benchmarks(decisions, rows(table_specs.SETS), gallery, answers),
        id_examples=gallery.get(""),
        id_answers=answers.get("", ()),
        cells={
            (row["model"], row["benchmark"], row["monitor"], row["view"], row["metric"]): estimate_of(row)
            for row in decisions
            if row["part"] == STREAM
        },
        overall={
            (row["model"], row["ood_kind"], row["monitor"], row["view"], row["metric"]): _mean(row)
            for row in rows(table_specs.OVERALL)
            if row["part"] == STREAM
        },
        on_id={
            (row["model"], row["monitor"], row["metric"]): estimate_of(row) for row in rows(table_specs.IMPACT_ON_ID)
        },
        competence={(row["model"], row["part"], row["metric"]): estimate_of(row) for row in competence},
        undertrained=frozenset(row["model"] for row in competence if row["undertrained"]),
        thresholds=_thresholds(rows(table_specs.THRESHOLDS)),
        sweep=_curves(rows(table_specs.SWEEP), "availability_cost", "residual_hazard"),
        risk=_curves(rows(table_specs.RISK), "accepted", "risk"),
        rankings=_rankings(ranks, rows(table_specs.PAIRS)),
        unranked=_unranked(ranks),
        stream={(row["model"], row["benchmark"], row["monitor"], row["metric"]): _event(row) for row in events},
        timelines=_timelines(rows(table_specs.TIMELINE)),
        alarms={
            key: tuple(own)
            for key, own in grouped(
                ((row["model"], row["benchmark"], row["monitor"]), row) for row in rows(table_specs.ALARMS)
            ).items()
        },
        timing={
            (row["model"], row["monitor"], row.get("form", GUARD)): {**NOT_STORED, **row}
            for row in rows(table_specs.TIMING)
        },
        context=_context(facts),
        settings=facts.record.protocols[NAME].settings,
    )


def _benchmarks(
    decisions: Sequence[Row],
    sets: Sequence[Row],
    gallery: Mapping[str, Picture],
    answers: Mapping[str, tuple[Row, ...]],
) -> tuple[Benchmark, ...]:
    """The benchmarks by kind, in the order of the table; those that the source does not meet have no decisions."""
    about = {row["benchmark"]: row for row in sets}
    known = {row["benchmark"]: row for row in decisions}
    benchmarks = [
        Benchmark(
            name, row["ood_kind"], bool(row["near"]), about.get(name, {}), gallery.get(name), answers.get(name, ())
        )
        for name, row in known.items()
    ]
    return tuple(sorted(benchmarks, key=lambda benchmark: KINDS.index(benchmark.kind)))


def _thresholds(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of the table with missing bounds as NaN, model by model; of a monitor, all classes together first."""
    numbers = ("threshold", "rejected", "confidence", "achieved", "value", "lo", "hi")
    plain_rows = [row | {name: number_of(row[name]) for name in numbers} for row in rows]
    return tuple(row | {name: _count(row[name]) for name in ("n", "groups")} for row in plain_rows)


def _mean(row: Row) -> Estimate:
    """A mean over benchmarks, whose n are these."""
    return estimate_of({**row, "n": row["sets"], "groups": row["sets"]})


def _event(row: Row) -> Estimate:
    """What happened in a stream, whose n are images or stretches."""
    return estimate_of({**row, "n": _count(row["n"]), "groups": 0})


def _count(value: float | None) -> int:
    return 0 if value is None or math.isnan(value) else int(value)


def _curves(rows: Sequence[Row], x: str, y: str) -> dict[tuple[str, str, str], Curve]:
    """A line per model, benchmark and monitor; points without a value are left out of it."""
    points = grouped(
        (
            (row["model"], row["benchmark"], row["monitor"]),
            (number_of(row[x]), number_of(row[y]), number_of(row["threshold"])),
        )
        for row in rows
    )
    curves = {}
    for key, own in points.items():
        known = sorted((point for point in own if not math.isnan(point[0] + point[1])), key=lambda point: point[0])
        if known:
            curves[key] = Curve(*zip(*known, strict=True))
    return curves


def _rankings(rows: Sequence[Row], pairs: Sequence[Row]) -> tuple[Ranking, ...]:
    pairs_of = grouped(((row["model"], row["view"]), row) for row in pairs)
    rankings = []
    for (model, view), own in grouped(((row["model"], row["view"]), row) for row in rows).items():
        ranked = sorted((row for row in own if not math.isnan(number_of(row["rank"]))), key=lambda row: row["rank"])
        if not ranked:
            continue
        letters = dict.fromkeys(letter for row in ranked for letter in _letters(row["cliques"]))
        members = (tuple(row["monitor"] for row in ranked if letter in _letters(row["cliques"])) for letter in letters)
        first = ranked[0]
        rankings.append(
            Ranking(
                model=model,
                view=view,
                ranks={row["monitor"]: float(row["rank"]) for row in ranked},
                cliques=tuple(clique for clique in members if len(clique) > 1),
                sets=int(first["sets"]),
                distance=number_of(first["distance"]),
                tests={name: number_of(first[name]) for name in TESTS_OF_RANKS},
                warning=first["warning"] or "",
                pairs=tuple(pairs_of.get((model, view), ())),
            )
        )
    return tuple(rankings)


def _unranked(rows: Sequence[Row]) -> tuple[tuple[str, str, str], ...]:
    """The comparisons in which no monitor has a rank, each once, with the reason."""
    ranked = {(row["view"], row["model"]) for row in rows if not math.isnan(number_of(row["rank"]))}
    reasons = {(row["view"], row["model"]): row["warning"] or "" for row in rows}
    return tuple((*key, reason) for key, reason in reasons.items() if key not in ranked)


def _letters(cliques: str | None) -> str:
    """The letters of a monitor's cliques, whatever stands between them."""
    return "".join(character for character in cliques or "" if character.isalpha())


def _timelines(rows: Sequence[Row]) -> dict[tuple[str, str], Timeline]:
    timelines = {}
    for key, own in grouped(((row["model"], row["benchmark"]), row) for row in rows).items():
        by_monitor = grouped((row["monitor"], row) for row in sorted(own, key=lambda row: row["bin"]))
        shared = next(iter(by_monitor.values()))
        timelines[key] = Timeline(
            starts=tuple(row["from"] for row in shared),
            ends=tuple(row["to"] for row in shared),
            ood=tuple(number_of(row["ood"]) for row in shared),
            wrong=tuple(number_of(row["wrong"]) for row in shared),
            monitors={monitor: tuple(bins) for monitor, bins in by_monitor.items()},
        )
    return timelines


def _context(facts: Facts) -> Context | None:
    """What the run noted of the source; None where it noted nothing."""
    part = facts.record.protocols[NAME].sources.get(facts.source or "")
    return Context.model_validate(part.context) if part is not None and part.context else None
