"""Models in processes of their own: the same bits, limits that hold, a study that goes on without one that fails."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roadworthy as rw
from commands import call
from dark_and_bright import CODE, draw, study
from roadworthy.core.types import Batch
from roadworthy.models import load_model
from roadworthy.models.head import find_head, network_here, network_of
from roadworthy.models.isolation import IsolatedModel, Limits, parse_limits
from roadworthy.models.isolation.batches import all_of, batch_of
from roadworthy.models.isolation.channel import SharedMemory
from roadworthy.models.isolation.process import Printed, resident
from roadworthy.models.signals import Signals

BAD = (
    CODE
    + '''
import os, time
from pathlib import Path

right = answer
CALLS = []

def after_two_batches(images):
    """Whether it was asked more than about the images that it is probed with, and twice."""
    CALLS.append(len(images))
    return len(CALLS) > 3

def hangs(images):
    while after_two_batches(images):
        time.sleep(1)
    return right(images)

def leaks(images, kept=[]):
    kept.append(np.ones(100_000_000 // 8))
    return right(images)

def exits(images):
    if after_two_batches(images):
        os._exit(0)
    return right(images)

def draws(images):
    scores = np.random.random((len(images), 2)).astype(np.float32)
    return scores / scores.sum(axis=1, keepdims=True)

def exits_at_once(images):
    os._exit(0)

def hangs_at_once(images):
    Path(__file__).with_name("asked").touch()
    time.sleep(1000)

def crashes(images):
    import ctypes
    ctypes.string_at(0)

def dies_once(images):
    flag = Path(__file__).with_name("died")
    CALLS.append(1)
    if len(CALLS) > 8 and not flag.exists():
        flag.touch()
        os._exit(3)
    return right(images)

def prints(images):
    for number in range(20000):
        print("line", number, "x" * 80)
    return right(images)

def sleeps(images):
    time.sleep(0.03)
    return right(images)

def raises(images):
    raise ValueError("no such thing")

def hangs_on_bright_corner(images):
    while images[:, 0, 0, 0].max() == 255:
        time.sleep(1)
    return right(images)

def starts_another(images):
    import subprocess
    others = subprocess.Popen(["sleep", "1000"])
    Path(__file__).with_name("other").write_text(str(others.pid))
    time.sleep(1000)

def forks_twice(images):
    other = Path(__file__).with_name("other")
    if not other.exists():
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            other.with_name("written").write_text(str(os.getpid()))
            other.with_name("written").rename(other)
            os.execvp("sleep", ["sleep", "1000"])
        os.wait()
    while not other.exists():
        time.sleep(0.01)
    return right(images)

def forks_twice_and_exits(images):
    forks_twice(images)
    os._exit(3)
'''
)
LIMITS = {"seconds": 1.5, "start": 60, "memory": "600MB"}


def write_code(folder: Path) -> Path:
    (folder / "m.py").write_text(BAD)
    return folder / "m.py"


def entry(function: str, isolate: Any = LIMITS) -> dict[str, Any]:
    return {"callable": f"m.py:{function}", "num_classes": 2, "version": function, "isolate": isolate}


def opened(folder: Path, function: str, **limits: Any) -> IsolatedModel:
    model = load_model(entry(function, {**LIMITS, **limits}), name=function, trust=True, base=folder)
    assert isinstance(model, IsolatedModel)
    return model


def some_images(count: int = 4) -> Batch:
    images = np.random.default_rng(0).integers(0, 200, (count, 8, 8, 3)).astype(np.uint8)
    return Batch(tuple(map(str, range(count))), images, np.zeros(count, np.int64))


def command(folder: Path, *words: object, code: int) -> str:
    """The command line in a process of its own; what it says on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "roadworthy", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def tables_of(run: Path, model: str) -> dict[str, bytes]:
    """The rows of one model in every table, as CSV; timings, which are of this machine and hour, left out."""
    tables = {}
    for path in sorted((run / "tables").glob("*.parquet")):
        table = pd.read_parquet(path)
        if not path.stem.startswith("timing") and "model" in table.columns:
            tables[path.stem] = table[table["model"] == model].to_csv(index=False).encode()
    return tables


# --- a study goes on without the models that fail --------------------------------------------------------------------


