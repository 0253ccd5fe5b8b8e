"""The search for learning rate, dropout and width of the head: its trials, its journal, and what a network takes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bright_boxes import bright_boxes
from roadworthy.core.errors import DamagedFile, InputError, UnknownName
from roadworthy.core.types import Artifact
from roadworthy.models.perception.search import JOURNAL, RESULT, NetworkSearch, SearchSettings, Values
from roadworthy.models.perception.task_network import TaskNetwork, TaskSettings
from roadworthy.models.training import Diverged

pytest.importorskip("optuna")
pytest.importorskip("torch")

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


def test_the_best_trial_is_taken_and_better_than_chance(tmp_path: Path) -> None:
    network = Slope()
    search = search_of(network, trials=18)
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
        ({"hidden": []}, "at least one width"),
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


def test_a_search_with_nothing_to_look_for_is_refused() -> None:
    settings = TaskSettings("small_convnext", learning_rate=1e-3, hidden=64)
    with pytest.raises(InputError, match="nothing to search"):
        TaskNetwork(settings, search=SearchSettings())
