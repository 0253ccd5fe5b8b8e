"""The joint test of an approval: three questions, their answers, several candidates, templates and the first screen."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import roadworthy as rw
from commands import call
from elsewhere import answer_elsewhere
from roadworthy.core.errors import InputError
from roadworthy.evaluation import candidates_of, named_paths, outlier_sets
from roadworthy.preparing import prepare
from roadworthy.protocols import find_protocol, find_suite, known_suites
from roadworthy.protocols.joint_test.answers import answer_tables
from roadworthy.protocols.joint_test.templates import filled_template, is_example, template_names, template_text
from roadworthy.report.questions import answer_lines, load_answers
from roadworthy.statistics import Estimate
from roadworthy.study import parse_study
from roadworthy.verdict import QUESTIONS, Criterion, Measurement, judge, load_criteria, load_decided
from tiny import save_onnx, study, write_npz

ALL = [*QUESTIONS]
SMALL = {
    "classification": {"shifts": ["noise", "fog"], "levels": [1, 5]},
    "ood": {"sets": ["uniform_noise", "scenery", "swirl"], "transformed": ["fog"]},
    "operating_points": {
        **{"shifts": ["noise", "fog"], "levels": [1, 5]},
        "outliers": {"sets": ["uniform_noise", "scenery", "swirl"], "transformed": ["fog"]},
    },
}
CRITERIA: list[dict[str, Any]] = [
    {"id": "C", "question": "conditions", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.2},
    {
        "id": "O",
        "question": "outliers",
        "metric": "auroc",
        "where": {"protocol": "ood", "ood_set": "uniform_noise"},
        "at_least": 0.999,
    },
    {"id": "S", "question": "certainty", "metric": "ece", "where": {"shift": "noise"}, "over": "pooled", "at_most": 1},
]
BOUNDS = {"pass": (0.9, 0.99), "fail": (0.1, 0.2), "inconclusive": (0.4, 0.6)}
"""Bounds that a threshold of 0.5 makes a pass, a fail or neither."""


def criterion(name: str, question: str | None, **changes: Any) -> Criterion:
    return Criterion(id=name, metric="accuracy", at_least=0.5, question=question, **changes)


def judged(statuses: dict[str, tuple[str, ...]], **options: Any) -> Any:
    """The verdict of criteria whose findings are as given, by the question that they carry (`''`: none)."""
    wanted = {f"{question}{i}": status for question, own in statuses.items() for i, status in enumerate(own)}
    criteria = [criterion(name, name.rstrip("0123456789") or None) for name in wanted]

    def measure(asked: Criterion, confidence: float) -> list[Measurement]:
        lo, hi = BOUNDS[wanted[asked.id]]
        return [Measurement({}, Estimate((lo + hi) / 2, lo, hi, n=100, groups=100))]

    return judge(criteria, measure, questions=ALL, **options)


@pytest.mark.parametrize(
    ("statuses", "not_run", "answers", "verdict"),
    [
        ({"outliers": ("pass",), "conditions": ("pass", "pass"), "certainty": ("pass",)}, {}, "ppp", "pass"),
        ({"outliers": ("pass",), "conditions": ("pass", "fail"), "certainty": ("pass",)}, {}, "pfp", "fail"),
        ({"outliers": ("inconclusive",), "conditions": ("pass",), "certainty": ("pass",)}, {}, "ipp", "inconclusive"),
        ({"outliers": ("inconclusive",), "conditions": ("fail",), "certainty": ("pass",)}, {}, "ifp", "fail"),
        ({"outliers": ("pass",), "conditions": ("pass",)}, {}, "ppi", "inconclusive"),
        ({"outliers": ("pass",), "conditions": ("pass",), "certainty": ("pass",), "": ("fail",)}, {}, "ppp", "fail"),
        ({"": ("pass",)}, {}, "iii", "inconclusive"),
        ({}, {}, "iii", "inconclusive"),
        (dict.fromkeys(ALL, ("pass",)), {"outliers": "not run: nothing answers it"}, "ipp", "inconclusive"),
        ({"outliers": ("fail",), "conditions": ("pass",), "certainty": ("pass",)}, {"outliers": "x"}, "fpp", "fail"),
    ],
)
def test_the_verdict_follows_from_all_three_questions(
    statuses: dict[str, tuple[str, ...]], not_run: dict[str, str], answers: str, verdict: str
) -> None:
    whole = {"p": "pass", "f": "fail", "i": "inconclusive"}
    result = judged(statuses, not_run=not_run)
    assert [answer.status for answer in result.answers] == [whole[letter] for letter in answers]
    assert result.status == verdict
    assert result.exit_code == {"pass": 0, "fail": 1, "inconclusive": 3}[verdict]
    assert result.to_junit().count('name="question: ') == 3
    for answer in result.answers:
        if answer.question in not_run and answer.status != "fail":
            assert answer.because == not_run[answer.question]
        elif not answer.criteria:
            assert answer.because == (
                "not judged: no criterion speaks of it" if statuses else "not judged: no threshold was given"
            )


def test_without_questions_a_verdict_is_as_before() -> None:
    plain = judge([], lambda asked, confidence: [])
    assert (plain.status, plain.exit_code) == ("none", 0)
    assert {*plain.to_json()} == {"status", "failed", "criteria"}
    assert "question" not in criterion("A", None).model_dump()
    assert criterion("A", "outliers").model_dump()["question"] == "outliers"


def test_each_candidate_is_judged_as_if_alone() -> None:
    """Pooled over both models the criterion passes; the worse of them fails it, and with it the question."""
    of_models = {"good": BOUNDS["pass"], "bad": BOUNDS["fail"], "both": BOUNDS["pass"]}

    def measure(asked: Criterion, confidence: float) -> list[Measurement]:
        lo, hi = of_models[asked.where.get("model", "both")]
        return [Measurement({}, Estimate((lo + hi) / 2, lo, hi, n=100, groups=100))]

    def narrow(model: str) -> Any:
        return lambda asked: asked.model_copy(update={"where": {"model": model}}) if model != "other" else None

    pooled = [criterion("A", "conditions", over="pooled")]
    candidates = {name: narrow(name) for name in ("good", "bad", "other")}
    verdict = judge(pooled, measure, questions=["conditions"], candidates=candidates)
    (answer,) = verdict.answers
    assert verdict.findings[0].status == "pass"
    assert (answer.status, verdict.status) == ("fail", "fail")
    assert answer.because.startswith("bad: A: accuracy")
    models = answer.to_json()["models"]
    assert [models[name]["status"] for name in candidates] == ["pass", "fail", None]


def test_a_candidate_fails_the_worst_of_many_only_where_the_criterion_does() -> None:
    """A bound that misses by itself, and not once it is corrected for the conditions of all candidates."""

    def measure(asked: Criterion, confidence: float) -> list[Measurement]:
        models = [asked.where["model"]] if "model" in asked.where else ["a", "b", "c"]
        high = 0.49 if confidence < 0.96 else 0.55
        bounds = {"a": (0.3, high), "b": (0.4, 0.7), "c": (0.4, 0.7)}
        return [Measurement({"model": m}, Estimate(0.45, *bounds[m], n=100, groups=100)) for m in models]

    def narrow(model: str) -> Any:
        return lambda asked: asked.model_copy(update={"where": {"model": model}})

    worst = [criterion("A", "conditions", over="worst")]
    verdict = judge(worst, measure, questions=["conditions"], candidates={name: narrow(name) for name in "abc"})
    assert verdict.findings[0].status == "inconclusive"
    assert {answer.status for answer in verdict.answers[0].candidates.values()} == {"inconclusive"}
    assert verdict.status == "inconclusive"


def test_a_candidate_that_a_question_leaves_out_is_never_passed() -> None:
    def measure(asked: Criterion, confidence: float) -> list[Measurement]:
        return [Measurement({}, Estimate(0.95, *BOUNDS["pass"], n=100, groups=100))]

    def narrow(model: str) -> Any:
        return lambda asked: None if asked.where.get("model", model) != model else asked

    asked = [criterion("A", "conditions"), criterion("B", "certainty", where={"model": "a"})]
    names = {name: narrow(name) for name in "ab"}
    verdict = judge(asked, measure, questions=["conditions", "certainty"], candidates=names)
    assert [answer.status for answer in verdict.answers] == ["pass", "inconclusive"]
    assert verdict.answers[1].because == "not judged for b"
    assert verdict.status == "inconclusive"
    one = [criterion("A", "conditions", where={"model": "a"}), asked[1]]
    assert judge(one, measure, questions=["conditions", "certainty"], candidates=names).status == "pass", "a alone"


def test_a_date_is_a_day() -> None:
    with pytest.raises(InputError, match="'soon' is no day: write it as 2026-11-30"):
        load_decided({"decided_by": "the board", "date": "soon", "criteria": CRITERIA})


def test_an_unknown_question_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"criterion 1: question: unknown question 'outlier': did you mean 'outliers'"):
        load_criteria([{"id": "A", "metric": "accuracy", "at_least": 0.5, "question": "outlier"}])
    with pytest.raises(InputError, match="did you mean 'certainty'"):
        parse_study(study(tmp_path, questions=["certainly"]), "study")
    with pytest.raises(InputError, match="a question is named twice"):
        parse_study(study(tmp_path, questions=["outliers", "outliers"]), "study")


def test_suites_keep_their_names_and_meaning() -> None:
    alone = {name: suite.settings for name, suite in known_suites().items() if not suite.questions}
    assert {"quick@1", "standard@1", "full@1", "corruptions@3"} <= {*alone}
    assert all(len(settings) == 1 for settings in alone.values())
    approval = find_suite("approval")
    assert approval.settings["classification"] == find_suite("standard@1").settings["classification"]
    assert approval.settings["ood"].levels == [5]
    assert len(approval.settings["ood"].transformed) == 10
    assert approval.settings["ood"].gans is None
    assert approval.settings_for({"train": "signs/train"})["ood"].gans.preset == "small"
    assert approval.questions == tuple(QUESTIONS)
    assert "approval@1" in call("list", "suites")


@pytest.mark.parametrize("name", [name for name in template_names() if not is_example(name)])
def test_a_template_is_refused_until_it_is_filled_in(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    call("criteria", "new", name, "--out", path)
    assert path.read_text() == template_text(name)
    assert "YOUR DECISION" in path.read_text()
    assert "is there already" in call("criteria", "new", name, "--out", path, code=2)
    content = yaml.safe_load(path.read_text())
    explained = {"id", "question", "hazard", "metric", "where", "over", "confidence", "min_groups"}
    assert all(explained < {*entry} and len(entry) == 9 for entry in content["criteria"])
    assert {entry["question"] for entry in content["criteria"]} == {*QUESTIONS}
    with pytest.raises(InputError, match=r"c\.yaml: decided_by is blank: write the name of who decided"):
        load_criteria(path)
    with pytest.raises(InputError, match="date is blank: write the day of that decision after `date:`"):
        load_criteria(content | {"decided_by": "the board"})
    first = content["criteria"][0]["id"]
    decided = content | {"decided_by": "the board", "date": "2026-11-17"}
    with pytest.raises(InputError, match=f"the threshold of criterion {first} is blank: write the number"):
        load_criteria(decided)
    with pytest.raises(InputError, match="is blank"):
        load_criteria({"criteria": content["criteria"], "example": True})
    filled = re.sub(r"at_(least|most):  ", r"at_\1: 0.5", path.read_text())
    path.write_text(filled.replace("decided_by:", "decided_by: me").replace("date:  ", "date: 2026-11-17  "))
    loaded = load_decided(path)
    assert loaded.decision is not None
    assert (loaded.decision.decided_by, loaded.decision.date, loaded.decision.example) == ("me", "2026-11-17", False)
    assert [c.threshold for c in loaded.criteria] == [0.5] * len(content["criteria"])
    assert load_decided(loaded.content()) == loaded, "a study that holds it gives the same"


@pytest.mark.parametrize("name", [name for name in template_names() if not is_example(name)])
def test_a_template_fits_the_suite(name: str, tmp_path: Path) -> None:
    """Every criterion matches conditions that the suite measures."""
    ids = [entry["id"] for entry in yaml.safe_load(template_text(name))["criteria"]]
    content = study(
        tmp_path,
        n=28,
        protocols={own: settings.model_dump() for own, settings in find_suite("approval").settings.items()},
        questions=ALL,
        criteria=filled_template(name, dict.fromkeys(ids, 0.5), example=True),
    )
    prepared = prepare(parse_study(content, "study"), rehearse=False, progress=rw.no_progress)
    assert len(prepared.criteria) == len(ids)
    stored = yaml.safe_load(prepared.stored_study().to_yaml())
    assert stored["criteria"]["example"] is True
    assert stored["questions"] == ALL


def test_a_misspelled_head_names_the_nearest_key() -> None:
    criteria = [{"id": "A", "metric": "accuracy", "at_least": 0.5}]
    with pytest.raises(InputError, match="unknown key of a criteria file 'decidedby': did you mean 'decided_by'"):
        load_criteria({"decidedby": "me", "criteria": criteria})
    assert load_decided({"criteria": criteria}).decision is None


def test_templates_are_listed_and_an_unknown_one_names_the_nearest(tmp_path: Path) -> None:
    listed = call("criteria", "new", "--list").splitlines()
    assert [line.split()[0] for line in listed] == template_names()
    assert {"traffic-signs", "road-users"} <= {*template_names()}
    assert "did you mean 'traffic-signs'" in call("criteria", "new", "traffic-sign", "--out", tmp_path / "c", code=2)
    assert "name a template" in call("criteria", "new", code=2)
    assert not [*tmp_path.iterdir()]


def small(folder: Path, **changes: Any) -> dict[str, Any]:
    models = {name: {"onnx": str(folder / f"{name}.onnx")} for name in ("a", "b")}
    criteria = {"example": True, "criteria": CRITERIA}
    data = {"test": str(folder / "signs.npz")}
    return study(folder, data=data, models=models, protocols=SMALL, questions=ALL, criteria=criteria) | changes


@pytest.fixture(scope="module")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small approval of two candidates, run directly."""
    folder = tmp_path_factory.mktemp("approved")
    save_onnx(folder / "a.onnx", gain=3.0)
    save_onnx(folder / "b.onnx", gain=3.0, blur=0.3)
    write_npz(folder / "signs.npz", 60)  # each image an object of its own: enough for bounds
    (folder / "study.yaml").write_text(yaml.safe_dump(small(folder)))
    call("run", folder / "study.yaml", "--out", folder / "run", code=1)
    return folder


