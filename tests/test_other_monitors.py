"""Monitors made elsewhere, model assertions and combinations of monitors: laws, known answers and refusals."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, save

import roadworthy as rw
import tiny
from commands import call
from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.types import Batch
from roadworthy.models.signals import Signals
from roadworthy.monitors import (
    MONITORS,
    Aim,
    Assertion,
    CallableMonitor,
    Combined,
    Energy,
    FittedMonitor,
    Frame,
    Learned,
    MonitorOpening,
    Msp,
    OnnxMonitor,
    StoredMonitor,
    check_monitor,
    check_usefulness,
    load_monitor,
    make_monitor,
    open_monitor,
    represent_data,
)
from roadworthy.monitors import opening as opening_module
from roadworthy.monitors.combined import LARGEST, leaf_monitors, margin_of, recent_rejections
from roadworthy.monitors.conformance import ToyModel, toy_data
from roadworthy.preparing import prepare, prepare_recipe
from roadworthy.study import load_study

TRAIN, HELD_OUT, TEST, OUTLIERS = toy_data()
CONTRAST = """
import numpy as np

def score(images):
    return images.astype(float).std(axis=(1, 2, 3))

def accept(images):
    return score(images) > 20.0

def surest(images, probabilities):
    return probabilities.max(axis=1)

def short(images):
    return np.zeros(len(images) - 1)

def undefined(images):
    return np.full(len(images), np.nan)

def words(images):
    return ["sharp"] * len(images)

def failing(images):
    raise RuntimeError("no camera")

def doubtful(frames):
    return len(frames) > 1 and frames[-1].confidence < frames[-2].confidence

def vague(frames):
    return 1

constant = 3
"""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A file of the user's, whose functions no test before has imported."""
    path = tmp_path / "mine.py"
    path.write_text(CONTRAST)
    yield path
    opening_module._IMPORTED.clear()


def opened(code: Path, name: str, **changes: Any) -> CallableMonitor:
    entry = {"monitor": "callable", "function": f"{code.name}:{name}", **changes}
    monitor = open_monitor(entry, MonitorOpening(code.parent, trust=True))
    assert isinstance(monitor, CallableMonitor)
    return monitor


def scores_of(monitor: Any, data: Any = TEST) -> Any:
    fitted = monitor.build(ToyModel(), TRAIN)
    return fitted.scores(represent_data(fitted, ToyModel(), data), Learned())


def test_a_function_of_ones_own_is_a_monitor(code: Path) -> None:
    monitor = opened(code, "score")
    check_monitor(monitor)
    check_usefulness(monitor)
    images = TEST.batch(slice(None)).images
    assert scores_of(monitor) == pytest.approx(images.astype(float).std(axis=(1, 2, 3)), rel=1e-6)
    assert (monitor.own_threshold, monitor.decides_itself, monitor.is_sequential) == (None, False, False)
    assert np.array_equal(scores_of(opened(code, "surest")), scores_of(Msp()))
    assert monitor.function == f"{code}:score"
    assert monitor.as_named() == {"function": f"{code}:score", "decides": False, "version": ""}


