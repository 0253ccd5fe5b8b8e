"""Localizers: forms of boxes, adapters that read them, and wrappers that give them a variance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray
from onnx import TensorProto, helper, save
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import roadworthy as rw
from commands import call
from roadworthy.api import execute, prepare
from roadworthy.core.errors import InputError, ModelError, UnknownName
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.data.arrays import ArrayDataset
from roadworthy.data.table import Table
from roadworthy.metrics.box_uncertainty import VARIANCE_FLOOR
from roadworthy.models import CallableModel, JointModel, OnnxModel, StoredPredictions, TorchModel, load_model
from roadworthy.models.boxes import FORMS, ORDERS, UNITS, BoxForm, mixed_boxes, parse_box_form
from roadworthy.models.check import check_model
from roadworthy.models.check_boxes import compare_with_mean_box
from roadworthy.models.classes import align
from roadworthy.models.networks import onnx_bytes
from roadworthy.models.rehearsal import better_ways, chance_error, rehearse
from roadworthy.study import parse_study
from roadworthy.uncertainty import (
    Calibrated,
    Ensemble,
    FittedVarianceScaling,
    McDropout,
    Temperature,
    VarianceScaling,
    fit_variance,
)

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

SIDE = 12
PLACES = [BoxForm(form, unit, order) for form in FORMS for unit in UNITS for order in ORDERS]
"""Every form without variance."""


def squares(count: int = 40, side: int = SIDE, seed: int = 0) -> Batch:
    """Black images with one white rectangle each, and its box."""
    rng = np.random.default_rng(seed)
    images = np.zeros((count, side, side, 3), np.uint8)
    boxes = np.empty((count, 4), np.float32)
    for image, box in zip(images, boxes, strict=True):
        x0, y0 = rng.integers(0, side - 4, 2)
        width, height = rng.integers(2, 1 + np.minimum(5, side - np.array([x0, y0])))
        image[y0 : y0 + height, x0 : x0 + width] = 255
        box[:] = x0, y0, x0 + width, y0 + height
    labels = (boxes[:, 0] > side / 3).astype(np.int64)
    return Batch(tuple(f"i{row}" for row in range(count)), images, labels, boxes=boxes)


def find_white(images: NDArray[Any]) -> NDArray[np.float64]:
    """The boxes (N, 4) of what is brighter than half in uint8 images, in pixels."""
    boxes = np.zeros((len(images), 4))
    for box, image in zip(boxes, np.asarray(images)[..., 0] > 127, strict=True):
        rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
        if rows.size:
            box[:] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return boxes


def writer(form: BoxForm, variance: float | None = None) -> Any:
    """A function that finds the white rectangle and writes its box in a form, with one number for each variance."""

    def localize(images: NDArray[Any]) -> NDArray[np.float64]:
        size = images.shape[1:3]
        rows = form.write(find_white(images), size, size)
        return rows if variance is None else np.hstack([rows, np.full_like(rows, variance)])

    return localize


def function_model(form: BoxForm, variance: float | None = None, **settings: Any) -> CallableModel:
    """A localizer in Python that finds every rectangle."""
    return CallableModel(
        writer(form, variance), boxes=str(form), version=f"{form} {variance}", name="finder", **settings
    )


class TwoOutputs(nn.Module):
    """Answers boxes and class scores in a dictionary, both behind dropout."""

    def __init__(self, side: int = SIDE, classes: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, 8), nn.ReLU())
        self.dropout = nn.Dropout(0.5)
        self.where, self.what = nn.Linear(8, 4), nn.Linear(8, classes)

    def forward(self, image: Any) -> Any:
        features = self.dropout(self.features(image))
        return {"bbox": self.where(features), "logits": self.what(features)}


def linear_onnx(path: Path, outputs: dict[str, int], side: int = SIDE, constant: dict[str, Any] | None = None) -> Path:
    """An ONNX file with a constant row of numbers per output, whatever the image; (name: columns)."""
    nodes, weights = [helper.make_node("Flatten", ["image"], ["flat"])], []
    for name, columns in outputs.items():
        kernel = np.zeros((3 * side * side, columns), np.float32)
        bias = np.asarray((constant or {}).get(name, np.arange(columns)), np.float32)
        weights += [
            helper.make_tensor(f"{name}_w", TensorProto.FLOAT, kernel.shape, kernel.ravel()),
            helper.make_tensor(f"{name}_b", TensorProto.FLOAT, bias.shape, bias),
        ]
        nodes.append(helper.make_node("Gemm", ["flat", f"{name}_w", f"{name}_b"], [name]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [None, 3, side, side])
    known = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, k]) for name, k in outputs.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "boxes", [image], known, weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    save(model, path)
    return path


# --- forms


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("corners pixels", BoxForm()),
        ("centre relative", BoxForm("centre", "relative")),
        ("corners relative yx log_variance", BoxForm("corners", "relative", "yx", "log_variance")),
        ("sigma relative centre", BoxForm("centre", "relative", "xy", "sigma")),
    ],
)
def test_form_is_read_from_text(text: str, form: BoxForm) -> None:
    assert parse_box_form(text) == form
    assert parse_box_form(str(form)) == form


@pytest.mark.parametrize(
    ("text", "message"),
    [("corners", "lacks pixels or relative"), ("relative", "lacks corners or centre"), ("", "lacks corners or centre"),
     ("corners centre pixels", "says its form twice"), ("corner pixels", "did you mean 'corners'")],
)  # fmt: skip
def test_bad_text_of_a_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_box_form(text)


def test_worked_example_of_every_form() -> None:
    """The box 6, 2, 10, 10 of an image 20 wide and 40 high, seen by a model at 10 x 20 (width x height)."""
    rows = {
        "corners pixels": [3, 1, 5, 5],
        "corners relative": [0.3, 0.05, 0.5, 0.25],
        "centre pixels": [4, 3, 2, 4],
        "centre relative": [0.4, 0.15, 0.2, 0.2],
        "centre relative yx": [0.15, 0.4, 0.2, 0.2],
        "corners pixels yx": [1, 3, 5, 5],
    }
    for text, row in rows.items():
        boxes, variance = parse_box_form(text).read(np.array([row], float), (20, 10), (40, 20))
        np.testing.assert_allclose(boxes, [[6, 2, 10, 10]], rtol=1e-6)
        assert variance is None


@given(
    boxes=npst.arrays(np.float64, (3, 4), elements=st.floats(-50, 50, width=32)),
    place=st.sampled_from(PLACES),
    sizes=st.tuples(*[st.integers(1, 300)] * 4),
)
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read_again(boxes: Any, place: BoxForm, sizes: tuple[int, int, int, int]) -> None:
    """Crossed and empty boxes included: nothing is swapped."""
    input_size, image_size = sizes[:2], sizes[2:]
    again, _ = place.read(place.write(boxes, input_size, image_size), input_size, image_size)
    np.testing.assert_allclose(again, boxes, atol=1e-4)


def test_variance_goes_through_every_form() -> None:
    """By hand: sigma 0.1 of cx and 0.2 of w, of a model at 10 x 10 and images 20 wide and 10 high."""
    row = np.array([[0.5, 0.5, 0.2, 0.4, 0.1, 0.0, 0.2, 0.0]])
    of_x = (0.1**2 + 0.2**2 / 4) * 20**2
    for kind, written in {"sigma": row[0, 4:], "variance": row[0, 4:] ** 2}.items():
        rows = np.array([[*row[0, :4], *written]])
        _, variance = BoxForm("centre", "relative", variance=kind).read(rows, (10, 10), (10, 20))
        np.testing.assert_allclose(variance, [[of_x, 0, of_x, 0]], rtol=1e-6)
    rows = np.array([[1.0, 2, 3, 4, *np.log([1.0, 2, 3, 4])]])
    boxes, variance = BoxForm(order="yx", variance="log_variance").read(rows, (10, 10), (20, 10))
    np.testing.assert_allclose(boxes, [[2, 2, 4, 6]], rtol=1e-6)
    np.testing.assert_allclose(variance, [[2, 4, 4, 12]], rtol=1e-6)


def test_variance_of_centre_form_is_that_of_samples() -> None:
    rng = np.random.default_rng(0)
    deviation = np.array([0.3, 0.4, 0.5, 0.6])
    drawn = np.array([5.0, 6, 3, 4]) + rng.normal(size=(200_000, 4)) * deviation
    corners, _ = BoxForm("centre").read(drawn, (10, 10), (10, 10))
    row = np.array([[5.0, 6, 3, 4, *deviation]])
    _, variance = BoxForm("centre", variance="sigma").read(row, (10, 10), (10, 10))
    np.testing.assert_allclose(corners.astype(float).var(axis=0), variance[0], rtol=0.02)


@pytest.mark.parametrize("kind", ["variance", "sigma"])
def test_negative_variance_is_refused(kind: str) -> None:
    rows = np.array([[0.0, 0, 1, 1, 1, -1, 1, 1]])
    with pytest.raises(ModelError, match="log_variance"):
        BoxForm(variance=kind).read(rows, (4, 4), (4, 4))
    with pytest.raises(ModelError, match="8 numbers an image, not of shape"):
        BoxForm(variance=kind).read(rows[:, :4], (4, 4), (4, 4))


# --- adapters


@pytest.mark.parametrize("form", PLACES, ids=str)
def test_function_in_any_form_finds_the_box(form: BoxForm) -> None:
    batch = squares()
    model = function_model(form)
    answer = model.answer(batch, 16)
    assert model.columns == ("boxes",)
    assert model.num_classes == 0
    np.testing.assert_allclose(answer.boxes, batch.boxes, atol=1e-4)


@pytest.mark.parametrize("unit", UNITS)
def test_boxes_are_brought_to_the_size_of_the_images(unit: str) -> None:
    """A model that sees images at half their size; boxes at even pixels are exact."""
    batch = squares(8)
    images = batch.images.repeat(2, axis=1).repeat(2, axis=2)
    large = Batch(batch.ids, images, batch.labels)
    form = BoxForm("centre", unit, variance="variance")
    answer = function_model(form, 0.25, size=SIDE).answer(large, 8)
    np.testing.assert_allclose(answer.columns["boxes"], 2 * find_white(batch.images), atol=1e-4)
    scale = 2.0**2 if unit == "pixels" else (2.0 * SIDE) ** 2
    np.testing.assert_allclose(answer.columns["box_variance"], 0.25 * 1.25 * scale, rtol=1e-5)


def test_crossed_boxes_stay_crossed() -> None:
    crossed = CallableModel(
        lambda images: np.tile([5.0, 6, 1, 2], (len(images), 1)), boxes="corners pixels", version="1"
    )
    assert crossed.answer(squares(2), 2).boxes.tolist() == [[5, 6, 1, 2]] * 2  # type: ignore[union-attr]


def test_onnx_torch_and_function_agree(tmp_path: Path) -> None:
    """One network in three forms, with both answers: the same boxes and probabilities."""
    network, batch = TwoOutputs().eval(), squares(6)
    path = tmp_path / "both.onnx"
    path.write_bytes(onnx_bytes(network, {"image": torch.zeros(2, 3, SIDE, SIDE)}, ["bbox", "what"]))

    def function(images: NDArray[Any]) -> Any:
        with torch.inference_mode():
            rows = network(torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32) / 255))
        return tuple(value.numpy() for value in rows.values())

    form = "centre pixels"
    models: list[Model] = [
        OnnxModel(path, boxes=form),
        TorchModel(network, boxes=form, size=SIDE),
        CallableModel(function, boxes=form, outputs="logits", version="1", size=SIDE),
    ]
    answers = [model.answer(batch, 6) for model in models]
    for model, answer in zip(models, answers, strict=True):
        assert model.num_classes == 2
        assert model.columns == ("probabilities", "log_odds", "boxes")
        assert "logits" in model.capabilities
        np.testing.assert_allclose(answer.columns["boxes"], answers[1].columns["boxes"], atol=1e-4)
        np.testing.assert_allclose(answer.probabilities, answers[1].probabilities, atol=1e-5)
    assert len({model.fingerprint() for model in models}) == 3
    gradient = models[1].input_gradient(batch)
    assert gradient.shape == batch.images.shape
    assert np.abs(gradient).max() > 0


def test_form_is_part_of_the_fingerprint_and_classifiers_keep_theirs(tmp_path: Path) -> None:
    path = linear_onnx(tmp_path / "m.onnx", {"a": 4})
    localizers = [OnnxModel(path, boxes=text).fingerprint() for text in ("corners pixels", "centre pixels")]
    assert len({*localizers, OnnxModel(path).fingerprint()}) == 3
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    settings = TorchModel(network, size=2).preprocess.settings()
    from roadworthy.core.hashing import digest
    from roadworthy.models.torch_state import module_state

    expected = {
        "kind": "torch",
        **module_state(network),
        "settings": {**settings, "outputs": "logits", "device": "cpu"},
    }
    assert TorchModel(network, size=2, device="cpu").fingerprint() == digest(expected)


@pytest.mark.parametrize(
    ("outputs", "declared", "boxes", "classes"),
    [
        ({"loc": 4}, {}, ("loc",), None),
        ({"loc": 4, "cls": 7}, {}, ("loc",), "cls"),
        ({"cls": 7, "loc": 4}, {}, ("loc",), "cls"),
        ({"cls": 4, "boxes": 4}, {}, ("boxes",), "cls"),
        ({"a": 4, "b": 4}, {"box_output": "b"}, ("b",), "a"),
        ({"a": 4, "b": 4}, {"class_output": "a"}, ("b",), "a"),
        ({"loc": 4, "emb": 16, "logits": 7}, {}, ("loc",), "logits"),
        ({"loc": 4, "emb": 16, "cls": 7}, {"class_output": "cls"}, ("loc",), "cls"),
        ({"loc": 4, "emb": 16}, {"class_output": "none"}, ("loc",), None),
        ({"loc": 8}, {"boxes": "corners pixels log_variance"}, ("loc",), None),
        ({"mu": 4, "s": 4}, {"boxes": "corners pixels sigma", "box_output": ["mu", "s"]}, ("mu", "s"), None),
    ],
)
def test_outputs_are_told_apart(
    tmp_path: Path, outputs: dict[str, int], declared: dict[str, Any], boxes: Any, classes: str | None
) -> None:
    model = OnnxModel(linear_onnx(tmp_path / "m.onnx", outputs), **{"boxes": "corners pixels", **declared})
    assert model.reading is not None
    assert (model.reading.boxes, model.reading.classes) == (boxes, classes)
    answer = model.answer(squares(3), 3)
    np.testing.assert_allclose(answer.columns["boxes"], [[0, 1, 2, 3]] * 3)
    assert model.num_classes == outputs.get(classes or "", 0)


@pytest.mark.parametrize(
    ("outputs", "declared", "message"),
    [
        ({"a": 4, "b": 4}, {}, "say which with `box_output='a'`"),
        ({"a": 7}, {}, "output 'a' has 7; declare another"),
        ({"a": 4}, {"boxes": "corners pixels sigma"}, "8 numbers an image"),
        ({"a": 4, "b": 5, "c": 6}, {}, "`class_output='none'`"),
        ({"a": 4}, {"box_output": "loc"}, "output of"),
        ({"a": 4}, {"class_output": "a"}, "there is no output besides 'a', which is declared to hold class scores"),
        ({"a": 4, "b": 5}, {"box_output": "b"}, "output 'b' has 5"),
        ({"a": 4, "b": 4}, {"box_output": "a", "class_output": "a"}, "cannot hold both"),
        ({"a": 4}, {"boxes": None, "box_output": "a"}, "declare `boxes=` too"),
        ({"a": 4}, {"outputs": "logits"}, "leave out `outputs=`"),
        ({"a": 4}, {"classes": ["x", "y"]}, "answers 0 classes but 2"),
    ],
)
def test_doubtful_outputs_are_an_error(
    tmp_path: Path, outputs: dict[str, int], declared: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        OnnxModel(linear_onnx(tmp_path / "m.onnx", outputs), **{"boxes": "corners pixels", **declared})


def test_variance_that_cannot_be_one_is_refused_when_the_model_is_loaded(tmp_path: Path) -> None:
    path = linear_onnx(tmp_path / "m.onnx", {"a": 8}, constant={"a": [0, 0, 1, 1, -3, -3, -3, -3]})
    with pytest.raises(InputError, match="declare `boxes='corners relative log_variance'`"):
        OnnxModel(path, boxes="corners relative variance")
    answer = OnnxModel(path, boxes="corners pixels log_variance").answer(squares(2), 2)
    np.testing.assert_allclose(answer.columns["box_variance"], np.exp(-3.0), rtol=1e-6)


def test_study_entries_of_localizers(tmp_path: Path) -> None:
    what, where = (linear_onnx(tmp_path / f"{name}.onnx", {"out": columns}) for name, columns in (("a", 3), ("b", 4)))
    entry = {"joint": {"classes": "a.onnx", "boxes": {"onnx": "b.onnx", "boxes": "centre relative"}}}
    model = load_model(entry, name="both", base=tmp_path)
    assert (model.name, model.columns, model.num_classes) == ("both", ("probabilities", "log_odds", "boxes"), 3)
    assert sorted(model.origin.files) == ["a.onnx", "b.onnx"]
    answer = model.answer(squares(3), 2)
    np.testing.assert_array_equal(answer.probabilities, OnnxModel(what).answer(squares(3), 2).probabilities)
    expected = OnnxModel(where, boxes="centre relative").answer(squares(3), 2).columns["boxes"]
    np.testing.assert_array_equal(answer.columns["boxes"], expected)
    with pytest.raises(UnknownName, match="box_outputs"):
        load_model({"onnx": "b.onnx", "boxes": "corners pixels", "box_outputs": "out"}, base=tmp_path)


def test_joint_model_takes_each_answer_from_its_model(tmp_path: Path) -> None:
    classifier = OnnxModel(
        linear_onnx(tmp_path / "a.onnx", {"out": 2}, constant={"out": [-1, 2]}), classes=["no", "yes"]
    )
    localizer = function_model(BoxForm(variance="variance"), 2.0)
    model = JointModel(classifier, localizer)
    assert model.columns == ("probabilities", "log_odds", "boxes", "box_variance")
    turned = align(model, ["yes", "no"])
    batch = squares(5)
    probabilities = classifier.answer(batch, 5).probabilities
    np.testing.assert_array_equal(turned.answer(batch, 5).probabilities, probabilities[:, ::-1])
    np.testing.assert_allclose(turned.answer(batch, 5).columns["boxes"], batch.boxes, atol=1e-4)
    assert model.for_repeat(3) is model
    with pytest.raises(InputError, match="given as `classes` answers no probabilities"):
        JointModel(localizer, localizer)
    with pytest.raises(InputError, match="given as `boxes` answers no boxes"):
        JointModel(classifier, classifier)


# --- mean and variance of boxes


def test_mixture_of_boxes_by_hand() -> None:
    boxes = np.array([[[0.0, 0, 4, 4]], [[2.0, 0, 4, 8]], [[4.0, 0, 4, 0]]])
    mean, variance = mixed_boxes(boxes)
    np.testing.assert_allclose(mean, [[2, 0, 4, 4]])
    np.testing.assert_allclose(variance, [[8 / 3, 0, 0, 32 / 3]], rtol=1e-6)
    _, total = mixed_boxes(boxes, np.array([[[1.0, 2, 3, 4]], [[1, 2, 3, 4]], [[4, 2, 3, 4]]]))
    np.testing.assert_allclose(total, [[8 / 3 + 2, 2, 3, 32 / 3 + 4]], rtol=1e-6)


def test_total_variance_is_that_of_the_mixture() -> None:
    """Law of total variance, against samples of an equal mixture of Gaussians."""
    rng = np.random.default_rng(1)
    means, deviations = rng.normal(size=(3, 1, 4)) * 5, rng.uniform(0.5, 2, (3, 1, 4))
    drawn = means + deviations * rng.normal(size=(3, 200_000, 4))
    mean, variance = mixed_boxes(means, deviations**2)
    np.testing.assert_allclose(drawn.reshape(-1, 4).mean(axis=0), mean[0], atol=0.03)
    np.testing.assert_allclose(drawn.reshape(-1, 4).var(axis=0), variance[0], rtol=0.02)


def test_ensemble_of_localizers() -> None:
    batch, offset = squares(6), np.array([0.0, 1, 2, 3])

    def moved(by: int) -> CallableModel:
        return CallableModel(lambda images: find_white(images) + by * offset, boxes="corners pixels", version=f"{by}")

    ensemble = Ensemble([moved(-1), moved(1)])
    answer = ensemble.answer(batch, 4)
    assert (ensemble.columns, ensemble.uncertainty) == (("boxes", "box_variance"), "ensemble")
    np.testing.assert_allclose(answer.columns["boxes"], batch.boxes, atol=1e-5)
    np.testing.assert_allclose(answer.columns["box_variance"], np.tile(offset**2, (6, 1)), atol=1e-5)
    with pytest.raises(InputError, match="answers box_variance and finder does not"):
        Ensemble([function_model(BoxForm(variance="variance"), 1.0), function_model(BoxForm())])
    stating = Ensemble([function_model(BoxForm(variance="variance"), value) for value in (1.0, 3.0)])
    np.testing.assert_allclose(stating.answer(batch, 6).columns["box_variance"], 2.0)


def test_mc_dropout_over_boxes_is_the_mean_of_its_passes() -> None:
    """Passes by hand: the network with each mask put behind its dropout."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4))
    batch = squares(5)
    for runtime in ("torch", "auto"):
        model = McDropout(network, passes=7, size=SIDE, boxes="centre relative", runtime=runtime)
        assert (model.columns, model.uncertainty) == (("boxes", "box_variance"), "mc_dropout")
        with torch.inference_mode():
            hidden = network[:3](torch.from_numpy(model.preprocess(batch.images)))
            passes = [network[4](hidden * torch.from_numpy(model.masks(index)[0])).numpy() for index in range(7)]
        form = parse_box_form("centre relative")
        boxes = np.stack([form.read(rows, (SIDE, SIDE), (SIDE, SIDE))[0] for rows in passes]).astype(float)
        answer = model.answer(batch, 5)
        np.testing.assert_allclose(answer.columns["boxes"], boxes.mean(axis=0), atol=1e-4)
        np.testing.assert_allclose(answer.columns["box_variance"], boxes.var(axis=0), atol=1e-3)


