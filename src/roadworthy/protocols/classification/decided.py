"""How few images decided it: the cases of a run that ended once their criteria were decided, in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.grouping import grouped
from roadworthy.protocols.classification.facts import ClassificationFacts
from roadworthy.protocols.classification.table_specs import LOOKS, STOPPING
from roadworthy.report import drawing
from roadworthy.report.facts import Condition
from roadworthy.report.reading import Row, has_table, number_of, read_rows
from roadworthy.report.words import number, words_of
from roadworthy.statistics import Estimate

MOST_PATHS = 40
"""How many pictures of a decision the report holds, decided ones first, of these the longest."""


@dataclass(frozen=True)
class Ended:
    """One criterion on one case: how it was decided, after how many images, and how many the case was shown."""

    model: str
    condition: Condition
    criterion: str
    metric: str
    status: str
    after: int | None
    images: int
    of: int
    estimate: Estimate
    reason: str


@dataclass(frozen=True)
class DecisionPath:
    """The value and its bounds after so many images, for one criterion on one case."""

    name: str
    metric: str
    threshold: float
    points: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True)
class Stopping:
    """All of a run that was judged while answers came in."""

    rows: tuple[Ended, ...]
    paths: tuple[DecisionPath, ...]

    @property
    def judged(self) -> tuple[Ended, ...]:
        """The rows of criteria that were judged while answers came in."""
        return tuple(row for row in self.rows if row.criterion)

    def saving(self) -> str:
        """How many answers it took, of how many: `answers: 1,312 of 4,000, 3.0 times fewer`."""
        cases = {(row.model, row.condition): (row.images, row.of) for row in self.rows}
        images, of = (sum(counts) for counts in zip(*cases.values(), strict=True))
        fewer = f", {of / images:.1f} times fewer" if images < of else ": none was saved"
        return f"answers: {images:,} of {of:,}{fewer}"


def load_stopping(run: Path, facts: ClassificationFacts) -> Stopping | None:
    """What the tables say of it; None where everything was shown in full."""
    if not has_table(run, STOPPING.name):
        return None
    rows = tuple(_ended(row) for row in read_rows(run, STOPPING.name, facts.source))
    looks = grouped(
        ((row["model"], _condition(row), row["criterion"]), row) for row in read_rows(run, LOOKS.name, facts.source)
    )
    decided = {(row.model, row.condition, row.criterion) for row in rows if row.after}
    paths = {
        key: DecisionPath(
            f"{criterion}: {_case(facts, model, condition)}",
            points[0]["metric"],
            number_of(points[0]["threshold"]),
            tuple((int(point["images"]), _estimate(point)) for point in points),
        )
        for key, points in looks.items()
        for model, condition, criterion in [key]
    }
    order = sorted(paths, key=lambda key: (key not in decided, -paths[key].points[-1][0]))
    return Stopping(rows, tuple(paths[key] for key in order[:MOST_PATHS])) if rows else None


def _case(facts: ClassificationFacts, model: str, condition: Condition) -> str:
    return f"{facts.named(model)}, {condition}" if len(facts.models) > 1 else str(condition)


def _condition(row: Row) -> Condition:
    return Condition(row["shift"], int(row["level"]))


def _estimate(row: Row) -> Estimate:
    return Estimate(number_of(row["value"]), number_of(row["lo"]), number_of(row["hi"]))


def _ended(row: Row) -> Ended:
    after = number_of(row["decided_after"])
    return Ended(
        model=row["model"],
        condition=_condition(row),
        criterion=row["criterion"] or "",
        metric=row["metric"] or "",
        status=row["status"] or "",
        after=int(after) if after == after else None,
        images=int(row["images"]),
        of=int(row["of"]),
        estimate=_estimate(row),
        reason=row["reason"] or "",
    )


def stopping_charts(stopping: Stopping | None) -> drawing.Charts:
    """The chart of decisions by the id of its element; none where nothing was judged while answers came in."""
    if stopping is None or not stopping.paths:
        return {}
    return {"decided-path": [_path_view(path) for path in stopping.paths]}


def _path_view(path: DecisionPath) -> drawing.View:
    """The value over images, its bounds as a band, and the threshold as a line."""
    colour, _ = drawing.look(0)
    images = [shown for shown, _ in path.points]
    cells = [cell for _, cell in path.points]
    band = {"mode": "lines", "x": images, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    upper = {"type": "scatter", **band, "y": [drawing.plain(cell.hi) for cell in cells]}
    lower = {"type": "scatter", **band, "y": [drawing.plain(cell.lo) for cell in cells]}
    value = drawing.trace(
        "scatter",
        [f"after {shown:,} images<br>{drawing.value_text(path.metric, cell)}" for shown, cell in path.points],
        mode="lines+markers",
        x=images,
        y=[drawing.plain(cell.value) for cell in cells],
        line={"color": colour, "width": 2},
        marker={"color": colour, "size": 6},
    )
    layout = drawing.layout_of(height=260, margin={"l": 52, "r": 12, "t": 8, "b": 44})
    ends = [*drawing.ends_of(cells), path.threshold]
    layout["xaxis"] = {"title": drawing.axis_title("images shown"), "rangemode": "tozero", "fixedrange": True}
    ticks = {"tickformat": drawing.tick_format(path.metric), "nticks": 6}
    layout["yaxis"] = {"range": drawing.padded(min(ends), max(ends)), **ticks, **drawing.VALUE_AXIS}
    layout["shapes"] = [drawing.line_at("y", path.threshold)]
    layout["annotations"] = [_threshold_note(path)]
    filled = lower | {"fill": "tonexty", "fillcolor": "rgba(11, 74, 130, 0.15)"}
    return drawing.view(path.name, [upper, filled, value], layout)


def _threshold_note(path: DecisionPath) -> dict[str, object]:
    return {
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "yref": "y",
        "y": path.threshold,
        "yanchor": "top" if path.points[-1][1].value >= path.threshold else "bottom",
        "text": f"threshold {number(path.metric, path.threshold)}",
        "showarrow": False,
        "font": {"size": 11, "color": drawing.MUTED},
    }


def labels(paths: Sequence[DecisionPath]) -> list[str]:
    """What the chooser of the picture lists."""
    return [f"{path.name} ({words_of(path.metric).label})" for path in paths]
