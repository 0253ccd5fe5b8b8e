"""Comparison of models on the same images: an injected regression is found, chance alone is not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import roadworthy as rw
from roadworthy.api import compare_runs, execute, no_progress, prepare
from roadworthy.cli import app
from roadworthy.core.errors import InputError
from roadworthy.core.types import Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers, Metric, accuracy, ece
from roadworthy.protocols import PROTOCOLS, base, comparison
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.classification import Classification, tables
from roadworthy.protocols.comparison import (
    Compared,
    check_question,
    choose_pairs,
    compare,
    comparison_lines,
    load_systems,
)
from roadworthy.report import comparison as page
from roadworthy.report import render_comparison
from roadworthy.statistics.paired import PairedChange
from roadworthy.study import parse_study
from tiny import save_onnx, study

SHIFTS = tuple(f"shift{place}" for place in range(10))


def system(
    label: str,
    right: dict[str, np.ndarray],
    groups: Sequence[str] | None = None,
    sure: float = 0.8,
    code: str = "",
) -> Compared:
    """A model that is right where it says so, always equally sure."""

    def readouts(hits: np.ndarray) -> Readouts:
        probability = np.where(hits, sure, 1 - sure)
        ids = tuple(f"image{row}" for row in range(len(hits)))
        answers = Answers.from_probabilities(np.stack([probability, 1 - probability], 1), np.zeros(len(hits), int))
        return Readouts(ids, tuple(groups or ids), answers)

    cases = [
        StoredCase(label, Stimulus("data", shift, 1, code=code), load=partial(readouts, np.asarray(hits)))
        for shift, hits in right.items()
    ]
    evidence = Classification().evidence(base.Part("", cases, None, ["a", "b"]), seed=0)
    return Compared(label, label, {"classification": evidence}, {"classification": cases})


def flips(rng: np.random.Generator, chance: float, n: int = 300) -> dict[str, np.ndarray]:
    return {shift: rng.random(n) < chance for shift in SHIFTS}


def test_a_regression_in_one_shift_is_found_and_comes_first() -> None:
    rng = np.random.default_rng(0)
    before = flips(rng, 0.9)
    after = dict(before)
    after["shift7"] = before["shift7"] & (rng.random(300) < 0.85)
    table = compare([(system("old", before), system("new", after))], ["accuracy"])
    assert table["result"].tolist() == ["regression"] + ["no clear difference"] * 9
    first = table.iloc[0]
    assert (first["condition"], first["baseline"], first["model"]) == ("shift7", "old", "new")
    assert first["change"] == pytest.approx(after["shift7"].mean() - before["shift7"].mean())
    assert first["lo"] < first["change"] < first["hi"] < 0
    back = compare([(system("new", after), system("old", before))], ["accuracy"])
    assert back.iloc[0]["result"] == "improvement"


def test_chance_alone_is_no_regression_more_often_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESAMPLES", 40)
    alarms = 0
    for repeat in range(20):
        rng = np.random.default_rng(repeat)
        skill = {shift: rng.random(300) for shift in SHIFTS}
        one, other = ({s: rng.random(300) < 0.4 + 0.6 * skill[s] for s in SHIFTS} for _ in range(2))
        table = compare([(system("a", one), system("b", other))], ["accuracy"])
        alarms += bool((table["p_holm"] < 0.05).any())
    assert alarms <= 4, "more than 4 of 20 has a chance under 0.3 % where the true rate is 5 %"


def test_frames_of_one_object_are_one_piece_of_evidence() -> None:
    hits = np.zeros(300, bool)
    fewer = {"s": hits.copy()}
    more = {"s": np.arange(300) < 100}
    objects = [f"object{row // 100}" for row in range(300)]
    images = compare([(system("a", fewer), system("b", more))], ["accuracy"]).iloc[0]
    grouped = compare([(system("a", fewer, objects), system("b", more, objects))], ["accuracy"]).iloc[0]
    assert images["result"] == "improvement"
    assert grouped["result"] == "no clear difference"
    assert (images["groups"], grouped["groups"]) == (300, 3)


def test_what_only_one_was_shown_is_said() -> None:
    rng = np.random.default_rng(1)
    table = compare(
        [(system("a", {"s": rng.random(60) < 0.5}), system("b", {"t": rng.random(60) < 0.5}))], ["accuracy"]
    )
    assert dict(zip(table["condition"], table["reason"], strict=True)) == {
        "s": "b was not shown it",
        "t": "a was not shown it",
    }
    assert set(table["result"]) == {"not compared"}


def test_a_shift_that_was_edited_in_between_is_not_compared() -> None:
    hits = np.random.default_rng(1).random(60) < 0.5
    table = compare([(system("a", {"s": hits}), system("b", {"s": ~hits}, code="edited"))], ["accuracy"])
    assert table[["result", "reason"]].to_numpy().tolist() == [
        ["not compared", "shown with other parameters or other code"]
    ]


def test_too_small_to_matter() -> None:
    n = 5000
    hits = np.ones(n, bool)
    a, b = {"s": hits}, {"s": np.arange(n) >= 20}
    loose = compare([(system("a", a), system("b", b))], ["accuracy"], margin=0.005)
    assert loose.iloc[0]["p_holm"] < 0.001
    assert loose.iloc[0]["result"] == "clear, but below the margin"
    assert compare([(system("a", a), system("b", b))], ["accuracy"], margin=0.001).iloc[0]["result"] == "regression"


def test_other_metrics_are_paired_by_object() -> None:
    rng = np.random.default_rng(3)
    hits = {"s": rng.random(400) < 0.8}
    table = compare([(system("a", hits), system("b", hits, sure=0.95))]).set_index("metric")
    assert table.loc["accuracy", "change"] == 0
    assert table.loc["accuracy", "p"] == 1
    worse_by = table.loc["brier", "after"] - table.loc["brier", "before"]
    assert table.loc["brier", "change"] == pytest.approx(worse_by)
    assert table.loc["ece", "result"] == "regression"
    assert math.isnan(table.loc["auroc", "p"]) or table.loc["auroc", "result"] != "regression"


def test_bad_questions() -> None:
    hits = {"s": np.ones(60, bool)}
    pair = [(system("a", hits), system("b", hits))]
    with pytest.raises(InputError, match="did you mean 'accuracy'"):
        compare(pair, ["acuracy"])
    with pytest.raises(InputError, match="alpha"):
        compare(pair, alpha=1.5)
    with pytest.raises(InputError, match="margin"):
        compare(pair, margin=math.nan)
    with pytest.raises(InputError, match="other images"):
        compare([(system("a", hits), system("b", {"s": np.ones(61, bool)}))])


def test_improvements_start_with_the_largest_gain() -> None:
    rng = np.random.default_rng(0)
    after = {shift: np.ones(300, bool) for shift in SHIFTS[:3]}
    before = {shift: rng.random(300) < chance for shift, chance in zip(after, (0.8, 0.6, 0.9), strict=True)}
    table = compare([(system("old", before), system("new", after))], ["accuracy"])
    assert table["condition"].tolist() == ["shift1", "shift0", "shift2"]


def runs(folder: Path, **second: Any) -> list[Path]:
    paths = []
    for name, changes in (("old", {}), ("new", second)):
        prepared = prepare(parse_study(study(folder, **changes), "study"), accept_chance=True)
        paths.append(execute(prepared, folder / name, workers=2, progress=no_progress).path)
    return paths


def test_two_runs_of_the_same_model_with_other_seeds(tmp_path: Path) -> None:
    table = compare_runs(runs(tmp_path, seed=5))
    assert len(table) == 7 * 4
    assert not (table["result"] == "regression").any()
    assert (table.loc[table["condition"] == "none", "change"].abs() == 0).all()


def test_a_gate_is_not_passed_where_nothing_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    hits = np.random.default_rng(1).random(60) < 0.5
    ours, theirs = system("a", {"s": hits, "t": hits}), system("b", {"s": ~hits, "t": hits}, code="edited")
    table = compare([(ours, theirs)], ["accuracy"])
    assert set(table["result"]) == {"not compared"}
    monkeypatch.setattr("roadworthy.api.compare_runs", lambda *_, **__: table)
    told = CliRunner().invoke(app, ["compare", "old", "new", "--fail-on", "regression"])
    assert told.exit_code == 3, told.output
    assert "inconclusive: nothing was compared" in told.output
    assert CliRunner().invoke(app, ["compare", "old", "new"]).exit_code == 0, "nothing was to be gated"
    table.loc[0, "result"] = "no clear difference"
    assert CliRunner().invoke(app, ["compare", "old", "new", "--fail-on", "regression"]).exit_code == 0


def test_the_command_gates_a_release(tmp_path: Path) -> None:
    save_onnx(tmp_path / "broken.onnx", gain=-1.0)
    paths = runs(tmp_path, models={"tiny": {"onnx": str(tmp_path / "broken.onnx")}})
    asked = ["compare", *map(str, paths), "--metric", "accuracy", "--out", str(tmp_path / "rows.csv")]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert "regression   new/tiny against old/tiny: accuracy none" in told.output
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 7
    assert CliRunner().invoke(app, [*asked, "--fail-on", "regression"]).exit_code == 1
    assert CliRunner().invoke(app, ["compare", str(paths[0]), str(paths[0]), "--fail-on", "regression"]).exit_code == 0
    with pytest.raises(InputError, match="holds one model only"):
        compare_runs([paths[0]])


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs on the same images: `many` with three models and outliers, `later` with one more model."""
    folder = tmp_path_factory.mktemp("compared")
    changes = {"tiny": {}, "blurred": {"blur": 1.0}, "broken": {"gain": -1.0}}
    for name, change in changes.items():
        save_onnx(folder / f"{name}.onnx", **change)
    models = {name: {"onnx": str(folder / f"{name}.onnx")} for name in changes}
    shifts = {"shifts": ["noise", "fog", "rotation"], "levels": [1, 5]}
    outliers = {"sets": ["uniform_noise"], "transformed": []}
    studies = {
        "many": {"models": models, "protocols": {"classification": shifts, "ood": outliers}},
        "later": {"models": {"candidate": models["broken"]}},
    }
    for name, study_changes in studies.items():
        prepared = prepare(parse_study(study(folder, n=260, **study_changes), "study"), accept_chance=True)
        execute(prepared, folder / name, workers=2, progress=no_progress)
    return folder


