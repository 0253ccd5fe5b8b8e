"""Print what mirrored copies change in an OD-test run (markdown): accuracy of every monitor without and with them.

python examples/mirror_tables.py runs/od-test-mirror
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from scipy.stats import t

import roadworthy as rw

KINDS = ("plain", "mirrored")
"""The sources of studies/od-test-mirror.yaml; each has a network per seed."""


def markdown(rows: list[list[str]]) -> str:
    """Rows, the first of them the heading, as a table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_network(triples: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means over the triples of each network (%): a row per monitor, a column per source and network."""
    chosen = triples[triples["metric"] == metric]
    return 100 * chosen.groupby(["monitor", "source", "model"])["value"].mean().unstack(["source", "model"])


def welch(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """95 % bounds of the difference of two means, other - one, after Welch; networks are the independent unit."""
    parts = np.array([values.var(ddof=1) / len(values) for values in (one, other)])
    freedom = parts.sum() ** 2 / (parts**2 / [len(one) - 1, len(other) - 1]).sum()
    half = float(t.ppf(0.975, freedom) * np.sqrt(parts.sum()))
    return float(other.mean() - one.mean() - half), float(other.mean() - one.mean() + half)


def comparison(means: pd.DataFrame) -> list[list[str]]:
    """Mean over networks (lowest to highest), difference with its bounds, and rank without and with copies.

    A monitor that does not ask the network has the same figures with every seed, and no bounds.
    """
    rows = [["monitor", "without copies", "with copies", "difference (95 %)", "rank without", "rank with"]]
    overall = {kind: means[kind].mean(axis=1) for kind in KINDS}
    ranks = {kind: overall[kind].rank(ascending=False, method="min").astype(int) for kind in KINDS}
    for monitor in overall[KINDS[0]].sort_values(ascending=False).index:
        values = [means.loc[monitor, kind].to_numpy(float) for kind in KINDS]
        cells = [f"{v.mean():.1f} ({v.min():.1f} to {v.max():.1f})" for v in values]
        change = f"{values[1].mean() - values[0].mean():+.1f}"
        if any(v.max() > v.min() for v in values):
            low, high = welch(*values)
            change += f" ({low:+.1f} to {high:+.1f})"
        rows.append([f"`{monitor}`", *cells, change, *(str(ranks[kind][monitor]) for kind in KINDS)])
    return rows


def competence(table: pd.DataFrame) -> list[list[str]]:
    """Accuracy (%) of every network on the images of each part."""
    wide = 100 * table.pivot_table(index=["source", "model"], columns="part", values="value", sort=False)
    cells = [[*name, *(f"{value:.1f}" for value in row)] for name, row in zip(wide.index, wide.to_numpy(), strict=True)]
    return [["source", "network", *wide.columns], *cells]


def main() -> None:
    """Print accuracy and AUROC of monitors, and accuracy of networks."""
    tables = rw.open_run(sys.argv[1]).tables
    for metric in ("accuracy", "auroc"):
        print(f"Mean {metric} (%) over triples\n")
        print(markdown(comparison(by_network(tables["od_test"], metric))), "\n")
    print("Accuracy of the networks (%)\n")
    print(markdown(competence(tables["od_test_competence"])))


if __name__ == "__main__":
    main()
