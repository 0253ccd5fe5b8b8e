"""The search for learning rate, dropout and width of the head: its trials, its journal, and what a network takes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import roadworthy.uncertainty
from bright_boxes import bright_boxes
from found_squares import save_squares
from roadworthy.api import execute, no_progress, prepare
from roadworthy.core.errors import DamagedFile, InputError, MissingExtra, UnknownName
from roadworthy.core.types import Artifact
from roadworthy.models import load_model
from roadworthy.models.perception import perception_network
from roadworthy.models.perception.search import JOURNAL, RESULT, NetworkSearch, SearchSettings, Values
from roadworthy.models.perception.task_network import TaskNetwork, TaskSettings, count_weights
from roadworthy.models.training import Diverged
from roadworthy.study import parse_study

pytest.importorskip("optuna")
pytest.importorskip("torch")
assert roadworthy.uncertainty

BEST_RATE = 1e-3


@dataclass
class Slope:
    """A stand-in of a network: best at a learning rate of 0.001, a dropout of 0.1, 128 units; diverges above 0.5."""

    stop_at: int = 1000
    met: list[dict[str, float | int]] = field(default_factory=list)
    name: str = "slope"

    def attempt(self, values: Values, epochs: int | None, folder: Path, progress: Callable[[int], None]) -> float:
        if len(self.met) == self.stop_at:
            raise KeyboardInterrupt
        self.met.append(dict(values))
        progress(10)
        if values["learning_rate"] > 0.5:
            raise Diverged("no number")
        miss = abs(math.log10(values["learning_rate"] / BEST_RATE)) / 2
        return 1 - miss - abs(values.get("dropout", 0.1) - 0.1) - (values.get("hidden", 128) != 128) * 0.2

    def trial_recipe(self) -> Artifact:
        return Artifact("slope", {})

    def trial_work(self, epochs: int | None) -> int:
        return 10


def search_of(network: Slope, trials: int = 8, seed: int = 3, **settings: Any) -> NetworkSearch:
    names = ("learning_rate", "dropout", "hidden")
    return NetworkSearch(network, SearchSettings(trials=trials, **settings), names, seed)


def test_a_killed_search_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    whole = Slope()
    competence = search_of(whole).build(tmp_path / "whole", lambda work: None)
    killed = Slope(stop_at=5)
    with pytest.raises(KeyboardInterrupt):
        search_of(killed).build(tmp_path / "killed", lambda work: None)
    with (tmp_path / "killed" / JOURNAL).open("ab") as journal:
        journal.write(b'{"trial": 5, "learn')
    rest, reported = Slope(), []
    assert search_of(rest).build(tmp_path / "killed", reported.append) == competence
    assert killed.met + rest.met == whole.met
    assert sum(reported) == 80
    assert (tmp_path / "killed" / RESULT).read_bytes() == (tmp_path / "whole" / RESULT).read_bytes()
    assert not (tmp_path / "killed" / JOURNAL).exists()


def test_a_kill_after_the_last_trial_costs_no_trial_and_leaves_nothing(tmp_path: Path) -> None:
    competence = search_of(Slope()).build(tmp_path, lambda work: None)
    leftover = tmp_path / "trial-7"
    leftover.mkdir()
    (leftover / "checkpoint.safetensors").write_bytes(b"half")
    asked_again = Slope()
    assert search_of(asked_again).build(tmp_path, lambda work: None) == competence
    assert asked_again.met == []
    assert [path.name for path in tmp_path.iterdir()] == [RESULT]


def test_the_best_trial_is_taken_and_better_than_chance(tmp_path: Path) -> None:
    network = Slope()
    search = search_of(network, trials=18, seed=2)
    competence = search.build(tmp_path, lambda work: None)
    search.load(tmp_path)
    values = [trial["value"] for trial in search.history]
    assert competence["best_value"] == max(values) > 0.8
    assert search.best == {name: search.history[competence["best_trial"]][name] for name in search.searched}
    assert sum(values[12:]) > sum(values[:6])
    assert {trial["state"] for trial in search.history} == {"complete"}
    assert all(round(trial["dropout"] * 20, 4).is_integer() for trial in search.history)


def test_a_diverged_trial_is_noted_and_does_not_stop_the_search(tmp_path: Path) -> None:
    search = search_of(Slope(), trials=4, learning_rate=(0.6, 0.9))
    with pytest.raises(InputError, match="lower learning rates"):
        search.build(tmp_path / "all", lambda work: None)
    some = search_of(Slope(), trials=10, learning_rate=(0.01, 10.0))
    some.build(tmp_path / "some", lambda work: None)
    some.load(tmp_path / "some")
    assert {trial["state"] for trial in some.history} == {"complete", "diverged"}
    assert all((trial["value"] is None) == (trial["state"] == "diverged") for trial in some.history)


def test_seed_and_settings_are_part_of_the_recipe() -> None:
    hashes = {search_of(Slope(), **changes).recipe.hash for changes in ({}, {"seed": 4}, {"trials": 9}, {"epochs": 2})}
    assert len(hashes) == 4


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"trial": 1}\n')
    with pytest.raises(DamagedFile, match="damaged"):
        search_of(Slope()).build(tmp_path, lambda work: None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 0}, "trials"),
        ({"learning_rate": [1e-2, 1e-3]}, "lowest and a highest learning_rate"),
        ({"dropout": [0.1]}, "lowest and a highest dropout"),
        ({"hidden": []}, "each once"),
        ({"hidden": [64, 64]}, "each once"),
        ({"dropout": [0.05, 0.12]}, "steps of 0.05"),
        ({"hidden": 64}, "list of numbers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchSettings.of(settings)
    with pytest.raises(UnknownName, match="trials"):
        SearchSettings.of({"trial": 3})


def test_a_network_takes_the_values_of_its_search(tmp_path: Path) -> None:
    settings = TaskSettings("small_convnext", epochs=1, batch=32, width=16, augment=False)
    asked = SearchSettings(trials=2, hidden=(8, 12), learning_rate=(1e-3, 1e-2))
    network = TaskNetwork(settings, search=asked, threads=1).on(bright_boxes(40))
    assert network.searched == ("learning_rate", "hidden")
    assert network.facts()["classes"]["weights"] is None
    assert network.facts()["classes"]["search"] == network.recipe.requires[0].recipe.hash
    with pytest.raises(InputError, match="waits for its search"):
        network.network()
    (search,) = network.recipe.requires
    assert network.member(1).recipe.requires == (search,)
    before = network.recipe.hash
    search.build(tmp_path / "search", lambda work: None)
    search.load(tmp_path / "search")
    competence = network.build(tmp_path / "network")
    assert network.recipe.hash == before
    assert (competence["hidden"], competence["learning_rate"]) == (search.best["hidden"], search.best["learning_rate"])
    stored = json.loads((tmp_path / "network" / "training.json").read_text())
    assert stored["recipe"]["learning_rate"] == search.best["learning_rate"]
    anew = TaskNetwork(settings, search=asked, threads=1).on(bright_boxes(40))
    anew.load(tmp_path / "network")
    assert anew.facts()["classes"]["hidden"] == search.best["hidden"]


@pytest.mark.parametrize(
    "entry",
    [
        {"search": {"trials": 2, "dropout": [0.05, 0.1]}},
        {"hidden": 64, "search": {"hidden": [32, 64]}},
        {"learning_rate": 0.01, "search": {"learning_rate": [0.001, 0.01]}},
    ],
)
def test_a_range_of_what_is_not_searched_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="which is not searched"):
        load_model({"perception": "small_convnext", **entry}, name="net")


def test_a_search_without_optuna_is_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.models.perception.search.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="search"):
        load_model({"perception": "small_convnext", "search": {"trials": 2}}, name="net")


def test_the_history_of_a_search_and_what_it_found_are_in_the_tables(tmp_path: Path) -> None:
    tiny = {"perception": "small_convnext", "task": "boxes", "epochs": 1, "width": 16, "augment": False, "threads": 1}
    search = {"trials": 2, "hidden": [8, 12]}
    failing = {"trials": 1, "learning_rate": [1e30, 1e31]}
    for role, seed in (("train", 0), ("test", 1)):
        save_squares(tmp_path / f"{role}.npz", n=40, seed=seed)
    study = parse_study(
        {
            "name": "searched",
            "data": {"train": "train.npz", "test": "test.npz"},
            "models": {"net": {**tiny, "search": search}, "lost": {**tiny, "search": failing}},
            "protocols": {"localization": {"sets": {}, "timed_images": 2, "resamples": 100}},
        },
        "study",
    )
    prepared = prepare(study, base=tmp_path, accept_chance=True, progress=no_progress)
    run = execute(prepared, tmp_path / "run", workers=1, progress=no_progress)
    trials = run.tables["localization_search"]
    assert trials[["model", "task", "trial"]].to_numpy().tolist() == [["net", "boxes", 0], ["net", "boxes", 1]]
    best = trials.loc[trials["value"].idxmax()]
    rows = run.tables["localization_models"].set_index("model")
    assert rows.loc["net", ["learning_rate", "hidden"]].tolist() == [best["learning_rate"], best["hidden"]]
    network = perception_network("small_convnext", 4, size=32, width=16, hidden=int(best["hidden"]))
    assert rows.loc["net", "weights"] == count_weights(network)
    assert math.isnan(rows.loc["lost", "learning_rate"])


def test_a_search_with_nothing_to_look_for_is_refused() -> None:
    settings = TaskSettings("small_convnext", learning_rate=1e-3, hidden=64)
    with pytest.raises(InputError, match="nothing to search"):
        TaskNetwork(settings, search=SearchSettings())