def asked(*words: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, words)])


CHANGES = ("regression  ", "improvement ", "below margin")


def change_lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(CHANGES)]


def test_a_clear_change_below_the_margin_has_a_name_of_its_own(tested: Path, tmp_path: Path) -> None:
    question = [tested / "many", "--models", "tiny", "broken", "--metric", "accuracy", "--margin", "0.99"]
    files = ["--out", tmp_path / "rows.csv", "--html", tmp_path / "page.html", "--fail-on", "regression"]
    answer = asked(*question, *files)
    assert answer.exit_code == 0, answer.output
    results = pd.read_csv(tmp_path / "rows.csv")["result"].value_counts().to_dict()
    below = results.pop("clear, but below the margin")
    assert below >= 5
    assert results == {"no clear difference": 7 - below}
    assert answer.output.startswith(f"0 regressions; 0 improvements; {below} clear, but below the margin; ")
    assert len(change_lines(answer.output)) == below
    page = (tmp_path / "page.html").read_text()
    assert "no regression" in page
    assert '<h2 id="below-margin-title">Clear, but below the margin</h2>' in page
    assert "The margin, 0.99, is the least change that matters" in page
    assert asked(*question[:-1], "0.001", "--fail-on", "regression").exit_code == 1


def test_p_values_are_as_coarse_as_their_resamples_everywhere(tested: Path, tmp_path: Path) -> None:
    files = ["--all", "--out", tmp_path / "rows.csv", "--html", tmp_path / "page.html"]
    answer = asked(tested / "many", "--models", "tiny", "broken", "--metric", "ece", *files)
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert set(rows["method"]) == {"paired group bootstrap"}
    assert rows["p"].min() == pytest.approx(1 / 1001)
    assert rows["p_holm"].min() == pytest.approx(7 / 1001)
    assert "p .007" in answer.output
    page = (tmp_path / "page.html").read_text()
    assert "&lt;\u00a0.001" in page
    assert "0.0001" not in page.split('id="figures"')[0]
    exact = asked(tested / "many", "--models", "tiny", "broken", "--metric", "accuracy")
    assert change_lines(exact.output)[0].endswith("p < .001")


