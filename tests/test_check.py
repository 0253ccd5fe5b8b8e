"""`check`: it finds the wrong range, colour order, layout and class order, and nothing where nothing is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnx import helper
from scipy.stats import binomtest

from coloured_patches import SIDE, Patches, nearest_template, network, patches
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.roles import Dataset, Model
from roadworthy.models import CallableModel, Preprocess, load_model
from roadworthy.models.check import CheckReport, Judge, Trial, check_model


def check(path: Path, data: Dataset, **settings: Any) -> CheckReport:
    return check_model(lambda **changes: load_model(path, **{**settings, **changes}), data, sample=400)


@pytest.mark.parametrize("text", ["0-1", "0-255", "-1-1", "imagenet"])
@pytest.mark.parametrize("colour", ["rgb", "bgr"])
def test_silent_where_all_is_right(tmp_path: Path, text: str, colour: str) -> None:
    data = patches()
    report = check(
        nearest_template(tmp_path / "m.onnx", data, Preprocess(text, "nchw", colour)), data, range=text, colour=colour
    )
    assert report.accuracy > 0.9
    assert report.findings == ()
    assert report.class_order is None
    assert "nothing wrong was found" in report.lines()


@pytest.mark.parametrize(
    ("true", "given"), [("imagenet", "0-1"), ("0-255", "0-1"), ("0-1", "0-255"), ("-1-1", "0-255")]
)
def test_wrong_range(tmp_path: Path, true: str, given: str) -> None:
    data = patches()
    report = check(nearest_template(tmp_path / "m.onnx", data, Preprocess(true)), data, range=given)
    (finding,) = report.findings
    assert report.class_order is None
    assert finding.settings == {"range": true}
    assert finding.accuracy is not None
    assert finding.accuracy > 0.9 > report.accuracy + 0.2
    assert f"with `range={true!r}` accuracy is {finding.accuracy:.3f} instead of {report.accuracy:.3f}" in finding.text


def test_wrong_colour_order_and_both(tmp_path: Path) -> None:
    data = patches()
    path = nearest_template(tmp_path / "m.onnx", data, Preprocess("imagenet", colour="bgr"))
    (finding,) = check(path, data, range="imagenet").findings
    assert finding.settings == {"colour": "bgr"}
    (finding,) = check(path, data).findings
    assert finding.settings == {"range": "imagenet", "colour": "bgr"}
    assert "`range='imagenet'` `colour='bgr'`" in str(check(path, data))


def test_layout_that_the_graph_leaves_open(tmp_path: Path) -> None:
    data = patches()
    open_dims = ("n", "a", "b", "c")
    for true in ("nchw", "nhwc"):
        path = nearest_template(tmp_path / f"{true}.onnx", data, Preprocess(layout=true), dims=open_dims)
        with pytest.raises(InputError, match="`layout='nchw'`"):
            load_model(path)
        (finding,) = check(path, data, size=SIDE).findings
        assert finding.settings == {"layout": true}
        other = "nhwc" if true == "nchw" else "nchw"
        (finding,) = check(path, data, size=SIDE, layout=other).findings
        assert finding.settings == {"layout": true}
        assert check(path, data, size=SIDE, layout=true).findings == ()


def test_class_folders_sorted_as_text(tmp_path: Path) -> None:
    data = patches(12)
    order = [int(name) for name in sorted(data.class_names)]
    report = check(nearest_template(tmp_path / "m.onnx", data, Preprocess(), order=order), data)
    (finding,) = report.findings
    assert "sorted as text" in finding.text
    assert "classes" in finding.settings
    assert report.class_order == tuple(sorted(data.class_names)) == tuple(report.lines()[-12:])
    (tmp_path / "order.txt").write_text("\n".join(report.class_order))
    mended = check(tmp_path / "m.onnx", data, classes=tmp_path / "order.txt")
    assert mended.findings == ()
    assert mended.accuracy > 0.9


@pytest.mark.parametrize("swap_only", [True, False])
def test_any_class_order(tmp_path: Path, swap_only: bool) -> None:
    data = patches(12)
    order = [1, 0, *range(2, 12)] if swap_only else [int(k) for k in np.random.default_rng(5).permutation(12)]
    report = check(nearest_template(tmp_path / "m.onnx", data, Preprocess(), order=order), data)
    assert report.class_order == tuple(str(k) for k in order)
    assert report.findings[0].accuracy > 0.9
    assert check(tmp_path / "m.onnx", data, classes=report.class_order).findings == ()


def test_class_names_that_were_given_wrongly(tmp_path: Path) -> None:
    data = patches(6)
    true, given = ("3", "1", "0", "2", "5", "4"), ("1", "2", "0", "4", "5", "3")
    path = nearest_template(tmp_path / "m.onnx", data, Preprocess(), order=[int(name) for name in true])
    assert check(path, data, classes=given).class_order == true
    assert check(path, data, classes=true).findings == ()


def test_class_order_and_range_at_once(tmp_path: Path) -> None:
    data = patches(8)
    order = [3, 1, 0, 2, 7, 6, 5, 4]
    report = check(nearest_template(tmp_path / "m.onnx", data, Preprocess("imagenet"), order=order), data)
    (finding,) = report.findings
    assert finding.settings == {"range": "imagenet", "classes": report.class_order}
    assert finding.accuracy > 0.9
    assert report.class_order == tuple(str(k) for k in order)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_silent_on_a_random_model(tmp_path: Path, seed: int, share: float) -> None:
    data = patches(10, noise=90, share=share, seed=seed)
    rng = np.random.default_rng(100 + seed)
    weights = rng.normal(size=(3 * SIDE * SIDE, 10)).astype(np.float32)
    report = check(network(tmp_path / "m.onnx", weights, np.zeros(10, np.float32), ("n", 3, SIDE, SIDE)), data)
    assert report.findings == ()
    assert report.class_order is None


def test_a_constant_model_is_said_to_be_no_better_than_chance(tmp_path: Path) -> None:
    data = patches(4, share=0.3)
    constant = np.array([0, 5, 0, 0], np.float32)
    report = check(network(tmp_path / "m.onnx", np.zeros((108, 4), np.float32), constant, ("n", 3, SIDE, SIDE)), data)
    assert report.findings == ()
    assert any("no better than chance" in line for line in report.lines())
    assert not report.ok
    assert "nothing wrong was found" not in report.lines()


def test_answers_that_are_not_the_images_own(tmp_path: Path) -> None:
    data = patches(4)
    weights = np.random.default_rng(0).normal(size=(108, 4)).astype(np.float32)
    mean = helper.make_node("ReduceMean", ["z"], ["m"], axes=[0])
    crowd = [mean, helper.make_node("Sub", ["z", "m"], ["y"])]
    dims = ("n", 3, SIDE, SIDE)
    report = check(network(tmp_path / "m.onnx", weights, np.zeros(4, np.float32), dims, crowd), data)
    assert any("other images of its batch" in finding.text for finding in report.findings)
    dice = [helper.make_node("RandomNormalLike", ["z"], ["r"]), helper.make_node("Add", ["z", "r"], ["y"])]
    report = check(network(tmp_path / "m.onnx", weights, np.zeros(4, np.float32), dims, dice), data)
    assert any("asked twice" in finding.text for finding in report.findings)


def test_figures_of_the_report(tmp_path: Path) -> None:
    data = patches(5, share=0.4)

    def always_first(pixels: np.ndarray) -> np.ndarray:
        return np.tile(np.float32([0.8, 0.05, 0.05, 0.05, 0.05]), (len(pixels), 1))

    report = check_model(lambda **changes: load_model(always_first, **changes), data, sample=10_000)
    hits = int((data.truth == 0).sum())
    assert report.sample == report.of == len(data)
    assert report.accuracy == report.majority == hits / len(data)
    assert report.mean_confidence == pytest.approx(0.8)
    low, high = binomtest(hits, len(data)).proportion_ci(method="wilson")
    assert report.interval == pytest.approx((low, high))
    text = "\n".join(report.lines())
    assert f"{report.accuracy:.3f}" in text
    assert "chance is 0.200" in text
    assert "cannot be tested with gradient attacks, ODIN (no input_gradient)" in text


def test_the_sample_is_the_same_every_time_and_even() -> None:
    data = patches(5, count=3000)
    seen: list[tuple[int, float]] = []

    def build(**changes: Any) -> Model:
        def watch(pixels: np.ndarray) -> np.ndarray:
            seen.append((len(pixels), float(pixels.mean())))
            return np.full((len(pixels), 5), 0.2)

        return CallableModel(watch, num_classes=5, version="1")

    first, again, other = (check_model(build, data, sample=200, seed=seed) for seed in (0, 0, 1))
    assert seen[: len(seen) // 3] == seen[len(seen) // 3 : 2 * len(seen) // 3]
    assert first.accuracy == again.accuracy
    assert seen[0] != seen[-len(seen) // 3]
    assert other.sample == 200


def test_stored_predictions_can_be_checked(tmp_path: Path) -> None:
    data = patches(4, count=300)
    rows = np.full((300, 4), 0.1) + 0.6 * np.eye(4)[data.truth]
    table = pd.DataFrame(rows[:, ::-1], columns=["3", "2", "1", "0"]).assign(id=data.ids)
    table.to_csv(tmp_path / "a.csv", index=False)
    report = check(tmp_path / "a.csv", data)
    assert report.accuracy == 1.0
    assert report.findings == ()
    table.columns = ["p0", "p1", "p2", "p3", "id"]
    table.to_csv(tmp_path / "b.csv", index=False)
    assert check(tmp_path / "b.csv", data).class_order == ("3", "2", "1", "0")


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_answers_of_whole_numbers_are_class_scores(dtype: type[np.generic]) -> None:
    data = patches(4, count=300)

    def nearest(images: Any) -> Any:
        distances = ((images[:, None] - data.templates) ** 2).mean(axis=(2, 3, 4))
        return (distances == distances.min(axis=1, keepdims=True)).astype(dtype)

    report = check_model(lambda **_: CallableModel(nearest, size="6x6", version="1"), data, sample=100)
    assert report.accuracy > 0.9
    assert report.describe["outputs"] == "probabilities"
    scores = CallableModel(lambda images: 7 * nearest(images), size="6x6", outputs="auto", version="1")
    assert scores.outputs == "logits"


@pytest.mark.parametrize(
    ("shapes", "looks_like"),
    [
        ({"boxes": (100, 4), "scores": (100,)}, r"a detector.*\(output 'boxes' is 8 x 100 x 4\)"),
        ({"logits": (100, 92), "pred_boxes": (100, 4)}, "a detector: .*'pred_boxes'"),
        ({"0": (300, 6)}, "a detector: "),
        ({"0": (84, 2100)}, "a detector or a segmenter: "),
        ({"0": (19, 8, 8)}, "a detector or a segmenter: "),
        ([{"boxes": (3, 4), "labels": (3,), "scores": (3,)}] * 8, r"a detector: .*'boxes' is 3 x 4"),
        ([{"boxes": (0, 4), "labels": (0,), "scores": (0,)}] * 8, r"a detector: .*'boxes' is 0 x 4"),
    ],
)
def test_a_detector_is_told_what_it_looks_like(shapes: Any, looks_like: str) -> None:
    def answer(images: Any) -> Any:
        if isinstance(shapes, list):
            return [{name: np.full(shape, 0.3) for name, shape in one.items()} for one in shapes[: len(images)]]
        return {name: np.full((len(images), *shape), 0.3) for name, shape in shapes.items()}

    for known in ({}, {"boxes": "corners pixels"}):
        with pytest.raises(InputError, match=f"^model answer looks like {looks_like}.* are tested so far$"):
            CallableModel(answer, size="6x6", version="1", **known)


def test_a_classifier_beside_other_outputs_is_no_detector() -> None:
    torch = pytest.importorskip("torch")

    class Two(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, *shapes: tuple[int, ...]) -> None:
            super().__init__()
            self.shapes = shapes

        def forward(self, images: Any) -> Any:
            return tuple(torch.full((len(images), *shape), 2.0) for shape in self.shapes)

    assert load_model(Two((10,), (197, 768)), size=8).num_classes == 10
    assert load_model(Two((7,), (4,)), size=8, boxes="corners pixels").num_classes == 7
    with pytest.raises(InputError, match="looks like a detector"):
        load_model(Two((100,), (100, 4)), size=8)


def test_a_finding_on_a_part_of_the_sample_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.models.check.SECONDS_FOR_ALTERNATIVES", 0.0)
    data = patches()
    report = check(nearest_template(tmp_path / "m.onnx", data, Preprocess("0-255")), data, range="-1-1")
    assert (report.sample, report.accuracy < 0.5) == (400, True)
    assert "on 100 of the images" in report.findings[0].text


def test_images_with_answers_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    data = patches(3, count=40)

    def answer(images: Any) -> Any:
        rows = np.full((len(images), 3), 1 / 3)
        rows[(images == data.images[7]).all(axis=(1, 2, 3)) | (images == data.images[39]).all(axis=(1, 2, 3))] = np.nan
        return rows

    model = CallableModel(answer, num_classes=3, version="1")
    with pytest.raises(ModelError, match=r"NaN or infinity for 2 of 40 images: 'i7', 'i39'$"):
        model.answer(data.batch(slice(None)), 64)
    all_bad = CallableModel(lambda images: np.full((len(images), 3), np.nan), num_classes=3, version="1")
    with pytest.raises(ModelError, match=r"for 6 of 6 images: 'i0', 'i1', 'i2', \.\.\.$"):
        all_bad.answer(data.batch(slice(0, 6)), 6)


def test_class_counts_must_agree(tmp_path: Path) -> None:
    path = nearest_template(tmp_path / "m.onnx", patches(5), Preprocess())
    with pytest.raises(InputError, match=r"answers 5 classes but the data has 6: fix .* with `classes=`$"):
        check(path, patches(6))


def test_grey_data_and_uint8_models_try_less(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []
    data = patches(3)

    def build(**changes: str) -> Model:
        asked.append(changes)
        return CallableModel(lambda x: np.full((len(x), 3), 1 / 3), num_classes=3, version="1")

    check_model(build, data, sample=50)
    assert all("range" not in changes for changes in asked)
    data.images, data.channels = data.images[..., :1], 1
    asked.clear()
    check_model(build, data, sample=50)
    assert all("colour" not in changes for changes in asked)


def test_better_is_beyond_doubt() -> None:
    """The exact test at its edge: 10 gained and none lost has p = 1/1024, 9 has 1/512."""
    truth = np.arange(400) % 4
    base = truth.copy()
    base[:200] = (truth[:200] + 1) % 4
    judge = Judge(truth, tuple("abcd"))
    for gained, better in ((10, True), (9, False)):
        new = base.copy()
        new[:gained] = truth[:gained]
        assert judge.better(new, base) is better
    chance = np.zeros(400, np.int64)
    assert not judge.better(chance, np.full(400, -1))
    best = judge.best([Trial({}, base), Trial({"range": "0-255"}, truth), Trial({"a": "b", "c": "d"}, truth)])
    assert best.spelled == "`range='0-255'`"


def test_the_best_alternative_is_named_where_it_is_not_settled() -> None:
    """A blue channel that says the class a little more often than the red one, by which the model answers."""
    rng = np.random.default_rng(0)
    images = np.zeros((400, SIDE, SIDE, 3), np.uint8)
    truth = rng.integers(0, 4, 400)
    images[:, 0, 0, :] = truth[:, None]
    images[:60, 0, 0, 0] = (truth[:60] + 1) % 4
    images[20:70, 0, 0, 2] = (truth[20:70] + 1) % 4
    data = Patches(np.empty(0), images, truth, tuple("abcd"))

    def build(colour: str = "rgb", **settings: Any) -> Model:
        return CallableModel(
            lambda x: np.eye(4)[x[:, 0, 0, 0] % 4], num_classes=4, colour=colour, version="1", **settings
        )

    report = check_model(build, data)
    assert report.ok
    assert report.unsettled.startswith("with `colour='bgr'` accuracy is 0.875 instead of 0.850 on 400 images")
    assert report.lines()[-2:] == [f"not settled: {report.unsettled}", "nothing wrong was found beyond doubt"]
    assert "nothing wrong was found beyond doubt" in report._repr_html_()
    assert check_model(lambda **given: build(**{"colour": "bgr", **given}), data).unsettled == ""


def test_a_fitted_order_is_judged_on_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers without meaning: a fit to the same images would get far above chance."""
    monkeypatch.setattr("roadworthy.models.check.MIN_FITTED_SKILL", -1.0)
    rng = np.random.default_rng(0)
    labels, answers = rng.integers(0, 20, (2, 100))
    judge = Judge(labels, tuple(f"c{k:02}" for k in range(20)))
    *_, fitted = judge.orders(Trial({}, answers))
    assert "confusions" in fitted.how
    assert judge.accuracy(fitted.answers) < 0.12


@pytest.mark.slow
def test_resnet20_with_the_wrong_range(shared_data: Path) -> None:
    pytest.importorskip("torch")
    with np.load(shared_data / "cifar10_test.npz", allow_pickle=False) as stored:
        names = tuple(str(name) for name in stored["class_names"])
        data = Patches(np.empty(0), stored["images"][:64], stored["labels"][:64], names, size=(32, 32))
    arch = str(Path(__file__).parent.parent / "examples" / "cifar10_resnet20.py") + ":resnet20"
    spec = {"torch": shared_data / "cifar10_resnet20.th", "arch": arch}
    report = check_model(lambda **changes: load_model(spec, trust=True, **changes), data, sample=64)
    assert report.findings[0].settings == {"range": "imagenet"}
