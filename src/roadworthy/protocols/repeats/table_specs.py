"""The tables of analyses over repeats: what a row of each says, and in which columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roadworthy.core.tables import TableSpec

ANALYSES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "classification": ("models, shifts and levels", ("model", "shift", "level")),
    "transformed": ("undisturbed against disturbed data", ("model", "transformed")),
    "ood_sets": ("sets of outliers", ("model", "ood_set")),
    "ood_transformed": ("outliers with both sides under a shift", ("model", "shift")),
    "gan_average": ("GANs, the average of each configuration", ("model", "ood_set")),
    "gan_hardest": ("GANs, the hardest of each configuration", ("model", "ood_set")),
}
"""What is analysed and by which factors, by the name that its tables have."""


def _anova(name: str, subject: str) -> TableSpec:
    tested = (
        *("method", "factor", "sum_of_squares", "df", "mean_square", "f", "p", "eta_squared", "partial_eta_squared"),
        "omega_squared",
    )
    return TableSpec(
        f"anova_{name}",
        f"One test of one form of the analysis of variance of {subject}: a factor, an interaction, or equal variances.",
        key=("metric", "form", "factor"),
        columns=("metric", "form", *tested, "reason", "notes", "df_error", "epsilon"),
        optional=(*tested, "notes", "df_error", "epsilon"),
    )


def _pairs(name: str, subject: str, factors: Sequence[str]) -> TableSpec:
    compared = ("a", "b", "difference", "lo", "hi", "p", "significant")
    levels = tuple(f"{factor}_{side}" for factor in factors for side in "ab")
    return TableSpec(
        f"posthoc_{name}",
        f"The difference between two levels, or two combinations of levels, in the analysis of {subject}.",
        key=("metric", "by", "method", "a", "b"),
        columns=("metric", "by", "method", *compared, "reason", "notes", *levels),
        optional=(*compared, "notes", *levels),
    )


def _means(name: str, subject: str) -> TableSpec:
    return TableSpec(
        f"posthoc_{name}_means",
        f"The mean of one level, or one combination of levels, in the analysis of {subject}.",
        key=("metric", "by", "method", "cell"),
        columns=("metric", "by", "method", "cell", "n", "mean", "lo", "hi", "letters", "reason", "notes"),
    )


ANOVA = {name: _anova(name, subject) for name, (subject, _) in ANALYSES.items()}
PAIRS = {name: _pairs(name, subject, factors) for name, (subject, factors) in ANALYSES.items()}
MEANS = {name: _means(name, subject) for name, (subject, _) in ANALYSES.items()}

TABLE_SPECS = tuple(spec for name in ANALYSES for spec in (ANOVA[name], PAIRS[name], MEANS[name]))
