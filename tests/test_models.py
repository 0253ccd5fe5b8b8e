"""Model adapters: preprocessing, ONNX, torch, functions and stored predictions against closed forms and each other."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper
from scipy.special import softmax as scipy_softmax

import roadworthy as rw
from roadworthy.api import prepare
from roadworthy.core.errors import InputError, MissingExtra, ModelError, UnknownName
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Stimulus
from roadworthy.core.validation import parse_size
from roadworthy.models import (
    MODELS,
    CallableModel,
    OnnxModel,
    Preprocess,
    StoredPredictions,
    TorchModel,
    align,
    load_callable,
    load_model,
    load_torch,
    softmax,
)
from roadworthy.models import torch as torch_adapter
from roadworthy.models.outputs import as_rows, decide, prediction
from roadworthy.models.preprocess import AmbiguousLayout, parse_range, read_shape
from roadworthy.study import parse_study
from tiny import study

EXAMPLES = Path(__file__).parent.parent / "examples"


def images(count: int = 5, height: int = 4, width: int = 6, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def batch_of(pixels: np.ndarray, stimulus: str = "", start: int = 0) -> Batch:
    ids = tuple(f"i{start + row}" for row in range(len(pixels)))
    return Batch(ids, pixels, np.arange(len(pixels)) % 3, stimulus=stimulus)


# --- preprocessing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("colour", ["rgb", "bgr"])
@pytest.mark.parametrize(
    ("text", "mean", "std"),
    [
        ("0-1", 0, 1),
        ("0-255", 0, 1 / 255),
        ("-1-1", 0.5, 0.5),
        ("0.25/0.5", 0.25, 0.5),
        ("imagenet", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ("0.1,0.2,0.3/2", [0.1, 0.2, 0.3], 2),
    ],
)
def test_tensor_is_the_formula(layout: str, colour: str, text: str, mean: Any, std: Any) -> None:
    pixels = images()
    before = pixels.copy()
    expected = (pixels / 255 - np.asarray(mean)) / np.asarray(std)
    expected = expected[..., ::-1] if colour == "bgr" else expected
    expected = expected.transpose(0, 3, 1, 2) if layout == "nchw" else expected
    tensor = Preprocess(text, layout, colour)(pixels)
    assert tensor.dtype == np.float32
    assert tensor.flags.c_contiguous
    np.testing.assert_array_equal(tensor, expected.astype(np.float32))
    np.testing.assert_array_equal(pixels, before)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_channels_are_converted(layout: str) -> None:
    grey, colour = images(channels=1), images()
    axis = 1 if layout == "nchw" else -1
    repeated = Preprocess("imagenet", layout)(grey)
    np.testing.assert_array_equal(repeated, Preprocess("imagenet", layout)(np.repeat(grey, 3, axis=-1)))
    luma = Preprocess("0-255", layout, channels=1)(colour).squeeze(axis)
    assert np.abs(luma - colour @ [0.299, 0.587, 0.114]).max() <= 0.51
    kept = Preprocess("0-255", "nhwc", channels=0, dtype="uint8")
    np.testing.assert_array_equal(kept(grey), grey)
    np.testing.assert_array_equal(kept(colour), colour)


@pytest.mark.parametrize("dtype", ["float16", "float64", "uint8"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_other_types(dtype: str, layout: str) -> None:
    tensor = Preprocess("0-255", layout, "bgr", dtype=dtype)(images())
    expected = images()[..., ::-1]
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor, expected.transpose(0, 3, 1, 2) if layout == "nchw" else expected)


def test_resize_uses_area_down_and_linear_up() -> None:
    pixels = images(2, 8, 8)
    down = Preprocess("0-255", "nhwc", size=(4, 4))(pixels)
    boxes = pixels.reshape(2, 4, 2, 4, 2, 3).mean(axis=(2, 4))
    assert np.abs(down - boxes).max() <= 0.51
    up = Preprocess("0-255", "nhwc", size=(16, 12))(pixels)
    np.testing.assert_array_equal(up[0], cv2.resize(pixels[0], (12, 16), interpolation=cv2.INTER_LINEAR))
    assert Preprocess(size=(16, 16), channels=1)(images(2, 8, 8, 1)).shape == (2, 1, 16, 16)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("colour", ["rgb", "bgr"])
@pytest.mark.parametrize(("data_channels", "channels"), [(3, 3), (3, 1), (1, 3), (1, 1)])
@pytest.mark.parametrize("size", [None, (3, 2), (9, 11), (3, 11)])
def test_adjoint_is_the_transpose(
    layout: str, colour: str, data_channels: int, channels: int, size: tuple[int, int] | None
) -> None:
    """<A x, y> = <x, A' y> for the linear part A of preprocessing: differences of two images, free of rounding."""
    process = Preprocess("0.3/0.7", layout, colour, size, channels)
    rng = np.random.default_rng(1)
    first, second = images(2, 6, 4, data_channels, seed=1), images(2, 6, 4, data_channels, seed=2)
    change = process(first).astype(np.float64) - process(second)
    towards = rng.normal(size=change.shape)
    back = process.adjoint(towards, first.shape)
    assert back.shape == first.shape
    rounding = 2 / 255 / 0.7 * np.abs(towards).sum()
    assert abs((change * towards).sum() - ((first.astype(float) - second) * back).sum()) <= rounding
    if size is None and channels >= data_channels:
        np.testing.assert_allclose((change * towards).sum(), ((first.astype(float) - second) * back).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "text", ["", "0-2", "imagnet", "1/0", "1/-1", "1,2/1", "1/2/3", "nan/1", "1/inf", "a/b", "1,2,3,4/1"]
)
def test_bad_ranges_name_the_allowed_forms(text: str) -> None:
    with pytest.raises(InputError, match=r"imagenet.*MEAN/STD"):
        parse_range(text)


@pytest.mark.parametrize("value", ["", "32x", "x32", "0x4", "axb", [1, 2, 3], [0, 1], 0, "-1x2"])
def test_bad_sizes(value: Any) -> None:
    with pytest.raises(InputError, match="size"):
        parse_size(value)


@pytest.mark.parametrize(
    "settings",
    [
        {"layout": "chw"},
        {"colour": "gbr"},
        {"channels": 4},
        {"dtype": "int8"},
        {"channels": 1, "range": "imagenet"},
        {"dtype": "uint8", "range": "0-1"},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Preprocess(**settings)


def test_settings_have_one_form() -> None:
    assert Preprocess("-1-1").settings() == Preprocess("0.5,0.5,0.5/0.5").settings()
    assert Preprocess("-1-1").settings() != Preprocess("0-1").settings()


def test_shapes_are_read() -> None:
    assert read_shape((4, 3, 8, 9), "auto", None, "m") == ("nchw", 3, (8, 9), 4)
    assert read_shape((None, 8, 9, 1), "auto", None, "m") == ("nhwc", 1, (8, 9), None)
    assert read_shape((None, 3, None, None), "auto", (5, 5), "m") == ("nchw", 3, (5, 5), None)
    assert read_shape((1, 3, 8, 3), "nhwc", None, "m") == ("nhwc", 3, (3, 8), 1)
    for dims in ((None, 3, 8, 3), (None,) * 4):
        with pytest.raises(AmbiguousLayout, match="`layout='nchw'`"):
            read_shape(dims, "auto", None, "m")
    for dims, layout, size in (
        ((1, 4, 8, 8), "auto", None),
        ((1, 3, 8), "auto", None),
        ((1, 3, 8, 8), "nhwc", None),
        ((1, 3, 8, 8), "auto", (9, 9)),
        ((1, 3, None, 8), "auto", None),
    ):
        with pytest.raises(InputError, match=r"m .*"):
            read_shape(dims, layout, size, "m")


# --- outputs ---------------------------------------------------------------------------------------------------------

rows_of_logits = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=70), elements=st.floats(-100, 100, width=32)
)


