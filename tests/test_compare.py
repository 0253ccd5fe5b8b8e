"""Comparison of models on the same images: an injected regression is found, chance alone is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from roadworthy.api import compare_runs, execute, no_progress, prepare
from roadworthy.cli import app
from roadworthy.core.errors import InputError
from roadworthy.core.types import Stimulus
from roadworthy.engine.readouts import Readouts
from roadworthy.metrics import Answers
from roadworthy.protocols import classification
from roadworthy.protocols.base import StoredCase
from roadworthy.protocols.classification import Classification
from roadworthy.protocols.comparison import System, compare
from roadworthy.study import parse_study
from tiny import save_onnx, study

SHIFTS = tuple(f"shift{place}" for place in range(10))


def system(
    label: str,
    right: dict[str, np.ndarray],
    groups: Sequence[str] | None = None,
    sure: float = 0.8,
    code: str = "",
) -> System:
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
    evidence = Classification().evidence(cases, ["a", "b"], seed=0)
    return System(label, label, {"classification": evidence}, {"classification": cases})


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
    monkeypatch.setattr(classification, "RESAMPLES", 40)
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
    assert loose.iloc[0]["result"] == "no clear difference"
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


def runs(folder: Path, **second: Any) -> list[Path]:
    paths = []
    for name, changes in (("old", {}), ("new", second)):
        prepared = prepare(parse_study(study(folder, **changes), "study"))
        paths.append(execute(prepared, folder / name, workers=2, progress=no_progress).path)
    return paths


def test_two_runs_of_the_same_model_with_other_seeds(tmp_path: Path) -> None:
    table = compare_runs(runs(tmp_path, seed=5))
    assert len(table) == 7 * 4
    assert not (table["result"] == "regression").any()
    assert (table.loc[table["condition"] == "none", "change"].abs() == 0).all()


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
