"""Print an OD-test run beside what was published: figure 3, the breakdown by source (figures 4 and 6) and table 2.

python examples/od_test_tables.py runs/od-test-small
python examples/od_test_tables.py runs/od-test-small --pictures docs/images    # draws figures 3, 4 and 6 as PNG
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from od_test_figures import Bar, draw

import roadworthy as rw

VGG, RESNET, ANY, ALL = "vgg", "resnet", "any", "all"
NEIGHBOURS = {  # means (%) for 1, 2, 4 and 8 neighbours
    "knn_svm": ("NNSVM", (73.37, 72.95, 72.64, 72.62)),
    "bnn_svm": ("BNNSVM", (71.79, 71.82, 72.09, 71.89)),
    "mnn_svm": ("MNNSVM", (71.42, 71.15, 71.26, 71.31)),
    "vnn_svm": ("VNNSVM", (65.16, 66.00, 66.54, 65.78)),
}
PUBLISHED: dict[str, dict[str, float]] = {
    "odin": {VGG: 78.66, RESNET: 76.99},
    "score_svm": {VGG: 77.17, RESNET: 69.88},
    "logistic_svm": {VGG: 74.68, RESNET: 68.98},
    "ae_threshold bce": {ANY: 74.43},
    "mc_dropout": {VGG: 73.47},
    "deep_ensemble": {VGG: 72.84, RESNET: 65.68},
    "msp": {VGG: 72.63, RESNET: 70.48},
    "ae_threshold mse": {ANY: 70.63},
    "bin_class": {VGG: 68.81, RESNET: 69.06},
    "openmax": {VGG: 62.31, RESNET: 58.44},
    "pixelcnn": {ANY: 60.74},
    **{
        f"{monitor} k={k}": {ANY: mean}
        for monitor, (_, means) in NEIGHBOURS.items()
        for k, mean in zip((1, 2, 4, 8), means, strict=True)
    },
}
"""Mean test accuracy (%) over 308 triples with VGG-16, ResNet-50 or no network, figure 3 of Shafaei et al. (2018)."""
NAMES = {
    **{"odin": "ODIN", "score_svm": "ScoreSVM", "logistic_svm": "LogisticSVM", "mc_dropout": "MC-Dropout"},
    **{"deep_ensemble": "DeepEnsemble", "msp": "PbThreshold", "bin_class": "BinClass", "openmax": "OpenMax"},
    **{"ae_threshold bce": "AEThreshold/BCE", "ae_threshold mse": "AEThreshold/MSE", "pixelcnn": "PixelCNN++"},
    **{f"{monitor} k={k}": f"{k}-{name}" for monitor, (name, _) in NEIGHBOURS.items() for k in (1, 2, 4, 8)},
}
"""What the paper calls each monitor."""
FIGURE_4 = ("knn_svm k=1", "ae_threshold bce", "pixelcnn", "msp", "odin")
"""The methods that the paper's text speaks of where it looks at single sources."""
TABLE_2 = {  # accuracy (%) on training images with cross-entropy and with k-way logistic loss; size in MB
    "mnist": {VGG: (99.89, 99.91, 19.0), RESNET: (99.89, 99.91, 70.0)},
    "fashionmnist": {VGG: (98.82, 98.36, 19.0), RESNET: (98.75, 98.73, 70.0)},
    "cifar10": {VGG: (97.63, 97.34, 159.8), RESNET: (97.75, 97.51, 94.3)},
    "cifar100": {VGG: (91.40, 91.87, 161.3), RESNET: (92.05, 91.82, 95.1)},
    "tinyimagenet": {VGG: (69.71, 72.23, 162.9), RESNET: (89.59, 65.95, 95.9)},
    "stl10": {VGG: (93.62, 95.18, 201.7), RESNET: (92.32, 93.34, 94.3)},
}
LOGISTIC = "k-way logistic loss"
PAIRS = (("uniform_noise", "normal_noise"), ("normal_noise", "uniform_noise"))


