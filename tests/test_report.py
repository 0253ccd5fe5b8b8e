"""The report: facts against a run of known values, hostile names, the same bytes twice, nothing from outside."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest

from records import Shown, changed, run_record, source_record, with_cases
from reports import (
    DIRECTIONS,
    HOSTILE,
    Elements,
    accuracy_of,
    chart_data,
    headline,
    in_browser,
    make_run,
    picture,
    render,
)
from roadworthy import api
from roadworthy.core.cells import escape_cell, unescape_cell
from roadworthy.core.errors import InputError
from roadworthy.core.record import AskedCase, ProtocolRecord, RunRecord, SourcePart, read_record
from roadworthy.engine.folder import RunFolder
from roadworthy.models import load_model
from roadworthy.protocols.classification import figures, table_specs
from roadworthy.protocols.classification import words as summary
from roadworthy.protocols.classification.facts import ClassificationFacts, load_classification
from roadworthy.report import drawing, frame
from roadworthy.report import facts as run_facts
from roadworthy.report.facts import CLEAN, Condition, CriterionFacts, JudgedRow
from roadworthy.report.words import NO_BREAK, bounds, number
from roadworthy.statistics import Estimate
from roadworthy.study import parse_study
from roadworthy.verdict import Criterion, failed_parts, failure_lines, failures
from roadworthy.verdict.failures import count_failed


def load_facts(run: Path) -> ClassificationFacts:
    return load_classification(run, run_facts.load_facts(run))


STANDARD_SHIFTS = ("grey", "noise", "blur", "rotation", "rain", "snow", "crop", "fog", "reflection", "perspective")
KNOWN = {
    ("v3", "none", 0): 0.98,
    ("v3", "fog", 1): 0.97,
    ("v3", "fog", 2): 0.95,
    ("v3", "fog", 3): 0.90,
    ("v3", "fog", 4): 0.80,
    ("v3", "rain", 1): 0.94,
    ("v3", "rain", 2): 0.96,
    ("v3", "rain", 3): 0.85,
    ("v3", "rain", 4): 0.95,
    ("v3", "grey", 1): 1.0,
    ("v3", "grey", 2): 0.99,
    ("v3", "grey", 3): 0.98,
    ("v3", "grey", 4): 0.97,
    ("v3", "snow", 1): 0.7,
    ("v3", "snow", 2): 0.6,
    ("v3", "snow", 3): 0.5,
    ("v3", "snow", 4): 0.4,
}


@pytest.fixture
def plotly_itself() -> None:
    """Asked for by the tests that need plotly's 5 MB and not a stand-in."""


@pytest.fixture(autouse=True)
def small_plotly(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "plotly_itself" not in request.fixturenames:
        monkeypatch.setattr("roadworthy.report._plotly", lambda: "var Plotly = {};")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("known") / "run", KNOWN)


def test_worst_conditions_are_the_lowest_accuracies_in_order(known: Path) -> None:
    facts = load_facts(known)
    assert facts.worst("v3") == (Condition("snow", 4), Condition("snow", 3), Condition("snow", 2))
    assert facts.shifts == ("snow", "fog", "rain", "grey")
    assert facts.levels == (1, 2, 3, 4)
    assert facts.hardest(["v3"]) == (Condition("snow", 4), Condition("fog", 4), Condition("rain", 3))
    assert facts.shown("v3") == (CLEAN, *facts.hardest(["v3"]))


def test_key_figures_stand_at_the_top_of_the_page(known: Path) -> None:
    text = Elements(render(known)).text
    top = text[: text.index("By shift and level")]
    average = np.mean([value for key, value in KNOWN.items() if key[1] != "none"])
    for words in (
        "Model v3 Data test set: 200 images of 100 objects, 3 classes",
        "98.0 % 96.0 to 99.5 %",
        f"{100 * average:.1f} %",
        "Accuracy drops below 95 % from fog level 3 on.",
        "Lowest: 40.0 % (38.0 to 41.5 %) at snow level 4, 50.0 % (48.0 to 51.5 %) at snow level 3 and 60.0 %",
        "snow, level 4 40.0 % 38.0 to 41.5 % 58.0 points below undisturbed",
        "fog, level 4 80.0 %",
        "rain, level 3 85.0 %",
    ):
        assert words in top


def said(facts: ClassificationFacts, model: str) -> list[str]:
    """The sentences on one model, up to those on its lowest accuracies."""
    sentences = [sentence.replace(NO_BREAK, " ") for sentence in summary.summarise(facts, model).sentences]
    return sentences[: next((i for i, sentence in enumerate(sentences) if sentence.startswith("Lowest")), None)]


def test_sentences_say_from_which_level_on_accuracy_is_too_low(known: Path) -> None:
    facts = load_facts(known)
    assert said(facts, "v3") == [
        "Accuracy is below 95 % at every level of snow.",
        "Accuracy drops below 95 % at rain levels 1 and 3, not at 2 and 4.",
        "Accuracy drops below 95 % from fog level 3 on.",
        "Accuracy stays at 95 % or above at every level measured of grey.",
    ]
    found = summary.summarise(facts, "v3")
    assert found.rule.replace(NO_BREAK, " ") == "Threshold: 95 %, as no criterion on accuracy sets one."
    assert [line.replace(NO_BREAK, " ") for line in found.brief] == [
        "Below 95 %: snow at every level; rain at levels 1 and 3, not at 2 and 4; fog from level 3 on."
    ]


