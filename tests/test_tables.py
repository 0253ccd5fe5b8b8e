"""Tables are declared once: what is written, stored, listed and documented is what the declarations say."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import roadworthy as rw
from roadworthy.cli import app
from roadworthy.core.tables import StudyColumns, TableError, TableSpec
from roadworthy.engine.folder import RunFolder
from roadworthy.listing import listing
from roadworthy.protocols import PROTOCOLS
from roadworthy.protocols.classification.table_specs import MISTAKES
from roadworthy.protocols.declared import check_stored_tables, check_tables, declared_tables, tables_page

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
RUNS = [
    *(GOLDEN / "run", *sorted((GOLDEN / "schema1").iterdir()), GOLDEN / "schema2"),
    *(GOLDEN / "monitoring", GOLDEN / "localization"),
]
"""A run of every protocol; that the tables of today are the same is for test_golden."""
WRITTEN_ELSEWHERE = {
    *("break_point", "break_point_curve", "break_point_gallery"),
    *("classification_classes", "localization_gallery_answers", "monitoring_gallery_answers", "ood_gallery_answers"),
    *("approval", "corruption_error", "classification_gallery_answers", "classification_human", "localization_search"),
    *(f"classification_{name}" for name in ("by_condition", "by_condition_overall", "condition_columns")),
    *("ood_by_condition", "ood_condition_columns"),
    *("classification_stopping", "classification_looks"),
    *(f"dependability_{name}" for name in ("cell_results", "pattern_groups", "occlusion_parts", "parts_gallery")),
    *("deciding", "baseline_changes", "timing_monitoring_images"),
    *("od_test_gap", "od_test_gap_methods", "od_test_stability", "od_test_ranks", "od_test_valid_size"),
    *(
        "od_test_surest",
        "od_test_surest_gallery",
        "od_test_learned_gallery",
        "od_test_networks",
        "timing_od_test_networks",
    ),
    *("situations", "situations_expected", "situations_met", "situations_requirements"),
    *(name for name in declared_tables(PROTOCOLS) if name.startswith(("gan", "anova", "posthoc", "operating_points"))),
}
"""Tables that none of these runs has: they are checked when other tests write them."""
GONE = {"timing_monitoring": ["peak_bytes"]}
"""Columns that runs of earlier versions have and that are written no longer."""

SPEC = TableSpec(
    "speed",
    "How fast a model is under a shift.",
    key=("model", "shift"),
    columns=("model", "shift", "value", "reason", "note", "unit"),
    optional=("note",),
    added_later=("unit",),
)
ROWS = [
    {"unit": "s", "model": "a", "shift": "fog", "value": 1.0, "reason": ""},
    {"unit": "s", "model": "b", "shift": "fog", "value": None, "reason": "it failed"},
]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_the_tables_of_a_run_are_as_declared(path: Path) -> None:
    folder = RunFolder(path)
    record = folder.record()
    several, declared = "" not in record.sources, declared_tables(record.protocols)
    tables = {name: folder.table(name).drop(columns=GONE.get(name, [])) for name in folder.table_names()}
    later = {name: [c for c in declared[name].added_later if c not in table] for name, table in tables.items()}
    check_tables(
        {name: t.assign(**dict.fromkeys(later[name])) for name, t in tables.items()}, record.protocols, several
    )
    for name, table in tables.items():
        spec = declared[name]
        stored = [column for column in table.columns if column in spec.columns]
        assert not {*spec.columns}.difference(stored, spec.optional, spec.added_later), name
        if not name.startswith(("anova", "posthoc")):
            assert stored == [column for column in spec.columns if column in stored], f"order of {name}"


def test_every_declared_table_is_written_by_some_run() -> None:
    stored = {name for path in RUNS for name in RunFolder(path).table_names()}
    assert stored.isdisjoint(WRITTEN_ELSEWHERE - {name for name in stored if name.startswith(("anova", "posthoc"))})
    assert stored | WRITTEN_ELSEWHERE == set(declared_tables(PROTOCOLS))


def test_a_frame_has_the_declared_columns_in_their_order() -> None:
    assert [*SPEC.frame(ROWS)] == ["model", "shift", "value", "reason", "unit"]
    assert [*SPEC.frame([*ROWS, {"note": "n"}])] == ["model", "shift", "value", "reason", "note", "unit"]
    assert [*SPEC.frame([], first=["source"])] == ["source", "model", "shift", "value", "reason", "unit"]
    SPEC.check(SPEC.frame(ROWS))
    SPEC.check(SPEC.frame([]))
    with pytest.raises(TableError, match=r"rows of table speed have columns that it does not declare: \['seconds'\]"):
        SPEC.frame([{**ROWS[0], "seconds": 1.0}])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda table: table.drop(columns="value"), "it lacks the column value"),
        (lambda table: table.drop(columns="unit"), "it lacks the column unit"),
        (lambda table: table.assign(seconds=1.0), "it has the undeclared column seconds"),
        (lambda table: table.assign(source="s"), "it has the undeclared column source"),
        (lambda table: pd.concat([table, table["value"]], axis=1), "it has the column value twice"),
        (lambda table: table.assign(model="a"), "has 1 rows with the key of another row, the first of {'model': 'a', "),
        (lambda table: table.assign(reason=""), "1 rows without a value and without a reason, the first of {'model': "),
        (lambda table: table.assign(reason=None), "1 rows without a value and without a reason"),
    ],
)
def test_a_table_that_is_not_as_declared_is_named(change: Any, complaint: str) -> None:
    with pytest.raises(TableError) as caught:
        SPEC.check(change(SPEC.frame(ROWS)))
    assert str(caught.value).startswith("table speed is not as declared: ")
    assert complaint in str(caught.value)


def test_the_source_comes_first_exactly_where_there_are_several() -> None:
    table = SPEC.frame([{**row, "source": "s"} for row in ROWS], first=["source"])
    SPEC.check(table, several_sources=True)
    SPEC.check(table.assign(model="a", source=["s", "t"]), several_sources=True)
    for wrong in (SPEC.frame(ROWS), table[[*SPEC.frame(ROWS), "source"]]):
        with pytest.raises(TableError, match="source"):
            SPEC.check(wrong, several_sources=True)
    with pytest.raises(TableError, match="undeclared column source"):
        SPEC.check(table)


def test_columns_of_the_study_follow_their_pattern_and_can_be_the_key() -> None:
    conditions = StudyColumns("c_.", "the conditions", in_key=True)
    spec = TableSpec("cells", "A cell.", key=(), columns=("count",), study_columns=conditions)
    rows = [{"c_1": 1, "c_2": 1, "count": 3}, {"c_1": 1, "c_2": 2, "count": 3}]
    table = spec.frame(rows, first=["c_1", "c_2"])
    spec.check(table)
    with pytest.raises(TableError, match="rows with the key of another row"):
        spec.check(table.assign(c_2=1))
    with pytest.raises(TableError, match="undeclared column c_22"):
        spec.check(table.assign(c_22=1))


@pytest.mark.parametrize("columns", [("shift",), ("model", "model"), ("source", "model")])
def test_a_declaration_must_be_sound(columns: tuple[str, ...]) -> None:
    with pytest.raises(TableError, match="the declaration of table speed must list every column once"):
        TableSpec("speed", "How fast a model is.", key=("model",), columns=columns)


def test_a_run_of_an_earlier_version_may_lack_what_was_added_later() -> None:
    assert SPEC.lacking(["model", "shift", "value", "reason"]) == []
    assert SPEC.lacking(["shift", "value"], several_sources=True) == ["source", "model", "reason"]
    check_stored_tables(Path("run"), {"of a plugin that is not here": ["x"]}, ["classification", "gone"], False)


def test_a_run_whose_table_lacks_a_column_is_refused_in_one_sentence(tmp_path: Path) -> None:
    run = shutil.copytree(GOLDEN / "run", tmp_path / "run")
    folder = RunFolder(run)
    folder.write_table(MISTAKES.name, folder.table(MISTAKES.name).drop(columns="confidence"))
    outcome = CliRunner().invoke(app, ["report", str(run)])
    assert isinstance(outcome.exception, rw.InputError)
    assert outcome.exception.exit_code == 2
    words = str(outcome.exception)
    assert words.startswith(f"table {MISTAKES.name} of {run} lacks the column confidence: it was changed, or")
    assert words.endswith("run the study again to make it anew")
    (run / "tables" / f"{MISTAKES.name}.parquet").write_bytes(b"damaged")
    assert f"tables/{MISTAKES.name}.parquet was changed" in rw.open_run(run).verify(), "damage is for verify to name"


def test_verify_names_a_table_that_nobody_declares(tmp_path: Path) -> None:
    run = rw.open_run(shutil.copytree(GOLDEN / "run", tmp_path / "run"))
    run.folder.write_table("theirs", pd.DataFrame({"x": [1]}))
    run.folder.update_record(["tables/theirs.parquet", "tables/theirs.csv"])
    again = rw.open_run(run.path)
    assert again.tables["theirs"]["x"].tolist() == [1]
    assert again.verify() == ["table theirs is declared by no protocol that is known here"]


def test_every_table_is_listed_with_its_sentence() -> None:
    listed = dict(listing("tables"))
    assert listed == {name: spec.about for name, spec in declared_tables(PROTOCOLS).items()}
    assert all(about.endswith(".") and about.count(". ") == 0 for about in listed.values())
    lines = CliRunner().invoke(app, ["list", "tables"]).stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")][:1] == ["classification:"]
    mistakes = next(line for line in lines if line.split()[0] == MISTAKES.name)
    assert mistakes.endswith(f" {MISTAKES.about} Key: {', '.join(MISTAKES.key)}.")
    rows = {name: line for line in lines for name in listed if line.split()[0] == name}
    assert len({line.index(listed[name]) for name, line in rows.items()}) == 1, "no name breaks the column"


def test_the_page_of_tables_is_what_the_declarations_say() -> None:
    """If not, write it anew as `tables_page` says."""
    assert (ROOT / "docs" / "tables.md").read_text() == tables_page() + "\n"


def test_names_that_are_joined_into_one_text_may_be_equal_by_chance() -> None:
    joined = TableSpec("slices", "One slice.", key=("scenario",), columns=("scenario",), names_joined=True)
    twice = pd.DataFrame({"scenario": ["a=x, b=y"] * 2})
    joined.check(twice)
    with pytest.raises(TableError, match="has 1 rows with the key of another row"):
        replace(joined, names_joined=False).check(twice)
    declared = declared_tables([name for name in PROTOCOLS if name != "situations"]).values()
    scenarios = [spec for spec in declared if {"scenario", "situation", "cell"} & {*spec.key}]
    assert len(scenarios) > 4
    assert all(spec.names_joined for spec in scenarios)
