"""Model, monitor and threshold as one ONNX file: it decides as the monitor does, run by ONNX Runtime alone."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import roadworthy as rw
from commands import call
from roadworthy.api import monitor_decisions
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.data import BuiltinDataset, Opening
from roadworthy.models import OnnxModel, TorchModel, align, load_model
from roadworthy.models.preprocess import Preprocess
from roadworthy.models.signals import LiveTraining, Signals
from roadworthy.monitors import FittedMonitor, Learned, Monitor, make_monitor
from roadworthy.monitors.id_threshold import IdRule, IdThreshold, id_threshold
from roadworthy.monitors.onnx_export import (
    DESCRIPTION,
    ONNX_FILE,
    ONNX_SCORES,
    ModelGraph,
    NotExportable,
    OnnxExport,
    compare_decisions,
    export_onnx_monitor,
    why_not_exportable,
)
from roadworthy.monitors.onnx_export.builder import GraphBuilder, value_info
from roadworthy.monitors.onnx_export.export import rounded_up
from roadworthy.monitors.onnx_export.preprocessing import add_preprocessing
from roadworthy.uncertainty.temperature import Temperature
from tiny import write_npz

SIZE, CLASSES = 32, 14
MONITORS: dict[str, tuple[str, dict[str, Any]]] = {
    "msp": ("msp", {}),
    "max_logit": ("max_logit", {}),
    "energy": ("energy", {}),
    "warm": ("energy", {"temperature": 10.0}),
    "kl_matching": ("kl_matching", {}),
    "doctor": ("doctor", {}),
    "beta": ("doctor", {"variant": "beta", "temperature": 3.0}),
    "entropy": ("entropy", {}),
    "margin": ("margin", {}),
    "gen": ("gen", {}),
    "few": ("gen", {"gamma": 0.5, "largest": 3}),
    "temperature_msp": ("temperature_msp", {}),
    "cool": ("temperature_msp", {"temperature": 2.5}),
    "mahalanobis": ("mahalanobis", {}),
    "averaged": ("mahalanobis", {"layer": "/9/Relu_output_0"}),
    "vim": ("vim", {}),
    "flat": ("vim", {"dimensions": 0}),
    "react": ("react", {}),
    "deep_knn": ("deep_knn", {"k": 5}),
    "boxes": ("boxes", {"clusters": 3}),
    "neurons": ("boxes", {"reduction": "two_neurons"}),
    "pca": ("boxes", {"reduction": "pca", "clusters": 2}),
    "patterns": ("activation_patterns", {"gamma": 2}),
    "chosen": ("activation_patterns", {"neurons": 20}),
}
"""Every monitor that can be written, by a name for the test."""
ALONE = """
import json, sys
import numpy as np
import onnxruntime
home = sys.argv[1]
tensor = np.load(home + "/tensor.npy")
answers = {}
for name in json.load(open(home + "/names.json")):
    session = onnxruntime.InferenceSession(home + "/" + name + "/monitor.onnx", providers=["CPUExecutionProvider"])
    place = session.get_inputs()[0].name
    parts = [session.run(["score", "accept"], {place: part}) for part in np.split(tensor, 20)]
    answers[name + " score"], answers[name + " accept"] = map(np.concatenate, zip(*parts))
