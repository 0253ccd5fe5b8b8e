"""Models that write into their input, hang, call sys.exit, change the working folder or lack what is asked of them."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, save

import roadworthy as rw
from commands import call
from dark_and_bright import CLASSES, CODE, NAMES, SIDE, draw, study
from roadworthy.core.errors import InputError
from tiny import contents, import_text


def light(images: np.ndarray) -> np.ndarray:
    mean = np.asarray(images, np.float64).reshape(len(images), -1).mean(axis=1) / 255
    return np.stack([1 - mean, mean], axis=1).astype(np.float32)


class Scribbler(rw.Model):
    """Answers by the light of an image and then writes over all that it was given; or just answers."""

    num_classes, concurrent = CLASSES, True

    def __init__(self, name: str, scribbles: bool) -> None:
        self.name, self.scribbles = name, scribbles
        self.capabilities = frozenset({"probabilities", "features", "input_gradient"})

    def fingerprint(self) -> str:
        return f"scribbler {self.name}"

    def spoil(self, batch: rw.Batch) -> None:
        if self.scribbles:
            batch.images[...] = 255 - batch.images
            batch.labels[...] = 0

    def predict(self, batch: rw.Batch) -> rw.Prediction:
        answer = light(batch.images)
        self.spoil(batch)
        return rw.Prediction(answer)

    def features(self, batch: rw.Batch, layer: str) -> np.ndarray:
        rows = batch.images.reshape(len(batch), -1)[:, :5].astype(np.float32)
        self.spoil(batch)
        return rows

    def input_gradient(self, batch: rw.Batch) -> np.ndarray:
        gradient = np.asarray(batch.images, np.float32) - 100
        self.spoil(batch)
        return gradient


def scribbling(images: np.ndarray) -> np.ndarray:
    images[::2] //= 2  # in place, as people do
    answer = light(images)
    images[...] = 0
    return answer


def evaluated(data: Path, out: Path, models: dict[str, rw.Model], workers: int) -> dict[str, str]:
    from roadworthy.api import execute, no_progress, prepare
    from roadworthy.study import parse_study

    square = {"name": "square", "levels": {3: {"epsilon": 8, "queries": 5}}}
    protocols = {"classification": {"shifts": ["noise", square], "levels": [3]}}
    content = study(data, dict.fromkeys(models, "<in memory>"), protocols=protocols)
    run = execute(prepare(parse_study(content, "s"), models=models), out, workers=workers, progress=no_progress)
    assert run.failures == []
    rows = run.tables["classification"]
    return {name: rows[rows.model == name].drop(columns="model").to_csv(index=False) for name in models}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The table of each model in a run of its own."""
    folder = tmp_path_factory.mktemp("alone")
    return {name: evaluated(draw(folder), folder / name, {name: model}, 1)[name] for name, model in make_all().items()}


def make_all() -> dict[str, rw.Model]:
    from roadworthy.models import CallableModel
    from roadworthy.uncertainty import Ensemble

    function = CallableModel(scribbling, num_classes=CLASSES, version="1")
    writes, reads = Scribbler("writes", True), Scribbler("reads", False)
    return {"writes": writes, "reads": reads, "function": function, "both": Ensemble([writes, reads], name="both")}


@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(order=st.permutations(["writes", "reads", "function", "both"]), workers=st.sampled_from([1, 4]))
def test_order_and_workers_never_change_a_result_whatever_a_model_writes(
    tmp_path: Path, alone: dict[str, str], order: list[str], workers: int
) -> None:
    models = make_all()
    out = tmp_path / f"{'-'.join(order)}-{workers}"
    found = evaluated(draw(tmp_path), out, {name: models[name] for name in order}, workers)
    assert found == {name: alone[name] for name in order}
    clean, *_ = zip(*(rows.splitlines()[1:] for rows in (found["writes"], found["reads"], found["both"])), strict=True)
    assert len(set(clean)) == 1, "all three answer the same"


def test_a_model_that_uses_the_memory_of_its_answer_again(tmp_path: Path) -> None:
    from roadworthy.models import CallableModel

    room = np.zeros((2, CLASSES), np.float32)

    def lazy(images: np.ndarray) -> np.ndarray:
        room[:] = light(images)
        return room

    functions = {"lazy": lazy, "light": light}
    models = {n: CallableModel(f, num_classes=2, version=n, fixed_batch=2) for n, f in functions.items()}
    found = evaluated(draw(tmp_path), tmp_path / "run", models, 1)
    lazily, plainly = (rows.partition("\nsquare")[0] for rows in found.values())
    assert lazily == plainly


