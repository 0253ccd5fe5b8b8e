"""The stream of a benchmark as a figure: what arrives, what each monitor rejects, and when the tests raise an alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roadworthy.protocols.monitoring.facts import MonitoringFacts, Timeline
from roadworthy.protocols.monitoring.names import EXCHANGEABILITY, REJECTION_RATE, TESTS
from roadworthy.protocols.monitoring.words import TEST_LABELS
from roadworthy.report import drawing
from roadworthy.report.drawing import VALUE_AXIS, View, look, plain, text
from roadworthy.report.reading import number_of

ARRIVES = ((0.0, "#ffffff"), (1.0, "#c8560a"))
REJECTED = ((0.0, "#f3f6f9"), (1.0, "#0b4a82"))
"""What arrives is orange, what monitors do about it is blue: both from none of the images to all of them."""
DASHES = ("solid", "dash", "dot")
ALARM_SYMBOLS = {EXCHANGEABILITY: "triangle-down", REJECTION_RATE: "diamond"}
ALARM_SIGNS = {EXCHANGEABILITY: "▽", REJECTION_RATE: "◇"}
"""The same symbols in words: the legend shows colours alone, and these marks are white."""
MOST_STRETCHES = 40
"""More stretches than these are not shaded: the strip of OOD images shows them."""
ROOM_ABOVE = 4.0
"""The axis of evidence ends at so many times the alarm line, so that the line is seen beside overwhelming evidence."""


def monitor_line(index: int, monitor: str, y: Sequence[float], hover: str, **x: Any) -> dict[str, Any]:
    """A line of one monitor, in its colour; beyond the colours of the kit lines are dashed.

    `hover` is one plotly template for all points, so that the page stays small; `x` is `x`, or `x0` and `dx`.
    """
    colour, dash = look(index)[0], DASHES[index // len(drawing.COLOURS) % len(DASHES)]
    line = {"color": colour, "width": 1.8, "dash": dash}
    known = {"mode": "lines", "name": text(monitor), "legendgroup": monitor, "line": line}
    template = f"<b>{_literal(monitor)}</b><br>{hover}<extra></extra>"
    return {"type": "scatter", **x, "y": [rounded(value) for value in y], **known, "hovertemplate": template}


def timeline(test: MonitoringFacts, model: str, benchmark: str) -> View:
    """Strips of a stream (OOD images, wrong answers, rejections of each monitor), and the evidence of the two tests.

    Marks on a strip say where a test raised its alarm; dashed lines are the evidence at which it does.
    """
    stream = test.timelines[model, benchmark]
    monitors = [monitor for monitor in test.monitors if monitor in stream.monitors]
    line_at = _alarm_line(test, model, benchmark)
    strips = 24 * (len(monitors) + 2)
    height = strips + 2 * 120 + 150
    share = strips / (strips + 2 * 120 + 60)
    layout = drawing.layout_of(height=height, margin={"l": 8, "r": 12, "t": 8, "b": 46})
    names = ["<b>OOD images</b>", "<b>wrong answers</b>", *(drawing.short_text(name, 20) for name in monitors)]
    layout["yaxis"] = drawing.names_axis(names, domain=[1 - share, 1], range=[len(names) - 0.5, -0.5])
    layout["yaxis"] |= {"ticktext": names}
    layout["xaxis"] = {**VALUE_AXIS, "anchor": "y3", "title": drawing.axis_title("image of the stream"), "nticks": 8}
    layout["xaxis"] |= {"range": [stream.starts[0], stream.ends[-1]], "showgrid": False}
    traces = _strips(stream, monitors)
    shapes = _stretches(stream)
    below = 1 - share
    for panel, (kind, axis) in enumerate(zip(TESTS, ("y2", "y3"), strict=True)):
        top = below * (1 - 0.52 * panel) - 0.03
        lines = _evidence(stream, monitors, kind, axis, test.monitors)
        layout[f"yaxis{axis[1:]}"] = _evidence_axis(kind, [top - 0.4 * below, top], lines, line_at)
        traces += lines
        shapes.append(drawing.line_at("y", plain(line_at)) | {"yref": axis})
    traces += [_alarm_marks(stream, monitors, kind) for kind in TESTS]
    layout |= {"shapes": shapes, "showlegend": True}
    layout["legend"] = {"orientation": "h", "x": 0, "y": -0.09, "yanchor": "top", "font": {"size": 11.5}}
    return drawing.view(f"{text(model)}, {text(benchmark)}", traces, layout)


def _strips(stream: Timeline, monitors: Sequence[str]) -> list[dict[str, Any]]:
    """A strip for what arrives, another for what is wrong, then one per monitor."""
    rejected = [[number_of(row["rejected"]) for row in stream.monitors[monitor]] for monitor in monitors]
    arrives = (("OOD images", stream.ood), ("wrong answers", stream.wrong))
    return [
        *(_strip(stream, row, name, shares, ARRIVES) for row, (name, shares) in enumerate(arrives)),
        *(_strip(stream, 2 + row, f"{monitors[row]} rejects", own, REJECTED) for row, own in enumerate(rejected)),
    ]


def _strip(stream: Timeline, row: int, name: str, shares: Sequence[float], colours: Any) -> dict[str, Any]:
    first, step = _steps(stream)
    return {
        **{"type": "heatmap", "x0": first + step / 2, "dx": step, "y": [row], "z": [[rounded(s) for s in shares]]},
        **{"zmin": 0, "zmax": 1, "colorscale": [*colours], "showscale": False, "ygap": 3},
        "hovertemplate": f"<b>{_literal(name)}</b> %{{z:.0%}}<br>around image %{{x:.0f}}<extra></extra>",
    }


def _steps(stream: Timeline) -> tuple[float, float]:
    """Where the bins start, and how many images each has; they differ by one image at most."""
    return float(stream.starts[0]), (stream.ends[-1] - stream.starts[0]) / len(stream.starts)


def _evidence(
    stream: Timeline, monitors: Sequence[str], kind: str, axis: str, all_monitors: Sequence[str]
) -> list[dict[str, Any]]:
    """The log wealth of one test for each monitor, at the end of each stretch."""
    first, step = _steps(stream)
    lines = []
    for monitor in monitors:
        values = [number_of(row[f"log_wealth_{kind}"]) for row in stream.monitors[monitor]]
        if all(math.isnan(value) for value in values):
            continue
        hover = f"{TEST_LABELS[kind]}: log wealth %{{y:.3g}} after image %{{x:.0f}}"
        line = monitor_line(all_monitors.index(monitor), monitor, values, hover, x0=first + step, dx=step)
        lines.append(line | {"yaxis": axis, "showlegend": kind == TESTS[0]})
    return lines


def _evidence_axis(kind: str, domain: list[float], lines: list[dict[str, Any]], line_at: float) -> dict[str, Any]:
    known = [value for line in lines for value in line["y"] if value is not None] or [0.0]
    top = min(max([*known, 1.2 * line_at]), ROOM_ABOVE * line_at)
    title = drawing.axis_title(f"log wealth,<br>{TEST_LABELS[kind]}")
    ends = {"range": drawing.padded(max(min(known), -line_at), top), "nticks": 4}
    return {**VALUE_AXIS, "domain": [plain(end) for end in domain], **ends, "title": title, "automargin": True}


def _alarm_marks(stream: Timeline, monitors: Sequence[str], kind: str) -> dict[str, Any]:
    """Where a test raised its alarm, on the strip of each monitor."""
    x, y, hover = [], [], []
    for strip, monitor in enumerate(monitors):
        bins = enumerate(stream.monitors[monitor])
        reached = next((index for index, row in bins if kind in (row["alarm"] or "").split(", ")), None)
        if reached is not None:
            x.append((stream.starts[reached] + stream.ends[reached]) / 2)
            y.append(strip + 2)
            images = f"images {stream.starts[reached] + 1} to {stream.ends[reached]}"
            hover.append(f"<b>{text(monitor)}</b>: alarm of the test of the {TEST_LABELS[kind]}<br>{images}")
    mark = {"symbol": ALARM_SYMBOLS[kind], "size": 10, "color": "#ffffff", "line": {"color": "#1c2530", "width": 1.6}}
    name = f"{ALARM_SIGNS[kind]} alarm, {TEST_LABELS[kind]}"
    return drawing.trace("scatter", hover, x=x, y=y, mode="markers", marker=mark, name=name)


def _alarm_line(test: MonitoringFacts, model: str, benchmark: str) -> float:
    """The log wealth at which a test raises its alarm: log(1 / level)."""
    levels = (
        number_of(row["level"])
        for (own_model, own_set, _), rows in test.alarms.items()
        if (own_model, own_set) == (model, benchmark)
        for row in rows
    )
    level = next((level for level in levels if 0 < level < 1), float(test.settings.get("alarm_level", 0.01)))
    return -math.log(level)


def _stretches(stream: Timeline) -> list[dict[str, Any]]:
    """A shade behind the evidence for every stretch that is mostly OOD; none where there are too many."""
    stretches: list[list[int]] = []
    for start, end, share in zip(stream.starts, stream.ends, stream.ood, strict=True):
        if share > 0.5 and stretches and stretches[-1][1] == start:
            stretches[-1][1] = end
        elif share > 0.5:
            stretches.append([start, end])
    if len(stretches) > MOST_STRETCHES:
        return []
    shade = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
    return [{**shade, "x0": start, "x1": end, "fillcolor": "#fbe9dc"} for start, end in stretches]


def _literal(name: str) -> str:
    """A name as plotly shows it literally in a template, where braces after a percent sign have a meaning."""
    return text(name).replace("%", "&#37;")


def rounded(value: float) -> float | None:
    """Four digits: enough for a line, and a small page.

    >>> rounded(0.123456), rounded(float("inf"))
    (0.1235, None)
    """
    return float(f"{value:.4g}") if math.isfinite(value) else None
