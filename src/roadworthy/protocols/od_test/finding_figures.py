"""Figures of what an OD-test says beyond its matrix: the gap, the stability of the ranking, the size of D_v, costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roadworthy.protocols.od_test.facts import OdTestFacts
from roadworthy.protocols.od_test.figures import NAME_LENGTH, decades
from roadworthy.protocols.od_test.findings import Gaps, Order, Sizes
from roadworthy.protocols.od_test.names import ACCURACY, GAP, THREE_DATASETS, TWO_DATASETS
from roadworthy.protocols.od_test.ranking import CostRow
from roadworthy.protocols.od_test.words import better, cost_text, metric_words
from roadworthy.report import drawing
from roadworthy.report.drawing import VALUE_AXIS, Charts, View, look, plain, text
from roadworthy.report.words import bounds, number, plural
from roadworthy.statistics import Estimate

SIDE_BY_SIDE = 24
"""So many monitors have room in a chart of half the width."""
MOST_NUMBERS = 40
"""A heat map of more monitors has no numbers in its squares."""
LINES = 8
"""So many monitors can be told apart in one chart of lines."""
BEFORE_TO_AFTER = ((0.0, "#ea7320"), (0.05, "#f6b98a"), (0.5, "#fffdf3"), (0.95, "#a8cbe8"), (1.0, "#5f9fd0"))
"""Orange is after, blue before; strong where an order is settled, and light enough for dark text."""
LEGEND = {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top", "font": {"size": 12}}


def charts(test: OdTestFacts) -> Charts:
    """Every chart by the id of its element, for those tables that the run has."""
    findings, made = test.findings, Charts()
    if findings.gaps is not None:
        made["gap-chart"] = [gap_chart(test, findings.gaps)]
        made["cost-accuracy-chart"] = [cost_and_accuracy(test)]
    if findings.order is not None and findings.order.is_known:
        made["stability-chart"] = [stability_chart(findings.order)]
        made["rank-chart"] = [rank_chart(findings.order)]
    if findings.sizes is not None and findings.sizes.monitors:
        made["size-chart"] = [size_chart(test, findings.sizes, labels) for labels in size_views(test, findings.sizes)]
    return made


def gap_chart(test: OdTestFacts, gaps: Gaps) -> View:
    """A line per monitor from its mean with three data sets to that with two; the most accurate with three on top."""
    labels = gap_labels(test, gaps)
    traces = []
    for row, label in enumerate(labels):
        both = [plain(gaps.mean(label, figure).value) for figure in (THREE_DATASETS, TWO_DATASETS)]
        line = {"color": "#b3bcc8", "width": 3}
        traces.append(
            {"type": "scatter", "mode": "lines", "x": both, "y": [row, row], "line": line, "hoverinfo": "skip"}
        )
    for index, figure in enumerate((THREE_DATASETS, TWO_DATASETS)):
        colour, symbol = look(index)
        cells = [gaps.mean(label, figure) for label in labels]
        hover = [_gap_hover(label, gaps) for label in labels]
        marks = {"size": 10, "symbol": symbol, "color": colour}
        at = {"x": [plain(cell.value) for cell in cells], "y": [*range(len(labels))]}
        traces.append(drawing.trace("scatter", hover, mode="markers", cliponaxis=False, marker=marks, **at))
    guess = test.guesses[ACCURACY]
    known = [Estimate(gaps.mean(label, figure).value) for label in labels for figure in (THREE_DATASETS, TWO_DATASETS)]
    ends = [*drawing.ends_of(known), guess]
    layout = drawing.layout_of(height=62 + 26 * len(labels), margin={"l": 8, "r": 16, "t": 8, "b": 46})
    layout["xaxis"] = {
        "range": drawing.padded(min(ends), max(ends), 0.04),
        "tickformat": drawing.tick_format(ACCURACY),
        **VALUE_AXIS,
        "title": drawing.axis_title("mean accuracy (higher is better)"),
    }
    layout["yaxis"] = _monitor_axis([test.marked(label) for label in labels])
    layout["shapes"] = [drawing.line_at("x", guess)]
    return drawing.view("gap", traces, layout)


def gap_labels(test: OdTestFacts, gaps: Gaps) -> list[str]:
    """The monitors that have both means, the most accurate with three data sets first."""
    known = [label for label in test.labels if not gaps.mean(label, GAP).missing]
    return sorted(known, key=lambda label: -gaps.mean(label, THREE_DATASETS).value)


def _gap_hover(label: str, gaps: Gaps) -> str:
    """Both means and the gap, each with its interval."""
    two, three, gap = (gaps.mean(label, figure) for figure in (TWO_DATASETS, THREE_DATASETS, GAP))
    lines = [
        f"two data sets {number(ACCURACY, two.value)} ({bounds(ACCURACY, two.lo, two.hi)})",
        f"three data sets {number(ACCURACY, three.value)} ({bounds(ACCURACY, three.lo, three.hi)})",
        f"gap {number('accuracy_drop', gap.value)}",
    ]
    return "<br>".join([f"<b>{text(label)}</b>", *lines])


def _monitor_axis(names: Sequence[str], length: int = NAME_LENGTH) -> dict[str, Any]:
    """Rows of monitors, the first on top."""
    return drawing.names_axis(names, length, range=[len(names) - 0.5, -0.5], showgrid=True, gridcolor="#f1f3f6")


def stability_chart(order: Order) -> View:
    """How often the monitor of a row is before that of a column, in the order of the ranking."""
    names = [*order.ranks]

    def square(one: str, other: str) -> drawing.Square:
        if one == other:
            return drawing.Square(None, "", "a monitor and itself", grey=True)
        share = order.before[one, other]
        hover = f"<b>{text(one)}</b> is before <b>{text(other)}</b><br>in {100 * share:.1f} % of the resamples"
        return drawing.Square(share, f"{100 * share:.0f}" if len(names) <= MOST_NUMBERS else "", hover)

    squares = [[square(one, other) for other in names] for one in names]
    size = 11 if len(names) <= SIDE_BY_SIDE else 9
    traces = drawing.heat_map(squares, 0.0, 1.0, BEFORE_TO_AFTER, size=size)
    layout = drawing.layout_of(height=150 + 26 * len(names), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    layout["xaxis"] = drawing.names_axis(names, 22, side="top", tickangle=-90, title=drawing.axis_title("... this one"))
    before = drawing.axis_title("this monitor is before ...")
    layout["yaxis"] = drawing.names_axis(names, 22, autorange="reversed", title=before)
    return drawing.view("stability", traces, layout)


def rank_chart(order: Order) -> View:
    """The rank of each monitor with its interval."""
    names = [*order.ranks]
    hover = [
        f"<b>{text(name)}</b>, rank {row.rank}<br>95 % of the resamples: {row.lo:g} to {row.hi:g}<br>surely before "
        f"{row.settled_after}, surely after {row.settled_before}, open against {row.unsettled}"
        for name, row in order.ranks.items()
    ]
    colour, symbol = look(0)
    cells = [row.estimate for row in order.ranks.values()]
    shown = drawing.marks(cells, [*range(len(names))], hover, colour, size=8, symbol=symbol)
    layout = drawing.layout_of(height=150 + 26 * len(names), margin={"l": 8, "r": 16, "t": 8, "b": 46})
    layout["xaxis"] = {
        "range": [0.4, len(names) + 0.6],
        "dtick": 1 if len(names) <= SIDE_BY_SIDE else 5,
        "tick0": 0,
        **VALUE_AXIS,
        "title": drawing.axis_title("rank (1 is best)"),
    }
    layout["yaxis"] = _monitor_axis(names)
    return drawing.view("ranks", [shown], layout)


def size_views(test: OdTestFacts, sizes: Sizes) -> list[list[str]]:
    """The monitors of each view, in the order of the ranking."""
    labels = [label for label in test.labels if label in {*sizes.monitors}]
    return [labels[start : start + LINES] for start in range(0, len(labels), LINES)]


def size_names(test: OdTestFacts, sizes: Sizes) -> list[str]:
    """What a reader chooses a view by.

    The places that its monitors have in the order of the ranking.
    """
    names, start = [], 1
    for labels in size_views(test, sizes):
        names.append(f"monitors {start} to {start + len(labels) - 1}")
        start += len(labels)
    return names


def size_chart(test: OdTestFacts, sizes: Sizes, labels: Sequence[str]) -> View:
    """A line per monitor: the mean accuracy over the number of images of D_v, which is logarithmic."""
    images = sorted({count for label in labels for count in sizes.of(label)})
    ends = drawing.ends_of(Estimate(cell.value) for label in labels for cell in sizes.of(label).values())
    guess = test.guesses[ACCURACY]
    traces = []
    for index, label in enumerate(labels):
        colour, symbol = look(index)
        means = sizes.of(label)
        hover = [_size_hover(label, count, cell) for count, cell in means.items()]
        at = {"x": [*means], "y": [plain(cell.value) for cell in means.values()]}
        style = {"line": {"color": colour, "width": 2}, "marker": {"color": colour, "symbol": symbol, "size": 7}}
        traces.append(
            drawing.trace("scatter", hover, mode="lines+markers", name=text(test.marked(label)), **at, **style)
        )
    layout = drawing.layout_of(height=430, margin={"l": 8, "r": 16, "t": 8, "b": 46})
    layout["xaxis"] = {
        "type": "log",
        "tickmode": "array",
        "tickvals": images,
        "ticktext": [f"{count:,}" for count in images],
        **VALUE_AXIS,
        "title": drawing.axis_title("images of D_v, and as many of the source, logarithmic"),
    }
    layout["yaxis"] = {
        "range": drawing.padded(min(ends), max(ends), 0.06),
        "tickformat": drawing.tick_format(ACCURACY),
        "automargin": True,
        **VALUE_AXIS,
        "title": drawing.axis_title("mean accuracy (higher is better)"),
    }
    near = [drawing.line_at("y", guess)] if min(ends) <= guess + 0.05 else []
    layout |= {"shapes": near, "showlegend": True, "legend": LEGEND}
    return drawing.view("sizes", traces, layout)


def _size_hover(label: str, count: int, cell: Estimate) -> str:
    name = f"<b>{text(label)}</b>, {plural(count, 'image')}"
    if cell.missing:
        return f"{name}<br>no value: {text(cell.reason)}"
    interval = f"95 % interval {bounds(ACCURACY, cell.lo, cell.hi)}"
    return "<br>".join(filter(None, [name, f"accuracy {number(ACCURACY, cell.value)}", interval, text(cell.reason)]))


def cost_and_accuracy(test: OdTestFacts) -> View:
    """The mean of each monitor, with its interval, over its milliseconds per image, which are logarithmic.

    Those that no other beats in both stand out, with their names.
    """
    rows = [row for row in test.monitor_costs if row.seconds_per_image > 0]
    points = [(row, test.mean(row.monitor, test.judged, source=row.source)) for row in rows]
    points = [(row, cell) for row, cell in points if not cell.missing]
    front = unbeaten(points, higher=better(test.judged) == "higher")
    traces = [
        _cost_marks(test, [point for point in points if point not in front], "#9fb6cc", named=False),
        _cost_marks(test, front, look(0)[0], named=True),
    ]
    metric, ends = test.judged, [*drawing.ends_of(cell for _, cell in points), test.chance]
    layout = drawing.layout_of(height=430, margin={"l": 8, "r": 46, "t": 16, "b": 46})
    layout["xaxis"] = {
        "type": "log",
        "range": decades([1000 * row.seconds_per_image for row, _ in points]),
        "gridcolor": drawing.GRID,
        "fixedrange": True,
        "dtick": 1,
        "title": drawing.axis_title("milliseconds per image, logarithmic (lower is better)"),
    }
    layout["yaxis"] = {
        "range": drawing.padded(min(ends), max(ends), 0.06),
        "tickformat": drawing.tick_format(metric),
        "automargin": True,
        **VALUE_AXIS,
        "title": drawing.axis_title(f"mean {metric_words(metric).label.lower()} ({better(metric)} is better)"),
    }
    layout["shapes"] = [drawing.line_at("y", test.chance)]
    return drawing.view("cost and accuracy", traces, layout)


Point = tuple[CostRow, Estimate]


def unbeaten(points: Sequence[Point], *, higher: bool = True) -> list[Point]:
    """The monitors that no other beats in cost and in what they are judged by at once, the cheapest first."""
    sign = 1.0 if higher else -1.0
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point[0].seconds_per_image, -sign * point[1].value)):
        if not front or sign * point[1].value > sign * front[-1][1].value:
            front.append(point)
    return front


def label_sides(count: int) -> list[str]:
    """On which side of its mark each of `count` names stands, cheapest monitor first.

    Along the unbeaten ones cost and accuracy rise together, so that above to the left and below to the right of a mark
    there is no other; neighbours that are close take different sides.

    >>> label_sides(3)
    ['bottom right', 'top left', 'bottom right']
    """
    return ["bottom right" if (count - index) % 2 else "top left" for index in range(count)]


def _cost_marks(test: OdTestFacts, points: Sequence[Point], colour: str, *, named: bool) -> dict[str, Any]:
    """A mark per monitor with its interval; hollow where it has no rank."""
    ranked = {method.label for method in test.ranked}
    return drawing.trace(
        "scatter",
        [_cost_hover(test, row, cell) for row, cell in points],
        mode="markers+text" if named else "markers",
        x=[plain(1000 * row.seconds_per_image) for row, _ in points],
        y=[plain(cell.value) for _, cell in points],
        text=[drawing.short_text(row.label) for row, _ in points],
        textposition=label_sides(len(points)),
        textfont={"size": 12},
        cliponaxis=False,
        marker={
            "color": [colour if row.monitor in ranked else "#ffffff" for row, _ in points],
            "size": 9,
            "line": {"color": colour, "width": 1.5},
        },
        error_y=drawing.whiskers([cell for _, cell in points]) | {"width": 3, "color": colour},
    )


def _cost_hover(test: OdTestFacts, row: CostRow, cell: Estimate) -> str:
    """What a monitor reaches and what it costs."""
    metric = metric_words(test.judged)
    lines = [
        f"{metric.label} {number(test.judged, cell.value)} ({bounds(test.judged, cell.lo, cell.hi)})",
        f"{cost_text(1000 * row.seconds_per_image)} ms per image",
        f"{cost_text(row.build_seconds)} s to fit, {cost_text(row.state_bytes / 1048576)} MiB kept",
    ]
    return "<br>".join([f"<b>{text(row.label)}</b>", *lines])