def test_mc_dropout_answers_classes_and_boxes_together() -> None:
    batch = squares(4)
    model = McDropout(TwoOutputs(), passes=6, size=SIDE, boxes="corners pixels", uncertainty="head", family="two")
    assert model.columns == ("probabilities", "log_odds", "certainty", "samples", "boxes", "box_variance")
    assert (model.uncertainty, model.family, model.runtime) == ("head", "two", "onnx")
    slow = McDropout(TwoOutputs(), passes=6, size=SIDE, boxes="corners pixels", runtime="torch")
    answer, expected = model.answer(batch, 4), slow.answer(batch, 4)
    assert answer.columns["samples"].shape == (6, 4, 2)
    for name, column in answer.columns.items():
        np.testing.assert_allclose(column, expected.columns[name], atol=1e-4)
    assert (answer.columns["box_variance"] > 0).all()


def test_stored_boxes_are_an_ensemble_member_too(tmp_path: Path) -> None:
    batch = squares(3)
    boxes = [",".join(map(str, box)) for box in find_white(batch.images)]
    rows = [f"{image},{box},1,1,1,1" for image, box in zip(batch.ids, boxes, strict=True)]
    header = "id," + ",".join(f"{name}{side}" for name in ("box", "variance") for side in range(4))
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]))
    stored = StoredPredictions(tmp_path / "a.csv")
    assert stored.columns == ("boxes", "box_variance")
    mixed = Ensemble([stored, function_model(BoxForm(variance="variance"), 3.0)]).answer(batch, 3)
    np.testing.assert_allclose(mixed.columns["boxes"], batch.boxes, atol=1e-4)
    np.testing.assert_allclose(mixed.columns["box_variance"], 2.0)