@settings(deadline=None, max_examples=50)
@given(rows_of_logits)
def test_softmax_is_scipys_and_each_row_stands_alone(logits: np.ndarray) -> None:
    found = softmax(logits)
    expected = scipy_softmax(logits.astype(np.float64), axis=1).astype(np.float32)
    np.testing.assert_array_max_ulp(found, expected, maxulp=1)
    for row in range(len(logits)):
        np.testing.assert_array_equal(found[row], softmax(logits[row : row + 1])[0])
    np.testing.assert_array_equal(found, softmax(np.asfortranarray(logits)))


def test_softmax_at_the_edges() -> None:
    np.testing.assert_array_equal(softmax(np.array([[1e4, 0, -1e4], [-np.inf, 0, 0]])), [[1, 0, 0], [0, 0.5, 0.5]])
    assert np.isnan(softmax(np.array([[np.nan, 0.0]]))).all()


def test_rows_are_found_in_outputs() -> None:
    assert as_rows(np.zeros((2, 5, 1, 1)), 2).shape == (2, 5)
    assert as_rows(np.zeros(5), 1).shape == (1, 5)
    assert as_rows(np.zeros((2, 5, 2, 2)), 2) is None
    assert as_rows(np.zeros(5), 5) is None


def test_outputs_are_decided() -> None:
    logits, probabilities = np.array([[3.0, -1.0], [0.2, 0.8]]), np.array([[0.25, 0.75], [0.0, 1.0]])
    assert decide("auto", logits, "m") == decide("logits", logits, "m") == "logits"
    assert decide("auto", probabilities, "m") == decide("probabilities", probabilities, "m") == "probabilities"
    with pytest.raises(InputError, match="logits where probabilities were declared"):
        decide("probabilities", logits, "m")
    with pytest.raises(InputError, match="probabilities where logits were declared"):
        decide("logits", probabilities, "m")
    with pytest.raises(InputError, match="sigmoid"):
        decide("auto", np.array([[0.9, 0.8]]), "m")
    with pytest.raises(InputError, match="one number"):
        decide("auto", np.zeros((2, 1)), "m")
    with pytest.raises(InputError, match="NaN"):
        decide("auto", np.full((2, 2), np.nan), "m")
    with pytest.raises(InputError, match="auto, probabilities, logits"):
        decide("logit", logits, "m")


# --- ONNX ------------------------------------------------------------------------------------------------------------

CLASSES, SIDE = 4, 4
WEIGHTS = np.random.default_rng(7).normal(size=(3 * SIDE * SIDE, CLASSES)).astype(np.float32)
Nodes = Sequence[onnx.NodeProto]


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], name=f"{kind}_{output}", **attributes)


