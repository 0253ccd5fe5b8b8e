"""What a measure is: the metrics it gives, the tables it adds, and how both follow from what a run has stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from roadworthy.core.tables import TableSpec
from roadworthy.metrics import Metric
from roadworthy.protocols.dependability.bounds import Bounded, over_objects
from roadworthy.protocols.dependability.context import Resolved
from roadworthy.protocols.dependability.names import TEST, FigureKey
from roadworthy.protocols.dependability.settings import Settings
from roadworthy.protocols.dependability.stored import StoredData

Row = dict[str, Any]


@dataclass
class Results:
    """What the measures have given so far.

    figures  the rows of the protocol's table, each a function of the confidence
    rows     of the companion tables; a row may hold more than the columns of its table: what pictures need
    missing  why figures have no value, by model and metric
    """

    figures: dict[FigureKey, Bounded] = field(default_factory=dict)
    rows: dict[TableSpec, list[Row]] = field(default_factory=lambda: defaultdict(list))
    missing: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(
        self, model: str, scope: str, metric: str, objects: NDArray[Any], estimate: Bounded, data: str = TEST
    ) -> None:
        """Add a figure over images of the test or training data that show these objects, (n,)."""
        self.figures[FigureKey(model, scope, metric, data)] = over_objects(estimate, objects)

    def rows_of(self, table: TableSpec, model: str) -> list[Row]:
        """The rows of a companion table that belong to a model."""
        return [row for row in self.rows[table] if row["model"] == model]


@dataclass(frozen=True)
class BeforeRun:
    """What is known before a run that says which figures a model will have.

    transformers  the labels of those that it will be shown
    """

    resolved: Resolved
    class_names: Sequence[str]
    transformers: Sequence[str]


class Step:
    """A measure or a search: it adds companion tables."""

    tables: ClassVar[tuple[TableSpec, ...]] = ()

    def first_columns(self, resolved: Resolved) -> Sequence[str]:
        """The columns before those declared, in all of its tables: those that depend on the study."""
        return ()


class Measure(Step, ABC):
    """One of the eight measures, or what extends one. It keeps nothing: all it needs is handed to it.

    metrics  its own, in the order of the table
    of_data  True where it speaks of the data alone: it is asked once, for the model `data`
    """

    metrics: ClassVar[tuple[Metric, ...]] = ()
    of_data: ClassVar[bool] = False

    def metrics_of(self, settings: Settings) -> tuple[Metric, ...]:
        """The metrics that it gives in a study with these settings."""
        return self.metrics

    def scopes(self, before: BeforeRun) -> dict[str, list[str]]:
        """The scopes that each of its metrics will have for a model, by metric."""
        return {}

    @abstractmethod
    def measure(self, data: StoredData, results: Results, model: str) -> None:
        """Add the figures and rows of a model to the results, or why there are none."""


class Search(Step, ABC):
    """What looks for something in the stored data. No figure rests on it, so it is asked for its one table alone."""

    @abstractmethod
    def rows(self, data: StoredData) -> Iterator[Row]:
        """The rows of its table."""
