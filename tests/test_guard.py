"""A guard decides about one image at a time, keeps what it needs on disk, and refuses what it was not made with."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pytest
import torch

import roadworthy as rw
from roadworthy.auditing.tolerances import part_differences
from roadworthy.core.errors import InputError
from roadworthy.core.files import write_json
from roadworthy.core.manifests import commit
from roadworthy.core.types import Batch, Prediction
from roadworthy.data.images import resize
from roadworthy.data.subset import Subset
from roadworthy.demo import CLASSIFIER
from roadworthy.models import align, load_model
from roadworthy.models.callable import CallableModel
from roadworthy.models.signals import Signals
from roadworthy.monitors import MONITORS, CalibratedMonitor, Monitor, make_monitor, represent_data
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.monitors.guard import Decision, Guard, load_guard
from roadworthy.monitors.id_threshold import IdRule
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export import compare_decisions
from roadworthy.outliers.makers import UniformNoise
from roadworthy.uncertainty import Temperature

TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()
SMALLEST = IdRule("smallest")


@dataclass(frozen=True, kw_only=True)
class TwoOfThree(Monitor):
    """Rejects where two of the last three images of an object are rejected by their brightness."""

    name: ClassVar[str] = "two_of_three"
    needs: ClassVar[frozenset[str]] = frozenset({"input"})

    def read(self, signals: Any, state: Any) -> Any:
        speed = signals.batch.conditions.get("speed", np.zeros(len(signals)))
        return signals.images.mean(axis=(1, 2, 3)) + speed

    @property
    def is_sequential(self) -> bool:
        return True

    def in_order(self, rows: Any, rejected: Any, starts: Any, rule: Any, state: Any) -> Any:
        decisions = np.zeros(len(rows), np.bool_)
        first = 0
        for index in range(len(rows)):
            first = index if starts[index] else first
            decisions[index] = rejected[max(first, index - 2) : index + 1].sum() >= 2
        return decisions


@pytest.fixture
def two_of_three() -> Iterator[None]:
    MONITORS.register("two_of_three")(TwoOfThree)
    yield
    MONITORS._members.pop("two_of_three", None)


def signs_guard(folder: Path, **settings: Any) -> Guard:
    """A guard of the small ONNX classifier in a folder, with few drawn signs."""
    signs = rw.open_dataset({"builtin": "signs", "n": 140, "limit": 56}, size=32)
    shutil.copy(CLASSIFIER, folder / "tiny.onnx")
    return Guard.make({"onnx": str(folder / "tiny.onnx"), **settings}, "msp", None, signs, SMALLEST)


def flat(value: int) -> np.ndarray:
    return np.full((8, 8, 3), value, np.uint8)


def brightness_guard() -> Guard:
    """Rejects images of a mean brightness of at most 100, by two of the last three."""
    data = rw.open_dataset((np.stack([flat(100), flat(200)]), np.array([0, 1]), list("abcd")))
    model = CallableModel(lambda images: np.eye(4)[np.zeros(len(images), int)], num_classes=4, version="1")
    return Guard.make(model, TwoOfThree(), None, data, SMALLEST)


@pytest.mark.parametrize("name", ["msp", "mahalanobis", "deep_knn"])
def test_decisions_are_those_of_the_monitor_image_by_image(name: str) -> None:
    guard = Guard.make(ToyModel(), name, TRAIN, HELD_OUT, IdRule(rejected=0.2))
    fitted = make_monitor(name).build(guard.model, TRAIN)
    calibrated = fitted.calibrate(represent_data(fitted, guard.model, HELD_OUT), rejected=0.2)
    assert guard.threshold.threshold == calibrated.threshold
    seen = set()
    for data in (TEST, OUTLIERS):
        for row in range(12):
            batch = data.batch([row])
            decision = guard.check(batch.images[0])
            probabilities = guard.model.answer(batch, 1).probabilities[0]
            assert decision.accept != calibrated.decide(guard.model, batch)[0]
            assert decision.score == calibrated.score(fitted.represent(guard.model, batch, 1))[0]
            assert (decision.prediction, decision.confidence) == (probabilities.argmax(), probabilities.max())
            assert decision.class_name == HELD_OUT.class_names[decision.prediction]
            seen.add(decision.accept)
    assert seen == {True, False}


def test_the_model_is_asked_once_and_about_this_image_alone() -> None:
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT)
    asked: list[int] = []
    predict = guard.model.predict

    def counting(batch: Batch) -> Prediction:
        asked.append(len(batch))
        return predict(batch)

    guard.model.predict = counting  # type: ignore[method-assign]
    guard.check(TEST.batch([0]).images[0])
    assert asked == [1]


def counted_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The images of every pass of an ONNX graph from here on."""
    passes: list[int] = []
    run = onnxruntime.InferenceSession.run

    def counting(session: Any, outputs: Any, feed: dict[str, Any], options: Any = None) -> Any:
        passes.append(len(next(iter(feed.values()))))
        return run(session, outputs, feed, options)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", counting)
    return passes