def test_the_table_of_answers_follows_from_the_tables_of_the_protocols(approved: Path) -> None:
    run = rw.open_run(approved / "run")
    table, cells, sets = run.tables["approval"], run.tables["classification"], run.tables["ood"]
    rates = run.tables["operating_points"]
    point = table["protocol"] == "operating_points"
    main = table[table["main"] & ~point].set_index(["question", "model"])
    counted = table[table["main"] & point].set_index(["question", "model"])
    assert [*main.index] == [(question, model) for question in ALL for model in "ab"]
    assert [*counted.index] == [(question, model) for question in ("outliers", "certainty") for model in "ab"]
    for model in "ab":
        shown = cells.query(f"model == '{model}' and shift != 'none'")
        accuracy = shown.query("metric == 'accuracy'")
        row = main.loc["conditions", model]
        assert row["value"] == pytest.approx(accuracy["value"].mean())
        worst = accuracy.loc[accuracy["value"].idxmin()]
        assert row["worst"] == f"{worst['shift']}, level {worst['level']}"
        assert (row["worst_value"], row["worst_lo"], row["worst_hi"]) == (worst["value"], worst["lo"], worst["hi"])
        assert row["conditions"] == 4
        row = main.loc["certainty", model]
        assert row["worst_value"] == shown.query("metric == 'ece'")["value"].max(), "the highest error is the worst"
        auroc = sets.query(f"model == '{model}' and metric == 'auroc'")
        row = main.loc["outliers", model]
        for column in ("value", "lo", "hi"):
            assert row[column] == pytest.approx(auroc[column].mean())
        assert row["worst_value"] == auroc["value"].min()
        own = rates.query(f"model == '{model}'")
        silent = own.query("metric == 'accepted_wrong'").set_index("shift")["value"]
        row = counted.loc["certainty", model]
        assert (row["value"], row["worst_value"]) == (silent["none"], silent.drop("none").max())
        assert row["conditions"] == 4
        accepted = own.query("metric == 'accepted_outlier'")["value"]
        row = counted.loc["outliers", model]
        assert (row["value"], row["worst_value"]) == (pytest.approx(accepted.mean()), accepted.max())
    kinds = table.query("question == 'outliers' and model == 'a' and not main")["figure"]
    assert [*kinds] == [
        "mean over noise and foreign images",
        "mean over images made from test images",
        "mean over foreign images under a shift",
    ]
    assert run.verify() == []