def test_prediction_without_classes_has_a_length() -> None:
    assert len(Prediction(boxes=np.zeros((3, 4), np.float32))) == 3


# --- variance scaling


def test_factors_are_the_minimum_of_the_likelihood() -> None:
    """Against a numerical minimum for each coordinate, with variances below the floor and an image without a box."""
    rng = np.random.default_rng(2)
    variance = rng.uniform(0.0, 3.0, (60, 4)) * (rng.random((60, 4)) > 0.1)
    true = rng.uniform(0, 50, (60, 4))
    boxes = true + rng.normal(size=(60, 4)) * np.sqrt(variance + 0.01) * [0.5, 1.0, 2.0, 3.0]
    fitted = fit_variance(
        np.vstack([true, [np.nan] * 4]), np.vstack([boxes, np.zeros(4)]), np.vstack([variance, np.ones(4)])
    )
    floored = np.maximum(variance, VARIANCE_FLOOR)
    for side, factor in enumerate(fitted.factors):
        errors = (true - boxes)[:, side]

        def nll(scale: float, errors: Any = errors, stated: Any = floored[:, side]) -> float:
            return float(-norm.logpdf(errors, scale=np.sqrt(scale * stated)).mean())

        minimum = minimize_scalar(nll, bounds=(1e-3, 100), method="bounded", options={"xatol": 1e-8})
        assert factor == pytest.approx(minimum.x, rel=1e-3)
    assert fitted.images == 60
    assert "1 images have no true box" in fitted.notes[0]
    assert fitted.nll < fitted.nll_before