@dataclass(frozen=True, kw_only=True)
class Twice(rw.Monitor):
    """Asks the model two questions about the same images, and looks at them itself."""

    name = "twice"

    def read(self, signals: rw.Signals, state: Any) -> np.ndarray:
        rows = [signals.features("any").mean(1), signals.probabilities[:, 1]]
        return np.stack([*rows, signals.images.mean(axis=(1, 2, 3))], axis=1)


def test_monitors_see_what_they_would_without_a_model_that_writes(tmp_path: Path) -> None:
    stored = np.load(draw(tmp_path, 40))
    kept = []
    for scribbles in (True, False):
        run = rw.od_test(
            Scribbler("m", scribbles),
            monitors=[Twice(), rw.make_monitor("deep_knn", layer="any", k=5)],
            source=(stored["images"], stored["labels"]),
            outliers={"a": "uniform_noise", "b": "normal_noise"},
            out=tmp_path / f"run-{scribbles}",
        )
        kept.append({path.parent.name: path.read_bytes() for path in run.path.glob("representations/*/rows.npz")})
        assert run.tables["od_test_missing"].empty
    assert kept[0] == kept[1]


def test_a_shift_that_writes_into_its_input_fails_alone_and_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
from dataclasses import dataclass
import roadworthy as rw

@dataclass(frozen=True, kw_only=True)
class Careless(rw.Shift):
    name = "careless"
    LEVELS = ({},)

    def __call__(self, batch, streams):
        batch.images[...] = 0
        return batch
"""
    monkeypatch.setitem(rw.SHIFTS._members, "careless", import_text(source, tmp_path / "careless.py").Careless)
    (tmp_path / "code.py").write_text(CODE)
    protocols = {"classification": {"shifts": ["careless", "noise"], "levels": [1]}}
    content = study(draw(tmp_path), {"m": str(tmp_path / "code.py") + ":answer"}, protocols=protocols)
    run = rw.run_study(content, out=tmp_path / "run", trust=True)
    assert [(f.name.split()[2], "read-only" in f.reason) for f in run.failures] == [("careless", True)]


def test_another_process_may_do_what_an_evaluation_was_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is trusted here is trusted where a node of the run is done from its description."""
    from roadworthy import api
    from roadworthy.preparing import prepare_recipe

    kept: list[Any] = []
    monkeypatch.setattr(api, "execute", lambda prepared, *_, **__: kept.append(prepared))
    (tmp_path / "code.py").write_text(CODE)
    granted = {"trust": True, "unpickle": True}
    api.evaluate(f"{tmp_path}/code.py:answer", draw(tmp_path), suite="quick", out=tmp_path / "run", **granted)
    recipe = kept[0].recipe()
    assert recipe["allowed"] == {**granted, "device": "auto", "on_bad_image": "error"}
    assert set(prepare_recipe(recipe).plan.graph().cases) == set(kept[0].plan.graph().cases)


RAISES = '''
import sys

class Stop(BaseException):
    """Not an Exception, as the panics of Rust extensions are."""

def answer(images):
    import numpy as np
    if {when}:
        {what}
    light = np.asarray(images, np.float64).reshape(len(images), -1).mean(axis=1) / 255
    return np.stack([1 - light, light], axis=1).astype(np.float32)
'''


