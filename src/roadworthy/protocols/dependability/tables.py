"""Evidence of dependability: asks each measure in turn, and makes tables, measurements and pictures of the results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pandas as pd

from roadworthy.engine.plan import PlannedCase
from roadworthy.metrics import find_metric
from roadworthy.protocols import base
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.dependability import names, pictures
from roadworthy.protocols.dependability.bounds import Bounded, no_value
from roadworthy.protocols.dependability.context import Context
from roadworthy.protocols.dependability.measures import MEASURES, SEARCHES, STEPS, Results
from roadworthy.protocols.dependability.names import DATA, NAME, FigureKey, explained
from roadworthy.protocols.dependability.stored import StoredData
from roadworthy.protocols.dependability.table_specs import FIGURES, frame_of
from roadworthy.statistics.estimates import CONFIDENCE, RESAMPLES
from roadworthy.verdict import Criterion, Measurement


class Evidence(base.Evidence):
    """What a run says about dependability. Rows come in an order that depends on names alone."""

    def __init__(
        self,
        cases: Sequence[StoredCase],
        class_names: Sequence[str],
        context: Context,
        *,
        seed: int = 0,
        resamples: int = RESAMPLES,
    ) -> None:
        self.data = StoredData(cases, class_names, context, seed, resamples)
        self.keys = context.figures()

    @cached_property
    def results(self) -> Results:
        """What every measure gives for the data or for every model that answered."""
        results = Results()
        with explained():
            for measure in MEASURES:
                for model in [DATA] if measure.of_data else self.data.readouts:
                    measure.measure(self.data, results, model)
        return results

    @cached_property
    def figures(self) -> dict[FigureKey, Bounded]:
        """Every figure that was planned, measured or not, the data's first, then model by model."""
        order = [key for name in (DATA, *sorted(self.data.clean)) for key in self.keys if key.model == name]
        return {key: self.results.figures.get(key) or self._absent(key) for key in order}

    def _absent(self, key: FigureKey) -> Bounded:
        """A figure that no measure gave, with the reason."""
        lacking = "" if key.scope.startswith(names.class_scope("")) else self.data.no_conditions
        why = self.results.missing.get((key.model, key.metric)) or lacking or "no image of this scope"
        return no_value((key.model in self.data.clean and self.data.failure(key.model)) or why)

    def tables(self) -> dict[str, pd.DataFrame]:
        """One row per figure, and what the figures rest on."""
        figures = [
            figure(CONFIDENCE).row({"model": key.model, "scope": key.scope, "data": key.data}, key.metric)
            for key, figure in self.figures.items()
        ]
        with explained():
            searched = {search.tables[0]: list(search.rows(self.data)) for search in SEARCHES}
        rows, tables = self.results.rows | searched, {NAME: FIGURES.frame(figures)}
        for step in STEPS:
            for spec in step.tables:
                first_columns = step.first_columns(self.data.resolved)
                tables[spec.name] = frame_of(spec, rows.get(spec, []), first_columns)
        return tables

    def measure(self, criterion: Criterion, confidence: float) -> list[Measurement]:
        """A measurement per figure that matches."""
        return [
            Measurement(
                {"model": key.model, "scope": key.scope, "data": key.data},
                self.figures[key](confidence),
                proportion=find_metric(key.metric).proportion,
            )
            for key in names.select(self.keys, criterion, of_test_alone=self.data.context.of_test_alone)
        ]

    def pictures(self, cases: Sequence[PlannedCase], media: Path) -> dict[str, pd.DataFrame]:
        """Heat maps, the most expensive confusions and the images that lose most, worst first."""
        return pictures.save(self.data, self.results, cases, media)
