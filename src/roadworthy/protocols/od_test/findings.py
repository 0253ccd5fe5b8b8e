"""What an OD-test says beyond its matrix: the gap between two data sets and three, how stable the ranking is, and how
many images of D_v a calibration needs. Runs of an earlier version lack the tables, and so each of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.tables import TableSpec
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.names import ALL, GAP, GAP_FIGURES, SETTLED, THREE_DATASETS, TWO_DATASETS
from roadworthy.report.facts import NOT_RUN, estimate_of
from roadworthy.report.reading import Row, has_table, number_of
from roadworthy.statistics import Estimate

Read = Callable[[TableSpec], Sequence[Row]]


@dataclass(frozen=True)
class Gaps:
    """Accuracy with two data sets beside three.

    means  by (monitor, figure);  pairs: the two accuracies of each (source, monitor, D_v) that has both
    """

    means: Mapping[tuple[str, str], Estimate]
    pairs: Mapping[tuple[str, str, str], tuple[float, float]]

    def mean(self, monitor: str, figure: str) -> Estimate:
        """A monitor's mean of a figure."""
        return self.means.get((monitor, figure), NOT_RUN)

    def mean_at(self, monitor: str, sources: Sequence[str]) -> Estimate:
        """A monitor's mean accuracy with two data sets at some sources alone, without bounds."""
        known = [two for (source, label, _), (two, _) in self.pairs.items() if label == monitor and source in sources]
        return Estimate(math.fsum(known) / len(known), n=len(known)) if known else NOT_RUN


@dataclass(frozen=True)
class RankInterval:
    """The rank of a monitor with its interval; how many others are before it, after it, or neither, in 95 % of draws.

    `reason` says why there is no interval.
    """

    rank: int
    lo: float
    hi: float
    settled_before: int
    settled_after: int
    unsettled: int
    resamples: int
    reason: str = ""

    @property
    def estimate(self) -> Estimate:
        """The rank as an estimate."""
        return Estimate(float(self.rank), self.lo, self.hi, n=self.resamples, reason=self.reason)


@dataclass(frozen=True)
class Order:
    """How stable the order of the ranked monitors is: by (monitor, other) how often it is before, and ranks."""

    before: Mapping[tuple[str, str], float]
    ranks: Mapping[str, RankInterval]

    @property
    def is_known(self) -> bool:
        """Whether there was anything to resample."""
        return bool(self.before)

    def is_open(self, one: str, other: str) -> bool:
        """Whether neither of two monitors is settled to be before the other."""
        return 1 - SETTLED < self.before.get((one, other), 0.5) < SETTLED


@dataclass(frozen=True)
class Sizes:
    """Mean accuracy by (source or `all`, monitor) and the number of images of D_v."""

    means: Mapping[tuple[str, str], Mapping[int, Estimate]]

    @property
    def monitors(self) -> list[str]:
        """The monitors that have a curve over all sources, in the order of the table."""
        return [monitor for source, monitor in self.means if source == ALL]

    def of(self, monitor: str, source: str = ALL) -> Mapping[int, Estimate]:
        """A monitor's means by number of images."""
        return self.means.get((source, monitor), {})

    def needed(self, monitor: str, within: float, source: str = ALL) -> int | None:
        """The fewest images from which on the mean stays within a distance of the last; None where that is not known.

        >>> means = {10: Estimate(0.6), 25: Estimate(0.79), 50: Estimate(0.75), 60: Estimate(0.8)}
        >>> sizes = Sizes({("all", "msp"): means})
        >>> sizes.needed("msp", 0.01), sizes.needed("msp", 0.06), sizes.needed("odin", 0.01)
        (60, 25, None)
        """
        means = {images: cell.value for images, cell in self.of(monitor, source).items() if not cell.missing}
        if not means:
            return None
        last = means[max(means)]
        far = [images for images, value in means.items() if abs(value - last) > within + 1e-12]
        return min(images for images in means if images > max(far, default=0))


@dataclass(frozen=True)
class Findings:
    """What the further tables of a run say; None where a table is not there."""

    gaps: Gaps | None = None
    order: Order | None = None
    sizes: Sizes | None = None


def load_findings(run: Path, read: Read) -> Findings:
    """The further tables of a run; `read` gives the rows of a table."""

    def is_stored(*specs: TableSpec) -> bool:
        return all(has_table(run, spec.name) for spec in specs)

    gaps = (table_specs.GAP, table_specs.GAP_METHODS)
    order = (table_specs.STABILITY, table_specs.RANKS)
    return Findings(
        _gaps(*map(read, gaps)) if is_stored(*gaps) else None,
        _order(*map(read, order)) if is_stored(*order) else None,
        _sizes(read(table_specs.VALID_SIZE)) if is_stored(table_specs.VALID_SIZE) else None,
    )


def _gaps(pairs: Sequence[Row], means: Sequence[Row]) -> Gaps:
    both = {
        (row["source"], row["monitor"], row["valid_set"]): (
            number_of(row[TWO_DATASETS]),
            number_of(row[THREE_DATASETS]),
        )
        for row in pairs
        if not math.isnan(number_of(row[GAP]))
    }
    known = {(row["monitor"], row["figure"]): _mean(row) for row in means if row["figure"] in GAP_FIGURES}
    return Gaps(known, both)


def _order(pairs: Sequence[Row], ranks: Sequence[Row]) -> Order:
    counts = ("rank", "settled_before", "settled_after", "unsettled", "resamples")
    return Order(
        {(row["monitor"], row["other"]): float(row["before"]) for row in pairs},
        {
            row["monitor"]: RankInterval(
                **{name: int(row[name]) for name in counts},
                lo=number_of(row["lo"]),
                hi=number_of(row["hi"]),
                reason=row["reason"] or "",
            )
            for row in ranks
        },
    )


def _sizes(rows: Sequence[Row]) -> Sizes:
    means: dict[tuple[str, str], dict[int, Estimate]] = {}
    for row in rows:
        means.setdefault((row["source"], row["monitor"]), {})[int(row["images"])] = _mean(row)
    return Sizes(means)


def _mean(row: Row) -> Estimate:
    return estimate_of({**row, "n": row["triples"], "groups": row["clusters"]})