FEATURES = {
    "mahalanobis": {},
    "mahalanobis of a layer": {"layer": "/9/Relu_output_0"},
    "vim": {},
    "combined": {"of": ("mahalanobis", "deep_knn", "msp")},
}


@pytest.mark.parametrize("name", FEATURES)
def test_one_pass_of_an_onnx_model_gives_answer_and_features(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, signs = feature_guard(tmp_path, name.partition(" ")[0], **FEATURES[name])
    images = signs.batch(slice(0, 5)).images
    decisions = [guard.check(image) for image in images[:1]]
    passes = counted_passes(monkeypatch)
    decisions += [guard.check(image) for image in images]
    assert passes == [1] * 5, "one pass for each image, after the first of all has shown what the monitor reads"
    assert decisions[0] == decisions[1], "the first image is answered as all others are"


def test_a_model_with_a_temperature_is_passed_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signs = rw.open_dataset({"builtin": "signs", "n": 70}, size=32)
    scaled = Temperature(align(load_model(str(CLASSIFIER)), signs.class_names), 2.0)
    train = rw.open_dataset({"builtin": "signs", "split": "train", "n": 70}, size=32)
    guard = Guard.make(scaled, make_monitor("mahalanobis", layer="/9/Relu_output_0"), train, signs, SMALLEST)
    images = signs.batch(slice(0, 3)).images
    first = guard.check(images[0])
    passes = counted_passes(monkeypatch)
    decisions = [guard.check(image) for image in images]
    assert decisions[0] == first
    assert passes == [1, 1, 1]
    apart = Signals(scaled, signs.batch([0]), 1)
    (score,) = guard.fitted.scores(guard.fitted.represent_signals(apart), guard.rule)
    assert first.score == pytest.approx(score, rel=1e-4)
    assert first.confidence == pytest.approx(apart.probabilities.max(), abs=1e-4)


@pytest.mark.parametrize("name", FEATURES)
def test_the_one_pass_answers_as_a_run_does_within_the_tolerances(name: str, tmp_path: Path) -> None:
    guard, signs = feature_guard(tmp_path, name.partition(" ")[0], **FEATURES[name])
    shown = signs.batch(slice(None))
    stored, fresh = Signals(guard.model, shown), []
    rows = guard.fitted.represent_signals(stored)
    for row in range(len(shown)):
        signals, own = guard._one_pass.read(shown.take([row]), guard.fitted.represent_signals)
        fresh.append((signals.probabilities, own))
    assert stored.asked_apart, "what a run stores comes from passes of their own, as before"
    tables = [
        columns_table(shown.ids, probabilities=probabilities, representation=representation)
        for probabilities, representation in (
            (stored.probabilities, rows),
            [np.concatenate(parts) for parts in zip(*fresh, strict=True)],
        )
    ]
    assert part_differences(*tables, exact=False) == []
    decisions = [guard.check(image) for image in shown.images]
    scores = guard.fitted.scores(rows, guard.rule)
    predictions = stored.probabilities.argmax(axis=1)
    known = np.array([[decision.score, decision.accept, decision.threshold] for decision in decisions]).T
    assert [decision.prediction for decision in decisions] == predictions.tolist()
    assert compare_decisions(known[0], scores, known[1] == 1, known[2]).holds


def columns_table(ids: tuple[str, ...], **columns: np.ndarray) -> pa.Table:
    lists = {name: pa.array(rows.tolist(), pa.list_(pa.float32())) for name, rows in columns.items()}
    return pa.table({"id": list(ids), **lists})


def feature_guard(folder: Path, monitor: str, **settings: Any) -> tuple[Guard, Any]:
    """A guard of the small ONNX classifier whose monitor reads layers, and the images that its threshold is from."""
    shutil.copy(CLASSIFIER, folder / "tiny.onnx")
    train = rw.open_dataset({"builtin": "signs", "split": "train", "n": 140}, size=32)
    signs = rw.open_dataset({"builtin": "signs", "n": 140, "limit": 56}, size=32)
    return Guard.make(str(folder / "tiny.onnx"), make_monitor(monitor, **settings), train, signs, SMALLEST), signs


def test_a_threshold_per_class_is_that_of_the_predicted_class() -> None:
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT, IdRule("smallest", per_class=True))
    decisions = [guard.check(image) for image in TEST.batch(slice(0, 30)).images]
    assert len({decision.threshold for decision in decisions}) > 1
    assert all(decision.threshold == guard.threshold.by_class[decision.prediction] for decision in decisions)


