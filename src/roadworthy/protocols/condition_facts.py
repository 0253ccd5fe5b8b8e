"""The user's conditions in the report: which columns of the data figures are broken down by, and a chart by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.tables import TableSpec
from roadworthy.metrics import Metric
from roadworthy.report import drawing
from roadworthy.report.reading import has_table, read_rows
from roadworthy.report.words import plural, words_of
from roadworthy.statistics import Estimate

ALL_IMAGES = "all images"
DODGE = 0.6
"""The share of a row's height over which its marks are spread."""


@dataclass(frozen=True)
class ConditionColumn:
    """A column of the data: by how many values figures are broken down, or why they are not.

    images, without  how many images have a value of it, and how many lack one
    """

    name: str
    values: int
    images: int
    without: int
    reason: str

    def sentence(self) -> str:
        """What to know of it: images without a value, or why it is left out; empty where nothing."""
        if self.reason:
            return f"{self.name} is left out: {self.reason}."
        if not self.without:
            return ""
        lacking = f"{plural(self.without, 'image')} without a value of {self.name}"
        return f"{lacking} {'is' if self.without == 1 else 'are'} in no slice of it."


def load_columns(run: Path, spec: TableSpec, source: str | None) -> tuple[ConditionColumn, ...]:
    """The columns of the data; none in a run of data without conditions, or of a version before there were any."""
    rows = read_rows(run, spec.name, source) if has_table(run, spec.name) else []
    return tuple(
        ConditionColumn(
            name=row["condition"],
            values=int(row["values"] or 0),
            images=int(row["images"] or 0),
            without=int(row["images_without"] or 0),
            reason=row["reason"] or "",
        )
        for row in rows
    )


@dataclass(frozen=True)
class Marks:
    """What a chart by value shows of one model: an estimate per value, `hollow` or filled, with what it is of."""

    model: int
    name: str
    about: str
    cells: Mapping[str, Estimate]
    hollow: bool = False


def value_chart(
    title: str, metric: Metric | str, values: Sequence[str], series: Sequence[Marks], shown: tuple[float, float]
) -> drawing.View:
    """A metric by the values of a condition, from the top, with bounds; each value with its images and objects.

    shown  the lowest and the highest value of the axis, so that the charts of several conditions compare
    """
    traces = []
    for position, marks in enumerate(series):
        offset = DODGE * ((position + 0.5) / len(series) - 0.5)
        colour, symbol = drawing.look(marks.model)
        cells = [marks.cells[value] for value in values]
        hover = [
            drawing.hover_text(marks.name, f"{value}, {marks.about}", metric, cell)
            for value, cell in zip(values, cells, strict=True)
        ]
        look = {"size": 9, "symbol": f"{symbol}-open" if marks.hollow else symbol, "line": {"width": 2}}
        traces.append(drawing.marks(cells, [row + offset for row in range(len(values))], hover, colour, **look))
    row_height = max(14 * len(series) + 12, 40)
    layout = drawing.layout_of(height=64 + row_height * len(values), margin={"l": 8, "r": 14, "t": 8, "b": 40})
    layout["xaxis"] = {
        "range": drawing.padded(*shown),
        "tickformat": drawing.tick_format(metric),
        "nticks": 6,
        "tickangle": 0,
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title(words_of(metric).label),
    }
    names = [_named(value, [marks.cells[value] for marks in series]) for value in values]
    layout["yaxis"] = drawing.names_axis(values, range=[len(values) - 0.5, -0.5]) | {"ticktext": names}
    return drawing.view(title, traces, layout)


def range_of(series: Iterable[Marks]) -> tuple[float, float]:
    """The lowest and the highest value or bound of all marks."""
    ends = drawing.ends_of(cell for marks in series for cell in marks.cells.values())
    return min(ends), max(ends)


def _named(value: str, cells: Sequence[Estimate]) -> str:
    """A value with how many images and objects show it; these are the same for all models that answered."""
    most = max(cells, key=lambda cell: cell.n)
    size = f"{plural(most.n, 'image')}, {plural(most.groups, 'object')}"
    return f'{drawing.short_text(value)}<br><span style="font-size:10px;color:{drawing.MUTED}">{size}</span>'
