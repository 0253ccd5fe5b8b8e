"""Print a run of studies/heindrich*.yaml as the thesis prints its tables 1, 5, 7, 9, 10 and 13 (markdown).

python examples/thesis_tables.py runs/heindrich-small
"""

from __future__ import annotations

import sys

import pandas as pd

import roadworthy as rw

METRICS = ("accuracy", "auroc", "brier_mean")


def mean_sd(values: pd.Series) -> str:
    """A mean over repeats with its standard deviation, as in the thesis."""
    return f"{values.mean():.4f} ({values.std():.4f})"


def markdown(table: pd.DataFrame) -> str:
    """A table with its index as the first column."""
    shown = table.reset_index()
    rows = [list(map(str, shown.columns)), ["---"] * len(shown.columns), *shown.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def summary(repeats: pd.DataFrame) -> pd.DataFrame:
    """Table 1: each metric undisturbed and over all shifts and levels."""
    kept = repeats[repeats["metric"].isin(METRICS)]
    where = kept["shift"].eq("none").map({True: "undisturbed", False: "all shifts and levels"}).rename("data")
    return kept.groupby(["metric", where, "model"])["value"].agg(mean_sd).unstack(["data", "model"])


def main() -> None:
    """Print every table."""
    run = rw.open_run(sys.argv[1])
    repeats, ood = run.tables["classification_repeats"], run.tables["ood_repeats"]
    print("Table 1: mean (standard deviation)\n")
    print(markdown(summary(repeats).pipe(lambda t: t.set_axis([f"{m}, {d}" for d, m in t.columns], axis=1))))
    auroc = ood[ood["metric"] == "auroc"]
    for title, rows in (
        ("Table 5: AUROC of the plain sets", auroc[~auroc["kind"].isin(["transformed", "gan"])]),
        ("Table 7: AUROC with a shift on both sides", auroc[auroc["kind"] == "transformed"]),
    ):
        print(f"\n{title}\n")
        print(markdown(rows.groupby(["ood_set", "model"])["value"].agg(mean_sd).unstack("model")))
    if "gan_repeats" in run.tables:
        drawn = run.tables["gan_repeats"].query("metric == 'auroc'")
        for title, rows in (
            ("Table 9: AUROC of GANs, the average of each configuration", drawn),
            (
                "Table 10: AUROC of GANs, the hardest of each configuration (selected on the test data)",
                drawn[drawn.hardest],
            ),
        ):
            print(f"\n{title}\n")
            print(markdown(rows.groupby(["ood_set", "model"], sort=False)["value"].agg(mean_sd).unstack("model")))
    accuracy = repeats[(repeats["metric"] == "accuracy") & (repeats["shift"] != "none")]
    print("\nTable 13: accuracy\n")
    cells = accuracy.groupby(["shift", "model", "level"])["value"].mean().round(4).unstack(["model", "level"])
    print(markdown(cells.set_axis([f"{m} {level}" for m, level in cells.columns], axis=1)))


if __name__ == "__main__":
    main()
