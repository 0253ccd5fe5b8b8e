"""studies/heindrich.yaml is the thesis's study: its settings, the page that lists them, its plan, a small copy run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import roadworthy as rw
from roadworthy.api import execute, prepare
from roadworthy.core.roles import Trial
from roadworthy.engine.estimating import estimate_time
from roadworthy.engine.folder import RunFolder
from roadworthy.models import ReferenceModel
from roadworthy.shifts import THESIS_SHIFTS
from roadworthy.study import load_study, parse_study

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from roadworthy.outliers.gan import CONFIGURATIONS, PRESETS, Gan

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "studies" / "heindrich.yaml"
PAGE = ROOT / "docs" / "thesis_settings.md"


def content() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(STUDY.read_text())
    return loaded


def leaves(settings: Any) -> Iterator[str]:
    """Every setting of a study as it is written in it, such as `epochs: 4`; of a list of mappings, theirs."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value)
        elif isinstance(value, list) and isinstance(value[0], Mapping):
            for entry in value:
                yield from leaves(entry)
        else:
            written, _, _ = yaml.safe_dump(value, default_flow_style=True, width=1000).partition("\n")
            yield f"{key}: {written}"


def test_the_page_lists_every_setting_of_the_study_and_nothing_else() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    stated = {setting for row in rows if len(row) == 4 for setting in re.findall(r"`([a-z_]+: [^`]+)`", row[2])}
    assert stated == {*leaves(content())}


def test_networks_are_trained_as_the_thesis_says() -> None:
    study, _ = load_study(STUDY)
    data = rw.open_dataset({"builtin": "signs", "split": "train", "n": 70}, size=16)
    settings = {
        name: ReferenceModel(entry.pop("reference"), **entry).on(data)
        for name, entry in yaml.safe_load(study.to_yaml())["models"].items()
    }
    baseline, dropout = settings["baseline"], settings["mc_dropout"]
    assert (baseline.epochs, baseline.dropout, dropout.epochs, dropout.dropout) == (4, 0.0, 8, 0.6)
    for model in settings.values():
        assert (model.batch, model.width, model.held_out, model.keep, model.retrain) == (128, 32, 0.0, "last", True)


def test_the_whole_is_planned_and_its_time_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = content()
    assert (whole["size"], whole["data"]["train"]["n"], whole["data"]["test"]["n"]) == (64, 7168, 1792)
    assert 7168 / (7168 + 1792) == 0.8
    whole["size"] = 16  # the plan is the same
    whole["data"]["train"]["n"], whole["data"]["test"]["n"], whole["outliers"]["scenery"]["n"] = 224, 56, 56
    prepared = prepare(parse_study(whole, "study"), progress=rw.no_progress)
    graph = prepared.plan.graph()
    built = [node.parts[0] for node in graph.artifacts.values()]
    networks = [part for part in built if isinstance(part, ReferenceModel)]
    gans = [part for part in built if isinstance(part, Gan)]
    assert Counter(network.architecture for network in networks) == {"baseline": 20, "mc_dropout": 20}
    assert Counter(gan.configuration.name for gan in gans) == dict.fromkeys(CONFIGURATIONS, 10)
    assert {gan.settings for gan in gans} == {PRESETS["thesis"]}
    assert {gan.configuration.name for gan in gans if gan.configuration.surrogate == "joint"} == {"lee_gan", "lee_wgan"}
    sets = {planned.labels["ood_set"] for planned in prepared.plan.of("ood", "") if "ood_set" in planned.labels}
    assert len(sets) == 23
    shown = Counter(
        (planned.showing.stimulus.name, planned.showing.stimulus.level)
        for planned in prepared.plan.of("classification", "")
    )
    assert {*shown} == {("none", 0), *((shift, level) for shift in THESIS_SHIFTS for level in range(1, 6))}
    monkeypatch.setattr(Gan, "trial", lambda own: Trial(per_work=1.0, per_image=0.0))
    monkeypatch.setattr(ReferenceModel, "trial", lambda own: Trial(per_work=2.0, per_image=0.0))
    estimate = estimate_time(graph, RunFolder(tmp_path / "none"), 2)
    assert estimate.building == 224 * (10 * (5 * 30 + 2) + 20 * 2 * (4 + 8))
    assert (estimate.timed, estimate.untimed) == (100, 0)


@pytest.mark.parametrize("name", ["heindrich-cure-tsd", "heindrich-cure-tsr"])
def test_the_studies_on_the_thesis_s_own_data_are_the_same_study(name: str) -> None:
    own = (STUDY.with_name(f"{name}.yaml")).read_text()
    for part in ("models", "protocols", "seed", "size"):
        assert str(yaml.safe_load(own)[part]) == str(content()[part]).replace("scenery", "tiny_imagenet")


def small_copy() -> dict[str, Any]:
    """The study with all that is counted at its smallest; nothing is added or left out."""
    study = content()
    study["size"] = 16
    study["data"]["train"]["n"], study["data"]["test"]["n"], study["outliers"]["scenery"]["n"] = 280, 28, 28
    for model in study["models"].values():
        model |= {"epochs": 1, "width": 2, "batch": 64}
    study["models"]["mc_dropout"]["passes"] = 2
    study["protocols"]["classification"] |= {"levels": [1, 5], "repeats": 2}
    study["protocols"]["ood"]["repeats"] = 2
    study["protocols"]["ood"]["gans"] |= {"count": 1, "width": 2, "batch": 56, "epochs": 1}
    return study


@pytest.mark.slow
def test_a_small_copy_of_the_study_runs(tmp_path: Path) -> None:
    prepared = prepare(parse_study(small_copy(), "study"), progress=rw.no_progress)
    run = execute(prepared, tmp_path / "run", workers=1, progress=rw.no_progress)
    assert not run.failures
    kinds = run.tables["ood"].groupby("kind")["ood_set"].nunique()
    assert dict(kinds) == {"derived": 4, "gan": 6, "literature": 3, "transformed": 10}
    taught = run.tables["gan"].groupby("ood_set")["surrogate"].unique()
    assert {name: list(kinds) for name, kinds in taught.items()} == {
        name: ["joint" if name.startswith("lee") else "real"] for name in CONFIGURATIONS
    }
    assert {"training_accuracy"} <= {
        figure for artifact in run.record.artifacts.values() for figure in artifact.competence
    }
    assert run.verify() == []