def save(
    path: Path,
    nodes: Nodes,
    *,
    dims: Sequence[Any] = ("n", 3, SIDE, SIDE),
    outputs: Sequence[str] = ("y",),
    kind: int = TensorProto.FLOAT,
    inputs: Sequence[str] = ("x",),
    opset: int = 17,
    **arrays: np.ndarray,
) -> Path:
    """Write a graph; `x` is its image input, arrays become initializers."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, dims) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def linear(path: Path, *tail: onnx.NodeProto, head: Nodes = (), **settings: Any) -> Path:
    """x -> flatten -> times WEIGHTS -> `z`, then the tail; without a tail the output is `z`."""
    settings.setdefault("outputs", ("y",) if tail else ("z",))
    start = "h" if head else "x"
    nodes = [*head, node("Flatten", start, "flat"), node("MatMul", "flat w", "z"), *tail]
    return save(path, nodes, w=settings.pop("w", WEIGHTS), **settings)


def expected_logits(pixels: np.ndarray) -> np.ndarray:
    return (pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1) / 255).astype(np.float32) @ WEIGHTS


@pytest.fixture
def pixels() -> np.ndarray:
    return images(8, SIDE, SIDE)


def test_onnx_logits(tmp_path: Path, pixels: np.ndarray) -> None:
    model = OnnxModel(linear(tmp_path / "m.onnx"))
    answer = model.predict(batch_of(pixels))
    np.testing.assert_allclose(answer.logits, expected_logits(pixels), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(answer.probabilities, softmax(answer.logits))
    assert (model.name, model.num_classes, model.input_size, model.fixed_batch) == ("m", CLASSES, (SIDE, SIDE), None)
    assert model.capabilities == {"probabilities", "logits", "features"}


@pytest.mark.parametrize(
    "tail",
    [
        (node("Softmax", "z", "y", axis=1),),
        (node("Softmax", "z", "s", axis=-1), node("Identity", "s", "y")),
        (node("Softmax", "z", "s", axis=1), node("Cast", "s", "c", to=11), node("Cast", "c", "y", to=1)),
        (node("Softmax", "z", "s", axis=1), node("Unsqueeze", "s ax", "u"), node("Reshape", "u shape", "y")),
    ],
)
def test_onnx_softmax_tail_gives_both(tmp_path: Path, pixels: np.ndarray, tail: Nodes) -> None:
    path = linear(tmp_path / "m.onnx", *tail, ax=np.array([2]), shape=np.array([-1, CLASSES]))
    model = OnnxModel(path)
    answer = model.predict(batch_of(pixels))
    np.testing.assert_allclose(answer.logits, expected_logits(pixels), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(answer.probabilities, softmax(answer.logits), atol=1e-6)
    assert model.outputs == "probabilities"
    assert "logits" in model.capabilities
    with pytest.raises(InputError, match="ends in Softmax"):
        OnnxModel(path, outputs="logits")


def test_onnx_softmax_over_the_wrong_axis_gives_no_logits(tmp_path: Path) -> None:
    tail = (node("Softmax", "z", "s", axis=0), node("ReduceSum", "s ax", "t"), node("Div", "s t", "y"))
    model = OnnxModel(linear(tmp_path / "m.onnx", *tail, ax=np.array([1])))
    assert (model.outputs, "logits" in model.capabilities) == ("probabilities", False)


def test_onnx_log_softmax_is_logits(tmp_path: Path, pixels: np.ndarray) -> None:
    path = linear(tmp_path / "m.onnx", node("LogSoftmax", "z", "y", axis=1))
    answer = OnnxModel(path).predict(batch_of(pixels))
    np.testing.assert_allclose(answer.probabilities, softmax(expected_logits(pixels)), atol=1e-6)
    with pytest.raises(InputError, match="ends in LogSoftmax"):
        OnnxModel(path, outputs="probabilities")


def test_onnx_probabilities_without_a_softmax_node(tmp_path: Path, pixels: np.ndarray) -> None:
    tail = (node("Exp", "z", "e"), node("ReduceSum", "e ax", "t"), node("Div", "e t", "y"))
    model = OnnxModel(linear(tmp_path / "m.onnx", *tail, ax=np.array([1])))
    np.testing.assert_allclose(
        model.predict(batch_of(pixels)).probabilities, softmax(expected_logits(pixels)), atol=1e-6
    )
    assert (model.outputs, "logits" in model.capabilities) == ("probabilities", False)


def test_onnx_outputs_that_contradict(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="logits where probabilities were declared"):
        OnnxModel(linear(tmp_path / "z.onnx"), outputs="probabilities")
    sigmoid = linear(tmp_path / "s.onnx", node("Sigmoid", "z", "y"))
    with pytest.raises(InputError, match="sigmoid"):
        OnnxModel(sigmoid)
    assert OnnxModel(sigmoid, outputs="logits").outputs == "logits"


def test_onnx_that_ends_in_a_linear_layer_is_logits_however_small(tmp_path: Path) -> None:
    assert OnnxModel(linear(tmp_path / "m.onnx", w=np.abs(WEIGHTS) * 1e-3)).outputs == "logits"


@pytest.mark.parametrize("size", [1, 4])
def test_onnx_fixed_batch(tmp_path: Path, pixels: np.ndarray, size: int) -> None:
    model = OnnxModel(linear(tmp_path / "m.onnx", dims=(size, 3, SIDE, SIDE)))
    assert model.fixed_batch == size
    answer = model.answer(batch_of(pixels[:7]), 64)
    np.testing.assert_allclose(answer.logits, expected_logits(pixels[:7]), rtol=1e-5, atol=1e-5)


def test_onnx_that_claims_any_batch_but_takes_one(tmp_path: Path, pixels: np.ndarray) -> None:
    path = linear(tmp_path / "m.onnx", node("Reshape", "z shape", "y"), shape=np.array([1, CLASSES]))
    assert OnnxModel(path).fixed_batch == 1
    dropped = linear(tmp_path / "d.onnx", node("Squeeze", "z ax", "y"), ax=np.array([0]), dims=(1, 3, SIDE, SIDE))
    answer = OnnxModel(dropped).answer(batch_of(pixels), 64)
    np.testing.assert_allclose(answer.logits, expected_logits(pixels), rtol=1e-5, atol=1e-5)


def test_onnx_outputs_of_four_dimensions_and_several(tmp_path: Path, pixels: np.ndarray) -> None:
    tail = (node("Unsqueeze", "z ax", "y"), node("Exp", "x", "other"))
    model = OnnxModel(linear(tmp_path / "m.onnx", *tail, ax=np.array([2, 3]), outputs=("other", "y")))
    np.testing.assert_allclose(model.predict(batch_of(pixels)).logits, expected_logits(pixels), rtol=1e-5, atol=1e-5)
    assert "'y'" in model.notes[0]
    assert "'other'" in model.notes[0]


def test_onnx_nhwc_bgr_and_range(tmp_path: Path, pixels: np.ndarray) -> None:
    head = (node("Transpose", "x", "h", perm=[0, 3, 1, 2]),)
    model = OnnxModel(linear(tmp_path / "m.onnx", head=head, dims=("n", SIDE, SIDE, 3)), colour="bgr", range="-1-1")
    flat = (pixels[..., ::-1] / 127.5 - 1).transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    np.testing.assert_allclose(model.predict(batch_of(pixels)).logits, flat @ WEIGHTS, rtol=1e-4, atol=1e-4)
    assert model.preprocess.layout == "nhwc"


@pytest.mark.parametrize(
    ("kind", "numpy_kind"),
    [(TensorProto.UINT8, "uint8"), (TensorProto.FLOAT16, "float16"), (TensorProto.DOUBLE, "float64")],
)
def test_onnx_input_types(tmp_path: Path, pixels: np.ndarray, kind: int, numpy_kind: str) -> None:
    path = linear(tmp_path / "m.onnx", head=(node("Cast", "x", "h", to=TensorProto.FLOAT),), kind=kind)
    model = OnnxModel(path)
    scale = 255 if numpy_kind == "uint8" else 1
    answer = model.predict(batch_of(pixels)).logits
    np.testing.assert_allclose(answer, expected_logits(pixels) * scale, rtol=2e-3, atol=5e-3 * scale)
    if numpy_kind == "uint8":
        with pytest.raises(InputError, match="uint8 pixels: use the range 0-255"):
            OnnxModel(path, range="imagenet")


def test_onnx_grey_and_resize(tmp_path: Path) -> None:
    path = linear(tmp_path / "m.onnx", dims=("n", 1, SIDE, SIDE), w=WEIGHTS[: SIDE * SIDE])
    assert OnnxModel(path).predict(batch_of(images(3, 9, 7))).probabilities.shape == (3, CLASSES)


def test_onnx_open_size(tmp_path: Path) -> None:
    nodes = [node("GlobalAveragePool", "x", "p"), node("Flatten", "p", "f"), node("MatMul", "f w", "y")]
    free = OnnxModel(save(tmp_path / "free.onnx", nodes, dims=("n", 3, "h", "w"), w=WEIGHTS[:3]))
    assert free.input_size is None
    assert len(free.predict(batch_of(images(3, 17, 23))).probabilities) == 3
    tied = linear(tmp_path / "tied.onnx", dims=("n", 3, "h", "w"))
    with pytest.raises(InputError, match="`size='HxW'`"):
        OnnxModel(tied)
    assert OnnxModel(tied, size="4x4").predict(batch_of(images(3, 9, 9))).probabilities.shape == (3, CLASSES)
    only_32 = OnnxModel(linear(tmp_path / "o.onnx", dims=("n", 3, "h", "w"), w=np.ones((3 * 32 * 32, 4), np.float32)))
    with pytest.raises(ModelError, match="`size='HxW'`"):
        only_32.predict(batch_of(images(2, 9, 9)))


def test_onnx_features(tmp_path: Path, pixels: np.ndarray) -> None:
    model = OnnxModel(linear(tmp_path / "m.onnx", node("Softmax", "z", "y", axis=1)))
    by_output, by_node = model.features(batch_of(pixels), "flat"), model.features(batch_of(pixels), "Flatten_flat")
    np.testing.assert_array_equal(by_output, Preprocess()(pixels).reshape(len(pixels), -1))
    np.testing.assert_array_equal(by_output, by_node)
    assert model.layers() == ("flat", "z", "y")
    with pytest.raises(InputError, match="no layer 'conv9'"):
        model.features(batch_of(pixels), "conv9")


def test_onnx_from_two_threads_is_the_same(tmp_path: Path) -> None:
    model = OnnxModel(linear(tmp_path / "m.onnx"))
    batches = [batch_of(images(16, SIDE, SIDE, seed=seed)) for seed in range(40)]
    alone = [model.predict(batch).probabilities for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda batch: model.predict(batch).probabilities, batches))
    np.testing.assert_array_equal(alone, together)
    assert model.concurrent


def test_onnx_fingerprint_is_what_changes_an_answer(tmp_path: Path) -> None:
    path, copy = linear(tmp_path / "a.onnx"), linear(tmp_path / "b.onnx")
    base = OnnxModel(path).fingerprint()
    assert base == OnnxModel(copy, name="other", threads=2, layout="nchw", outputs="logits").fingerprint()
    assert base == OnnxModel(path, classes=list("abcd"), range="0/1").fingerprint()
    others = [OnnxModel(path, range="0-255"), OnnxModel(path, colour="bgr")]
    others += [OnnxModel(linear(tmp_path / "c.onnx", w=WEIGHTS + 1))]
    assert len({base, *(other.fingerprint() for other in others)}) == 4


def test_onnx_external_weights(tmp_path: Path, pixels: np.ndarray) -> None:
    inside = linear(tmp_path / "m.onnx", node("Softmax", "z", "y", axis=1))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    outside = folder / "m.onnx"
    onnx.save(onnx.load(inside), outside, save_as_external_data=True, location="m.data", size_threshold=0)
    model = OnnxModel(outside)
    first = model.predict(batch_of(pixels))
    np.testing.assert_array_equal(first.logits, OnnxModel(inside).predict(batch_of(pixels)).logits)
    content = bytearray((folder / "m.data").read_bytes())
    content[3] ^= 1
    (folder / "m.data").write_bytes(content)
    assert OnnxModel(outside).fingerprint() != model.fingerprint()
    (folder / "m.data").unlink()
    with pytest.raises(InputError, match=r"m\.data, which is not there"):
        OnnxModel(outside)
    for tensor in (graph := onnx.load(outside, load_external_data=False)).graph.initializer:
        tensor.external_data[0].value = "../m.onnx"
    outside.write_bytes(graph.SerializeToString())
    with pytest.raises(InputError, match="outside its folder"):
        OnnxModel(outside)


def test_onnx_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "text.onnx").write_text("this is no model at all" * 10)
    good = linear(tmp_path / "good.onnx")
    (tmp_path / "cut.onnx").write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    for name in ("empty", "text", "cut"):
        with pytest.raises(InputError, match=f"{name}.onnx is not an ONNX model"):
            OnnxModel(tmp_path / f"{name}.onnx")
    with pytest.raises(InputError, match="there is no ONNX file"):
        OnnxModel(tmp_path / "absent.onnx")
    with pytest.raises(InputError, match=r"cannot load .*new.onnx: it is of opset 99"):
        OnnxModel(linear(tmp_path / "new.onnx", opset=99))
    two = save(tmp_path / "two.onnx", [node("Add", "x mask", "y")], inputs=("x", "mask"))
    with pytest.raises(InputError, match=r"one input.*'x', 'mask'"):
        OnnxModel(two)
    with pytest.raises(InputError, match="INT64"):
        OnnxModel(linear(tmp_path / "i.onnx", head=(node("Cast", "x", "h", to=1),), kind=TensorProto.INT64))
    with pytest.raises(InputError, match="4 classes but 3 class names"):
        OnnxModel(good, classes=["a", "b", "c"])
    with pytest.raises(InputError, match="not one row of class scores"):
        OnnxModel(save(tmp_path / "map.onnx", [node("Relu", "x", "y")]))
    with pytest.raises(AmbiguousLayout, match="`layout='nchw'`"):
        OnnxModel(linear(tmp_path / "a.onnx", dims=("n", 3, 16, 3)))


def test_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = linear(tmp_path / "m.onnx")
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    assert OnnxModel(path, device="auto").fingerprint() == OnnxModel(path, device="cpu").fingerprint()
    with pytest.raises(InputError, match=r"no CUDA.*`device='cpu'`"):
        OnnxModel(path, device="cuda")
    with pytest.raises(InputError, match="auto, cpu, cuda"):
        OnnxModel(path, device="gpu")


# --- torch -----------------------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """A small network with everything that behaves otherwise in training."""

    def __init__(self, *tail: Any) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3)
        self.norm = torch.nn.BatchNorm2d(5)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(5, CLASSES)
        self.tail = torch.nn.Sequential(*tail)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tail(self.last(self.drop(self.norm(self.conv(x)).relu().mean((2, 3)))))


def net(*tail: Any) -> Net:
    torch.manual_seed(0)
    return Net(*tail)


def net_for_arch() -> Net:
    return net()


def test_torch_module_is_evaluated_and_left_as_it_was(pixels: np.ndarray) -> None:
    module = net()
    module.norm.eval()
    model = TorchModel(module)
    first, second = (model.predict(batch_of(pixels)) for _ in range(2))
    np.testing.assert_array_equal(first.logits, second.logits)
    assert (module.training, module.drop.training, module.norm.training) == (True, True, False)
    with torch.inference_mode():
        expected = net().eval()(torch.from_numpy(Preprocess()(pixels))).numpy()
    np.testing.assert_allclose(first.logits, expected, rtol=1e-5, atol=1e-6)
    assert module.norm.num_batches_tracked == 0
    assert model.capabilities == {"probabilities", "logits", "features", "input_gradient"}
    assert all(weight.grad is None for weight in module.parameters())


class Watching(torch.nn.Module):
    """A convolution that notes how its batches lie in memory; with `stiff` it takes them channel by channel alone."""

    def __init__(self, stiff: bool, noise: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stiff, self.noise = stiff, noise
        self.conv, self.last = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)
        self.seen: list[tuple[int, bool]] = []

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        self.seen.append((len(image), image.is_contiguous()))
        maps = self.conv(image)
        flat = maps.view(len(image), -1) if self.stiff else maps.flatten(1)
        return self.last(flat.view(len(image), 4, -1).mean(2)) + self.noise * torch.rand(1)


def test_torch_batches_lie_pixel_by_pixel_where_the_module_answers_the_same() -> None:
    pixels = images(6, 6, 6)
    plain = Watching(stiff=False).eval()
    with torch.inference_mode():
        expected = plain(torch.from_numpy(Preprocess()(pixels))).numpy()
    for module, contiguous in ((plain, False), (Watching(stiff=True), True), (Watching(False, noise=1.0), True)):
        model = TorchModel(module, outputs="logits")
        torch.manual_seed(7)
        first = model.predict(batch_of(pixels)).logits
        assert module.seen[-1] == (6, contiguous)
        calls = len(module.seen)
        model.predict(batch_of(pixels[:3]))
        assert module.seen[-1] == (3, True), "a few images are not worth it"
        assert len(module.seen) == calls + 1, "the question is asked once per shape"
        draws = torch.get_rng_state()
        torch.manual_seed(7), torch.rand(1), torch.rand(1)
        assert torch.equal(torch.get_rng_state(), draws), "the question takes no random numbers from the answers"
        if not module.noise:
            np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)


class Choosy(Watching):
    """Takes eight images at once and nothing else; runs its last layer for bright images alone."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if len(image) != 8:
            raise ValueError(f"a batch of {len(image)}")
        if image.mean() > 0.3:
            return super().forward(image)
        return self.conv(image).mean((2, 3)) @ self.last.weight.T