def test_shifts_that_fall_alike_share_a_sentence(tmp_path: Path) -> None:
    values = {"fog": (0.97, 0.9), "rain": (0.96, 0.8), "snow": (0.9, 0.8), "{0}": (0.96, 0.96)}
    accuracy = {("m", shift, level): v for shift, pair in values.items() for level, v in enumerate(pair, start=1)}
    facts = load_facts(make_run(tmp_path / "run", {("m", "none", 0): 0.98, ("m", "blur", 3): 0.5} | accuracy))
    assert said(facts, "m") == [
        "Accuracy drops below 95 % at blur level 3.",
        "Accuracy is below 95 % at every level of snow.",
        "Accuracy drops below 95 % at rain and fog level 2.",
        "Accuracy stays at 95 % or above at every level measured of {0}.",
    ]


@pytest.mark.parametrize(
    ("clean", "threshold"), [(1.0, 0.95), (0.97, 0.95), (0.9699, 0.92), (0.5, 0.45), (0.04, 0.95), (math.nan, 0.95)]
)
def test_without_criteria_the_threshold_is_95_percent_or_below_undisturbed(clean: float, threshold: float) -> None:
    found = summary.default_threshold(Estimate(clean))
    assert found.value == pytest.approx(threshold)
    assert ("5 points under undisturbed" in found.rule) == (0.05 < clean < 0.97)


def test_a_model_that_is_not_well_above_95_percent_is_held_to_its_own_level(tmp_path: Path) -> None:
    accuracy = {("m", "none", 0): 0.90, ("m", "fog", 1): 0.86, ("m", "fog", 2): 0.84}
    facts = load_facts(make_run(tmp_path / "run", accuracy))
    assert said(facts, "m") == ["Accuracy drops below 85 % at fog level 2."]


@pytest.mark.parametrize(
    ("criteria", "threshold"),
    [
        ([{"at_least": 0.9}], 0.9),
        ([{"at_least": 0.9}, {"at_least": 0.92, "where": {"shift": ["rain", "fog"]}}], 0.92),
        ([{"at_least": 0.9, "where": {"protocol": "classification", "shift": "fog", "level": [1, 2]}}], 0.9),
        ([{"at_least": 0.9, "over": "worst", "where": {"model": "v3"}}], 0.9),
        ([{"at_least": 0.9, "over": "pooled"}], 0.95),
        ([{"at_least": 0.9, "where": {"model": "other"}}], 0.95),
        ([{"at_least": 0.9, "where": {"shift": "none"}}], 0.95),
        ([{"at_least": 0.9, "where": {"shift": "rain"}}], 0.95),
        ([{"at_least": 0.9, "where": {"protocol": "ood"}}], 0.95),
        ([{"at_most": 0.9}], 0.95),
        ([{"at_least": 0.9, "metric": "auroc"}], 0.95),
    ],
)
def test_a_criterion_for_accuracy_sets_the_threshold(
    known: Path, criteria: list[dict[str, Any]], threshold: float
) -> None:
    """Pooled criteria say nothing about single levels; those for other models, shifts or metrics do not count."""
    row = JudgedRow("", "pass", "", "", "", 1, 1, "", None, "objects")
    given = [Criterion(**{"id": f"REQ-{place}", "metric": "accuracy"} | entry) for place, entry in enumerate(criteria)]
    findings = tuple(CriterionFacts(criterion, "pass", "", row, (row,)) for criterion in given)
    found = summary.accuracy_threshold(replace(load_facts(known), criteria=findings), "v3", "fog")
    assert found.value == threshold
    assert found.criterion == ("" if threshold == 0.95 else f"REQ-{len(criteria) - 1}")


def test_each_shift_is_held_to_its_criterion(tmp_path: Path) -> None:
    criteria = [Criterion(id="REQ-1", metric="accuracy", where={"shift": "fog"}, at_least=0.99)]
    facts = load_facts(make_run(tmp_path / "run", KNOWN, criteria=criteria))
    assert "Accuracy is below 99 % at every level of fog." in said(facts, "v3")
    assert "Accuracy is below 95 % at every level of snow." in said(facts, "v3")
    rule = summary.summarise(facts, "v3").rule.replace(NO_BREAK, " ")
    assert rule == "Threshold: 99 % for fog, as REQ-1 requires; otherwise 95 %, as no criterion on accuracy sets one."


def test_what_was_never_above_does_not_drop(tmp_path: Path) -> None:
    accuracy = {("m", "none", 0): 0.8, ("m", "fog", 1): 0.91, ("m", "fog", 2): 0.7}
    criteria = [Criterion(id="REQ-1", metric="accuracy", at_least=0.9)]
    facts = load_facts(make_run(tmp_path / "run", accuracy, criteria=criteria))
    assert said(facts, "m") == ["Accuracy is below 90 % at fog level 2."]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_first_screen_speaks_of_every_model(tmp_path: Path, count: int) -> None:
    models = [f"model {place}" for place in range(count)]
    accuracy = accuracy_of(models, ["grey", "noise", "blur"], [1, 2, 3])
    run = make_run(tmp_path / "run", accuracy, mistakes=1)
    page = Elements(render(run))
    top = page.text[: page.text.index("By shift and level")]
    for model in models:
        worst = number("accuracy", accuracy[model, "blur", 3]).replace(NO_BREAK, " ")
        assert f"blur, level 3 {worst}" in top if count == 1 else f"{model} {worst} (" in top
        assert f"{worst} (" in top
    assert ("in whole sentences" in top) == (count > 2)
    assert ("Below 95 %: blur at every level; noise from level 2 on." in top) == (count > 2)
    assert "Accuracy drops below 95 % from noise level 2 on." in top
    assert top.count("Threshold:") == count
    assert top.count("undisturbed as shown") == 3


