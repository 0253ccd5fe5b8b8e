"""Figures of outliers: AUROC and its companions per set, and the scores of both sides."""

from __future__ import annotations

import math

from roadworthy.report import gan_figures
from roadworthy.report.drawing import (
    COLOURS,
    GRID,
    MUTED,
    SYMBOLS,
    Chart,
    View,
    axis_title,
    layout_of,
    names_axis,
    plain,
    text,
    tick_format,
    value_text,
    view,
    whiskers,
)
from roadworthy.report.facts import Facts
from roadworthy.report.outliers import GUESSING, Outliers
from roadworthy.report.words import number, plural, words_of

INSIDE, OUTSIDE = "#0b4a82", "#ea7320"


def charts(outliers: Outliers, facts: Facts) -> dict[str, Chart]:
    """Every chart by the id of its element."""
    found: dict[str, Chart] = {}
    for place, kind in enumerate(outliers.kinds):
        found[f"outliers-{place}"] = [set_chart(outliers, facts, kind, metric) for metric in outliers.metrics]
    hardest = outliers.hardest(outliers.ranked, len(outliers.sets))
    for place, model in enumerate(outliers.models):
        if any((model, each.name) in outliers.histograms for each in hardest):
            found[f"scores-{place}"] = [score_histogram(outliers, model, each.name) for each in hardest]
    if outliers.gans is not None:
        names = outliers.gans.configurations
        averages = {(model, name): outliers.cell(model, name) for model in outliers.models for name in names}
        found |= gan_figures.charts(outliers.gans, facts, averages)
    return found


def set_chart(outliers: Outliers, facts: Facts, kind: str, metric: str) -> View:
    """A metric of every set of a kind with its bounds, a mark per model, the hardest set at the top."""
    sets = outliers.of_kind(kind)
    traces = []
    dodge = 0.5 / max(len(outliers.models), 2)
    for place, model in enumerate(outliers.models):
        offset = dodge * (place - (len(outliers.models) - 1) / 2)
        cells = [outliers.cell(model, found.name, metric) for found in sets]
        colour = COLOURS[place % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "y": [row + offset for row in range(len(sets))],
                "x": [plain(cell.value) for cell in cells],
                "error_x": whiskers(cells) | {"width": 3, "color": colour},
                "marker": {"color": colour, "size": 8, "symbol": SYMBOLS[place % len(SYMBOLS)]},
                "hovertext": [
                    f"<b>{text(facts.named(model))}</b>, {text(found.name)}<br>{value_text(metric, cell)}"
                    + (f"<br>sd over repeats {number(metric, cell.sd)}" if not math.isnan(cell.sd) else "")
                    for found, cell in zip(sets, cells, strict=True)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    rows = 16 * max(len(outliers.models), 1) + 14
    layout = layout_of(height=56 + rows * len(sets), margin={"l": 8, "r": 14, "t": 8, "b": 40})
    layout["xaxis"] = {
        "range": _range(outliers, metric),
        "tickformat": tick_format(metric),
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        "title": axis_title(words_of(metric).label),
    }
    layout["yaxis"] = names_axis(sets, 18, range=[len(sets) - 0.5, -0.5])
    if metric == "auroc":
        across = {"xref": "x", "x0": GUESSING, "x1": GUESSING, "yref": "paper", "y0": 0, "y1": 1}
        layout["shapes"] = [{"type": "line", **across, "line": {"color": MUTED, "width": 1, "dash": "dash"}}]
    return view(words_of(metric).label, traces, layout)


def _range(outliers: Outliers, metric: str) -> list[float]:
    """One range for all kinds, so that they compare."""
    cells = [cell for (_, _, name), cell in outliers.cells.items() if name == metric]
    ends = [end for cell in cells for end in (cell.value, cell.lo, cell.hi) if not math.isnan(end)] or [0.0, 1.0]
    low, high = min([*ends, GUESSING]) if metric == "auroc" else min(ends), max(ends)
    pad = 0.04 * (high - low) or 0.04
    return [round(low - pad, 6), round(high + pad, 6)]


def score_histogram(outliers: Outliers, model: str, name: str) -> View:
    """How the scores of both sides lie: in-distribution images upwards, outliers downwards."""
    bins = outliers.histograms.get((model, name), ())
    sides = (("in-distribution", INSIDE, [b.inside for b in bins]), ("outliers", OUTSIDE, [-b.outside for b in bins]))
    traces = [
        {
            "type": "bar",
            "x": [plain((b.start + b.end) / 2) for b in bins],
            "y": counts,
            "width": [plain(0.94 * (b.end - b.start)) for b in bins],
            "marker": {"color": colour},
            "hovertext": [
                f"score {b.start:.2f} to {b.end:.2f}: {plural(abs(count), 'image')} {side}"
                for b, count in zip(bins, counts, strict=True)
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
        for side, colour, counts in sides
    ]
    most = max((abs(count) for _, _, counts in sides for count in counts), default=1) or 1
    layout = layout_of(height=240, margin={"l": 46, "r": 8, "t": 8, "b": 40}) | {"barmode": "overlay"}
    layout["xaxis"] = {
        "range": [0, 1],
        "nticks": 6,
        "fixedrange": True,
        "zeroline": False,
        "title": axis_title("score"),
    }
    layout["yaxis"] = {
        "range": [-1.08 * most, 1.08 * most],
        "tickmode": "array",
        "tickvals": [-most, 0, most],
        "ticktext": [str(most), "0", str(most)],
        "gridcolor": GRID,
        "zerolinecolor": MUTED,
        "fixedrange": True,
        "title": axis_title("images"),
    }
    return view(text(name), traces, layout)
