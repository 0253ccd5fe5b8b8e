"""The ranking of an OD-test and what it rests on: sources, monitors with their ranks, what has no value, and costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

from roadworthy.metrics import find_metric
from roadworthy.protocols.od_test.metrics import METRICS
from roadworthy.protocols.od_test.names import ACCURACY, ALL
from roadworthy.report.words import listing, plural, whole
from roadworthy.statistics import Estimate


@dataclass(frozen=True)
class Source:
    """A source with its network: clean accuracy on each part of its data, and why monitors failed there.

    domain     the source itself, where `name` names one of its models too
    weak_fits  monitors with networks of their own below their floor, each with the D_v that a fit is for ('' for all)
    """

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
    domain: str = ""
    weak_fits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def has_weak_fit(self, monitor: str, valid_set: str) -> bool:
        """Whether a monitor's answers to a triple come from networks of its own that are below their floor."""
        return not {"", valid_set}.isdisjoint(self.weak_fits.get(monitor, ()))

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
    peak_bytes: float = math.nan

    @property
    def label(self) -> str:
        """The monitor, with its source where it is that of one."""
        return self.monitor if self.source == ALL else f"{self.monitor}, {self.source}"


def counted_sources(sources: tuple[Source, ...]) -> tuple[Source, ...]:
    """The sources that are not undertrained, or all where none is."""
    return tuple(source for source in sources if not source.undertrained) or sources


def rank_monitors(
    means: Mapping[tuple[str, str, str, str], Estimate],
    triples: Mapping[tuple[str, str, str, str], Estimate],
    counted: tuple[Source, ...],
    judged: str = ACCURACY,
) -> tuple[Method, ...]:
    """Monitors by the mean they are judged by, the best first.

    Those without a value for every triple that counts have no rank, and come last; so do those with networks of their
    own that are below their floor at a source that counts.
    """
    expected = {triple for source in counted for triple in source.pairs}
    overall = {key[2]: cell for key, cell in means.items() if key[:2] == (ALL, ALL) and key[3] == judged}
    by_name = {source.name: source for source in counted}
    counts = Counter(
        label
        for (source, label, *pair), cell in triples.items()
        if not cell.missing and (source, *pair) in expected and not by_name[source].has_weak_fit(label, pair[0])
    )
    lacks = {label for label in overall if counts[label] < len(expected)}
    sign = 1.0 if find_metric(judged, METRICS).higher_is_better is False else -1.0
    order = sorted(overall, key=lambda label: math.inf if overall[label].missing else sign * overall[label].value)
    ranked = [label for label in order if label not in lacks]
    needed = plural(len(expected), "triple")
    return (
        *(Method(label, rank) for rank, label in enumerate(ranked, start=1)),
        *(Method(label, None, _why(label, counts[label], needed, counted)) for label in order if label in lacks),
    )


def _why(label: str, count: int, needed: str, counted: tuple[Source, ...]) -> str:
    """Why a monitor has no rank."""
    weak = listing([source.name for source in counted if label in source.weak_fits])
    return f"{whole(count)} of {needed} only" + (f", undertrained at {weak}" if weak else "")