def test_pictures_of_the_worst_conditions_show_one_image_before_and_after(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", KNOWN)
    for row in pd.read_parquet(run / "tables" / "classification_gallery.parquet").itertuples():
        flat = np.full((12, 48, 3), 10 * row.level + 20, np.uint8)
        flat[:, 24:36] += 100
        flat[:6, 24:36] += 50 if row.level == 0 else 0
        cv2.imwrite(str(run / "media" / row.media), flat)
    cases = summary.hardest(load_facts(run))
    assert [str(case.condition) for case in cases] == ["snow, level 4", "fog, level 4", "rain, level 3"]
    for case in cases:
        assert decoded(case.before).mean() == pytest.approx(145, abs=2)
        assert decoded(case.after).mean() == pytest.approx(120 + 10 * case.condition.level, abs=2)


def decoded(uri: str | None) -> np.ndarray:
    assert uri is not None
    content = np.frombuffer(base64.b64decode(uri.partition(",")[2]), np.uint8)
    image = cv2.imdecode(content, cv2.IMREAD_COLOR)
    assert image.shape == (12, 12, 3)
    return np.asarray(image)


def test_a_run_without_pictures_of_a_condition_still_renders(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", KNOWN)
    gallery = pd.read_parquet(run / "tables" / "classification_gallery.parquet")
    RunFolder(run).write_table(table_specs.GALLERY.name, gallery[gallery["shift"] != "snow"].reset_index(drop=True))
    assert [case.after is None for case in summary.hardest(load_facts(run))] == [True, False, False]
    assert "snow, level 4 40.0 %" in Elements(render(run)).text


def test_the_worst_conditions_show_what_the_models_answered(tmp_path: Path) -> None:
    models = ["second", "first"]
    run = make_run(tmp_path / "run", accuracy_of(models, ["fog", "rain"], [1, 2]), classes=[HOSTILE, "yield", "stop"])
    case = summary.hardest(load_facts(run))[0]
    assert [image.label for image in case.images] == [HOSTILE, "yield", "stop", HOSTILE]
    assert [(a.model, a.prediction, a.right) for a in case.images[1].answers] == [(m, HOSTILE, False) for m in models]
    assert all(answer.right for answer in case.images[0].answers)
    text = Elements(render(run)).text
    assert f"yield ✗ second, wrong: {HOSTILE} 80.0 % ✗ first, wrong: {HOSTILE} 80.0 %" in text
    assert f"{HOSTILE} ✓ second, right: {HOSTILE} 80.0 %" in text
    (run / "tables" / "classification_gallery_answers.parquet").unlink()
    assert "second, right:" not in Elements(render(run)).text, "an earlier version did not store the answers"


def test_many_classes_are_cut_to_those_with_most_confusions(tmp_path: Path) -> None:
    classes = [f"class {index}" for index in range(1000)]
    run = make_run(tmp_path / "run", {("m", "none", 0): 1.0, ("m", "fog", 1): 0.5}, classes=classes, images=4000)
    confused = [
        (700, 3, 3),
        (3, 700, 1),
        (500, 501, 2),
        (998, 999, 1),
        (998, 1, 1),
        *((i, 0, 1) for i in range(100, 160)),
    ]
    right = [(index, index, 5) for index in range(1000)]
    rows = [
        {"model": "m", "shift": shift, "level": level, "label": classes[a], "prediction": classes[b], "count": count}
        for shift, level, counts in (("none", 0, right), ("fog", 1, [*right, *confused]))
        for a, b, count in counts
    ]
    RunFolder(run).write_table("classification_confusion", pd.DataFrame(rows))
    html = render(run)
    clean, fog = (view["data"][0] for view in chart_data(html)["classification-confusion-0"])
    assert len(clean["z"]) == len(fog["z"]) == len(fog["z"][0]) == len(fog["x"]) == 60
    shown = fog["y"]
    assert shown == sorted(shown, key=classes.index)
    assert {"class 0", "class 3", "class 700", "class 500", "class 501", "class 998"} < set(shown)
    row, column = shown.index("class 700"), shown.index("class 3")
    assert fog["customdata"][row][column] == 3
    assert fog["z"][row][column] == 37.5
    assert "class 999" not in shown
    share = fog["z"][shown.index("class 998")][shown.index("class 1")]
    assert share == 14.3, "the share is of all answers to the class, those outside the matrix too"
    text = Elements(html).text
    inside = sum(count for label, prediction, count in confused if {classes[label], classes[prediction]} <= set(shown))
    assert "No answer is wrong: the matrix shows the first 60 of 1,000 classes." in text
    assert f"the 60 of 1,000 classes with most confusions, as true class or as prediction: {inside} of 68" in text
    assert "class 700 class 3 3 37.5 %" in text, "the worst pairs are listed"
    assert "Recall of the 100 weakest of 1,000 classes with images" in text
    assert len(html) < 500_000


def test_the_models_card_names_files_input_and_outputs(tmp_path: Path) -> None:
    def describe(record: RunRecord) -> RunRecord:
        known = {"origin": "onnx", "files": {HOSTILE: "ab" * 32}, "input": "32x32 rgb, range 0-1", "outputs": "logits"}
        record.sources[""].models["v3"] = record.sources[""].models["v3"].model_copy(update=known)
        return record

    run = make_run(tmp_path / "run", KNOWN)
    assert f"Models v3 gives probabilities; fingerprint {'f' * 64}" in Elements(render(run)).text
    words = f"Models v3 onnx {HOSTILE} (SHA-256 abababababab); input 32x32 rgb, range 0-1; outputs logits; gives"
    assert words in Elements(render(changed(run, describe))).text


def test_headline_is_three_lines_for_a_terminal(known: Path) -> None:
    average = 100 * np.mean([value for key, value in KNOWN.items() if key[1] != "none"])
    assert headline(known) == [
        "Verdict: none. No acceptance criteria were given, so nothing was judged.",
        f"Accuracy: v3 98.0 % (96.0 to 99.5 %) undisturbed, {average:.1f} % "
        f"({average - 2:.1f} to {average + 1.5:.1f} %) under shifts",
        "Worst condition: snow level 4: v3 40.0 % (38.0 to 41.5 %)",
    ]


def test_headline_of_failed_cases_hostile_names_and_no_pictures(tmp_path: Path) -> None:
    name = "two\nlines \x1b[2J"
    accuracy = {(name, "none", 0): 0.98, ("b", "none", 0): 0.9, ("b", "fog", 1): 0.7}
    criteria = [Criterion(id="R", metric="accuracy", at_least=0.9)]
    run = make_run(tmp_path / "run", accuracy, failed={(name, "fog", 1): "no\nanswer"}, criteria=criteria)
    shutil.rmtree(run / "media")
    verdict, accuracies, worst = headline(run)
    assert verdict == "Verdict: fail. The one criterion fails. 1 case of 4 failed."
    assert accuracies.startswith(
        "Accuracy: two lines \\x1b[2J 98.0 % (96.0 to 99.5 %) undisturbed, n/a (1 of 2 cases failed) under shifts"
    )
    assert worst.startswith(
        "Worst condition (lowest of any model): fog level 1: two lines \\x1b[2J n/a (1 of 2 cases failed), b 70.0 %"
    )


def test_a_model_that_failed_in_all_cases_is_one_figure_of_the_headline(tmp_path: Path) -> None:
    accuracy = {("b", "none", 0): 0.9, ("b", "fog", 1): 0.7}
    failed = {("hangs", "none", 0): "no answer in time", ("hangs", "fog", 1): "no answer in time"}
    lines = headline(make_run(tmp_path / "run", accuracy, failed=failed))
    assert "hangs n/a (2 of 2 cases failed)" in lines[1].partition(": ")[2].split("; ")
    assert "hangs n/a (2 of 2 cases failed)" in lines[2]
    assert "no answer in time" not in " ".join(lines), "causes are printed once, by themselves"


def test_cases_that_all_failed_for_one_cause_are_one_line(tmp_path: Path) -> None:
    accuracy = {("b", "none", 0): 0.9}
    failed = {("hangs", "none", 0): "late", ("hangs", "fog", 1): "late", ("b", "fog", 1): "no power"}
    failed |= {("dies", "none", 0): "exit code 3", ("dies", "fog", 1): "exit code 4"}
    record = read_record(make_run(tmp_path / "run", accuracy, failed=failed))
    assert sorted(failure_lines(record)) == [
        "b at fog 1: no power",
        "dies at fog 1: exit code 4",
        "dies at none 0: exit code 3",
        "hangs, all 2 cases: late",
    ]


def test_headline_without_shifts(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {("m", "none", 0): 0.9})
    assert headline(run)[1].endswith("n/a (no disturbed condition was run) under shifts")
    assert headline(run)[2] == "Worst condition: none was measured"


def test_curves_mark_the_threshold_that_all_models_share(tmp_path: Path) -> None:
    shared = {("a", "none", 0): 0.99, ("b", "none", 0): 0.98, ("a", "fog", 1): 0.9, ("b", "fog", 1): 0.9}
    facts = load_facts(make_run(tmp_path / "shared", shared))
    assert figures.curve(facts, "fog", "accuracy")["layout"]["shapes"][0]["y0"] == 0.95
    assert "shapes" not in figures.curve(facts, "fog", "ece")["layout"]
    facts = load_facts(make_run(tmp_path / "own", shared | {("b", "none", 0): 0.9}))
    assert "shapes" not in figures.curve(facts, "fog", "accuracy")["layout"]


def test_failed_case_is_said_loudly_and_leaves_no_value(tmp_path: Path) -> None:
    cause = "ModelError: model v3 answered NaN for 3 of 128 images"
    run = make_run(tmp_path / "run", KNOWN, failed={("v3", "snow", 4): cause})
    facts = load_facts(run)
    assert facts.cell("v3", Condition("snow", 4), "accuracy").missing
    assert Condition("snow", 4) not in facts.worst("v3")
    assert said(facts, "v3")[-1] == "Not measured: snow level 4."
    found = summary.summarise(facts, "v3")
    assert found.brief[-1] == "Not measured: snow level 4."
    assert cause in found.figures[1][2].reason
    html = render(run)
    assert "1 case of 17 failed." in Elements(html).text
    assert cause in Elements(html).text
    assert any(attrs.get("role") == "alert" for _, attrs in Elements(html).tags)
    heat = chart_data(html)["classification-heat-0"][0]["data"]
    row, column = facts.shifts.index("snow"), 4
    assert heat[0]["z"][row][column] is None
    assert heat[1]["text"][row][column] == "n/a"
    assert cause in heat[1]["hovertext"][row][column]


def test_failures_are_counted_by_kind_and_a_case_of_two_protocols_once(tmp_path: Path) -> None:
    def fail(record: RunRecord) -> RunRecord:
        asked = record.protocols["classification"].sources[""].cases
        first = asked[0].case
        monitors = {
            f"m{place}": record.cases[first].model_copy(update={"kind": "monitor", "folder": f"readouts/m{place}"})
            for place in range(2)
        }
        shown = [AskedCase(case=key, system="energy", labels={"model": "v3"}) for key in monitors]
        other = ProtocolRecord(sources={"": SourcePart(cases=[*asked, *shown])})
        changes = {"cases": record.cases | monitors, "protocols": {**record.protocols, "other": other}}
        return record.model_copy(update=changes)

    made = make_run(tmp_path / "run", {("v3", "fog", 1): 0.9}, failed={("v3", "none", 0): "no answer"})
    assert headline(made)[0].endswith("1 case of 2 failed, which is never a pass.")
    record = RunFolder(changed(made, fail)).record()
    record.cases["m1"].status = record.cases["m0"].status = "failed"
    assert [part.name for part in failed_parts(record)] == ["v3 at none 0", "monitor energy"]
    assert count_failed(failed_parts(record)) == "1 case and 1 monitor"


def test_a_failed_case_is_named_by_what_it_shows_whatever_the_protocol() -> None:
    noted = {"role": "probe"}
    shown = [
        *(Shown("m", "none", 0, "no answer"), Shown("m", "fog", 3, "no answer")),
        *(Shown("m", "fog", 4, "no answer", noted), Shown("m", "park", 0, "no answer", noted)),
    ]
    record = with_cases(run_record(source_record(["m"], ["a", "b"])), "of_mine", shown)
    named = ["m at none 0", "m at fog 3", "m at fog 4 (of_mine)", "m at outliers park (of_mine)"]
    assert [part.name for part in failed_parts(record)] == named
    for path in Path(failures.__file__).parent.glob("*.py"):
        assert not re.search(r"classification|\bood_set|od_test", path.read_text()), f"{path} names a protocol"


def test_a_model_whose_every_case_failed_is_shown_as_such(tmp_path: Path) -> None:
    accuracy = {("a", "none", 0): 0.9, ("a", "fog", 1): 0.8}
    run = make_run(tmp_path / "run", accuracy, failed={("b", "none", 0): "no answer", ("b", "fog", 1): "no answer"})
    facts = load_facts(run)
    assert facts.shown("b") == ()
    assert facts.hardest(facts.models) == (Condition("fog", 1),)
    text = Elements(render(run)).text
    assert "No case of this model was measured." in text
    assert "Not measured: fog level 1." in text


def test_missing_value_shows_its_reason(known: Path) -> None:
    facts = load_facts(known)
    cell = facts.cell("v3", Condition("grey", 1), "auroc")
    assert cell.missing
    assert cell.reason == "no incorrect prediction"
    assert [entry for entry in summary.missing_values(facts) if "auroc" in entry.metric] == [
        summary.Missing("v3", "auroc, fpr95_right and fpr95_wrong", "no incorrect prediction", (Condition("grey", 1),))
    ]
    view = figures.heat_map(facts, "v3", "auroc")["data"]
    row = facts.shifts.index("grey")
    assert view[0]["z"][row][1] is None
    assert "no incorrect prediction" in view[1]["hovertext"][row][1]


def test_a_level_that_one_shift_lacks_is_not_part_of_the_run(tmp_path: Path) -> None:
    accuracy = {("m", "none", 0): 0.98, ("m", "fog", 1): 0.9, ("m", "rain", 1): 0.9, ("m", "rain", 7): 0.8}
    facts = load_facts(make_run(tmp_path / "run", accuracy))
    assert facts.levels == (1, 7)
    assert "not part of this run" in figures.heat_map(facts, "m", "accuracy")["data"][1]["hovertext"][1][2]
    assert summary.missing_values(facts) == []


def test_heat_map_and_curves_hold_the_values(known: Path) -> None:
    facts = load_facts(known)
    heat = figures.heat_map(facts, "v3", "accuracy")["data"][0]
    assert heat["z"][0] == [0.98, 0.7, 0.6, 0.5, 0.4]
    assert heat["text"][0] == ["98.0", "70.0", "60.0", "50.0", "40.0"]
    line = figures.curve(facts, "snow", "accuracy")["data"][0]
    assert line["y"] == [0.98, 0.7, 0.6, 0.5, 0.4]
    assert line["error_y"]["arrayminus"] == [0.02] * 5
    bars = figures.drop_ranking(facts, "accuracy_drop")
    assert bars["layout"]["yaxis"]["ticktext"] == ["grey", "rain", "fog", "snow"]
    assert bars["data"][0]["x"] == pytest.approx([-0.005, 0.055, 0.075, 0.43])


def test_darker_is_worse_for_every_directed_metric(known: Path) -> None:
    facts = load_facts(known)
    darkest = figures.WORSE_IS_DARKER[-1][1]
    for metric, better in DIRECTIONS.items():
        low, high, colours = figures._colour_range(facts, metric)
        assert low < high
        if better is not None:
            assert dict(colours)[0.0 if better else 1.0] == darkest


def test_severity_says_whether_a_shift_gets_worse_with_level(known: Path) -> None:
    rows = {row.shift: row for row in summary.severity_rows(load_facts(known))}
    assert rows["snow"].levels == "level 1 to 4"
    assert rows["snow"].words == "yes"
    assert summary._severity_words(Estimate(-0.1, -0.2, -0.05)) == "no: it gets better"
    assert summary._severity_words(Estimate(0.0, -0.2, 0.1)) == "not shown: the bounds include 0"
    assert summary._severity_words(Estimate(math.nan)) == "not known"


def test_recall_ranks_the_weakest_classes_first(known: Path) -> None:
    facts = load_facts(known)
    weakest = summary.weakest_classes(facts, "v3")
    assert [found.name for found in weakest] == ["speed 50", "yield", "stop"]
    assert weakest[-1].shifted == pytest.approx(np.mean([v for key, v in KNOWN.items() if key[1] != "none"]))
    assert (weakest[-1].worst, weakest[-1].worst_value) == (Condition("snow", 4), 0.4)


def test_top_confusions_count_and_share(known: Path) -> None:
    top = summary.top_confusions(load_facts(known), "v3", Condition("snow", 4))
    assert (top[0].label, top[0].prediction) == ("speed 50", "stop")
    assert top[0].count == 66 - round((0.4 - 0.2 / 3) * 66)
    assert top[0].share == pytest.approx(top[0].count / 66)


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "100 %"), (0.99999, ">99.9 %"), (0.9994, "99.9 %"), (0.0, "0 %"), (1e-9, "<0.1 %")]
)
def test_rounding_never_claims_perfection(value: float, text: str) -> None:
    assert number("accuracy", value).replace(NO_BREAK, " ") == text


