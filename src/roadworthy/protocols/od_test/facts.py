"""What an OD-test says, from its stored tables: sources, means, triples, costs and the ranking of monitors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

from roadworthy.core.tables import TableSpec
from roadworthy.metrics import find_metric
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.metrics import METRICS
from roadworthy.protocols.od_test.names import ACCURACY, ALL, COST, DISTANCE, NAME
from roadworthy.protocols.od_test.settings import Context, Settings
from roadworthy.protocols.od_test.subjects import Subject, Subjects
from roadworthy.report.facts import NOT_RUN, Facts, defined, estimate_of
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.report.words import MISSING, bounds, listing, number, plural, whole
from roadworthy.statistics import Estimate

AIM = ("rejected", "prior", "cost", "threshold")
"""The settings that every calibration aims at."""


@dataclass(frozen=True)
class Source:
    """A source with its network: clean accuracy on each part of its data, and why monitors failed there."""

    name: str
    architecture: str
    undertrained: bool
    classes: int
    size: str
    near: tuple[str, ...]
    images: Mapping[str, int]
    accuracy: Mapping[str, Estimate]
    failed: Mapping[str, str] = field(default_factory=dict)
    networks: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """Its name, with a mark where its network is undertrained."""
        return f"{self.name} (undertrained)" if self.undertrained else self.name

    @property
    def pairs(self) -> set[tuple[str, str, str]]:
        """Its triples (source, D_v, D_t): all ordered pairs of the outlier sets that it meets."""
        sets = [key.partition("/")[2] for key in self.images if key.startswith("outliers/")]
        return {(self.name, *pair) for pair in permutations(sets, 2)}


@dataclass(frozen=True)
class Method:
    """A monitor with its rank by mean accuracy, or why it has none."""

    label: str
    rank: int | None
    why: str = ""


@dataclass(frozen=True)
class Lost:
    """Triples without a value."""

    source: str
    valid_set: str
    test_set: str
    monitor: str
    triples: int
    reason: str


@dataclass(frozen=True)
class Rejected:
    """What a monitor's threshold without D_v rejects of a source's validation images; `tied`: less than asked for."""

    source: str
    monitor: str
    achieved: float
    images: int
    tied: bool


COSTS = ("build_seconds", "seconds_per_image", "state_bytes", "bytes_per_image", "peak_bytes")


@dataclass(frozen=True)
class CostRow:
    """What a monitor cost at one source; NaN where that was done in a session that was stopped, and so not timed."""

    source: str
    monitor: str
    build_seconds: float
    seconds_per_image: float
    state_bytes: float
    bytes_per_image: float
    peak_bytes: float

    @property
    def label(self) -> str:
        """The monitor, with its source where it is that of one."""
        return self.monitor if self.source == ALL else f"{self.monitor}, {self.source}"


@dataclass(frozen=True)
class OdTestFacts:
    """What an OD-test says.

    means          by (source or `all`, near, far or `all`, monitor, metric);  alone: the same without D_v
    rejected       what the thresholds without D_v reject; none where an earlier version wrote the run
    differs        by monitor, what is other than in its paper; the same holds
    architectures  as means, by architecture in place of source
    triples        the accuracy of every triple by (source, monitor, D_v, D_t)
    """

    sources: tuple[Source, ...]
    sets: tuple[str, ...]
    means: Mapping[tuple[str, str, str, str], Estimate]
    alone: Mapping[tuple[str, str, str, str], Estimate]
    architectures: Mapping[tuple[str, str, str, str], Estimate]
    triples: Mapping[tuple[str, str, str, str], Estimate]
    costs: tuple[CostRow, ...]
    lost: tuple[Lost, ...]
    aim: Mapping[str, Any]
    rejected: tuple[Rejected, ...] = ()
    differs: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The monitors in the order of the ranking, those without a rank last."""
        absent = {(ALL, ALL, label, self.judged): NOT_RUN for source in self.sources for label in source.failed}
        return rank_monitors(absent | {**self.means}, self.triples, self.counted, self.judged)

    @cached_property
    def labels(self) -> list[str]:
        """The names of the monitors, in that order."""
        return [method.label for method in self.methods]

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics, the one that monitors are ranked by first."""
        return [*dict.fromkeys([self.judged, *(metric for *_, metric in self.means)])]

    def mean(self, monitor: str, metric: str = ACCURACY, source: str = ALL, distance: str = ALL) -> Estimate:
        """A monitor's mean."""
        return self.means.get((source, distance, monitor, metric), self._absent(monitor, source))

    def mean_alone(self, monitor: str) -> Estimate:
        """A monitor's mean accuracy without D_v."""
        return self.alone.get((ALL, ALL, monitor, ACCURACY), self._absent(monitor))

    def rejected_by(self, monitor: str) -> str:
        """The share of validation images that a monitor's threshold without D_v rejects, over all sources."""
        known = [row for row in self.rejected if row.monitor == monitor and not math.isnan(row.achieved)]
        shares = sorted({row.achieved for row in known})
        if not shares:
            return MISSING
        ties = ", ties" if any(row.tied for row in known) else ""
        return bounds(ACCURACY, shares[0], shares[-1]) + ties if len(shares) > 1 else number(ACCURACY, shares[0]) + ties

    @cached_property
    def ties(self) -> tuple[str, ...]:
        """A sentence per monitor that equal scores keep from rejecting the share asked for."""
        reached: dict[str, list[str]] = {}
        for row in self.rejected:
            if row.tied:
                share = f"{number(ACCURACY, row.achieved)} of {whole(row.images)} at {row.source}"
                reached.setdefault(row.monitor, []).append(share)
        asked = number(ACCURACY, self.aim["rejected"])
        return tuple(
            f"Ties keep {monitor} from rejecting {asked} of the validation images where it is calibrated without D_v: "
            f"{listing(shares)}; images of equal score are rejected together."
            for monitor, shares in reached.items()
        )

    def of_architecture(self, architecture: str, monitor: str, metric: str = ACCURACY) -> Estimate:
        """A monitor's mean over the sources of an architecture."""
        return self.architectures.get((architecture, ALL, monitor, metric), self._absent(monitor))

    def triple(self, source: str, monitor: str, valid_set: str, test_set: str) -> Estimate:
        """The accuracy of a triple, or its mean over the sources that meet both sets and are not undertrained."""
        if source != ALL:
            return self.triples.get((source, monitor, valid_set, test_set), self._absent(monitor, source))
        triples = [(source.name, monitor, valid_set, test_set) for source in self.counted]
        known = defined(self.triples[triple].value for triple in triples if triple in self.triples)
        return Estimate(math.fsum(known) / len(known), n=len(known)) if known else self._absent(monitor)

    def _absent(self, monitor: str, source: str = ALL) -> Estimate:
        """A value that is not there, with the reason where a monitor was left out of the source or failed there."""
        reasons = self.failures
        if source != ALL:
            reasons = {lost.monitor: lost.reason for lost in self.lost if (lost.source, lost.test_set) == (source, ALL)}
        return Estimate(math.nan, reason=reasons.get(monitor, NOT_RUN.reason))

    @cached_property
    def failures(self) -> dict[str, str]:
        """The monitors that failed, each with where and why."""
        sources_of: dict[str, dict[str, list[str]]] = {}
        for source in self.sources:
            for label, reason in source.failed.items():
                sources_of.setdefault(label, {}).setdefault(reason, []).append(source.named)
        return {
            label: "; ".join(f"failed at {listing(names)}: {reason}" for reason, names in reasons.items())
            for label, reasons in sources_of.items()
        }

    @cached_property
    def counted(self) -> tuple[Source, ...]:
        """The sources that means over several are made of: those that are not undertrained, or all where none is."""
        return _counted(self.sources)

    @cached_property
    def architecture_names(self) -> tuple[str, ...]:
        """The architectures, where there are several."""
        names = tuple(dict.fromkeys(source.architecture for source in self.sources))
        return names if len(names) > 1 else ()

    @cached_property
    def undertrained_architectures(self) -> frozenset[str]:
        """The architectures that have undertrained sources alone, so that their means are made of these."""
        trained = {source.architecture for source in self.sources if not source.undertrained}
        return frozenset(source.architecture for source in self.sources) - trained

    @cached_property
    def ranked(self) -> tuple[Method, ...]:
        """The monitors that have a rank, best first."""
        return tuple(method for method in self.methods if method.rank is not None)

    @cached_property
    def expected(self) -> int:
        """How many triples a monitor must have to be ranked."""
        return sum(len(source.pairs) for source in self.counted)

    @property
    def judged(self) -> str:
        """The metric that monitors are ranked by: what their thresholds were chosen for."""
        return ACCURACY if float(self.aim["cost"]) == 1 else COST

    @cached_property
    def guesses(self) -> dict[str, float]:
        """What one gets who always accepts, or always rejects, whichever is better, by metric."""
        prior, cost = float(self.aim["prior"]), float(self.aim["cost"])
        return {ACCURACY: max(prior, 1 - prior), COST: min(1 - prior, prior * cost), "auroc": 0.5}

    @property
    def chance(self) -> float:
        """The guess by which monitors are judged."""
        return self.guesses[self.judged]

    @property
    def has_near(self) -> bool:
        """Some source says which sets are near."""
        return any(source.near for source in self.sources)

    @cached_property
    def monitor_costs(self) -> tuple[CostRow, ...]:
        """What each monitor cost, in the order of the ranking: the mean over `cost_sources`, or a row per source."""
        rows = sorted(self.costs, key=lambda row: self.labels.index(row.monitor))
        if not self.cost_sources:
            return tuple(rows)
        shared = {source.name for source in self.cost_sources}
        means = []
        for monitor, own in groupby(rows, key=lambda row: row.monitor):
            counted = [row for row in own if row.source in shared]
            numbers = ([getattr(row, name) for row in counted] for name in COSTS)
            means.append(CostRow(ALL, monitor, *(math.fsum(values) / len(values) for values in numbers)))
        return tuple(means)

    @cached_property
    def cost_sources(self) -> tuple[Source, ...]:
        """The sources that all monitors with a cost have in common: costs over different ones do not compare.

        Undertrained ones are left out, unless there is no other.
        """
        known = {(row.source, row.monitor) for row in self.costs}
        labels = {row.monitor for row in self.costs}
        return _counted(tuple(s for s in self.sources if all((s.name, label) in known for label in labels)))