def test_torch_modules_of_a_fixed_batch_and_features_are_not_disturbed_by_the_question() -> None:
    model = TorchModel(Choosy(stiff=False), outputs="logits", dims=(8, 3, None, None))
    assert model.fixed_batch == 8
    bright, dark = np.full((8, 9, 9, 3), 200, np.uint8), np.zeros((8, 9, 9, 3), np.uint8)
    with pytest.raises(InputError, match="is not run"):
        model.features(batch_of(dark), "last")
    assert model.features(batch_of(bright), "last").shape == (8, 5)
    assert model.module.seen[-1] == (8, False)


def test_torch_from_two_threads_is_the_same() -> None:
    module = net()
    model = TorchModel(module)
    batches = [batch_of(images(16, 12, 12, seed=seed)) for seed in range(30)]
    work: list[Callable[[Batch], np.ndarray]] = [
        lambda batch: model.predict(batch).probabilities,
        lambda batch: model.features(batch, "conv"),
        lambda batch: model.features(batch, "norm"),
        model.input_gradient,
    ]
    jobs = [(function, batch) for batch in batches for function in work]
    alone = [function(batch) for function, batch in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: job[0](job[1]), jobs))
        threads = pool.submit(torch.get_num_threads).result()
    assert all(np.array_equal(*pair) for pair in zip(alone, together, strict=True))
    assert threads == 1
    assert all(part.training for part in module.modules())
    assert not any(part._forward_hooks for part in module.modules())


