"""Drawing: what every chart is made of, as plain plotly dictionaries that report.js draws.

A chart is a list of views, of which one is shown at a time. Plotly reads a small subset of HTML in texts, so whatever
comes from the user goes through `text`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from roadworthy.metrics import Metric
from roadworthy.report.words import bounds, number, short_number, words_of
from roadworthy.statistics import Estimate

View = dict[str, Any]
Chart = list[View]
Charts = dict[str, Chart]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, GRID, ABSENT = "#1c2530", "#5b6673", "#e6eaef", "#d5dae1"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a3417f", "#4b4b4b", "#b8860b", "#56b4e9", "#7a4fd0")
"""One colour per model (after Okabe and Ito, who chose them for colour-blind readers)."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star")
SHADES = (0.0, -0.35, 0.35, -0.6, 0.55, -0.18, 0.18, -0.48)
"""How far the colours of the second, third, ... eight models are darkened (below 0) or lightened."""
VALUE_AXIS = {"gridcolor": GRID, "zeroline": False, "fixedrange": True, "ticklabelstandoff": 4}
"""What most axes of values share; labels stand off, so that the zeros of two axes do not touch in their corner."""


def text(value: object) -> str:
    """A user's text as plotly shows it literally.

    >>> text("<b>stop</b>\\n& go")
    '&lt;b&gt;stop&lt;/b&gt; &amp; go'
    """
    return html.escape(" ".join(str(value).split()), quote=False)


def short_text(value: object, length: int = 22) -> str:
    """As `text`, cut to a length that an axis has room for.

    >>> short_text("a very long name of a class", 10)
    'a very lo…'
    """
    words = " ".join(str(value).split())
    return text(words if len(words) <= length else words[: length - 1] + "…")


def view(name: str, data: list[dict[str, Any]], layout: dict[str, Any]) -> View:
    """One view of a chart."""
    return {"name": name, "data": data, "layout": layout}


def trace(kind: str, hover: Sequence[Any], **settings: Any) -> dict[str, Any]:
    """One series of a chart, with a text that is shown where the reader points at each of its values."""
    return {"type": kind, **settings, "hovertext": hover, "hovertemplate": "%{hovertext}<extra></extra>"}


class Square(NamedTuple):
    """A square of a heat map: its value, which colours it, its text, and what it says when it is pointed at.

    A `grey` one lacks the value that it should have.
    """

    value: float | None
    text: str
    hover: str
    grey: bool = False


def square(metric: Metric | str, cell: Estimate, hover: str) -> Square:
    """The square of a cell; grey where it has no value."""
    words = "n/a" if cell.missing else short_number(metric, cell.value)
    return Square(plain(cell.value), words, hover, cell.missing)


def heat_map(
    rows: Sequence[Sequence[Square]],
    low: float,
    high: float,
    colours: Iterable[tuple[float, str]],
    gap: int = 2,
    **font: Any,
) -> list[dict[str, Any]]:
    """Rows of squares coloured from a low to a high value, and above them those that are grey."""
    shared = trace("heatmap", [[one.hover for one in row] for row in rows], xgap=gap, ygap=gap, hoverongaps=False)
    shared |= {"texttemplate": "%{text}", "textfont": {"color": INK, **font}, "showscale": False}
    values = {
        "z": [[one.value for one in row] for row in rows],
        "text": [["" if one.grey else one.text for one in row] for row in rows],
        "zmin": low,
        "zmax": high,
        "colorscale": [*colours],
    }
    absent = {
        "z": [[0 if one.grey else None for one in row] for row in rows],
        "text": [[one.text if one.grey else "" for one in row] for row in rows],
        "colorscale": [[0, ABSENT], [1, ABSENT]],
    }
    return [shared | values, shared | absent]


def marks(
    cells: Sequence[Estimate], rows: Sequence[float], hover: Sequence[str], colour: str, **marker: Any
) -> dict[str, Any]:
    """A mark for every cell, with its bounds, in its row."""
    shown = trace("scatter", hover, mode="markers", y=rows, x=[plain(cell.value) for cell in cells], cliponaxis=False)
    return shown | {"error_x": whiskers(cells) | {"width": 3, "color": colour}, "marker": {"color": colour, **marker}}


