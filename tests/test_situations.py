"""Expected situations in a study: by hand from answers, shared cases, recorded sets, criteria, and what is refused."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from pydantic import ValidationError

import roadworthy as rw
from elsewhere import answer_elsewhere
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import InputError
from roadworthy.core.types import Stimulus
from roadworthy.data import open_dataset
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers, accuracy, brier
from roadworthy.protocols import find_protocol
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.situations.expected import Context, Situation, find_situations
from roadworthy.protocols.situations.requirements import Requirement
from roadworthy.protocols.situations.settings import EXAMPLE, Settings
from roadworthy.protocols.situations.tables import Evidence, load_shown
from roadworthy.statistics import mean_interval, proportion_interval, wilson
from roadworthy.study import parse_study
from roadworthy.verdict import Criterion
from stand_ins import Counting
from tiny import contents, save_onnx, study

FREQUENCIES = {"none": 0.9, "fog": {1: 0.03, 3: 0.02}, "rain": {3: 0.04}, "night": 0.01}
RECORDED = {"night": {"builtin": "signs", "n": 140, "seed": 9, "only": ["yield", "stop"]}}
REQUIREMENTS = [{"metric": "accuracy", "at_least": 0.4}, {"metric": "brier", "at_most": 0.9, "id": "sharp"}]
CRITERIA = [
    {"id": "E", "metric": "expected_accuracy", "at_least": 0.3, "where": {"protocol": "situations"}},
    {
        "id": "S",
        "metric": "share_met",
        "at_least": 0.8,
        "where": {"protocol": "situations", "requirement": "accuracy at least 0.4"},
    },
    {"id": "N", "metric": "accuracy", "at_least": 0.99, "where": {"protocol": "situations", "set": "night"}},
]


def content(folder: Path, **changes: Any) -> dict[str, Any]:
    """A study of classification and situations that share cases, with a recorded set of two of the classes."""
    own = {"frequencies": FREQUENCIES, "requirements": REQUIREMENTS}
    protocols = {"classification": {"shifts": ["fog"], "levels": [1, 3]}, "situations": own}
    data = {"test": {"builtin": "signs", "n": 140}, "recorded": RECORDED}
    return study(folder, **{"data": data, "protocols": protocols, "criteria": CRITERIA, **changes})


def run(source: dict[str, Any], out: Path, **settings: Any) -> rw.Run:
    prepared = prepare(parse_study(source, "study"), accept_chance=True, progress=no_progress, **settings)
    return execute(prepared, out, workers=1, progress=no_progress)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, rw.Run]:
    folder = tmp_path_factory.mktemp("situations")
    save_onnx(folder / "tiny.onnx", gain=3.0)
    save_onnx(folder / "worse.onnx", blur=0.3, gain=3.0)
    models = {"tiny": {"onnx": str(folder / "tiny.onnx")}, "worse": {"onnx": str(folder / "worse.onnx")}}
    return folder, run(content(folder, models=models), folder / "run")


def answers_by_hand(own: rw.Run, model: str) -> dict[str, tuple[np.ndarray, list[str]]]:
    """Right or wrong, and the groups, of every situation: straight from the stored parquet files."""
    asked = own.record.protocols["situations"].sources[""].cases
    found = {}
    for case in asked:
        if case.system == model:
            folder = own.path / own.record.cases[case.case].folder
            rows = pd.concat([pd.read_parquet(part) for part in sorted(folder.glob("part-*.parquet"))])
            found[case.labels["situation"]] = (rows["label"] == rows["prediction"]).to_numpy(float), [*rows["group"]]
    return found


def test_expected_accuracy_and_shares_follow_from_the_answers_by_hand(made: tuple[Path, rw.Run]) -> None:
    own = made[1]
    shares = {"none": 0.9, "fog-1": 0.03, "fog-3": 0.02, "rain-3": 0.04, "night": 0.01}
    expected = own.tables["situations_expected"].set_index(["model", "metric"])
    cells = own.tables["situations"].set_index(["model", "situation", "metric"])
    for model in ("tiny", "worse"):
        right = answers_by_hand(own, model)
        assert {*right} == {*shares}
        row = expected.loc[model, "expected_accuracy"]
        assert row["value"] == pytest.approx(sum(share * right[name][0].mean() for name, share in shares.items()))
        on_test = sum(shares[name] * right[name][0] for name in shares if name != "night") / 0.99
        day = mean_interval(np.round(on_test, 12), right["none"][1], 0, 1)
        night = proportion_interval(*right["night"])
        assert row["lo"] == pytest.approx(
            row["value"] - math.hypot(0.99 * (day.value - day.lo), 0.01 * (night.value - night.lo))
        )
        assert row["groups"] == len({*right["none"][1]}) + len({*right["night"][1]})
        joint = {name: proportion_interval(*right[name], confidence=0.99) for name in shares}
        met = own.tables["situations_met"].set_index(["model", "requirement"]).loc[model, "accuracy at least 0.4"]
        shown = [sum(shares[name] for name, one in joint.items() if end(one)) for end in (_shown_met, _shown_missed)]
        assert (met["lo"], met["missed"]) == pytest.approx(tuple(shown))
        assert met["hi"] == pytest.approx(1 - met["missed"])
        assert met["lo"] + met["undecided"] + met["missed"] == pytest.approx(1)
        for name, share in shares.items():
            cell = cells.loc[model, name, "accuracy"]
            assert cell["value"] == pytest.approx(right[name][0].mean())
            assert cell["cost"] == pytest.approx(share * (1 - right[name][0].mean()))


def _shown_met(interval: Any) -> bool:
    return bool(interval.lo >= 0.4)


def _shown_missed(interval: Any) -> bool:
    return bool(interval.hi < 0.4)


def test_cases_are_shared_with_classification_and_have_its_figures(made: tuple[Path, rw.Run]) -> None:
    own = made[1]
    asked = {name: {c.case for c in own.record.protocols[name].sources[""].cases} for name in own.record.protocols}
    assert len(asked["classification"] & asked["situations"]) == 2 * 3
    assert sum(case.kind == "model" for case in own.record.cases.values()) == 2 * 5
    columns = ["model", "shift", "level", "metric"]
    one = own.tables["classification"].set_index(columns)
    two = own.tables["situations"].query("set == 'test' and metric == 'accuracy' and shift != 'rain'")
    for key, row in two.set_index(columns).iterrows():
        assert (row["value"], row["lo"], row["hi"]) == tuple(one.loc[key, ["value", "lo", "hi"]])


def test_the_run_notes_recorded_sets_is_verified_and_judged(made: tuple[Path, rw.Run]) -> None:
    own = made[1]
    night = own.record.first.data.recorded["night"]
    assert (night.images, night.groups, night.class_names) == (20, 4, own.record.first.data.class_names)
    assert len(night.fingerprint) == 64
    assert own.verify() == []
    verdict = json.loads((own.path / "verdict.json").read_text())
    assert {c["id"]: c["status"] for c in verdict["criteria"]}["N"] in ("fail", "inconclusive")
    assert [row["where"] for row in verdict["criteria"][1]["rows"]] == [
        {"model": model, "requirement": "accuracy at least 0.4"} for model in ("tiny", "worse")
    ]


def test_the_report_says_it_in_a_sentence(made: tuple[Path, rw.Run]) -> None:
    text = (made[1].path / "report.html").read_text().replace("\u00a0", " ")
    assert "In the expected situations it is right in" in text
    assert "The requirement accuracy at least 0.4 is shown to be met in" in text
    assert "The requirement sharp (brier at most 0.9) is shown to be met in" in text
    assert "night (recorded)" in text
    assert "an example" not in text


def test_models_are_compared_on_the_same_images(made: tuple[Path, rw.Run]) -> None:
    own = made[1]
    table = rw.compare_runs(own.path, metrics=["expected_accuracy", "expected_brier"])
    row = table.set_index("metric").loc["expected_accuracy"]
    expected = own.tables["situations_expected"].set_index(["model", "metric"])["value"]
    before, after = expected["tiny", "expected_accuracy"], expected["worse", "expected_accuracy"]
    assert (row["before"], row["after"], row["change"]) == pytest.approx((before, after, after - before))
    assert row["lo"] < row["change"] < row["hi"]
    assert 0 < row["p"] < 0.05
    assert row["result"] == "regression"
    assert {*table["metric"]} == {"expected_accuracy", "expected_brier"}


def test_export_and_stored_predictions_give_the_same(made: tuple[Path, rw.Run], tmp_path: Path) -> None:
    folder, _ = made
    one = content(folder, protocols={"situations": {"frequencies": FREQUENCIES, "requirements": REQUIREMENTS}})
    direct = run(one, tmp_path / "direct")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(one))
    rw.export_study(tmp_path / "study.yaml", tmp_path / "images", progress=no_progress)
    answer_elsewhere(tmp_path / "images", folder / "tiny.onnx", tmp_path / "answers.csv")
    back = run({**one, "models": {"tiny": {"predictions": str(tmp_path / "answers.csv")}}}, tmp_path / "back")
    names = [name for name in direct.tables if name.startswith("situations")]
    assert len(names) == 4
    for name in names:
        pd.testing.assert_frame_equal(direct.tables[name], back.tables[name])


def test_neither_order_nor_a_second_run_changes_a_byte(made: tuple[Path, rw.Run], tmp_path: Path) -> None:
    turned = {name: FREQUENCIES[name] for name in reversed(FREQUENCIES)} | {"fog": {3: 0.02, 1: 0.03}}
    runs = []
    for name, frequencies in (("one", FREQUENCIES), ("two", turned)):
        own = {"frequencies": frequencies, "requirements": REQUIREMENTS}
        runs.append(contents(run(content(made[0], protocols={"situations": own}), tmp_path / name).path))
    assert runs[0] == runs[1]


def test_a_failed_situation_is_undecided_and_costs_the_expectation(tmp_path: Path) -> None:
    changes = {"models": {"counting": "<in memory>"}, "criteria": CRITERIA[:2]}
    models = {"counting": Counting(fails_on="fog-3")}
    own = run(content(tmp_path, **changes), tmp_path / "run", models=models)
    expected = own.tables["situations_expected"].iloc[0]
    assert math.isnan(expected["value"])
    assert expected["reason"].startswith("fog-3: case failed: ")
    judged = own.tables["situations_requirements"].set_index(["requirement", "situation"])
    assert judged.loc[("accuracy at least 0.4", "fog-3"), "status"] == "undecided"
    met = own.tables["situations_met"].iloc[0]
    assert met["reason"].startswith("fog-3: case failed: ")
    assert met["undecided"] >= 0.02
    assert own.verify() == []


def stored(situation: str, right: str, groups: str, name: str = "m") -> StoredCase:
    """A case whose answers are right where `right` has a 1."""
    probabilities = np.array([[0.9, 0.1] if mark == "1" else [0.1, 0.9] for mark in right])
    ids = tuple(f"{situation[:3]}{row}" if groups == "" else f"i{row}" for row in range(len(right)))
    answers = Answers.from_probabilities(probabilities, [0] * len(right))
    readouts = Readouts(ids, tuple(groups) or ids, answers)
    return StoredCase(name, Stimulus("test", situation), {"situation": situation}, load=lambda: readouts)


def evidence(*cases: StoredCase, context: Context, settings: Any = (accuracy, brier)) -> Evidence:
    return Evidence(cases, ("a", "b"), context, settings)


def test_images_that_are_objects_of_their_own_are_not_those_of_another_set() -> None:
    """Ids count from 0 in every file; only a group that is named can be in two sets."""
    situations = [Situation(name="none", share=0.5), Situation(name="reports", set="reports", share=0.5)]
    context = Context(situations=situations)
    same_ids = [
        StoredCase("m", Stimulus("test", "none"), {"situation": name}, load=stored("none", "1101", "").load)
        for name in ("none", "reports")
    ]
    assert evidence(*same_ids, context=context).expected("m", accuracy).groups == 8
    same_groups = [stored("none", "1101", "aabb"), stored("reports", "1101", "aabb")]
    shared = evidence(*same_groups, context=context).expected("m", accuracy)
    assert shared.groups == 2
    assert "added up" in shared.reason


def test_all_weight_on_one_situation_gives_that_situation_s_estimate() -> None:
    context = Context(situations=[Situation(name="none", share=1.0)])
    own = evidence(stored("none", "11011011", "aabbccdd"), context=context)
    assert own.expected("m", accuracy) == own.estimate("m", "none", accuracy)
    assert own.expected("m", brier) == own.estimate("m", "none", brier)


def test_counts_widen_bounds() -> None:
    known = [Situation(name="none", share=0.9), Situation(name="fog-1", shift="fog", level=1, share=0.1)]
    counted = [own.model_copy(update={"count": round(own.share * 40)}) for own in known]
    cases = [stored("none", "1" * 60, ""), stored("fog-1", "10" * 30, "")]
    cases[1] = StoredCase("m", cases[1].stimulus, cases[1].labels, load=lambda: _as(cases[0], "10" * 30))
    requirement = Requirement(metric="accuracy", at_least=0.8)
    one = evidence(*cases, context=Context(situations=known, requirements=[requirement]))
    two = evidence(*cases, context=Context(situations=counted, requirements=[requirement]))
    wide, exact = two.expected("m", accuracy), one.expected("m", accuracy)
    assert wide.value == exact.value == pytest.approx(0.95)
    assert wide.lo < exact.lo
    assert two.met("m", requirement)[0].share.lo == wilson(36, 40, 0.975)[0]
    assert one.met("m", requirement)[0].share.lo == 0.9
    criterion = Criterion(id="S", metric="share_met", at_least=0.95)
    assert two.measure(criterion, 0.95)[0].further == math.inf


def _as(case: StoredCase, right: str) -> Readouts:
    """Other answers to the images of a case."""
    known = case.load()
    return Readouts(known.ids, known.groups, stored("none", right, "").load().answers)


def test_how_many_more_objects_would_settle_a_share() -> None:
    """A situation of a fifth of driving is undecided: as many objects as settle it are asked for."""
    known = [Situation(name="none", share=0.8), Situation(name="fog-1", shift="fog", level=1, share=0.2)]
    first = stored("none", "1" * 100, "")
    fog = StoredCase("m", Stimulus("test", "fog"), {"situation": "fog-1"}, load=lambda: _as(first, "1" * 93 + "0" * 7))
    requirement = Requirement(metric="accuracy", at_least=0.9)
    own = evidence(first, fog, context=Context(situations=known, requirements=[requirement]))
    share = own.met("m", requirement)[0]
    assert (share.share.lo, share.share.value, share.undecided) == (0.8, 1.0, 0.2)
    further = own.measure(Criterion(id="S", metric="share_met", at_least=0.95), 0.95)[0].further
    assert further is not None
    more = 100 + int(further)
    assert wilson(0.93 * more, more, 0.975)[0] >= 0.9 > wilson(0.93 * (more - 2), more - 2, 0.975)[0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"none": 0.5, "fog": {1: 0.4}}, r"add up to 0\.9, not to 1 \(within 1e-06\)"),
        ({"none": 0.6, "fog": {1: 0.6}}, r"add up to 1\.2, not to 1"),
        ({"none": 1.5, "fog": {1: -0.5}}, "the frequency of fog, level 1, must be a number above 0, not -0.5"),
        ({"none": 0}, "the frequency of none must be a number above 0, not 0"),
        ({"none": True}, "must be a number above 0, not True"),
        ({"none": "often"}, "must be a number above 0, not 'often'"),
        ({"none": float("nan")}, "must be a number above 0, not nan"),
        ({"none": 0.5, "fog": {0: 0.5}}, "a level of fog is a whole number from 1 on, not 0"),
        ({"none": 0.5, "fog": {"x": 0.5}}, "a level of fog is a whole number from 1 on, not 'x'"),
        ({"none": {1: 1.0}}, "the frequency of none must be a number above 0"),
        ({}, "frequencies give the share of each situation"),
        ([0.5], "frequencies give the share of each situation"),
    ],
)
def test_frequencies_that_cannot_be_are_one_sentence(given: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Settings(frequencies=given)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"frequencies": {"none": 0.5, "fogg": {1: 0.5}}}, "unknown shift 'fogg': did you mean 'fog'?"),
        ({"frequencies": {"none": 0.5, "fog": {9: 0.5}}}, "9"),
        ({"frequencies": {"none": 0.5, "fog": 0.5}}, "fog is a shift, and its frequency is given by level"),
        ({"frequencies": {"none": 0.5, "fgsm": {1: 0.5}}}, "fgsm is an attack on a model"),
        ({"frequencies": {"none": 0.99, "nigth": 0.01}}, "unknown situation 'nigth': did you mean 'night'?"),
        ({"frequencies": {"none": 1.0}}, "recorded set night has no frequency"),
        ({"metrics": ["ece"]}, "ece is no mean over images"),
        ({"metrics": ["acuracy"]}, "unknown metric 'acuracy': did you mean 'accuracy'?"),
        ({"requirements": [{"metric": "auroc", "at_least": 0.5}]}, "requirement 'auroc at least 0.5': unknown metric"),
        (
            {"requirements": [{"metric": "accuracy", "at_least": 95}]},
            "lies outside the range of accuracy, which is 0 to 1",
        ),
        ({"requirements": [{"metric": "accuracy"}]}, "give exactly one of at_least and at_most"),
        ({"requirements": [REQUIREMENTS[0], REQUIREMENTS[0]]}, "two requirements have the same name"),
        ({"shifts": [{"name": "snow", "levels": {1: {"factor": 0.2}}}]}, "shifts names snow, which has no frequency"),
        ({"rest": "none"}, "nothing is left for rest"),
        ({"counted": True}, "counted frequencies are whole numbers"),
        ({"counted": True, "rest": "none", "frequencies": {"none": 5}}, "give one of the two"),
    ],
)
def test_settings_that_match_nothing_are_refused_before_anything_runs(
    made: tuple[Path, rw.Run], changes: dict[str, Any], says: str
) -> None:
    own = {"frequencies": FREQUENCIES, **changes}
    with pytest.raises(InputError, match=says):
        prepare(parse_study(content(made[0], protocols={"situations": own}, criteria=None), "study"), rehearse=False)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            {"recorded": {"night": {"builtin": "signs", "n": 140}}},
            "140 of 140 images of recorded set night are images of test data signs too",
        ),
        (
            {"train": {"builtin": "signs", "n": 140, "seed": 9}},
            "images of recorded set night are images of training data",
        ),
        ({"recorded": {"night": {"builtin": "scenery", "n": 14}}}, "unknown class in data set night"),
        ({"recorded": {"fog": RECORDED["night"]}}, "unknown situation 'night'|has the name of a shift"),
        ({"recorded": {"none": RECORDED["night"]}}, "'none' is not a valid name for a recorded set"),
        ({"recorded": {"night": "nowhere"}}, "there is no data at"),
    ],
)
def test_recorded_sets_are_checked_like_test_data(made: tuple[Path, rw.Run], data: dict[str, Any], says: str) -> None:
    own = {"test": {"builtin": "signs", "n": 140}, "recorded": RECORDED, **data}
    protocols = {"situations": {"frequencies": FREQUENCIES}}
    with pytest.raises(InputError, match=says):
        prepare(parse_study(content(made[0], data=own, protocols=protocols, criteria=None), "study"), rehearse=False)


def test_a_recorded_set_that_no_protocol_shows_is_refused(made: tuple[Path, rw.Run]) -> None:
    with pytest.raises(InputError, match=r"no protocol of the study shows recorded sets: ask for one that does \(situ"):
        prepare(parse_study(content(made[0], protocols={"classification": {}}, criteria=None), "study"))


@pytest.mark.parametrize(
    ("criterion", "says"),
    [
        ({"metric": "share_met", "at_least": 0.5, "where": {"requirement": "recall"}}, "asks for requirement 'recall'"),
        ({"metric": "expected_ece", "at_least": 0.5}, "unknown metric 'expected_ece'"),
        ({"metric": "accuracy", "at_least": 0.5, "over": "pooled"}, "situations are not pooled"),
        ({"metric": "accuracy", "at_least": 0.5, "where": {"situation": "fog-2"}}, "asks for situation 'fog-2'"),
        ({"metric": "expected_accuracy", "at_least": 0.5, "where": {"shift": "fog"}}, "unknown condition 'shift'"),
        ({"metric": "expected_accuracy", "at_least": 95}, "did you mean 0.95"),
    ],
)
def test_criteria_that_match_nothing_are_refused(made: tuple[Path, rw.Run], criterion: Any, says: str) -> None:
    own = [{"id": "X", **criterion, "where": {"protocol": "situations", **criterion.get("where", {})}}]
    with pytest.raises(InputError, match=says):
        prepare(parse_study(content(made[0], criteria=own), "study"), rehearse=False)


def test_a_share_without_requirements_is_refused(made: tuple[Path, rw.Run]) -> None:
    protocols = {"situations": {"frequencies": FREQUENCIES}}
    own = [{"id": "X", "metric": "share_met", "at_least": 0.5}]
    with pytest.raises(InputError, match="the study has none: name one under situations: requirements"):
        prepare(parse_study(content(made[0], protocols=protocols, criteria=own), "study"), rehearse=False)


def test_the_default_is_an_example_and_says_so(tmp_path: Path) -> None:
    assert Settings().frequencies == EXAMPLE
    situations = find_situations(Settings(), ())
    assert len(situations) == 51
    assert sum(own.share for own in situations) == pytest.approx(1)
    with pytest.warns(UserWarning, match="no frequencies are given, so an example stands in"):
        prepare(parse_study(study(tmp_path, n=14, protocols={"situations": {}}), "study"), rehearse=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = study(tmp_path, n=14, protocols={"situations": {"frequencies": {"none": 1}}})
        prepare(parse_study(source, "study"), rehearse=False)


def test_rest_and_counts_become_shares() -> None:
    rest = find_situations(Settings(frequencies={"fog": {3: 0.1}}, rest="none"), ())
    assert [(own.name, round(own.share, 9)) for own in rest] == [("none", 0.9), ("fog-3", 0.1)]
    counted = find_situations(Settings(frequencies={"none": 180, "fog": {3: 20}}, counted=True), ())
    assert [(own.name, own.share, own.count) for own in counted] == [("none", 0.9, 180), ("fog-3", 0.1, 20)]
    stored_again = Settings.model_validate(json.loads(Settings(frequencies=FREQUENCIES).model_dump_json()))
    assert stored_again == Settings(frequencies=FREQUENCIES)


def test_a_level_table_of_one_s_own_is_shown(tmp_path: Path) -> None:
    own = {"frequencies": {"none": 0.9, "fog": {2: 0.1}}, "shifts": [{"name": "fog", "levels": {2: {"factor": 0.15}}}]}
    prepared = prepare(parse_study(study(tmp_path, n=14, protocols={"situations": own}), "study"), rehearse=False)
    parameters = [planned.case.stimulus.parameters for planned in prepared.plan.cases]
    assert [one.get("factor") for one in parameters] == [None, 0.15]
    wrong = {**own, "frequencies": {"none": 0.9, "fog": {3: 0.1}}}
    with pytest.raises(InputError, match="shift fog has no level 3 in its table, but 2"):
        find_protocol("situations").check_settings(Settings(**wrong))


def test_the_study_of_the_docs_can_be_run(tmp_path: Path) -> None:
    """As printed, with drawn data in place of the files that it names."""
    text = (Path(__file__).parent.parent / "docs" / "situations.md").read_text()
    printed = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    small = study(tmp_path, data={**printed["data"], "test": {"builtin": "signs", "n": 28}})
    small["data"]["recorded"] = {"night_reports": {"builtin": "signs", "n": 14, "seed": 9}}
    source = {**printed, "data": small["data"], "models": small["models"], "size": small["size"]}
    prepared = prepare(parse_study(source, "study"), rehearse=False)
    assert [own.name for own in prepared.contexts["situations"][""].situations] == [  # type: ignore[attr-defined]
        *("none", "fog-1", "fog-3", "rain-2", "night_reports")
    ]
    assert [criterion.metric for criterion in prepared.criteria] == ["expected_accuracy", "share_met"]


def test_a_recorded_folder_of_some_classes_is_kept_by_its_whole_path_in_each_source(tmp_path: Path) -> None:
    """Labels go by class name; without recorded sets a study is stored as before there were any."""
    signs = open_dataset({"builtin": "signs", "n": 140, "seed": 9, "size": 32, "only": ["stop", "yield"]})
    batch = signs.batch(slice(None))
    for name, image, label in zip(batch.ids, batch.images, batch.labels, strict=True):
        path = tmp_path / "night" / signs.class_names[label] / f"{name.replace('/', '-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    one = study(tmp_path, n=28)
    parts = {key: one[key] for key in ("data", "models", "size")}
    first = {**parts, "data": {**one["data"], "recorded": {"night": "night"}}}
    settings = {"frequencies": {"none": 0.9, "night": 0.1}, "sources": ["first"]}
    source = {"sources": {"first": first, "second": parts}, "protocols": {"situations": settings, "classification": {}}}
    prepared = prepare(parse_study(source, "study"), base=tmp_path, rehearse=False)
    night = prepared.sources["first"].recorded["night"]
    assert [*night.class_names] == [*prepared.sources["first"].data.class_names]
    assert {night.class_names[label] for label in night.labels} == {"stop", "yield"}
    stored_study = yaml.safe_load(prepared.stored_study().to_yaml())
    assert stored_study["sources"]["first"]["data"]["recorded"] == {"night": str(tmp_path / "night")}
    assert "recorded" not in stored_study["sources"]["second"]["data"]
    again = prepare(parse_study(stored_study, "study"), rehearse=False)
    assert [planned.case.hash for planned in again.plan.cases] == [p.case.hash for p in prepared.plan.cases]


def test_an_object_that_is_named_after_its_first_image_is_one_object() -> None:
    names = ("s1", "s1-b", "s2", "alone")
    answers = Answers.from_probabilities(np.array([[0.9, 0.1]] * 4), np.zeros(4, int))
    case = StoredCase("m", Stimulus("test"), load=lambda: Readouts(names, ("s1", "s1", "other", "alone"), answers))
    shown = load_shown(case, Situation(name="night", set="night", share=1.0), [accuracy])
    assert [*shown.objects] == ["s1", "s1", "other", "night\0alone"]
