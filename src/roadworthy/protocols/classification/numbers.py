"""All numbers of classification as rows of a table, and which shifts charts leave out where there are very many."""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import escape

from roadworthy.metrics import Metric, metrics_of
from roadworthy.protocols.classification.facts import ClassificationFacts
from roadworthy.protocols.classification.table_specs import NAME
from roadworthy.report.facts import CLEAN
from roadworthy.report.words import bounds, number, whole, words_of
from roadworthy.statistics import Estimate


def left_out_words(facts: ClassificationFacts) -> str:
    """Which shifts charts and galleries leave out; an empty text where they show all."""
    shown, known = len(facts.shown_shifts), len(facts.shifts)
    return f"Of {whole(known)} shifts the {shown} hardest are shown; the tables hold all." if shown < known else ""


def number_rows(facts: ClassificationFacts, model: str) -> Iterator[str]:
    """The rows of the table of all numbers of a model: a condition each, the value of every metric with its bounds.

    They are written here and not in the template, which takes minutes for a million values.
    """
    metrics = [words_of(metric, metrics_of(NAME)) for metric in facts.metrics]
    for condition in (CLEAN, *facts.conditions):
        name = "undisturbed" if condition == CLEAN else escape(condition.shift)
        cells = [
            _number_cell(known, facts.cell(model, condition, metric))
            for metric, known in zip(facts.metrics, metrics, strict=True)
        ]
        yield f'<tr><th scope="row">{name}</th><td class="n">{condition.level or "–"}</td>{"".join(cells)}</tr>'


def as_it_is(row: str) -> str:
    """A row of a table that is HTML already."""
    return row


def _number_cell(metric: Metric, cell: Estimate) -> str:
    if cell.missing:
        return f'<td class="n"><span class="missing" title="{escape(cell.reason)}">n/a</span></td>'
    sd = "" if math.isnan(cell.sd) else f'<br><span class="bounds">sd {number(metric, cell.sd)}</span>'
    reach = escape(bounds(metric, cell.lo, cell.hi))
    return f'<td class="n">{escape(number(metric, cell.value))}<br><span class="bounds">{reach}</span>{sd}</td>'