def test_a_changed_answer_is_noticed(approved: Path, tmp_path: Path) -> None:
    shutil.copytree(approved / "run", tmp_path / "run")
    run = rw.open_run(tmp_path / "run")
    changed = run.tables["approval"].assign(worst_value=0.99)
    run.folder.write_table("approval", changed)
    run.folder.update_record(["tables/approval.parquet", "tables/approval.csv"])
    assert run.verify() == ["table approval does not follow from the readouts"]


def test_the_verdict_of_two_candidates(approved: Path) -> None:
    verdict = json.loads((approved / "run" / "verdict.json").read_text())
    assert [answer["question"] for answer in verdict["questions"]] == ALL
    assert verdict["decision"] == {"decided_by": "", "date": "", "example": True}
    statuses = {
        answer["question"]: (answer["status"], {name: own["status"] for name, own in answer["models"].items()})
        for answer in verdict["questions"]
    }
    assert statuses["conditions"] == ("pass", {"a": "pass", "b": "pass"})
    assert statuses["certainty"][0] == "pass"
    assert verdict["status"] == "fail" == statuses["outliers"][0]
    said = call("verdict", approved / "run", code=1)
    assert "pass  question conditions: C: accuracy" in said
    assert "question conditions, b" in said
    assert rw.open_run(approved / "run").verdict().to_json() == verdict
    history = json.loads((approved / "run" / "verdicts.json").read_text())
    assert history[0]["decision"]["example"] is True


