"""Dependability, second reading: trained, tested and wrong; criteria that name the data; full scenarios; controls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import roadworthy as rw
from roadworthy.api import execute, prepare
from roadworthy.core.errors import InputError
from roadworthy.metrics.neurons import activation_pattern, group_advice
from roadworthy.models import CallableModel, TorchModel
from roadworthy.protocols.dependability.coverage_facts import INFERRED, NO_TRAINING
from roadworthy.protocols.dependability.measures.cell_results import result_word, training_word
from roadworthy.protocols.dependability.paper import PAPER
from roadworthy.statistics import Estimate
from roadworthy.study import load_study

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
SCHEMA = {"weather": ["dry", "fog"], "light": ["day", "night"]}


def two_classes(path: Path, weather: list[str], shift: float = 0.0) -> str:
    """Grey images, bright and dark by turns, each with weather and light; in fog both are bright, and a corner shines.

    `shift` makes the images of two files different.
    """
    n = 6 * 2 * len(weather)
    names, lights = np.repeat(weather, n // len(weather)), np.tile(["day", "night"], n // 2)
    labels = (np.arange(n) // 2) % 2
    bright = (labels == 0) | (names == "fog")
    images = np.where(bright, 200 + shift, 60 + shift).astype(np.uint8)[:, None, None, None] * np.ones(
        (1, 16, 16, 3), np.uint8
    )
    images[names == "fog", -1, -1] = 255
    images[:, 0, 0, 0] = np.arange(n)
    classes = np.array(["light", "dark"])
    np.savez(path, images=images, labels=labels, class_names=classes, weather=names, light=lights)
    return str(path)


def network() -> TorchModel:
    """Three neurons: on where the image is bright, where it is dark, and where its last corner shines."""
    first = torch.nn.Linear(768, 3)
    with torch.no_grad():
        first.weight.zero_()
        first.weight[0], first.weight[1] = 1 / 768, -1 / 768
        first.weight[2, -1] = 1.0
        corner = np.arange(768).reshape(3, 16, 16)[:, -1, -1]
        first.weight[2].zero_()
        first.weight[2, corner.tolist()] = 1 / 3
        first.bias.copy_(torch.tensor([-0.5, 0.5, -0.9]))
        last = torch.nn.Linear(3, 2, bias=False)
        last.weight.copy_(torch.tensor([[20.0, 0.0, 0.0], [0.0, 20.0, 0.0]]))
    layers = torch.nn.Flatten(), first, torch.nn.ReLU(), last
    return TorchModel(torch.nn.Sequential(*layers), size=16, outputs="logits", name="net")


def study(tmp_path: Path, *, train: bool = True, criteria: Any = (), **settings: Any) -> dict[str, Any]:
    data = {"test": two_classes(tmp_path / "test.npz", ["dry", "fog"])}
    if train:
        data["train"] = two_classes(tmp_path / "train.npz", ["dry"], shift=3)
    chosen = {"transformers": ["rotation"], "conditions": SCHEMA, "activation_k": [1, 2], **settings}
    return {
        "data": data,
        "models": {"net": "<net>"},
        "protocols": {"dependability": chosen},
        **({"criteria": [*criteria]} if criteria else {}),
    }


def run_of(tmp_path: Path, **changes: Any) -> Any:
    given = load_study(study(tmp_path, **changes))[0]
    return execute(prepare(given, models={"net": network()}, accept_chance=True), tmp_path / "run", workers=1)


def coverage(data: str | None, **more: Any) -> dict[str, Any]:
    where = {"protocol": "dependability", **({} if data is None else {"data": data})}
    return {"id": f"R-{data}", "metric": "scenario_coverage", "where": where, "at_least": 0.9, **more}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_of(tmp_path_factory.mktemp("trained"), criteria=[coverage("train"), coverage("test")])


def figure(run: Any, metric: str, scope: str, data: str = "test", model: str = "net") -> Any:
    table = run.tables["dependability"]
    keys = {"metric": metric, "scope": scope, "data": data, "model": model}
    (chosen,) = (row for _, row in table.iterrows() if all(row[name] == value for name, value in keys.items()))
    return chosen


def test_coverage_and_neurons_are_those_of_the_training_data_first(finished: Any) -> None:
    table = finished.tables["dependability"]
    assert table["data"].tolist()[:2] == ["train", "test"]
    assert figure(finished, "scenario_coverage", "all", "train", "data")["value"] == 0.5
    assert figure(finished, "scenario_coverage", "all", "test", "data")["value"] == 1.0
    # On in training: bright and dark, each alone, never the corner. In fog the corner and brightness together.
    layer = "layer penultimate"
    assert figure(finished, "neuron_activation_1", layer, "train")["value"] == pytest.approx(5 / 6)
    assert figure(finished, "neuron_activation_1", layer, "test")["value"] == 1.0
    assert figure(finished, "neuron_activation_2", layer, "train")["value"] == pytest.approx((2 + 2 + 2) / 12)
    assert figure(finished, "neuron_activation_2", layer, "test")["value"] == pytest.approx((2 + 3 + 3) / 12)
    assert (figure(finished, "neuron_activation_1", layer, "train")["n"], table["n"][1]) == (12, 24)
    assert set(table[~table["metric"].str.startswith(("scenario_coverage", "neuron_activation_"))]["data"]) == {"test"}
    assert finished.verify() == []


def test_a_condition_that_training_misses_is_named_listed_and_shown_with_its_accuracy(finished: Any) -> None:
    cells = finished.tables["dependability_cell_results"].set_index(["value_1", "value_2"])
    columns = ["trained", "tested", "wrong", "accuracy", "state"]
    assert cells.loc[("fog", "day"), columns].tolist() == [0, 6, 3, 0.5, "not trained, fails"]
    assert cells.loc[("dry", "night"), columns].tolist() == [6, 6, 0, 1.0, "trained, open"]
    proposals = finished.tables["dependability_proposals"].query("data == 'train'")
    assert {tuple(row) for row in proposals[["weather", "light"]].to_numpy()} == {("fog", "day"), ("fog", "night")}
    assert proposals["failing_cells"].tolist() == [1, 1]
    assert proposals["coverage_after"].iloc[-1] == 1.0
    assert len(finished.tables["dependability_proposals"].query("data == 'test'")) == 0
    page = (finished.path / "report.html").read_text()
    assert "Not trained at all: weather=fog." in page
    assert "<td>not trained, fails</td>" in page
    assert "For the training data" in page
    assert any("Not trained at all: weather=fog." in line for line in finished.headline())


def test_a_trained_cell_that_fails_is_collected_too(tmp_path: Path) -> None:
    """With fog in the training data as well, all cells are trained; the fogs still fail."""
    content = study(tmp_path)
    content["data"]["train"] = two_classes(tmp_path / "both.npz", ["dry", "fog"], shift=3)
    prepared = prepare(load_study(content)[0], models={"net": network()}, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=1)
    assert figure(run, "scenario_coverage", "all", "train", "data")["value"] == 1.0
    proposals = run.tables["dependability_proposals"]
    assert {*proposals["weather"]} == {"fog"}
    assert proposals["failing_cells"].tolist() == [1, 1]
    assert proposals["new_cells"].tolist() == [0, 0]
    assert set(run.tables["dependability_cell_results"].query("value_1 == 'fog'")["state"]) == {"trained, fails"}


def test_words_of_cells() -> None:
    assert [training_word(count, 2) for count in (0, 1, 2)] == ["not trained", "little trained", "trained"]
    bounds = [(0.1, 0.5), (0.8, 0.95), (0.9, 1.0)]
    words = [result_word(Estimate(lo, lo, hi, n=5, groups=5), 0.9) for lo, hi in bounds]
    assert words == ["fails", "open", "holds"]


def test_criteria_say_on_which_data(finished: Any, tmp_path: Path) -> None:
    trained, tested = finished.verdict().findings
    assert (trained.status, tested.status) == ("fail", "pass")
    assert trained.rows[0].measurement.where == {"model": "data", "scope": "all", "data": "train"}
    for refused in (coverage(None), coverage(None, metric="neuron_activation_2")):
        sentence = r"is counted on the training data and on the test data: write data: train or data: test under where"
        with pytest.raises(InputError, match=sentence):
            run_of(tmp_path, criteria=[refused])
        with pytest.raises(InputError, match=sentence):
            finished.verdict([refused])
    with pytest.raises(InputError, match="the study names no training data: name it under data: train"):
        run_of(tmp_path, train=False, criteria=[coverage("train")])
    with pytest.raises(InputError, match="on the training data, but it is of the test data alone"):
        run_of(tmp_path, criteria=[coverage("train", metric="accuracy")])
    assert not (tmp_path / "run").exists()


def test_a_criterion_of_an_earlier_run_is_read_as_test_and_said(tmp_path: Path) -> None:
    """The run is made one whose own criterion, stored by that version, does not say on which data."""
    path = Path(shutil.copytree(GOLDEN / "schema1" / "dependability", tmp_path / "earlier"))
    earlier = rw.open_run(path)
    verdict = earlier.verdict([coverage(None)])
    (finding,) = verdict.findings
    assert finding.status == "pass"
    assert finding.remark == "it does not say on which data: read as data: test, all that the run counted"
    earlier.save_verdict(verdict)
    assert earlier.verdict().findings == verdict.findings
    assert "read as data: test" in (path / "report.html").read_text()
    assert json.loads((path / "verdict.json").read_text())["criteria"][0]["rows"][0]["where"]["data"] == "test"
    assert earlier.verify() == []
    assert earlier.verdict([coverage("test")]).findings[0].remark == ""
    with pytest.raises(InputError, match="the study names no training data"):
        earlier.verdict([coverage("train")])


def test_an_inferred_schema_and_missing_training_data_are_said(finished: Any, tmp_path: Path) -> None:
    inferred = run_of(tmp_path, conditions=None, train=False)
    page = (inferred.path / "report.html").read_text()
    for warning in (INFERRED, NO_TRAINING):
        assert warning in page
        assert warning in inferred.headline()
        assert warning not in (finished.path / "report.html").read_text()
        assert warning not in finished.headline()
    assert inferred.tables["dependability"]["data"].unique().tolist() == ["test"]
    assert set(inferred.tables["dependability_cell_results"]["state"]) <= {"fails", "open", "holds", "not tested"}


def test_what_training_shows_counts_in_an_inferred_schema(tmp_path: Path) -> None:
    content = study(tmp_path, conditions=None)
    content["data"]["test"], content["data"]["train"] = content["data"]["train"], content["data"]["test"]
    prepared = prepare(load_study(content)[0], models={"net": network()}, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=1)
    assert figure(run, "scenario_coverage", "all", "test", "data")["value"] == 0.5
    assert {*run.tables["dependability_cell_results"].query("value_1 == 'fog'")["state"]} == {"trained, not tested"}


def test_training_data_without_the_conditions_or_with_others(tmp_path: Path) -> None:
    content = study(tmp_path)
    with np.load(content["data"]["train"]) as stored:
        arrays = dict(stored)
    plain = {name: values for name, values in arrays.items() if name != "weather"}
    np.savez(tmp_path / "plain.npz", **plain)
    np.savez(tmp_path / "hail.npz", **plain, weather=np.full(12, "hail"))
    content["data"]["train"] = str(tmp_path / "hail.npz")
    with pytest.raises(
        InputError, match="conditions of training data hail: row 0: weather = 'hail' is not in the schema"
    ):
        prepare(load_study(content)[0], models={"net": network()}, accept_chance=True)
    content["data"]["train"] = str(tmp_path / "plain.npz")
    prepared = prepare(load_study(content)[0], models={"net": network()}, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=1)
    trained = figure(run, "scenario_coverage", "all", "train", "data")
    assert trained["reason"] == "the training data plain has no column weather"
    assert figure(run, "neuron_activation_1", "layer penultimate", "train")["value"] == pytest.approx(5 / 6)
    assert run.tables["dependability_cell_results"]["trained"].isna().all()
    assert run.verify() == []


def test_the_pattern_is_that_of_every_full_scenario(finished: Any) -> None:
    table = finished.tables["dependability_patterns"].query("conditions == 2").set_index("scenario")
    assert list(table.index) == [f"weather={w}, light={light}" for w in ("dry", "fog") for light in ("day", "night")]
    assert table["n"].tolist() == [6] * 4
    # A bright or dark image has one neuron on, one in fog has two: within a full scenario all are alike.
    assert table["value"].tolist() == [0.0] * 4
    each = figure(finished, "neuron_pattern", "layer penultimate, each scenario")
    assert (each["value"], each["n"]) == (0.0, 24)
    assert each["reason"] == "4 of 4 full scenarios have 5 images or more"
    # Light alone mixes scenarios: most images of a day have one neuron on, those in fog two, a group of ten further.
    on = np.array([[1, 0, 0]] * 6 + [[1, 0, 1]] * 6)
    mixed = figure(finished, "neuron_pattern", "layer penultimate, light=day")
    assert mixed["value"] == activation_pattern(on, 10).value == 0.5
    groups = finished.tables["dependability_pattern_groups"].set_index("groups")
    assert groups.loc[10, "note"] == "used"
    assert (groups["spread"] == 0).all()


def test_advice_on_groups() -> None:
    rng = np.random.default_rng(0)
    scenarios = np.repeat([f"s{number}" for number in range(50)], 40)
    middles = np.repeat(rng.integers(40, 160, 50), 40)
    active = np.clip(np.rint(middles + rng.normal(0, 6, 2000)), 0, 200).astype(int)
    advice = group_advice(active, scenarios, 200, 10)
    assert advice.spread == pytest.approx(6, abs=0.3)
    assert advice.advised == pytest.approx(3 * 200 / (4 * 6), abs=2)

    def apart(groups: int) -> float:
        neurons = np.arange(200)[None] < active[:, None]
        parts = [activation_pattern(neurons[scenarios == name], groups).apart for name in np.unique(scenarios)]
        return float(np.concatenate(parts).mean())

    assert apart(4) == 0.0
    assert 0.01 < apart(advice.advised) < 0.15
    assert apart(150) > 0.4
    alone = group_advice([1, 2], ["a", "b"], 8, 10)
    assert (alone.scenarios, alone.advised) == (0, None)


def test_the_shipped_studies_declare_their_conditions() -> None:
    for name in ("dependability-builtin", "everything-builtin"):
        content = yaml.safe_load((ROOT / "studies" / f"{name}.yaml").read_text())
        declared = content["protocols"]["dependability"]["conditions"]
        shown = rw.open_dataset({"builtin": "signs", "n": 140}).table.conditions
        assert all({*column.tolist()} <= {*declared[condition]} for condition, column in shown.items())
        assert "snow" in declared["weather"], "the road has weather that the built-in signs do not show"


def test_every_metric_has_its_attributes_and_advice_in_docs_and_report(finished: Any) -> None:
    docs = " ".join((ROOT / "docs" / "dependability.md").read_text().split())
    page = (finished.path / "report.html").read_text()
    assert [metric.number for metric in PAPER] == [*range(1, 9)]
    for metric in PAPER:
        assert metric.reflects in docs
        assert metric.advice in docs
        assert metric.sentence.replace("'", "&#39;") in page


# Heat maps: an object of 8 x 8 pixels in the middle of 16 x 16, whose upper left quarter a model looks at.


def marked(path: Path, mask: slice) -> str:
    images = np.full((6, 16, 16, 3), 100, np.uint8)
    images[:, mask, mask] = 220
    images[:, 15, 15, 0] = np.arange(6)
    masks = np.zeros((6, 16, 16), bool)
    masks[:, mask, mask] = True
    names = np.array(["sign", "none"])
    np.savez(path, images=images, labels=np.zeros(6, int), class_names=names, masks=masks)
    return str(path)


def seen_at(rows: slice) -> CallableModel:
    """Sure of a sign where the pixels of these rows and columns are bright, else of none."""

    def answer(images: Any) -> Any:
        bright = images[:, rows, rows].reshape(len(images), -1).mean(axis=1) > 180
        return np.where(bright[:, None], [0.95, 0.05], [0.3, 0.7])

    return CallableModel(answer, num_classes=2, version="1", name="m")


def heat_run(tmp_path: Path, mask: slice, model: Any, **occlusion: Any) -> Any:
    settings = {"transformers": ["rotation"], "occlusion": {"patch": 4, "stride": 4, "images": 6, **occlusion}}
    content = {
        "data": {"test": marked(tmp_path / "data.npz", mask)},
        "models": {"m": "<m>"},
        "protocols": {"dependability": settings},
    }
    prepared = prepare(load_study(content)[0], models={"m": model}, accept_chance=True)
    return execute(prepared, tmp_path / "run", workers=1)


def precisions(run: Any) -> list[float]:
    names = ("precision", "chance", "masked", "place")
    return [float(figure(run, f"interpretation_{name}", "all", model="m")["value"]) for name in names]


def test_a_model_that_looks_at_the_object_falls_to_chance_without_it(tmp_path: Path) -> None:
    run = heat_run(tmp_path, slice(4, 12), seen_at(slice(4, 8)))
    assert precisions(run) == [1.0, 0.25, 0.25, 0.25]
    images = run.tables["dependability_occlusion"]
    assert images[["hot", "precision", "chance", "place"]].drop_duplicates().to_numpy().tolist() == [[1, 1, 0.25, 0.25]]
    curve = run.tables["dependability_rho"].set_index("rho")
    assert curve.loc[0.5, ["precision", "chance"]].tolist() == [1.0, 0.25]
    page = (run.path / "report.html").read_text()
    assert "by chance 25.0" in page.replace("\u00a0", " ")
    assert run.verify() == []


def test_where_the_object_fills_the_crop_precision_is_its_chance_level(tmp_path: Path) -> None:
    run = heat_run(tmp_path, slice(0, 16), seen_at(slice(4, 8)))
    assert precisions(run) == [1.0, 1.0, 1.0, 1.0]


def test_a_model_that_reads_the_surroundings_is_below_chance_with_and_without_the_object(tmp_path: Path) -> None:
    """It is sure of a sign while a corner has the colour of the road: without the sign it still answers so."""

    def answer(images: Any) -> Any:
        road = np.abs(images[:, :4, :4].reshape(len(images), -1).mean(axis=1) - 100) < 10
        return np.where(road[:, None], [0.95, 0.05], [0.3, 0.7])

    run = heat_run(tmp_path, slice(4, 12), CallableModel(answer, num_classes=2, version="1", name="m"))
    assert precisions(run) == [0.0, 0.25, 0.0, 0.0]


def test_a_model_that_looks_at_the_middle_is_seen_by_the_place_alone(tmp_path: Path) -> None:
    """It tells signs by brightness in the middle, and calls anything else there `none`, the surer the darker it is.

    Without the sign the class is lost, so that its own control is at chance; but the answer still hangs on the middle.
    """

    def answer(images: Any) -> Any:
        middle = images[:, 4:8, 4:8].reshape(len(images), -1).mean(axis=1)
        none = np.where(middle > 180, 0.05, 1 - middle / 400)
        return np.stack([1 - none, none], axis=1)

    run = heat_run(tmp_path, slice(4, 12), CallableModel(answer, num_classes=2, version="1", name="m"))
    assert precisions(run) == [1.0, 0.25, 0.25, 1.0]


def test_the_control_can_be_left_out(tmp_path: Path) -> None:
    run = heat_run(tmp_path, slice(4, 12), seen_at(slice(4, 8)), control=False)
    metrics = set(run.tables["dependability"]["metric"])
    assert "interpretation_chance" in metrics
    assert metrics.isdisjoint({"interpretation_masked", "interpretation_place"})
    assert run.verify() == []


def test_the_sensitive_part_is_found_in_the_box_of_the_object(tmp_path: Path) -> None:
    run = heat_run(tmp_path, slice(4, 12), seen_at(slice(4, 8)))
    parts = run.tables["dependability_occlusion_parts"].query("scope == 'class sign'")
    assert len(parts) == 25
    assert parts.loc[parts["lost"].idxmax(), "part"] == "upper left"
    # Parts lie at 4.8, 6.4, 8, 9.6 and 11.2, patches at 2, 6, 10 and 14: what 0.65 takes falls off along both axes.
    weight = np.array([1 - 1.2 / 4, 1 - 0.4 / 4, 0.5, 0.1, 0.0])
    expected = 0.95 - 0.65 * np.outer(weight, weight)
    assert parts["left"].to_numpy().reshape(5, 5) == pytest.approx(expected, abs=1e-6)
    shown = run.tables["dependability_parts_gallery"].set_index("scope")
    assert shown.loc["class sign", ["images", "part", "hot"]].tolist() == [6, "upper left", 1.0]
    assert (run.path / "media" / shown.loc["all", "media"]).is_file()