assert not [module for module in sys.modules if module.partition(".")[0] in ("roadworthy", "onnx", "torch", "scipy")]
np.savez(home + "/answers.npz", **answers)
"""


@cache
def demo_model() -> OnnxModel:
    return OnnxModel(str(files("roadworthy") / "demo_classifier.onnx"))


@cache
def training() -> BuiltinDataset:
    return BuiltinDataset("signs", Opening(size=SIZE), n=280, split="train")


@cache
def shown() -> np.ndarray:
    """1,000 images: signs under a little noise, then darker and inverted ones, pure noise and flat grey."""
    drawn = BuiltinDataset("signs", Opening(size=SIZE), n=140).batch(slice(None)).images
    rng = np.random.default_rng(0)
    noisy = drawn[np.arange(700) % 140] // 2 + rng.integers(0, 128, (700, SIZE, SIZE, 3), dtype=np.uint8)
    noisy[:350] = np.minimum(drawn[np.arange(350) % 140], 239) + rng.integers(0, 16, noisy[:350].shape, np.uint8)
    noise = rng.integers(0, 256, (98, SIZE, SIZE, 3), dtype=np.uint8)
    flat = np.broadcast_to(np.array([0, 255], np.uint8)[:, None, None, None], (2, SIZE, SIZE, 3))
    return np.concatenate([noisy, 255 - noisy[:100], noisy[:100] // 8, noise, flat])


class Remembered(LiveTraining):
    """Training data that a model is asked about once for all monitors."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, training(), ())
        self.asked = Signals(model, training().batch(slice(None)))

    def read(self, rows: slice, names: Sequence[str]) -> tuple[np.ndarray, ...]:
        return tuple(self.asked[name][rows] for name in names)


KNOWN: dict[int, tuple[Model, Remembered, Signals]] = {}
"""What each model says of the training images and of those that are shown, asked once for all tests."""


def asked(model: Model) -> tuple[Model, Remembered, Signals]:
    if id(model) not in KNOWN:
        batch = Batch(tuple(map(str, range(1000))), shown(), np.zeros(1000, np.int64))
        KNOWN[id(model)] = model, Remembered(model), Signals(model, batch)
    return KNOWN[id(model)]


def fit(model: Model, monitor: Monitor, rule: IdRule | None = None) -> tuple[FittedMonitor, IdThreshold, np.ndarray]:
    """A monitor built on drawn signs, a threshold that rejects a quarter of the noisy signs, and all scores."""
    _, train, signals = asked(model)
    train.names = {*monitor.signals(model), "labels"}
    fitted = monitor.build(model, train)
    scores = fitted.scores(fitted.represent_signals(signals), Learned())
    predictions, own = signals.probabilities.argmax(axis=1)[:350], monitor.own_threshold
    rule = rule or IdRule("share", rejected=0.25)
    return fitted, id_threshold(scores[:350], np.arange(350), rule, predictions=predictions, own=own), scores


def export(model: Model, monitor: Monitor, home: Path, rule: IdRule | None = None, **options: Any) -> OnnxExport:
    fitted, threshold, _ = fit(model, monitor, rule)
    return export_onnx_monitor(model, fitted, Learned(), threshold, home, **options)


def run(path: Path, tensor: np.ndarray, *names: str) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return session.run([*names] or None, {session.get_inputs()[0].name: tensor})