def test_the_first_screen(approved: Path) -> None:
    run = rw.open_run(approved / "run")
    page = (run.path / "report.html").read_text()
    start = page.index('<div class="asked">')
    assert page.index('<section id="summary"') < start < page.index('class="glance')
    screen = page[: page.index('class="glance')]
    for question in QUESTIONS.values():
        assert question.sentence in screen
    assert screen.count('class="asked-card') == 3
    assert screen.count('class="asked-model"') == 6
    assert "Thresholds are examples, not a judgement." in screen
    main = run.tables["approval"].query("main")
    for worst in main["worst"]:
        assert f"<b>{worst}</b>" in screen
    lines = run.headline()
    assert lines[0].startswith("Verdict: fail.")
    assert lines[0].endswith("Thresholds are examples, not a judgement.")
    assert [line.partition("?")[0] + "?" for line in lines[1:4]] == [q.sentence for q in QUESTIONS.values()]


def test_without_criteria_figures_are_shown_and_nothing_is_judged(approved: Path, tmp_path: Path) -> None:
    shutil.copytree(approved / "run", tmp_path / "run")
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(small(approved, criteria=None)))
    said = call("run", study_file, "--out", tmp_path / "run", code=3)
    assert said.startswith("Verdict: inconclusive. Not judged: no threshold was given")
    run = rw.open_run(tmp_path / "run")
    assert {answer.because for answer in run.verdict().answers} == {"not judged: no threshold was given"}
    answers = load_answers(run.path, json.loads((run.path / "verdict.json").read_text()))
    assert [answer.word for answer in answers] == ["not judged"] * 3
    assert all(answer.candidates[0].main[0].estimate.value > 0 for answer in answers)
    assert "Thresholds are examples" not in (run.path / "report.html").read_text()
    assert "not judged: a AUROC 0." in answer_lines(answers)[0]


