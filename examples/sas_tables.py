"""Print tables 1 to 5 of a monitoring run beside those of the SAS report (markdown), larger boxes, and means.

python examples/sas_tables.py runs/sas-small
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pandas as pd

import roadworthy as rw

METRICS = ("mcc", "fpr", "fnr", "precision", "recall", "f1_weighted")
PUBLISHED = {
    ("gtsrb", "btsc"): {
        "oob": (0.21, 0.84, 0.04, 0.80, 0.96, 0.73),
        "oob_isomap": (0.20, 0.72, 0.11, 0.81, 0.89, 0.73),
        "oob_pca": (0.04, 0.86, 0.11, 0.78, 0.89, 0.68),
        "odin": (0.03, 0.99, 0.00, 0.16, 1.00, 0.06),
    },
    ("cifar10", "gtsrb"): {
        "oob": (0.06, 0.97, 0.00, 0.16, 1.00, 0.09),
        "oob_isomap": (0.04, 0.98, 0.00, 0.16, 1.00, 0.07),
        "oob_pca": (0.17, 0.80, 0.03, 0.20, 0.97, 0.33),
        "odin": (0.23, 0.61, 0.10, 0.24, 0.90, 0.52),
    },
    ("gtsrb", "cifar10"): {
        "oob": (0.16, 0.73, 0.10, 0.21, 0.90, 0.40),
        "oob_isomap": (0.19, 0.06, 0.81, 0.40, 0.19, 0.80),
        "oob_pca": (-0.06, 0.99, 0.02, 0.64, 0.98, 0.50),
        "odin": (-0.07, 1.00, 0.02, 0.17, 0.98, 0.06),
    },
}
"""Tables 2, 3 and 4 of Ferreira et al.: SAS deliverable D1.1 (2020), by ID and OOD set."""
IMPACT = {
    "oob": {"gtsrb": "0.59 (−38.5 %)", "cifar10": "0.51 (−31.1 %)"},
    "oob_isomap": {"gtsrb": "0.66 (−31.3 %)", "cifar10": "0.51 (−31.1 %)"},
    "oob_pca": {"gtsrb": "0.51 (−46.9 %)", "cifar10": "0.59 (−20.3 %)"},
    "odin": {"gtsrb": "0.50 (−47.9 %)", "cifar10": "0.64 (−13.5 %)"},
    "baseline": {"gtsrb": "0.96", "cifar10": "0.74"},
}
"""Table 5 of the report: MCC on ID data, and its relative change."""
BOXES = ("oob", "oob_isomap", "oob_pca", "oob_all")
TAUS = (0.0, 0.0001, 0.01, 0.1, 0.25, 0.5, 1.0, 2.0)


def markdown(rows: list[list[str]]) -> str:
    """Rows, the first of them the heading, as a table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float, digits: int = 2) -> str:
    """A value with a true minus sign; empty where it is missing."""
    return "" if pd.isna(value) else f"{value:.{digits}f}".replace("-", "−")


def bounded(row: pd.Series) -> str:
    """A value with its bounds, where it has any."""
    if pd.isna(row["lo"]):
        return number(row["value"])
    return f"{number(row['value'])} ({number(row['lo'])} to {number(row['hi'])})"


def thresholds(run: rw.Run) -> list[list[str]]:
    """Table 1: what every monitor decides by, and how much of the ID test data it rejects."""
    rows = [["source", "model", "monitor", "rule", "threshold", "ID test images rejected", "note"]]
    for row in run.tables["monitoring_thresholds"].to_dict("records"):
        share = f"{100 * row['value']:.1f} % ({100 * row['lo']:.1f} to {100 * row['hi']:.1f} %)"
        where = [row["source"], row["model"], f"`{row['monitor']}`", row["rule"]]
        note = row["notes"] if row["monitor"] == "odin" else ""
        rows.append([*where, number(row["threshold"], 4), share, note])
    return rows


def detection(run: rw.Run, source: str, model: str, benchmark: str) -> list[list[str]]:
    """Tables 2 to 4: detection of one set by every monitor, and the report's figures in brackets below."""
    table = run.tables["monitoring"].query("view == 'detection' and part == 'stream'")
    table = table.query("source == @source and model == @model and benchmark == @benchmark")
    by_monitor = table.set_index(["monitor", "metric"])
    rows = [["monitor", "MCC (95 %)", "FPR", "FNR", "precision", "recall", "F1 (weighted)"]]
    for monitor in dict.fromkeys(table["monitor"]):
        values = [by_monitor.loc[(monitor, metric)] for metric in METRICS]
        rows.append([f"`{monitor}`", bounded(values[0]), *(number(value["value"]) for value in values[1:])])
        known = PUBLISHED[source, benchmark].get(monitor)
        if known:
            rows.append(["*report*", *(f"*{number(value)}*" for value in known)])
    return rows


