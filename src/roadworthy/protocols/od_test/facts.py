"""What an OD-test says, from its stored tables: sources, means, triples, costs and the ranking of monitors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from roadworthy.protocols.od_test.findings import Findings
from roadworthy.protocols.od_test.names import ACCURACY, ALL, ANY, COST, judged_metric
from roadworthy.protocols.od_test.ranking import (
    COSTS,
    CostRow,
    Lost,
    Method,
    Rejected,
    Source,
    counted_sources,
    rank_monitors,
)
from roadworthy.report.facts import NOT_RUN, defined
from roadworthy.report.words import MISSING, bounds, listing, number, whole
from roadworthy.statistics import Estimate


@dataclass(frozen=True)
class OdTestFacts:
    """What an OD-test says.

    means          by (source or `all`, near, far or `all`, monitor, metric);  alone: the same without D_v
    rejected       what the thresholds without D_v reject; none where an earlier version wrote the run
    differs        by monitor, what is other than in its paper; the same holds
    architectures  as means, by architecture in place of source
    triples        the accuracy of every triple by (source, monitor, D_v, D_t)
    asking_none    monitors that ask no model: each has one answer per source, whatever the models
    findings       what the tables beyond the matrix say
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
    asking_none: frozenset[str] = frozenset()
    findings: Findings = field(default_factory=Findings)

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
        triples = [(source.name, monitor, valid_set, test_set) for source in self.sources_of(monitor, valid_set)]
        known = defined(self.triples[triple].value for triple in triples if triple in self.triples)
        return Estimate(math.fsum(known) / len(known), n=len(known)) if known else self._absent(monitor)

    def sources_of(self, monitor: str, valid_set: str) -> list[Source]:
        """The sources that count in a mean of a monitor calibrated with D_v, one model of each where it asks none."""
        trained = [source for source in self.counted if not source.has_weak_fit(monitor, valid_set)]
        sources = trained or [*self.counted]
        if monitor not in self.asking_none:
            return sources
        return [*{source.domain: source for source in reversed(sources)}.values()]

    @cached_property
    def differences(self) -> dict[str, list[str]]:
        """What differs from a paper, each with the monitors that it holds for, in the order of the ranking."""
        known: dict[str, list[str]] = {}
        for label in self.labels:
            if label in self.differs:
                known.setdefault(self.differs[label], []).append(label)
        return known

    @cached_property
    def undertrained_monitors(self) -> dict[str, tuple[str, ...]]:
        """The monitors with networks of their own below their floor, each with the sources where they are.

        Of the sources that count: one whose model is undertrained is left out with all of its monitors anyway.
        """
        weak: dict[str, list[str]] = {}
        for source in self.counted:
            for label in source.weak_fits:
                weak.setdefault(label, []).append(source.name)
        return {label: tuple(names) for label, names in weak.items()}

    def marked(self, monitor: str) -> str:
        """A monitor's name, with a mark where networks of its own are undertrained."""
        return f"{monitor} (undertrained)" if monitor in self.undertrained_monitors else monitor

    @cached_property
    def counted_once(self) -> frozenset[str]:
        """The monitors that count once per source where models of a source count apart."""
        domains = [source.domain for source in self.counted]
        return self.asking_none if len({*domains}) < len(domains) else frozenset()

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
        return counted_sources(self.sources)

    @cached_property
    def architecture_names(self) -> tuple[str, ...]:
        """The architectures, where there are several; `any` last, where monitors stand under it."""
        names = tuple(dict.fromkeys(source.architecture for source in self.sources))
        without = (ANY,) if any(name == ANY for name, *_ in self.architectures) else ()
        return (*names, *without) if len(names) > 1 else ()

    def labels_of(self, architecture: str) -> list[str]:
        """The monitors that stand under an architecture, in the order of the ranking."""
        under_any = {label for name, _, label, _ in self.architectures if name == ANY}
        return [label for label in self.labels if (label in under_any) == (architecture == ANY)]

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
        return judged_metric(float(self.aim["cost"]))

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
        return counted_sources(tuple(s for s in self.sources if all((s.name, label) in known for label in labels)))