def test_a_question_that_was_not_run_is_never_passed(approved: Path, tmp_path: Path) -> None:
    content = small(approved, protocols={"classification": {"shifts": ["fog"], "levels": [1]}}, models={})
    content["models"] = {"a": {"onnx": str(approved / "a.onnx")}}
    content["data"] = {"test": {"builtin": "signs", "n": 70}}
    mislabelled = {"id": "O", "question": "outliers", "metric": "accuracy", "at_least": 0.1}
    with pytest.raises(InputError, match="accuracy of classification does not answer the question outliers, but cond"):
        rw.run_study({**content, "criteria": [mislabelled]}, out=tmp_path / "refused", progress=rw.no_progress)
    assert not (tmp_path / "refused").exists()
    with pytest.raises(InputError, match="criterion C answers the question conditions, which the study does not ask"):
        rw.run_study({**content, "questions": ["certainty"]}, out=tmp_path / "refused", progress=rw.no_progress)
    content["criteria"] = [CRITERIA[0]]
    run = rw.run_study(content, out=tmp_path / "run", progress=rw.no_progress)
    answers = {answer.question: answer for answer in run.verdict().answers}
    assert answers["outliers"].status == "inconclusive"
    assert answers["outliers"].because == "not run: no protocol of the study answers it"
    assert answers["certainty"].because == "not judged: no criterion speaks of it"
    assert run.verdict().exit_code == 3
    assert "no figure: not run" in (run.path / "report.html").read_text()