def test_models_that_hang_leak_exit_or_draw_are_failed_cases_and_the_others_complete(tmp_path: Path) -> None:
    write_code(tmp_path)
    data = draw(tmp_path, 12)
    good = {"good": entry("right", isolate=True)}
    bad = {name: entry(name) for name in ("hangs", "leaks", "exits", "draws")}
    for name, models in (("all", good | bad), ("alone", good)):
        content = study(data, models, name=name, batch=4)
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content))
    call("run", tmp_path / "alone.yaml", "--trust", "--out", tmp_path / "alone", code=0)
    said = command(tmp_path, "run", "all.yaml", "--trust", "--out", "all", code=3)
    record = json.loads((tmp_path / "all" / "run.json").read_text())
    reasons = {
        model: {case["reason"] for case in record["cases"].values() if case["system"] == model}
        for model in ["good", *bad]
    }
    assert reasons.pop("good") == {""}
    causes = {
        "hangs": "not asked: in the check before the run, model hangs did not answer within 1.5 s",
        "leaks": "of memory, more than its limit of 600.0 MB",
        "exits": "ended its process with exit code 0 while it was asked",
        "draws": "answers the same images differently when asked twice: its probabilities change by up to",
    }
    for model, cause in causes.items():
        assert reasons[model], model
        assert all(cause in reason for reason in reasons[model]), (model, reasons[model])
        assert cause in said
        assert said.count(f"failed: {model}, all ") == 1
    assert tables_of(tmp_path / "all", "good") == tables_of(tmp_path / "alone", "good")
    assert json.loads((tmp_path / "all" / "verdict.json").read_text())["status"] == "inconclusive"
    assert "did not answer within 1.5 s" in (tmp_path / "all" / "report.html").read_text()
    call("verify", tmp_path / "all", code=0)


def test_a_model_that_dies_while_it_is_opened_costs_its_own_cases_alone(tmp_path: Path) -> None:
    write_code(tmp_path)
    models = {"good": entry("right"), "dead": {"callable": "m.py:exits_at_once", "isolate": LIMITS}}
    run = rw.run_study(study(draw(tmp_path), whole(models, tmp_path)), out=tmp_path / "run", trust=True)
    record = json.loads((run.path / "run.json").read_text())
    reasons = {case["reason"] for case in record["cases"].values() if case["system"] == "dead"}
    assert reasons == {"not asked: model dead ended its process with exit code 0 while it was opened"}
    assert all(case["status"] == "done" for case in record["cases"].values() if case["system"] == "good")
    models.pop("good")
    with pytest.raises(rw.ModelError, match="exit code 0 while it was opened"):
        rw.run_study(study(draw(tmp_path), whole(models, tmp_path)), out=tmp_path / "none", trust=True)
    assert not (tmp_path / "none").exists()


def whole(models: dict[str, Any], base: Path) -> dict[str, Any]:
    return {name: {**own, "callable": f"{base}/{own['callable']}"} for name, own in models.items()}


def test_a_model_that_dies_at_one_batch_loses_that_case_and_later_ones_go_on(tmp_path: Path) -> None:
    write_code(tmp_path)
    content = study(draw(tmp_path, 12), whole({"dies_once": entry("dies_once")}, tmp_path), batch=4)
    run = rw.run_study(content, out=tmp_path / "run", trust=True, workers=1)
    cases = json.loads((run.path / "run.json").read_text())["cases"].values()
    assert sorted(case["status"] for case in cases) == ["done", "done", "failed"]
    (reason,) = {case["reason"] for case in cases if case["reason"]}
    assert reason == "model dies_once ended its process with exit code 3 while it was asked"


def test_the_run_and_its_report_say_which_models_were_isolated(tmp_path: Path) -> None:
    write_code(tmp_path)
    models = {"apart": entry("right"), "here": entry("right", isolate=False)}
    run = rw.run_study(study(draw(tmp_path), whole(models, tmp_path)), out=tmp_path / "run", trust=True)
    record = json.loads((run.path / "run.json").read_text())["sources"][""]["models"]
    assert {name: own["isolated"] for name, own in record.items()} == {"apart": True, "here": False}
    assert record["apart"]["fingerprint"] == record["here"]["fingerprint"]
    report = (run.path / "report.html").read_text()
    assert "ran in a process of its own" in report
    assert "ran in the process of the run" in report