def test_numbers_in_words() -> None:
    assert number("nll", 1e-6) == "<0.001"
    assert number("accuracy_drop", 0.2).replace(NO_BREAK, " ") == "20.0 points"
    assert bounds("ece", 0.1, math.nan) == "no bounds"


def test_verdict_comes_first_with_every_criterion(tmp_path: Path) -> None:
    criteria = [
        Criterion(id="REQ-1", hazard="misread in fog", metric="accuracy", at_least=0.3),
        Criterion(id="REQ-2", metric="accuracy", at_least=0.985),
        Criterion(id="REQ-3", metric="accuracy", over="worst", at_least=0.4),
    ]
    run = make_run(tmp_path / "run", KNOWN, criteria=criteria)
    facts = load_facts(run)
    assert [found.status for found in facts.criteria] == ["pass", "fail", "inconclusive"]
    assert facts.status == "fail"
    values = [float(row.value.split(NO_BREAK)[0]) for row in facts.criteria[1].rows if row.status == "fail"]
    assert float(facts.criteria[1].decisive.value.split(NO_BREAK)[0]) == min(values) < values[0]
    assert len(facts.criteria[1].rows) == 16
    text = Elements(re.sub("<svg.*?</svg>", "", render(run), flags=re.DOTALL)).text
    places = [text.index(words) for words in ("✗ fail", "pass: REQ-1", "Accuracy undisturbed", "Hazard: misread")]
    assert places == sorted(places)
    assert "Of 3 criteria 1 fails, 1 is inconclusive and 1 passes." in text
    assert "Hazard: misread in fog" in text
    assert "accuracy at least 0.985 (each, 95%)" in text
    assert facts.criteria[2].because not in text, "its numbers stand there once, as people read them"
    assert "Accuracy at least 0.4 (worst, 95%)" in text
    assert "model v3, shift snow, level 4, of 16 conditions: the lower bound is below 0.4, and the value lies" in text