def markdown(rows: list[list[str]]) -> str:
    """Rows, the first of them the heading, as a table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kind_of(architecture: str) -> str:
    """Which of the published columns an architecture belongs to: VGG, ResNet or neither.

    >>> kind_of("vgg16"), kind_of("cifar10_resnet20"), kind_of("any")
    ('vgg', 'resnet', 'any')
    """
    name = architecture.lower()
    return VGG if "vgg" in name else RESNET if "resnet" in name else ANY


def percent(value: float | None) -> str:
    """A share as a percentage with one digit; nothing where it is not known."""
    return "" if value is None or np.isnan(value) else f"{100 * value:.1f}"


def figure_3(run: rw.Run) -> list[Bar]:
    """A bar per monitor and architecture, in the order that was published; others after them, the best first."""
    table = run.tables["od_test_architectures"].query("ood == 'all' and metric == 'accuracy' and architecture != 'all'")
    bars = [_bar(row, str(row["architecture"])) for row in table.to_dict("records")]
    return sorted(bars, key=lambda bar: (bar.published is None, -(bar.published or bar.value or 0)))


def _bar(row: dict[str, object], architecture: str) -> Bar:
    label = str(row["monitor"])
    known = PUBLISHED.get(label, {})
    kind = ANY if ANY in known else kind_of(architecture)
    value, lo, hi = (float(str(row[name])) for name in ("value", "lo", "hi"))
    suffix = "" if kind == ANY else f"/{architecture}"
    published = known.get(kind)
    name = f"{NAMES.get(label, label)}{suffix}"
    return Bar(label, name, kind, value, lo, hi, published and published / 100, bool(row["undertrained"]))


def ranking(run: rw.Run) -> list[list[str]]:
    """Figure 3: our figures beside the published ones, the best mean over all models first."""
    overall = run.tables["od_test_methods"].query("ood == 'all' and metric == 'accuracy'")
    overall = overall[(overall[[c for c in ("source", "model") if c in overall]] == ALL).all(axis=1)]
    bars = {(bar.label, bar.kind): bar for bar in figure_3(run)}
    rows = [["monitor", "VGG here", "published", "ResNet here", "published", "no network here", "published", "note"]]
    for row in overall.sort_values("value", ascending=False).to_dict("records"):
        label = str(row["monitor"])
        cells = []
        for kind in (VGG, RESNET, ANY):
            bar, known = bars.get((label, kind)), PUBLISHED.get(label, {})
            weak = " undertrained" if bar and bar.undertrained else ""
            here = f"{percent(bar.value)} ({percent(bar.lo)} to {percent(bar.hi)}){weak}" if bar else ""
            cells += [here, f"{known[kind]:.2f}" if kind in known else ""]
        rows.append([f"`{label}`", *cells, str(row["reason"])])
    return rows


def architectures(run: rw.Run) -> dict[tuple[str, str], str]:
    """The architecture of every model, by source and name; either is empty where a run does not name it."""
    table = run.tables["od_test_competence"]
    return {(row.get("source", ""), row.get("model", "")): row["architecture"] for row in table.to_dict("records")}


def by_source(run: rw.Run) -> dict[str, list[Bar]]:
    """Figures 4 and 6: the bars of every source, of which no numbers were published.

    A monitor that asks no model stands there once.
    """
    table = run.tables["od_test_methods"].query("ood == 'all' and metric == 'accuracy'")
    known, panels = architectures(run), dict[str, list[Bar]]()
    alone = set(run.tables["od_test_architectures"].query("architecture == 'any'")["monitor"])
    seen: set[tuple[str, str]] = set()
    for row in table.to_dict("records"):
        source, model = str(row.get("source", "")), str(row.get("model", ""))
        if ALL in (source, model) or (row["monitor"] in alone and (source, row["monitor"]) in seen):
            continue
        seen.add((source, row["monitor"]))
        bar = _bar(row, ANY if row["monitor"] in alone else known[source, model])
        panels.setdefault(source or model, []).append(replace(bar, published=None))
    order = {bar.name: place for place, bar in enumerate(figure_3(run))}
    return {name: sorted(bars, key=lambda bar: order.get(bar.name, len(order))) for name, bars in panels.items()}


def breakdown(run: rw.Run) -> list[list[str]]:
    """Figures 4 and 6 as a table: a row per method, a column per source."""
    panels = by_source(run)
    names = list(dict.fromkeys(bar.name for bars in panels.values() for bar in bars))
    rows = [["method", *panels]]
    for name in names:
        own = {source: next((bar for bar in bars if bar.name == name), None) for source, bars in panels.items()}
        cells = [f"{percent(bar.value)}{'*' if bar.undertrained else ''}" if bar else "" for bar in own.values()]
        rows.append([name, *cells])
    return rows


def table_2(run: rw.Run) -> list[list[str]]:
    """Accuracy and size of the networks beside the published ones, by source and model."""
    networks, competence = run.tables["od_test_networks"], run.tables["od_test_competence"]
    rows = [["source", "model", "CE, training", "published", "KL, held out", "published", "MB", "published", "floor"]]
    for (source, model), architecture in architectures(run).items():
        own = _of(networks, source, model)
        trained = _of(competence, source, model).query("part == 'train'")["value"]
        logistic = own[own["loss"] == LOGISTIC]["value"]
        itself = own[own["monitors"] == ""]
        published = TABLE_2.get(source, {}).get(kind_of(architecture), (None, None, None))
        figures = [trained.iloc[0] if len(trained) else None, logistic.iloc[0] if len(logistic) else None]
        size = itself["megabytes"].sum(min_count=1)
        weak = own[own["undertrained"]]["monitors"].replace("", "the model")
        known = ["" if figure is None else f"{figure:.2f}" for figure in published]
        ours = [*map(percent, figures), "" if np.isnan(size) else f"{size:.3g}"]
        columns = [cell for pair in zip(ours, known, strict=True) for cell in pair]
        below = f"below it: {', '.join(dict.fromkeys(weak))}" if len(weak) else "all above"
        rows.append([source, model or architecture, *columns, below])
    return rows


def _of(table: pd.DataFrame, source: str, model: str) -> pd.DataFrame:
    """The rows of one source and of one model, where a table tells these apart."""
    for column, name in (("source", source), ("model", model)):
        if column in table and name:
            table = table[table[column] == name]
    return table


def noise(run: rw.Run) -> list[list[str]]:
    """PbThreshold between the two kinds of noise, at every source and model."""
    matrix = run.tables["od_test"].query("monitor == 'msp' and metric == 'accuracy'")
    rows = [["source", *(f"{one} to {other}" for one, other in PAIRS)]]
    columns = [column for column in ("source", "model") if column in matrix]
    for names, own in matrix.groupby(columns, sort=False):
        values = own.set_index(["valid_set", "test_set"])["value"]
        rows.append(["/".join(map(str, names)), *(percent(values.get(pair)) for pair in PAIRS)])
    return rows


def main() -> None:
    """Print the tables, and draw the figures where a folder for them is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for od-test-figure3.png, -figure4.png and -figure6.png")
    asked = parser.parse_args()
    run = rw.open_run(asked.run)
    print("Figure 3: mean test accuracy (%, 95 % interval)\n")
    print(markdown(ranking(run)))
    print("\nFigures 4 and 6: mean test accuracy (%) by source; * undertrained\n")
    print(markdown(breakdown(run)))
    if "od_test_networks" in run.tables:
        print("\nTable 2: accuracy (%) of the networks; CE cross-entropy, KL k-way logistic loss\n")
        print(markdown(table_2(run)))
    print("\nPbThreshold (`msp`), accuracy (%)\n")
    print(markdown(noise(run)))
    if asked.pictures:
        panels = by_source(run)
        chosen = {name: [bar for bar in bars if bar.label in FIGURE_4] for name, bars in panels.items()}
        figures = {"figure3": {"": figure_3(run)}, "figure4": chosen, "figure6": panels}
        for name, content in figures.items():
            path = asked.pictures / f"od-test-{name}.png"
            draw(content).save(path, optimize=True)
            print(f"drawn: {path}")


if __name__ == "__main__":
    main()
