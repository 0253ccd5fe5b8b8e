"""The networks of an OD-test, the models' own and those of monitors, from its stored tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roadworthy.core.competence import MEASURES
from roadworthy.core.grouping import grouped
from roadworthy.protocols.od_test import table_specs
from roadworthy.protocols.od_test.names import ACCURACY, ALL
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.report.words import MISSING, bounds, number, plural, whole

SAME = ("model", "monitors", "architecture", "loss", "figure", "floor", "weights")
"""What networks have in common that stand in one line: members of an ensemble, networks for one D_v each."""


@dataclass(frozen=True)
class OwnedNetwork:
    """A network: a row of the table, its source ('' where a study has one), and its seconds of training."""

    source: str
    row: Row
    seconds: float

    @property
    def figure(self) -> str:
        """What its competence is, in words."""
        return MEASURES.get(self.row["figure"], "")

    @property
    def competence(self) -> str:
        """How good it is against its floor, in words; why nothing is known where it is not."""
        value, floor = number_of(self.row["value"]), number_of(self.row["floor"])
        if math.isnan(value):
            return str(self.row["reason"])
        return f"{self.figure} {number(ACCURACY, value)}, floor {number(ACCURACY, floor)}"


@dataclass(frozen=True)
class NetworkLine:
    """Networks of one source that differ in their seed or D_v alone, as one line of the report."""

    networks: tuple[OwnedNetwork, ...]

    @property
    def first(self) -> OwnedNetwork:
        """The first of them, for what they have in common."""
        return self.networks[0]

    @property
    def owner(self) -> str:
        """Whose they are: the model's itself, or those of monitors, with their number where there are several."""
        row = self.first.row
        if not row["monitors"]:
            return "the model itself"
        count = len(self.networks)
        kind = "one per D_v" if any(network.row["fitted_on"] for network in self.networks) else "members"
        return str(row["monitors"]) + (f" ({count}, {kind})" if count > 1 else "")

    @property
    def model(self) -> str:
        """The model that they serve."""
        name = str(self.first.row["model"])
        return "every model" if name == ALL else name

    @property
    def value(self) -> str:
        """Their figure, from the lowest to the highest."""
        values = sorted(number_of(network.row["value"]) for network in self.networks)
        if math.isnan(values[0]):
            return MISSING
        return number(ACCURACY, values[0]) if values[0] == values[-1] else bounds(ACCURACY, values[0], values[-1])

    @property
    def floor(self) -> str:
        """The floor of their figure."""
        return number(ACCURACY, number_of(self.first.row["floor"]))

    @property
    def epochs(self) -> str:
        """How many epochs they were trained for."""
        known = sorted({int(e) for network in self.networks if not math.isnan(e := number_of(network.row["epochs"]))})
        return MISSING if not known else str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"

    @property
    def weights(self) -> str:
        """How many weights each of them has."""
        weights = number_of(self.first.row["weights"])
        return MISSING if math.isnan(weights) else whole(weights)

    @property
    def megabytes(self) -> str:
        """The size of all of them together."""
        return _sum(number_of(network.row["megabytes"]) for network in self.networks)

    @property
    def seconds(self) -> str:
        """The time of all trainings."""
        return _sum(network.seconds for network in self.networks)

    @property
    def undertrained(self) -> str:
        """How many of them are below their floor, in words; empty where none is."""
        below = sum(bool(network.row["undertrained"]) for network in self.networks)
        if not below:
            return ""
        return "undertrained" if len(self.networks) == 1 else f"{below} of {len(self.networks)} undertrained"

    @property
    def remarks(self) -> str:
        """What else is to be said: why there is no figure, that a budget ended the training."""
        return "; ".join(
            dict.fromkeys(str(network.row["reason"]) for network in self.networks if network.row["reason"])
        )


@dataclass(frozen=True)
class Networks:
    """All networks of a run; none where an earlier version wrote it."""

    all: tuple[OwnedNetwork, ...]

    @cached_property
    def lines(self) -> tuple[NetworkLine, ...]:
        """Those of one kind together, in the order of the table."""
        together = grouped(((n.source, *(str(n.row[name]) for name in SAME)), n) for n in self.all)
        return tuple(NetworkLine(tuple(some)) for some in together.values())

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources."""
        return tuple(dict.fromkeys(network.source for network in self.all))

    @property
    def words(self) -> str:
        """How many there are, and how many are below their floor."""
        below = sum(bool(network.row["undertrained"]) for network in self.all)
        return f"{plural(len(self.all), 'network')}, {below or 'none'} of them below the floor"

    def of_artifact(self, artifact: str) -> OwnedNetwork | None:
        """The network with this hash."""
        return next((network for network in self.all if network.row["artifact"] == artifact), None)


def load_networks(run: Path) -> Networks:
    """Read the table of networks, and how long they took to train."""
    if not has_table(run, table_specs.NETWORKS.name):
        return Networks(())
    timing = table_specs.TIMING_NETWORKS.name
    timed = read_rows(run, timing, None) if has_table(run, timing) else []
    seconds = {row["artifact"]: number_of(row["seconds"]) for row in timed}
    rows = read_rows(run, table_specs.NETWORKS.name, None)
    return Networks(
        tuple(OwnedNetwork(row.get("source", ""), row, seconds.get(row["artifact"], math.nan)) for row in rows)
    )


def _sum(values: Iterable[float]) -> str:
    total = math.fsum(values)
    return MISSING if math.isnan(total) else f"{total:.3g}" if total < 100 else whole(total)
