"""The page of a mutation: which damages the study misses, which it catches, and by which criteria."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.mutation.outcomes import IMPOSSIBLE, LARGE_DROP, MISSED, OUTCOMES
from roadworthy.report import render_tables

if TYPE_CHECKING:
    from roadworthy.mutation import Mutation

TEMPLATE = Path(__file__).with_name("page.html.j2")


def render(mutation: Mutation) -> str:
    """One HTML page that opens offline, with the look of the report."""
    from roadworthy.mutation import points, shown

    return render_tables(
        TEMPLATE,
        mutation=mutation,
        outcomes=OUTCOMES,
        impossible=IMPOSSIBLE,
        missed=MISSED,
        large_drop=LARGE_DROP,
        share=shown,
        points=points,
        all_results=[mutation.copy, *mutation.results],
    )