def test_without_criteria_the_report_says_how_to_give_them(known: Path) -> None:
    text = Elements(render(known)).text
    assert "No acceptance criteria were given, so nothing was judged." in text
    assert "roadworthy verdict RUN --criteria criteria.yaml" in text


def test_hostile_names_are_shown_and_never_run(tmp_path: Path) -> None:
    nasty = [f"{HOSTILE}\"'", '"><img src=x onerror=alert(1)>', "two\nlines & {{ 7 * 7 }}"]
    accuracy = accuracy_of([nasty[0], nasty[1]], ["fog", "<i>rain</i>"], [1, 2])
    criteria = [Criterion(id=HOSTILE, hazard=nasty[1], metric="accuracy", where={"shift": HOSTILE}, at_least=0.9)]
    run = make_run(
        tmp_path / "run",
        accuracy,
        classes=nasty,
        criteria=criteria,
        name=HOSTILE,
        image_id=HOSTILE + "{}",
        failed={(nasty[1], "fog", 2): HOSTILE},
        data={"name": HOSTILE, "notes": [HOSTILE], "bad_images": [[HOSTILE, "a\udc80b"]]},
    )
    html = render(run)
    page = Elements(html)
    html.encode()
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert all(attrs.get("src", "data:").startswith("data:") for tag, attrs in page.tags if tag == "img")
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert not any(tag == "i" and "class" not in attrs for tag, attrs in page.tags)
    for words in (HOSTILE, nasty[1], "two lines & {{ 7 * 7 }}"):
        assert words in page.text
    plotted = json.dumps(chart_data(html))
    assert "<script" not in plotted
    assert "<img" not in plotted
    assert "<i>" not in plotted