class Interrupted(Net):
    """Runs something else between its convolution and its end."""

    meanwhile: Callable[[], Any] = staticmethod(lambda: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = super().forward(x)
        self.meanwhile()
        return answer


def test_torch_features_are_of_the_caller_alone() -> None:
    module = Interrupted()
    model = TorchModel(module, outputs="logits")
    mine, other = batch_of(images(4, 9, 9)), batch_of(images(4, 9, 9, seed=1))
    expected = model.features(mine, "conv")

    def another_thread_asks() -> None:
        Interrupted.meanwhile = staticmethod(lambda: None)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(model.predict, other).result()

    Interrupted.meanwhile = staticmethod(another_thread_asks)
    np.testing.assert_array_equal(model.features(mine, "conv"), expected)
    assert module.training


def test_torch_features_are_the_submodules_output(pixels: np.ndarray) -> None:
    model = TorchModel(net())
    expected = net().eval().conv(torch.from_numpy(Preprocess()(pixels))).detach().numpy()
    np.testing.assert_allclose(model.features(batch_of(pixels), "conv"), expected, rtol=1e-5, atol=1e-6)
    assert model.layers() == ("conv", "norm", "drop", "last", "tail")
    with pytest.raises(InputError, match="no layer 'cnv'"):
        model.features(batch_of(pixels), "cnv")


@pytest.mark.parametrize("tail", [(), (torch.nn.Softmax(1),)])
@pytest.mark.parametrize(
    "settings", [{}, {"range": "imagenet", "colour": "bgr"}, {"size": (7, 9)}, {"size": (3, 3)}, {"range": "0-255"}]
)
def test_torch_gradient_is_the_slope_of_the_loss(tail: Any, settings: dict[str, Any]) -> None:
    """Against differences of -log p(label) at images three grey levels apart, along the gradient's own sign."""
    pixels = images(3, 5, 6) // 2 + 64
    module = net(*tail)
    module.conv.weight.data *= 0.1 if "range" in settings else 1.0
    model = TorchModel(module, **settings)
    batch = batch_of(pixels)
    gradient = model.input_gradient(batch)
    assert gradient.shape == pixels.shape
    step = 3 * np.sign(gradient).astype(np.int64)
    losses = []
    for sign in (1, -1):
        moved = batch.with_images((pixels + sign * step).astype(np.uint8))
        losses.append(-np.log(model.predict(moved).probabilities[np.arange(3), batch.labels].astype(np.float64)))
    slope = (losses[0] - losses[1]) / 2
    np.testing.assert_allclose(slope, (gradient * step).sum(axis=(1, 2, 3)), rtol=0.1, atol=3e-4)


def test_torch_gradient_by_closed_form() -> None:
    """For logits W x the gradient of cross-entropy is W' (p - onehot) / 255."""
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, CLASSES, bias=False))
    module[1].weight.data = torch.from_numpy(WEIGHTS.T.copy())
    model = TorchModel(module, size=SIDE)
    batch = batch_of(images(4, SIDE, SIDE))
    error = model.predict(batch).probabilities - np.eye(CLASSES)[batch.labels]
    expected = (error @ WEIGHTS.T / 255).reshape(4, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(model.input_gradient(batch), expected, rtol=1e-4, atol=1e-7)


class Answers(torch.nn.Module):
    """No weights; answers channel means in the form asked for."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Any) -> Any:
        scores = x.mean((2, 3)) * 10
        return {
            "tensor": scores,
            "tuple": (x, scores)[::-1],
            "dictionary": {"mask": x.mean(), "logits": scores},
            "squeezed": scores.squeeze(),
            "square": scores[:, :, None, None],
        }[self.form]


@pytest.mark.parametrize("form", ["tensor", "tuple", "dictionary", "squeezed", "square"])
def test_torch_modules_without_weights_and_other_answers(pixels: np.ndarray, form: str) -> None:
    model = TorchModel(Answers(form), name=form)
    expected = pixels.mean(axis=(1, 2)) / 25.5
    np.testing.assert_allclose(model.predict(batch_of(pixels)).logits, expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict(batch_of(pixels[:1])).logits, expected[:1], rtol=1e-5)


def test_torch_grey_module_is_found_out() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    assert TorchModel(module).preprocess.channels == 1


def test_torch_fingerprint(pixels: np.ndarray) -> None:
    base = TorchModel(net())
    assert base.fingerprint() == TorchModel(net().eval(), name="other").fingerprint()
    others = [TorchModel(net(), range="imagenet"), TorchModel(net(torch.nn.Softmax(1))), TorchModel(Answers("tensor"))]
    others += [TorchModel(Answers("tuple"))]
    module = net()
    trained = TorchModel(module)
    with torch.no_grad():
        module.last.bias += 1e-6
    buffer = net()
    buffer.norm.running_mean += 1e-6
    prints = [other.fingerprint() for other in (base, *others, trained, TorchModel(buffer))]
    assert len(set(prints)) == len(prints)


def test_attributes_of_a_torch_module_count_also_inside_containers() -> None:
    module = net()
    module.config = {"scale": 1.0, "weights": [torch.ones(2)]}
    model = TorchModel(module)
    prints = [model.fingerprint()]
    for change in (
        lambda: module.config.update(scale=2.0),
        lambda: module.config["weights"][0].add_(1),
        lambda: setattr(module.conv, "dilation", (2, 2)),
    ):
        change()
        prints.append(model.fingerprint())
    assert len(set(prints)) == len(prints)


def test_a_torch_module_that_counts_its_calls_can_be_given_a_version(tmp_path: Path) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, tensor: Any) -> Any:
            self.calls += 1
            return 20 * tensor.flatten(2).mean(2)

    labels = np.arange(30) % 3
    images = np.zeros((30, 8, 8, 3), np.uint8)
    images[np.arange(30), :, :, labels] = 200
    with pytest.raises(InputError, match=r"changes what it reads .*`version='TEXT'`"):
        rw.evaluate(Counting(), (images, labels), suite="quick", out=tmp_path / "run")
    model = rw.load_model(Counting(), version="1")
    before = model.fingerprint()
    model.predict(batch_of(images))
    assert model.fingerprint() == before != rw.load_model(Counting(), version="2").fingerprint()


def test_two_functions_with_one_version_are_refused_in_one_study(tmp_path: Path) -> None:
    file = tmp_path / "answering.py"
    file.write_text("""
import numpy as np
def always(index):
    return lambda images: np.eye(14)[np.full(len(images), index)]
zero, one, again = always(0), always(1), always(0)
""")
    code = {"trust": True, "num_classes": 14, "version": "1"}
    zero, one, again = (rw.load_model(f"{file}:{name}", **code) for name in ("zero", "one", "again"))
    asked = parse_study(
        study(tmp_path, n=28, protocols={"classification": {"shifts": ["fog"], "levels": [1]}}), "study"
    )
    with pytest.raises(InputError, match="the models a and b are different functions with the same version '1'"):
        prepare(asked, models={"a": zero, "b": one}, accept_chance=True)
    prepare(asked, models={"a": zero, "b": again}, accept_chance=True)
    other = rw.load_model(f"{file}:one", **code | {"version": "2"})
    assert zero.fingerprint() == one.fingerprint() != other.fingerprint()
    prepare(asked, models={"a": zero, "b": other}, accept_chance=True)


def save_all(folder: Path) -> dict[str, Path]:
    module = net()
    files = {name: folder / f"{name}.pt" for name in ("weights", "legacy", "wrapped", "module", "nested", "script")}
    torch.save(module.state_dict(), files["weights"])
    torch.save(module.state_dict(), files["legacy"], _use_new_zipfile_serialization=False)
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in module.state_dict().items()}}, files["wrapped"])
    torch.save(module, files["module"])
    torch.save({"model": module}, files["nested"])
    torch.jit.save(torch.jit.script(module), files["script"])
    return files


def test_torch_files(tmp_path: Path, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    files = save_all(tmp_path)
    arch = {"arch": f"{__name__}:net_for_arch"}
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    expected = TorchModel(net()).predict(batch_of(pixels)).logits
    for name, file in files.items():
        needs = arch if name in ("weights", "legacy", "wrapped") else {}
        allowed = "unpickle" if name in ("module", "nested") else "trust"
        with pytest.raises(InputError, match=f"`{allowed}=True`"):
            load_model(file, **needs, **{"trust": True, "unpickle": True, allowed: False})
        model = load_model(file, **needs, **{allowed: True})
        np.testing.assert_allclose(model.predict(batch_of(pixels)).logits, expected, atol=1e-6)
        assert model.name == name
        assert "input_gradient" in model.capabilities
        assert np.abs(model.input_gradient(batch_of(pixels))).sum() > 0
    script = load_model(files["script"], trust=True)
    assert "features" not in script.capabilities
    with pytest.raises(InputError, match="gives no features"):
        script.features(batch_of(pixels), "conv")


def test_torch_weights_that_do_not_fit(tmp_path: Path) -> None:
    arch = tmp_path / "arch.py"
    arch.write_text(
        "import torch\n"
        "def wide(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))\n"
        "def deep(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4), torch.nn.Linear(4, 4))\n"
        "def flat(): return torch.nn.Flatten()\n"
        "def broken(): return 1 / 0\n"
        "def text(): return 'net'\n"
    )
    torch.save(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4)).state_dict(), tmp_path / "w.pth")

    def attempt(factory: str | None, name: str = "w.pth") -> Model:
        named = None if factory is None else f"arch.py:{factory}"
        return load_torch(name, arch=named, trust=True, size=2, base=tmp_path)

    for factory, message in {
        None: "`arch='file.py:factory'`",
        "wide": "other shapes for 1.weight, 1.bias",
        "deep": "lacks 2.weight, 2.bias",
        "flat": "unknown 1.weight, 1.bias",
        "broken": "ZeroDivisionError",
        "text": "returned str",
        "absent": "has no 'absent'; it has: wide, deep",
    }.items():
        with pytest.raises(InputError, match=message):
            attempt(factory)
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "text.pth").write_text("no torch file" * 20)
    (tmp_path / "cut.pth").write_bytes((tmp_path / "w.pth").read_bytes()[:700])
    torch.save({"epoch": 3}, tmp_path / "other.pth")
    for name, message in {
        "empty.pth": "is empty",
        "text.pth": "not a torch file, or it is corrupt",
        "cut.pth": "corrupt",
        "other.pth": "neither a module nor weights",
        "absent.pth": "there is no torch file",
    }.items():
        with pytest.raises(InputError, match=message):
            attempt("wide", name)


def test_no_code_runs_unasked(tmp_path: Path) -> None:
    """A pickle and a file of code that leave a mark when they are loaded: they must not, unless that is asked for."""
    mark = tmp_path / "mark"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (mark,)

    torch.save({"state_dict": Trap()}, tmp_path / "trap.pt")
    code = tmp_path / "code.py"
    code.write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\ndef f(x): return x\n")
    for spec in (tmp_path / "trap.pt", f"{code}:f", {"torch": "x.pt", "arch": f"{code}:f"}):
        with pytest.raises(InputError, match=r"`trust=True`|`unpickle=True`|no torch file"):
            load_model(spec)
    assert not mark.exists()
    with pytest.raises(InputError, match="neither a module nor weights"):
        load_model(tmp_path / "trap.pt", unpickle=True)
    assert mark.exists()


def test_torch_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[torch\]"):
        torch_adapter.import_torch()


def test_torch_archives_with_code_are_told_by_their_names(tmp_path: Path) -> None:
    for inside, allowed in {
        "m/archive_format": "unpickle",
        "serialized_exported_program.json": "unpickle",
        "m/constants.pkl": "trust",
    }.items():
        with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
            archive.writestr(inside, "pt2")
        with pytest.raises(InputError, match=f"`{allowed}=True`"):
            load_model(tmp_path / "m.pt2", **{"trust": True, "unpickle": True, allowed: False})
        with pytest.raises(InputError, match="torch cannot load"):
            load_model(tmp_path / "m.pt2", **{allowed: True})


@pytest.mark.slow
def test_torch_exported_program(tmp_path: Path, pixels: np.ndarray) -> None:
    program = torch.export.export(net().eval(), (torch.rand(4, 3, SIDE, SIDE),))
    torch.export.save(program, tmp_path / "m.pt2")
    with pytest.raises(InputError, match=r"exported program.*`unpickle=True`"):
        load_model(tmp_path / "m.pt2", trust=True)
    model = load_model(tmp_path / "m.pt2", unpickle=True)
    assert (model.fixed_batch, model.input_size) == (4, (SIDE, SIDE))
    expected = TorchModel(net()).predict(batch_of(pixels)).logits
    np.testing.assert_allclose(model.answer(batch_of(pixels), 64).logits, expected, atol=1e-6)
    assert np.abs(model.input_gradient(batch_of(pixels[:4]))).sum() > 0


def resnet20(shared_data: Path) -> Model:
    arch = str(EXAMPLES / "cifar10_resnet20.py") + ":resnet20"
    return load_model(shared_data / "cifar10_resnet20.th", arch=arch, trust=True, range="imagenet")


def cifar(shared_data: Path, count: int) -> Batch:
    with np.load(shared_data / "cifar10_test.npz", allow_pickle=False) as stored:
        return Batch(tuple(map(str, range(count))), stored["images"][:count], stored["labels"][:count])


def test_resnet20_in_torch_and_onnx(shared_data: Path, tmp_path: Path) -> None:
    ours, batch = resnet20(shared_data), cifar(shared_data, 128)
    answer = ours.answer(batch, 64)
    assert (answer.probabilities.argmax(axis=1) == batch.labels).mean() > 0.88
    file = tmp_path / "r.onnx"
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    example = (torch.rand(2, 3, 32, 32),)
    torch.onnx.export(
        ours.module.eval(), example, file, input_names=["x"], output_names=["y"], dynamic_axes=axes, dynamo=False
    )
    theirs = load_model(file, range="imagenet").answer(batch, 64)
    np.testing.assert_allclose(theirs.logits, answer.logits, atol=1e-4)
    np.testing.assert_allclose(theirs.probabilities, answer.probabilities, atol=1e-5)


@pytest.mark.slow
def test_resnet20_exported_by_dynamo(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    ours, batch = resnet20(shared_data), cifar(shared_data, 128)
    shapes = ({0: torch.export.Dim("n")},)
    torch.onnx.export(ours.module.eval(), (torch.rand(2, 3, 32, 32),), tmp_path / "r.onnx", dynamic_shapes=shapes)
    theirs = load_model(tmp_path / "r.onnx", range="imagenet").answer(batch, 64)
    np.testing.assert_allclose(theirs.probabilities, ours.answer(batch, 64).probabilities, atol=1e-5)


@pytest.mark.slow
def test_resnet20_accuracy(shared_data: Path) -> None:
    batch = cifar(shared_data, 4000)
    answer = resnet20(shared_data).answer(batch, 64)
    assert abs((answer.probabilities.argmax(axis=1) == batch.labels).mean() - 0.917) < 0.01


# --- functions -------------------------------------------------------------------------------------------------------


def channel_shares(pixels: np.ndarray) -> np.ndarray:
    means = pixels.mean(axis=(1, 2)) + 1.0
    return means / means.sum(axis=1, keepdims=True)


def test_callable_gets_the_images(pixels: np.ndarray) -> None:
    model = CallableModel(channel_shares)
    assert (model.num_classes, model.name, model.concurrent) == (3, "channel_shares", False)
    np.testing.assert_allclose(model.predict(batch_of(pixels)).probabilities, channel_shares(pixels), rtol=1e-6)
    seen: list[tuple[int, ...]] = []

    def watch(given: np.ndarray) -> np.ndarray:
        seen.append((*given.shape, given.dtype.itemsize))
        return np.full((len(given), 2), 0.5)

    CallableModel(watch, num_classes=2, version="1", size="8x9").predict(batch_of(images(2, channels=1)))
    floats = load_model(watch, classes=["a", "b"], version="1", range="0-1", layout="nchw")
    floats.predict(batch_of(images(2)))
    assert seen == [(2, 8, 9, 1, 1), (2, 3, 4, 6, 4)]


def test_callable_logits(pixels: np.ndarray) -> None:
    model = CallableModel(lambda x: x.mean(axis=(1, 2)), outputs="logits")
    answer = model.predict(batch_of(pixels))
    np.testing.assert_array_equal(answer.probabilities, softmax(pixels.mean(axis=(1, 2))))
    assert model.capabilities == {"probabilities", "logits"}
    with pytest.raises(InputError, match="logits where probabilities were declared"):
        CallableModel(lambda x: x.mean(axis=(1, 2)))
    with pytest.raises(ModelError, match=r"\(3,\)"):
        CallableModel(lambda x: x.mean(axis=(0, 1, 2)), num_classes=3).predict(batch_of(pixels))


def test_callable_that_raises_is_a_model_error(pixels: np.ndarray) -> None:
    def fail(pixels: np.ndarray) -> np.ndarray:
        raise KeyError("weights")

    with pytest.raises(ModelError, match="'weights'"):
        CallableModel(fail, num_classes=3).predict(batch_of(pixels))


def test_callable_identity() -> None:
    def scaled(factor: object) -> Callable[[np.ndarray], np.ndarray]:
        return lambda pixels: channel_shares(pixels) * factor

    one, two = (CallableModel(scaled(factor), num_classes=3).fingerprint() for factor in (1, 2))
    assert one != two
    assert one == CallableModel(scaled(1), num_classes=3, name="x").fingerprint()
    with pytest.raises(InputError, match=r"reads factor \(generator\).*version"):
        CallableModel(scaled(number for number in ()), num_classes=3)
    arrays = [CallableModel(scaled(np.full(3, factor)), num_classes=3).fingerprint() for factor in (1, 2, 1)]
    assert arrays[0] == arrays[2] != arrays[1]
    prints = {CallableModel(scaled([1]), num_classes=3, version=version).fingerprint() for version in "ab"}
    assert len(prints) == 2


def test_callable_from_a_file(tmp_path: Path, pixels: np.ndarray) -> None:
    (tmp_path / "helper.py").write_text("SCALE = 1.0\n")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom helper import SCALE\n"
        "def answer(x):\n    return np.full((len(x), 5), SCALE / 5)\nanything = 3\n"
    )
    model = load_model("mine.py:answer", base=tmp_path, trust=True)
    assert (model.num_classes, model.name) == (5, "answer")
    again = load_callable(f"{tmp_path / 'mine.py'}:answer", trust=True).fingerprint()
    assert model.fingerprint() == again
    with (tmp_path / "mine.py").open("a") as file:
        file.write("# changed\n")
    assert load_callable("mine.py:answer", trust=True, base=tmp_path).fingerprint() != again
    floats = load_callable("mine.py:answer", trust=True, base=tmp_path, range="0-1", layout="nchw")
    assert str(floats.preprocess) == "any size rgb, layout nchw, range 0-1, float32"
    for spec, message in {
        "mine.py:absent": "has no 'absent'; it has: answer",
        "mine.py:anything": "is int, not a function",
        "none.py:answer": "no Python file",
        "no.such.package:f": "cannot import no.such.package",
        "mine.py": "write file.py:name",
    }.items():
        with pytest.raises(InputError, match=message):
            load_callable(spec, trust=True, base=tmp_path)


# --- stored predictions ----------------------------------------------------------------------------------------------

CLEAN = Stimulus(data="f00").key
FOG = Stimulus(data="f00", name="fog", level=3, parameters={"strength": 0.4}).key
OTHER_FOG = Stimulus(data="f00", name="fog", level=3, parameters={"strength": 0.5}).key


def answers(count: int = 6, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    logits = np.random.default_rng(seed).normal(0, 3, (count, classes)).astype(np.float32)
    return logits, softmax(logits)


def frame(values: np.ndarray, names: Sequence[str], stimulus: str | None = CLEAN) -> pd.DataFrame:
    table = pd.DataFrame(values, columns=list(names))
    table.insert(0, "id", [f"i{row}" for row in range(len(values))])
    if stimulus is not None:
        table.insert(0, "stimulus", stimulus)
    return table


def asked(count: int = 6, stimulus: str = CLEAN) -> Batch:
    return batch_of(images(count), stimulus)


@pytest.mark.parametrize("form", ["names.csv", "p.csv", "logit.csv", "names.parquet", "logit.parquet", "list.parquet"])
def test_stored_answers_are_the_same_bits(tmp_path: Path, form: str) -> None:
    logits, probabilities = answers(1000, 5)
    file = tmp_path / form
    kind = form.split(".")[0]
    values, names = {
        "names": (probabilities, list("abcde")),
        "p": (probabilities, [f"p{k}" for k in range(5)]),
        "logit": (logits, [f"logit{k}" for k in range(5)]),
        "list": (logits, []),
    }[kind]
    if kind == "list":
        table = pa.table({"stimulus": [CLEAN] * 1000, "id": [f"i{row}" for row in range(1000)], "logits": list(logits)})
        pq.write_table(table, file)
    elif file.suffix == ".csv":
        frame(values, names).sample(frac=1, random_state=0).to_csv(file, index=False)
    else:
        frame(values, names).sample(frac=1, random_state=0).to_parquet(file)
    model = StoredPredictions(file)
    order = np.random.default_rng(1).permutation(1000)[:100]
    batch = asked(1000).take([int(row) for row in order])
    answer = model.predict(batch)
    np.testing.assert_array_equal(answer.probabilities, probabilities[order])
    if kind in ("logit", "list"):
        np.testing.assert_array_equal(answer.logits, logits[order])
    assert model.class_names == (tuple("abcde") if kind == "names" else None)
    assert ("logits" in model.capabilities) == (kind in ("logit", "list"))


@settings(deadline=None, max_examples=30)
@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_float32_survives_csv(tmp_path_factory: pytest.TempPathFactory, logits: np.ndarray) -> None:
    folder = tmp_path_factory.mktemp("csv")
    names = [f"logit{k}" for k in range(4)]
    for texts in (logits.astype(object), np.vectorize(lambda v: repr(float(v)))(logits)):
        frame(texts, names).to_csv(folder / "a.csv", index=False)
        stored = StoredPredictions(folder / "a.csv").predict(asked(3)).logits
        assert stored.tobytes() == logits.tobytes() or np.array_equal(stored, logits)


def test_csv_is_rounded_once(tmp_path: Path) -> None:
    """Just above the middle of two float32 numbers: by way of float64 it would be rounded down to 1."""
    (tmp_path / "a.csv").write_text("id,logit0,logit1\ni0,1.00000005960464477539062500001,0\n")
    assert StoredPredictions(tmp_path / "a.csv").predict(asked(1)).logits[0, 0] == np.float32(1 + 2**-23)


def test_stored_beside_the_model_itself(tmp_path: Path) -> None:
    """A model's logits through CSV give the same probabilities, bit for bit, as the model."""
    pixels = images(32, SIDE, SIDE)
    direct = OnnxModel(linear(tmp_path / "m.onnx")).predict(batch_of(pixels))
    frame(direct.logits, [f"logit{k}" for k in range(CLASSES)]).to_csv(tmp_path / "a.csv", index=False)
    stored = StoredPredictions(tmp_path / "a.csv").predict(batch_of(pixels, CLEAN))
    np.testing.assert_array_equal(stored.probabilities, direct.probabilities)


def test_stored_both(tmp_path: Path) -> None:
    logits, probabilities = answers()
    columns = {"id": [f"i{row}" for row in range(6)], "logits": list(logits), "probabilities": list(probabilities)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    answer = StoredPredictions(tmp_path / "a.parquet").predict(asked())
    np.testing.assert_array_equal(answer.logits, logits)
    np.testing.assert_array_equal(answer.probabilities, probabilities)


def test_stored_folder_and_stimuli(tmp_path: Path) -> None:
    _, clean = answers(seed=1)
    _, foggy = answers(seed=2)
    frame(clean, "abc").to_csv(tmp_path / "clean.csv", index=False)
    frame(foggy[:, ::-1], "cba", FOG).to_csv(tmp_path / "fog.csv", index=False)
    model = load_model(tmp_path)
    assert isinstance(model, StoredPredictions)
    np.testing.assert_array_equal(model.predict(asked()).probabilities, clean)
    np.testing.assert_array_equal(model.predict(asked(stimulus="")).probabilities, clean)
    np.testing.assert_array_equal(model.predict(asked(stimulus=FOG)).probabilities, foggy)
    ids = asked().ids
    assert model.check_complete({CLEAN: ids, FOG: ids}) == 0
    assert model.check_complete({CLEAN: ids[:2]}) == 10
    assert model.unused({CLEAN: ids, FOG: ids[1:]}) == [(FOG, "i0")]
    before = model.fingerprint()
    frame(clean, "abc", OTHER_FOG).to_csv(tmp_path / "more.csv", index=False)
    assert load_model(tmp_path).fingerprint() != before


def test_stored_missing_rows_are_counted_and_named(tmp_path: Path) -> None:
    _, rows = answers()
    file = tmp_path / "a.csv"
    frame(rows, "abc").to_csv(file, index=False)
    model = StoredPredictions(file)
    with pytest.raises(InputError, match=r"lacks 4 of 10 answers: \(none-0-r0-\w+, i6\), .*i7.*i8\), \.\.\."):
        model.predict(asked(10))
    with pytest.raises(InputError, match="lacks 6 of 6 answers"):
        model.predict(asked(stimulus=FOG))
    expected = {CLEAN: asked(8).ids, FOG: asked(5).ids}
    with pytest.raises(InputError, match="lacks 7 of 13 answers"):
        model.check_complete(expected)
    frame(rows, "abc", OTHER_FOG).to_csv(file, index=False)
    with pytest.raises(InputError, match=f"{OTHER_FOG}, which belongs to other data, seed, parameters or code"):
        StoredPredictions(file).predict(asked(stimulus=FOG))


def test_stored_answers_to_other_undisturbed_data_are_refused(tmp_path: Path) -> None:
    frame(answers()[1], "abc", Stimulus(data="other").key).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InputError, match="belongs to other data"):
        StoredPredictions(tmp_path / "a.csv").predict(asked())


def test_stored_without_stimulus_is_for_undisturbed_data(tmp_path: Path) -> None:
    _, rows = answers()
    frame(rows, "abc", None).to_csv(tmp_path / "a.csv", index=False)
    model = StoredPredictions(tmp_path / "a.csv")
    np.testing.assert_array_equal(model.predict(asked()).probabilities, rows)
    np.testing.assert_array_equal(model.predict(asked(stimulus="")).probabilities, rows)
    with pytest.raises(InputError, match=r"lacks 6 of 6 answers.*no column 'stimulus'"):
        model.predict(asked(stimulus=FOG))


def test_stored_ids_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,p0,p1\n007,0.25,0.75\n7,1,0\nNA,0.5,0.5\n")
    model = StoredPredictions(tmp_path / "a.csv")
    batch = Batch(("7", "007", "NA"), images(3), np.zeros(3, np.int64))
    assert model.predict(batch).probabilities[:, 0].tolist() == [1.0, 0.25, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,a,b\nx,1,0\ny,1,0\nx,0,1\nx,0,1\n", r"answers 2 images more than once: \(, x\), \(, x\)"),
        ("id,a,b\nx,1,0\ny,nan,0\nz,,1\n", r"NaN, infinity or gaps in 2 of 3 rows: \(, y\), \(, z\)"),
        ("id,p0,p1\nx,3,-2\ny,1,0\n", "logits where probabilities were declared.* 1 of 2 rows"),
        ("id,a,b\nx,3,-2\ny,1,0\n", "1 of 2 rows.*declare `outputs='logits'`"),
        ("id,a,b,label\nx,1,0,stop\n", "cannot read .*stop"),
        ("name,a,b\nx,1,0\n", "no column 'id'; its columns are name, a, b"),
        ("id,a\nx,1\n", "at least two"),
        ("id,a,a\nx,1,0\n", "two columns named 'a'"),
        ("id,a,b\n", "holds no answers"),
        ("", "cannot read"),
    ],
)
def test_stored_files_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        StoredPredictions(tmp_path / "a.csv")