def load_od_test(path: str | Path, facts: Facts) -> OdTestFacts:
    """Read the tables of an OD-test."""
    run, what = Path(path), facts.record.protocols[NAME]
    rows, thresholds = _rows(run, table_specs.TRIPLES), table_specs.THRESHOLDS
    subjects = Subjects(
        {name: (part.cases, Context.model_validate(part.context)) for name, part in what.sources.items()}
    ).all
    settings = Settings.model_validate(what.settings)
    competence = _rows(run, table_specs.COMPETENCE)
    return OdTestFacts(
        sources=tuple(_source(subject, facts, competence) for subject in subjects),
        sets=tuple(dict.fromkeys(name for row in rows for name in (row["valid_set"], row["test_set"]))),
        means=_by_monitor(_rows(run, table_specs.METHODS)),
        alone=_by_monitor(_rows(run, table_specs.UNSUPERVISED_METHODS)),
        architectures=_by_monitor(_rows(run, table_specs.ARCHITECTURES), "architecture"),
        triples={
            (row["source"], row["monitor"], row["valid_set"], row["test_set"]): _cell(row)
            for row in rows
            if row["metric"] == ACCURACY
        },
        costs=tuple(
            CostRow(row["source"], row["monitor"], *(number_of(row.get(name)) for name in COSTS))
            for row in _rows(run, table_specs.TIMING)
        ),
        lost=tuple(Lost(**row) for row in _rows(run, table_specs.MISSING)),
        aim={name: getattr(settings, name) for name in AIM},
        rejected=tuple(
            Rejected(row["source"], row["monitor"], number_of(row["achieved"]), row["images"], row["tied"])
            for row in (_rows(run, thresholds) if has_table(run, thresholds.name) else ())
        ),
        differs={
            label: note.differs_from_paper
            for subject in subjects
            for label, note in subject.context.monitors.items()
            if note.differs_from_paper
        },
    )


