"""A metric of one's own: defined in one file, named in a study, and then in tables, criteria, report and comparison."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import roadworthy as rw
from roadworthy.cli import app
from roadworthy.core.errors import InputError
from roadworthy.listing import listing
from roadworthy.metrics import METRICS, Answers, Metric, find_metric, mean_metric, metric
from roadworthy.protocols import PROTOCOLS, find_protocol
from roadworthy.statistics import GroupBootstrap
from tiny import import_text, study

SETTINGS = {"shifts": ["fog"], "levels": [5]}


@mean_metric(label="Sure mistakes", higher_is_better=False, percent=True, proportion=True)
def sure_mistakes(answers: Answers) -> Any:
    """Share of images that are answered wrong with a confidence above 0.1.

    Only the first paragraph is what the report says.
    """
    return (~answers.correct & (answers.confidence > 0.1)).astype(float)


@metric(label="Odd error", sentence="An error rate that is resampled.", higher_is_better=False)
def odd_error(answers: Answers, weights: Any) -> Any:
    return weights @ ~answers.correct / weights.sum(axis=1)


@mean_metric(label="Entropy", sentence="Unbounded.", higher_is_better=None, range=(0.0, math.inf))
def surprise(answers: Answers) -> Any:
    return -np.log(answers.confidence)


@mean_metric(label="Broken", sentence="It raises.", higher_is_better=True)
def broken_metric(answers: Answers) -> Any:
    raise ZeroDivisionError("no images\nat all")


@metric(label="Nothing", sentence="It is NaN.", higher_is_better=True)
def nan_metric(answers: Answers, weights: Any) -> Any:
    return np.full(len(weights), np.nan)


@metric(label="Too large", sentence="It leaves its range.", higher_is_better=True)
def too_large(answers: Answers, weights: Any) -> Any:
    return np.full(len(weights), 1.7)


@metric(label="Unweighted", sentence="It ignores the weights.", higher_is_better=True)
def unweighted(answers: Answers, weights: Any) -> Any:
    return answers.correct.mean(keepdims=True)


OWN = ["sure_mistakes", "odd_error", "surprise"]
BAD = ["broken_metric", "nan_metric", "too_large", "unweighted"]


def run(folder: Path, name: str, settings: dict[str, Any], **changes: Any) -> rw.Run:
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(study(folder, n=255, protocols={"classification": settings}, **changes)))
    return rw.run(file, out=folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own")


@pytest.fixture(scope="module")
def own(folder: Path) -> rw.Run:
    criteria = [
        {"id": "O", "metric": "sure_mistakes", "where": {"shift": "fog"}, "at_most": 0.99},
        {"id": "D", "metric": "odd_error_drop", "at_most": 0.0001},
        {"id": "B", "metric": "broken_metric", "at_least": 0.5},
        {"id": "W", "metric": "sure_mistakes", "at_least": 0.0001},
    ]
    return run(folder, "own", SETTINGS | {"metrics": [*OWN, *BAD]}, criteria=criteria)


@pytest.fixture(scope="module")
def plain(folder: Path) -> rw.Run:
    return run(folder, "plain", SETTINGS)


def rows(done: rw.Run, level: int = 5) -> Any:
    table = done.tables["classification"]
    return table[table["level"] == level].set_index("metric")


def test_a_metric_that_a_study_names_has_rows_with_bounds_and_drops(own: rw.Run) -> None:
    table = rows(own)
    mistakes, error, surprised = (table.loc[name] for name in OWN)
    assert [row["method"] for row in (mistakes, error, surprised)] == ["phantom group", *["group bootstrap"] * 2]
    assert mistakes["lo"] < mistakes["value"] < mistakes["hi"]
    assert error["value"] == pytest.approx(1 - table.loc["accuracy", "value"])
    assert (table.loc["odd_error_drop", "value"], table.loc["sure_mistakes_drop", "method"]) == (
        pytest.approx(table.loc["accuracy_drop", "value"]),
        "paired phantom group",
    )
    assert "surprise_drop" not in table.index, "of a metric without a direction there is no drop"
    assert set(own.tables["classification_overall"]["metric"]) >= set(OWN)
    assert own.verify() == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken_metric", "the metric broken_metric raised ZeroDivisionError: no images at all"),
        ("nan_metric", "the metric nan_metric gives no number here"),
        ("too_large", "the metric too_large gave 1.7, outside its range 0 to 1"),
        ("unweighted", "the metric unweighted must give 1000 numbers, one per row of weights, but gave 1 number"),
    ],
)
def test_a_metric_that_goes_wrong_has_a_sentence_and_the_run_goes_on(own: rw.Run, name: str, reason: str) -> None:
    row = rows(own).loc[name]
    assert row["reason"] == reason
    assert math.isnan(row["lo"])
    assert math.isnan(row["value"]) == (name != "unweighted")


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ("sure", "text"),
        (["0.5", "1", "0"], "text"),
        ([0.5, 1.0], "2 numbers"),
        (0.5, "a single number"),
        (None, "None"),
        (np.ones((3, 2)), "an array (3, 2)"),
        ({"a": 1}, "something else: dict"),
    ],
)
def test_what_is_not_a_number_per_image_is_named_without_words_of_numpy(given: Any, form: str) -> None:
    wrong = Metric("wrong", label="Wrong", sentence="", higher_is_better=True, of_images=lambda answers: given)
    answers = Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], [0, 0, 1])
    for weights in (None, np.ones((4, 3))):
        measured = wrong.measure(answers, weights)
        assert measured.reason == f"the metric wrong must give 3 numbers, one per image, but gave {form}"
        assert np.isnan(measured.values).all()


def test_criteria_speak_of_it(own: rw.Run) -> None:
    verdict = {finding.criterion.id: finding for finding in own.verdict().findings}
    assert [verdict[name].status for name in "ODB"] == ["pass", "fail", "inconclusive"]
    assert "raised ZeroDivisionError" in verdict["B"].sentence()
    assert "since a lower sure_mistakes is better: did you mean at_most?" in verdict["W"].remark
    with pytest.raises(InputError, match="surprise_drop does not exist, since neither more nor less of surprise is"):
        own.verdict([{"id": "X", "metric": "surprise_drop", "at_most": 2}])
    with pytest.raises(InputError, match="which is 0 to 1"):
        own.verdict([{"id": "X", "metric": "odd_error", "at_most": 2}])


def test_a_metric_that_is_only_registered_changes_nothing(plain: rw.Run, own: rw.Run) -> None:
    names = set(plain.tables["classification"]["metric"])
    assert not names & {*OWN, *BAD}
    kept = own.tables["classification"].query("metric in @names").reset_index(drop=True)
    assert kept.equals(plain.tables["classification"])
    assert "metrics" not in json.loads((plain.path / "run.json").read_text())["protocols"]["classification"]["settings"]
    with pytest.raises(
        InputError, match=r"unknown metric 'odd_error'.* Ask for it with `metrics='odd_error'` \(under class"
    ):
        plain.verdict([{"id": "X", "metric": "odd_error", "at_most": 1}])


def test_the_report_offers_it_with_its_words(own: rw.Run, plain: rw.Run) -> None:
    page = own.report().read_text()
    sentence = "Share of images that are answered wrong with a confidence above 0.1."
    assert sentence in page
    assert page.count("Sure mistakes") > 5
    assert "Rise of odd error" in page
    assert sentence not in plain.report().read_text()
    assert page.count(" selected>Odd error</option>") == 2, "the failed criterion is on it"
    assert page.count(" selected>Rise of odd error</option>") == 1
    assert " selected>" not in (plain.path / "report.html").read_text()
    assert f"{len(own.folder.hashes())}, each with its SHA-256 in run.json or in a manifest" in page
    broken = "Metric broken_metric has no value in any of 2 conditions: the metric broken_metric raised ZeroDivision"
    assert broken in page.partition('<div class="alarm"')[2]
    assert [line for line in own.headline() if line.startswith(broken)]
    assert not [line for line in plain.headline() if "no value" in line]


def test_runs_that_have_it_are_compared_by_it(own: rw.Run, plain: rw.Run) -> None:
    with pytest.MonkeyPatch.context() as patch:  # as if another model had answered the same
        for module in ("compared", "classification.tables"):
            patch.setattr(f"roadworthy.protocols.{module}.same_cases", lambda before, after: False)
        table = rw.compare([own.path, own.path], metrics=["sure_mistakes", "odd_error", "broken_metric"])
    by_metric = table.set_index(["metric", "level"])
    assert by_metric.loc[("sure_mistakes", 5), "method"].startswith("sign flips and interval")
    assert by_metric.loc[("odd_error", 5), "method"] == "paired group bootstrap"
    assert "raised ZeroDivisionError" in by_metric.loc[("broken_metric", 5), "reason"]
    with pytest.raises(InputError, match=r"^plain/tiny: odd_error was not measured there, so it cannot be compared"):
        rw.compare([own.path, plain.path], metrics=["odd_error"])
    with pytest.raises(InputError, match="by surprise: neither more nor less of it is better"):
        rw.compare([own.path, own.path], metrics=["surprise"])
    others = "sure_mistakes, odd_error, broken_metric, nan_metric, too_large, unweighted"
    last = CliRunner().invoke(app, ["compare", str(own.path), str(own.path)]).output.splitlines()[-1]
    assert last == f"these runs also have {others}: --metric sure_mistakes compares by it"
    assert "these runs also have" not in CliRunner().invoke(app, ["compare", str(own.path), str(plain.path)]).output
    with pytest.raises(InputError, match="did you mean 'odd_error'"):
        rw.compare([own.path, plain.path], metrics=["od_error"])


def test_an_unknown_name_is_an_error_that_names_the_nearest(folder: Path) -> None:
    with pytest.raises(InputError, match="unknown metric 'od_error': did you mean 'odd_error'"):
        run(folder, "unknown", SETTINGS | {"metrics": ["od_error"]})


def test_dependability_takes_it_too(folder: Path) -> None:
    settings = {"metrics": ["sure_mistakes", "broken_metric"], "transformers": ["rotation"], "k": 1}
    file = folder / "dependability.yaml"
    file.write_text(yaml.safe_dump(study(folder, n=42, protocols={"dependability": settings})))
    done = rw.run(file, out=folder / "dependability")
    table = done.tables["dependability"].set_index(["metric", "scope"])
    assert done.headline()[-1].startswith("Metric broken_metric has no value in any of 18 conditions: the metric")
    assert "Metric broken_metric has no value in any of 18 " in (done.path / "report.html").read_text()
    assert table.loc[("sure_mistakes", "all"), "lo"] < table.loc[("sure_mistakes", "all"), "hi"]
    assert "raised ZeroDivisionError" in table.loc[("broken_metric", "all"), "reason"]


def test_every_metric_says_all_that_is_asked_of_it() -> None:
    of_protocols = [one for name in PROTOCOLS for one in find_protocol(name).metrics]
    for one in (*map(METRICS.get, METRICS), *of_protocols):
        assert one.label, one.name
        assert one.sentence.endswith("."), one.name
        assert one.higher_is_better in (True, False, None)
        assert one.limits(3)[0] < one.limits(3)[1]
        assert find_metric(f"{one.name}_drop", [one]).drop_of is one


def test_a_name_can_mean_something_else_under_a_protocol() -> None:
    ood = find_metric("auroc", find_protocol("ood").metrics)
    assert "in-distribution image (the positive class)" in ood.sentence
    assert "correct answer (the positive class)" in METRICS.get("auroc").sentence
    lines = [line for name, line in listing("metrics") if name == "auroc"]
    assert dict(listing("metrics"))["odd_error"].startswith("Odd error (where a study names it): ")
    assert sorted(line.partition(":")[0] for line in lines) == [
        "AUROC (classification, localization)",
        "AUROC (monitoring)",
        "AUROC (od_test)",
        "AUROC (ood)",
    ]


def test_what_metrics_share_is_computed_once() -> None:
    calls = []

    def shared(answers: Answers, weights: Any) -> Any:
        calls.append(len(weights))
        return weights.sum(axis=1) * 0

    def made(name: str) -> Metric:
        return Metric(name, label=name, sentence="", higher_is_better=None, of_answers=lambda s: s, shares=shared)

    answers = Answers.from_probabilities([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    GroupBootstrap(["a", "b"], resamples=3).distributions([made("one"), made("other")], answers)
    assert calls == [3]


def test_a_file_that_is_imported_again_defines_its_metric_again(tmp_path: Path) -> None:
    text = """
