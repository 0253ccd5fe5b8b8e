"""The example that holds an OD-test against the observations of its paper, on tables whose answers are known."""

from __future__ import annotations

import importlib
import itertools
import math
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

EXAMPLES = Path(__file__).parent.parent / "examples"
SETS = ("noise", "letters", "photographs", "textures")
MODELS = (("mnist", "a", "vgg"), ("mnist", "b", "resnet"), ("gtsrb", "a", "vgg"), ("gtsrb", "b", "resnet"))
WEAK = ("gtsrb", "b")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("od_test_observations")


def level(monitor: str, kind: str) -> float:
    """Accuracies that agree with the paper, but for autoencoders (equal) and variational codes (better)."""
    if monitor.startswith("vnn_svm"):
        return 0.8
    known = {"odin": 0.79, "score_svm": 0.75, "logistic_svm": 0.7, "pixelcnn": 0.48, "bin_class": 0.6}
    known |= {"knn_svm": 0.76, "mc_dropout": 0.74, "deep_ensemble": 0.72}
    return known.get(monitor.split(" ")[0], 0.71) + (0.02 if kind == "vgg" and monitor in ("msp", "odin") else 0.0)


@pytest.fixture
def run(example: ModuleType) -> Any:
    """Two sources with two networks each; the ResNet of gtsrb is below its floor and far off in everything."""
    tables = importlib.import_module("od_test_tables")
    noise = np.random.default_rng(0)
    triples, gaps, competence = [], [], []
    for source, model, kind in MODELS:
        is_weak = (source, model) == WEAK
        where = {"source": source, "model": model}
        right = {"vgg": 0.95, "resnet": 0.97}[kind]
        competence.append({**where, "architecture": kind, "part": "test", "metric": "accuracy", "value": right})
        for monitor in tables.PUBLISHED:
            if monitor == "mc_dropout" and kind == "resnet":
                continue
            for valid_set in SETS:
                gaps.append({**where, "monitor": monitor, "valid_set": valid_set})
                two = 0.99 if monitor == "bin_class" else 0.8
                gaps[-1] |= {"two_datasets": two, "three_datasets": 0.6, "gap": two - 0.6}
            for valid_set, test_set in itertools.permutations(SETS, 2):
                value = 0.1 if is_weak else level(monitor, kind) + noise.normal(0, 0.004)
                row = {**where, "architecture": kind, "undertrained": is_weak}
                row |= {"valid_set": valid_set, "test_set": test_set}
                triples.append(row | {"monitor": monitor, "metric": "accuracy", "value": value})
    networks = [
        {"source": "mnist", "model": "b", "monitors": "bin_class", "fitted_on": "noise", "undertrained": True},
        {
            "source": "mnist",
            "model": "all",
            "monitors": "mnn_svm k=2, mnn_svm k=4",
            "fitted_on": "",
            "undertrained": True,
        },
        {"source": "gtsrb", "model": "a", "monitors": "pixelcnn", "fitted_on": "", "undertrained": False},
    ]
    names = ("od_test", "od_test_networks", "od_test_gap", "od_test_competence")
    rows = (triples, networks, gaps, competence)
    return SimpleNamespace(tables={name: pd.DataFrame(part) for name, part in zip(names, rows, strict=True)})


def test_a_mean_over_equal_clusters_is_that_of_their_means(example: ModuleType) -> None:
    values, clusters = [0.1, 0.5, 0.2, 0.4, 0.6, 0.9], ["a", "a", "b", "b", "c", "c"]
    mean = example.mean_over(values, clusters)
    by_hand = stats.ttest_1samp([0.3, 0.3, 0.75], 0.0).confidence_interval()
    assert (mean.value, mean.lo, mean.hi) == pytest.approx((0.45, by_hand.low, by_hand.high))
    assert (mean.triples, mean.clusters) == (6, 3)


def test_one_cluster_has_no_bounds_and_no_rows_no_mean(example: ModuleType) -> None:
    alone = example.mean_over([0.1, 0.2, math.nan], ["a", "a", "b"])
    assert alone.clusters == 1
    assert alone.is_above() == example.OPEN
    assert alone.points() == "+15.0 (no bounds)"
    assert example.mean_over([], []).points() == "no such rows"


def test_differences_are_paired_and_leave_out_weak_networks(example: ModuleType, run: Any) -> None:
    field = example.Field(run, everything=False)
    assert field.difference("odin", "pixelcnn").value == pytest.approx(0.31 + 0.02 * 2 / 3, abs=0.003)
    assert field.difference("odin", "pixelcnn", "resnet").triples == 12, "that of mnist alone"
    assert example.Field(run, everything=True).difference("odin", "pixelcnn", "resnet").triples == 24
    assert field.more_accurate() == {"mnist": "resnet", "gtsrb": "resnet"}
    assert field.between_networks("msp").value == pytest.approx(-0.02, abs=0.003), "ResNet less VGG"
    two, three, gap = field.gaps("bin_class", "resnet")
    assert (two.value, three.value, gap.triples) == pytest.approx((0.99, 0.6, 3)), "one fit of four is below its floor"
    assert field.mean("mnn_svm k=4").triples == 12, "that of the VGG of gtsrb alone"
    assert field.mean("mnn_svm k=1").triples == 36


def test_every_observation_is_answered(example: ModuleType, run: Any) -> None:
    answers: dict[str, list[str]] = {}
    for sentence, _, repeats in example.observations(example.Field(run, everything=False)):
        answers.setdefault(sentence.split(".")[0], []).append(repeats)
    assert answers.pop("iii")[::2] == ["yes", "yes"], "msp and odin prefer the less accurate VGG"
    assert answers == {
        **{"i": ["yes", "yes"], "ii": ["yes", "yes"], "iv": ["yes", "yes"], "v": ["cannot be told"]},
        "vi": ["no"],  # codes of the variational autoencoder are better
        **{"vii": ["yes", "yes", "no"], "viii": ["yes"], "ix": ["cannot be told"], "x": ["no"]},
    }


def test_the_table_has_both_choices_side_by_side(example: ModuleType, run: Any) -> None:
    lines = example.table(run, example.observations).splitlines()
    assert len(lines) == 2 + 17
    assert all(line.count(" | ") == 4 for line in lines[2:])
    assert "rank" in lines[-1]
    assert lines[-1] != lines[-2]
    assert len(example.table(run, example.further).splitlines()) == 2 + 6