def _by_monitor(rows: list[Row], of: str = "source") -> dict[tuple[str, str, str, str], Estimate]:
    return {(row[of], row[DISTANCE], row["monitor"], row["metric"]): _cell(row) for row in rows}


def _cell(row: Row) -> Estimate:
    """A row of triples, whose n are images, or of means, whose n are triples."""
    return estimate_of({"n": row.get("triples"), "groups": row.get("clusters"), **row})


def _rows(run: Path, table: TableSpec) -> list[Row]:
    """The rows of a table; `source` is what tells them apart: a source, its model, or both."""
    rows = read_rows(run, table.name, None)
    for row in rows:
        model = row.pop("model", None)
        if model is not None:
            both = "source" in row and row["source"] != ALL
            row["source"] = f"{row['source']}/{model}" if both else model
    return rows


def _source(subject: Subject, facts: Facts, competence: list[Row]) -> Source:
    context = subject.context
    own = [row for row in competence if row["source"] == subject.label]
    return Source(
        name=subject.label,
        architecture=context.architectures[subject.model],
        undertrained=any(row["undertrained"] for row in own),
        classes=context.classes,
        size=" x ".join(map(str, context.size)),
        near=tuple(context.near),
        images=context.images,
        accuracy={row["part"]: _cell(row) for row in own},
        failed=subject.failed(lambda asked: facts.record.cases[asked.case].reason),
        networks=tuple(context.networks.get(subject.model, ())),
    )