def test_answers_that_differ_on_purpose_are_tested_with_a_warning(tmp_path: Path) -> None:
    write_code(tmp_path)
    noisy = {"noisy": {**entry("draws", isolate=False), "varies": True}, "good": entry("right", isolate=False)}
    with pytest.warns(UserWarning, match="noisy answers the same images differently when asked again"):
        run = rw.run_study(
            study(draw(tmp_path), whole(noisy, tmp_path)), out=tmp_path / "run", trust=True, accept_chance=True
        )
    assert run.failures == []


# --- the same model, in another process ------------------------------------------------------------------------------


def test_an_isolated_model_is_the_same_model_with_the_same_bits(tmp_path: Path) -> None:
    write_code(tmp_path)
    apart, here = opened(tmp_path, "right"), load_model(entry("right", False), trust=True, base=tmp_path, name="right")
    assert apart.fingerprint() == here.fingerprint()
    assert (apart.capabilities, apart.columns) == (here.capabilities, here.columns)
    assert apart.describe() == here.describe()  # type: ignore[attr-defined]
    for count in (1, 3, 9):
        batch = some_images(count)
        assert np.array_equal(apart.answer(batch, 4).probabilities, here.answer(batch, 4).probabilities)
    with pytest.raises(rw.InputError, match="gives no features"):
        apart.features(some_images(), "x")
    raised = opened(tmp_path, "raises")
    with pytest.raises(rw.ModelError, match="model raises failed on 4 images: no such thing"):
        raised.answer(some_images(), 4)
    assert raised.processes == 1, "an error of the code does not cost the process"


@pytest.mark.parametrize(("code", "function"), [("answer = 5", "answer"), ("def answer(:", "answer"), (BAD, "anwser")])
def test_mistakes_in_code_are_the_same_sentence_there_as_here(tmp_path: Path, code: str, function: str) -> None:
    (tmp_path / "m.py").write_text(code)
    texts = []
    for isolate in (True, False):
        with pytest.raises(rw.InputError) as error:
            load_model(entry(function, isolate), name="m", trust=True, base=tmp_path)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_code_is_isolated_by_default_in_a_study_and_what_lives_in_memory_cannot_be(tmp_path: Path) -> None:
    path = write_code(tmp_path)
    plain = {"num_classes": 2, "version": "1", "trust": True}
    assert load_model(f"{path}:right", isolate="foreign", **plain).isolated
    assert not load_model({"callable": f"{path}:right", "isolate": False}, isolate="foreign", **plain).isolated
    assert not load_model(f"{path}:right", **plain).isolated
    wrapped = load_model({"temperature": f"{path}:right", "value": 2.0}, isolate="foreign", **plain_of(plain))
    assert wrapped.wrapped()[0].isolated
    with pytest.raises(rw.InputError, match="lives in the memory of this process"):
        load_model(lambda images: images, num_classes=2, version="1", isolate=True)


def plain_of(settings: dict[str, Any]) -> dict[str, Any]:
    return {"trust": settings["trust"]}


def test_an_isolated_torch_network_shows_its_layers_and_gradients_with_the_same_bits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch.nn as nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))\n"
    )
    torch.manual_seed(0)
    layers = torch.nn
    network = layers.Sequential(layers.Conv2d(3, 4, 3), layers.ReLU(), layers.Flatten(), layers.Linear(144, 2))
    torch.save(network.state_dict(), tmp_path / "net.pth")
    settings: dict[str, Any] = {"trust": True, "base": tmp_path, "arch": "net.py:net", "size": 8, "name": "net"}
    apart = load_model(tmp_path / "net.pth", isolate="foreign", **settings)
    here = load_model(tmp_path / "net.pth", **settings)
    assert (apart.isolated, apart.fingerprint()) == (True, here.fingerprint())
    assert apart.capabilities == here.capabilities
    batch = some_images(5)
    signals = [Signals(model, batch, 4) for model in (apart, here)]
    together = Signals(apart, batch, 4, ("0", "1"))
    for name in ("logits", "probabilities", "log_odds", "features", "activations:0", "activations:1"):
        assert np.array_equal(signals[0][name], signals[1][name]), name
        assert np.array_equal(together[name], signals[1][name]), name
    assert not together.asked_apart, "both layers came with the answer"
    assert np.array_equal(apart.input_gradient(batch), here.input_gradient(batch))
    heads = [find_head(model) for model in (apart, here)]
    assert heads[0].layer == heads[1].layer
    assert np.array_equal(heads[0].weights, heads[1].weights)
    steps = [network_of(model).stepped_logits(batch, [1.0, 10.0], [0.0, 0.01]) for model in (apart, here)]  # type: ignore[attr-defined]
    assert np.array_equal(*steps)
    with pytest.warns(UserWarning, match="takes the network of model net apart"):
        assert network_here(apart).fingerprint() == here.fingerprint()