def test_a_function_may_decide(code: Path) -> None:
    monitor = opened(code, "accept", decides=True)
    check_monitor(monitor)
    assert (monitor.own_threshold, monitor.decides_itself) == (0.5, True)
    scores = scores_of(monitor, OUTLIERS)
    assert np.array_equal(scores, scores_of(opened(code, "score"), OUTLIERS) > 20.0)
    fitted = monitor.build(ToyModel())
    rows = np.array([[1.0]] * 7 + [[0.0]], np.float32)
    calibrated = fitted.calibrate(rows, rejected=0.5)
    assert calibrated.threshold == 0.5, "only its own threshold applies"
    assert fitted.calibrate(rows, rows[:2]).threshold == 0.5
    assert calibrated.rejected is not None
    assert (calibrated.rejected.achieved, calibrated.rejected.tied) == (0.125, False)


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("short", {}, r"mine.py:short of monitor callable answered \(63,\) to 64 images: it must answer one value per"),
        ("undefined", {}, "answered NaN or infinity to 64 of 64 images"),
        ("words", {}, "answers values of type <U5: it must answer numbers"),
        ("accept", {}, "answers True and False, not scores: set `decides=True`"),
        ("score", {"decides": True}, r"type float64: it must answer True \(accept\) and False \(reject\)"),
    ],
)
def test_answers_of_another_form_are_refused(code: Path, name: str, changes: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        scores_of(opened(code, name, **changes))


def test_code_needs_trust_and_is_known_by_its_content(code: Path) -> None:
    entry = {"monitor": "callable", "function": "mine.py:score"}
    with pytest.raises(InputError, match=r"mine.py holds code that would be run: pass `trust=True`"):
        open_monitor(entry, MonitorOpening(code.parent))
    with pytest.raises(InputError, match=r"runs the code of mine.py:score, which was not imported yet: .*`trust=True`"):
        make_monitor("callable", function="mine.py:score")
    for wrong, sentence in (
        ({"function": "mine.py"}, "cannot read 'mine.py': name a function in a Python file, as in my.py:function"),
        ({"function": "mine.py:constant"}, "is int, not a function"),
        ({"function": "mine.py:scores"}, "mine.py has no 'scores'; it has: score"),
        ({"function": "other.py:score"}, "there is no Python file"),
        ({"function": 3}, "callable monitor setting function cannot be 3"),
        ({}, "monitor callable lacks its parameter function"),
    ):
        with pytest.raises(InputError, match=sentence):
            open_monitor({"monitor": "callable"} | wrong, MonitorOpening(code.parent, trust=True))
    with pytest.raises(ModelError, match=r"mine.py:failing of monitor callable raised RuntimeError: no camera"):
        scores_of(opened(code, "failing"))
    before, kept = opened(code, "score"), opened(code, "score", version="3")
    code.write_text(CONTRAST.replace("std(", "var("))
    after = opened(code, "score")
    assert before.sha256 != after.sha256
    assert kept.sha256 == opened(code, "score", version="3").sha256 != opened(code, "score", version="4").sha256
    assert before.build(ToyModel()).fingerprint() != after.build(ToyModel()).fingerprint()
    with pytest.raises(InputError, match=r"mine.py:score has changed since the monitor was built: build it anew"):
        scores_of(before)


def test_a_data_file_that_the_code_reads_counts(code: Path) -> None:
    weights = code.parent / "weights.txt"
    code.write_text(
        f"scale = float(open({str(weights)!r}).read())\ndef score(images):\n    return images[:, 0, 0, 0] * scale"
    )
    hashes = []
    for text in ("1", "2"):
        weights.write_text(text)
        hashes.append(opened(code, "score").sha256)
    assert hashes[0] != hashes[1]


def test_a_saved_monitor_of_code_is_loaded_without_running_it(code: Path, tmp_path: Path) -> None:
    calibrated = opened(code, "score").build(ToyModel()).calibrate(np.arange(40.0, dtype=np.float32)[:, None])
    calibrated.save(tmp_path / "saved")
    opening_module._IMPORTED.clear()
    loaded = load_monitor(tmp_path / "saved", ToyModel())
    assert loaded.fingerprint() == calibrated.fingerprint()
    assert loaded.reject(np.zeros((1, 1), np.float32)).tolist() == [True], "stored representations need no code"
    with pytest.raises(InputError, match="was not imported yet"):
        loaded.decide(ToyModel(), TEST.batch(slice(0, 1)))


def save_graph(path: Path, nodes: list[Any], inputs: dict[str, Any], output: Any) -> Path:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    graph = helper.make_graph(nodes, "monitor", infos, [helper.make_tensor_value_info(*output)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


IMAGE = {"image": (TensorProto.FLOAT, ["batch", 3, 8, 8])}
MEAN = helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0)


def test_an_onnx_file_is_a_monitor_and_answers_as_python_does(tmp_path: Path) -> None:
    path = save_graph(tmp_path / "m.onnx", [MEAN], IMAGE, ("mean", TensorProto.FLOAT, ["batch"]))
    monitor = open_monitor({"monitor": "onnx_monitor", "path": "m.onnx", "range": "0-255"}, MonitorOpening(tmp_path))
    check_monitor(monitor)
    images = TEST.batch(slice(None)).images
    assert scores_of(monitor) == pytest.approx(images.mean(axis=(1, 2, 3)), rel=1e-5)
    assert (
        monitor.build(ToyModel()).fingerprint()
        == OnnxMonitor(path=str(path), range="0-255").build(ToyModel()).fingerprint()
    )
    column = helper.make_node("ReduceMean", ["image"], ["one"], axes=[1, 2, 3], keepdims=1)
    flat = helper.make_node("Flatten", ["one"], ["mean"])
    fixed = {"image": (TensorProto.FLOAT, [5, 3, 8, 8])}
    other = save_graph(tmp_path / "fixed.onnx", [column, flat], fixed, ("mean", TensorProto.FLOAT, [5, 1]))
    assert scores_of(OnnxMonitor(path=str(other), range="0-255")) == pytest.approx(scores_of(monitor), rel=1e-5)


def test_an_onnx_file_may_decide_and_read_probabilities(tmp_path: Path) -> None:
    inputs = {**IMAGE, "p": (TensorProto.FLOAT, ["batch", 4])}
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("ReduceMax", ["p"], ["surest"], axes=[1], keepdims=0),
        helper.make_node("GreaterOrEqual", ["surest", "mean"], ["accept"]),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, inputs, ("accept", TensorProto.BOOL, ["batch"]))
    monitor = OnnxMonitor(path=str(path), probabilities="p", decides=True)
    assert (monitor.decides_itself, monitor.own_threshold) == (True, 0.5)
    mean = TEST.batch(slice(None)).images.mean(axis=(1, 2, 3)) / 255
    assert np.array_equal(scores_of(monitor), scores_of(Msp()) >= mean)
    for wrong, sentence in (
        ({"probabilities": ""}, r"must have one input for the image; its inputs are: 'image', 'p'"),
        ({"probabilities": "q"}, "has no input 'q'; its inputs are: 'image', 'p'"),
        ({"output": "mean"}, "has the outputs accept: name that of the scores as `output=`"),
        ({"range": "bright"}, "cannot read the range 'bright'"),
        ({"path": str(tmp_path / "none.onnx")}, "there is no ONNX file"),
    ):
        with pytest.raises(InputError, match=sentence):
            OnnxMonitor(**{"path": str(path), "probabilities": "p", "decides": True} | wrong)
    with pytest.raises(InputError, match="answers True and False, not scores"):
        scores_of(OnnxMonitor(path=str(path), probabilities="p"))
    save_graph(path, nodes[:1], IMAGE, ("mean", TensorProto.FLOAT, ["batch"]))
    with pytest.raises(InputError, match=r"m.onnx has changed since the monitor was built"):
        scores_of(monitor)


def stored_rows(value: Callable[[int], Any] = float) -> list[tuple[str, str, Any]]:
    ids = [image for data in (TRAIN, HELD_OUT, TEST, OUTLIERS) for image in data.ids]
    return [("", image, value(row)) for row, image in enumerate(dict.fromkeys(ids))]


def write_rows(path: Path, rows: list[tuple[Any, ...]], *columns: str) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns or ("stimulus", "id", "score"), *rows])
    return path


