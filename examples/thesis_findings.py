"""Print what a run of studies/heindrich*.yaml says about three findings of the thesis (markdown).

Do harder sets and stronger shifts separate the two classifiers more? Does it depend on the set, or the shift, which of
them is better (an interaction)? Are Lee's GANs harder than Sricharan's, for each classifier?

python examples/thesis_findings.py runs/heindrich-small
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from thesis_tables import analysis, markdown

import roadworthy as rw

INTERACTIONS = (
    ("anova_classification", "accuracy", "model*shift"),
    ("anova_classification", "accuracy", "model*level"),
    ("anova_classification", "auroc", "model*shift"),
    ("anova_classification", "auroc", "model*level"),
    ("anova_classification", "brier_mean", "model*shift"),
    ("anova_classification", "brier_mean", "model*level"),
    ("anova_ood_sets", "auroc", "model*ood_set"),
    ("anova_ood_transformed", "auroc", "model*shift"),
    ("anova_gan_average", "auroc", "model*ood_set"),
    ("anova_gan_hardest", "auroc", "model*ood_set"),
)
"""Table, metric and interaction of a classifier with what it was shown."""


def differences(rows: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Per condition and repeat: how hard it is (1 - mean of both models) and the second model less the first.

    Rows are of one metric of which more is better; models keep the order in which they stand.
    """
    first, second = rows["model"].unique()
    by_model = rows.pivot_table(index=[condition, "repeat"], columns="model", values="value", sort=False)
    return pd.DataFrame(
        {"difficulty": 1 - by_model.mean(axis=1), "difference": by_model[second] - by_model[first]}
    ).reset_index()


def rank_correlation(table: pd.DataFrame, condition: str) -> dict[str, str]:
    """Spearman's rank correlation of difficulty and difference over conditions: of the means, and in each repeat."""
    means = table.groupby(condition, sort=False)[["difficulty", "difference"]].mean()
    repeats = [spearmanr(own["difficulty"], own["difference"]).statistic for _, own in table.groupby("repeat")]
    of_means = spearmanr(means["difficulty"], means["difference"]).statistic
    return {
        "conditions": str(len(means)),
        "mean difference": f"{means['difference'].mean():+.4f}",
        "rank correlation": f"{of_means:+.2f}",
        "in each repeat": ", ".join(f"{value:+.2f}" for value in repeats),
    }


def separation(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Do harder conditions separate the classifiers more? A positive correlation says yes."""
    ood = tables["ood_repeats"].query("metric == 'auroc' and kind != 'gan'")
    shifts = tables["classification_repeats"].query("metric == 'accuracy' and shift != 'none'")
    shifts = shifts.assign(condition=shifts["shift"] + "-" + shifts["level"].astype(str))
    plain, transformed = ood[ood["kind"] != "transformed"], ood[ood["kind"] == "transformed"]
    asked = {
        "AUROC, plain sets of outliers": (plain, "ood_set"),
        "AUROC, a shift on both sides": (transformed, "ood_set"),
        "AUROC, all these sets": (ood, "ood_set"),
        "accuracy, shifts and levels": (shifts, "condition"),
    }
    rows = {
        name: rank_correlation(differences(own, condition), condition)
        for name, (own, condition) in asked.items()
        if own[condition].nunique() > 2
    }
    return pd.DataFrame(rows).T.rename_axis("measured on")


def interactions(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every interaction of the classifier with what it was shown, in all forms of the analysis."""
    rows = []
    for name, metric, factor in INTERACTIONS:
        if name in tables:
            table = analysis(tables[name], metric)
            if factor in table.index:
                rows.append({"table": name, "metric": metric, "interaction": factor, **table.loc[factor]})
    return pd.DataFrame(rows).set_index("table")


def permutation_p(first: np.ndarray, second: np.ndarray) -> float:
    """The exact two-sided p of a difference of means: the share of all splits of the values that differ as much.

    >>> permutation_p(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    0.3333333333333333
    """
    values = np.concatenate([first, second])
    chosen = np.array(list(combinations(range(len(values)), len(first))))
    means = values[chosen].mean(axis=1)
    rest = (values.sum() - means * len(first)) / len(second)
    observed = abs(first.mean() - second.mean())
    return float((np.abs(means - rest) >= observed - 1e-12).mean())


def lee_against_sricharan(gans: pd.DataFrame) -> pd.DataFrame:
    """Per classifier the mean AUROC of Lee's GANs and of Sricharan's; a GAN counts once, whatever its images."""
    means = gans.query("metric == 'auroc'").groupby(["model", "ood_set", "gan"], sort=False)["value"].mean()
    rows = []
    for model, own in means.groupby(level="model", sort=False):
        is_lee = own.index.get_level_values("ood_set").str.startswith("lee")
        lee, other = own[is_lee].to_numpy(), own[~is_lee].to_numpy()
        rows.append(
            {
                "model": model,
                "Lee": _spread(lee),
                "Sricharan": _spread(other),
                "difference": f"{lee.mean() - other.mean():+.3f}",
                "p, over GANs": f"{permutation_p(lee, other):.2f}",
            }
        )
    return pd.DataFrame(rows).set_index("model")


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f}, {len(values)} GANs)"


def sections(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, str]]:
    """Every finding of a run as (title, table)."""
    yield "Do harder conditions separate the classifiers more?", markdown(separation(tables))
    yield "Does it depend on the condition which classifier is better?", markdown(interactions(tables))
    if "gan_repeats" in tables:
        yield "Lee against Sricharan, for each classifier", markdown(lee_against_sricharan(tables["gan_repeats"]))


def main() -> None:
    """Print every finding."""
    for title, text in sections(rw.open_run(sys.argv[1]).tables):
        print(f"{title}\n\n{text}\n")


if __name__ == "__main__":
    main()
