"""The dependability protocol: figures equal to the pure functions, the same bits, criteria, edges, resume, report."""

from __future__ import annotations

import importlib.util
import itertools
import json
import shutil
import sys
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from roadworthy.api import Run, execute, export_study, prepare, run_study
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch, Stimulus
from roadworthy.data import BuiltinDataset, Opening, open_dataset
from roadworthy.engine.conditions import Conditions
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.local import LocalExecutor
from roadworthy.engine.plan import Bench, Graph, PlannedStimulus
from roadworthy.engine.readouts import read_case
from roadworthy.metrics.confidence_loss import confidence_loss
from roadworthy.metrics.coverage import Need, Schema, scenario_coverage
from roadworthy.metrics.neurons import NeuronCoverage, activation_pattern
from roadworthy.metrics.occlusion import PatchGrid, cells_of_masks, occlusion_scores
from roadworthy.metrics.weighted_confusion import WeightedConfusion, severity_matrix
from roadworthy.models import CallableModel, ReferenceModel, TorchModel
from roadworthy.models.head import network_of, penultimate
from roadworthy.models.occlusion import occlusion_map
from roadworthy.models.signals import Signals
from roadworthy.protocols.dependability.context import Context, Resolved
from roadworthy.protocols.dependability.measures import MEASURES, STEPS, BeforeRun
from roadworthy.protocols.dependability.measures.field_performance import FieldPerformance
from roadworthy.protocols.dependability.measures.scenario_proposals import ScenarioProposals
from roadworthy.protocols.dependability.measures.worst_slices import WorstSlices
from roadworthy.protocols.dependability.pictures import HOT_EDGE, heat_picture
from roadworthy.protocols.dependability.probes import HeatMaps, Layer, rows_with_objects
from roadworthy.protocols.dependability.settings import SEVERITIES, Settings, Transformer
from roadworthy.study import load_study
from stand_ins import nearest_mean
from tiny import CLASSES, SIZE, contents, save_onnx

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parent.parent
N = 70
SQUARE = {"name": "square", "parameters": {"epsilon": 4, "queries": 10}}
SETTINGS: dict[str, Any] = {
    "needs": [{"minimum": 2}, {"where": {"weather": "fog", "time_of_day": "night"}, "minimum": 12, "weight": 2.0}],
    "layers": None,
    "activation_k": [1, 2],
    "transformers": [{"name": "rotation", "level": 3}, {"name": "fgsm", "epsilon": 4}, SQUARE],
    "loss_images": 42,
    "frequencies": {"weather": {"clear": 0.9, "fog": 0.1, "snow": 0.0}},
    "threshold": 0.5,
    "proposals": 100,
    "occlusion": {"patch": 8, "stride": 8, "images": 14, "rho": 0.95, "relative": True, "pictures": 3},
    "severity": "traffic_signs",
    "slices": {"support": 5, "limit": 1},
}


