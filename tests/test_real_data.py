"""Real images: CIFAR-10 with a real ResNet-20, German traffic signs. Skipped where the data is absent."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import roadworthy as rw
from roadworthy.api import execute, no_progress, prepare
from roadworthy.study import load_study, parse_study

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def resnet20(shared_data: Path) -> object:
    torch = pytest.importorskip("torch")
    sys.path.insert(0, str(ROOT / "examples"))
    from cifar10_resnet20 import resnet20

    network = resnet20()
    stored = torch.load(shared_data / "cifar10_resnet20.th", weights_only=True, map_location="cpu")
    weights = stored.get("state_dict", stored)
    network.load_state_dict({name.removeprefix("module."): value for name, value in weights.items()})
    return network


def test_torch_and_onnx_give_the_same_table(shared_data: Path, resnet20: object, tmp_path: Path) -> None:
    from roadworthy.models.networks import export_onnx

    export_onnx(resnet20, tmp_path / "resnet20.onnx", 32)
    study = {
        "data": {"test": {"npz": str(shared_data / "cifar10_test.npz"), "limit": 400}},
        "models": {
            "onnx": {"onnx": str(tmp_path / "resnet20.onnx"), "range": "imagenet"},
            "torch": {
                "torch": str(shared_data / "cifar10_resnet20.th"),
                "arch": f"{ROOT / 'examples' / 'cifar10_resnet20.py'}:resnet20",
                "range": "imagenet",
            },
        },
        "protocols": {"classification": {"shifts": ["fog", "rotation"], "levels": [3]}},
    }
    run = rw.run_study(study, out=tmp_path / "run", trust=True, progress=no_progress)
    table = run.tables["classification"]
    by_model = [
        table[table["model"] == name].drop(columns="model").reset_index(drop=True) for name in ("onnx", "torch")
    ]
    for column in ("value", "lo", "hi"):
        np.testing.assert_allclose(by_model[0][column], by_model[1][column], atol=1e-5)
    clean = table.query("model == 'onnx' and shift == 'none' and metric == 'accuracy'")["value"].item()
    assert clean > 0.88, "400 images of a model that reaches 91.7 % on all"


def test_the_study_outside_signs_runs_smaller(shared_data: Path, resnet20: object, tmp_path: Path) -> None:
    """The study as shipped, with fewer images, shifts and repeats: the network's code, data and overlap are found."""
    study, base = load_study(ROOT / "studies" / "heindrich-cifar10.yaml")
    content = yaml.safe_load(study.to_yaml())
    content["data"]["test"]["limit"] = 100
    content["protocols"]["classification"] |= {"shifts": ["fog"], "levels": [5], "repeats": 1}
    content["protocols"]["ood"] |= {"transformed": ["fog"], "repeats": 1}
    prepared = prepare(parse_study(content, "study"), base=base, trust=True, progress=no_progress)
    foreign = prepared.sources[""].foreign["tiny_imagenet"]
    shared = {*content["overlap"]["tiny_imagenet"]["outliers"]}
    assert len(shared) == 23
    assert not {foreign.class_names[label] for label in foreign.labels} & shared
    run = execute(prepared, tmp_path / "run", workers=1, progress=no_progress)
    kinds = run.tables["ood"].groupby("kind")["ood_set"].nunique()
    assert dict(kinds) == {"derived": 4, "literature": 3, "transformed": 1}
    table = run.tables["classification"].set_index(["shift", "metric"])["value"]
    assert table["none", "accuracy"] > 0.8 > table["fog", "accuracy"]


def test_a_wrong_range_is_found(shared_data: Path, resnet20: object) -> None:
    from roadworthy.data import open_dataset
    from roadworthy.models.check import check_model

    data = open_dataset(shared_data / "cifar10_test.npz")
    report = check_model(lambda **changed: rw.load_model(resnet20, **{"range": "0-1", **changed}), data, sample=256)
    assert report.findings[0].settings == {"range": "imagenet"}