def shaded(colour: str, shade: float) -> str:
    """A colour mixed with black (a shade below 0) or white, as hexadecimal digits.

    >>> shaded("#0072b2", 0.0), shaded("#0072b2", -1.0), shaded("#0072b2", 0.5)
    ('#0072b2', '#000000', '#80b8d8')
    """
    channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    ground = 255 if shade > 0 else 0
    return "#" + "".join(f"{round(channel + abs(shade) * (ground - channel)):02x}" for channel in channels)


LOOKS = tuple(
    (shaded(colour, shade), SYMBOLS[(index + turn) % len(SYMBOLS)])
    for turn, shade in enumerate(SHADES)
    for index, colour in enumerate(COLOURS)
)
"""Colour and mark of 64 models, no colour twice: legends hide a model in charts by its colour."""


def look(index: int) -> tuple[str, str]:
    """The colour and the mark of the model with an index; they repeat from the 65th model on.

    >>> look(0), look(8)
    (('#0072b2', 'circle'), ('#004a74', 'square'))
    """
    return LOOKS[index % len(LOOKS)]


def line_at(axis: str, value: float | None, dash: str = "dash") -> dict[str, Any]:
    """A thin line across the whole chart at a value of its `x` or `y` axis."""
    ends = {"x": {"xref": "paper", "x0": 0, "x1": 1}, "y": {"yref": "paper", "y0": 0, "y1": 1}}
    ends[axis] = {f"{axis}ref": axis, f"{axis}0": value, f"{axis}1": value}
    return {"type": "line", **ends["x"], **ends["y"], "line": {"color": MUTED, "width": 1, "dash": dash}}


def ends_of(cells: Iterable[Estimate]) -> list[float]:
    """All values and bounds, for the range of an axis; 0 and 1 where there are none."""
    return [end for cell in cells for end in (cell.value, cell.lo, cell.hi) if not math.isnan(end)] or [0.0, 1.0]


def padded(low: float, high: float, share: float = 0.05) -> list[float]:
    """The range of an axis from the lowest to the highest value, with some room at both ends."""
    pad = share * (high - low) or share
    return [round(low - pad, 6), round(high + pad, 6)]


def layout_of(height: int, margin: dict[str, int]) -> dict[str, Any]:
    """What the layouts of all charts share."""
    return {
        "height": height,
        "margin": margin,
        "font": {"family": FONT, "size": 12, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": MUTED, "font": {"color": INK, "size": 12}, "align": "left"},
        "dragmode": False,
        "showlegend": False,
    }


def names_axis(names: Sequence[object], length: int = 22, **other: Any) -> dict[str, Any]:
    """An axis with a name at every whole number, the first at 0; `other` settings come on top of the usual ones."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [short_text(name, length) for name in names],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        **other,
    }


def axis_title(words: str) -> dict[str, Any]:
    """The title of an axis."""
    return {"text": words, "font": {"size": 11, "color": MUTED}, "standoff": 6}


def plain(value: float, default: float | None = None) -> float | None:
    """A number that JSON can hold, six digits of it."""
    return float(f"{value:.6g}") if math.isfinite(value) else default


def value_text(metric: Metric | str, cell: Estimate) -> str:
    """A value with its bounds for a hover text, or why there is none."""
    if cell.missing:
        return f"no value: {text(cell.reason)}"
    lines = [f"{words_of(metric).label} {number(metric, cell.value)}", f"bounds {bounds(metric, cell.lo, cell.hi)}"]
    if cell.reason:
        lines.append(text(cell.reason))
    return "<br>".join(lines)


def hover_text(name: str, where: object, metric: Metric | str, cell: Estimate, sd_over: str = "") -> str:
    """What is shown where the reader points at a value: of which model, where, and the value with its bounds.

    `sd_over` says what the standard deviation, where there is one, is taken over.
    """
    sd = f"<br>sd over {sd_over} {number(metric, cell.sd)}" if sd_over and not math.isnan(cell.sd) else ""
    return f"<b>{text(name)}</b>, {text(where)}<br>{value_text(metric, cell)}{sd}"


def tick_format(metric: Metric | str) -> str:
    """How an axis writes the values of a metric."""
    return ".0%" if words_of(metric).percent else ".3~f"


def whiskers(cells: Sequence[Estimate]) -> dict[str, Any]:
    """Error bars from the bounds of each cell; none where it has none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [plain(cell.hi - cell.value, 0.0) for cell in cells],
        "arrayminus": [plain(cell.value - cell.lo, 0.0) for cell in cells],
        "thickness": 1.2,
    }