def test_a_strict_question_draws_more_resamples_or_is_refused(tested: Path, tmp_path: Path) -> None:
    question = [tested / "many", "--models", "tiny", "broken", "--metric", "ece", "--out", tmp_path / "rows.csv"]
    assert asked(*question, "--alpha", "0.002").exit_code == 0
    strict = pd.read_csv(tmp_path / "rows.csv")
    assert strict["p_holm"].min() == pytest.approx(7 / 7001)
    assert strict["result"].isin(["regression", "improvement"]).any()
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(InputError, match="alpha 1e-05 over 7 conditions takes 1400000 resamples for ece"):
        rw.compare_runs([tested / "many"], models=("tiny", "broken"), metrics=["ece"], alpha=1e-5)
    refused = asked(*question, "--alpha", "0.00001")
    assert isinstance(refused.exception, InputError)
    assert not (tmp_path / "rows.csv").exists()


def test_text_starts_with_accuracy_and_lists_ten_changes(tested: Path) -> None:
    question = [tested / "many", "--models", "tiny", "broken"]
    answer, whole = asked(*question), asked(*question, "--all")
    lines, all_lines = change_lines(answer.output), change_lines(whole.output)
    assert len(lines) == 10
    assert lines == all_lines[:10]
    assert len(all_lines) > 10
    assert f"{len(all_lines) - 10} more changes: --all lists them here, --out FILE writes every row" in answer.output
    assert "more changes" not in whole.output
    count = sum("broken against many/tiny: accuracy" in line for line in all_lines)
    assert answer.output.splitlines()[1].startswith(f"  accuracy: {count} regressions")
    assert all("broken against many/tiny: accuracy" in line for line in lines[:count])