def test_stored_scores_are_looked_up_by_stimulus_and_id(tmp_path: Path) -> None:
    rows = stored_rows(lambda row: row / 8)
    monitor = StoredMonitor(scores=str(write_rows(tmp_path / "s.csv", [*rows, ("fog", rows[0][1], -1.0)])))
    assert (monitor.decides, monitor.own_threshold, monitor.decides_itself) == (False, None, False)
    check_monitor(monitor)
    wanted = {image: score for _, image, score in rows}
    assert scores_of(monitor).tolist() == [wanted[image] for image in TEST.ids]
    pd_rows = write_parquet(tmp_path / "s.parquet", rows)
    assert np.array_equal(scores_of(StoredMonitor(scores=str(pd_rows))), scores_of(monitor))
    folder = tmp_path / "parts"
    folder.mkdir()
    write_rows(folder / "a.csv", rows[:9])
    write_rows(folder / "b.csv", rows[9:])
    assert np.array_equal(scores_of(StoredMonitor(scores=str(folder))), scores_of(monitor))
    one = Batch((rows[0][1],), np.zeros((1, 8, 8, 3), np.uint8), np.zeros(1, np.int64), stimulus="fog")
    assert monitor.read(Signals(ToyModel(), one), Learned()).tolist() == [-1.0]