def test_stored_columns_that_are_no_classes_are_noted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,label,p1,p0,day\nx,1,0.25,0.75,Monday\n")
    model = StoredPredictions(tmp_path / "a.csv")
    assert model.num_classes == 2
    assert model.describe()["notes"] == ("ignores the columns label, day",)
    answer = model.predict(Batch(("x",), images(1), np.zeros(1, np.int64)))
    assert answer.probabilities.tolist() == [[0.75, 0.25]]


def test_stored_other_troubles(tmp_path: Path) -> None:
    _, rows = answers()
    with pytest.raises(InputError, match=r"no \.csv or \.parquet"):
        StoredPredictions(tmp_path)
    with pytest.raises(InputError, match="no stored predictions"):
        StoredPredictions(tmp_path / "absent.csv")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match="cannot read"):
        StoredPredictions(tmp_path / "a.parquet")
    ragged = {"id": ["x", "y"], "probabilities": [[1.0, 0.0], [0.5, 0.25, 0.25]]}
    pq.write_table(pa.table(ragged), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="same number of classes"):
        StoredPredictions(tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": ["x", None], "p0": [1.0, 1.0], "p1": [0.0, 0.0]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="rows without id"):
        StoredPredictions(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").unlink()
    frame(rows, "abc").to_csv(tmp_path / "a.csv", index=False)
    frame(rows, "abd", FOG).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(InputError, match=r"b\.csv has other columns than .*a\.csv"):
        StoredPredictions(tmp_path)
    with pytest.raises(InputError, match="probabilities where logits were declared"):
        StoredPredictions(tmp_path / "a.csv", outputs="logits")
    with pytest.raises(InputError, match="no column for the class 'z'"):
        StoredPredictions(tmp_path / "a.csv", classes=["a", "b", "z"])
    assert StoredPredictions(tmp_path / "a.csv", classes=["c", "a", "b"]).class_names == ("c", "a", "b")


# --- loading by name, and class order --------------------------------------------------------------------------------


def test_load_model_by_kind(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx")
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\n\n")
    model = load_model({"onnx": "m.onnx", "range": "0-255", "classes": "names.txt"}, name="v3", base=tmp_path)
    assert (model.name, model.class_names) == ("v3", tuple("abcd"))
    assert model.preprocess.range == "0-255"
    assert load_model(model) is model
    assert {"onnx", "torch", "callable", "predictions", "reference"} <= set(MODELS)
    assert isinstance(load_model(net(), name="live"), TorchModel)
    assert isinstance(load_model(channel_shares), CallableModel)


def test_load_model_errors(tmp_path: Path) -> None:
    linear(tmp_path / "m.onnx")
    (tmp_path / "m.weights").write_text("")
    with pytest.raises(UnknownName, match="did you mean 'range'"):
        load_model({"onnx": "m.onnx", "rnge": "0-1"}, base=tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'onnx'"):
        load_model({"onx": "m.onnx"}, base=tmp_path)
    for entry in ({"onnx": "m.onnx", "trust": True}, {"torch": "m.pt", "trust": True}, {"torch": "m.pt", "base": "/"}):
        with pytest.raises(UnknownName, match=r"trust|base"):
            load_model(entry, base=tmp_path)
    for spec, message in (
        ({"onnx": "m.onnx", "torch": "m.pt"}, "of one kind, not onnx and torch"),
        ({}, "unknown kind of model"),
        ("m.weights", "cannot tell what kind"),
        ("absent.onnx", "there is no ONNX file"),
        ("absent", "there is no model"),
        (3, "not int"),
    ):
        with pytest.raises(InputError, match=message):
            load_model(spec, base=tmp_path)
    with pytest.raises(InputError, match="cannot be chosen"):
        load_model(channel_shares, device="cuda")
    with pytest.raises(InputError, match="is complete: range"):
        load_model(CallableModel(channel_shares), range="0-1")


def test_align_puts_columns_in_the_order_of_the_data(tmp_path: Path) -> None:
    _, rows = answers()
    frame(rows, "abc").to_csv(tmp_path / "a.csv", index=False)
    model = StoredPredictions(tmp_path / "a.csv")
    assert align(model, ("a", "b", "c")) is model
    aligned = align(model, ("c", "a", "b"))
    np.testing.assert_array_equal(aligned.predict(asked()).probabilities, rows[:, [2, 0, 1]])
    assert aligned.fingerprint() != model.fingerprint()
    assert aligned.class_names == ("c", "a", "b")
    with pytest.raises(InputError, match="no class named 'x'"):
        align(model, ("a", "b", "x"))
    with pytest.raises(InputError, match="answers 3 classes but the data has 2"):
        align(model, ("a", "b"))


def test_align_gradient_means_the_same_class() -> None:
    model = TorchModel(net(), classes=list("abcd"))
    batch = batch_of(images(3, 6, 6))
    aligned = align(model, ("d", "c", "b", "a"))
    moved = Batch(batch.ids, batch.images, 3 - batch.labels)
    np.testing.assert_array_equal(aligned.input_gradient(moved), model.input_gradient(batch))
    np.testing.assert_array_equal(aligned.predict(batch).logits, model.predict(batch).logits[:, ::-1])
    np.testing.assert_array_equal(aligned.features(batch, "conv"), model.features(batch, "conv"))


@pytest.mark.parametrize("content", ["a\nb\na\n", "a\n"])
def test_class_files_that_cannot_be_used(tmp_path: Path, content: str) -> None:
    (tmp_path / "names.txt").write_text(content)
    with pytest.raises(InputError, match="names"):
        CallableModel(channel_shares, classes=tmp_path / "names.txt")


def test_predictions_keep_what_they_are_given() -> None:
    logits, rows = answers()
    both = prediction(rows, "probabilities", logits)
    np.testing.assert_array_equal(both.probabilities, rows)
    np.testing.assert_array_equal(both.logits, logits)


IN_THREADS = """
import threading
import numpy as np, torch
from roadworthy.models.torch import TorchModel
module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 14))
model = TorchModel(module, size=32, outputs="logits")
tensor = model.preprocess(np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8))
answers = [model.run(tensor).logits]
for _ in range(3):
    thread = threading.Thread(target=lambda: answers.append(model.run(tensor).logits))
    thread.start()
    thread.join()
print(sum(not np.array_equal(answer, answers[0]) for answer in answers))
"""


def test_a_torch_model_gives_the_same_bits_in_every_thread() -> None:
    """Also where the environment does not say how many threads a kernel has."""
    pytest.importorskip("torch")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    asked = subprocess.run([sys.executable, "-c", IN_THREADS], env=environment, capture_output=True, text=True)
    assert asked.stdout == "0\n", asked.stderr