@pytest.fixture(scope="module")
def all_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Every monitor as a file, with its scores and thresholds of all images by Python."""
    home, expected, model = tmp_path_factory.mktemp("exports"), {}, demo_model()
    predictions = asked(model)[2].probabilities.argmax(axis=1)
    for name, (kind, parameters) in MONITORS.items():
        monitor = make_monitor(kind, **parameters)
        fitted, threshold, scores = fit(model, monitor, IdRule("own") if name in ("boxes", "patterns") else None)
        export_onnx_monitor(model, fitted, Learned(), threshold, home / name)
        expected[name] = scores, threshold.thresholds(1000, predictions), threshold.reject(scores, predictions)
    return home, expected


def test_every_file_decides_as_the_monitor_does_in_a_process_of_its_own(all_files: tuple[Path, dict[str, Any]]) -> None:
    home, expected = all_files
    np.save(home / "tensor.npy", demo_model().preprocess(shown()))
    (home / "names.json").write_text(json.dumps([*expected]))
    subprocess.run([sys.executable, "-I", "-c", ALONE, str(home)], check=True)
    answers = np.load(home / "answers.npz")
    for name, (scores, thresholds, rejected) in expected.items():
        accepted = answers[f"{name} accept"]
        agreement = compare_decisions(answers[f"{name} score"], scores, accepted, thresholds)
        assert agreement.images == 1000
        assert agreement.holds, (name, agreement)
        assert (accepted == ~rejected).mean() >= 0.999, name
        assert 50 < rejected.sum() < 990, (name, rejected.sum())


def test_an_image_on_the_edge_of_its_box_is_inside(tmp_path: Path) -> None:
    """The tolerance of boxes is far below the limit of the comparison with Python."""
    written = export(demo_model(), make_monitor("boxes", clusters=1, tau=0.0, reduction="pca"), tmp_path, IdRule("own"))
    train = asked(demo_model())[1]
    is_right = train.asked.probabilities.argmax(axis=1) == train.labels
    score, accept = run(written.path, demo_model().preprocess(train.asked.images), "score", "accept")
    assert accept[is_right].all()
    assert (score[is_right] == 0).all()


@pytest.mark.parametrize("name", ["msp", "boxes", "patterns", "deep_knn"])
def test_nan_is_never_accepted(name: str, all_files: tuple[Path, dict[str, Any]]) -> None:
    tensor = demo_model().preprocess(shown()[:3])
    tensor[0], tensor[1, 0, 5, 5] = np.nan, np.nan
    score, accept = run(all_files[0] / name / ONNX_FILE, tensor, "score", "accept")
    assert np.isnan(score[:2]).all()
    assert not accept[:2].any()
    assert not np.isnan(score[2])


def test_a_file_of_pixels_takes_the_images_themselves(tmp_path: Path) -> None:
    written = export(demo_model(), make_monitor("energy"), tmp_path / "a", include_preprocessing=True)
    plain = export(demo_model(), make_monitor("energy"), tmp_path / "b")
    images = shown()[:64]
    for one, other in zip(run(written.path, images), run(plain.path, demo_model().preprocess(images)), strict=True):
        np.testing.assert_array_equal(one, other)
    stated = written.description["input"]
    assert stated["shape"] == ["batch", 32, 32, 3]
    assert (stated["type"], stated["layout"], stated["includes_preprocessing"]) == ("uint8", "nhwc", True)
    assert plain.description["input"]["name"] == "image"
    assert plain.description["input"]["includes_preprocessing"] is False


@pytest.mark.parametrize("range_", ["0-1", "0-255", "-1-1", "imagenet", "0.1307/0.3081"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("channels", "colour"), [(3, "rgb"), (3, "bgr"), (1, "rgb")])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "uint8"])
def test_preprocessing_has_the_same_bits(range_: str, layout: str, channels: int, colour: str, dtype: str) -> None:
    if (dtype == "uint8" and range_ != "0-255") or (channels == 1 and range_ == "imagenet"):
        return
    preprocess = Preprocess(range_, layout, colour, (16, 16), channels, dtype)
    images = np.arange(16 * 16 * channels).reshape(1, 16, 16, channels).astype(np.uint8)
    images = np.concatenate([images, 255 - images])
    expected = preprocess(images)
    graph = GraphBuilder(opset=17)
    network = value_info("out", dtype, ("n", *expected.shape[1:]))
    given_input = add_preprocessing(graph, preprocess, (16, 16), network, "images")
    made = helper.make_graph(graph.nodes, "g", [given_input], [network], graph.constants)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"images": images})[0], expected)


def test_a_threshold_for_each_predicted_class(tmp_path: Path) -> None:
    model = demo_model()
    fitted, threshold, _ = fit(model, make_monitor("energy"), IdRule("share", rejected=0.2, per_class=True))
    written = export_onnx_monitor(model, fitted, Learned(), threshold, tmp_path, images=shown()[:300])
    assert len(set(threshold.by_class.values())) > 5
    assert written.agreement.images == 308
    assert written.agreement.flipped == 0
    assert len(written.description["threshold"]["compared"]) == CLASSES
    assert written.description["threshold"]["by_predicted_class"] is True
    assert written.description["tried_on"] == {"sentence": "tried on none: no outliers were shown to it.", "sets": []}


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False))
@settings(max_examples=200, deadline=None)
def test_a_rounded_threshold_rejects_the_same_scores(threshold: float, score: float) -> None:
    cut = rounded_up(threshold, np.float32)
    assert (np.float32(score) >= cut) == (score >= threshold)
    assert (np.float32(threshold if abs(threshold) < 1e30 else 0) >= cut) == (
        float(np.float32(threshold if abs(threshold) < 1e30 else 0)) >= threshold
    )


def test_a_score_that_is_the_threshold_is_accepted(tmp_path: Path) -> None:
    model, images = demo_model(), shown()[:8]
    fitted = make_monitor("max_logit").build(model, None)
    batch = Batch(tuple("abcdefgh"), images, np.zeros(8, np.int64))
    scores = fitted.scores(fitted.represent(model, batch, 8), Learned())
    for cut, accepted in ((scores[3], True), (np.nextafter(scores[3], np.inf), False), (-np.inf, True)):
        threshold = IdThreshold(IdRule(), float(cut), 8, 8, 0.0)
        written = export_onnx_monitor(model, fitted, Learned(), threshold, tmp_path)
        (answer,) = run(written.path, model.preprocess(images), "accept")
        assert answer[3] == accepted
        assert json.loads((tmp_path / DESCRIPTION).read_text())["threshold"]["compared"] == (
            "-inf" if cut == -np.inf else pytest.approx(cut)
        )


def test_the_json_says_all_that_an_integrator_needs(tmp_path: Path) -> None:
    """The test vector is made and checked from the JSON and the file alone."""
    export(named_model(), make_monitor("msp"), tmp_path)
    stated = json.loads((tmp_path / DESCRIPTION).read_text())
    assert stated["sha256"] == hashlib.sha256((tmp_path / stated["file"]).read_bytes()).hexdigest()
    assert stated["classes"] == [*training().class_names]
    assert {name: value["shape"] for name, value in stated["outputs"].items()} == {
        "probabilities": ["batch", CLASSES],
        "score": ["batch"],
        "accept": ["batch"],
    }
    assert "25 % of in-distribution images" in stated["threshold"]["sentence"]
    assert stated["positive"].startswith("Rejected is the positive class")
    given_input, vector = stated["input"], stated["test_vector"]
    row, column, channel = np.meshgrid(*(np.arange(n) for n in (32, 32, 3)), indexing="ij")
    pixels = ((7 * row + 13 * column + 31 * channel) % 256).transpose(2, 0, 1)[None]
    assert (given_input["layout"], given_input["colour"], given_input["range"]) == ("nchw", "rgb", "0-1")
    mean, std = (np.array(given_input[key])[:, None, None] for key in ("mean_rgb", "std_rgb"))
    tensor = ((pixels / 255 - mean) / std).astype(given_input["type"])
    assert hashlib.sha256(tensor.tobytes()).hexdigest() == vector["sha256"]
    probabilities, score, accept = run(tmp_path / stated["file"], tensor, "probabilities", "score", "accept")
    assert probabilities[0].argmax() == vector["class"]
    assert (float(score[0]), bool(accept[0])) == (pytest.approx(vector["score"], rel=1e-4), vector["accept"])


@cache
def named_model() -> Model:
    """The demo model with its first two classes called the other way round, brought to the order of the data."""
    first, second, *others = training().class_names
    return align(OnnxModel(demo_model().path, classes=[second, first, *others]), training().class_names)


@pytest.mark.parametrize("name", ["energy", "kl_matching", "chosen", "pca"])
def test_columns_are_in_the_order_of_the_data(name: str, tmp_path: Path) -> None:
    kind, parameters = MONITORS[name]
    rule = IdRule("share", rejected=0.2, per_class=True)
    written = export(named_model(), make_monitor(kind, **parameters), tmp_path, rule, images=shown()[::20])
    assert written.agreement.flipped == 0
    (probabilities,) = run(written.path, demo_model().preprocess(shown()[:5]), "probabilities")
    expected = demo_model().run(demo_model().preprocess(shown()[:5])).probabilities
    np.testing.assert_allclose(probabilities, expected[:, [1, 0, *range(2, CLASSES)]], rtol=1e-5)


def test_a_temperature_is_part_of_the_file(tmp_path: Path) -> None:
    model = Temperature(demo_model(), 2.5)
    for name in ("msp", "energy"):
        assert export(model, make_monitor(name), tmp_path, images=shown()[::20]).agreement.difference < 1e-6


def test_a_torch_module_is_written_with_the_layer_that_the_monitor_reads(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 64, 24), nn.ReLU(), nn.Linear(24, CLASSES))
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.BatchNorm2d(8), nn.ReLU(), head)
    model = TorchModel(network, size=SIZE, range="imagenet", name="net")
    for monitor in (make_monitor("msp"), make_monitor("vim"), make_monitor("mahalanobis", layer="2")):
        written = export(model, monitor, tmp_path, include_preprocessing=bool(monitor.needs & {"logits"}))
        assert written.agreement.holds
    assert (written.description["input"]["name"], written.description["input"]["range"]) == ("image", "imagenet")


def save_linear(path: Path, opset: int, *, batch: int | str = "batch", names: Mapping[str, str] | None = None) -> Path:
    """A linear network with ReLU features, written in any opset, with an output that nobody uses."""
    rng, names = np.random.default_rng(0), names or {}
    weights = {
        "inner": rng.normal(size=(3 * SIZE * SIZE, 12)) / 30,
        "outer": rng.normal(size=(12, CLASSES)),
        "bias": rng.normal(size=CLASSES),
    }
    called = {name: names.get(name, name) for name in ("image", "features", "logits", "probabilities", "unused")}
    nodes = [
        helper.make_node("Flatten", [called["image"]], ["pixels"]),
        helper.make_node("MatMul", ["pixels", "inner"], ["sums"]),
        helper.make_node("Relu", ["sums"], [called["features"]]),
        helper.make_node("Gemm", [called["features"], "outer", "bias"], [called["logits"]]),
        helper.make_node("Softmax", [called["logits"]], [called["probabilities"]], axis=1),
        helper.make_node("Sigmoid", [called["logits"]], [called["unused"]]),
    ]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info(called["image"], kind, [batch, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(called[name], kind, [batch, CLASSES]) for name in ("probabilities", "unused")],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


@pytest.mark.parametrize("opset", [11, 13, 17, 20])
def test_networks_of_any_opset(opset: int, tmp_path: Path) -> None:
    model = OnnxModel(save_linear(tmp_path / "linear.onnx", opset))
    for name in ("energy", "mahalanobis", "patterns"):
        kind, parameters = MONITORS[name]
        written = export(model, make_monitor(kind, **parameters), tmp_path)
        assert written.agreement.holds
        proto = onnx.load(written.path)
        assert "Sigmoid" not in {node.op_type for node in proto.graph.node}
        assert [output.name for output in proto.graph.output] == ["probabilities", "score", "accept"]


def test_a_network_that_insists_on_a_batch_size(tmp_path: Path) -> None:
    model = OnnxModel(save_linear(tmp_path / "linear.onnx", 17, batch=3))
    written = export(model, make_monitor("deep_knn", k=3), tmp_path, images=shown()[:10])
    assert written.agreement.holds
    assert written.description["input"]["shape"][0] == written.description["outputs"]["accept"]["shape"][0] == 3


@pytest.mark.parametrize("pixels", [False, True])
def test_names_of_the_network_do_not_clash(pixels: bool, tmp_path: Path) -> None:
    names = {"image": "images", "features": "score", "logits": "monitor/constant_1", "unused": "accept"}
    model = OnnxModel(save_linear(tmp_path / "linear.onnx", 17, names=names))
    written = export(model, make_monitor("vim"), tmp_path, include_preprocessing=pixels, images=shown()[:50])
    assert written.agreement.holds
    assert written.description["input"]["name"] == "images"


def test_an_input_with_the_name_of_an_output_is_refused(tmp_path: Path) -> None:
    model = OnnxModel(save_linear(tmp_path / "linear.onnx", 17, names={"image": "score"}))
    with pytest.raises(InputError, match=r"input .* 'score'.*include_preprocessing"):
        export(model, make_monitor("msp"), tmp_path)
    assert export(model, make_monitor("msp"), tmp_path, include_preprocessing=True).agreement.holds


def test_weights_beside_the_file_are_inside_the_export(tmp_path: Path) -> None:
    path = save_linear(tmp_path / "linear.onnx", 17)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = OnnxModel(path)
    written = export(model, make_monitor("msp"), tmp_path / "out")
    path.unlink()
    (tmp_path / "weights.bin").unlink()
    assert run(written.path, model.preprocess(shown()[:2]), "score")[0].shape == (2,)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("random", "draws a number by the name of the image"),
        ("odin", "gradient"),
        ("knn_svm", "all training images"),
        ("openmax", "ONNX_SCORES"),
        ("ae_threshold", "networks of its own"),
    ],
)
def test_a_monitor_without_such_a_form_says_why(name: str, why: str, tmp_path: Path) -> None:
    monitor = make_monitor(name)
    assert why in why_not_exportable(monitor)
    fitted = FittedMonitor(monitor, Learned(), ())
    with pytest.raises(NotExportable, match=f"monitor {name} cannot be written as ONNX: .*{why}"):
        export_onnx_monitor(demo_model(), fitted, Learned(), IdThreshold(IdRule(), 0.0, 1, 1, 0.0), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_isomap_and_functions_cannot_be_written(tmp_path: Path) -> None:
    threshold = IdThreshold(IdRule(), 0.0, 1, 1, 0.0)
    fitted = FittedMonitor(make_monitor("boxes", reduction="isomap"), Learned(), ())
    with pytest.raises(NotExportable, match="isomap cannot be written as ONNX"):
        export_onnx_monitor(demo_model(), fitted, Learned(), threshold, tmp_path)
    options: dict[str, Any] = {"num_classes": 2, "version": "1", "outputs": "probabilities", "name": "f"}
    function = load_model(lambda images: np.tile([0.1, 0.9], (len(images), 1)), **options)
    with pytest.raises(NotExportable, match="model f cannot be written as one ONNX graph"):
        export_onnx_monitor(function, make_monitor("msp").build(function), Learned(), threshold, tmp_path, size=(8, 8))


def test_the_names_of_classes_that_the_model_does_not_know_are_written(tmp_path: Path) -> None:
    model, names = OnnxModel(save_linear(tmp_path / "linear.onnx", 17)), [f"sign {number}" for number in range(CLASSES)]
    assert model.class_names is None
    export(model, make_monitor("msp"), tmp_path / "named", class_names=names)
    assert json.loads((tmp_path / "named" / DESCRIPTION).read_text())["classes"] == names
    assert export(model, make_monitor("msp"), tmp_path / "bare").description["classes"] is None
    with pytest.raises(InputError, match=f"2 class names are given for the {CLASSES} classes of model linear"):
        export(model, make_monitor("msp"), tmp_path / "wrong", class_names=["a", "b"])
    assert not (tmp_path / "wrong").exists()


def test_another_model_is_refused(tmp_path: Path) -> None:
    fitted, threshold, _ = fit(demo_model(), make_monitor("msp"))
    other = OnnxModel(save_linear(tmp_path / "linear.onnx", 17))
    with pytest.raises(InputError, match="was built on another model than linear"):
        export_onnx_monitor(other, fitted, Learned(), threshold, tmp_path)


@dataclass(frozen=True, kw_only=True)
class Lead(Monitor):
    """The largest probability less the mean one: a monitor of somebody else's."""

    name: ClassVar[str] = "lead"

    def read(self, signals: Signals, state: Learned) -> np.ndarray:
        return signals.probabilities.max(axis=1) - signals.probabilities.mean(axis=1)