PLUGIN = """
import numpy as np
import roadworthy as rw
from roadworthy.models import MODELS

class Light(rw.Model):
    num_classes = 2
    def __init__(self, name):
        self.name = name
    def fingerprint(self):
        return "light"
    def predict(self, batch):
        light = batch.images.reshape(len(batch), -1).mean(axis=1) / 255
        batch.images[...] = 0
        return rw.Prediction(np.stack([1 - light, light], axis=1).astype(np.float32))

@MODELS.register("light")
def load_light(value, *, name="light"):
    return Light(name)
"""


def test_a_model_of_a_plugin_is_made_anew_from_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "lamp.py").write_text(PLUGIN)
    data = draw(tmp_path)
    tables = []
    for isolate in (True, False):
        entry_of = {"light": "any", **({} if isolate else {"isolate": False})}
        run = rw.run_study(
            study(data, {"lamp": entry_of}), out=tmp_path / str(isolate), trust=True, plugins=[tmp_path / "lamp.py"]
        )
        record = json.loads((run.path / "run.json").read_text())["sources"][""]["models"]["lamp"]
        assert record["isolated"] is isolate
        tables.append(run.tables["classification"].to_csv())
    assert tables[0] == tables[1]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["u1", "<f4", "<i8", "<f8", "?", "<U3"]),
            st.lists(st.integers(0, 5), min_size=1, max_size=4),
        ),
        max_size=5,
    ),
    st.integers(0, 9),
)
def test_arrays_come_out_of_shared_memory_as_they_went_in(kinds: list[tuple[str, list[int]]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {f"a{row}": rng.integers(0, 2, shape).astype(kind) for row, (kind, shape) in enumerate(kinds)}
    memory = SharedMemory.new()
    other = SharedMemory(os.dup(memory.descriptor))
    for _ in range(2):
        for name, array in other.read(memory.write(arrays)).items():
            assert array.dtype == arrays[name].dtype
            assert np.array_equal(array, arrays[name])
    memory.close()
    other.close()


def test_all_of_a_batch_reaches_a_model_that_may_read_it() -> None:
    batch = some_images(2)
    full = Batch(
        batch.ids,
        batch.images,
        batch.labels,
        boxes=np.float32([[0, 0, 1, 1]] * 2),
        conditions={"light": np.array([1.0, 2.0]), "road": np.array(["a", "b"], object)},
        group=("g", "h"),
        stimulus="fog",
    )
    back = batch_of(*all_of(full))
    assert (back.ids, back.group, back.stimulus) == (full.ids, full.group, full.stimulus)
    assert back.conditions["road"].tolist() == ["a", "b"]
    assert np.array_equal(back.boxes, full.boxes)  # type: ignore[arg-type]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there are never more processes than processors")
def test_threads_that_wait_longer_than_a_start_takes_get_another_process_and_the_same_answers(tmp_path: Path) -> None:
    write_code(tmp_path)
    model, batch = opened(tmp_path, "sleeps", seconds=20), some_images()
    expected = model.answer(batch, 4).probabilities
    answers: list[np.ndarray] = []

    until = time.monotonic() + 60

    def ask() -> None:
        while model.processes < 2 and time.monotonic() < until:
            answers.append(model.answer(batch, 4).probabilities)
        answers.append(model.answer(batch, 4).probabilities)

    ask_threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in ask_threads:
        thread.start()
    for thread in ask_threads:
        thread.join()
    assert all(np.array_equal(answer, expected) for answer in answers)
    assert model.processes == 2
    model.close()
    assert model.processes == 0
    assert np.array_equal(model.answer(batch, 4).probabilities, expected), "a closed one is started again"


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("exits_at_once", "ended its process with exit code 0 while it was asked"),
        ("crashes", "was ended by signal SIGSEGV while it was asked"),
        ("hangs_at_once", "did not answer within 1.5 s"),
    ],
)
def test_a_process_that_ends_or_hangs_is_a_model_error_with_its_cause(
    tmp_path: Path, function: str, cause: str
) -> None:
    write_code(tmp_path)
    model = opened(tmp_path, function)
    with pytest.raises(rw.ModelError, match=cause):
        model.answer(some_images(), 4)
    assert model.processes == 0


