"""The table `approval`: what each protocol of a run says to the questions of its study."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from roadworthy.core.record import RunRecord
from roadworthy.engine.conditions import Conditions
from roadworthy.protocols.base import PROTOCOLS, joined
from roadworthy.verdict.questions import APPROVAL


def answer_tables(
    tables: Mapping[str, pd.DataFrame], protocols: Collection[str], questions: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """The table `approval` from the tables of the run's own protocols; none where the study asks no question.

    Where tables have a column `source`, each source is answered for by itself.
    """
    if not questions:
        return {}
    sources = {source: None for table in tables.values() if "source" in table for source in table["source"]}
    if sources:
        own = {
            source: {
                name: table[table["source"] == source].drop(columns="source").reset_index(drop=True)
                for name, table in tables.items()
                if "source" in table
            }
            for source in sources
        }
        return joined({source: answer_tables(part, protocols, questions) for source, part in own.items()})
    rows = [
        row
        for question in questions
        for protocol in protocols
        for figure in PROTOCOLS.get(protocol).question_figures
        if figure.question == question
        for row in figure.rows(protocol, tables)
    ]
    return {APPROVAL.name: APPROVAL.frame(rows)}


def unanswered(record: RunRecord) -> dict[str, str]:
    """The questions of a run that it cannot answer, with the reason: nothing that answers them was run, or it failed.

    What answers a question is what declares a figure for it.
    """
    reasons = {}
    for question in record.questions:
        cases = [
            (case.status, case.reason)
            for protocol, _, _, case in record.asked()
            if case.kind != Conditions.kind
            and protocol in PROTOCOLS
            and question in {figure.question for figure in PROTOCOLS.get(protocol).question_figures}
        ]
        if not cases:
            reasons[question] = "not run: no protocol of the study answers it"
        elif all(status == "failed" for status, _ in cases):
            reasons[question] = f"not run: every case failed, the first since {cases[0][1]}"
    return reasons
