"""Mean and scatter over repeats: a metric on average, and one standard deviation over repeats to either side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, stdev

from roadworthy.core.grouping import grouped
from roadworthy.protocols.classification.facts import ClassificationFacts
from roadworthy.protocols.classification.table_specs import NAME, REPEATS
from roadworthy.protocols.repeat_analysis.facts import Differences
from roadworthy.protocols.repeat_analysis.figures import value_axis_range
from roadworthy.report import drawing
from roadworthy.report.facts import CLEAN, Condition, defined
from roadworthy.report.reading import number_of, read_rows
from roadworthy.report.words import number, words_of
from roadworthy.statistics import Estimate


@dataclass(frozen=True)
class RepeatScatter:
    """The metrics that repeats were analysed by, and their value in every repeat, by metric, model and condition."""

    metrics: tuple[str, ...]
    values: Mapping[tuple[str, str, Condition], tuple[float, ...]]

    def estimate(self, metric: str, model: str, conditions: Sequence[Condition]) -> Estimate:
        """The mean over conditions, its mean over repeats, and one standard deviation over repeats to either side."""
        values = [self.values[metric, model, c] for c in conditions if (metric, model, c) in self.values]
        averages = [fmean(d) for d in map(defined, zip_longest(*values, fillvalue=math.nan)) if d]
        if not averages:
            return Estimate(math.nan, reason="no repeat has a value")
        mean, sd = fmean(averages), stdev(averages) if len(averages) > 1 else math.nan
        return Estimate(mean, mean - sd, mean + sd, n=len(averages), sd=sd)


def load_scatter(run: Path, source: str | None, differences: Differences | None) -> RepeatScatter | None:
    """The repeats that the stored analyses of shifts rest on; None where there are none."""
    questions = differences.questions if differences else ()
    metrics = tuple(analysis.metric for q in questions if q.name == NAME for analysis in q.analyses)
    if not metrics:
        return None
    rows = sorted(read_rows(run, REPEATS.name, source), key=lambda row: row["repeat"])
    conditions = [Condition(row["shift"], int(row["level"])) if row["level"] else CLEAN for row in rows]
    return RepeatScatter(
        metrics,
        grouped(
            ((row["metric"], row["model"], condition), number_of(row["value"]))
            for row, condition in zip(rows, conditions, strict=True)
        ),
    )


def scatter_charts(scatter: RepeatScatter | None, facts: ClassificationFacts) -> drawing.Charts:
    """Every chart by the id of its element; none where nothing was repeated."""
    if scatter is None or not facts.shifts:
        return {}
    charts: drawing.Charts = {"scatter-level": [scatter_by_level(scatter, facts, metric) for metric in scatter.metrics]}
    levels = {"scatter-shift": facts.levels}
    if len(facts.levels) > 1:
        levels |= {f"scatter-shift-{level}": (level,) for level in facts.levels}
    for name, shown in levels.items():
        charts[name] = [scatter_by_shift(scatter, facts, metric, shown) for metric in scatter.metrics]
    return charts


def scatter_by_level(scatter: RepeatScatter, facts: ClassificationFacts, metric: str) -> drawing.View:
    """A metric undisturbed and at each level, the mean over shifts, with its standard deviation over repeats."""
    columns = {"undisturbed": [CLEAN]} | {
        f"level {level}": [c for c in facts.conditions if c.level == level] for level in facts.levels
    }
    return _view(scatter, facts, metric, columns)


def scatter_by_shift(
    scatter: RepeatScatter, facts: ClassificationFacts, metric: str, levels: Sequence[float]
) -> drawing.View:
    """A metric under each shift, the mean over the levels, with its standard deviation over repeats."""
    columns = {shift: [c for c in facts.conditions if c.shift == shift and c.level in levels] for shift in facts.shifts}
    return _view(scatter, facts, metric, columns)


def _view(
    scatter: RepeatScatter, facts: ClassificationFacts, metric: str, columns: dict[str, list[Condition]]
) -> drawing.View:
    traces = []
    dodge = 0.4 / max(len(facts.models), 2)
    for model_index, model in enumerate(facts.models):
        cells = [scatter.estimate(metric, model, averaged) for averaged in columns.values()]
        colour, symbol = drawing.look(model_index)
        offset = dodge * (model_index - (len(facts.models) - 1) / 2)
        traces.append(
            drawing.trace(
                "scatter",
                [
                    f"<b>{drawing.text(facts.named(model))}</b>, {drawing.text(name)}<br>{_hover_text(metric, cell)}"
                    for name, cell in zip(columns, cells, strict=True)
                ],
                mode="markers",
                x=[column + offset for column in range(len(columns))],
                y=[drawing.plain(cell.value) for cell in cells],
                error_y=drawing.whiskers(cells) | {"width": 3, "color": colour},
                marker={"color": colour, "size": 7, "symbol": symbol},
            )
        )
    layout = drawing.layout_of(height=230, margin={"l": 46, "r": 8, "t": 8, "b": 30})
    layout["xaxis"] = drawing.names_axis(list(columns), 12, range=[-0.6, len(columns) - 0.4], tickangle=-40)
    conditions = (CLEAN, *facts.conditions)
    cells = [scatter.estimate(metric, model, [condition]) for model in facts.models for condition in conditions]
    ticks = {"tickformat": drawing.tick_format(metric), "nticks": 6}
    layout["yaxis"] = {"range": value_axis_range(cells), **ticks, **drawing.VALUE_AXIS}
    return drawing.view(words_of(metric).label, traces, layout)


def _hover_text(metric: str, cell: Estimate) -> str:
    if cell.missing:
        return f"no value: {drawing.text(cell.reason)}"
    sd = "one repeat" if math.isnan(cell.sd) else f"sd {number(metric, cell.sd)} over {cell.n} repeats"
    return f"{words_of(metric).label} {number(metric, cell.value)}<br>{sd}"
