"""Figures of outliers: AUROC and its companions per set, and the scores of both sides."""

from __future__ import annotations

from roadworthy.protocols.ood import gan_figures
from roadworthy.protocols.ood.facts import GUESSING, Outliers
from roadworthy.protocols.ood.metrics import METRICS
from roadworthy.report import drawing
from roadworthy.report.facts import Facts
from roadworthy.report.words import plural, words_of

INSIDE, OUTSIDE = "#0b4a82", "#ea7320"


def charts(outliers: Outliers, facts: Facts) -> drawing.Charts:
    """Every chart by the id of its element."""
    charts_by_id: drawing.Charts = {}
    for index, kind in enumerate(outliers.kinds):
        charts_by_id[f"outliers-{index}"] = [set_chart(outliers, facts, kind, metric) for metric in outliers.metrics]
    set_names = [outlier_set.name for outlier_set in outliers.hardest(outliers.ranked, len(outliers.sets))]
    for index, model in enumerate(outliers.models):
        if any((model, name) in outliers.histograms for name in set_names):
            charts_by_id[f"scores-{index}"] = [score_histogram(outliers, model, name) for name in set_names]
    if outliers.gans is not None:
        names = outliers.gans.configurations
        averages = {(model, name): outliers.cell(model, name) for model in outliers.models for name in names}
        charts_by_id |= gan_figures.charts(outliers.gans, facts, averages)
    return charts_by_id


def set_chart(outliers: Outliers, facts: Facts, kind: str, metric: str) -> drawing.View:
    """A metric of every set of a kind with its bounds, a mark per model, the hardest set at the top."""
    sets = outliers.of_kind(kind)
    traces = []
    dodge = 0.5 / max(len(outliers.models), 2)
    for model_index, model in enumerate(outliers.models):
        offset = dodge * (model_index - (len(outliers.models) - 1) / 2)
        cells = [outliers.cell(model, outlier_set.name, metric) for outlier_set in sets]
        colour, symbol = drawing.look(model_index)
        shown = drawing.trace(
            "scatter",
            [
                drawing.hover_text(facts.named(model), outlier_set, metric, cell, "repeats")
                for outlier_set, cell in zip(sets, cells, strict=True)
            ],
            mode="markers",
            y=[row + offset for row in range(len(sets))],
            x=[drawing.plain(cell.value) for cell in cells],
            error_x=drawing.whiskers(cells) | {"width": 3, "color": colour},
            marker={"color": colour, "size": 8, "symbol": symbol},
        )
        traces.append(shown | {"cliponaxis": False})
    rows = 16 * max(len(outliers.models), 1) + 14
    layout = drawing.layout_of(height=56 + rows * len(sets), margin={"l": 8, "r": 14, "t": 8, "b": 40})
    layout["xaxis"] = {
        "range": _range(outliers, metric),
        "tickformat": drawing.tick_format(metric),
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title(words_of(metric, METRICS).label),
    }
    layout["yaxis"] = drawing.names_axis(sets, 18, range=[len(sets) - 0.5, -0.5])
    if metric == "auroc":
        layout["shapes"] = [drawing.line_at("x", GUESSING)]
    return drawing.view(words_of(metric, METRICS).label, traces, layout)


def _range(outliers: Outliers, metric: str) -> list[float]:
    """One range for all kinds, so that they compare."""
    ends = drawing.ends_of(cell for (_, _, name), cell in outliers.cells.items() if name == metric)
    return drawing.padded(min([*ends, GUESSING]) if metric == "auroc" else min(ends), max(ends), 0.04)


def score_histogram(outliers: Outliers, model: str, name: str) -> drawing.View:
    """How the scores of both sides lie, as shares of a side: in-distribution images upwards, outliers downwards."""
    bins = outliers.histograms.get((model, name), ())
    sides = (
        ("in-distribution", INSIDE, 1, [b.inside for b in bins]),
        ("outliers", OUTSIDE, -1, [b.outside for b in bins]),
    )
    shares = [[count / (sum(counts) or 1) for count in counts] for _, _, _, counts in sides]
    traces = [
        drawing.trace(
            "bar",
            [
                f"score {b.start:.2f} to {b.end:.2f}: {plural(count, 'image')} {side}, {share:.1%}"
                for b, count, share in zip(bins, counts, of_side, strict=True)
            ],
            x=[drawing.plain((b.start + b.end) / 2) for b in bins],
            y=[drawing.plain(sign * share) for share in of_side],
            width=[drawing.plain(0.94 * (b.end - b.start)) for b in bins],
            marker={"color": colour},
        )
        for (side, colour, sign, counts), of_side in zip(sides, shares, strict=True)
    ]
    most = max((share for of_side in shares for share in of_side), default=0) or 1
    layout = drawing.layout_of(height=240, margin={"l": 46, "r": 8, "t": 8, "b": 40}) | {"barmode": "overlay"}
    title = drawing.axis_title("score")
    ends: list[float | None] = [0, 1]
    if bins and (bins[0].start, bins[-1].end) != (0, 1):  # the scores of a monitor
        ends = [drawing.plain(bins[0].start), drawing.plain(bins[-1].end)]
    layout["xaxis"] = {"range": ends, "nticks": 6, "fixedrange": True, "zeroline": False, "title": title}
    layout["yaxis"] = {
        "range": [drawing.plain(-1.08 * most), drawing.plain(1.08 * most)],
        "tickmode": "array",
        "tickvals": [drawing.plain(-most), 0, drawing.plain(most)],
        "ticktext": [f"{most:.0%}", "0", f"{most:.0%}"],
        "gridcolor": drawing.GRID,
        "zerolinecolor": drawing.MUTED,
        "fixedrange": True,
        "title": drawing.axis_title("share"),
    }
    return drawing.view(drawing.text(name), traces, layout)