def test_a_saved_guard_decides_the_same_and_finds_its_model(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    guard = signs_guard(tmp_path / "models", range="0-1")
    images = rw.open_dataset({"builtin": "signs", "n": 70}, size=32).batch(slice(0, 8)).images
    decisions = [guard.check(image) for image in images]
    home = guard.save(tmp_path / "guard")
    assert {path.name for path in home.rglob("*.*")} == {"guard.json", "manifest.json", "monitor.json", "monitor.npz"}
    assert [load_guard(home).check(image) for image in images] == decisions
    assert [load_guard(home, guard.model).check(image) for image in images] == decisions
    shutil.move(tmp_path / "models" / "tiny.onnx", home / "tiny.onnx")
    moved = shutil.move(home, tmp_path / "elsewhere")
    again = load_guard(moved)
    assert [again.check(image) for image in images] == decisions
    again.save(tmp_path / "copy")
    assert [load_guard(tmp_path / "copy").check(image) for image in images] == decisions
    assert CalibratedMonitor.load(moved / "monitor", again.model).threshold == guard.threshold.threshold
    assert repr(again) == repr(guard)


def test_a_guard_says_on_which_outliers_it_was_tried(tmp_path: Path) -> None:
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT, IdRule(rejected=0.2), outliers={"toys": OUTLIERS}, seed=3)
    uniform, normal, toys = guard.tried_on
    assert [trial.outliers for trial in guard.tried_on] == ["uniform_noise", "normal_noise", "toys"]
    few = Subset(HELD_OUT, np.unique(np.linspace(0, len(HELD_OUT) - 1, 100).astype(int)).tolist())
    noise = UniformNoise().make(few, seed=3).batch(slice(None)).images
    assert uniform.rejected == 1 - np.mean([guard.check(image).accept for image in noise])
    own = [guard.check(image).accept for image in OUTLIERS.batch(slice(None)).images]
    assert (toys.rejected, toys.images, toys.objects) == (1 - np.mean(own), 100, 100)
    assert 0 < toys.lo < toys.rejected <= toys.hi, "with bounds"  # type: ignore[operator]
    assert normal.rejected is not None
    assert f"; tried on outliers: {uniform.sentence()}; {normal.sentence()}; {toys.sentence()}" in repr(guard)
    home = guard.save(tmp_path / "guard")
    assert load_guard(home, ToyModel()).tried_on == guard.tried_on
    record = json.loads((home / "guard.json").read_text())
    del record["tried_on"]  # as earlier versions saved it
    write_json(home / "guard.json", record)
    commit(home, {"guard": 1}, ("guard.json", *(f"monitor/{path.name}" for path in (home / "monitor").iterdir())))
    earlier = load_guard(home, ToyModel())
    assert earlier.tried_on == ()
    assert earlier.sentence().endswith("; tried on none: no outliers were shown to it")
    assert Guard(*(guard.model, guard.fitted, guard.rule, guard.threshold)).sentence() == earlier.sentence()


@pytest.mark.usefixtures("two_of_three")
def test_noise_is_a_stream_to_a_monitor_that_looks_back_and_what_cannot_be_tried_says_why() -> None:
    uniform = brightness_guard().tried_on[0]
    assert (uniform.images, uniform.rejected) == (2, 0), "noise is brighter than the darkest image"

    def knows_held_out(images: np.ndarray) -> np.ndarray:
        if (images == 1).mean() > 0.002:  # as in uniform noise alone
            raise RuntimeError("never seen")
        return np.full((len(images), 4), 0.25)

    guard = Guard.make(CallableModel(knows_held_out, num_classes=4, version="1"), "msp", None, HELD_OUT)
    uniform = guard.tried_on[0]
    assert (uniform.rejected, uniform.images) == (None, 0)
    assert re.search("uniform_noise could not be tried .*never seen", guard.sentence())


