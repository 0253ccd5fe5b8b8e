"""Level tables of one's own: the same sentence for shifts of classification and for transformed sets of outliers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.protocols.ood.settings import Settings
from roadworthy.protocols.shift_choices import ShiftChoice
from roadworthy.shifts import find_shift
from roadworthy.shifts.adversarial import ATTACKS
from roadworthy.study import load_study, parse_study
from tiny import study

OWN = {1: {"factor": 0.2}, 2: {"factor": 0.9}}


def content(folder: Path, choice: Any, protocol: str) -> dict[str, Any]:
    shifts = {"classification": {"shifts": [choice], "levels": [5]}}
    sets = {"ood": {"sets": ["uniform_noise"], "transformed": [choice], "levels": [5]}}
    outliers = {"park": {"builtin": "scenery", "n": 60}}
    return study(folder, outliers=outliers, protocols={"classification": shifts, "ood": sets}[protocol])


@pytest.mark.parametrize("name", [*rw.SHIFTS, *ATTACKS])
def test_every_shift_takes_a_table_of_its_own(name: str) -> None:
    built_in = dict(enumerate(find_shift(name).LEVELS, start=1))
    if len({str(row) for row in built_in.values()}) < len(built_in) or not built_in:
        pytest.skip("it has no levels that differ")
    assert ShiftChoice(name=name, levels=built_in).at([1]) == ShiftChoice(name=name).at(sorted(built_in))
    assert ShiftChoice(name=name, levels=built_in).count([1]) == len(built_in)


def test_both_sides_of_a_transformed_set_are_shown_by_the_table(tmp_path: Path) -> None:
    asked = content(tmp_path, {"name": "fog", "levels": OWN}, "ood")
    done = execute(prepare(parse_study(asked, "study")), tmp_path / "run", workers=1, progress=no_progress)
    table = done.tables["ood"].query("metric == 'auroc'").set_index("ood_set")
    assert table.loc[["fog-1", "fog-2"], "level"].to_list() == [1, 2]
    assert "fog-5" not in table.index, "the levels of the protocol are for shifts without a table"
    shown = [case.stimulus for _, _, asked, case in done.record.asked() if "fog" in case.stimulus.name]
    assert sorted((s.name, s.level, s.parameters["factor"]) for s in shown) == [
        ("fog", 1, 0.2),
        ("fog", 2, 0.9),
        ("park_fog", 1, 0.2),
        ("park_fog", 2, 0.9),
    ]
    assert rw.open_run(done.path).verify() == []


def test_what_was_stored_before_there_were_tables_is_stored_the_same() -> None:
    assert Settings(transformed=["fog"]).model_dump()["transformed"] == ["fog"]
    own = Settings(transformed=["rain", {"name": "fog", "levels": OWN}])
    assert own.model_dump()["transformed"] == ["rain", {"name": "fog", "levels": OWN}]
    assert Settings.model_validate_json(own.model_dump_json()) == own


@pytest.mark.parametrize("protocol", ["classification", "ood"])
def test_a_table_may_lie_in_a_file_that_the_run_then_holds(protocol: str, tmp_path: Path) -> None:
    asked = content(tmp_path, {"name": "fog", "levels": "fog.yaml"}, protocol)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(asked))
    (tmp_path / "fog.yaml").write_text(yaml.safe_dump(OWN))
    loaded, _ = load_study(tmp_path / "study.yaml")
    stored = yaml.safe_load(loaded.to_yaml())["protocols"][protocol]
    (shift,) = stored["shifts" if protocol == "classification" else "transformed"]
    assert {int(level): row for level, row in shift["levels"].items()} == OWN
    for text, words in (("", "a level table gives"), ("- 1", "a level table gives"), ("0: {factor: 1}", "from 1 on")):
        (tmp_path / "fog.yaml").write_text(text)
        with pytest.raises(InputError, match=f"fog.yaml of shift fog: .*{words}"):
            load_study(tmp_path / "study.yaml")


@pytest.mark.parametrize("protocol", ["classification", "ood"])
@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({}, "a level table gives the parameters of each level"),
        ([{"factor": 0.2}], "a level table gives the parameters of each level"),
        ({1: 0.2}, "a level table gives the parameters of each level"),
        ({0: {"factor": 0.2}}, "a level is a whole number from 1 on, not 0"),
        ({"weak": {"factor": 0.2}}, "a level is a whole number from 1 on, not 'weak'"),
        ("nowhere.yaml", "nowhere.yaml"),
        ({1: {"fcator": 0.2}}, "shift fog has no parameter"),
        ({1: {}}, "lacks its parameter"),
        ({1: {"factor": "thick"}}, "shift fog: factor"),
        ({1: {"factor": 1.5}}, "shift fog: factor"),
        ({1: {"factor": 0.2}, 2: {"factor": 0.2}}, "levels 1 and 2 have the same parameters"),
    ],
)
def test_a_bad_table_is_refused_in_one_sentence(protocol: str, levels: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as refused:
        prepare(parse_study(content(tmp_path, {"name": "fog", "levels": levels}, protocol), "study"))
    assert "\n" not in str(refused.value)
