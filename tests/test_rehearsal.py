"""Before a run: is the model better than chance, does it repeat itself, and are stored answers still its own?"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import roadworthy as rw
from commands import call
from roadworthy.core.errors import InputError, ModelError
from roadworthy.metrics import compare_with_chance
from roadworthy.models import CallableModel
from roadworthy.models.identity import identity_of
from roadworthy.models.isolation import IsolatedModel
from roadworthy.models.rehearsal import PROBED, SCREENED, better_ways, rehearse
from roadworthy.models.steadiness import Change, Steadiness, ask_again
from roadworthy.uncertainty import Temperature
from samples import CLASSES, SIDE, network, squares
from tiny import contents, save_onnx, write_npz, write_study


def write_squares(path: Path, times: int = 5) -> Path:
    """Coloured squares as an npz file, each image several times with a little noise."""
    images, labels = (np.concatenate([part] * times) for part in squares())
    noise = np.random.default_rng(1).integers(0, 20, images.shape, dtype=np.uint8)
    np.savez(path, images=images + noise, labels=labels, class_names=np.array(CLASSES))
    return path


def brightest(images: np.ndarray) -> np.ndarray:
    """One-hot of the brightest channel: right on every square."""
    return np.eye(3)[images.mean(axis=(1, 2)).argmax(axis=1)]


def options(tmp_path: Path) -> dict[str, Any]:
    return {"data": write_squares(tmp_path / "d.npz"), "suite": "quick", "out": tmp_path / "run"}


def accuracy(run: rw.Run) -> float:
    table = run.tables["classification"]
    return float(table[(table["shift"] == "none") & (table["metric"] == "accuracy")]["value"].iloc[0])


# --- chance ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("signs")
    return save_onnx(folder / "m.onnx", white=255.0), write_npz(folder / "d.npz", 280)


def test_a_wrong_range_stops_evaluate_and_says_what_would_work(signs: tuple[Path, Path], tmp_path: Path) -> None:
    words = ("evaluate", "--model", signs[0], "--data", signs[1], "--suite", "quick", "--out", tmp_path / "run")
    error = call(*words, code=2)
    assert "no better than chance" in error
    assert "with --range 0-255 accuracy is" in error
    assert not (tmp_path / "run").exists()
    assert "Verdict: none" in call(*words, "--range", "0-255")


def test_a_model_at_chance_goes_on_when_told_to_and_the_report_says_so(
    signs: tuple[Path, Path], tmp_path: Path
) -> None:
    words = ("evaluate", "--model", signs[0], "--data", signs[1], "--suite", "quick", "--out", tmp_path / "run")
    output = call(*words, "--accept-chance")
    assert "No better than chance" in output
    report = (tmp_path / "run" / "report.html").read_text()
    assert "<strong>No better than chance.</strong>" in report
    for nonsense in ("stays at 0", "Threshold: 0", "Threshold: 1&nbsp;%", "Never below 0"):
        assert nonsense not in report.replace("\xa0", " ")


def test_a_study_asks_the_same_question(tmp_path: Path) -> None:
    source = write_study(tmp_path, models={"m": {"onnx": str(save_onnx(tmp_path / "m.onnx", white=255.0))}})
    assert "with `range: 0-255` accuracy is" in call("run", source, "--out", tmp_path / "run", code=2)
    assert "no better than chance" in call("run", source, "--dry-run", code=2)
    assert not (tmp_path / "run").exists()
    assert "time" in call("run", source, "--dry-run", "--accept-chance")


def test_stored_answers_in_another_class_order_are_refused(tmp_path: Path) -> None:
    data = write_squares(tmp_path / "d.npz")
    study = {
        "data": {"test": str(data)},
        "models": {"supplier": {"predictions": str(tmp_path / "answers.csv")}},
        "protocols": {"classification": {"shifts": ["grey"], "levels": [1]}},
    }
    rw.export_study(study, tmp_path / "export")
    shown = pd.read_csv(tmp_path / "export" / "manifest.csv")
    labels = rw.open_dataset(data).labels[shown["id"]]
    wrong = pd.DataFrame(np.eye(3)[(labels + 1) % 3], columns=["p0", "p1", "p2"])
    pd.concat([shown[["stimulus", "id"]], wrong], axis=1).to_csv(tmp_path / "answers.csv", index=False)
    with pytest.raises(InputError, match="right on 0 of 60 undisturbed images"):
        rw.run_study(study, out=tmp_path / "run")


def test_always_answering_one_class_is_chance_even_where_that_class_is_common(tmp_path: Path) -> None:
    images, labels = squares()
    rows = np.repeat(np.arange(len(labels)), np.where(labels == 0, 30, 5))
    with pytest.raises(InputError, match=r"right on 120 of 160 .*chance \(75\.0%"):
        rw.evaluate(
            lambda pixels: np.tile([0.8, 0.1, 0.1], (len(pixels), 1)),
            (images[rows], labels[rows]),
            suite="quick",
            out=tmp_path / "run",
        )


def answers_by_number(tmp_path: Path, labels: np.ndarray, answers: np.ndarray) -> Path:
    """A run of a function that reads the number of the image from its first two pixels and answers by a list."""
    pixels = np.zeros((len(labels), SIDE, SIDE, 3), np.uint8)
    pixels[:, 0, :2, 0] = np.stack([np.arange(len(labels)) // 256, np.arange(len(labels)) % 256], axis=1)

    def answer(images: np.ndarray) -> np.ndarray:
        numbers = images[:, 0, 0, 0].astype(int) * 256 + images[:, 0, 1, 0]
        return np.eye(2)[answers[np.minimum(numbers, len(answers) - 1)]]

    study = {"suite": "quick", "out": tmp_path / "run", "classes": ["usual", "rare"], "version": "1"}
    return rw.evaluate(answer, (pixels, labels), **study).path


def test_a_model_that_finds_some_of_a_rare_class_is_above_chance(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], [95, 5])
    path = answers_by_number(tmp_path, labels, np.repeat([0, 1], [97, 3]))
    assert "<strong>No better than chance.</strong>" not in (path / "report.html").read_text()


def test_always_answering_a_very_common_class_is_chance(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no better than chance"):
        answers_by_number(tmp_path, np.repeat([0, 1], [788, 12]), np.zeros(800, int))


def test_too_few_images_to_tell_are_no_reason_to_stop(tmp_path: Path) -> None:
    images, labels = squares()
    run = rw.evaluate(brightest, (images[:3], labels[:3]), classes=CLASSES, suite="quick", out=tmp_path / "run")
    assert accuracy(run) == 1.0


def test_comparison_with_chance_by_closed_forms() -> None:
    labels = np.arange(20) % 2
    assert compare_with_chance(labels, labels, 2).p == pytest.approx(0.5**20)
    assert compare_with_chance(labels, 1 - labels, 2).p == 1.0
    assert compare_with_chance(labels, labels, 2, np.zeros(20, np.int64)).images == 0
    one = compare_with_chance(np.zeros(4, np.int64), np.zeros(4, np.int64), 5)
    assert (one.chance, one.p) == (0.2, pytest.approx(0.2**4))
    few = compare_with_chance(np.array([0]), np.array([0]), 5)
    assert not few.is_above
    assert not few.is_chance


# --- answers that do not repeat --------------------------------------------------------------------------------------


def test_a_model_that_answers_differently_when_asked_twice_is_named(tmp_path: Path) -> None:
    code = tmp_path / "noisy.py"
    code.write_text(
        "import numpy as np\n"
        "def answer(images):\n"
        "    right = np.eye(3)[images.mean(axis=(1, 2)).argmax(axis=1)] + np.random.random((len(images), 3)) / 9\n"
        "    return right / right.sum(axis=1, keepdims=True)\n"
    )
    data = write_squares(tmp_path / "d.npz")
    words = ("evaluate", "--model", f"{code}:answer", "--trust", "--data", data, "--suite", "quick")
    said = call(*words, "--out", tmp_path / "run", code=2)
    assert "answers the same images differently when asked twice: its probabilities change by up to 0." in said
    assert said.endswith("--accept-varying")
    assert not (tmp_path / "run").exists()
    with pytest.warns(UserWarning, match="answers the same images differently when asked again"):
        output = call(*words, "--out", tmp_path / "run", "--accept-varying")
    assert "differently when asked again" in output
    assert "Answers that do not repeat" in (tmp_path / "run" / "report.html").read_text()


# --- other ways to feed a model --------------------------------------------------------------------------------------

CONFUSED = """
import numpy as np
def answer(images):
    right = images.mean(axis=(1, 2)).argmax(axis=1)
    return np.eye(3)[right if images.max() > 2 else np.minimum(right, 1)]
