"""The tables of analyses over repeats: what a row of each says, and in which columns."""

from __future__ import annotations

from collections.abc import Sequence

from roadworthy.core.tables import TableSpec


def anova_table(name: str, title: str) -> TableSpec:
    """The table of the analyses of variance that answer a question of this name and title."""
    tested = (
        *("method", "factor", "sum_of_squares", "df", "mean_square", "f", "p", "eta_squared", "partial_eta_squared"),
        "omega_squared",
    )
    return TableSpec(
        f"anova_{name}",
        f"One test of one form of the analysis of variance '{title}', by repeat or as if every condition were evidence "
        "of its own: a factor, an interaction, or equal variances.",
        key=("metric", "form", "factor"),
        columns=("metric", "form", *tested, "reason", "notes", "df_error", "epsilon"),
        optional=(*tested, "notes", "df_error", "epsilon"),
    )


def pairs_table(name: str, title: str, factors: Sequence[str]) -> TableSpec:
    """The table of the differences between levels of the factors of a question."""
    compared = ("a", "b", "difference", "lo", "hi", "p", "significant", "df", "test")
    levels = tuple(f"{factor}_{side}" for factor in factors for side in "ab")
    return TableSpec(
        f"posthoc_{name}",
        f"The difference between two levels, or two combinations of levels, in the analysis '{title}', by one method: "
        "by repeat (one value per repeat), or as if every condition were evidence of its own.",
        key=("metric", "by", "method", "a", "b"),
        columns=("metric", "by", "method", *compared, "reason", "notes", *levels),
        optional=(*compared, "notes", *levels),
    )


def means_table(name: str, title: str) -> TableSpec:
    """The table of the means of levels of the factors of a question."""
    return TableSpec(
        f"posthoc_{name}_means",
        f"The mean of one level, or one combination of levels, in the analysis '{title}'.",
        key=("metric", "by", "method", "cell"),
        columns=("metric", "by", "method", "cell", "n", "mean", "lo", "hi", "letters", "reason", "notes"),
        names_joined=True,
    )
