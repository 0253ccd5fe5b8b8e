"""Figures of GANs: each one's AUROC beside the average of its configuration, and how their trainings went."""

from __future__ import annotations

import math

from roadworthy.protocols.ood.gan_facts import CURVES, ROLE, Gan, Gans
from roadworthy.report import drawing
from roadworthy.report.facts import Facts
from roadworthy.report.reading import Row
from roadworthy.statistics import Estimate

DASHES = ("solid", "dash", "dot", "dashdot")
GUESSING = 0.5
AXES = {
    "classifier_loss": "classifier loss",
    "accuracy": "accuracy, drawn",
    "surrogate_accuracy": "accuracy, real",
    "generator_loss": "generator loss",
    "discriminator_loss": "discriminator loss",
}


def charts(gans: Gans, facts: Facts, averages: dict[tuple[str, str], Estimate]) -> drawing.Charts:
    """Every chart by the id of its element; `averages` by (model, configuration)."""
    charts_by_id: drawing.Charts = {"gans-all": [gan_chart(gans, facts, averages)]}
    for index, configuration in enumerate(gans.configurations):
        charts_by_id[f"gan-curve-{index}"] = [curve(gans, configuration, quantity) for quantity in CURVES]
    return charts_by_id


def gan_chart(gans: Gans, facts: Facts, averages: dict[tuple[str, str], Estimate]) -> drawing.View:
    """AUROC of every GAN as a small open mark, the average of its configuration as a filled one with bounds."""
    names = gans.configurations
    dodge = 0.6 / max(len(facts.models), 2)
    traces = []
    for model_index, model in enumerate(facts.models):
        offset = dodge * (model_index - (len(facts.models) - 1) / 2)
        colour, symbol = drawing.look(model_index)
        rows = {name: row + offset for row, name in enumerate(names)}
        symbols = [f"{symbol}-open" if not gan.hardest else "x-thin-open" for gan in gans.gans]
        singles = drawing.trace(
            "scatter",
            [drawing.hover_text(facts.named(model), _gan_words(gan), ROLE, gans.cell(model, gan)) for gan in gans.gans],
            mode="markers",
            x=[drawing.plain(gans.cell(model, gan).value) for gan in gans.gans],
            y=[rows[gan.configuration] + 0.1 for gan in gans.gans],
            marker={"color": colour, "size": 8, "symbol": symbols, "line": {"width": 2, "color": colour}},
        )
        cells = [averages[model, name] for name in names]
        means = drawing.trace(
            "scatter",
            [
                drawing.hover_text(facts.named(model), f"{name}, average", ROLE, cell, "GANs and repeats")
                for name, cell in zip(names, cells, strict=True)
            ],
            mode="markers",
            x=[drawing.plain(cell.value) for cell in cells],
            y=[rows[name] - 0.06 for name in names],
            error_x=drawing.whiskers(cells) | {"width": 3, "color": colour},
            marker={"color": colour, "size": 10, "symbol": symbol},
        )
        traces += [shown | {"cliponaxis": False} for shown in (singles, means)]
    layout = drawing.layout_of(
        height=70 + (26 * len(facts.models) + 18) * len(names), margin={"l": 8, "r": 14, "t": 8, "b": 40}
    )
    layout["xaxis"] = {
        "range": [-0.02, 1.02],
        "tickformat": ".3~f",
        **drawing.VALUE_AXIS,
        "title": drawing.axis_title("AUROC, higher is better"),
    }
    layout["yaxis"] = drawing.names_axis(names, 20, range=[len(names) - 0.45, -0.55], showgrid=True)
    layout["shapes"] = [drawing.line_at("x", GUESSING)]
    return drawing.view("AUROC", traces, layout)


def _gan_words(gan: Gan) -> str:
    hardest = " (the hardest, chosen on the test data)" if gan.hardest else ""
    return f"{gan.configuration}, {gan.name}{hardest}{', undertrained surrogate' if gan.undertrained else ''}"


def _moment(row: Row) -> str:
    """When a look was made."""
    return f"epoch {row['epochs']}" if row["step"] is None else f"step {row['step']}, {row['epochs']:.2f} epochs"


def curve(gans: Gans, configuration: str, quantity: str) -> drawing.View:
    """A quantity at each look, a line per GAN, a large mark where the generator that is kept was."""
    traces = []
    for gan_index, gan in enumerate(gans.of(configuration)):
        rows = [row for row in gan.history if row[quantity] is not None and math.isfinite(row[quantity])]
        shown = drawing.trace(
            "scatter",
            [f"{gan.name}, {_moment(row)}{' (kept)' if row['kept'] else ''}<br>{row[quantity]:.4g}" for row in rows],
            mode="lines+markers",
            x=[row["epochs"] for row in rows],
            y=[drawing.plain(row[quantity]) for row in rows],
            line={"color": drawing.look(gan_index)[0], "width": 1.6, "dash": DASHES[gan_index % len(DASHES)]},
            marker={"size": [11 if row["kept"] else 4 for row in rows]},
        )
        traces.append(shown | {"cliponaxis": False})
    layout = drawing.layout_of(height=210, margin={"l": 58, "r": 12, "t": 8, "b": 40})
    layout["xaxis"] = {
        "title": drawing.axis_title("epoch"),
        **drawing.VALUE_AXIS,
        "rangemode": "tozero",
        "tickformat": "d",
        "dtick": max(1, round(max((gan.epochs for gan in gans.of(configuration)), default=1) / 5)),
    }
    layout["yaxis"] = {
        "gridcolor": drawing.GRID,
        "zerolinecolor": drawing.MUTED,
        "fixedrange": True,
        "tickformat": ".3~g",
        "nticks": 5,
        "title": drawing.axis_title(AXES[quantity]),
    }
    if "accuracy" in quantity:
        layout["yaxis"] |= {"range": [-0.02, 1.02], "tickformat": ".0%"}
    return drawing.view(CURVES[quantity], traces, layout)