def test_others_can_register_a_score_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    members = ONNX_SCORES._members
    before = dict(members)
    try:

        @ONNX_SCORES.register("lead")
        def lead_score(graph: ModelGraph, monitor: Lead, state: Learned, rule: Learned) -> str:
            mean = graph.reduce("ReduceMean", graph.probabilities)
            return graph.add("Sub", graph.reduce("ReduceMax", graph.probabilities), mean)

        assert export(demo_model(), Lead(), tmp_path / "a", images=shown()[:40]).agreement.flipped == 0
        members["lead"] = lambda graph, *_: graph.reduce("ReduceMax", graph.probabilities)
        with pytest.raises(InputError, match="does not decide as the monitor does: scores differ by up to 0"):
            export(demo_model(), Lead(), tmp_path / "b", images=shown()[:40])
        assert not (tmp_path / "b").exists()
    finally:
        members.clear()
        members.update(before)


def test_agreement_names_decisions_that_rounding_does_not_explain() -> None:
    scores = np.array([1.0, 2.0, 3.0])
    near = compare_decisions(scores, scores, [True, False, True], [1.00001, 1.5, 1.5])
    assert (near.flipped, near.wrong, near.holds) == (2, 1, False)
    assert "1 decision differs, where the score lies at the threshold (within 0.0001 of its scale)" in near.sentence()
    assert near.sentence().endswith("; 1 decision differs where the score does not lie at the threshold")
    assert replace(near, wrong=0).holds
    assert not compare_decisions([1.0, np.nan, 3.0], scores, [False, False, True], [1.5, 2.5, 1.5]).holds


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of monitors, run by the command line."""
    folder = tmp_path_factory.mktemp("deployed")
    model = str(demo_model().path)
    study = {
        "name": "watched",
        "size": f"{SIZE}x{SIZE}",
        "data": {
            role: str(write_npz(folder / f"{role}.npz", 120, seed))
            for seed, role in enumerate(("train", "validation", "test"))
        },
        "models": {"demo": {"onnx": model}, "trusting": {"onnx": model, "range": "-1-1"}},
        "monitors": {
            "energy": {},
            "near": {"monitor": "deep_knn", "k": 3},
            "boxes": {"reduction": "pca", "clusters": 1, "tau": 1.0},
            "random": {},
        },
        "protocols": {
            "monitoring": {
                "benchmarks": {"fog": {"kind": "distributional_shift", "shift": "fog", "level": 3}},
                "threshold": {"rule": "share", "rejected": 0.1},
                "thresholds": {"near": {"per_class": True}},
                "resamples": 100,
                "timed_images": 0,
            }
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    call("run", folder / "study.yaml", "--out", folder / "run")
    return folder / "run"


@pytest.mark.parametrize("label", ["energy", "near", "boxes"])
def test_a_run_gives_a_guard_and_a_file_that_decide_alike(label: str, finished_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "deploy"
    options = ["--include-preprocessing"] if label == "energy" else []
    said = call("monitor", "export", finished_run, "--monitor", label, "--model", "demo", "--out", out, *options)
    assert "compared on 128 images" in said
    assert "no decision differs" in said
    stated = json.loads((out / DESCRIPTION).read_text())
    table = rw.open_run(finished_run).tables["monitoring_thresholds"]
    own = table[(table["model"] == "demo") & (table["monitor"] == label)]
    thresholds = dict(zip(own["class"], own["threshold"], strict=True))
    assert stated["threshold"]["threshold"] == thresholds[""]
    assert len(stated["threshold"]["classes"]) == len(thresholds) - 1
    assert stated["input"]["includes_preprocessing"] is (label == "energy")
    assert stated["classes"] == [*training().class_names]
    guard = rw.load_guard(out / "guard")
    assert [trial.outliers for trial in guard.tried_on] == ["uniform_noise", "normal_noise", "benchmark fog"]
    assert stated["tried_on"]["sets"] == [trial.record() for trial in guard.tried_on]
    assert stated["tried_on"]["sentence"] in f"{guard.sentence()}."
    assert stated["tried_on"]["sentence"][:-1] in said
    decided = monitor_decisions(finished_run, models=["demo"], monitors=[label])
    assert guard.tried_on[2].rejected == pytest.approx(decided.loc[decided["ood"].astype(bool), "reject"].mean())
    images = np.concatenate([np.load(finished_run.parent / "test.npz")["images"][::12], shown()[700::30]])
    tensor = images if label == "energy" else demo_model().preprocess(images)
    score, accept = run(out / ONNX_FILE, tensor, "score", "accept")
    decisions = [guard.check(image) for image in images]
    np.testing.assert_allclose(score, [decision.score for decision in decisions], rtol=1e-4, atol=1e-5)
    assert accept.tolist() == [decision.accept for decision in decisions]
    assert 0 < accept.sum() < len(images)


def test_a_monitor_that_onnx_cannot_hold_still_gives_a_guard(finished_run: Path, tmp_path: Path) -> None:
    said = call("monitor", "export", finished_run, "--monitor", "random", "--model", "demo", "--out", tmp_path)
    assert "no ONNX file: monitor random cannot be written as ONNX: it draws a number" in said
    assert [path.name for path in tmp_path.iterdir()] == ["guard"]
    assert rw.load_guard(tmp_path / "guard").check(shown()[0]).score >= 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--monitor", "energy"], "the run has several models, demo, trusting: name one with --model"),
        (["--monitor", "energi", "--model", "demo"], "energi.*energy"),
        (["--monitor", "energy", "--model", "demos"], "demos.*demo"),
        (["--monitor", "energy", "--model", "demo", "--source", "gtsrb"], "leave out --source"),
    ],
)
def test_a_wrong_name_is_one_sentence(options: list[str], says: str, finished_run: Path, tmp_path: Path) -> None:
    said = call("monitor", "export", finished_run, *options, "--out", tmp_path / "out", code=2)
    assert re.search(says, said), said
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(finished_run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    said = call("monitor", "export", finished_run, "--monitor", "energy", "--model", "demo", "--out", tmp_path, code=2)
    assert "is not an empty folder: name another one with --out" in said
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_a_network_that_the_study_trained_is_written_too(tmp_path: Path) -> None:
    """Two sources, one of them with networks that the run trained: run by ONNX Runtime and by torch."""
    roles = ("train", "validation", "test")
    data = {role: str(write_npz(tmp_path / f"{role}.npz", 280, seed)) for seed, role in enumerate(roles)}
    networks = {
        "plain": {"reference": "baseline", "epochs": 2, "floor": 0.0},
        "deep": {"reference": "resnet", "epochs": 1, "floor": 0.0},
    }
    study = {
        "name": "trained",
        "size": f"{SIZE}x{SIZE}",
        "sources": {
            "ours": {"data": data, "models": networks},
            "theirs": {"data": data, "models": {"demo": {"onnx": str(demo_model().path)}}},
        },
        "monitors": {"far": {"monitor": "mahalanobis"}, "patterns": {"monitor": "activation_patterns", "gamma": 3}},
        "protocols": {
            "monitoring": {
                "benchmarks": {"fog": {"kind": "distributional_shift", "shift": "fog"}},
                "resamples": 100,
                "timed_images": 0,
            }
        },
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    call("run", tmp_path / "study.yaml", "--out", tmp_path / "run", "--accept-chance")
    said = call("monitor", "export", tmp_path / "run", "--monitor", "far", "--out", tmp_path / "none", code=2)
    assert "the run has several sources, ours, theirs: name one with --source" in said
    for model in ("plain", "deep"):
        for monitor in ("far", "patterns"):
            out, options = tmp_path / f"{model} {monitor}", ["--monitor", monitor, "--model", model]
            said = call("monitor", "export", tmp_path / "run", "--source", "ours", *options, "--out", out)
            assert f"with model {model} as its second argument" in said
            assert "no decision differs" in said
    with pytest.raises(InputError, match="cannot load its model plain by itself"):
        rw.load_guard(tmp_path / "plain far" / "guard")