def impact(run: rw.Run) -> list[list[str]]:
    """Table 5: what each monitor does to the class MCC on ID data."""
    table = run.tables["monitoring_id"].set_index(["source", "model", "monitor", "metric"])
    columns = [*dict.fromkeys((source, model) for source, model, *_ in table.index)]
    rows = [["monitor", *(f"{source}, {model}" for source, model in columns), "report: GTSRB", "report: CIFAR-10"]]

    def cells(monitor: str, metric: str) -> Iterator[str]:
        for source, model in columns:
            change = table.loc[(source, model, monitor, "relative_change")]["value"]
            suffix = "" if metric == "class_mcc_alone" else f" ({100 * change:+.1f} %)".replace("-", "−")
            yield number(table.loc[(source, model, monitor, metric)]["value"]) + suffix

    monitors = [*dict.fromkeys(monitor for *_, monitor, _ in table.index)]
    published = {name: [IMPACT.get(name, {}).get(key, "") for key in ("gtsrb", "cifar10")] for name in monitors}
    rows.append(["model alone", *cells(monitors[0], "class_mcc_alone"), *IMPACT["baseline"].values()])
    rows += [[f"`{name}`", *cells(name, "class_mcc"), *published[name]] for name in monitors]
    return rows


def enlarged(run: rw.Run, source: str, model: str, benchmark: str) -> list[list[str]]:
    """FPR and FNR of boxes for every tau, from stored scores: minus the least tau at which an image is inside."""
    decisions = rw.monitor_decisions(
        run.path, models=[model], benchmarks=[benchmark], monitors=list(BOXES), source=source
    )
    rows = [["tau", *(f"`{name}` FPR / FNR" for name in BOXES)]]
    for tau in TAUS:
        cells = []
        for name in BOXES:
            own = decisions[decisions["monitor"] == name]
            rejected, ood = own["score"] < -tau, own["ood"] == 1
            cells.append(f"{number(rejected[~ood].mean())} / {number((~rejected[ood]).mean())}")
        rows.append([f"{tau:g}", *cells])
    return rows


def means(run: rw.Run, view: str) -> list[list[str]]:
    """The mean MCC over the benchmarks of each kind and of all, per model."""
    table = run.tables["monitoring_overall"]
    table = table[(table["view"] == view) & (table["part"] == "stream") & (table["metric"] == "mcc")]
    kinds = [*dict.fromkeys(kind for kind in table["ood_kind"] if kind != "all"), "all"]
    rows = [["source", "model", "monitor", *(kind.replace("_", " ") for kind in kinds)]]
    cells = table.set_index(["source", "model", "monitor", "ood_kind"])
    for source, model, monitor in dict.fromkeys(zip(table["source"], table["model"], table["monitor"], strict=True)):
        if monitor == "none":
            continue
        values = [cells.loc[(source, model, monitor, kind)] for kind in kinds]
        shown = [*(number(value["value"]) for value in values[:-1]), bounded(values[-1])]
        rows.append([source, model, f"`{monitor}`", *shown])
    return rows


def effects(run: rw.Run) -> list[list[str]]:
    """What each monitor changes in a stream, as a mean over all benchmarks: shares of all images."""
    table = run.tables["monitoring_overall"]
    table = table[(table["view"] == "model_scope") & (table["part"] == "stream") & (table["ood_kind"] == "all")]
    cells = table.set_index(["source", "model", "monitor", "metric"])["value"]
    rows = [["source", "model", "monitor", "wrong and rejected", "wrong and accepted", "right and rejected"]]
    metrics = ("safety_gain", "residual_hazard", "availability_cost")
    for source, model, monitor in dict.fromkeys(zip(table["source"], table["model"], table["monitor"], strict=True)):
        shares = [f"{100 * cells[source, model, monitor, metric]:.1f} %" for metric in metrics]
        rows.append([source, model, f"`{monitor}`", *shares])
    return rows


def main() -> None:
    run = rw.open_run(sys.argv[1])
    print("Table 1\n" + markdown(thresholds(run)))
    for source, model, benchmark in (
        ("gtsrb", "lenet", "btsc"),
        ("cifar10", "lenet", "gtsrb"),
        ("cifar10", "resnet20", "gtsrb"),
        ("gtsrb", "lenet", "cifar10"),
    ):
        print(f"\n{source} as ID, {benchmark} as OOD, {model}\n" + markdown(detection(run, source, model, benchmark)))
    print("\nTable 5\n" + markdown(impact(run)))
    print("\nLarger boxes, gtsrb against btsc\n" + markdown(enlarged(run, "gtsrb", "lenet", "btsc")))
    for view in ("detection", "system"):
        print(f"\nMean MCC, view {view}\n" + markdown(means(run, view)))
    print("\nEffects, mean over all benchmarks\n" + markdown(effects(run)))


if __name__ == "__main__":
    main()