def content(
    models: dict[str, Any], n: int = N, settings: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    return {
        "name": "dependable",
        "size": SIZE,
        "data": {"test": {"builtin": "signs", "n": n}},
        "models": models,
        "protocols": {"dependability": SETTINGS if settings is None else settings},
        **changes,
    }


def hidden_net() -> TorchModel:
    """The nearest mean with a hidden layer that passes it through, so that neurons can be counted."""
    inner = nearest_mean().module
    network = torch.nn.Sequential(*inner, torch.nn.ReLU(), torch.nn.Linear(CLASSES, CLASSES, bias=False))
    with torch.no_grad():
        network[1].bias.add_(8.0)
        network[3].weight.copy_(torch.eye(CLASSES))
    return TorchModel(network, size=SIZE, outputs="logits", name="net")


def run(out: Path, models: dict[str, Any], workers: int = 1, **changes: Any) -> Any:
    study, _ = load_study(content({name: f"<{name}>" for name in models}, **changes))
    return execute(prepare(study, models=models, accept_chance=True), out, workers=workers)


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_onnx(tmp_path_factory.mktemp("model") / "tiny.onnx", gain=3.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, onnx: Path) -> Any:
    from roadworthy.models import load_model

    models = {"net": hidden_net(), "tiny": load_model(str(onnx), name="tiny")}
    criteria = [
        {
            "id": "C1",
            "metric": "scenario_coverage",
            "where": {"protocol": "dependability", "data": "test"},
            "at_least": 0.5,
        },
        {
            "id": "C2",
            "metric": "accuracy",
            "where": {"protocol": "dependability", "model": "net", "scope": ["weather=fog", "weather=rain"]},
            "at_least": 0.999,
        },
        {"id": "C3", "metric": "confidence_loss", "where": {"protocol": "dependability"}, "at_least": -1.0},
    ]
    return run(tmp_path_factory.mktemp("dependable") / "run", models, criteria=criteria)


@pytest.fixture(scope="module")
def figures(finished: Any) -> pd.Series:
    table: pd.Series = finished.tables["dependability"].set_index(["model", "scope", "metric"])["value"]
    return table


@pytest.fixture(scope="module")
def data() -> BuiltinDataset:
    return BuiltinDataset("signs", Opening(size=SIZE), n=N)


def answers_of(finished: Any, model: str, name: str = "none") -> Any:
    node, case = next(
        (node, case)
        for node, case in finished.record.cases.items()
        if (case.kind, case.system, case.stimulus.name) == ("model", model, name)
    )
    return read_case(finished.path / case.folder, node)


def test_all_eight_are_there_and_follow_from_what_is_stored(finished: Any, figures: pd.Series) -> None:
    metrics = set(figures.index.get_level_values("metric"))
    assert metrics >= {
        *("scenario_coverage", "neuron_activation_1", "neuron_activation_2", "neuron_pattern", "confidence_loss"),
        *("accuracy", "accuracy_discounted", "domain_share", "interpretation_precision", "occlusion_covering"),
        "weighted_confusion",
    }
    assert finished.verify() == []
    assert (finished.path / "tables" / "dependability_proposals.csv").is_file()


def test_what_the_tables_need_besides_readouts_is_in_the_record_as_values(finished: Any) -> None:
    part = finished.record.protocols["dependability"].sources[""]
    labels = [(asked.system, asked.labels) for asked in part.cases]
    assert labels[:6] == [
        ("data", {"role": "conditions"}),
        ("data", {"role": "object boxes"}),
        ("net", {"role": "undisturbed"}),
        ("net", {"role": "layer", "layer": "penultimate"}),
        ("net", {"role": "heat maps"}),
        ("net", {"role": "masked heat maps"}),
    ]
    assert ("tiny", {"role": "transformer", "transformer": "square epsilon 4"}) in labels
    context = Context.model_validate(part.context)
    assert context.models["net"].scopes["accuracy_discounted"] == ["all"]
    assert list(context.models["tiny"].refused) == ["fgsm epsilon 4"]
    assert context.resolved.columns == list(finished.tables["dependability_proposals"].columns[:5])
    with pytest.raises(ValueError, match="extra"):
        Context.model_validate({**part.context, "layers": []})


def test_coverage_is_that_of_the_function(figures: pd.Series, finished: Any, data: BuiltinDataset) -> None:
    conditions = data.table.conditions
    schema = Schema({name: sorted(set(column.tolist())) for name, column in conditions.items()})
    needs = [Need(minimum=2), Need({"weather": "fog", "time_of_day": "night"}, 12, 2.0)]
    cover = scenario_coverage(schema, conditions, needs=needs, groups=data.groups)
    assert figures["data", "all", "scenario_coverage"] == cover.value
    lacking = list(cover.uncovered())
    assert len(finished.tables["dependability_uncovered"]) == len(lacking) > 0
    proposals = finished.tables["dependability_proposals"]
    assert list(schema.names) == list(proposals.columns[:5])
    assert proposals["coverage_after"].is_monotonic_increasing
    assert proposals["coverage_after"].iloc[-1] == 1.0
    assert figures["net", "all", "accuracy_discounted"] == figures["net", "all", "accuracy"] * cover.value


def test_neurons_are_those_of_the_functions(figures: pd.Series, data: BuiltinDataset) -> None:
    on = np.maximum(hidden_net().features(data.batch(slice(None)), "1"), 0)
    for k in (1, 2):
        counter = NeuronCoverage(CLASSES, k)
        counter.add(on)
        assert figures["net", "layer penultimate", f"neuron_activation_{k}"] == counter.result().value
    fog = on[data.table.conditions["weather"] == "fog"]
    assert figures["net", "layer penultimate, weather=fog", "neuron_pattern"] == activation_pattern(fog).value
    assert figures["net", "layer penultimate", "neuron_pattern"] == activation_pattern(on).value


def test_confidence_loss_is_that_of_the_stored_answers(figures: pd.Series, finished: Any) -> None:
    clean = answers_of(finished, "net")
    shown = {name: answers_of(finished, "net", name) for name in ("rotation", "fgsm", "square")}
    place = {image: row for row, image in enumerate(clean.ids)}
    before = clean.answers.p_label[[place[image] for image in shown["fgsm"].ids]]
    loss = confidence_loss([s.answers.p_label for s in shown.values()], before, list(shown))
    assert len(before) == 42
    assert figures["net", "all", "confidence_loss"] == pytest.approx(loss.value)
    assert figures["net", "fgsm epsilon 4", "confidence_loss"] == pytest.approx(loss.means()["fgsm"])
    worst = finished.tables["dependability_loss"].query("model == 'net'")
    assert worst["change"].is_monotonic_increasing
    assert worst["transformer"].value_counts().to_dict() == {
        {"rotation": "rotation level 3", "fgsm": "fgsm epsilon 4", "square": "square epsilon 4 queries 10"}[name]: count
        for name, count in loss.wins().items()
        if count
    }


def test_a_model_without_gradients_meets_the_black_box_attack(finished: Any, figures: pd.Series) -> None:
    table = finished.tables["dependability_transformers"].query("model == 'tiny'").set_index("transformer")
    assert "gives no gradient: square" in table.loc["fgsm epsilon 4", "reason"]
    assert table.loc["square epsilon 4", "n"] == 42
    assert ("tiny", "square epsilon 4", "confidence_loss") in figures.index


def test_heat_maps_are_those_of_the_functions(figures: pd.Series, finished: Any, data: BuiltinDataset) -> None:
    rows = rows_with_objects(data, 14)
    batch = data.batch(rows)
    assert len(rows) == 14 == len(set(batch.labels.tolist()))
    maps = occlusion_map(hidden_net(), batch, patch=8, stride=8, batch_size=64)
    before = hidden_net().answer(batch, 64).probabilities
    own, right = before[np.arange(14), batch.labels], before.argmax(1) == batch.labels
    scores = occlusion_scores(maps, cells_of_masks(batch.masks, PatchGrid(SIZE, SIZE, 8, 8)), 0.95 * own.astype(float))
    assert 0 < right.sum() < 14
    assert figures["net", "all", "interpretation_precision"] == pytest.approx(np.nanmean(scores.precision[right]))
    assert figures["net", "all", "occlusion_covering"] == pytest.approx(np.nanmean(scores.covering[right]))
    per_image = finished.tables["dependability_occlusion"].query("model == 'net'")
    assert (per_image["reason"] == "misread without a patch").sum() == (~right).sum()
    curve = finished.tables["dependability_rho"].query("model == 'net'").set_index("rho")
    assert curve.loc[0.95, "covering"] == pytest.approx(figures["net", "all", "occlusion_covering"])
    assert curve.loc[0.0, "covering"] == 0
    assert np.isnan(curve.loc[0.0, "precision"])


def test_weighted_confusion_uses_the_shipped_matrix(figures: pd.Series, finished: Any, data: BuiltinDataset) -> None:
    rows = yaml.safe_load((SEVERITIES / "traffic_signs.yaml").read_text())["severity"]
    cost = WeightedConfusion(severity_matrix(data.class_names, rows))
    answers = answers_of(finished, "tiny").answers
    assert figures["tiny", "all", "weighted_confusion"] == cost(answers)
    first = cost.most_expensive(answers, limit=1)[0]
    row = finished.tables["dependability_confusions"].query("model == 'tiny'").iloc[0]
    assert (row["label"], row["count"]) == (data.class_names[first.label], first.count)


def test_degradation_and_the_field(figures: pd.Series, finished: Any, data: BuiltinDataset) -> None:
    answers, weather = answers_of(finished, "net").answers, data.table.conditions["weather"]
    right = answers.correct.astype(float)
    assert figures["net", "weather=fog", "accuracy"] == pytest.approx(right[weather == "fog"].mean())
    expected = 0.9 * right[weather == "clear"].mean() + 0.1 * right[weather == "fog"].mean()
    assert figures["net", "all", "domain_expected"] == pytest.approx(expected)
    assert set(finished.tables["dependability_scenarios"]["conditions"]) == {0, 1, 2}
    domain = finished.tables["dependability_domain"].query("model == 'net'").set_index("situation")
    assert domain.loc["weather=snow", "reason"] == "untested"


def test_criteria_over_scopes(finished: Any) -> None:
    findings = {finding.criterion.id: finding for finding in finished.verdict().findings}
    assert findings["C1"].status == "pass"
    assert findings["C2"].status == "fail"
    assert [row.measurement.where["scope"] for row in findings["C2"].rows] == ["weather=fog", "weather=rain"]
    assert {row.measurement.where["scope"] for row in findings["C3"].rows} == {"all"}


@pytest.mark.parametrize(
    ("criterion", "sentence"),
    [
        ({"metric": "acuracy"}, "unknown metric 'acuracy': did you mean 'accuracy'"),
        ({"metric": "ece"}, "unknown metric 'ece'"),
        ({"metric": "accuracy", "where": {"scope": "weather=hail"}}, "asks for scope 'weather=hail'"),
        ({"metric": "accuracy", "where": {"shift": "fog"}}, "unknown condition 'shift'"),
        ({"metric": "accuracy", "over": "pooled"}, "cannot be pooled"),
    ],
)
def test_a_criterion_that_matches_nothing_stops_before_anything_is_written(
    tmp_path: Path, onnx: Path, criterion: dict[str, Any], sentence: str
) -> None:
    where = {"protocol": "dependability", **criterion.pop("where", {})}
    study = content({"tiny": str(onnx)}, 28, {}, criteria=[{"id": "X", "at_least": 0.5, "where": where, **criterion}])
    with pytest.raises(InputError, match=sentence):
        run_study(study, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_same_bits_with_any_workers_and_resume(finished: Any, tmp_path: Path, onnx: Path) -> None:
    from roadworthy.models import load_model

    models = {"tiny": load_model(str(onnx), name="tiny"), "net": hidden_net()}
    part = tmp_path / "part"
    shutil.copytree(finished.path, part)
    for folder in sorted((part / "readouts").iterdir())[::2]:
        shutil.rmtree(folder)
    criteria = finished.record.criteria
    resumed = run(part, models, workers=3, criteria=[{k: v for k, v in c.items() if v is not None} for c in criteria])
    assert contents(resumed.path) == contents(finished.path)


class Counting(CallableModel):
    """Counts its questions and stops after some of them."""

    asked, most = 0, 10**9

    def predict(self, batch: Batch) -> Any:
        if self.asked >= self.most:
            raise KeyboardInterrupt
        self.asked += 1
        return super().predict(batch)


def flat(images: Any) -> Any:
    light = images.reshape(len(images), -1).mean(axis=1) / 255
    return np.stack([light, 1 - light], axis=1)


def heat_maps(model: Any, data: Dataset) -> HeatMaps:
    rows = {name: row for row, name in enumerate(data.ids)}
    return HeatMaps(model, model.fingerprint(), data.name, rows, "grey", PatchGrid(16, 16, 8, 8), 0)


def test_heat_maps_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    images = np.full((20, 16, 16, 3), 255, np.uint8)
    data = Marked(open_dataset((images, np.zeros(20, int), ["light", "dark"])))

    def show(folder: Path, most: int = 10**9) -> tuple[int, list[Path]]:
        """How often the model was asked, and the files of the case."""
        model = Counting(flat, num_classes=2, version="1", name="light")
        model.most = most
        showing = PlannedStimulus(Stimulus(data.fingerprint()), data)
        case = Bench(data, {}, seed=0, batch=8, chunk=1024).case(showing, heat_maps(model, data))
        store = RunFolder(folder)
        with store.locked(), suppress(KeyboardInterrupt):
            assert LocalExecutor().run(Graph([case], 8), store).failures == {}
        return model.asked, sorted(store.case(case.case.key).iterdir())

    asked, whole = show(tmp_path / "whole")
    assert [path.name for path in whole] == ["manifest.json", *(f"part-0000{part}.parquet" for part in range(3))]
    _, stopped = show(tmp_path / "part", most=asked // 2)
    assert [path.name for path in stopped] == ["part-00000.parquet", "part-00000.parquet.sha256"]
    rest, again = show(tmp_path / "part")
    assert 0 < rest < asked
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in whole]


def test_images_that_fill_up_a_batch_are_not_shown_under_a_patch(data: BuiltinDataset) -> None:
    few = data.batch([3, 1])
    model = Counting(lambda images: np.full((len(images), CLASSES), 1 / CLASSES), num_classes=CLASSES, version="1")
    maps = HeatMaps(model, "", data.name, {few.ids[0]: 3, few.ids[1]: 1}, "grey", PatchGrid(SIZE, SIZE, 8, 8), 0)
    padded = maps.read(Signals(model, few.take([0, 1] + [1] * 62), 64))
    alone, asked = maps.read(Signals(model, few, 64)), model.asked
    cells = (SIZE // 8) ** 2
    assert asked == 2 * (1 + -(-2 * cells // 64))
    assert padded["row"].tolist() == [3, 1]
    assert all(np.array_equal(padded[name], alone[name]) for name in alone)


def test_conditions_are_read_without_a_model() -> None:
    kinds = {"lanes": np.array([1, 2]), "speed": np.array([0.5, np.nan]), "wet": np.array([True, False])}
    mixed = np.array(["fog", None], dtype=object)
    images = np.zeros((2, 4, 4, 3), np.uint8)
    batch = Batch(("a", "b"), images, np.zeros(2, np.int64), conditions={**kinds, "weather": mixed})
    signals = Signals(None, batch, 2)
    columns = Conditions().read(signals)
    assert columns["condition:lanes"].dtype.kind == "i"
    assert columns["condition:speed"][0] == 0.5
    assert np.isnan(columns["condition:speed"][1])
    assert columns["condition:wet"].tolist() == ["True", "False"]
    assert columns["condition:weather"].tolist() == ["fog", ""]
    with pytest.raises(InputError, match="no model is asked here"):
        _ = signals.probabilities


def test_the_last_layer_of_a_reference_network_is_known_before_it_is_trained(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)
    data = open_dataset((images, np.arange(20) % 2, ["a", "b"]))
    model = ReferenceModel("resnet", width=16, epochs=1, floor=0.0, name="net").on(data)
    before, layer = penultimate(model), Layer(model, model.fingerprint(), "penultimate", 0.0)
    assert network_of(model) is network_of(model)
    model.build(tmp_path)
    model.load(tmp_path)
    assert before == penultimate(model) == penultimate(model.opened())
    assert network_of(model) is model.opened()
    batch = data.batch(slice(0, 5))
    bits = layer.read(Signals(model, batch, 8))
    expected = Signals(model.opened(), batch, 8).activations(before) > 0
    assert bits["neurons"].tolist() == [expected.shape[1]] * 5
    assert np.array_equal(np.unpackbits(bits["on"], axis=1, count=expected.shape[1]), expected)


class Marked(Dataset):
    """Another data set with a mask for every image, of any size, and conditions."""

    def __init__(self, data: Dataset, size: int | None = None) -> None:
        self.data, self.mask_size = data, size or data.size[0]
        self.name, self.class_names, self.size, self.channels = "marked", data.class_names, data.size, data.channels

    def __len__(self) -> int:
        return len(self.data)

    def fingerprint(self) -> str:
        return f"marked {self.mask_size} {self.data.fingerprint()}"

    @property
    def ids(self) -> tuple[str, ...]:
        return self.data.ids

    @property
    def labels(self) -> Any:
        return self.data.labels

    @property
    def groups(self) -> tuple[str, ...]:
        return self.data.groups

    def batch(self, rows: Any) -> Batch:
        batch = self.data.batch(rows)
        masks = np.zeros((len(batch), self.mask_size, self.mask_size), bool)
        masks[:, :4, :4] = True
        return batch.with_images(batch.images, masks=masks)


def npz(path: Path, **columns: Any) -> str:
    """24 grey images of two classes, one in three brighter, with masks in the corner."""
    images = np.full((24, 16, 16, 3), 60, np.uint8)
    images[::2] = 200
    masks = np.zeros((24, 16, 16), bool)
    masks[:, :8, :8] = True
    labels = np.arange(24) % 2
    np.savez(path, images=images, labels=labels, class_names=np.array(["light", "dark"]), masks=masks, **columns)
    return str(path)


def edge_run(tmp_path: Path, settings: dict[str, Any], model: Any = None, criteria: Any = None, **columns: Any) -> Any:
    study = {
        **({"criteria": criteria} if criteria else {}),
        "data": {"test": npz(tmp_path / "data.npz", **columns)},
        "models": {"m": "<m>"},
        "protocols": {"dependability": {"transformers": ["rotation"], **settings}},
    }
    model = model or CallableModel(flat, num_classes=2, version="1", name="m")
    return execute(prepare(load_study(study)[0], models={"m": model}, accept_chance=True), tmp_path / "run", workers=1)


def row(run: Any, metric: str, scope: str = "all", model: str = "m") -> Any:
    table = run.tables["dependability"]
    found = table[(table["metric"] == metric) & (table["scope"] == scope) & (table["model"] == model)]
    return found.iloc[0]


def test_one_value_an_unused_value_and_missing_labels(tmp_path: Path) -> None:
    light = np.array(["day", ""] * 12)
    schema = {"road": ["tarmac"], "light": ["day", "night"]}
    run = edge_run(tmp_path, {"conditions": schema}, road=np.array(["tarmac"] * 24), light=light)
    cover = row(run, "scenario_coverage", model="data")
    assert cover["value"] == 0.5
    assert cover["reason"] == "12 images without light"
    assert run.tables["dependability_uncovered"]["value_2"].tolist() == ["night"]
    assert run.tables["dependability_proposals"][["road", "light"]].to_numpy().tolist() == [["tarmac", "night"]]
    assert row(run, "accuracy", "light=day")["n"] == 12
    unused = row(run, "accuracy", "light=night")
    assert (unused["n"], unused["reason"]) == (0, "no image of this scope")
    assert row(run, "neuron_activation_2", "layer penultimate")["reason"] == "model m gives no features"
    assert row(run, "weighted_confusion")["reason"] == "the study names no severity matrix"
    assert run.verify() == []


def test_no_hot_cell_is_undefined_and_no_conditions_are_said(tmp_path: Path) -> None:
    run = edge_run(tmp_path, {"occlusion": {"patch": 8, "stride": 8, "rho": 0.0, "images": 24}})
    precision = row(run, "interpretation_precision")
    assert np.isnan(precision["value"])
    assert precision["reason"] == "24 of 24 images: no hot cell"
    assert row(run, "occlusion_covering")["value"] == 0
    assert row(run, "scenario_coverage", model="data")["reason"] == "the data set data has no columns of conditions"
    assert np.isnan(row(run, "accuracy_discounted")["value"])
    assert "no hot cell" in (run.path / "report.html").read_text()


def test_a_layer_that_never_fires(tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        network[1].weight.zero_()
        network[1].bias.fill_(-1.0)
    model = TorchModel(network, size=16, outputs="logits", name="m")
    run = edge_run(tmp_path, {"layers": ["2"], "activation_k": [1, 2, 5]}, model)
    assert row(run, "neuron_activation_1", "layer 2")["value"] == 0.5
    assert row(run, "neuron_activation_2", "layer 2")["reason"] == "no neuron is ever on"
    assert row(run, "neuron_pattern", "layer 2")["reason"] == "no neuron is ever on"
    assert row(run, "neuron_activation_5", "layer 2")["reason"] == "the layer has 4 neurons"
    with pytest.raises(InputError, match="layers: unknown layer of model m 'relu'"):
        edge_run(tmp_path, {"layers": ["relu"]}, model)


def test_a_layer_that_fails_leaves_the_other_its_value_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Layer.read

    def broken(self: Layer, signals: Any) -> Any:
        if self.layer != "2":
            raise ModelError(f"no luck with {self.layer}")
        return read(self, signals)

    monkeypatch.setattr(Layer, "read", broken)
    parts = torch.nn.Flatten(), torch.nn.Linear(768, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    model = TorchModel(torch.nn.Sequential(*parts), size=16, outputs="logits", name="m")
    run = edge_run(tmp_path, {"layers": ["0", "2", "1"], "activation_k": [1, 5]}, model, weather=np.array(["a"] * 24))
    assert row(run, "neuron_activation_1", "layer 2")["value"] >= 0.5
    assert row(run, "neuron_activation_5", "layer 2")["reason"] == "the layer has 4 neurons"
    for layer in ("0", "1"):
        for metric in ("neuron_activation_1", "neuron_activation_5", "neuron_pattern"):
            assert row(run, metric, f"layer {layer}")["reason"] == f"no luck with {layer}"
        assert row(run, "neuron_pattern", f"layer {layer}, weather=a")["reason"] == f"no luck with {layer}"
    assert run.verify() == []


def test_unknown_layers_of_one_model_of_two_have_their_own_reasons(tmp_path: Path) -> None:
    parts = torch.nn.Flatten(), torch.nn.Linear(768, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    named = dict(zip(("flat", "first", "relu", "last"), parts, strict=True))
    models = {
        "m": TorchModel(torch.nn.Sequential(OrderedDict(named)), size=16, outputs="logits", name="m"),
        "other": TorchModel(torch.nn.Sequential(*parts), size=16, outputs="logits", name="other"),
    }
    study = {
        "data": {"test": npz(tmp_path / "data.npz")},
        "models": dict.fromkeys(models, "<m>"),
        "protocols": {"dependability": {"transformers": ["rotation"], "layers": ["first", "relu"]}},
    }
    prepared = prepare(load_study(study)[0], models=models, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=1)
    for layer in ("first", "relu"):
        reason = row(run, "neuron_activation_1", f"layer {layer}", "other")["reason"]
        assert reason.startswith(f"unknown layer of model other '{layer}'")


def test_conditions_that_cannot_be_read_cost_the_figures_that_need_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Conditions, signals: Any) -> Any:
        raise ValueError("no weather today")

    monkeypatch.setattr(Conditions, "read", broken)
    conditions = {"weather": np.array(["a", "b"] * 12), "time": np.arange(24.0)}
    settings = {"axis": {"column": "time"}, "frequencies": {"weather": {"a": 0.5, "b": 0.5}}, "metrics": ["accuracy"]}
    run = edge_run(tmp_path, settings | {"threshold": 0.5}, **conditions)
    table = run.tables["dependability"].set_index(["metric", "scope"])
    assert table["value"]["accuracy", "all"] == 1.0
    assert not table["value"][[("confidence_loss", "all"), ("occlusion_covering", "all")]].isna().any()
    needing = ["scenario_coverage", "accuracy_discounted", "domain_share", "domain_expected", "time_between_failures"]
    for key in [("accuracy", "weather=a"), *((metric, "all") for metric in needing)]:
        assert "no weather today" in table["reason"][key], key
    assert run.verify() == []
    assert "no weather today" in (run.path / "report.html").read_text()


def test_a_mask_of_the_wrong_size_names_the_data() -> None:
    data = Marked(open_dataset((np.full((4, 16, 16, 3), 255, np.uint8), np.zeros(4, int), ["light", "dark"])), size=8)
    model = CallableModel(flat, num_classes=2, version="1", name="light")
    with pytest.raises(InputError, match=r"data set marked: masks must be bool \(n, 16, 16\)"):
        heat_maps(model, data).read(Signals(model, data.batch(slice(0, 4)), 8))


def test_what_cannot_be_asked_is_a_reason_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: HeatMaps, signals: Any) -> Any:
        raise ModelError("model m raised RuntimeError: out of patience")

    monkeypatch.setattr(HeatMaps, "read", broken)
    run = edge_run(tmp_path, {})
    assert "out of patience" in row(run, "interpretation_precision")["reason"]
    assert row(run, "accuracy")["value"] == 1.0
    assert run.verify() == []
    assert "out of patience" in (run.path / "report.html").read_text()


def test_a_model_that_answers_nothing_ends_the_run(tmp_path: Path) -> None:
    """The conditions of the data can always be read: they alone are no result."""
    tired = False

    def answer(images: Any) -> Any:
        if tired:
            raise RuntimeError("out of patience")
        return flat(images)

    study = {"data": {"test": npz(tmp_path / "data.npz")}, "models": {"m": "<m>"}, "protocols": {"dependability": {}}}
    model = CallableModel(answer, num_classes=2, version="1", name="m")
    prepared = prepare(load_study(study)[0], models={"m": model}, accept_chance=True)
    tired = True
    with pytest.raises(ModelError, match=r"every case failed; the first: .*out of patience"):
        execute(prepared, tmp_path / "run", workers=1)


def test_the_curve_over_rho_counts_the_images_that_the_figure_counts(tmp_path: Path) -> None:
    def soft(images: Any) -> Any:
        """Sure of light images (0.76), less so of dark ones (0.57): these are below a rho of 0.6 without a patch."""
        light = images.reshape(len(images), -1).mean(axis=1) / 255
        right = np.where(light > 0.5, 0.5 + 0.9 * (light - 0.5), 0.7 + 0.9 * (light - 0.5))
        return np.stack([right, 1 - right], axis=1)

    model = CallableModel(soft, num_classes=2, version="1", name="m")
    run = edge_run(tmp_path, {"occlusion": {"rho": 0.6, "patch": 8, "stride": 8, "images": 24}}, model)
    curve = run.tables["dependability_rho"].set_index("rho")
    assert row(run, "occlusion_covering")["n"] == curve.loc[0.6, "covering_images"] == 12
    assert row(run, "occlusion_covering")["value"] == curve.loc[0.6, "covering"] == 0
    assert np.isnan(row(run, "interpretation_precision")["value"])
    assert np.isnan(curve.loc[0.6, "precision"])
    assert curve.loc[0.5, "covering_images"] == 24
    assert curve.loc[1.0, "covering_images"] == 0


def test_columns_that_are_no_conditions_are_said(tmp_path: Path) -> None:
    columns = {"moment": np.array([f"t{i}" for i in range(24)]), "weather": np.array(["dry", "wet"] * 12)}
    run = edge_run(tmp_path, {}, speed=np.arange(24) + 0.5, **columns)
    cover = row(run, "scenario_coverage", model="data")
    said = "moment is no condition: it has 24 values, more than 20"
    assert said in cover["reason"]
    assert "speed is no condition: it has numbers that are not whole" in cover["reason"]
    assert said in (run.path / "report.html").read_text()
    assert list(run.tables["dependability_proposals"].columns[:1]) == ["weather"]
    assert run.verify() == []


def test_one_condition_alone_needs_no_k(tmp_path: Path) -> None:
    run = edge_run(tmp_path, {}, weather=np.array(["dry", "wet"] * 12))
    assert row(run, "scenario_coverage", model="data")["value"] == 1.0
    assert set(run.tables["dependability_cells"]["value_1"]) == {"dry", "wet"}


def test_whole_numbers_with_gaps_are_conditions_and_meet_their_frequencies(tmp_path: Path) -> None:
    lanes = np.array(["1", "2", "", "2"] * 6)
    run = edge_run(tmp_path, {"frequencies": {"lanes": {"1": 0.5, "2": 0.5}}}, lanes=lanes)
    assert row(run, "accuracy", "lanes=2")["n"] == 12
    assert row(run, "scenario_coverage", model="data")["reason"] == "6 images without lanes"
    assert row(run, "domain_share")["reason"] == ""
    assert row(run, "domain_expected")["value"] == 1.0


def test_what_the_search_refuses_is_an_error_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any, **settings: Any) -> Any:
        raise ValueError("no scenario can be proposed")

    monkeypatch.setattr("roadworthy.protocols.dependability.measures.scenario_proposals.propose_for", refused)
    with pytest.raises(InputError, match="dependability: no scenario can be proposed"):
        edge_run(tmp_path, {}, weather=np.array(["dry", "wet"] * 12))


def test_no_figure_rests_on_a_search(finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict must not wait for slices and proposals, which can take long."""
    monkeypatch.setattr(ScenarioProposals, "rows", lambda self, data: pytest.fail("proposed"))
    monkeypatch.setattr(WorstSlices, "rows", lambda self, data: pytest.fail("sliced"))
    assert [finding.status for finding in finished.verdict().findings] == ["pass", "fail", "pass"]


def test_every_table_is_declared_by_one_measure_or_search(finished: Any) -> None:
    declared = [spec for step in STEPS for spec in step.tables]
    made = [name for name in finished.tables if name.startswith("dependability_") and not name.endswith("_gallery")]
    assert sorted(spec.name for spec in declared) == sorted(made)
    for spec in declared:
        assert tuple(finished.tables[spec.name].columns)[-len(spec.columns) :] == spec.columns, spec.name


def test_every_planned_figure_belongs_to_one_measure() -> None:
    settings = Settings(axis={"column": "seconds"}, metrics=["accuracy", "ece"])
    resolved = Resolved(
        settings=settings,
        conditions={"weather": ["dry", "wet"]},
        no_schema="",
        severity=None,
        situations=[({"weather": "dry"}, 1.0)],
        grid=(16, 16, 8, 8),
    )
    before = BeforeRun(resolved, ["stop"], ["fog level 3"])
    planned = [
        (metric, scope) for measure in MEASURES for metric, scopes in measure.scopes(before).items() for scope in scopes
    ]
    assert len(set(planned)) == len(planned)
    assert {("confidence_loss", "fog level 3"), ("ece", "weather=wet"), ("occlusion_covering", "class stop")} <= {
        *planned
    }
    assert {metric.name for measure in MEASURES for metric in measure.metrics} <= {metric for metric, _ in planned} | {
        "scenario_coverage"
    }


def test_a_model_called_data_is_refused(tmp_path: Path) -> None:
    study = content({"data": "<data>"}, 28, {})
    model = CallableModel(flat, num_classes=CLASSES, version="1", name="data")
    with pytest.raises(InputError, match="no model can be called 'data'"):
        execute(prepare(load_study(study)[0], models={"data": model}, accept_chance=True), tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_a_layer_that_no_network_has_is_refused_before_the_run(tmp_path: Path, onnx: Path) -> None:
    with pytest.raises(InputError, match="layers: unknown layer of model tiny 'pixel': did you mean 'pixels'"):
        run_study(content({"tiny": str(onnx)}, 28, {"layers": ["pixel"]}), out=tmp_path / "run")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2))
    model = TorchModel(network, size=16, outputs="logits", name="m", classes=["dark", "light"])
    with pytest.raises(InputError, match="layers: unknown layer of model m '7'"):
        edge_run(tmp_path, {"layers": ["7"]}, model)
    assert not (tmp_path / "run").exists()


def test_the_summary_names_what_its_own_model_lacks(finished: Any) -> None:
    from roadworthy.protocols.dependability.facts import load_dependability, sentences
    from roadworthy.report.facts import load_facts

    found = load_dependability(finished.path, load_facts(finished.path))
    kept = {
        key: replace(cell, value=np.nan) if key[0] == "tiny" and key[2] == "weighted_confusion" else cell
        for key, cell in found.figures.items()
    }
    changed = replace(found, figures=kept)
    assert not any("weighted_confusion" in words for words in sentences(changed, "net"))
    assert any("Not measured" in words and "weighted_confusion" in words for words in sentences(changed, "tiny"))


def test_heat_picture_of_a_wide_image_has_its_cells_on_the_image() -> None:
    images, masks = np.full((1, 16, 64, 3), 120, np.uint8), np.zeros((1, 16, 64), bool)
    heat = np.ones((2, 8), np.float32)
    heat[0, 0] = 0.0
    batch = Batch(("a",), images, np.zeros(1, np.int64), masks=masks)
    right = heat_picture(batch, heat, 0.5, PatchGrid(16, 64, 8, 8))[:, 160:]
    # 16x64 on a square of 160: rows 60 to 99, and 20 pixels to a cell.
    assert (right[:60] == 255).all()
    assert (right[100:] == 255).all()
    assert (right[60, :20] == HOT_EDGE).all()
    hot = right[62:78, 2:18].astype(int)
    assert (hot[..., 0] - hot[..., 1] > 60).all()
    assert not (right[60:100, 20:] == HOT_EDGE).all(axis=2).any()
    overlapping = heat_picture(batch, np.ones((3, 15), np.float32), 2.0, PatchGrid(16, 64, 8, 4))[:, 160:]
    # Middles at 4, 8, 12 of 16: cells meet at 6 and 10.
    assert (overlapping[[60, 74, 75, 84, 85, 99], 5] == HOT_EDGE).all()


def test_images_without_a_drive_are_no_drive_of_their_own(tmp_path: Path) -> None:
    columns = {"seconds": np.arange(24.0), "drive": np.array(["a"] * 8 + [""] * 8 + ["b"] * 8)}
    run = edge_run(tmp_path, {"axis": {"column": "seconds", "sequence": "drive"}}, **columns)
    assert row(run, "time_between_failures")["reason"] == "8 images have no drive"


def test_no_failure_is_said_in_words_and_null_in_json(tmp_path: Path) -> None:
    columns = {"seconds": np.arange(24.0), "drive": np.array(["a"] * 12 + ["b"] * 12)}
    where = {"metric": "time_between_failures", "where": {"protocol": "dependability"}}
    criteria = [{"id": "A", "at_least": 5, **where}, {"id": "B", "at_least": 50, **where}]
    run = edge_run(tmp_path, {"axis": {"column": "seconds", "sequence": "drive"}}, criteria=criteria, **columns)
    assert row(run, "time_between_failures")["value"] == np.inf
    stored = json.loads((run.path / "verdict.json").read_text(), parse_constant=pytest.fail)
    first, second = stored["criteria"]
    assert (first["status"], first["rows"][0]["value"], first["rows"][0]["hi"]) == ("pass", None, None)
    assert first["because"].endswith("has no limit (no failure), at least 6.5060: the lower bound reaches 5")
    assert second["because"].endswith("more data would raise it, how much cannot be said")
    page = (run.path / "report.html").read_text()
    assert 'no failure <span class="bounds">(at least 6.5)</span>' in page
    assert run.verify() == []


def test_time_between_failures(tmp_path: Path) -> None:
    seconds = np.arange(24) % 12
    model = CallableModel(lambda images: np.tile([0.9, 0.1], (len(images), 1)), num_classes=2, version="1", name="m")
    columns = {"seconds": seconds.astype(float), "drive": np.array(["a"] * 12 + ["b"] * 12)}
    run = edge_run(tmp_path, {"axis": {"column": "seconds", "sequence": "drive"}}, model, **columns)
    time = row(run, "time_between_failures")
    assert (time["value"], time["groups"]) == (2.0, 2)
    assert "seconds" not in run.tables["dependability_proposals"].columns


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layers": ["relu"]}, "layers: model m gives no features"),
        ({"k": 3}, "k is 3, but there are 1 conditions: weather"),
        ({"conditions": {"weather": ["dry"]}}, "conditions of data: row 1: weather = 'wet' is not in the schema"),
        ({"conditions": {"wether": ["dry"]}}, "the data has no condition 'wether'"),
        ({"needs": [{"where": {"weather": "hail"}}]}, "a need names weather"),
        ({"impossible": [{"weather": "wet"}]}, "shows .* which is declared impossible"),
        ({"severity": {"light": "+"}}, "no severity for 'dark' taken for 'light'"),
        ({"severity": "nowhere.yaml"}, "there is no severity file .*shipped are road_users, traffic_signs"),
        ({"frequencies": {"wether": {"dry": 1.0}}}, "frequencies for data: unknown condition 'wether'"),
        ({"metrics": ["ece"], "frequencies": {"weather": {"dry": 1.0}}}, "a mean over images of which more is better"),
        ({"axis": {"column": "weather"}}, "axis 'weather' of data must hold numbers"),
        ({"occlusion": {"patch": 99}}, "a patch of 99 pixels does not fit"),
        ({"transformers": ["fogg"]}, "unknown shift 'fogg': did you mean 'fog'"),
        ({"transformers": [{"name": "fgsm", "epsilon": 0.5}]}, "epsilon must be a whole number"),
        ({"transformers": [{"name": "fgsm", "epsilon": 4, "level": 1}]}, "give one of level, epsilon and parameters"),
        ({"conditions": "nowhere.yaml"}, "cannot read conditions nowhere.yaml"),
        (
            {"frequencies": {"weather": {"dry": 0.5, "wett": 0.5}}},
            "unknown value of weather 'wett': did you mean 'wet'",
        ),
    ],
)
def test_settings_that_do_not_fit_are_one_sentence(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        edge_run(tmp_path, {"k": 1, **settings}, weather=np.array(["dry", "wet"] * 12))
    assert not (tmp_path / "run").exists()


def test_names_of_columns_and_too_many_slices_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a condition cannot be called 'proposal'"):
        edge_run(tmp_path, {}, proposal=np.array(["a", "b"] * 12))
    many = {f"c{i}": np.array([f"v{j % 20}" for j in range(24)]) for i in range(24)}
    with pytest.raises(InputError, match="conditions of data: more than 100,000 slices"):
        edge_run(tmp_path, {}, **many)
    assert not (tmp_path / "run").exists()


def test_conditions_and_severities_from_files_are_kept_in_the_run(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(
        yaml.safe_dump({"conditions": {"weather": ["dry", "wet", "snow"]}, "impossible": [{"weather": "snow"}]})
    )
    (tmp_path / "cost.yaml").write_text(yaml.safe_dump({"severity": {"light": "++"}, "default": 1}))
    npz(tmp_path / "data.npz", weather=np.array(["dry", "wet"] * 12))
    (tmp_path / "code.py").write_text(
        "import numpy as np\ndef flat(images):\n    return np.tile([0.6, 0.4], (len(images), 1))\n"
    )
    study = {
        "data": {"test": "data.npz"},
        "models": {"m": {"callable": "code.py:flat", "num_classes": 2, "version": "1"}},
        "protocols": {
            "dependability": {"conditions": "odd.yaml", "k": 1, "severity": "cost.yaml", "transformers": ["blur"]}
        },
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    run = run_study(tmp_path / "study.yaml", out=tmp_path / "run", trust=True, accept_chance=True)
    assert row(run, "scenario_coverage", model="data")["value"] == 1.0
    assert row(run, "weighted_confusion")["value"] == pytest.approx(12 / 36)
    stored = yaml.safe_load((tmp_path / "run" / "study.yaml").read_text())["protocols"]["dependability"]
    assert stored["conditions"]["weather"] == ["dry", "wet", "snow"]
    (tmp_path / "odd.yaml").unlink()
    assert Run(tmp_path / "run").verify() == []


def test_stored_predictions_get_reasons_or_a_clear_refusal(tmp_path: Path, onnx: Path) -> None:
    study = content({"tiny": str(onnx)}, 28, {})
    export_study(study, tmp_path / "export")
    manifest = pd.read_csv(tmp_path / "export" / "manifest.csv")
    names = (tmp_path / "export" / "classes.txt").read_text().splitlines()
    answers = manifest[["stimulus", "id"]].assign(**dict.fromkeys(names, 1 / len(names)))
    answers.to_csv(tmp_path / "answers.csv", index=False)
    stored = content({"s": {"predictions": str(tmp_path / "answers.csv")}}, 28, {})
    run = run_study(stored, out=tmp_path / "run", accept_chance=True)
    assert "stored predictions" in row(run, "interpretation_precision", model="s")["reason"]
    assert row(run, "confidence_loss", model="s")["n"] == 28
    with pytest.raises(InputError, match="occlusion: model s is stored predictions"):
        run_study({**stored, "protocols": {"dependability": {"occlusion": {}}}}, out=tmp_path / "other")
    with pytest.raises(InputError, match="square level 3 attacks model s"):
        run_study({**stored, "protocols": {"dependability": {"transformers": ["square"]}}}, out=tmp_path / "other")


def test_report_shows_the_eight_from_stored_tables(finished: Any) -> None:
    page = (finished.path / "report.html").read_text()
    for words in ("Scenarios to collect next", "Which transformer hurts most", "Worst slices", "Precision over rho"):
        assert words in page
    charts = json.loads(page.partition('id="figures">')[2].partition("</script>")[0])
    names = ("cover-pairs", "neurons", "patterns", "loss-0", "wins-1", "pairs-0", "scenarios", "rho-covering")
    assert {f"dependability-{name}" for name in names} <= set(charts)
    assert len(finished.tables["dependability_heat_gallery"]) > 0
    for media in finished.tables["dependability_heat_gallery"]["media"]:
        assert (finished.path / "media" / media).is_file()


def test_listing_and_settings_name_everything() -> None:
    from roadworthy.listing import listing

    assert "dependability" in dict(listing("protocols"))
    assert {"fgsm", "square"} <= set(dict(listing("shifts")))
    assert "occlusion_covering" in dict(listing("metrics"))
    assert Settings().inlined(Path()) == Settings()
    assert Transformer(name="rotation").shift().level == 3


@pytest.mark.parametrize(
    ("name", "objects"), [("pennfudan", {"pedestrian"}), ("camvid", {"vehicle", "sign", "pedestrian"})]
)
def test_real_masks(shared_data: Path, tmp_path: Path, name: str, objects: set[str]) -> None:
    archive = shared_data / f"{name}.zip"
    if not archive.is_file():
        pytest.skip(f"{archive} is absent")
    spec = importlib.util.spec_from_file_location("street_masks", ROOT / "examples" / "street_masks.py")
    assert spec is not None
    assert spec.loader is not None
    street = importlib.util.module_from_spec(spec)
    sys.modules["street_masks"] = street
    spec.loader.exec_module(street)
    scenes = list(itertools.islice(street.SETS[name](archive), 4))
    cut = street.crops(scenes, views=2, empty=2)
    labels = {crop.label for crop in cut}
    assert labels - {"background"} <= objects
    assert len(labels) >= 2
    for crop in cut:
        assert crop.mask.any() == (crop.label != "background")
        assert crop.mask.shape == crop.image.shape[:2] == (street.SIZE, street.SIZE)
    street.save(tmp_path / "test.npz", cut, sorted(labels))
    classes = len(labels)

    def edges(images: Any) -> Any:
        """More of the first class where there is more contrast."""
        contrast = images.std(axis=(1, 2, 3)) / 128
        return np.column_stack([contrast, *[(1 - contrast) / (classes - 1)] * (classes - 1)])

    study = {
        "data": {"test": str(tmp_path / "test.npz")},
        "models": {"edges": "<edges>"},
        "protocols": {
            "dependability": {
                "transformers": ["blur"],
                "occlusion": {"patch": 12, "stride": 12, "rho": 0.98, "relative": True, "images": 12},
            }
        },
    }
    model = CallableModel(edges, num_classes=classes, version="1", name="edges")
    run = execute(
        prepare(load_study(study)[0], models={"edges": model}, accept_chance=True), tmp_path / "run", workers=1
    )
    maps = run.tables["dependability_occlusion"]
    assert len(maps) == min(12, sum(crop.label != "background" for crop in cut))
    assert (maps["occluding"] > 0).all()
    assert "background" not in set(maps["label"])


def test_what_is_expected_in_the_field_lies_where_its_metric_does() -> None:
    _, expected = FieldPerformance().metrics_of(Settings(metrics=["brier", "accuracy"]))
    assert (expected.limits(num_classes=14), expected.percent) == ((0.0, 2.0), False)