def test_only_our_own_scripts_may_run(known: Path) -> None:
    page = Elements(render(known))
    policy = next(
        a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    for script in page.scripts[1:]:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


@pytest.mark.usefixtures("plotly_itself")
def test_the_page_asks_for_nothing_from_outside(known: Path) -> None:
    html = render(known)
    page = Elements(html)
    loaded = [a[name] for _, a in page.tags for name in ("src", "href", "action", "data", "poster") if a.get(name)]
    assert loaded
    assert all(address.startswith(("#", "data:image/")) for address in loaded if address)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "plotly.js v" in page.scripts[1][:200]


def test_two_renders_are_the_same_to_the_byte(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", KNOWN)
    first = render(run)
    changed(run, lambda record: record.model_copy(update={"finished": "2026-03-01T12:31:00+00:00"}))
    (run / "report.html").write_text(first)
    changed(run, lambda record: record)
    assert render(run) == first


def test_every_chart_has_its_place_and_every_choice_its_view(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", accuracy_of(["v3", "v2"], STANDARD_SHIFTS, [1, 2, 3, 4, 5]), mistakes=1)
    html = render(run)
    page, charts = Elements(html), chart_data(html)
    assert sorted(attrs["id"] for _, attrs in page.tags if attrs.get("class") == "chart") == sorted(charts)
    options = html.split('data-charts="')[1:]
    assert options
    for part in options:
        names = part[: part.index('"')].split()
        choices = part[: part.index("</select>")].count("<option")
        assert names
        assert all(len(charts[name]) == choices for name in names)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"] for tag, attrs in page.tags if tag == "a"} <= {f"#{name}" for name in ids}
    assert len(html) < 3_000_000


def test_pictures_have_texts_and_tables_have_headers(known: Path) -> None:
    page = Elements(render(known))
    assert all(attrs.get("alt") for tag, attrs in page.tags if tag == "img")
    assert all(attrs.get("aria-label") for _, attrs in page.tags if attrs.get("class") == "chart")
    assert all(attrs.get("scope") for tag, attrs in page.tags if tag == "th")


@pytest.mark.parametrize(
    ("models", "shifts", "levels", "classes"),
    [
        (["m"], ["fog"], [3], ["a", "b"]),
        (["m"], ["fog"], [1], ["only"]),
        (["m"], [], [], ["a", "b"]),
        (["m", "n", "o"], ["fog", "rain"], [1, 5], [f"class {i}" for i in range(200)]),
    ],
    ids=["one-of-each", "one-class", "no-shift", "many-classes"],
)
def test_small_and_large_runs(
    tmp_path: Path, models: list[str], shifts: list[str], levels: list[int], classes: list[str]
) -> None:
    run = make_run(tmp_path / "run", accuracy_of(models, shifts, levels), classes=classes, images=400, mistakes=1)
    charts = chart_data(render(run))
    matrix = charts["classification-confusion-0"][0]["data"][0]
    assert len(matrix["z"]) == (len(classes) if len(classes) <= 100 else 60)
    assert ("text" in matrix) == (len(classes) <= figures.TEXT_CLASSES)
    assert ("classification-drop-ranking" in charts) == bool(shifts)


def test_what_mistakes_are_left_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", accuracy_of(["v3", "v2"], ["fog", "rain"], [1, 2, 3, 4, 5]), mistakes=2)
    kept = len([*csv.DictReader((run / "tables" / "classification_mistakes.csv").open())]) // 2
    assert "most confident of" not in Elements(render(run)).text
    monkeypatch.setattr("roadworthy.protocols.classification.facts.SHOWN_MISTAKES", 26)
    text = Elements(render(run)).text
    assert text.count(f"Shown: the 13 most confident of {kept} that were kept. The other {kept - 13} are in") == 2


def test_sixty_four_models_look_different() -> None:
    looks = [drawing.look(index) for index in range(65)]
    assert len(set(looks[:64])) == len({colour for colour, _ in looks[:64]}) == 64
    assert looks[:8] == [*zip(drawing.COLOURS, drawing.SYMBOLS, strict=True)]
    assert looks[64] == looks[0]


def test_no_mistakes_at_all(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {("m", "none", 0): 1.0, ("m", "fog", 1): 1.0}, mistakes=0, classes=["a"])
    text = Elements(render(run)).text
    assert "No wrong answer was recorded." in text
    assert "No mistake." in text


def test_notes_warn_of_what_the_bounds_rest_on(tmp_path: Path) -> None:
    data = {"groups": 200, "notes": ["grey images were made RGB"], "bad_images": [["a.png", "truncated"]]}
    facts = load_facts(make_run(tmp_path / "run", KNOWN, data=data))
    found = frame.notes(facts)
    assert found[0] == "grey images were made RGB"
    assert found[1] == "Unreadable and left out of every figure: 1 image."
    assert "too narrow" in found[2]


@pytest.mark.parametrize("name", ["verdict.json", "study.yaml", "tables/classification.parquet", "media/gallery-0.png"])
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run", KNOWN)
    (run / name).unlink()
    with pytest.raises(InputError, match=re.escape(Path(name).name)):
        render(run)


def test_a_picture_outside_the_run_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", KNOWN)
    gallery = pd.DataFrame([{"shift": "none", "level": 0, "media": "../../secret.png", "images": 1}])
    RunFolder(run).write_table(table_specs.GALLERY.name, gallery)
    picture(tmp_path / "secret.png", 1, 0)
    with pytest.raises(InputError, match="outside the run"):
        render(run)


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two functions on small random images."""
    folder = tmp_path_factory.mktemp("real")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (24, 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "d.npz", images=images, labels=np.arange(24) % 3, class_names=np.array(["a", "b", "c"]))

    def by_brightness(batch: np.ndarray) -> np.ndarray:
        logits = np.stack([batch[..., channel].mean(axis=(1, 2)) for channel in range(3)], axis=1) / 10
        return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))

    def always_first(batch: np.ndarray) -> np.ndarray:
        return np.tile([[0.6, 0.3, 0.1]], (len(batch), 1))

    models = {
        "bright": load_model(by_brightness, name="bright", num_classes=3, version="1"),
        "first": load_model(always_first, name="first", num_classes=3, version="2"),
    }
    content = {
        "data": {"test": str(folder / "d.npz")},
        "models": dict.fromkeys(models, "unused.onnx"),
        "protocols": {"classification": {"shifts": ["fog", "noise"], "levels": [1, 5]}},
        "criteria": [{"id": "R", "metric": "accuracy", "at_least": 0.9}],
    }
    study = parse_study(content, "test")
    return api.execute(
        api.prepare(study, models=models, accept_chance=True), folder / "run", workers=1, progress=api.no_progress
    ).path


def test_a_real_run_has_the_schema_that_the_report_reads(real_run: Path) -> None:
    facts = load_facts(real_run)
    table = pd.read_parquet(real_run / "tables" / "classification.parquet")
    row = table[
        (table.model == "first") & (table["shift"] == "fog") & (table.level == 5) & (table.metric == "accuracy")
    ]
    assert facts.cell("first", Condition("fog", 5), "accuracy").value == row["value"].item() == pytest.approx(1 / 3)
    assert facts.models == ("bright", "first")
    assert set(facts.shifts) == {"fog", "noise"}
    assert facts.mistakes["first"]
    assert len(facts.gallery) == 5
    answers = pd.read_parquet(real_run / "tables" / "classification_gallery_answers.parquet")
    assert len(answers) == 2 * 5 * 3, "models, strips, and an image of each class"
    first = answers[answers.model == "first"]
    assert set(first.prediction) == {"a"}
    assert first.confidence.to_numpy() == pytest.approx(0.6)
    for asked in facts.record.cases.values():
        if asked.system == "bright":
            where = (answers.model == "bright") & (answers["shift"] == asked.stimulus.name)
            own = answers[where & (answers.level == asked.stimulus.level)]
            parts = [pd.read_parquet(part) for part in (real_run / asked.folder).glob("*.parquet")]
            stored = pd.concat(parts).set_index("id").loc[own.id]
            probabilities = np.stack(stored["probabilities"].to_list())
            assert own.prediction.tolist() == ["abc"[best] for best in probabilities.argmax(axis=1)]
            assert own.confidence.to_numpy() == pytest.approx(probabilities.max(axis=1))
            assert own.label.tolist() == ["a", "b", "c"]
    assert facts.status == "fail"
    text = Elements((real_run / "report.html").read_text()).text
    assert "33.3 %" in text


@pytest.mark.usefixtures("plotly_itself")
def test_the_report_that_a_run_wrote_is_written_again_the_same(real_run: Path) -> None:
    written = (real_run / "report.html").read_bytes()
    assert api.Run(real_run).report().read_bytes() == written


SAVE = """<script>
URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text)); return "#saved"; };
HTMLAnchorElement.prototype.click = function () { names.push(this.download); };
const saved = [], names = [];
document.querySelector("#summary tbody").insertAdjacentHTML("beforeend", '<tr><td colspan="4">all columns</td></tr>');
document.querySelectorAll("button.save").forEach((button) => button.click());
setTimeout(() => { document.body.dataset.saved = JSON.stringify([names, saved]); }, 2000);
</script></body>"""


def test_every_table_is_saved_as_csv_that_no_spreadsheet_runs(tmp_path: Path) -> None:
    classes = ["=1+1", "@sum(a1)", "-2+3", "'=x", HOSTILE, 'a "quoted", name', "-0.5", "plain"]
    accuracy = accuracy_of(["v3", "+cmd|x"], ["fog"], [1, 2])
    page = tmp_path / "page.html"
    html = render(make_run(tmp_path / "run", accuracy, classes=classes, images=400))
    page.write_text(re.sub("<meta http-equiv[^>]*>", "", html).replace("</body>", SAVE))
    (content,) = [
        attrs["data-saved"]
        for _, attrs in Elements(in_browser(page, tmp_path / "p").stdout).tags
        if "data-saved" in attrs
    ]
    names, saved = json.loads(content or "")
    assert len(names) == len(set(names)) == len(saved) == html.count("<thead>")
    assert all(re.fullmatch(r"[\w-]+\.csv", name) for name in names)
    tables = dict(zip(names, ([*csv.reader(io.StringIO(text.lstrip("\ufeff")))] for text in saved), strict=True))
    assert all(len(row) == len(table[0]) for table in tables.values() for row in table)
    for cell in (cell for table in tables.values() for row in table for cell in row):
        assert cell == escape_cell(unescape_cell(cell))
    recall = tables["classes-and-confusions-v3-recall-per-class.csv"]
    assert {row[0] for row in recall[1:]} == {escape_cell(name) for name in classes}
    assert recall[0] == ["Class", "Images", "Objects", "Undisturbed", "Average under shifts", "Lowest"]
    assert tables["summary.csv"][2][0] == "'+cmd|x"
    assert tables["summary.csv"][3] == ["all columns", "", "", ""]


MEASURE = """<script>addEventListener("load", () => setTimeout(() => {
  const end = document.querySelector(".hardest").getBoundingClientRect().bottom;
  parent.postMessage([innerWidth, document.documentElement.scrollWidth, end], "*");
}, 9000));</script></body>"""
COLLECT = "<script>onmessage = (event) => document.body.append(` found:${event.data};`)</script>"


@pytest.mark.slow
@pytest.mark.usefixtures("plotly_itself")
@pytest.mark.parametrize(("models", "name"), [(1, "v"), (2, "v"), (5, "v"), (2, HOSTILE * 4)])
def test_the_first_screen_fits_and_no_width_scrolls(tmp_path: Path, models: int, name: str) -> None:
    accuracy = accuracy_of([f"{name}{place}" for place in range(models)], STANDARD_SHIFTS[:6], [1, 2, 3, 4, 5])
    run = make_run(tmp_path / "run", accuracy, classes=[f"{name} {place}" for place in range(43)], images=430)
    (tmp_path / "page.html").write_text(re.sub("<meta http-equiv[^>]*>", "", render(run)).replace("</body>", MEASURE))
    screens = {390: 844, 1280: 900, 1920: 1080}
    frames = [f'<iframe src="page.html" width="{w}" height="{h}" frameborder="0"></iframe>' for w, h in screens.items()]
    (tmp_path / "frame.html").write_text(f"<body>{COLLECT}{''.join(frames)}</body>")
    done = in_browser(tmp_path / "frame.html", tmp_path / "profile", "2000,3000")
    found = re.findall(r"found:(\d+),(\d+),([0-9.]+);", done.stdout)
    assert {int(width) for width, _, _ in found} == set(screens)
    for width, needed, end in found:
        assert int(needed) <= int(width)
        assert int(width) == 390 or float(end) <= screens[int(width)]


@pytest.mark.slow
@pytest.mark.usefixtures("plotly_itself")
def test_a_browser_draws_every_chart_without_a_complaint(tmp_path: Path) -> None:
    accuracy = accuracy_of(["v3", HOSTILE], STANDARD_SHIFTS, [1, 2, 3, 4, 5])
    run = make_run(tmp_path / "run", accuracy, failed={(HOSTILE, "fog", 2): "failed"}, classes=[HOSTILE, "b", "c"])
    page = tmp_path / "report.html"
    page.write_text(render(run))
    done = in_browser(page, tmp_path / "profile")
    drawn = Elements(done.stdout)
    charts = [attrs for _, attrs in drawn.tags if "chart" in (attrs.get("class") or "").split()]
    assert len(charts) == len(chart_data(page.read_text()))
    assert all(attrs.get("data-drawn") for attrs in charts)
    assert done.stdout.count("main-svg") >= len(charts)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