def test_metrics_are_never_ranked_on_one_scale(tested: Path) -> None:
    table = rw.compare_runs([tested / "many"], models=("tiny", "broken"))
    for _, rows in table.groupby("result"):
        families = list(zip(rows["protocol"], rows["metric"], strict=True))
        blocks = [family for place, family in enumerate(families) if place == 0 or families[place - 1] != family]
        assert len(blocks) == len(set(blocks))
    worse = table[table["result"] == "regression"]
    assert worse["metric"].iloc[0] == "accuracy"
    sizes = worse.groupby("metric")["change"].apply(lambda change: change.abs().max())
    assert sizes.drop("accuracy").max() > sizes["accuracy"] / 2, "some other metric must have changed much, too"
    assert (np.diff(worse.loc[worse["metric"] == "accuracy", "change"]) >= 0).all()


def test_any_two_models_of_one_run_or_of_two_can_be_compared(tested: Path) -> None:
    def pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
        return sorted(set(zip(table["baseline"], table["model"], strict=True)))

    many, later = tested / "many", tested / "later"
    one = rw.compare_runs([many], models=("broken", "blurred"), metrics=["accuracy"])
    assert pairs(one) == [("many/broken", "many/blurred")]
    assert (one["result"] == "improvement").any()
    two = rw.compare_runs([many, later], models=("broken", "candidate"), metrics=["accuracy"])
    assert pairs(two) == [("many/broken", "later/candidate")]
    assert (two["change"] == 0).all()
    assert "blurred against many/broken: accuracy" in asked(many, "--models", "broken", "blurred").output
    everything = rw.compare_runs([many], metrics=["accuracy"])
    for single in (many, str(many), rw.open_run(many)):
        pd.testing.assert_frame_equal(rw.compare(single, metrics=["accuracy"]), everything)
    assert pairs(everything) == [("many/tiny", "many/blurred"), ("many/tiny", "many/broken")]


@pytest.mark.parametrize(
    ("runs", "models", "message"),
    [
        (["many"], ["tiny", "brokn"], "many: unknown model 'brokn': did you mean 'broken'?"),
        (["many"], ["tyny", "broken"], "many: unknown model 'tyny': did you mean 'tiny'?"),
        (["many", "later"], ["tiny", "candidat"], "later: unknown model 'candidat': did you mean 'candidate'?"),
        (["many", "later"], ["candidate", "tiny"], "many: unknown model 'candidate'"),
        (["many"], ["tiny", "tiny"], "would be compared with itself"),
        (["many", "later"], [], "candidate of .*later has no counterpart in .*many.*name the two with `models=`"),
        (["many"], ["tiny"], "two models are compared"),
    ],
)
def test_models_that_cannot_be_compared(tested: Path, runs: list[str], models: list[str], message: str) -> None:
    paths = [tested / run for run in runs]
    with pytest.raises(InputError, match=message):
        rw.compare_runs(paths, models=models or None)
    answer = asked(*paths, *(["--models", *models] if models else []))
    assert answer.exit_code != 0
    assert isinstance(answer.exception, InputError) or answer.exit_code == 2