def test_a_model_bad_on_some_images_answers_the_others_however_often_it_failed(tmp_path: Path) -> None:
    write_code(tmp_path)
    model, bright = opened(tmp_path, "hangs_on_bright_corner", seconds=1), some_images()
    bright.images[:, 0, 0, 0] = 255
    for _ in range(3):
        with pytest.raises(rw.ModelError, match=r"did not answer within 1 s$"):
            model.answer(bright, 4)
    assert len(model.answer(some_images(), 4)) == 4, "which cases fail does not depend on their order"
    assert model.fingerprint()


def test_what_a_model_prints_without_end_is_read_and_dropped_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_code(tmp_path)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = opened(tmp_path, "prints", seconds=20)  # it is asked then, too, and may print enough
        for _ in range(3):
            model.answer(some_images(), 4)

        def said() -> list[str]:  # other warnings may come of what earlier tests left
            return [str(one.message) for one in warned if issubclass(one.category, UserWarning)]

        until = time.monotonic() + 20
        while not said() and time.monotonic() < until:  # a thread reads what is printed, and may be late
            time.sleep(0.05)
    texts = said()
    assert len(texts) == 1
    assert "model prints prints more than 50 lines" in texts[0]
    assert "it began: line 0 xxx" in texts[0]
    assert capsys.readouterr().err.count("\n") == 50