def write_parquet(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    import pandas as pd

    pd.DataFrame(rows, columns=["stimulus", "id", "score"]).to_parquet(path)
    return path


def test_stored_decisions_are_1_for_reject(tmp_path: Path) -> None:
    rows = stored_rows(lambda row: int(row % 64 == 3))
    monitor = StoredMonitor(scores=str(write_rows(tmp_path / "s.csv", rows, "stimulus", "id", "reject")))
    assert (monitor.decides, monitor.own_threshold, monitor.decides_itself) == (True, 0.5, True)
    wanted = {image: 1.0 - reject for _, image, reject in rows}
    assert scores_of(monitor).tolist() == [wanted[image] for image in TEST.ids]
    check_monitor(monitor)


@pytest.mark.parametrize(
    ("columns", "rows", "sentence"),
    [
        (("id", "score"), [("a", 1)], "has no column 'stimulus': take both from the manifest"),
        (("stimulus", "score"), [("", 1)], "has no column 'id'"),
        (("stimulus", "id"), [("", "a")], "needs a column score, or a column reject, and not neither"),
        (("stimulus", "id", "score", "reject"), [("", "a", 1, 0)], "and not score and reject"),
        (("stimulus", "id", "score"), [], "holds no scores"),
        (("stimulus", "id", "score"), [("", "a", 1), ("", "a", 2)], r"answers 1 images more than once: \(, a\)"),
        (
            ("stimulus", "id", "score"),
            [("", "a", 1), ("", "b", "nan")],
            r"NaN, infinity or gaps in 1 of 2 rows: \(, b\)",
        ),
        (("stimulus", "id", "score"), [("", "a", 1), ("", "b", "")], r"NaN, infinity or gaps in 1 of 2 rows: \(, b\)"),
        (
            ("stimulus", "id", "score"),
            [("", "a", "high")],
            r"cannot read .* \(columns are 'stimulus', 'id' and score\)",
        ),
        (("stimulus", "id", "reject"), [("", "a", 0.5)], r"other values than 0 and 1 in 1 of 1 rows: \(, a\)"),
    ],
)
def test_files_of_scores_that_are_none_are_refused(tmp_path: Path, columns: Any, rows: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        StoredMonitor(scores=str(write_rows(tmp_path / "s.csv", rows, *columns)))


def test_images_without_a_score_and_changed_files_are_refused(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "s.csv", stored_rows()[:-2])
    monitor = StoredMonitor(scores=str(path))
    missing = stored_rows()[-2][1]
    with pytest.raises(InputError, match=rf"holds no score of 2 images that are shown: \(, {missing}\), .*; export"):
        scores_of(monitor, OUTLIERS)
    with pytest.raises(InputError, match=r"holds no score of 1 images that are shown: \(fog-1, x\)"):
        monitor.check_complete({"": TEST.ids, "fog-1": ["x"]})
    with pytest.raises(InputError, match="has a column score, not reject: leave decides out"):
        StoredMonitor(scores=str(path), decides=True)
    loaded = MONITORS.get("stored").of(monitor.parameters())
    write_rows(path, stored_rows())
    with pytest.raises(InputError, match=r"s.csv has changed since the monitor was built"):
        scores_of(loaded)
    with pytest.raises(InputError, match="there are no scores of a monitor at"):
        StoredMonitor(scores=str(tmp_path / "none.csv"))


def frames(*predictions: int, confidence: float = 0.9, **conditions: list[float]) -> Any:
    columns = [predictions, [confidence] * len(predictions), *conditions.values()]
    return np.array(columns, np.float32).T


def alarms(monitor: Any, rows: Any, starts: list[int] | None = None, rejected: list[int] | None = None) -> list[int]:
    begins = np.isin(np.arange(len(rows)), starts or [0])
    before = np.isin(np.arange(len(rows)), rejected or [])
    return [int(row) for row in np.flatnonzero(monitor.in_order(rows, before, begins, Learned(), Learned()))]


def test_flicker_is_an_answer_that_changes_and_changes_back() -> None:
    monitor = Assertion(window=3)
    assert alarms(monitor, frames(1, 1, 2, 1, 1, 1)) == [3]
    assert alarms(Assertion(window=4), frames(1, 1, 2, 1, 1, 1)) == [3, 4]
    assert alarms(monitor, frames(1, 2, 3, 4, 4)) == []
    assert alarms(monitor, frames(1, 2, 2, 1)) == [], "longer than the window"
    assert alarms(monitor, frames(1, 2, 1), starts=[0, 2]) == [], "another object"
    assert alarms(monitor, frames(1, 2, 1), rejected=[0]) == [0, 2], "what is rejected stays so"
    assert alarms(monitor, frames(5)) == []
    assert monitor.in_order(frames(1)[:0], np.zeros(0, bool), np.zeros(0, bool), Learned(), Learned()).tolist() == []


def test_jump_is_a_condition_that_changes_by_more_than_the_limit() -> None:
    monitor = Assertion(predicate="jump", window=2, conditions=("speed",), limit=5.0)
    rows = frames(0, 0, 0, 0, 0, speed=[50, 55, 61, 61, 50])
    assert alarms(monitor, rows) == [2, 4]
    assert alarms(monitor, rows, starts=[0, 2, 4]) == []
    data = TEST.batch(slice(0, 4))
    batch = Batch(data.ids, data.images, data.labels, conditions={"speed": np.array([1, 2, 3, 4])})
    read = monitor.read(Signals(ToyModel(), batch, 4), Learned())
    probabilities = ToyModel().answer(batch, 4).probabilities
    assert np.array_equal(read[:, 0], probabilities.argmax(axis=1))
    assert np.array_equal(read[:, 1:].T, [probabilities.max(axis=1), [1, 2, 3, 4]])
    for values, sentence in (
        ({"sped": np.zeros(4)}, "unknown condition of the data .* 'speed': did you mean 'sped'"),
        ({"speed": np.array(["a"] * 4)}, "the condition speed holds values that are not numbers"),
        ({"speed": np.array([1, 2, np.nan, 4])}, f"image {batch.ids[2]} has no finite value of the condition speed"),
    ):
        wrong = Batch(data.ids, data.images, data.labels, conditions=values)
        with pytest.raises(InputError, match=sentence):
            monitor.read(Signals(ToyModel(), wrong, 4), Learned())


def test_a_predicate_of_ones_own_sees_the_frames_of_one_object(code: Path) -> None:
    entry = {"monitor": "assertion", "predicate": "mine.py:doubtful", "window": 2}
    with pytest.raises(InputError, match="holds code that would be run"):
        open_monitor(entry, MonitorOpening(code.parent))
    monitor = open_monitor(entry, MonitorOpening(code.parent, trust=True))
    rows = frames(0, 0, 0, 0)
    rows[:, 1] = [0.9, 0.8, 0.8, 0.1]
    assert alarms(monitor, rows) == [1, 3]
    assert alarms(monitor, rows, starts=[0, 3]) == [1]
    vague = open_monitor(entry | {"predicate": "mine.py:vague"}, MonitorOpening(code.parent, trust=True))
    with pytest.raises(InputError, match=r"mine.py:vague of monitor assertion must return True or False, not 1"):
        alarms(vague, rows)
    assert Frame(1, 0.5, {}) == Frame(prediction=1, confidence=0.5, conditions={})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"predicate": "flickers"}, "unknown predicate of monitor assertion 'flickers': did you mean 'flicker'"),
        ({"window": 2}, "window is a whole number of at least 3, not 2"),
        ({"limit": 1.0}, "limit belongs to the predicate jump"),
        ({"conditions": ("speed",)}, "the predicate flicker looks at no conditions"),
        ({"version": "1"}, "version belongs to code of your own"),
        ({"predicate": "jump", "conditions": ("speed",)}, "jump needs a limit, a number of at least 0, not None"),
        ({"predicate": "jump", "limit": -1.0, "conditions": ("speed",)}, "jump needs a limit"),
        ({"predicate": "jump", "limit": 1.0}, "jump needs the names of conditions"),
        ({"predicate": "jump", "limit": 1.0, "conditions": ("a", "a")}, "a condition is named twice"),
        ({"predicate": "jump", "limit": 1.0, "conditions": ("a",), "window": 1}, "at least 2, not 1"),
    ],
)
def test_settings_of_an_assertion_that_make_no_sense_are_refused(changes: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Assertion(**changes)


def test_an_assertion_accepts_every_image_by_itself() -> None:
    monitor = Assertion()
    assert (monitor.is_sequential, monitor.decides_itself, monitor.own_threshold) == (True, True, 0.5)
    assert set(scores_of(monitor)) == {1.0}
    assert monitor.build(ToyModel()).notes == ("it decides about frames in order: an image by itself is accepted",)


PARTS = ("msp", "energy", {"monitor": "knn_svm", "k": 3}, "random")


def calibrated_rows(monitor: Any) -> tuple[FittedMonitor, Learned, Any]:
    """A fitted monitor, its rule at 10 % of held-out images, and its representations of images inside and outside."""
    fitted = monitor.build(ToyModel(), TRAIN)
    inside = represent_data(fitted, ToyModel(), HELD_OUT)
    rule = Learned(monitor.tune(inside, None, Aim(rejected=0.1), fitted.state))
    rows = np.concatenate([represent_data(fitted, ToyModel(), data) for data in (TEST, OUTLIERS)])
    return fitted, rule, rows


@pytest.fixture(scope="module")
def by_part() -> Any:
    """What each part rejects by itself at 10 %, (N, P)."""
    columns = []
    for part in PARTS:
        fitted = open_monitor(part).build(ToyModel(), TRAIN)
        own = fitted.calibrate(represent_data(fitted, ToyModel(), HELD_OUT), rejected=0.1)
        columns.append(own.reject(np.concatenate([represent_data(fitted, ToyModel(), d) for d in (TEST, OUTLIERS)])))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(("rule_name", "least"), [("any", 1), ("all", 4), ("majority", 3)])
def test_a_combination_rejects_exactly_where_its_rule_says(by_part: Any, rule_name: str, least: int) -> None:
    monitor = Combined(of=PARTS, rule=rule_name)
    fitted, rule, rows = calibrated_rows(monitor)
    rejected = fitted.scores(rows, rule) < monitor.own_threshold
    assert np.array_equal(rejected, by_part.sum(axis=1) >= least)
    assert 0 < rejected.sum() < len(rejected)
    if rule_name == "any":
        assert (rejected[:, None] >= by_part).all()
    if rule_name == "all":
        assert (rejected[:, None] <= by_part).all()
    assert np.array_equal(monitor.margins(rows, rule, fitted.state) < 0, by_part)


def test_a_score_at_a_threshold_is_accepted_and_one_just_below_rejected_whatever_the_other_part_says() -> None:
    inside = np.column_stack([np.ones((20, 2)), *[np.arange(20.0) / 20] * 2]).astype(np.float32)
    at = np.float32(0.1)
    below = np.nextafter(at, np.float32(0))
    rows = np.array([[1, 1, at, 0], [1, 1, at, 0.9], [1, 1, below, 0.9], [1, 1, below, 0]], np.float32)
    for rule_name, wanted in (("all", [False, False, False, True]), ("any", [True, False, True, True])):
        monitor = Combined(of=("msp", "msp"), rule=rule_name)
        rule = Learned(monitor.tune(inside, None, Aim(rejected=0.1), Learned()))
        assert rule["0.threshold"] == at
        assert (monitor.rate(rows, rule, Learned()) < 0).tolist() == wanted


def test_order_matters_to_sequential_combinations_alone(by_part: Any) -> None:
    starts = np.arange(len(by_part)) % 7 == 0
    plain, looking_back = Combined(of=PARTS), Combined(of=PARTS, last=4, at_least=2)
    assert (plain.is_sequential, looking_back.is_sequential) == (False, True)
    for monitor in (plain, looking_back):
        fitted, rule, rows = calibrated_rows(monitor)
        alone = fitted.scores(rows, rule) < 0
        in_order = monitor.in_order(rows, alone, starts, rule, fitted.state)
        assert np.array_equal(in_order, alone) == (monitor is plain)
        assert np.array_equal(in_order, naive(alone, starts, monitor.last, monitor.at_least))
    across = Combined(of=PARTS, last=4, at_least=2, per_object=False)
    assert np.array_equal(
        across.in_order(rows, alone, starts, rule, fitted.state), naive(alone, np.zeros(len(alone), bool), 4, 2)
    )


def naive(rejected: Any, starts: Any, last: int, at_least: int) -> list[bool]:
    window: list[bool] = []
    decisions = []
    for is_rejected, is_start in zip(rejected, starts, strict=True):
        window = [*([] if is_start else window), bool(is_rejected)][-last:]
        decisions.append(sum(window) >= at_least)
    return decisions


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40),
    st.integers(1, 6).flatmap(lambda last: st.tuples(st.just(last), st.integers(1, last))),
)
def test_k_of_the_last_n_is_what_a_loop_counts(stream: list[tuple[bool, bool]], window: tuple[int, int]) -> None:
    rejected, starts = np.array(stream, bool).reshape(-1, 2).T
    assert recent_rejections(rejected, starts, *window).tolist() == naive(rejected, starts, *window)


