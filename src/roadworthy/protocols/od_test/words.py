"""OD-test in words: the ranking of monitors, what it rests on and what it does not say, from the stored tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

from roadworthy.core.tables import TableSpec
from roadworthy.metrics import Metric, find_metric
from roadworthy.protocols.base import Part
from roadworthy.protocols.od_test import table_specs, tables
from roadworthy.protocols.od_test.evaluation import ACCURACY, ALL, COST, FAR, NAME, NEAR
from roadworthy.protocols.od_test.metrics import METRICS
from roadworthy.protocols.od_test.settings import Context, Settings
from roadworthy.report.facts import NOT_RUN, Facts, bounded, defined, estimate_of
from roadworthy.report.frame import undertrained_words
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.report.words import MISSING, bounds, listing, number, plural, whole
from roadworthy.statistics import Estimate

FLOOR = "random"
"""The monitor that is blind to the image."""
BEST = 3


def metric_words(metric: str) -> Metric:
    """A metric as OD-test means it.

    >>> metric_words("expected_cost").label, metric_words("fpr95_in").label
    ('Expected cost', 'FPR95-in: outliers accepted')
    """
    return find_metric(metric, METRICS)


def better(metric: str) -> str:
    """`higher` or `lower`, whichever is better.

    >>> better("expected_cost"), better("auroc")
    ('lower', 'higher')
    """
    return "lower" if metric_words(metric).higher_is_better is False else "higher"


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
    """A monitor's place: its rank by mean accuracy, or why it has none."""

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


COSTS = ("build_seconds", "seconds_per_image", "state_bytes", "bytes_per_image")


@dataclass(frozen=True)
class CostRow:
    """What a monitor cost at one source; NaN where that was done in a session that was stopped, and so not timed."""

    source: str
    monitor: str
    build_seconds: float
    seconds_per_image: float
    state_bytes: float
    bytes_per_image: float

    @property
    def label(self) -> str:
        """The monitor, with its source where it is that of one."""
        return self.monitor if self.source == ALL else f"{self.monitor}, {self.source}"


def cost_text(value: float) -> str:
    """Three digits of a cost; n/a where it is not known."""
    return "n/a" if math.isnan(value) else f"{value:.3g}"