"""
"""Right on every square whose pixels reach from 0 to 255; else blue is taken for green, which is above chance."""


@pytest.fixture(scope="module")
def confused(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("confused")
    (folder / "net.py").write_text(CONFUSED)
    return folder / "net.py", write_squares(folder / "d.npz", times=12)


def test_a_wrong_range_above_chance_is_said_everywhere(confused: tuple[Path, Path], tmp_path: Path) -> None:
    code, data = confused
    words = ("evaluate", "--model", f"{code}:answer", "--trust", "--data", data, "--suite", "quick")
    with pytest.warns(UserWarning, match="with `range='0-255'` accuracy is 1.000 instead of 0.") as warned:
        said = call(*words, "--range", "0-1", "--out", tmp_path / "run")
    assert len(warned) == 1
    (text,) = rw.open_run(tmp_path / "run").record.models["net"].found
    assert text in str(warned[0].message)
    assert "Warning: net: with --range 0-255 accuracy is 1.000 instead of 0." in " ".join(said.split())
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Found by the check before the run." in report
    assert "with <code>range=&#39;0-255&#39;</code> accuracy is 1.000 instead of 0." in report
    assert "Warning" not in call(*words, "--range", "0-255", "--out", tmp_path / "right")
    assert rw.open_run(tmp_path / "right").record.models["net"].found == []


@pytest.mark.parametrize("made", ["here", "isolated", "wrapped"])
def test_alternatives_are_tried_without_loading_the_model_again(
    made: str, confused: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = rw.load_model(f"{confused[0]}:answer", trust=True, range="0-1", isolate=made == "isolated")
    model = Temperature(model, 1.0) if made == "wrapped" else model
    before = model.answer(rw.open_dataset(confused[1]).batch(slice(0, 64)), 64).probabilities
    monkeypatch.setattr("roadworthy.models.load_model", None)
    data = rw.open_dataset(confused[1])
    (text,) = better_ways(model, data, rehearse(model, data))
    assert "`range='0-255'` accuracy is 1.000" in text
    assert (model.answer(rw.open_dataset(confused[1]).batch(slice(0, 64)), 64).probabilities == before).all()
    if isinstance(model, IsolatedModel):
        assert model.processes == 1
        model.close()


def test_a_probe_costs_little_and_nothing_where_nothing_could_be_found(confused: tuple[Path, Path]) -> None:
    asked: list[int] = []
    data = rw.open_dataset(confused[1])

    def model(wrong: int) -> CallableModel:
        def answer(tensor: np.ndarray) -> np.ndarray:
            asked.append(len(tensor))
            right = tensor.mean(axis=(1, 2)).argmax(axis=1)
            some = np.arange(len(right)) % 16 < wrong
            right[some] = (right[some] + 1) % 3
            return np.eye(3)[right]

        return CallableModel(answer, num_classes=3, range="0-1", version="1")

    steady, unsure = model(1), model(2)
    good, middling = rehearse(steady, data), rehearse(unsure, data)
    asked.clear()
    assert better_ways(steady, data, good) == []
    assert asked == [], "two of 64 are wrong: no alternative could be better beyond doubt"
    better_ways(unsure, data, middling)
    assert PROBED < sum(asked) <= PROBED + 19 * SCREENED, "all others end after the first images"
    asked.clear()
    unsure.images_per_second = 10.0
    (text,) = better_ways(unsure, data, middling)
    assert "were not tried" in text
    assert asked == []


@pytest.mark.slow
def test_resnet20_without_its_normalisation_is_told_before_a_run(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with np.load(shared_data / "cifar10_test.npz", allow_pickle=False) as stored:
        few = {name: stored[name][:PROBED] for name in ("images", "labels")}
        np.savez(tmp_path / "d.npz", class_names=stored["class_names"], **few)
    arch = str(Path(__file__).parent.parent / "examples" / "cifar10_resnet20.py") + ":resnet20"
    module = rw.load_model(shared_data / "cifar10_resnet20.th", arch=arch, trust=True).module
    study = {"suite": "quick", "size": 32, "progress": rw.no_progress}
    with pytest.warns(UserWarning, match="with `range='imagenet'` accuracy is 0.9"):
        run = rw.evaluate(module, tmp_path / "d.npz", out=tmp_path / "run", **study)
    assert accuracy(run) < 0.5
    assert len(run.record.first.models["ResNet20"].found) == 1
    right, data = rw.load_model(module, range="imagenet", size=32), rw.open_dataset(tmp_path / "d.npz")
    assert better_ways(right, data, rehearse(right, data)) == []


# --- answers that are not those of one image -------------------------------------------------------------------------


class Crowd:
    """Answers by the brightest channel, compared with the other images of the batch: as batch normalisation does."""

    def __call__(self, images: np.ndarray) -> np.ndarray:
        means = images.mean(axis=(1, 2))
        powers = np.exp((means - means.mean(axis=0)) / 50)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


class Late:
    """Answers the images of the call before; the first call, which has none, its own."""

    def __init__(self) -> None:
        self.last: np.ndarray | None = None

    def __call__(self, images: np.ndarray) -> np.ndarray:
        answer = brightest(images)
        late, self.last = answer if self.last is None else self.last, answer
        return np.resize(late, answer.shape)


def test_answers_that_depend_on_the_batch_are_said_and_recorded(tmp_path: Path) -> None:
    given = options(tmp_path)
    with pytest.warns(UserWarning, match="depends on the other images of its batch"):
        run = rw.evaluate(Crowd(), num_classes=3, version="1", **given)
    (text,) = run.record.first.models["Crowd"].found
    assert "batch normalisation" in text
    assert "depends on the other images of its batch" in (run.path / "report.html").read_text()


@pytest.mark.parametrize("warm", [True, False])
def test_answers_of_the_batch_before_are_refused(tmp_path: Path, warm: bool) -> None:
    model = Late()
    model.last = None if warm else np.full((1, 3), 1 / 3)
    with pytest.raises(ModelError, match="model Late answers the images of the batch before"):
        rw.evaluate(model, num_classes=3, version="1", varies=not warm, **options(tmp_path))
    assert not (tmp_path / "run").exists()
    report = rw.check(Late(), tmp_path / "d.npz", num_classes=3, version="1")
    assert any("the images of the batch before" in finding.text for finding in report.findings)


def test_one_list_says_what_is_unsteady() -> None:
    data = rw.open_dataset((np.concatenate([squares()[0]] * 5), np.concatenate([squares()[1]] * 5)), classes=CLASSES)
    batch = data.batch(slice(None))
    draws = np.random.default_rng(0)

    def of(function: Any) -> Steadiness:
        model = CallableModel(function, num_classes=3, version="1", outputs="logits")
        return ask_again(model, batch, model.answer(batch, 64), 64)

    assert of(brightest) == Steadiness()
    assert of(brightest).reason == of(brightest).note == ""
    turns = itertools.cycle([0.0, 1.0])
    for unsteady in (lambda x: brightest(x) + draws.random((len(x), 3)), lambda x: brightest(x) * next(turns)):
        assert of(unsteady).reason.startswith("answers the same images differently when asked twice")
        assert of(unsteady).note == ""
    crowd = of(Crowd())
    assert (crowd.reason, crowd.again) == ("", Change())
    assert crowd.note.startswith("an answer depends on the other images of its batch")
    assert of(Late()).is_late


# --- stored answers and the model that gave them ---------------------------------------------------------------------

CLASSIFIER: Any = None


def by_classifier(images: np.ndarray) -> np.ndarray:
    answers: np.ndarray = CLASSIFIER.predict_proba(images.mean(axis=(1, 2)))
    return answers


def fitted(turn: int) -> LogisticRegression:
    images, labels = squares()
    return LogisticRegression().fit(images.mean(axis=(1, 2)), (labels + turn) % 3)


def test_a_retrained_global_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "CLASSIFIER", fitted(0))
    given = options(tmp_path)
    first = rw.evaluate(by_classifier, **given)
    before = contents(first.path)
    assert accuracy(first) == 1.0
    assert contents(rw.evaluate(by_classifier, **given).path) == before, "the same model is resumed"
    monkeypatch.setitem(globals(), "CLASSIFIER", fitted(1))
    with pytest.raises(InputError, match="holds the run of another model"):
        rw.evaluate(by_classifier, accept_chance=True, **given)
    assert contents(first.path) == before
    assert accuracy(rw.evaluate(by_classifier, accept_chance=True, fresh=True, **given)) == 0.0


@pytest.mark.parametrize("where", ["import", "call", "constant"])
def test_a_changed_weight_file_is_noticed(where: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.npy"
    np.save(weights, np.eye(3))
    load = (
        f"np.load({str(weights)!r})" if where != "constant" else f"np.fromfile({str(weights)!r}, 'f8', 9, offset=128)"
    )
    loading = f"W = {load}.reshape(3, 3)"
    (tmp_path / "code.py").write_text(
        "import numpy as np\n"
        + (f"{loading}\n" if where == "import" else "")
        + "def answer(images):\n"
        + (f"    {loading}\n" if where != "import" else "")
        + "    return np.eye(3)[images.mean(axis=(1, 2)).argmax(axis=1)] @ W\n"
    )
    data = write_squares(tmp_path / "d.npz")
    words = ["evaluate", "--model", f"{tmp_path / 'code.py'}:answer", "--trust", "--data", data, "--suite", "quick"]
    words += ["--out", tmp_path / "run", "--accept-chance"]
    if where != "import":
        before = rw.load_model(words[2], trust=True).fingerprint()
        assert rw.load_model(words[2], trust=True).fingerprint() == before
        np.save(weights, np.roll(np.eye(3), 1, axis=1))
        assert rw.load_model(words[2], trust=True).fingerprint() != before
        return
    call(*words)
    np.save(weights, np.roll(np.eye(3), 1, axis=1))
    assert "another model" in call(*words, code=2)
    assert accuracy(rw.open_run(tmp_path / "run")) == 1.0
    call(*words, "--fresh")
    assert accuracy(rw.open_run(tmp_path / "run")) == 0.0


def test_an_unfinished_run_keeps_no_answer_of_the_earlier_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CLASSIFIER", fitted(0))
    given = options(tmp_path)
    first = rw.evaluate(by_classifier, **given)
    (first.path / "run.json").unlink()
    monkeypatch.setitem(globals(), "CLASSIFIER", fitted(1))
    assert accuracy(rw.evaluate(by_classifier, accept_chance=True, **given)) == 0.0


def test_what_cannot_be_seen_asks_for_a_version(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        "import numpy as np\n"
        "source = (row for row in np.eye(3))\n"
        "calls = []\n"
        "def answer(images):\n    source\n    return np.eye(3)[images.mean(axis=(1, 2)).argmax(axis=1)]\n"
        "def counted(images):\n    calls.append(1)\n    return np.eye(3)[images.mean(axis=(1, 2)).argmax(axis=1)]\n"
    )
    data = write_squares(tmp_path / "d.npz")
    for function, reason in {"answer": "reads source (generator)", "counted": "changes what it reads"}.items():
        words = ["evaluate", "--model", f"{tmp_path / 'code.py'}:{function}", "--trust", "--data", data]
        words += ["--suite", "quick", "--out", tmp_path / function]
        error = call(*words, code=2)
        assert reason in error
        assert "version" in error
        assert not (tmp_path / function).exists()
        call(*words, "--model-version", "1")
        assert "another model" in call(*words, "--model-version", "2", code=2)


def test_a_session_counts_by_its_file(tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "m.onnx"
    prints = []
    for bias in (0.0, 1.0, 0.0):
        path.write_bytes(network(bias=bias).SerializeToString())
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        prints.append(identity_of(lambda pixels, session=session: session.run(None, {"image": pixels})))
    assert prints[0] == prints[2] != prints[1]


def test_code_and_values_that_a_function_reaches_count() -> None:
    def variants(*values: Any) -> list[Any]:
        def made(value: Any) -> Any:
            class Net:
                scale = value

                def __call__(self, pixels: Any) -> Any:
                    return helper(pixels) * self.scale

            def helper(pixels: Any) -> Any:
                return pixels + value

            return [Net(), helper, lambda pixels: {"inner": [helper]}["inner"][0](pixels), Net().__call__]

        return [[repr(identity_of(function)) for function in made(value)] for value in values]

    one, other, again = variants(np.ones(3), np.zeros(3), np.ones(3))
    assert one == again
    assert all(a != b for a, b in itertools.zip_longest(one, other))


SCALES = {"now": 1.0}


def by_module(images: np.ndarray) -> np.ndarray:
    import scales  # type: ignore[import-not-found]

    return brightest(images) * scales.SCALE


def by_environment(images: np.ndarray) -> np.ndarray:
    return brightest(images) * float(os.environ["TEST_SCALE"])


def by_attribute(images: np.ndarray) -> np.ndarray:
    return brightest(images) * by_attribute.scale  # type: ignore[attr-defined]


def by_name(images: np.ndarray) -> np.ndarray:
    return brightest(images) * globals()["SCALES"]["now"]


@pytest.mark.parametrize("function", [by_module, by_environment, by_attribute, by_name])
def test_a_value_that_a_function_finds_when_called_is_noticed(
    function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files of one size and one second share their bytecode
    prints = []
    for scale in (1.0, 0.5, 1.0):
        (tmp_path / "scales.py").write_text(f"SCALE = {scale}\n")
        monkeypatch.delitem(sys.modules, "scales", raising=False)
        monkeypatch.setenv("TEST_SCALE", str(scale))
        monkeypatch.setattr(by_attribute, "scale", scale, raising=False)
        monkeypatch.setitem(SCALES, "now", scale)
        importlib.invalidate_caches()
        prints.append(rw.load_model(function, num_classes=3).fingerprint())
    assert prints[0] == prints[2] != prints[1]


def test_a_file_is_noticed_also_where_the_function_takes_one_size_only(tmp_path: Path) -> None:
    def answer(images: np.ndarray, folder: Path = tmp_path) -> np.ndarray:
        if images.shape[1:3] != (48, 48):
            raise Panic("48x48 only")
        return brightest(images) @ np.load(folder / "weights.npy")

    prints = []
    for turn in (0, 1, 0):
        np.save(tmp_path / "weights.npy", np.roll(np.eye(3), turn, axis=1))
        prints.append(rw.load_model(answer, num_classes=3).fingerprint())
    assert prints[0] == prints[2] != prints[1]


class Panic(BaseException):
    """What extensions in Rust raise: it is not an `Exception`."""


# --- one folder, one run ---------------------------------------------------------------------------------------------


def test_a_finished_run_is_not_replaced_by_that_of_another_model_or_other_data(tmp_path: Path) -> None:
    for name, bias in (("a", 0.0), ("b", 0.5)):
        (tmp_path / f"{name}.onnx").write_bytes(network(bias=bias).SerializeToString())
    data, other = write_squares(tmp_path / "d.npz"), write_squares(tmp_path / "e.npz", times=6)
    words = ("--suite", "quick", "--out", tmp_path / "run")
    call("evaluate", "--model", tmp_path / "a.onnx", "--data", data, *words)
    before = contents(tmp_path / "run"), (tmp_path / "run" / "run.json").read_bytes()
    for model, shown, what in (("b", data, "another model"), ("a", other, "other data")):
        error = call("evaluate", "--model", tmp_path / f"{model}.onnx", "--data", shown, *words, code=2)
        assert f"holds the run of {what}" in error
        assert "--fresh" in error
    seeded = call("evaluate", "--model", tmp_path / "a.onnx", "--data", data, *words, "--seed", "1", code=2)
    assert "holds the run of another seed, 0" in seeded
    assert before == (contents(tmp_path / "run"), (tmp_path / "run" / "run.json").read_bytes())
    call("evaluate", "--model", tmp_path / "b.onnx", "--data", data, *words, "--fresh")
    assert [*rw.open_run(tmp_path / "run").record.models] == ["b"]
    assert rw.open_run(tmp_path / "run").verify() == []


def test_functions_take_the_keywords_of_files(tmp_path: Path) -> None:
    kinds = set()

    def answer(tensor: np.ndarray) -> np.ndarray:
        kinds.add((tensor.shape[1], str(tensor.dtype), float(tensor.max()) <= 1.0))
        return np.eye(3)[tensor.mean(axis=(2, 3)).argmax(axis=1)][:, [1, 2, 0]]

    run = rw.evaluate(
        answer,
        write_squares(tmp_path / "d.npz"),
        range="0-1",
        layout="nchw",
        size=SIDE,
        classes=["green", "blue", "red"],
        version="1",
        suite="quick",
        out=tmp_path / "run",
    )
    assert kinds == {(3, "float32", True)}
    assert accuracy(run) == 1.0
    model = rw.load_model(answer, range="0-1", layout="nchw", size="9x7", classes=["green", "blue", "red"], version="1")
    assert (model.input_size, model.class_names) == ((9, 7), ("green", "blue", "red"))