FINITE = st.floats(-1e12, 1e12, allow_nan=False) | st.sampled_from([-np.inf, np.inf, 0.0, 1e-320, 1e308])


@settings(max_examples=150, deadline=None)
@given(st.lists(FINITE, min_size=1, max_size=12), st.lists(FINITE, min_size=1, max_size=12), FINITE)
def test_a_margin_is_below_0_exactly_below_the_threshold_and_never_falls(
    inside: list[float], scores: list[float], threshold: float
) -> None:
    values = np.sort(np.array([*scores, threshold, np.nextafter(threshold, -np.inf)]))
    margins = margin_of(values, threshold, np.array(inside))
    assert np.isfinite(margins).all()
    assert np.array_equal(margins < 0, values < threshold)
    assert (np.diff(margins) >= -1e-9 * np.maximum(1, np.minimum(np.abs(margins[1:]), LARGEST))).all()


def test_a_margin_counts_images_inside() -> None:
    inside = np.arange(10.0)
    assert margin_of(np.array([0.0, 4.0, 9.0, 18.0, -9.0]), 1.0, inside) == pytest.approx([-0.1, 0.3, 0.8, 1.8, -1.1])
    assert margin_of(np.array([0.0, 1.0]), 0.5, np.ones(5)) == pytest.approx([-0.5, 0.5])


