"""Figures of GANs: each one's AUROC beside the average of its configuration, and how their trainings went."""

from __future__ import annotations

import math

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
    value_text,
    view,
    whiskers,
)
from roadworthy.report.facts import Cell, Facts
from roadworthy.report.gans import CURVES, ROLE, Gans
from roadworthy.report.words import number

DASHES = ("solid", "dash", "dot", "dashdot")
GUESSING = 0.5
AXES = {
    "classifier_loss": "classifier loss",
    "accuracy": "accuracy, drawn",
    "surrogate_accuracy": "accuracy, real",
    "generator_loss": "generator loss",
    "discriminator_loss": "discriminator loss",
}


def charts(gans: Gans, facts: Facts, averages: dict[tuple[str, str], Cell]) -> dict[str, Chart]:
    """Every chart by the id of its element; `averages` by (model, configuration)."""
    found: dict[str, Chart] = {"gans-all": [each_gan(gans, facts, averages)]}
    for place, configuration in enumerate(gans.configurations):
        found[f"gan-curve-{place}"] = [curve(gans, configuration, quantity) for quantity in CURVES]
    return found


def each_gan(gans: Gans, facts: Facts, averages: dict[tuple[str, str], Cell]) -> View:
    """AUROC of every GAN as a small open mark, the average of its configuration as a filled one with bounds."""
    names = gans.configurations
    dodge = 0.6 / max(len(facts.models), 2)
    traces = []
    for place, model in enumerate(facts.models):
        offset = dodge * (place - (len(facts.models) - 1) / 2)
        colour, symbol = COLOURS[place % len(COLOURS)], SYMBOLS[place % len(SYMBOLS)]
        rows = {name: row + offset for row, name in enumerate(names)}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [plain(gans.cell(model, gan).value) for gan in gans.gans],
                "y": [rows[gan.configuration] + 0.1 for gan in gans.gans],
                "marker": {
                    "color": colour,
                    "size": 8,
                    "symbol": [f"{symbol}-open" if not gan.hardest else "x-thin-open" for gan in gans.gans],
                    "line": {"width": 2, "color": colour},
                },
                "hovertext": [
                    f"<b>{text(facts.named(model))}</b>, {text(gan.configuration)}, {gan.name}"
                    f"{' (the hardest, chosen on the test data)' if gan.hardest else ''}"
                    f"{', undertrained surrogate' if gan.undertrained else ''}"
                    f"<br>{value_text(ROLE, gans.cell(model, gan))}"
                    for gan in gans.gans
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
        cells = [averages[model, name] for name in names]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [plain(cell.value) for cell in cells],
                "y": [rows[name] - 0.06 for name in names],
                "error_x": whiskers(cells) | {"width": 3, "color": colour},
                "marker": {"color": colour, "size": 10, "symbol": symbol},
                "hovertext": [
                    f"<b>{text(facts.named(model))}</b>, {text(name)}, average<br>{value_text(ROLE, cell)}"
                    + (f"<br>sd over GANs and repeats {number(ROLE, cell.sd)}" if not math.isnan(cell.sd) else "")
                    for name, cell in zip(names, cells, strict=True)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    layout = layout_of(
        height=70 + (26 * len(facts.models) + 18) * len(names), margin={"l": 8, "r": 14, "t": 8, "b": 40}
    )
    layout["xaxis"] = {
        "range": [-0.02, 1.02],
        "tickformat": ".3~f",
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        "title": axis_title("AUROC, higher is better"),
    }
    layout["yaxis"] = names_axis(names, 20, range=[len(names) - 0.45, -0.55], showgrid=True)
    across = {"xref": "x", "x0": GUESSING, "x1": GUESSING, "yref": "paper", "y0": 0, "y1": 1}
    layout["shapes"] = [{"type": "line", **across, "line": {"color": MUTED, "width": 1, "dash": "dash"}}]
    return view("AUROC", traces, layout)


def curve(gans: Gans, configuration: str, quantity: str) -> View:
    """A quantity after each epoch, a line per GAN, a large mark at the epoch that is kept."""
    traces = []
    for place, gan in enumerate(gans.of(configuration)):
        rows = [row for row in gan.history if row[quantity] is not None and math.isfinite(row[quantity])]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [row["epoch"] for row in rows],
                "y": [plain(row[quantity]) for row in rows],
                "line": {"color": COLOURS[place % len(COLOURS)], "width": 1.6, "dash": DASHES[place % len(DASHES)]},
                "marker": {"size": [11 if row["kept"] else 4 for row in rows]},
                "hovertext": [
                    f"{gan.name}, epoch {row['epoch']}{' (kept)' if row['kept'] else ''}<br>{row[quantity]:.4g}"
                    for row in rows
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    layout = layout_of(height=210, margin={"l": 58, "r": 12, "t": 8, "b": 40})
    layout["xaxis"] = {
        "title": axis_title("epoch"),
        "gridcolor": GRID,
        "zeroline": False,
        "fixedrange": True,
        "rangemode": "tozero",
        "tickformat": "d",
        "dtick": max(1, round(max((gan.epochs for gan in gans.of(configuration)), default=1) / 5)),
    }
    layout["yaxis"] = {
        "gridcolor": GRID,
        "zerolinecolor": MUTED,
        "fixedrange": True,
        "tickformat": ".3~g",
        "nticks": 5,
        "title": axis_title(AXES[quantity]),
    }
    if "accuracy" in quantity:
        layout["yaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    return view(CURVES[quantity], traces, layout)