def test_only_the_metrics_asked_for_are_compared(tested: Path) -> None:
    def metrics(*names: str) -> list[tuple[str, str]]:
        table = rw.compare_runs([tested / "many"], models=("tiny", "broken"), metrics=list(names))
        return sorted(set(zip(table["protocol"], table["metric"], strict=True)))

    assert metrics("accuracy") == [("classification", "accuracy")]
    assert metrics("fpr95_in") == [("ood", "fpr95_in")]
    assert metrics("fpr95_out", "fpr95_right") == [("classification", "fpr95_right"), ("ood", "fpr95_out")]
    assert metrics("auroc", "auroc") == [("classification", "auroc"), ("ood", "auroc")]
    with pytest.raises(InputError, match="later/candidate: fpr95_in was not measured there"):
        rw.compare_runs([tested / "many", tested / "later"], models=("tiny", "candidate"), metrics=["fpr95_in"])


class Crossings(base.Evidence):
    """What a protocol says that compares two metrics of its own: one gate is better, one cannot be paired."""

    def __init__(self, resamples: int | None) -> None:
        self.resamples = resamples

    def compare(
        self, other: base.Evidence, before: Compared, after: Compared, metrics: Sequence[str]
    ) -> Iterator[PairedChange]:
        assert isinstance(other, Crossings)
        for metric in metrics:
            yield PairedChange("gate", 0, metric, 0.5, 0.75, 0.25, 0.2, 0.3, 0.001, 80, 80, "by hand")
            yield PairedChange("bridge", 0, metric, reason=f"{after} was not shown it after {before}")


Crossings.__abstractmethods__ = frozenset()


class Crossing(Classification):
    name, is_default = "crossing", False
    compared, subject = ("accuracy",), "crossings"

    def comparable(self, settings: Any) -> tuple[Metric, ...]:
        return accuracy, ece

    def evidence(self, *_: Any, resamples: int | None = None, **__: Any) -> Any:
        return Crossings(resamples)


class Stopping(Crossing):
    name = "stopping"

    def comparable(self, settings: Any) -> tuple[Metric, ...]:
        return (Metric("stops", label="Stops", sentence="How often it stops.", higher_is_better=False),)


class Plain(Classification):
    name, is_default, compared = "plain", False, ()


@pytest.fixture
def crossing(monkeypatch: pytest.MonkeyPatch) -> tuple[Compared, Compared]:
    """Two systems under a protocol that says how it is compared, one that does not, and one that is not known here."""
    for protocol in (Crossing, Plain):
        monkeypatch.setitem(PROTOCOLS._members, protocol.name, protocol)
    names = ["crossing", "plain", "forgotten"]
    part = base.Part("", [StoredCase("net", Stimulus("data", "gate"))], None, ["a"])
    parts, settings = {name: [part] for name in names}, dict.fromkeys(names)
    choices = [((0, "net"), (1, "net"))]
    pair = load_systems(choices, ["old", "new"], [parts] * 2, [settings] * 2, ["ece"], alpha=0.001)[0]
    assert list(pair[0].evidence) == ["crossing"]
    return pair