def test_images_of_the_domain_are_no_outliers() -> None:
    with pytest.raises(InputError, match="200 of 200 images of outliers mine are images of data too"):
        Guard.make(ToyModel(), "msp", None, HELD_OUT, outliers={"mine": HELD_OUT})


def test_a_torch_module_needs_its_range_and_the_message_says_how(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, 4)).eval()
    says = re.escape("give `rw.load_model(net, range=..., size=...)` in its place")
    with pytest.raises(InputError, match=says):
        Guard.make(net, "msp", None, HELD_OUT)  # type: ignore[arg-type]
    guard = Guard.make(rw.load_model(net, range="imagenet", size=8), "msp", None, HELD_OUT)
    with pytest.raises(InputError, match=says):
        load_guard(guard.save(tmp_path / "guard"), net)  # type: ignore[arg-type]
    again = load_guard(tmp_path / "guard", rw.load_model(net, range="imagenet", size=8))
    assert repr(again) == repr(guard)


def test_classes_in_the_order_of_the_model_are_named_as_in_the_data(tmp_path: Path) -> None:
    signs = rw.open_dataset({"builtin": "signs", "n": 140, "limit": 42}, size=32)
    shutil.copy(CLASSIFIER, tmp_path / "m.onnx")
    names = signs.class_names
    (tmp_path / "names.txt").write_text("\n".join(names[::-1]))  # as if the model answered in another order
    entry = {"onnx": str(tmp_path / "m.onnx"), "classes": str(tmp_path / "names.txt")}
    guard = Guard.make(entry, "msp", None, signs, SMALLEST)
    image = signs.batch([0]).images[0]
    plain = Guard.make(str(tmp_path / "m.onnx"), "msp", None, signs, SMALLEST).check(image)
    assert guard.check(image).class_name == names[::-1][plain.prediction]
    assert load_guard(guard.save(tmp_path / "guard")).check(image) == guard.check(image)


def test_what_the_guard_was_not_made_with_is_refused(tmp_path: Path) -> None:
    guard = signs_guard(tmp_path)
    home = guard.save(tmp_path / "guard")
    other = onnx.load(tmp_path / "tiny.onnx")
    other.doc_string = "the same answers, but another file"
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(InputError, match="made with another model than other"):
        load_guard(home, tmp_path / "other.onnx")
    with pytest.raises(InputError, match="with these settings"):
        load_guard(home, {"onnx": str(tmp_path / "tiny.onnx"), "range": "-1-1"})
    shutil.move(tmp_path / "other.onnx", home / "tiny.onnx")
    with pytest.raises(InputError, match="is not the model that the guard"):
        load_guard(home)
    (home / "tiny.onnx").unlink()
    (tmp_path / "tiny.onnx").unlink()
    with pytest.raises(InputError, match="give `model=`"):
        load_guard(home)
    memory = Guard.make(ToyModel(), "msp", None, HELD_OUT).save(tmp_path / "memory")
    with pytest.raises(InputError, match="cannot load its model toy by itself: give it as `model=`"):
        load_guard(memory)
    assert load_guard(memory, ToyModel()).check(flat(9)).class_name in HELD_OUT.class_names


def test_a_folder_that_was_edited_is_refused(tmp_path: Path) -> None:
    home = Guard.make(ToyModel(), "msp", None, HELD_OUT).save(tmp_path / "guard")
    record = json.loads((home / "guard.json").read_text())
    record["threshold"]["threshold"] = -9.0
    (home / "guard.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="missing or was changed"):
        load_guard(home, ToyModel())
    home = Guard.make(ToyModel(), "msp", None, HELD_OUT).save(tmp_path / "guard")
    assert load_guard(home, ToyModel())
    (home / "monitor" / "monitor.npz").write_bytes(b"")
    with pytest.raises(InputError, match="missing or was changed"):
        load_guard(home, ToyModel())
    with pytest.raises(InputError, match="cannot read guard"):
        load_guard(tmp_path / "nowhere")


@pytest.mark.usefixtures("two_of_three")
def test_a_monitor_that_looks_back_remembers_until_it_is_reset(tmp_path: Path) -> None:
    guard = brightness_guard()
    stream = [50, 150, 50, 150, 150, 50, 60, 200]
    accepted = [guard.check(flat(value)).accept for value in stream]
    assert accepted == [True, True, False, True, True, True, False, False]
    rejected = np.array(stream) <= 100
    starts = np.arange(8) == 0
    assert accepted == (~TwoOfThree().in_order(np.zeros((8, 1)), rejected, starts, Learned(), Learned())).tolist()
    guard.reset()
    assert guard.check(flat(50)).accept
    loaded = load_guard(guard.save(tmp_path / "guard"), guard.model)
    assert [loaded.check(flat(value)).accept for value in stream] == accepted


def test_conditions_reach_the_monitor() -> None:
    guard = brightness_guard()
    assert guard.check(flat(90), {"speed": 40.0}).score == 130
    assert guard.check(flat(90)).score == 90


def test_images_are_brought_to_the_channels_and_size_of_the_data() -> None:
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT)
    grey = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    assert guard.check(grey) == guard.check(grey[..., None]) == guard.check(np.repeat(grey[..., None], 3, axis=2))
    large = np.random.default_rng(1).integers(0, 256, (20, 31, 3), dtype=np.uint8)
    assert guard.check(large) == guard.check(resize(large, (8, 8)))
    mirrored = TEST.batch([0]).images[0][:, ::-1]
    assert guard.check(mirrored) == guard.check(mirrored.copy())


