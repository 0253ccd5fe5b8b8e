"""Figures that answer the questions of an approval, as protocols declare them of their own tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from roadworthy.metrics import find_metric, metrics_of
from roadworthy.verdict.questions import known_question

Row = Mapping[str, Any]


NO_WORST: Row = {"conditions": 0, "worst": "", "worst_n": 0, "worst_groups": 0}


def all_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Every row."""
    return rows


@dataclass(frozen=True)
class QuestionFigure:
    """One figure of a protocol that answers a question; its rows stand in the table `approval`.

    question   its name in `verdict.questions`
    metric     by its name in the protocol's tables
    figure     what the value is, in words: `mean over all shifts and levels`
    table      the table that it is taken from
    select     given the rows of the metric there, a row per model: `model`, the value and its bounds
    is_main    whether it is the figure that stands for the answer
    cells      the table with a row per condition, the worst of which is named; empty where there is none
    among      given the rows of the metric there, those that count
    condition  what a row of `cells` was shown, in words
    """

    question: str
    metric: str
    figure: str
    table: str
    select: Callable[[pd.DataFrame], pd.DataFrame] = all_rows
    is_main: bool = False
    cells: str = ""
    among: Callable[[pd.DataFrame], pd.DataFrame] = all_rows
    condition: Callable[[Row], str] = str

    def __post_init__(self) -> None:
        known_question(self.question)

    def rows(self, protocol: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, Any]]:
        """Its rows of the table `approval`: one per model, each with its worst condition."""
        if self.table not in tables:
            return
        values = self.select(_of_metric(tables[self.table], self.metric))
        cells = self.among(_of_metric(tables[self.cells], self.metric)) if self.cells in tables else None
        higher = find_metric(self.metric, metrics_of(protocol)).higher_is_better is not False
        named = {"protocol": protocol, "figure": self.figure, "main": self.is_main, "metric": self.metric}
        for row in values.to_dict("records"):
            estimate = {name: row[name] for name in ("value", "lo", "hi", "n", "groups", "method")}
            worst = dict(NO_WORST) if cells is None else self._worst(cells[cells["model"] == row["model"]], higher)
            reason = "; ".join(dict.fromkeys(filter(None, [row["reason"], worst.pop("reason", "")])))
            yield {"question": self.question, "model": row["model"], **named, **estimate, **worst, "reason": reason}

    def _worst(self, cells: pd.DataFrame, higher_is_better: bool) -> dict[str, Any]:
        """The condition with the worst value, the first of equal ones; those without a value are counted."""
        known = cells[cells["value"].notna()]
        missing = cells[cells["value"].isna()]
        reason = f"{len(missing)} of {len(cells)} conditions without a value" if len(missing) else ""
        if reason and missing.iloc[0]["reason"]:
            reason += f": {missing.iloc[0]['reason']}"
        if not len(known):
            return {**NO_WORST, "conditions": len(cells), "reason": reason}
        values = known["value"].to_numpy()
        position = int(values.argmin() if higher_is_better else values.argmax())
        row = {str(name): value for name, value in known.iloc[position].to_dict().items()}
        measured = {f"worst_{name}": row[name] for name in ("value", "lo", "hi", "n", "groups")}
        return {"conditions": len(cells), "worst": self.condition(row), **measured, "reason": reason}


def _of_metric(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    return table[table["metric"] == metric] if "metric" in table else table.head(0)
