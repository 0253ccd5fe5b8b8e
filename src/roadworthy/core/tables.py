"""Tables, declared once: those who write, check, read and document a table all ask its declaration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

SOURCE = "source"
"""The first column of tables by source, where a study has several sources."""
VALUE, REASON = "value", "reason"
ESTIMATE = ("metric", VALUE, "lo", "hi", "n", "groups", "sd", "method", REASON)
"""The columns of an estimate: a metric, its value with bounds, and what these rest on."""
ANSWER = ("image", "id", "label", "prediction", "confidence")
"""The columns of an answer to one image of a picture: its index in it, its true class (empty where it has none)."""


class TableError(Exception):
    """A table is not as it was declared: an error of the program that made it, not of its user."""


@dataclass(frozen=True)
class StudyColumns:
    """Columns whose names depend on the study; they stand before the declared ones.

    pattern      a regular expression that the whole of each name matches
    description  what these columns are, in a few words
    in_key       whether they help to identify a row
    """

    pattern: str
    description: str
    in_key: bool = False


@dataclass(frozen=True)
class TableSpec:
    """The declaration of a table that a run can hold.

    name           of the table and of its files
    about          one sentence on what a row says
    key            the columns that identify a row
    columns        all columns in their order, those of the key among them
    optional       columns that are there only where the run has something to say in them
    added_later    columns that every new table has, and that runs of earlier versions may lack
    study_columns  columns whose names depend on the study
    names_joined   whether the key has names joined into one text, which may be equal by chance
    by_source      whether a row belongs to a source: then `source` is the first column where a study has several

    >>> spec = TableSpec("speed", "The speed of a model.", key=("model",), columns=("model", "value", "reason"))
    >>> spec.values
    ('value', 'reason')
    """

    name: str
    about: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
    added_later: tuple[str, ...] = ()
    study_columns: StudyColumns | None = None
    names_joined: bool = False
    by_source: bool = True

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.key, *self.optional, *self.added_later) if name not in self.columns]
        if unknown or len(set(self.columns)) < len(self.columns) or SOURCE in self.columns:
            raise TableError(
                f"the declaration of table {self.name} must list every column once, those of its key among them "
                f"({', '.join(unknown) or 'all are'}), and leave out {SOURCE}"
            )

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that say something of the row, in their order."""
        return tuple(name for name in self.columns if name not in self.key)

    def frame(self, rows: Iterable[Mapping[str, Any]], first: Sequence[str] = ()) -> pd.DataFrame:
        """The table with these rows: the columns `first`, then the declared ones in their order.

        What a row lacks is a missing value; an optional column that no row has is left out. A row that says more than
        the columns is a `TableError`.
        """
        rows = list(rows)
        given = {name for row in rows for name in row}
        columns = [*first, *(name for name in self.columns if name in given or name not in self.optional)]
        if undeclared := sorted(given.difference(columns)):
            raise TableError(f"rows of table {self.name} have columns that it does not declare: {undeclared}")
        return pd.DataFrame(rows, columns=[*dict.fromkeys(columns)])

    def check(self, table: pd.DataFrame, several_sources: bool = False) -> None:
        """Raise a `TableError` where a table that is to be written is not as declared.

        Its columns are those declared, each once, with `source` before them exactly where the study has several
        sources; no two rows have the same key; a missing value has a reason where there is a column for it. A table
        without rows may lack columns.
        """
        columns = [str(name) for name in table.columns]
        problems = [f"has the column {name} twice" for name in dict.fromkeys(columns) if columns.count(name) > 1]
        problems += [f"has the undeclared column {name}" for name in self._undeclared(columns, several_sources)]
        if len(table):
            lacking = self._lacking(columns, several_sources, may_lack=self.optional)
            problems += [f"lacks the column {name}" for name in lacking]
            problems = problems or self._row_problems(table)
        if problems:
            raise TableError(f"table {self.name} is not as declared: it {'; it '.join(problems)}")

    def lacking(self, columns: Sequence[str], several_sources: bool = False) -> list[str]:
        """The declared columns that a stored table, of this or of an earlier version, should have and does not."""
        return self._lacking(columns, several_sources, may_lack=(*self.optional, *self.added_later))

    def _lacking(self, columns: Sequence[str], several_sources: bool, may_lack: Sequence[str]) -> list[str]:
        required = [SOURCE] if self.by_source and several_sources else []
        required += [name for name in self.columns if name not in may_lack]
        return [name for name in required if name not in columns]

    def _undeclared(self, columns: Sequence[str], several_sources: bool) -> list[str]:
        has_source = self.by_source and several_sources and columns[:1] == [SOURCE]
        unknown = [name for name in columns[1 if has_source else 0 :] if name not in self.columns]
        if self.study_columns is None:
            return unknown
        return [name for name in unknown if not re.fullmatch(self.study_columns.pattern, name)]

    def _row_problems(self, table: pd.DataFrame) -> list[str]:
        """What is wrong with rows: equal keys, and missing values that nobody explains."""
        identifying = {SOURCE, *self.key}
        if self.study_columns is not None and self.study_columns.in_key:
            identifying |= set(table.columns).difference(self.columns)
        key = [name for name in table.columns if name in identifying]
        repeated = table.duplicated(key) & (not self.names_joined)
        unexplained = pd.Series(False, table.index)
        if {VALUE, REASON} <= set(table.columns):
            unexplained = table[VALUE].isna() & (table[REASON].isna() | (table[REASON] == ""))
        kinds = {"with the key of another row": repeated, f"without a {VALUE} and without a {REASON}": unexplained}
        return [
            f"has {int(rows.sum())} rows {what}, the first of {table.loc[rows, key].iloc[0].to_dict()}"
            for what, rows in kinds.items()
            if rows.any()
        ]
