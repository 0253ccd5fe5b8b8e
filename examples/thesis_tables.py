"""Print a run of studies/heindrich*.yaml as the thesis prints its tables 1 to 18 and figure 9 (markdown).

Tables 1 to 11 and 13 to 18; 12 is a table of parameters, which `roadworthy list shifts` prints.

python examples/thesis_tables.py runs/heindrich-small
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping

import pandas as pd

import roadworthy as rw
from roadworthy.statistics import thesis_p
from roadworthy.statistics.estimates import deviation_over_conditions, deviation_over_repeats

METRICS = ("accuracy", "auroc", "brier_mean")
UNDISTURBED, DISTURBED = "undisturbed", "all shifts and levels"
BAR = 40
"""Characters of the longest bar of figure 9."""
LEVEL_TABLES = {"accuracy": (13, 14), "auroc": (15, 16), "brier_mean": (17, 18)}
"""By metric: the tables of means and of standard deviations by shift and level."""
ANALYSES = (
    ("Section 4.1, undisturbed against disturbed", "anova_transformed", METRICS),
    ("Table 2", "anova_classification", ("accuracy",)),
    ("Table 3", "anova_classification", ("auroc",)),
    ("Table 4", "anova_classification", ("brier_mean",)),
    ("Table 6, plain sets of outliers", "anova_ood_sets", ("auroc",)),
    ("Table 8, a shift on both sides", "anova_ood_transformed", ("auroc",)),
    ("Table 8 with the level as a factor", "anova_ood_levels", ("auroc",)),
    ("Table 11, the hardest GAN of each configuration (selected on the test data)", "anova_gan_hardest", ("auroc",)),
    ("As table 11, the average of each configuration", "anova_gan_average", ("auroc",)),
)


def mean_sd(values: pd.Series) -> str:
    """A mean over repeats with its standard deviation, as in the thesis."""
    return f"{values.mean():.4f} ({values.std():.4f})"


def markdown(table: pd.DataFrame) -> str:
    """A table with its index as the first column; numbers with four decimals, what is missing left empty."""
    shown = table.reset_index()
    cells = [[_text(cell) for cell in row] for row in shown.to_numpy().tolist()]
    rows = [list(map(str, shown.columns)), ["---"] * len(shown.columns), *cells]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.4f}"
    return str(cell)


def summary(repeats: pd.DataFrame) -> pd.DataFrame:
    """Table 1: each metric undisturbed and over all shifts and levels, with its standard deviations both ways.

    Over conditions and repeats taken together, as the thesis prints it; and over repeats, of the mean over conditions.
    """
    kept = repeats[repeats["metric"].isin(METRICS)]
    data = kept["shift"].eq("none").map({True: UNDISTURBED, False: DISTURBED}).rename("data")
    rows = []
    for (metric, where, model), cells in kept.groupby(["metric", data, "model"]):
        by_repeat = cells.sort_values("repeat").groupby(["shift", "level"])["value"]
        conditions = [own.tolist() for _, own in by_repeat]
        row = {"metric": metric, "data": where, "model": model, "mean": cells["value"].mean()}
        over_conditions = deviation_over_conditions(conditions) if where == DISTURBED else float("nan")
        rows.append(
            row | {"sd over conditions": over_conditions, "sd over repeats": deviation_over_repeats(conditions)}
        )
    return pd.DataFrame(rows).set_index("metric")


def bars(table: pd.DataFrame) -> Iterator[str]:
    """Figure 9 as text: a bar per metric, data and model, and one standard deviation as in the thesis."""
    for metric, rows in table.groupby(level=0, sort=False):
        yield f"{metric}:"
        for row in rows.sort_values("data", ascending=False).to_dict("records"):
            bar = "#" * round(BAR * row["mean"] / rows["mean"].max())
            sd = row["sd over repeats" if row["data"] == UNDISTURBED else "sd over conditions"]
            yield f"  {row['data']:<22}{row['model']:<14}{bar:<{BAR}} {row['mean']:.4f} (sd {sd:.4f})"


def by_level(repeats: pd.DataFrame, metric: str, figure: str) -> pd.DataFrame:
    """Tables 13 to 18: the `mean` or the `std` over repeats by shift, model and level."""
    rows = repeats[(repeats["metric"] == metric) & (repeats["shift"] != "none")]
    cells = rows.groupby(["shift", "model", "level"])["value"].agg(figure).unstack(["model", "level"])
    return cells.sort_index(axis=1).pipe(lambda table: table.set_axis([f"{m} {n}" for m, n in table.columns], axis=1))


def analysis(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A table of F as the thesis prints it, and beside it p by repeat and p without equal variances."""
    own = table[table["metric"] == metric]
    forms = {form: rows.set_index("factor") for form, rows in own.groupby("form") if "factor" in rows}
    rows = []
    for factor, row in forms["thesis"].iterrows():
        if factor == "Total" or pd.isna(factor):
            continue
        line = {"Factor": factor, "d.f.": f"{row['df']:g}", "F": "", "p": "", "p, by repeat": "", "p, robust": ""}
        if pd.notna(row["f"]):
            line |= {"F": f"{row['f']:.2f}", "p": thesis_p(row["p"])}
        for form, column in (("by repeat", "p, by repeat"), ("robust", "p, robust")):
            if form in forms and factor in forms[form].index and pd.notna(p := forms[form].loc[factor, "p"]):
                line[column] = thesis_p(p)
        rows.append(line)
    return pd.DataFrame(rows).set_index("Factor")


def sections(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, str]]:
    """Every table of a run as (title, text)."""
    repeats, ood = tables["classification_repeats"], tables["ood_repeats"]
    overall = summary(repeats)
    title = "Table 1: sd over conditions and repeats together (as the thesis), and over repeats of the mean"
    yield title, markdown(overall)
    yield "Figure 9: mean, and one standard deviation as in the thesis", "\n".join(["```", *bars(overall), "```"])
    auroc = ood[ood["metric"] == "auroc"]
    named = {
        "Table 5: AUROC of the plain sets": auroc[~auroc["kind"].isin(["transformed", "gan"])],
        "Table 7: AUROC with a shift on both sides": auroc[auroc["kind"] == "transformed"],
    }
    if "gan_repeats" in tables:
        drawn = tables["gan_repeats"].query("metric == 'auroc'")
        named["Table 9: AUROC of GANs, the average of each configuration"] = drawn
        hardest = "Table 10: AUROC of GANs, the hardest of each configuration (selected on the test data)"
        named[hardest] = drawn[drawn["hardest"]]
    for title, rows in named.items():
        yield title, markdown(rows.groupby(["ood_set", "model"], sort=False)["value"].agg(mean_sd).unstack("model"))
    for metric, (means, deviations) in LEVEL_TABLES.items():
        yield f"Table {means}: {metric}", markdown(by_level(repeats, metric, "mean"))
        yield f"Table {deviations}: standard deviations of table {means}", markdown(by_level(repeats, metric, "std"))
    for title, name, metrics in ANALYSES:
        for metric in metrics if name in tables else ():
            yield f"{title}: {metric}", markdown(analysis(tables[name], metric))


def main() -> None:
    """Print every table."""
    for title, text in sections(rw.open_run(sys.argv[1]).tables):
        print(f"{title}\n\n{text}\n")


if __name__ == "__main__":
    main()