def test_the_same_answers_by_export_and_stored_predictions_alone(approved: Path, tmp_path: Path) -> None:
    call("export", approved / "study.yaml", tmp_path / "images")
    for name in "ab":
        answer_elsewhere(tmp_path / "images", approved / f"{name}.onnx", tmp_path / f"{name}.csv")
    back = small(approved, models={name: {"predictions": str(tmp_path / f"{name}.csv")} for name in "ab"})
    run = rw.run_study(back, out=tmp_path / "run", progress=rw.no_progress)
    direct = rw.open_run(approved / "run")
    pd.testing.assert_frame_equal(run.tables["approval"], direct.tables["approval"])
    verdicts = [json.loads((one.path / "verdict.json").read_text()) for one in (run, direct)]
    assert verdicts[0]["questions"] == verdicts[1]["questions"]
    assert verdicts[0]["status"] == verdicts[1]["status"]


def test_every_source_answers_for_itself() -> None:
    rows = [
        {"source": source, "model": "m", "metric": "accuracy", "value": value, "lo": 0.0, "hi": 1.0, "n": 9}
        | {"groups": 9, "method": "", "reason": ""}
        for source, value in (("day", 0.9), ("night", 0.4))
    ]
    cells = [{**row, "shift": "fog", "level": 3} for row in rows]
    tables = {"classification_overall": pd.DataFrame(rows), "classification": pd.DataFrame(cells)}
    table = answer_tables(tables, ["classification"], ["conditions"])["approval"].query("main")
    assert [*zip(table["source"], table["value"], table["worst"], strict=True)] == [
        ("day", 0.9, "fog, level 3"),
        ("night", 0.4, "fog, level 3"),
    ]
    assert answer_tables(tables, ["classification"], []) == {}


def test_a_condition_without_a_value_is_counted_and_not_the_worst() -> None:
    cell = {"model": "m", "metric": "accuracy", "lo": 0.1, "hi": 0.9, "n": 9, "groups": 9, "method": "", "reason": ""}
    cells = [
        {**cell, "shift": "none", "level": 0, "value": 0.1},
        {**cell, "shift": "fog", "level": 1, "value": 0.6},
        {**cell, "shift": "fog", "level": 3, "value": 0.5},
        {**cell, "shift": "rain", "level": 3, "value": 0.5},
        {**cell, "shift": "fog", "level": 5, "value": float("nan"), "reason": "it failed"},
    ]
    overall = [{**cell, "value": float("nan"), "reason": "it failed"}]
    tables = {"classification_overall": pd.DataFrame(overall), "classification": pd.DataFrame(cells)}
    first = answer_tables(tables, ["classification"], ["conditions"])["approval"].iloc[0]
    assert (first["worst"], first["worst_value"], first["conditions"]) == ("fog, level 3", 0.5, 4)
    assert first["reason"] == "it failed; 1 of 4 conditions without a value: it failed"


def test_candidates_and_sets_by_name(tmp_path: Path) -> None:
    odd = tmp_path / "x=1.onnx"
    odd.write_text("")
    assert named_paths([str(odd)], "model") == {"x=1": str(odd)}
    assert named_paths(["v2=nets/a.onnx", "code.py:answer"], "model") == {"v2": "nets/a.onnx", "code": "code.py:answer"}
    with pytest.raises(InputError, match=r"two models are called a: name them, as in a-2=y/a\.onnx"):
        named_paths(["x/a.onnx", "y/a.onnx"], "model")
    assert candidates_of({"onnx": "v3.onnx"}, "mine") == {"mine": {"onnx": "v3.onnx"}}
    with pytest.raises(InputError, match="names a single model"):
        candidates_of({"a": "a.onnx", "b": "b.onnx"}, "c")
    with pytest.raises(InputError, match="mapping of models is empty"):
        candidates_of({})
    assert outlier_sets("data/park.npz") == {"park": "data/park.npz"}