def _counted(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    return tuple(source for source in sources if not source.undertrained) or sources


def rank_monitors(
    means: Mapping[tuple[str, str, str, str], Estimate],
    triples: Mapping[tuple[str, str, str, str], Estimate],
    counted: tuple[Source, ...],
    judged: str = ACCURACY,
) -> tuple[Method, ...]:
    """Monitors by the mean they are judged by, the best first.

    Those without a value for every triple that counts have no rank, and come last.
    """
    expected = {triple for source in counted for triple in source.pairs}
    overall = {key[2]: cell for key, cell in means.items() if key[:2] == (ALL, ALL) and key[3] == judged}
    counts = Counter(
        label for (source, label, *pair), cell in triples.items() if not cell.missing and (source, *pair) in expected
    )
    lacks = {label for label in overall if counts[label] < len(expected)}
    sign = 1.0 if find_metric(judged, METRICS).higher_is_better is False else -1.0
    order = sorted(overall, key=lambda label: math.inf if overall[label].missing else sign * overall[label].value)
    ranked = [label for label in order if label not in lacks]
    needed = plural(len(expected), "triple")
    return (
        *(Method(label, rank) for rank, label in enumerate(ranked, start=1)),
        *(Method(label, None, f"{whole(counts[label])} of {needed} only") for label in order if label in lacks),
    )


def by_subject(test: OdTestFacts, facts: Facts) -> Facts:
    """The facts with the names that rows have for models, which may be those of their sources."""
    known = {network.hash: network for network in facts.networks}
    networks = [
        replace(known[hash_], system=source.name)
        for source in test.sources
        for hash_ in source.networks
        if hash_ in known
    ]
    return replace(facts, models=tuple(source.name for source in test.sources), networks=tuple(networks))