def test_a_combination_keeps_the_promises_of_the_role(tmp_path: Path) -> None:
    for parts in (("msp", "random"), (Energy(temperature=2.0), {"monitor": "mahalanobis"}), ("openmax",)):
        check_monitor(Combined(of=parts, rule="all", last=3, at_least=2))
    nested = Combined(of=({"monitor": "combined", "of": ["msp", "energy"], "rule": "all"}, "random"))
    check_monitor(nested)
    assert [part.name for part in leaf_monitors(nested)] == ["msp", "energy", "random"]
    assert nested == make_monitor("combined", of=list(nested.of))
    features = Combined(of=({"monitor": "mahalanobis", "layer": "a"}, "msp"))
    assert (features.layer, Combined(of=("mahalanobis",)).layer, nested.layer) == ("a", None, None)
    learning = Combined(of=("msp", "kl_matching", "knn_svm"))
    assert (learning.learns, learning.classes, learning.work(10)) == (True, 2, 20)
    assert learning.signals(ToyModel()) == ("images", "probabilities")
    lacking = ToyModel()
    lacking.capabilities = lacking.capabilities - {"logits"}
    with pytest.raises(InputError, match="monitor energy needs logits"):
        nested.build(lacking)


def test_a_part_may_keep_its_own_threshold_and_a_part_that_decides_always_does(tmp_path: Path) -> None:
    rows = stored_rows(lambda row: int(row % 3 == 0))
    stored = StoredMonitor(scores=str(write_rows(tmp_path / "s.csv", rows, "stimulus", "id", "reject")))
    monitor = Combined(of=(stored, {"monitor": "combined", "of": ["msp", "random"]}))
    fitted, rule, shown = calibrated_rows(monitor)
    assert rule["0.threshold"] == 0.5
    assert rule["1.threshold"] != 0.0
    by_parts = monitor.margins(shown, rule, fitted.state) < 0
    rejects = {image: bool(reject) for _, image, reject in rows}
    assert by_parts[:, 0].tolist() == [rejects[image] for data in (TEST, OUTLIERS) for image in data.ids]
    own = Combined(of=monitor.of, part_threshold="own")
    assert calibrated_rows(own)[1]["1.threshold"] == 0.0
    assert not monitor.decides_itself
    assert Combined(of=(stored,)).decides_itself