@pytest.mark.parametrize(
    "image",
    [np.zeros((8, 8, 3)), np.zeros((8, 8, 4), np.uint8), np.zeros((0, 8, 3), np.uint8), np.zeros(8, np.uint8), "a.png"],
)
def test_what_is_not_an_image_is_refused(image: Any) -> None:
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT)
    with pytest.raises(InputError, match=r"an image is uint8 \(H, W, 3\)"):
        guard.check(image)


def test_a_guard_made_from_grey_images_takes_grey_ones() -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    model = CallableModel(lambda pixels: np.full((len(pixels), 2), 0.5), num_classes=2, version="1")
    guard = Guard.make(model, "msp", None, rw.open_dataset((images, np.arange(30) % 2, ["a", "b"])))
    assert guard.check(images[0]).accept
    with pytest.raises(InputError, match="give the image in grey"):
        guard.check(flat(3))


def test_a_model_that_answers_one_thread_at_a_time_is_never_asked_by_two() -> None:
    inside, most = [0], [0]

    def answer(images: np.ndarray) -> np.ndarray:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.002)
        inside[0] -= 1
        return np.full((len(images), 4), 0.25)

    guard = Guard.make(CallableModel(answer, num_classes=4, version="1"), "msp", None, HELD_OUT)
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(guard.check, [flat(50)] * 12))) == 12
    assert most == [1]


@pytest.mark.usefixtures("two_of_three")
def test_several_threads_may_check_at_once() -> None:
    images = [*TEST.batch(slice(0, 40)).images, *OUTLIERS.batch(slice(0, 40)).images]
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT)
    alone = [guard.check(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(guard.check, images)) == alone
        looking_back = brightness_guard()
        decisions: list[Decision] = list(pool.map(looking_back.check, [flat(50)] * 40))
    assert len(looking_back._memory) == 40
    assert sum(decision.accept for decision in decisions) == 1, "only the first has no other before it"


def test_what_makes_no_guard_is_refused() -> None:
    with pytest.raises(
        InputError, match="200 of 200 images of validation data data are images of training data data too"
    ):
        Guard.make(ToyModel(), "msp", HELD_OUT, HELD_OUT)
    with pytest.raises(InputError, match="no threshold of its own"):
        Guard.make(ToyModel(), "msp", None, HELD_OUT, IdRule("own"))
    with pytest.raises(InputError, match="did you mean 'msp'"):
        Guard.make(ToyModel(), "mspp", None, HELD_OUT)
    with pytest.raises(InputError, match="learns from training images"):
        Guard.make(ToyModel(), "mahalanobis", None, HELD_OUT)
    guard = Guard.make(ToyModel(), "msp", None, HELD_OUT)
    other = CallableModel(lambda pixels: np.full((len(pixels), 4), 0.25), num_classes=4, version="1")
    with pytest.raises(InputError, match="built on another model"):
        Guard(other, guard.fitted, guard.rule, guard.threshold)
    with pytest.raises(InputError, match="but 2 are named"):
        Guard(guard.model, guard.fitted, guard.rule, guard.threshold, class_names=["a", "b"])


def test_the_page_on_deployment_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(CLASSIFIER, "my.onnx")
    page = (Path(__file__).parent.parent / "docs" / "deployment.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)), names)
    assert names["decision"].class_name in names["signs"].class_names
    assert names["guard"].threshold.rank == 1
    assert not names["scores_changed"].alarm
    assert not names["rejects_too_often"].alarm