def test_right_variance_keeps_its_scale() -> None:
    """A calibrated Gaussian has factors near 1; with sigma stated half as large they are near 4."""
    rng = np.random.default_rng(3)
    sigma = rng.uniform(1, 3, (20_000, 4))
    true = rng.normal(size=sigma.shape) * sigma
    for share, factor in ((1.0, 1.0), (0.5, 4.0)):
        fitted = fit_variance(true, np.zeros_like(true), (share * sigma) ** 2)
        np.testing.assert_allclose(fitted.factors, factor, rtol=0.05)


@pytest.mark.parametrize(
    ("true", "variance", "message"),
    [
        (np.full((3, 4), np.nan), np.ones((3, 4)), "none of these has one"),
        (np.zeros((3, 4)), -np.ones((3, 4)), "negative"),
        (np.zeros((3, 4)), np.full((3, 4), np.inf), "NaN or infinity"),
        (np.zeros((2, 4)), np.ones((3, 4)), r"must be \(N, 4\)"),
    ],
)
def test_variance_that_cannot_be_fitted(true: Any, variance: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_variance(true, np.zeros((3, 4)), variance)


def test_fitted_variance_is_an_artifact(tmp_path: Path) -> None:
    batch = squares(30)
    model = FittedVarianceScaling(off_by_two(sigma=1.0), name="scaled")
    assert model.learns_from == {"validation"}
    model = model.with_data({"validation": dataset(batch)})
    with pytest.raises(ModelError, match="not fitted yet"):
        model.predict(batch)
    before = model.fingerprint()
    competence = model.build(tmp_path, lambda images: None)
    model.load(tmp_path)
    assert model.loaded
    assert model.fingerprint() == before
    assert competence["factors"] == pytest.approx([4.0] * 4)
    answer = model.answer(batch, 30)
    np.testing.assert_allclose(answer.columns["box_variance"], 4.0, rtol=1e-5)
    np.testing.assert_array_equal(answer.columns["boxes"], off_by_two(sigma=1.0).answer(batch, 30).columns["boxes"])
    known = VarianceScaling(off_by_two(sigma=1.0), model.factors)
    np.testing.assert_array_equal(known.answer(batch, 30).columns["box_variance"], answer.columns["box_variance"])
    with pytest.raises(InputError, match="states no variance"):
        VarianceScaling(function_model(BoxForm()), [1.0] * 4)
    with pytest.raises(InputError, match="factors of at least 0"):
        VarianceScaling(off_by_two(sigma=1.0), [1.0, -1.0, 1.0, 1.0])
    without = Batch(batch.ids, batch.images, batch.labels)
    with pytest.raises(InputError, match="has no boxes"):
        FittedVarianceScaling(off_by_two(sigma=1.0)).with_data({"validation": dataset(without)})
    with pytest.raises(InputError, match="states no variance"):
        FittedVarianceScaling(function_model(BoxForm()))


def test_what_is_to_be_fitted_says_before_what_it_answers(tmp_path: Path) -> None:
    """So it can be a part of other models; once it has its data, an ensemble of it knows its classes."""
    both = load_model(lambda images: None, num_classes=2, version="1", name="what", classes=["left", "right"])
    joint = JointModel(both, off_by_two(sigma=1.0), name="both")
    for fitted in (Calibrated(joint), FittedVarianceScaling(joint)):
        assert fitted.columns == ("probabilities", "boxes", "box_variance")
        assert fitted.learns_from == {"validation"}
        nested = JointModel(fitted, Calibrated(FittedVarianceScaling(joint)))
        assert nested.columns == ("probabilities", "boxes", "box_variance")
        ensemble = Ensemble([fitted, joint]).with_data({"validation": dataset(squares(10))})
        assert (ensemble.num_classes, ensemble.learns_from) == (2, frozenset())
    empty = JointModel(function_classifier(), off_by_two(sigma=1.0)).predict(squares(1).take([]))
    assert len(empty) == 0


def function_classifier() -> CallableModel:
    """A classifier that says whether the rectangle begins in the left third."""

    def classify(images: NDArray[Any]) -> NDArray[np.float64]:
        right = find_white(images)[:, 0] > images.shape[2] / 3
        return np.stack([0.9 - 0.8 * right, 0.1 + 0.8 * right], axis=1)

    return CallableModel(classify, num_classes=2, version="left or right", name="what")


def off_by_two(sigma: float) -> CallableModel:
    """A localizer whose every coordinate is off by two pixels, up or down by turns, and that states sigma."""

    def localize(images: NDArray[Any]) -> NDArray[np.float64]:
        boxes = find_white(images) + 2.0 * (-1.0) ** np.arange(4)
        return np.hstack([boxes, np.full_like(boxes, sigma)])

    return CallableModel(localize, boxes="corners pixels sigma", version=f"off by two {sigma}", name="off")


def dataset(batch: Batch) -> Any:
    """The images of a batch as a data set of two classes."""
    table = Table(batch.ids, batch.labels, ("left", "right"), boxes=batch.boxes, groups=batch.ids)
    return ArrayDataset(table, batch.images)


# --- check and rehearsal


@pytest.mark.parametrize("form", PLACES, ids=str)
def test_check_finds_a_wrong_form_of_boxes(form: BoxForm) -> None:
    """Whatever form the model writes and whatever was declared, the check names the true one."""
    declared = PLACES[(PLACES.index(form) + 3) % len(PLACES)]
    # squares alone have the same width and height in both orders, so other sides are drawn
    data = dataset(squares(150, side=16, seed=4))

    def build(boxes: str = str(declared), **settings: Any) -> Model:
        return CallableModel(writer(form), boxes=boxes, version="1", name="finder", **settings)

    report = check_model(build, data)
    (finding,) = report.findings
    assert report.boxes is not None
    assert finding.settings == {"boxes": str(form)}
    assert finding.text == f"declare `boxes={str(form)!r}`: IoU 1.00 instead of {report.boxes.iou:.2f}"
    assert finding.iou == pytest.approx(1.0)
    assert not report.ok
    assert "accuracy" not in str(report)
    fixed = check_model(lambda **given: build(**{**finding.settings, **given}), data)
    assert fixed.ok
    assert "mean IoU: 1.000 (95 % interval 0.975 to 1.000) on 150 images with a box; always the mean box" in str(fixed)


@pytest.mark.parametrize(
    ("declared", "written", "found"),
    [
        ("sigma", 0.0025, "variance"),  # a root of 0.05 is stated as 0.0025
        ("variance", -6.0, "log_variance"),  # refused when it is loaded
        ("log_variance", 0.04, None),  # 1.02 for 0.2: too large, but not by far
        ("log_variance", 4.0, None),  # 7.4 for 0.2, and no other reading is much nearer: 2 or 4
        ("log_variance", 12.0, "variance"),  # 403 for 0.2; as a variance 3.5, as a sigma 12
        ("variance", 0.04, None),  # right
    ],
)
def test_check_finds_a_wrong_form_of_variance(declared: str, written: float, found: str | None) -> None:
    data = dataset(squares(60, side=16))

    def build(boxes: str = f"corners pixels {declared}", **settings: Any) -> Model:
        def localize(images: NDArray[Any]) -> NDArray[np.float64]:
            correct = find_white(images)
            return np.hstack([correct + 0.135, np.full_like(correct, written)])  # as the median of sigma 0.2

        return CallableModel(localize, boxes=boxes, version="1", name="m", **settings)

    if written < 0:
        with pytest.raises(InputError, match=f"corners pixels {found}"):
            build()
        return
    report = check_model(build, data)
    assert [finding.settings for finding in report.findings] == (
        [{"boxes": f"corners pixels {found}"}] if found else []
    )


def test_check_finds_the_range_of_a_localizer() -> None:
    """A network that needs pixels 0 to 255 but gets 0 to 1 finds nothing."""

    def build(range: str = "0-1", **settings: Any) -> Model:
        def localize(tensor: NDArray[Any]) -> NDArray[np.float64]:
            return find_white(np.moveaxis(tensor, 1, -1))

        return CallableModel(
            localize, boxes="corners pixels", range=range, **{"layout": "nchw", "version": "1", **settings}
        )

    report = check_model(build, dataset(squares(80)))
    (finding,) = report.findings
    assert finding.settings["range"] == "0-255"
    assert finding.iou == pytest.approx(1.0)


def test_check_of_a_model_with_both_reports_both() -> None:
    data = dataset(squares(120, side=16))

    def build(boxes: str = "corners pixels", **settings: Any) -> Model:
        def both(images: NDArray[Any]) -> Any:
            found = find_white(images)
            right = (found[:, 0] > 16 / 3).astype(int)
            return {"boxes": BoxForm("centre").write(found, (16, 16), (16, 16)), "classes": np.eye(2)[right]}

        return CallableModel(both, boxes=boxes, version="1", name="both", **settings)

    report = check_model(build, data)
    text = str(report)
    assert report.accuracy == 1.0
    assert "accuracy: 1.000" in text
    assert "mean IoU: " in text
    assert [finding.settings for finding in report.findings] == [{"boxes": "centre pixels"}]
    no_boxes = check_model(build, dataset(Batch(*(getattr(squares(60), key) for key in ("ids", "images", "labels")))))
    assert "its boxes are not checked" in str(no_boxes)


def test_check_of_a_localizer_needs_true_boxes_and_says_when_nothing_helps() -> None:
    batch = squares(60)
    with pytest.raises(InputError, match="has none to compare them with"):
        check_model(lambda **given: function_model(BoxForm()), dataset(Batch(batch.ids, batch.images, batch.labels)))
    middle = [SIDE / 4, SIDE / 4, SIDE / 2, SIDE / 2]

    def build(boxes: str = "corners pixels", **settings: Any) -> Model:
        return CallableModel(lambda images: np.tile(middle, (len(images), 1)), boxes=boxes, version="1", **settings)

    report = check_model(build, dataset(batch))
    assert report.boxes is not None
    assert report.boxes.at_chance
    assert "no better than always the mean box" in str(report)


def test_unsteady_boxes_are_found() -> None:
    calls: list[int] = []

    def build(boxes: str = "corners pixels", **settings: Any) -> Model:
        def localize(images: NDArray[Any]) -> NDArray[np.float64]:
            calls.append(1)
            return find_white(images) + 0.5 * (len(calls) % 2)

        return CallableModel(localize, boxes=boxes, version="1", **settings)

    texts = [finding.text for finding in check_model(build, dataset(squares(60))).findings]
    assert any("answers the same images differently when asked twice" in text for text in texts)
    assert rehearse(build(), dataset(squares(60))).steadiness.again.boxes == pytest.approx(0.5)


def test_rehearsal_refuses_a_localizer_that_is_no_better_than_the_mean_box() -> None:
    data = dataset(squares(80, side=16))
    good, wrong = (
        function_model(BoxForm()),
        CallableModel(writer(BoxForm("centre")), boxes="corners pixels", version="1"),
    )
    assert chance_error(good, data, rehearse(good, data), None) is None

    def build(boxes: str = "corners pixels", **settings: Any) -> Model:
        return CallableModel(writer(BoxForm("centre")), boxes=boxes, version="1", **settings)

    text = chance_error(wrong, data, rehearse(wrong, data), build)
    assert text is not None
    assert "no better than always answering their mean box" in text
    assert "declare `boxes='centre pixels'`: IoU 1.00 instead of" in text
    hopeless = chance_error(wrong, data, rehearse(wrong, data), None)
    assert hopeless is not None
    assert hopeless.endswith("mean box (0.05): check model and data, or continue with `accept_chance=True`")
    few = compare_with_mean_box(np.zeros((3, 4)), np.zeros((3, 4)))
    assert not few.is_chance
    assert not few.is_above


def test_the_form_of_boxes_is_looked_for_inside_joint_and_wrapped_models() -> None:
    data = dataset(squares(80, side=16))

    def build() -> Model:
        wrong = CallableModel(writer(BoxForm("centre", "relative")), boxes="corners pixels", version="1", size=32)
        return JointModel(function_classifier(), wrong, name="pair")

    for made in (build, lambda: Temperature(build(), 1.0)):
        model = made()
        text = chance_error(model, data, rehearse(model, data), made)
        assert text is not None
        assert "declare `boxes='centre relative'`: IoU 1.00 instead of" in text
    fixed = CallableModel(lambda images: np.ones((len(images), 4)), boxes="corners pixels", version="1")
    hopeless = JointModel(function_classifier(), fixed)
    text = chance_error(hopeless, data, rehearse(hopeless, data), lambda: hopeless)
    assert text is not None
    assert "and no other form of boxes was found that helps: check" in text
    assert "no other form of boxes helps" in str(check_model(lambda: hopeless, data))


def test_a_localizer_that_is_fed_wrongly_is_told_before_a_run() -> None:
    """Above chance with pixels 0 to 1, by which it is a pixel off; right with those that it was made for."""

    def localize(tensor: NDArray[Any]) -> NDArray[np.float64]:
        reach = 255 if tensor.max() <= 1 else 1
        return find_white(np.moveaxis(tensor, 1, -1) * reach) + (reach > 1)

    settings = {"boxes": "corners pixels", "layout": "nchw", "version": "1"}
    data = dataset(squares(80))
    wrong, right = (CallableModel(localize, range=range, **settings) for range in ("0-1", "0-255"))
    (text,) = better_ways(wrong, data, rehearse(wrong, data))
    assert text.startswith("declare `range='0-255'`: IoU 1.00 instead of 0.")
    assert better_ways(right, data, rehearse(right, data)) == []


def test_nothing_is_fitted_to_a_localizer_at_chance(tmp_path: Path) -> None:
    for name, seed in (("test", 5), ("validation", 7)):
        batch = squares(40, side=16, seed=seed)
        arrays = {"images": batch.images, "labels": batch.labels, "boxes": batch.boxes}
        np.savez(tmp_path / f"{name}.npz", class_names=["left", "right"], **arrays)
    where = linear_onnx(tmp_path / "where.onnx", {"box": 8}, side=16, constant={"box": [0, 0, 3, 3, 1, 1, 1, 1]})
    content = {
        "name": "at chance",
        "data": {"test": str(tmp_path / "test.npz"), "validation": str(tmp_path / "validation.npz")},
        "models": {"m": {"variance_scaling": {"onnx": str(where), "boxes": "corners pixels variance"}}},
        "protocols": {"localization": {"sets": {}}},
    }
    with pytest.raises(InputError, match="no better than always answering their mean box"):
        prepare(parse_study(content, "study"))
    assert not prepare(parse_study(content, "study"), accept_chance=True).rehearsals


# --- stored boxes, hints, the command line and studies


@pytest.mark.parametrize(
    "text", ["corners pixels variance", "centre relative yx sigma", "corners relative log_variance"]
)
def test_stored_boxes_of_any_form(tmp_path: Path, text: str) -> None:
    batch, form = squares(4), parse_box_form(text)
    written = {"variance": 4.0, "sigma": 2.0, "log_variance": np.log(4.0)}[form.variance]
    rows = form.write(find_white(batch.images), (SIDE, SIDE), (SIDE, SIDE))
    table = pd.DataFrame({"id": batch.ids, **{f"box{side}": rows[:, side] for side in range(4)}})
    table = table.assign(**{f"variance{side}": written for side in range(4)})
    table.to_csv(tmp_path / "a.csv", index=False)
    model = StoredPredictions(tmp_path / "a.csv", boxes=text)
    answer = model.answer(batch, 4)
    np.testing.assert_allclose(answer.columns["boxes"], batch.boxes, atol=1e-4)
    _, variance = form.read(np.hstack([rows, np.full_like(rows, written)]), (SIDE, SIDE), (SIDE, SIDE))
    assert variance is not None
    np.testing.assert_allclose(answer.columns["box_variance"], variance, rtol=1e-5)
    same = text == "corners pixels variance"
    usual = StoredPredictions(tmp_path / "a.csv", boxes="corners pixels log_variance" if not same else None)
    assert (model.fingerprint() == usual.fingerprint()) == same


def test_stored_boxes_that_cannot_be_right(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,box0,box1,box2,box3,variance0,variance1,variance2,variance3\nx,0,0,1,1,1,1,-1,1\n"
    )
    with pytest.raises(InputError, match="declare `boxes='corners relative log_variance'`"):
        StoredPredictions(tmp_path / "a.csv", boxes="corners relative sigma")
    (tmp_path / "b.csv").write_text("id,box0,box1,box2,box3\nx,0,0,1,1\n")
    with pytest.raises(InputError, match="holds no sigma of boxes"):
        StoredPredictions(tmp_path / "b.csv", boxes="corners pixels sigma")
    (tmp_path / "c.csv").write_text("id,p0,p1\nx,0.5,0.5\n")
    with pytest.raises(InputError, match="holds no boxes"):
        StoredPredictions(tmp_path / "c.csv", boxes="corners pixels")


def test_check_names_the_form_of_stored_boxes(tmp_path: Path) -> None:
    batch = squares(60, side=16)
    rows = BoxForm("centre", "relative").write(find_white(batch.images), (16, 16), (16, 16))
    table = pd.DataFrame({"id": batch.ids, **{f"box{side}": rows[:, side] for side in range(4)}})
    table.to_csv(tmp_path / "a.csv", index=False)
    report = check_model(lambda **given: StoredPredictions(tmp_path / "a.csv", **given), dataset(batch))
    assert [finding.settings for finding in report.findings] == [{"boxes": "centre relative"}]


def test_box_that_is_taken_for_classes_is_hinted_at(tmp_path: Path) -> None:
    model = OnnxModel(linear_onnx(tmp_path / "m.onnx", {"out": 4}))
    with pytest.raises(InputError, match="declare `boxes='corners pixels'`"):
        align(model, ["left", "right"])
    shares = linear_onnx(tmp_path / "r.onnx", {"out": 4}, constant={"out": [0.1, 0.2, 0.3, 0.9]})
    relative = CallableModel(lambda images: np.tile([0.1, 0.2, 0.3, 0.9], (len(images), 1)), boxes="corners relative")
    assert OnnxModel(shares, boxes="corners relative").answer(squares(1), 1).boxes is not None
    np.testing.assert_allclose(relative.answer(squares(1), 1).columns["boxes"], [[1.2, 2.4, 3.6, 10.8]], rtol=1e-6)


def test_the_command_line_spells_the_form_of_boxes(tmp_path: Path) -> None:
    batch = squares(60, side=16)
    arrays = {"images": batch.images, "labels": batch.labels, "boxes": batch.boxes, "id": np.array(batch.ids)}
    np.savez(tmp_path / "d.npz", class_names=["left", "right"], **arrays)
    rows = BoxForm("centre", "relative").write(find_white(batch.images), (16, 16), (16, 16))
    table = pd.DataFrame({"id": batch.ids, **{f"box{side}": rows[:, side] for side in range(4)}})
    table.to_csv(tmp_path / "a.csv", index=False)
    given = ("check", "--model", tmp_path / "a.csv", "--data", tmp_path / "d.npz", "--strict")
    output = call(*given, code=1)
    assert "boxes, no classes" in output
    assert "finding: declare --boxes 'centre relative': IoU 1.00 instead of 0.0" in output
    assert "nothing wrong was found" in call(*given, "--boxes", "centre relative")


def test_scaled_variance_reads_stored_rows_in_a_study(tmp_path: Path) -> None:
    """The fit of a study reads what the model answered to the validation data, as stored, and every case uses it."""

    class Finder(rw.Model):
        """Always right in its class; boxes off by two, with a stated variance of one."""

        name, num_classes = "finder", 2
        capabilities = frozenset({"probabilities", "boxes", "box_variance"})

        def fingerprint(self) -> str:
            return "finder"

        def predict(self, batch: Batch) -> Prediction:
            boxes = np.asarray(find_white(batch.images) + 2.0 * (-1.0) ** np.arange(4), np.float32)
            probabilities = np.eye(2, dtype=np.float32)[batch.labels]
            return Prediction(probabilities, boxes=boxes, box_variance=np.ones_like(boxes))

    for name, seed in (("test", 5), ("validation", 7)):
        batch = squares(40, side=16, seed=seed)
        arrays = {"images": batch.images, "labels": batch.labels, "boxes": batch.boxes}
        np.savez(tmp_path / f"{name}.npz", class_names=["left", "right"], **arrays)
    content = {
        "name": "scaled",
        "data": {"test": str(tmp_path / "test.npz"), "validation": str(tmp_path / "validation.npz")},
        "models": {"m": "<in memory>"},
        "protocols": {"classification": {"shifts": ["noise"], "levels": [1], "repeats": 1}},
    }
    models = {"m": FittedVarianceScaling(Finder(), name="m")}
    prepared = prepare(parse_study(content, "study"), models=models, accept_chance=True)
    run = execute(prepared, tmp_path / "run", workers=1, progress=rw.no_progress)
    (artifact,) = run.record.artifacts.values()
    assert (artifact.builder, artifact.competence["images"]) == ("variance_scaling", 40)
    assert artifact.competence["factors"] == pytest.approx([4.0] * 4)
    assert sorted(case.system for case in run.record.cases.values() if case.kind == "signal") == [
        "box_variance of finder",
        "boxes of finder",
    ]
    assert run.verify() == []
