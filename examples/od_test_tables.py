"""Print the ranking of an OD-test run beside the published one (markdown), and the pair uniform to normal noise.

python examples/od_test_tables.py runs/od-test-small
"""

from __future__ import annotations

import sys

import pandas as pd

import roadworthy as rw

PUBLISHED = {
    "odin": (78.66, 76.99),
    "score_svm": (77.17, 69.88),
    "mc_dropout": (73.47, None),
    "knn_svm k=1": (73.37, None),
    "knn_svm k=2": (72.95, None),
    "knn_svm k=4": (72.64, None),
    "knn_svm k=8": (72.62, None),
    "msp": (72.63, 70.48),
    "openmax": (62.31, 58.44),
}
"""Mean test accuracy (%) with VGG-16 and ResNet-50 over 308 triples, figure 3 of Shafaei et al. (2018)."""
PAIRS = (("uniform_noise", "normal_noise"), ("normal_noise", "uniform_noise"))


def markdown(rows: list[list[str]]) -> str:
    """Rows, the first of them the heading, as a table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ranking(methods: pd.DataFrame) -> list[list[str]]:
    """Our order and figures beside the published ones; the published rank is among the monitors of both.

    A monitor without some of the triples has no rank here.
    """
    ours = methods.query("source == 'all' and ood == 'all' and metric == 'accuracy'").set_index("monitor")
    ours = ours.sort_values("value", ascending=False)
    known_to_both = [name for name in ours.index if name in PUBLISHED]
    published = sorted(known_to_both, key=lambda name: -PUBLISHED[name][0])
    shared = [name for name in known_to_both if ours.loc[name, "triples"] == ours["triples"].max()]
    rows = [["monitor", "accuracy (95 %)", "rank here", "rank published", "VGG", "ResNet", "note"]]
    for name, row in ours.iterrows():
        figures = PUBLISHED.get(str(name), (None, None))
        ranks = [str(order.index(name) + 1) if name in order else "" for order in (shared, published)]
        known = ["" if figure is None else f"{figure:.2f}" for figure in figures]
        bounds = f"{100 * row['value']:.1f} ({100 * row['lo']:.1f} to {100 * row['hi']:.1f})"
        rows.append([f"`{name}`", bounds, *ranks, *known, str(row["reason"])])
    return rows


def noise(matrix: pd.DataFrame) -> list[list[str]]:
    """PbThreshold between the two kinds of noise, at every source."""
    chosen = matrix.query("monitor == 'msp' and metric == 'accuracy'").set_index(["source", "valid_set", "test_set"])
    rows = [["source", *(f"{one} to {other}" for one, other in PAIRS)]]
    for source in dict.fromkeys(matrix["source"]):
        cells = [chosen["value"].get((source, *pair)) for pair in PAIRS]
        rows.append([source, *("" if cell is None else f"{100 * cell:.1f}" for cell in cells)])
    return rows


def main() -> None:
    """Print both tables."""
    run = rw.open_run(sys.argv[1])
    print("Mean test accuracy (%)\n")
    print(markdown(ranking(run.tables["od_test_methods"])))
    print("\nPbThreshold (`msp`), accuracy (%)\n")
    print(markdown(noise(run.tables["od_test"])))


if __name__ == "__main__":
    main()