def test_a_combination_with_an_assertion_decides_in_order() -> None:
    monitor = Combined(of=("msp", {"monitor": "assertion", "window": 3}))
    assert (monitor.decides_itself, monitor.is_sequential) == (True, True)
    fitted, rule, rows = calibrated_rows(monitor)
    starts = np.arange(len(rows)) == 0
    alone = fitted.scores(rows, rule) < 0
    msp_rejects = monitor.margins(rows, rule, fitted.state)[:, 0] < 0
    assert np.array_equal(alone, msp_rejects)
    answers = rows[:, 3:5].astype(np.float32)
    flickers = Assertion(window=3).in_order(answers, np.zeros(len(rows), bool), starts, Learned(), Learned())
    in_order = monitor.in_order(rows, alone, starts, rule, fitted.state)
    assert flickers.any()
    assert np.array_equal(in_order, msp_rejects | flickers)
    both = Combined(of=monitor.of, rule="all")
    assert np.array_equal(both.in_order(rows, alone, starts, rule, fitted.state), msp_rejects & flickers)
    assert monitor.in_order(rows[:0], alone[:0], starts[:0], rule, fitted.state).tolist() == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"of": ()}, "of is a list of at least one monitor"),
        ({"of": "msp"}, "of is a list of at least one monitor, not 'msp'"),
        ({"of": ("msp", "enrgy")}, "unknown monitor 'enrgy': did you mean 'energy'"),
        ({"of": (3,)}, r"a monitor is a name or a mapping such as \{monitor: deep_knn, k: 8\}, not 3"),
        ({"of": ({"monitor": "knn_svm", "kk": 1},)}, "unknown parameter of monitor knn_svm 'kk'"),
        ({"rule": "most"}, "unknown rule of monitor combined 'most'"),
        ({"part_threshold": "mine"}, "unknown part_threshold of monitor combined 'mine'"),
        ({"last": 0}, "last is a whole number of at least 1, not 0"),
        ({"last": 2, "at_least": 3}, "at_least 3 of the last 2 frames cannot be rejected"),
        ({"per_object": False}, "per_object belongs to last"),
        ({"codes": ("other",)}, "the code of its parts has changed since it was built"),
    ],
)
def test_settings_of_a_combination_that_make_no_sense_are_refused(changes: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Combined(**{"of": ("msp",)} | changes)


def test_a_combination_refuses_rows_of_another_and_scores_without_a_rule() -> None:
    fitted, rule, rows = calibrated_rows(Combined(of=("msp", "random")))
    with pytest.raises(InputError, match="cannot score without the thresholds of its parts: calibrate it first"):
        fitted.scores(rows, Learned())
    with pytest.raises(InputError, match="these are not representations of its parts"):
        fitted.scores(rows[:, :-1], rule)
    assert fitted.scores(rows[:0], rule).shape == (0,)


def study_of(folder: Path, **monitors: Any) -> Path:
    noise = {"uniform": "uniform_noise", "normal": "normal_noise"}
    protocols = {"od_test": {"sets": [*noise], "limit": 20}}
    data = {"test": {"builtin": "signs", "n": 150}}
    return tiny.write_study(folder, monitors=monitors, protocols=protocols, outliers=noise, data=data)


def test_a_study_runs_monitors_from_files_and_combinations_of_its_labels(code: Path, tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        contrast={"monitor": "callable", "function": "mine.py:score"},
        hot={"monitor": "msp"},
        both={"monitor": "combined", "of": ["contrast", "hot", "random"], "rule": "majority"},
    )
    assert "mine.py holds code that would be run: pass --trust" in call("run", study, "--out", tmp_path / "run", code=2)
    run = rw.run_study(study, out=tmp_path / "run", trust=True, workers=1, progress=rw.no_progress)
    assert not run.failures
    assert {*run.tables["od_test"]["monitor"]} == {"contrast", "hot", "both"}
    opening_module._IMPORTED.clear()
    assert rw.open_run(tmp_path / "run").verify() == [], "tables follow from stored rows, no code is run"
    (tmp_path / "elsewhere").mkdir()
    copy = Path(shutil.copy(tmp_path / "run" / "study.yaml", tmp_path / "elsewhere"))
    again = prepare(*load_study(copy)[:1], base=copy.parent, trust=True, rehearse=False, progress=rw.no_progress)
    assert {*again.plan.graph().cases} == {*run.record.cases}, "the copy in the run names the same"
    elsewhere = prepare_recipe(again.recipe())
    assert {*elsewhere.plan.graph().cases} == {*run.record.cases}, "another process makes the same"


def test_a_run_that_is_trusted_imports_the_code_that_its_monitors_name(code: Path, tmp_path: Path) -> None:
    own = {"monitor": "assertion", "predicate": "mine.py:doubtful"}
    study = study_of(tmp_path, own=own, mixed={"monitor": "combined", "of": ["msp", "own"]})
    rw.run_study(study, out=tmp_path / "run", trust=True, workers=1, progress=rw.no_progress)
    for trust in (False, True):
        opening_module._IMPORTED.clear()
        assert rw.open_run(tmp_path / "run", trust=trust).verify() == []
        assert {*opening_module._IMPORTED} == ({f"{code}:doubtful"} if trust else set())
    fitted = make_monitor("assertion", predicate=f"{code}:doubtful").build(ToyModel())
    opening_module._IMPORTED.clear()
    with pytest.raises(InputError, match=r"was not imported yet: open the study or the run with `trust=True`"):
        alarms(fitted.monitor, frames(1, 1))


def test_stored_scores_come_back_from_an_export(tmp_path: Path) -> None:
    study = study_of(tmp_path, theirs={"monitor": "stored", "scores": "scores.csv"})
    call("export", study, tmp_path / "images")
    with (tmp_path / "images" / "manifest.csv").open(newline="") as file:
        manifest = list(csv.DictReader(file))
    rows = [(row["stimulus"], row["id"], 1.0 / (2 + number)) for number, row in enumerate(manifest)]
    write_rows(tmp_path / "scores.csv", rows[:-1])
    assert "holds no score of 1 images that are shown" in call("run", study, "--out", tmp_path / "run", code=2)
    assert not (tmp_path / "run").exists(), "nothing is written before everything is checked"
    write_rows(tmp_path / "scores.csv", rows)
    run = rw.run_study(study, out=tmp_path / "run", workers=1, progress=rw.no_progress)
    assert not run.failures
    assert {*run.tables["od_test"]["monitor"]} == {"theirs"}