@pytest.mark.parametrize("what", ["raise Stop('enough')", "sys.exit(3)", "raise GeneratorExit('enough')"])
def test_whatever_a_model_raises_is_a_failed_case(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw(tmp_path)
    Path("good.py").write_text(CODE)
    Path("bad.py").write_text(RAISES.format(when="images.mean() > 160", what=what))
    models = {"good": {"callable": "good.py:answer"}, "bad": {"callable": "bad.py:answer", "num_classes": 2}}
    Path("study.yaml").write_text(
        yaml.safe_dump(
            study(Path("data.npz"), models, protocols={"classification": {"shifts": ["fog"], "levels": [5]}})
        )
    )
    call("run", "study.yaml", "--trust", "--out", "run", code=3)
    (failure,) = rw.open_run("run").failures
    assert failure.name == "bad at fog 5"
    assert "model bad failed on 2 images" in failure.reason
    Path("bad.py").write_text(RAISES.format(when="True", what=what))
    assert "does not answer a probe image" in call(
        "evaluate", "--model", "bad.py:answer", "--data", "data.npz", "--trust", "--out", "no", code=2
    )
    Path("bad.py").write_text("class Stop(BaseException): pass\nimport sys\n" + what)
    assert "cannot import bad.py" in call(
        "evaluate", "--model", "bad.py:answer", "--data", "data.npz", "--trust", "--out", "no", code=2
    )


def test_whatever_code_of_ones_own_raises_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shifts, monitors and the features of a model."""

    class Stop(BaseException):
        pass

    class Fussy(Scribbler):
        def features(self, batch: rw.Batch, layer: str) -> np.ndarray:
            raise Stop("no features today")

    source = """
from dataclasses import dataclass
import roadworthy as rw

@dataclass(frozen=True, kw_only=True)
class Leaving(rw.Shift):
    name = "leaving"
    LEVELS = ({},)

    def __call__(self, batch, streams):
        raise SystemExit("gone")

@dataclass(frozen=True, kw_only=True)
class Quitting(rw.Monitor):
    name = "quitting"

    def read(self, signals, state):
        raise SystemExit("gone too")
"""
    module = import_text(source, tmp_path / "leaving.py")
    monkeypatch.setitem(rw.SHIFTS._members, "leaving", module.Leaving)
    from roadworthy.api import execute, no_progress, prepare
    from roadworthy.study import parse_study

    protocols = {
        "classification": {"shifts": ["leaving", "noise"], "levels": [1]},
        "dependability": {"layers": ["any"], "transformers": [{"name": "noise", "level": 1}]},
    }
    content = study(draw(tmp_path, 40), {"m": "<in memory>"}, protocols=protocols)
    models = {"m": Fussy("m", False)}
    run = execute(prepare(parse_study(content, "s"), models=models), tmp_path / "run", progress=no_progress)
    assert [f.name for f in run.failures] == ["m at leaving 1", "layer of m"]
    assert run.failures[0].reason == "shift leaving raised SystemExit('gone')"
    neurons = run.tables["dependability"].query("metric == 'neuron_activation_1'")
    assert "no features today" in neurons["reason"].iloc[0]
    stored = np.load(tmp_path / "data.npz")
    od = rw.od_test(
        Scribbler("m", False),
        monitors=["msp", module.Quitting()],
        source=(stored["images"], stored["labels"]),
        outliers={"a": "uniform_noise", "b": "normal_noise"},
        out=tmp_path / "od",
    )
    (missing,) = od.tables["od_test_missing"].query("monitor == 'quitting'")["reason"]
    assert "SystemExit" in missing


def test_a_model_that_changes_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir(), elsewhere.mkdir()
    monkeypatch.chdir(work)
    for place, side in (("a", 0), ("b", 200)):
        (work / "images" / place).mkdir(parents=True)
        for number in range(2):
            cv2.imwrite(
                str(work / "images" / place / f"{number}.png"), np.full((SIDE, SIDE, 3), side + number, np.uint8)
            )
    for name in ("one", "two"):
        Path(f"{name}.py").write_text(f"import os\nos.chdir({str(elsewhere)!r})\n" + CODE)
    models = {name: {"callable": f"{name}.py:answer"} for name in ("one", "two")}
    Path("study.yaml").write_text(yaml.safe_dump(study(Path("images"), models)))
    assert "report:" in call("run", "study.yaml", "--trust", "--out", "run")
    monkeypatch.chdir(work)
    call(
        "evaluate", "--model", "one.py:answer", "--data", "images", "--trust", "--out", "evaluated", "--suite", "quick"
    )
    monkeypatch.chdir(work)
    call("check", "--model", "one.py:answer", "--data", "images", "--trust")
    assert {path.name for path in work.iterdir()} >= {"run", "evaluated"}
    assert [*elsewhere.iterdir()] == []
    assert rw.open_run(work / "run").verify() == []


SLEEPS = (
    CODE
    + """
import os, pathlib, time
quick = answer

def answer(images):
    calls = pathlib.Path(__file__).with_name("calls")
    hang = pathlib.Path(__file__).with_name("hang")
    with calls.open("a") as file:
        file.write("x")
    if hang.exists() and calls.stat().st_size > int(hang.read_text()):
        hang.with_name("hanging").touch()
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            time.sleep(600)  # some code hears nothing
    return quick(images)
"""
)
SLEEPER = {"callable": "m.py:answer", "num_classes": 2, "version": "1"}
OD = {
    "name": "od",
    "data": {"test": "data.npz", "split": [0.6, 0.2, 0.2]},
    "models": {"s": SLEEPER},
    "outliers": {"a": "uniform_noise", "b": "normal_noise"},
    "monitors": ["msp"],
    "protocols": {"od_test": {}},
}


HANGING = [
    *(("study", 0, signal.SIGINT, 130), ("study", 2, signal.SIGINT, 130), ("od", 3, signal.SIGINT, 130)),
    *(("study", 0, signal.SIGTERM, 143), ("study", 2, signal.SIGTERM, 143)),
]
"""Kind of study, after how many calls the model hangs, what stops the command, and its exit code then."""


def test_one_interrupt_ends_a_run_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first look at the model, in a worker and in an OD-test; the same command continues from there.

    All commands are started at once, since each waits some seconds for a model that hears nothing.
    """
    words = ["run", "study.yaml", "--trust", "--out", "run", "--workers", "2"]
    # A suite that was started in the background ignores interrupts, and its children would too.
    start = partial(subprocess.Popen, preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL))
    content = study(Path("data.npz"), {"m": SLEEPER}, batch=64)
    folders = [tmp_path / f"{kind}-{calls}-{code}" for kind, calls, _, code in HANGING]
    for folder, (kind, calls, _, _) in zip(folders, HANGING, strict=True):
        folder.mkdir()
        draw(folder, 40)
        (folder / "m.py").write_text(SLEEPS)
        (folder / "hang").write_text(str(calls))
        (folder / "study.yaml").write_text(yaml.safe_dump(content if kind == "study" else OD))
    command = [sys.executable, "-m", "roadworthy", *words]
    running = [start(command, cwd=folder, stderr=subprocess.PIPE, text=True) for folder in folders]
    try:
        for folder, process in zip(folders, running, strict=True):
            while not (folder / "hanging").exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
        started = time.monotonic()
        for (_, _, stop, _), process in zip(HANGING, running, strict=True):
            os.kill(process.pid, stop)
        said = [process.communicate(timeout=30)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert time.monotonic() - started < 6.5
    assert [process.returncode for process in running] == [code for *_, code in HANGING]
    for folder, (_, calls, _, _), text in zip(folders, HANGING, said, strict=True):
        assert text.endswith("stopped; run the same command again to continue from here\n")
        if not calls:
            assert not (folder / "run").exists()
            continue
        (folder / "hang").unlink()
        monkeypatch.chdir(folder)
        call(*words)
        assert rw.open_run("run").verify() == []


ENTERED = """
import threading, time
inside, most, lock = 0, 0, threading.Lock()

def enter(images, answer):
    global inside, most
    with lock:
        inside += 1
        most = max(most, inside)
    time.sleep(0.002)
    try:
        return answer(images)
    finally:
        with lock:
            inside -= 1
"""


def test_a_function_is_entered_by_one_thread_at_a_time_whatever_it_is_wrapped_in(tmp_path: Path) -> None:
    (tmp_path / "turnstile.py").write_text(ENTERED)
    counted = (
        CODE + "\nimport turnstile\nplain = answer\n\ndef answer(images):\n    return turnstile.enter(images, plain)\n"
    )
    (tmp_path / "m.py").write_text(counted)
    inner = {"callable": "m.py:answer", "num_classes": 2, "version": "1", "isolate": False}
    turned = {**inner, "classes": NAMES[::-1]}
    models = {
        "alone": inner,
        "again": inner,
        "turned": turned,
        "warm": {"temperature": inner, "value": 2.0},
        "many": {"ensemble": [inner, turned]},
    }
    content = study(draw(tmp_path, 20), json.loads(json.dumps(models)))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    run = rw.run_study(tmp_path / "study.yaml", out=tmp_path / "run", workers=4, trust=True, accept_chance=True)
    assert run.failures == []
    assert sys.modules["turnstile"].most == 1


def test_adapters_of_one_function_share_its_turn() -> None:
    from roadworthy.models import CallableModel

    class Net:
        def answer(self, images: np.ndarray) -> np.ndarray:
            return light(images)

    def adapted(function: Any) -> Any:
        return CallableModel(function, num_classes=2, version="1").turn_key()

    net = Net()
    assert adapted(light) == adapted(functools.partial(light))
    assert adapted(net.answer) == adapted(net.answer) != adapted(Net().answer)


def save_headless(path: Path, *, head: bool) -> Path:
    """A small ONNX classifier that ends in a linear layer, or in one that is bent."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.normal(size=(3 * SIDE * SIDE, 4)) / 50, "v": rng.normal(size=(4, 2))}
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"]),
        helper.make_node("MatMul", ["pixels", "w"], ["inner"]),
        helper.make_node("Relu", ["inner"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "v"], ["scores"]),
        helper.make_node("Identity" if head else "Tanh", ["scores"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_dependability_goes_on_where_a_model_has_no_linear_last_layer(tmp_path: Path) -> None:
    whole = str(save_headless(tmp_path / "whole.onnx", head=True))
    bent = str(save_headless(tmp_path / "bent.onnx", head=False))
    (tmp_path / "code.py").write_text(CODE)
    models = {
        "whole": {"onnx": whole},
        "bent": {"onnx": bent, "outputs": "logits"},
        "warm": {"temperature": {"onnx": whole}, "value": 2.0},
        "code": {"callable": str(tmp_path / "code.py:answer")},
    }
    settings = {"transformers": [{"name": "noise", "level": 1}]}
    content = study(draw(tmp_path, 20), models, protocols={"dependability": settings})
    run = rw.run_study(content, out=tmp_path / "run", trust=True)
    table = run.tables["dependability"].set_index(["model", "metric"])
    neurons, accuracy = table.xs("neuron_activation_1", level="metric"), table.xs("accuracy", level="metric")
    assert not accuracy["value"].isna().any()
    assert neurons["value"].notna().to_dict() == {"whole": True, "bent": False, "warm": False, "code": False}
    assert "linear layer" in neurons.loc["bent", "reason"]
    assert "linear layer" in neurons.loc["warm", "reason"]
    assert "no features" in neurons.loc["code", "reason"]
    assert run.verify() == []
    named = content | {"protocols": {"dependability": settings | {"layers": ["hidden", "tanh"]}}}
    with pytest.raises(InputError, match="unknown layer of model whole 'tanh'"):
        rw.run_study(named, out=tmp_path / "named", trust=True)
    named["protocols"]["dependability"]["layers"] = ["hidden"]
    table = rw.run_study(named, out=tmp_path / "named", trust=True).tables["dependability"]
    neurons = table.query("metric == 'neuron_activation_1'").set_index("model")["value"]
    assert neurons.notna().to_dict() == {"whole": True, "bent": True, "warm": True, "code": False}


def test_an_attack_that_one_of_several_models_cannot_meet_is_a_failed_case(tmp_path: Path) -> None:
    from roadworthy.api import execute, no_progress, prepare
    from roadworthy.models import load_model
    from roadworthy.study import parse_study

    whole = load_model(save_headless(tmp_path / "whole.onnx", head=True), name="whole")
    models = {"whole": whole, "steep": Scribbler("steep", False), "writes": Scribbler("writes", True)}
    protocols = {"classification": {"shifts": ["fgsm"], "levels": [3]}}
    content = study(draw(tmp_path), dict.fromkeys(models, "<in memory>"), protocols=protocols)
    prepared = prepare(parse_study(content, "s"), models=models)
    run = execute(prepared, tmp_path / "run", progress=no_progress)
    assert [f.name.split()[::2] for f in run.failures] == [["whole", "fgsm"]]
    assert "needs the gradient of model whole" in run.failures[0].reason
    values = run.tables["classification"].query("shift == 'fgsm'").set_index(["metric", "model"])["value"].unstack()
    assert (values["steep"] == values["writes"]).sum() > 3
    assert run.verify() == []
    assert contents(execute(prepared, tmp_path / "run", progress=no_progress).path) == contents(run.path)