@pytest.fixture
def tiny_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite approval@1 with two conditions and two sets."""
    small_settings = {
        "classification": {"shifts": ["fog"], "levels": [1]},
        "ood": {"sets": ["uniform_noise", "park"], "transformed": []},
        "operating_points": {
            **{"shifts": ["fog"], "levels": [1]},
            "outliers": {"sets": ["uniform_noise", "park"], "transformed": []},
        },
    }
    for name, settings in small_settings.items():
        protocol = type(find_protocol(name))
        monkeypatch.setattr(protocol, "suites", {**protocol.suites, "approval@1": protocol.settings(**settings)})


@pytest.mark.usefixtures("tiny_suite")
def test_one_command_tests_several_candidates_with_outliers_of_ones_own(approved: Path, tmp_path: Path) -> None:
    data, park = write_npz(tmp_path / "signs.npz", 70), write_npz(tmp_path / "park.npz", 70, seed=3)
    given = ("--data", data, "--suite", "approval", "--outliers", park, "--out", tmp_path / "run")
    said = call("evaluate", "--model", approved / "a.onnx", "--model", f"old={approved / 'b.onnx'}", *given, code=3)
    assert "Can it tell what it does not know? not judged: a AUROC" in said
    run = rw.open_run(tmp_path / "run")
    assert [*run.record.models] == ["a", "old"]
    assert run.record.questions == ALL
    assert {*run.tables["ood"]["ood_set"]} == {"uniform_noise", "park"}
    again = {
        "suite": "approval",
        "outliers": {"park": str(park)},
        "out": tmp_path / "again",
        "progress": rw.no_progress,
    }
    same = rw.evaluate({"a": approved / "a.onnx", "old": approved / "b.onnx"}, data, **again)
    pd.testing.assert_frame_equal(same.tables["approval"], run.tables["approval"])


@pytest.mark.usefixtures("tiny_suite")
def test_the_study_of_an_evaluation_serves_export_and_run(approved: Path, tmp_path: Path) -> None:
    data, park = write_npz(tmp_path / "signs.npz", 70), write_npz(tmp_path / "park.npz", 70, seed=3)
    given = ("--data", data, "--suite", "approval", "--outliers", park, "--write-study", tmp_path / "s.yaml")
    call("evaluate", "--model", tmp_path / "answers.csv", *given)
    assert not (tmp_path / "runs").exists()
    call("export", tmp_path / "s.yaml", tmp_path / "images")
    answer_elsewhere(tmp_path / "images", approved / "a.onnx", tmp_path / "answers.csv")
    call("run", tmp_path / "s.yaml", "--out", tmp_path / "run", code=3)
    assert rw.open_run(tmp_path / "run").record.questions == ALL
    said = call("evaluate", "--model", tmp_path / "answers.csv", *given, code=2)
    assert "s.yaml is there already" in said
    said = call("evaluate", "--model", tmp_path / "answers.csv", *given[:-1], tmp_path / "t.yaml", "--fresh", code=2)
    assert "--write-study runs nothing, so that --fresh would be ignored" in said
    with pytest.raises(InputError, match="models and data that live in memory cannot be written"):
        rw.api.study_of_evaluation(lambda images: images, data)


@pytest.mark.usefixtures("tiny_suite")
def test_a_monitor_may_answer_for_outliers(approved: Path, tmp_path: Path) -> None:
    data, park, held = (
        write_npz(tmp_path / f"{name}.npz", 70, seed=i) for i, name in enumerate(("signs", "park", "v"))
    )
    given = ("--data", data, "--suite", "approval", "--outliers", park, "--validation", held, "--monitor", "msp")
    call("evaluate", "--model", approved / "a.onnx", *given, "--out", tmp_path / "run", code=3)
    run = rw.open_run(tmp_path / "run")
    assert {*run.tables["ood"]["score"]} == {"msp"}
    (threshold,) = run.tables["operating_points_thresholds"].to_dict("records")
    assert (threshold["score"], threshold["held_out"]) == ("msp", "validation")
    assert run.verify() == []


@pytest.mark.parametrize("option", ["--outliers", "--train", "--validation", "--monitor"])
def test_data_that_a_suite_cannot_use_is_refused(option: str, approved: Path, tmp_path: Path) -> None:
    data = write_npz(tmp_path / "signs.npz", 28)
    given = ("--data", data, option, data, "--suite", "quick", "--out", tmp_path / "run")
    said = call("evaluate", "--model", approved / "a.onnx", *given, code=2)
    assert f"suite quick@1 makes no use of {option}" in said
    assert not (tmp_path / "run").exists()
