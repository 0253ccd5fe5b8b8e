"""All tables that runs can hold: those of the protocols, of the analyses over repeats, and of every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from roadworthy.core.errors import InputError
from roadworthy.core.registry import is_built_in
from roadworthy.core.tables import TableError, TableSpec
from roadworthy.engine import table_specs as every_run
from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.table_specs import TABLE_SPECS
from roadworthy.verdict.questions import APPROVAL

REPEATS, QUESTIONS, EVERY_RUN = "Analyses over repeats", "Questions of a study", "Every run"


def declared_by(protocols: Iterable[str]) -> dict[str, tuple[TableSpec, ...]]:
    """The declared tables by who declares them: these protocols (those that are installed), then what they share."""
    installed = {name: PROTOCOLS.get(name) for name in protocols if name in PROTOCOLS}
    own = {name: protocol.table_specs for name, protocol in installed.items()}
    questions = [question for protocol in installed.values() for question in protocol.repeat_questions]
    analyses = tuple(spec for asked in questions for spec in (asked.tests, asked.pairs, asked.means))
    every = (*every_run.TABLE_SPECS, *TABLE_SPECS)
    return {**own, REPEATS: analyses, QUESTIONS: (APPROVAL,), EVERY_RUN: every}


def declared_tables(protocols: Iterable[str]) -> dict[str, TableSpec]:
    """The declared tables of runs of these protocols, by name; a name that is declared twice is a `TableError`."""
    tables: dict[str, TableSpec] = {}
    for owner, specs in declared_by(protocols).items():
        for spec in specs:
            if spec.name in tables:
                raise TableError(f"{owner} declares a table {spec.name}, which is declared already")
            tables[spec.name] = spec
    return tables


def check_tables(tables: Mapping[str, pd.DataFrame], protocols: Iterable[str], several_sources: bool) -> None:
    """Raise a `TableError` where a table that a run of these protocols is to hold is not as declared."""
    declared = declared_tables(protocols)
    for name, table in tables.items():
        if name not in declared:
            raise TableError(f"no protocol declares the table {name}: add a TableSpec of it to its `table_specs`")
        declared[name].check(table, several_sources)


@contextmanager
def answers_for_tables(protocol: str) -> Iterator[None]:
    """A block in which a `TableError` is an `InputError` that names the protocol, unless it is one of our own."""
    try:
        yield
    except TableError as error:
        if protocol not in PROTOCOLS or is_built_in(PROTOCOLS.get(protocol)):
            raise
        raise InputError(
            f"the protocol {protocol} is wrong about its tables, which its author can fix: {error}"
        ) from error


def check_own_tables(
    tables: Mapping[str, pd.DataFrame], protocol: str, protocols: Iterable[str], several_sources: bool
) -> None:
    """Check the tables that one of these protocols made: see `check_tables` and `answers_for_tables`."""
    with answers_for_tables(protocol):
        check_tables(tables, protocols, several_sources)


def check_stored_tables(
    run: Path, columns: Mapping[str, Sequence[str]], protocols: Iterable[str], several_sources: bool
) -> None:
    """Raise an `InputError` where a stored table lacks a column that it was declared with.

    `columns` has the columns of each table of the run; a table that nobody declares here may stay.
    """
    declared = declared_tables(protocols)
    for name, stored in columns.items():
        if name in declared and (lacking := declared[name].lacking(stored, several_sources)):
            raise InputError(
                f"table {name} of {run} lacks the column {lacking[0]}: it was changed, or written by another version; "
                "run the study again to make it anew"
            )


def check_declares(protocol: str) -> None:
    """Raise an `InputError` where a protocol declares no table at all, or one that is declared already."""
    if not PROTOCOLS.get(protocol).table_specs:
        raise InputError(
            f"protocol {protocol} declares no table: its author must list a TableSpec of each in `table_specs` "
            "(docs/extending.md)"
        )
    with answers_for_tables(protocol):
        declared_tables(
            [*(name for name in PROTOCOLS if is_built_in(PROTOCOLS.get(name)) and name != protocol), protocol]
        )


def tables_page() -> str:
    """The text of docs/tables.md: every table of the built-in protocols, what a row says, and its columns.

    To write it anew: `python -c "from roadworthy.protocols.declared import *; print(tables_page())" > docs/tables.md`
    """
    built_in = [name for name in PROTOCOLS if is_built_in(PROTOCOLS.get(name))]
    lines = [
        "# Tables",
        "Every table that a run can hold, as `tables/NAME.parquet` (exact) and `tables/NAME.csv` (for people);",
        "`roadworthy list tables` lists them in short. The columns of the key identify a row. Columns in parentheses",
        "are there only where a run has something to say in them. Where a study has several sources, `source` comes",
        "first, unless a table is of all sources together. This page is made from the declarations in the code.",
    ]
    for owner, specs in declared_by(built_in).items():
        lines += ["", f"## {owner}", "| table | a row says | key | other columns |", "|---|---|---|---|"]
        lines += [f"| `{spec.name}` | {_about(spec)} | {_key(spec)} | {_names(spec, spec.values)} |" for spec in specs]
    return "\n".join(lines)


def _about(spec: TableSpec) -> str:
    """What a row says, and what is to be known of the columns."""
    sentences = [spec.about]
    if not spec.by_source:
        sentences.append("Of all sources together.")
    if spec.study_columns is not None and not spec.study_columns.in_key:
        sentences.append(f"First come {spec.study_columns.description}.")
    if spec.added_later:
        sentences.append(f"Runs of earlier versions may lack {_names(spec, spec.added_later)}.")
    return " ".join(sentences)


def _key(spec: TableSpec) -> str:
    if spec.study_columns is not None and spec.study_columns.in_key:
        return ", ".join(filter(None, [spec.study_columns.description, _names(spec, spec.key)]))
    return _names(spec, spec.key)


def _names(spec: TableSpec, columns: Sequence[str]) -> str:
    return ", ".join(f"(`{name}`)" if name in spec.optional else f"`{name}`" for name in columns)
