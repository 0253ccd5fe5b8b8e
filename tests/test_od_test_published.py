"""The example that prints and draws an OD-test beside the published figures, on tables of known values."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ACCURACY = {"ood": "all", "metric": "accuracy", "reason": ""}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("od_test_tables")


def mean(monitor: str, value: float, undertrained: bool = False, **where: str) -> dict[str, Any]:
    bounds = {"value": value, "lo": value - 0.1, "hi": value + 0.05}
    return {**where, **ACCURACY, "monitor": monitor, **bounds, "undertrained": undertrained}


@pytest.fixture
def run() -> Any:
    """Two sources, of which mnist has two models; `ae_threshold bce` asks no model, `mine` was never published."""
    models = [("mnist", "a", "vgg"), ("mnist", "b", "resnet"), ("gtsrb", "a", "vgg")]
    methods = [
        mean(name, value, source="all", model="all") for name, value in (("msp", 0.7), ("ae_threshold bce", 0.8))
    ]
    methods += [mean("msp", 0.6 + 0.1 * row, source=s, model=m) for row, (s, m, _) in enumerate(models)]
    methods += [mean("ae_threshold bce", 0.9, row == 2, source=s, model=m) for row, (s, m, _) in enumerate(models)]
    architectures = [
        mean("msp", 0.7, architecture="all"),
        mean("msp", 0.75, architecture="vgg"),
        mean("msp", 0.65, True, architecture="resnet"),
        mean("ae_threshold bce", 0.8, architecture="any"),
        mean("mine", 0.9, architecture="vgg"),
    ]
    competence = [
        {"source": s, "model": m, "architecture": a, "part": part, "metric": "accuracy", "value": 0.9}
        for s, m, a in models
        for part in ("train", "test")
    ]
    networks = [
        {"source": "mnist", "model": "a", "monitors": "", "loss": "cross-entropy", "value": 0.95, "megabytes": 2.0},
        {"source": "mnist", "model": "a", "monitors": "logistic_svm", "loss": "k-way logistic loss", "value": 0.5},
        {"source": "mnist", "model": "b", "monitors": "", "loss": "", "value": math.nan, "megabytes": math.nan},
    ]
    frame = pd.DataFrame(networks).assign(undertrained=lambda table: table["value"] < 0.9)
    triples = [
        {"source": s, "model": m, "valid_set": "uniform_noise", "test_set": "normal_noise", "value": 0.625}
        | {"monitor": "msp", "metric": "accuracy"}
        for s, m, _ in models
    ]
    tables = {"od_test_methods": pd.DataFrame(methods), "od_test_architectures": pd.DataFrame(architectures)}
    tables |= {
        "od_test_competence": pd.DataFrame(competence),
        "od_test_networks": frame,
        "od_test": pd.DataFrame(triples),
    }
    return SimpleNamespace(tables=tables)


def test_figure_3_has_the_published_value_of_each_kind_of_network(example: ModuleType, run: Any) -> None:
    bars = [(bar.name, bar.kind, bar.published) for bar in example.figure_3(run)]
    assert bars == [
        ("AEThreshold/BCE", "any", pytest.approx(0.7443)),
        ("PbThreshold/vgg", "vgg", pytest.approx(0.7263)),
        ("PbThreshold/resnet", "resnet", pytest.approx(0.7048)),
        ("mine/vgg", "vgg", None),
    ]
    rows = example.ranking(run)
    assert rows[1] == ["`ae_threshold bce`", "", "", "", "", "80.0 (70.0 to 85.0)", "74.43", ""]
    assert rows[2][1:5] == ["75.0 (65.0 to 80.0)", "72.63", "65.0 (55.0 to 70.0) undertrained", "70.48"]


def test_a_monitor_that_asks_no_model_stands_once_at_a_source(example: ModuleType, run: Any) -> None:
    panels = example.by_source(run)
    assert {name: [bar.name for bar in bars] for name, bars in panels.items()} == {
        "mnist": ["AEThreshold/BCE", "PbThreshold/vgg", "PbThreshold/resnet"],
        "gtsrb": ["AEThreshold/BCE", "PbThreshold/vgg"],
    }
    assert all(bar.published is None for bars in panels.values() for bar in bars), "of sources nothing was published"
    assert example.breakdown(run)[1:] == [
        ["AEThreshold/BCE", "90.0", "90.0*"],
        ["PbThreshold/vgg", "60.0", "80.0"],
        ["PbThreshold/resnet", "70.0", ""],
    ]


def test_table_2_says_which_figure_is_which(example: ModuleType, run: Any) -> None:
    rows = {(row[0], row[1]): row[2:] for row in example.table_2(run)[1:]}
    assert rows["mnist", "a"] == ["90.0", "99.89", "50.0", "99.91", "2", "19.00", "below it: logistic_svm"]
    assert rows["mnist", "b"] == ["90.0", "99.89", "", "99.91", "", "70.00", "all above"]
    assert rows["gtsrb", "a"] == ["90.0", "", "", "", "", "", "all above"]
    assert example.noise(run)[1] == ["mnist/a", "62.5", ""]


def test_every_published_method_is_named_once(example: ModuleType) -> None:
    assert set(example.NAMES) == set(example.PUBLISHED)
    assert len(set(example.NAMES.values())) == len(example.NAMES) == 27


def test_bars_intervals_and_marks_are_where_they_belong(example: ModuleType) -> None:
    figures = importlib.import_module("od_test_figures")
    full = figures.Bar("a", "a", "vgg", 0.75, 0.7, 0.8, 0.9, False)
    hollow = figures.Bar("b", "b", "resnet", 0.75, math.nan, math.nan, None, True)
    missing = figures.Bar("c", "c", "any", math.nan, math.nan, math.nan, None, False)
    picture = np.asarray(figures.draw({"": [full, hollow, missing]})).astype(int)
    left, first = figures.MARGIN + figures.LABELS, figures.MARGIN + 2 * figures.HEAD

    def pixel(row: int, share: float, above: int = 0) -> Any:
        y = first + figures.ROW * row + figures.ROW // 2 - above
        return picture[y, round(left + figures.WIDTH * (share - 0.4) / 0.6)]  # the axis begins below chance

    blue = (0, 114, 178)
    assert np.abs(pixel(0, 0.6) - blue).max() < 8
    assert np.abs(pixel(0, 0.86) - 255).max() < 40, "beyond the bar, at a height without a line"
    assert pixel(0, 0.9).max() < 60, "the published value"
    assert pixel(0, 0.78).max() < 60, "the interval reaches beyond the bar"
    inside = picture[first + figures.ROW + 6 : first + figures.ROW + 18, left + 20 : left + 120]
    assert 0.3 < (inside.min(axis=2) > 200).mean() < 0.95, "hatched: partly white"
    assert (pixel(2, 0.6) > 200).all(), "no bar without a value"