from roadworthy.metrics import mean_metric

@mean_metric(label="Twice", higher_is_better=True)
def defined_twice(answers):
    'The {} definition.'
    return answers.confidence
"""
    for word in ("first", "second"):
        import_text(text.format(word), tmp_path / "twice.py")
        assert METRICS.get("defined_twice").sentence == f"The {word} definition."


@pytest.mark.parametrize(
    ("details", "complaint"),
    [
        ({"name": "My metric"}, "lower-case"),
        ({"name": "accuracy_drop"}, "derived"),
        ({"name": "accuracy"}, "already a metric"),
        ({"name": "fpr95_in"}, "cannot be called 'fpr95_in', since the protocol od_test has a metric of this name"),
        ({"name": "scenario_coverage"}, "the protocol dependability has"),
        ({"name": "upside_down", "range": (1.0, 0.0)}, "from low to high"),
        ({"name": "endless", "range": (0.0, math.inf), "mean_over_objects": True}, "finite range"),
    ],
)
def test_a_metric_that_cannot_be_one_is_refused(details: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        mean_metric(label="X", sentence="X.", higher_is_better=True, **details)(lambda answers: answers.confidence)


def test_a_metric_has_one_name() -> None:
    alone = METRICS.get("accuracy")
    with pytest.raises(ValueError, match="'accuracy' cannot be registered under another name, 'share_of_right'"):
        METRICS.register("share_of_right")(alone)
    with pytest.raises(ValueError, match="belong to derived metrics"):
        METRICS.register("air_drop")(replace(alone, name="air_drop"))