def test_a_protocol_that_is_added_says_what_is_compared_and_how(crossing: tuple[Compared, Compared]) -> None:
    evidence = crossing[0].evidence["crossing"]
    assert isinstance(evidence, Crossings)
    assert evidence.resamples == 2000, "a bootstrap is told how often to draw"
    table = compare([crossing])
    assert table["condition"].tolist() == ["gate", "bridge", "all", "all"]
    assert table["result"].tolist() == ["improvement", *["not compared"] * 3]
    assert table["subject"].tolist() == ["crossings", "crossings", "plain", "forgotten"]
    assert table["reason"].tolist()[1:] == [
        "new/net was not shown it after old/net",
        "figures of the protocol plain are not compared",
        "figures of the protocol forgotten are not compared",
    ]
    assert set(compare([crossing], ["ece"])["metric"]) == {"ece"}
    lines = comparison_lines(table)
    assert "  accuracy (crossing): 1 improvement; 1 not compared" in lines
    assert table["metric"].tolist()[2:] == ["", ""], "no metric is invented for a protocol that offers no comparison"
    assert not any("plain" in line and "are not compared" not in line for line in lines)
    html = render_comparison(table, "t", 0.05, 0.001)
    assert "new/net against old/net, crossings</h3>" in html
    assert "<h3>Accuracy of crossings, 1 row</h3>" in html
    assert '<th scope="row">crossings gate</th>' in html
    assert '<th scope="row">protocol plain</th>' in html
    assert "new/net against old/net, plain</h3>" not in html


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("mean_confidence", "runs cannot be compared by mean_confidence: neither more nor less of it is better"),
        ("scenario_coverage", "the protocol dependability, which measures it, offers no comparison"),
        ("expected_cost", "the protocol od_test, which measures it, compares runs by other metrics only"),
    ],
)
def test_why_a_known_metric_cannot_be_compared_is_said(metric: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_question([metric], 0.05, 0.0)


def test_a_metric_is_known_through_its_protocol_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown metric to compare by 'stops'"):
        check_question(["stops"], 0.05, 0.0)
    monkeypatch.setitem(PROTOCOLS._members, "stopping", Stopping)
    check_question(["stops"], 0.05, 0.0)


def test_comparing_names_no_protocol() -> None:
    named = rf"\b({'|'.join(PROTOCOLS)}|od_?test)\b"
    for module in (comparison, page):
        assert not re.search(named, Path(str(module.__file__)).read_text())


def test_a_system_of_one_of_several_sources_says_which() -> None:
    hits = {"s": np.arange(60) < 40}
    pair = [replace(system(label, hits), source="signs") for label in ("old", "new")]
    row = compare([(pair[0], pair[1])], ["accuracy"]).iloc[0]
    assert (row["baseline"], row["model"]) == ("old on signs", "new on signs")


@pytest.fixture(scope="module")
def sourced(tmp_path_factory: pytest.TempPathFactory) -> rw.Run:
    """A run of two sources: one with two models, one with a single model whose name holds a slash."""
    folder = tmp_path_factory.mktemp("sourced")
    whole = study(folder, protocols={"classification": {"shifts": ["fog"], "levels": [5]}})
    model = whole["models"].pop("tiny")
    outliers = {"park": {"builtin": "scenery", "n": 30}, "hills": {"builtin": "scenery", "n": 30, "seed": 1}}
    sources = {
        "a": {"data": {"test": {"builtin": "signs", "n": 60}}, "models": {"m1": model, "m2": model}},
        "b": {
            "data": {"test": {"builtin": "signs", "n": 60, "seed": 1}},
            "models": {"resnet/v2": model},
            "exclude": ["park"],
        },
    }
    whole["protocols"]["ood"] = {"sets": None, "transformed": []}
    content = {key: value for key, value in whole.items() if key not in ("data", "models")}
    prepared = prepare(parse_study(content | {"sources": sources, "outliers": outliers}, "study"))
    return execute(prepared, folder / "run", workers=2, progress=no_progress)


def test_models_of_one_run_are_compared_within_their_source(sourced: rw.Run) -> None:
    table = compare_runs(sourced, metrics=["accuracy"])
    assert set(zip(table["baseline"], table["model"], strict=True)) == {("run/m1 on a", "run/m2 on a")}
    assert set(table["reason"]) == {""}
    again = compare_runs([sourced, sourced], models=("b/resnet/v2", "b/resnet/v2"), metrics=["accuracy"])
    assert set(again["model"]) == {"run/resnet/v2 on b"}
    assert set(again["reason"]) == {""}
    assert choose_pairs(["r"], [["a/m", "b/m", "b/n"]], several=True) == [((0, "b/m"), (0, "b/n"))]
    assert choose_pairs(["r"], [["vgg/16", "net/2"]]) == [((0, "vgg/16"), (0, "net/2"))]
    with pytest.raises(InputError, match="r holds one model of each source only: name a second run"):
        choose_pairs(["r"], [["a/m", "b/m"]], several=True)


@pytest.mark.parametrize(
    ("where", "sources"),
    [({"protocol": "classification", "model": "m1"}, {"a"}), ({"protocol": "ood", "ood_set": "park"}, {"a"})],
)
def test_a_criterion_speaks_of_the_sources_that_have_what_it_asks_for(
    sourced: rw.Run, where: dict[str, str], sources: set[str]
) -> None:
    metric = "accuracy" if where["protocol"] == "classification" else "auroc"
    verdict = sourced.verdict([{"id": "A", "metric": metric, "where": where, "at_least": 0.01}])
    assert {row.measurement.where["source"] for row in verdict.findings[0].rows} == sources
    with pytest.raises(InputError, match="asks for model 'm9', but the run has model"):
        sourced.verdict([{"id": "A", "metric": metric, "where": where | {"model": "m9"}, "at_least": 0.01}])