@pytest.mark.parametrize("first", [49, 50, 51])
def test_that_lines_are_cut_is_said_wherever_a_read_ends(first: int) -> None:
    source, target = os.pipe()
    drain = threading.Thread(target=Printed("m").drain, args=(source,))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        drain.start()
        for count in (first, 100 - first):
            os.write(target, b"line\n" * count)
            time.sleep(0.05)
        os.close(target)
        drain.join()
    assert [str(one.message).partition(",")[0] for one in warned] == ["model m prints more than 50 lines or 10"]


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    write_code(tmp_path)
    model = opened(tmp_path, "starts_another", seconds=1)
    with pytest.raises(rw.ModelError, match="did not answer"):
        model.answer(some_images(), 4)
    wait_until_gone(int((tmp_path / "other").read_text()))
    program = (
        "import os, signal; from pathlib import Path; from roadworthy.models import load_model\n"
        f"model = load_model({entry('right')!r}, name='m', trust=True, base=Path({str(tmp_path)!r}))\n"
        "print(model._pool._free[0]._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    wait_until_gone(int(done.stdout))
    ending = opened(tmp_path, "right")
    process = ending._pool._free[0]._process.pid
    assert resident(process) > 1e6
    del ending
    wait_until_gone(process)


def test_a_process_that_leaves_its_parents_ends_with_the_model(tmp_path: Path) -> None:
    write_code(tmp_path)
    other = tmp_path / "other"
    model = opened(tmp_path, "forks_twice", seconds=20)
    assert len(model.answer(some_images(), 4)) == 4
    left = int(other.read_text())
    assert Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[0] != "Z", "it lives as long as the model"
    model.close()
    wait_until_gone(left)
    other.unlink()
    model = opened(tmp_path, "forks_twice_and_exits", seconds=20)
    with pytest.raises(rw.ModelError, match="ended its process with exit code 3"):
        model.answer(some_images(), 4)
    wait_until_gone(int(other.read_text()))
    other.unlink()
    made = f"load_model({entry('forks_twice', {'seconds': 20})!r}, name='m', trust=True, base=Path({str(tmp_path)!r}))"
    program = (
        "import os, signal; from pathlib import Path; import numpy as np; from roadworthy.models import load_model\n"
        "from roadworthy.core.types import Batch\n"
        f"{made}.answer(Batch(('a',), np.zeros((1, 8, 8, 3), np.uint8), np.zeros(1, np.int64)), 1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    wait_until_gone(int(other.read_text()))


def wait_until_gone(process: int) -> None:
    for _ in range(100):
        status = Path(f"/proc/{process}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"process {process} is still there")


def test_limits_are_read_and_mistakes_in_them_are_one_sentence() -> None:
    assert parse_limits(True, by_default=False) == Limits()
    assert parse_limits(False, by_default=True) is None
    assert parse_limits({"memory": "1.5gb"}, by_default=False) == Limits(memory=1_500_000_000)
    assert parse_limits({"memory": "2gib"}, by_default=False) == Limits(memory=2 * 2**30)
    mistakes: list[tuple[Any, str]] = [
        ({"second": 1}, "did you mean 'seconds'"),
        ({"seconds": 0}, "a number of seconds above 0"),
        ({"seconds": True}, "a number of seconds above 0"),
        ({"memory": "much"}, "memory in isolate of model ours is a number of bytes such as 2GB or 512MiB"),
        ({"memory": 10}, "memory in isolate of model ours is at least 50MB"),
        ("yes", "isolate of model ours is true, false or limits"),
    ]
    for isolate, says in mistakes:
        with pytest.raises(rw.InputError, match=says):
            parse_limits(isolate, by_default=False, model="ours")


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["exits_at_once", "crashes"])
def test_a_model_that_ends_the_process_of_the_command_never_ends_it_like_a_verdict(
    tmp_path: Path, function: str
) -> None:
    write_code(tmp_path)
    data = draw(tmp_path)
    words = ("evaluate", "--model", f"m.py:{function}", "--data", data, "--trust", "--no-isolate", "--out", "run")
    said = command(tmp_path, *words, "--quiet", code=71)
    how = "with exit code 0" if function == "exits_at_once" else "by signal SIGSEGV"
    assert f"ended {how} before it had a result" in said
    assert said.count("error:") == 1
    assert "--isolate" in said


def test_a_command_whose_models_are_isolated_is_not_advised_to_isolate_them(tmp_path: Path) -> None:
    write_code(tmp_path)
    words = ("evaluate", "--model", "m.py:hangs_at_once", "--data", draw(tmp_path), "--trust", "--out", "run")
    command = [sys.executable, "-m", "roadworthy", *map(str, words)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    wait_until_asked(tmp_path)
    (child,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(child, signal.SIGKILL)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == 71
    assert "ended by signal SIGKILL before it had a result, as where memory runs out" in said
    assert "no model ran in it" in said
    assert "isolate" not in said


def wait_until_asked(folder: Path) -> None:
    until = time.monotonic() + 60
    while not (folder / "asked").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    (folder / "asked").unlink()
    time.sleep(0.2)


def test_signals_reach_a_supervised_command_and_its_end_takes_it_along(tmp_path: Path) -> None:
    """Three commands at once, since each waits some seconds for a model that hears nothing."""
    data = draw(tmp_path)
    words = ["evaluate", "--model", "m.py:hangs_at_once", "--data", str(data), "--trust", "--no-isolate"]
    ended = {signal.SIGINT: (130,), signal.SIGTERM: (143, -signal.SIGTERM), signal.SIGKILL: (-signal.SIGKILL,)}
    running, children = {}, {}
    for number in ended:
        (tmp_path / number.name).mkdir()
        write_code(tmp_path / number.name)
        running[number] = subprocess.Popen(
            [sys.executable, "-m", "roadworthy", *words],
            cwd=tmp_path / number.name,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(
                signal.signal, signal.SIGINT, signal.SIG_DFL
            ),  # ignored where tests run in the background
        )
    for number, process in running.items():
        wait_until_asked(tmp_path / number.name)
        (children[number],) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        process.send_signal(number)
    for number, process in running.items():
        process.communicate(timeout=20)
        assert process.returncode in ended[number]
        wait_until_gone(children[number])


def test_ctrl_c_at_a_terminal_ends_a_supervised_command_once(tmp_path: Path) -> None:
    write_code(tmp_path)
    data = draw(tmp_path)
    words = ["evaluate", "--model", "m.py:hangs_at_once", "--data", str(data), "--trust", "--no-isolate"]
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "roadworthy", *words])
    wait_until_asked(tmp_path)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(process, 0)
    printed = b""
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            printed += part
    assert os.waitstatus_to_exitcode(status) == 130, printed.decode()
    assert printed.count(b"stopped; ") == 1
    assert b"Traceback" not in printed


def test_a_command_ends_where_who_started_it_ignores_the_end_of_children() -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", code, "-m", "roadworthy", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