@dataclass(frozen=True)
class OdTest:
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
        return _ranking(absent | {**self.means}, self.triples, self.counted, self.judged)

    @cached_property
    def labels(self) -> list[str]:
        """The names of the monitors, in that order."""
        return [method.label for method in self.methods]

    @cached_property
    def metrics(self) -> list[str]:
        """All metrics, the one that monitors are ranked by first."""
        return [*dict.fromkeys([self.judged, *(metric for *_, metric in self.means)])]

    def mean(self, monitor: str, metric: str = ACCURACY, source: str = ALL, ood: str = ALL) -> Estimate:
        """A monitor's mean."""
        return self.means.get((source, ood, monitor, metric), self._absent(monitor, source))

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
        places = [(source.name, monitor, valid_set, test_set) for source in self.counted]
        known = defined(self.triples[place].value for place in places if place in self.triples)
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
        found: dict[str, dict[str, list[str]]] = {}
        for source in self.sources:
            for label, reason in source.failed.items():
                found.setdefault(label, {}).setdefault(reason, []).append(source.named)
        return {
            label: "; ".join(f"failed at {listing(names)}: {reason}" for reason, names in reasons.items())
            for label, reasons in found.items()
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


def load_od_test(path: str | Path, facts: Facts) -> OdTest:
    """Read the tables of an OD-test."""
    run, what = Path(path), facts.record.protocols[NAME]
    rows, thresholds = _rows(run, table_specs.TRIPLES), table_specs.THRESHOLDS
    subjects = tables.Subjects(
        [Part(name, part.cases, Context.model_validate(part.context), ()) for name, part in what.sources.items()]
    ).all
    competence = _rows(run, table_specs.COMPETENCE)
    return OdTest(
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
            CostRow(row["source"], row["monitor"], *(number_of(row[name]) for name in COSTS))
            for row in _rows(run, table_specs.TIMING)
        ),
        lost=tuple(Lost(**row) for row in _rows(run, table_specs.MISSING)),
        aim=asdict(Settings.model_validate(what.settings).aim),
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
    return {(row[of], row["ood"], row["monitor"], row["metric"]): _cell(row) for row in rows}


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


def _source(subject: tables.Subject, facts: Facts, competence: list[Row]) -> Source:
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


def _ranking(
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
    sign = -1.0 if better(judged) == "higher" else 1.0
    order = sorted(overall, key=lambda label: math.inf if overall[label].missing else sign * overall[label].value)
    ranked = [label for label in order if label not in lacks]
    needed = plural(len(expected), "triple")
    return (
        *(Method(label, place) for place, label in enumerate(ranked, start=1)),
        *(Method(label, None, f"{whole(counts[label])} of {needed} only") for label in order if label in lacks),
    )


def sentences(found: OdTest) -> Iterator[str]:
    """What came out, in sentences."""
    judged = found.judged
    best = _best(found)
    if best:
        first = f"{better(judged).removesuffix('er')}est mean {metric_words(judged).label.lower()}"
        yield f"The {first}: {listing(best)}. Guessing gives {number(judged, found.chance)}."
    else:
        yield (
            f"No monitor is ranked: none has a value for all of {plural(found.expected, 'triple')}, and means over "
            "different triples do not compare."
        )
    poor = [m.label for m in found.ranked if m.label != FLOOR and not _beats(found.mean(m.label, judged), found)]
    if poor:
        reached = number(judged, found.chance)
        yield f"Not clearly better than guessing (the interval reaches {reached}): {listing(poor)}."
    means = [found.mean(method.label, judged) for method in found.ranked[:2]]
    if len(means) > 1 and means[0].lo <= means[1].value <= means[0].hi:
        yield (
            "The second lies within the interval of the first: another choice of data sets could order them otherwise."
        )
    leader = found.ranked[0].label if found.ranked else ""
    counted = {source.name for source in found.counted}
    own = [(k, c) for k, c in found.triples.items() if k[1] == leader and k[0] in counted and not c.missing]
    worst = min(own, key=lambda entry: entry[1].value, default=None)
    if worst is not None:
        (source, monitor, valid_set, test_set), cell = worst
        yield (
            f"The lowest accuracy of a single triple of the best monitor: {number(ACCURACY, cell.value)} for {source}, "
            f"calibrated with {valid_set} and tested with {test_set} ({monitor})."
        )
    if found.has_near:
        near, far = found.mean(leader, ood=NEAR), found.mean(leader, ood=FAR)
        if not near.missing and not far.missing:
            yield (
                f"Of {leader}: {number(ACCURACY, near.value)} on outliers near to their source, "
                f"{number(ACCURACY, far.value)} on far ones."
            )
    yield from _troubles(found)


def _best(found: OdTest) -> list[str]:
    judged = found.judged
    return [f"{m.label} {bounded(judged, found.mean(m.label, judged))}" for m in found.ranked[:BEST]]


def _beats(cell: Estimate, found: OdTest) -> bool:
    """Whether a mean is better than guessing by its interval."""
    return cell.lo > found.chance if better(found.judged) == "higher" else cell.hi < found.chance


def _troubles(found: OdTest) -> Iterator[str]:
    """Every monitor that failed, or has no value for single triples, and why."""
    yield from (f"{label} {why}" for label, why in found.failures.items())
    single: dict[str, list[Lost]] = {}
    for lost in found.lost:
        if ALL not in (lost.monitor, lost.valid_set, lost.test_set):
            single.setdefault(lost.monitor, []).append(lost)
    for label, (first, *others) in single.items():
        yield (
            f"{label} has no value for {plural(1 + len(others), 'triple')}{', the first' if others else ''} at "
            f"{first.source}, {first.valid_set} to {first.test_set}: {first.reason}"
        )


def headline(found: OdTest, facts: Facts) -> list[str]:
    """Lines for a terminal: the best monitors, what has no value, each monitor that failed, undertrained networks."""
    judged = found.judged
    missing = sum(lost.triples for lost in found.lost)
    left = f"; {plural(missing, 'triple')} without a value" if missing else ""
    counts = len(found.counted) == len(found.sources)
    what = "ranked all the same, as there is no other" if counts else "left out of the ranking and of means"
    weak = [f"Undertrained, {what}: {undertrained_words(facts)}"] if facts.undertrained else []
    return [
        f"Mean {metric_words(judged).label.lower()} over {plural(found.expected, 'triple')} "
        f"(guessing {number(judged, found.chance)}): "
        f"{', '.join(_best(found)) or 'no monitor has a value for every triple, so none is ranked'}",
        f"Monitors: {len(found.methods)}, {len(found.ranked)} of them ranked{left}",
        *_troubles(found),
        *found.ties,
        *weak,
    ]


def by_subject(found: OdTest, facts: Facts) -> Facts:
    """The facts with the names that rows have for models, which may be those of their sources."""
    known = {network.hash: network for network in facts.networks}
    networks = [
        replace(known[hash_], system=source.name)
        for source in found.sources
        for hash_ in source.networks
        if hash_ in known
    ]
    return replace(facts, models=tuple(source.name for source in found.sources), networks=tuple(networks))
