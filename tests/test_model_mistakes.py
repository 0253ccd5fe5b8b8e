"""Mistakes that are easily made with a model's input and classes: they are seen, or what is assumed is said."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import roadworthy as rw
from roadworthy.core.errors import InputError
from roadworthy.core.types import Batch
from roadworthy.models import align
from roadworthy.models.image_processor import AppliedProcessor, preprocess_of_processor
from roadworthy.models.keras import BACKENDS, import_keras
from roadworthy.models.preprocess import preprocess_of
from roadworthy.uncertainty.ensemble import Ensemble
from roadworthy.uncertainty.temperature import Temperature

COUNT = 90


def pixels() -> tuple[np.ndarray, np.ndarray]:
    """Rows (N, 48) of images of 4x4 pixels, 0 to 255, and labels of three classes that their brightness tells."""
    labels = np.arange(COUNT) % 3
    rows = np.random.default_rng(0).normal(60 + 60 * labels[:, None], 30, (COUNT, 48))
    return np.clip(rows, 0, 255).round(), labels


def batch(count: int = COUNT) -> Batch:
    rows, labels = pixels()
    images = rows.astype(np.uint8).reshape(-1, 4, 4, 3)[:count]
    return Batch(tuple(map(str, range(count))), images, labels[:count])


class TestRangeOfEstimators:
    @pytest.mark.parametrize("estimator", [DecisionTreeClassifier(), KNeighborsClassifier(), GaussianNB()])
    @pytest.mark.parametrize(
        "change",
        [lambda rows: rows / 127.5 - 1, lambda rows: rows / 16, lambda rows: rows * 16],
        ids=["from -1 to 1", "from 0 to 16", "above 255"],
    )
    def test_other_numbers_than_pixels_are_asked_about(self, estimator: Any, change: Callable[[Any], Any]) -> None:
        rows, labels = pixels()
        with pytest.raises(InputError, match="say `range='0-255'`"):
            rw.load_model(estimator.fit(change(rows), labels))

    @pytest.mark.parametrize("scale", [1, 255])
    def test_pixels_are_seen(self, scale: int) -> None:
        rows, labels = pixels()
        for estimator in (KNeighborsClassifier(), SVC(), make_pipeline(MinMaxScaler(), LinearSVC(dual=False))):
            model = rw.load_model(estimator.fit(rows / scale, labels))
            assert model.preprocess.range == {1: "0-255", 255: "0-1"}[scale]


class TestScoresOfEstimators:
    def test_scores_of_pairs_of_classes_are_refused(self) -> None:
        rows, labels = pixels()
        pairs = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")).fit(rows, labels)
        with pytest.raises(InputError, match="not one score per class"):
            rw.load_model(pairs)
        rw.load_model(make_pipeline(StandardScaler(), SVC()).fit(rows, labels))

    def test_scores_in_another_order_are_refused(self) -> None:
        class Reversed(LinearSVC):  # type: ignore[misc]
            def decision_function(self, values: Any) -> Any:
                return super().decision_function(values)[:, ::-1]

            def predict(self, values: Any) -> Any:
                return self.classes_[super().decision_function(values).argmax(1)]

        rows, labels = pixels()
        with pytest.raises(InputError, match="not one score per class"):
            rw.load_model(Reversed(dual=False).fit(rows / 255, labels), range="0-1", version="1")


class TestClassesOfEnsembles:
    def member(self, names: list[Any], neighbours: int = 1) -> Any:
        """A classifier that calls the first so many classes by these names, by their brightness."""
        rows, labels = pixels()
        known = labels < len(names)
        return rw.load_model(KNeighborsClassifier(neighbours).fit(rows[known], np.array(names)[labels[known]]))

    def test_numbers_that_mean_two_things_are_refused_in_an_ensemble_too(self) -> None:
        members = [self.member([0, 1, 2], k) for k in (1, 3)]
        for model in (members[0], Ensemble(members), Temperature(members[0], 2.0)):
            with pytest.raises(InputError, match="numbers of classes or their names"):
                align(model, ["0", "2", "1"])  # as folders are sorted: 0, 1, 10, 2

    def test_members_may_know_different_classes(self) -> None:
        members = [self.member(["dark", "grey"]), self.member(["grey", "light"])]
        model = align(Ensemble(members), ["light", "grey", "dark"])
        answers = model.answer(batch(), 64).probabilities
        assert answers[0].tolist() == [0.0, 0.5, 0.5]
        assert model.fingerprint() != align(Ensemble(members), ["dark", "grey", "light"]).fingerprint()

    def test_members_that_know_fewer_classes_than_the_data(self) -> None:
        model = align(Ensemble([self.member(["dark", "grey"], k) for k in (1, 3)]), ["light", "grey", "dark"])
        assert model.answer(batch(2), 64).probabilities.tolist() == [[0, 0, 1], [0, 1, 0]]

    def test_columns_that_have_nothing_in_common_are_not_averaged(self) -> None:
        model = Ensemble([self.member(["dark", "grey"]), self.member(["grey", "light"])])
        with pytest.raises(InputError, match="know different classes"):
            model.predict(batch(2))


class TestKeras:
    def network(self, *first: Any, outputs: int = 3) -> Any:
        keras = import_keras()
        last = keras.layers.Dense(outputs, activation="softmax" if outputs > 1 else "sigmoid")
        return keras.Sequential([keras.Input((8, 8, 3)), *first, keras.layers.Flatten(), last])

    def test_what_keras_wrote_at_its_first_import_does_not_decide_its_backend(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import_keras()  # so that nothing below imports it anew
        monkeypatch.setenv("KERAS_HOME", str(tmp_path))
        monkeypatch.setattr("importlib.import_module", lambda name: SimpleNamespace(__version__="3.15"))
        monkeypatch.delitem(sys.modules, "keras")
        seen = []
        for content in ('{"backend": "not_installed"}', "{", '["torch"]', '{"backend": "torch"}'):
            (tmp_path / "keras.json").write_text(content)
            monkeypatch.setenv("KERAS_BACKEND", "")
            monkeypatch.delenv("KERAS_BACKEND")
            import_keras()
            seen.append(os.environ.get("KERAS_BACKEND"))
        installed = next(name for name in BACKENDS if importlib.util.find_spec(name))
        assert seen == [installed, installed, installed, None]

    def test_a_network_without_weights_is_refused(self) -> None:
        keras = import_keras()
        with pytest.raises(InputError, match="has no weights yet: train it"):
            rw.load_model(keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)]))

    def test_arithmetic_before_the_first_weights_asks_for_the_range(self) -> None:
        keras = import_keras()
        images = keras.Input((8, 8, 3))
        answers = keras.layers.Dense(3, activation="softmax")(keras.layers.Flatten()(images / 127.5 - 1.0))
        graph = keras.Model(images, answers)
        for network in (graph, self.network(keras.layers.Lambda(lambda values: values / 255))):
            with pytest.raises(InputError, match=r"any range of pixels: say `range='0-255'`"):
                rw.load_model(network)
            assert rw.load_model(network, range="0-255", version="1").preprocess.range == "0-255"
        with pytest.raises(InputError, match="any range"):
            rw.load_model(self.network(keras.layers.Rescaling(2.0, offset=-1.0)))  # made for 0-1

    def test_what_is_assumed_is_said(self) -> None:
        layers = import_keras().layers
        for network in (self.network(), self.network(layers.BatchNormalization())):
            assert rw.load_model(network).describe()["notes"] == (
                "range 0-1 is assumed: nothing in the network says so",
            )
        augmented = self.network(layers.RandomFlip(), layers.Rescaling(1 / 255))
        assert rw.load_model(augmented).preprocess.range == "0-255"

    def test_outputs_of_other_forms(self) -> None:
        keras = import_keras()
        images = keras.Input((8, 8, 3))
        answers = keras.layers.Dense(3, activation="softmax")(keras.layers.Flatten()(images))
        assert rw.load_model(keras.Model(images, {"scores": answers})).num_classes == 3
        with pytest.raises(InputError, match=r"answer two columns \[1-p, p\]"):
            rw.load_model(self.network(outputs=1))

    def test_files_that_cannot_be_read_here(self, tmp_path: Path) -> None:
        keras = import_keras()

        class Doubled(keras.layers.Layer):  # type: ignore[misc, name-defined]
            def call(self, values: Any) -> Any:
                return values * 2

        self.network(Doubled()).save(tmp_path / "own.keras")
        with pytest.raises(InputError, match=r"uses Doubled, .* give the live model"):
            rw.load_model(tmp_path / "own.keras")
        with pytest.raises(InputError, match=r"load_model\('old.h5'\)\.save\('old\.keras'\)"):
            rw.load_model(tmp_path / "old.h5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face model of three classes, whose processor cuts out the middle."""
    import transformers

    names = {0: "stop", 1: "yield", 2: "go"}
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], id2label=names)
    home = tmp_path_factory.mktemp("huggingface") / "signs"
    transformers.ResNetForImageClassification(config).save_pretrained(home)
    processor(size=40, crop=32).save_pretrained(home)
    return home


def processor(size: int, crop: int, **settings: Any) -> Any:
    import transformers

    sides = {"size": {"shortest_edge": size}, "crop_size": {"height": crop, "width": crop}}
    return transformers.BitImageProcessorPil(**sides, **settings)


class TestHuggingFace:
    def test_a_range_replaces_the_normalisation_alone(self, folder: Path) -> None:
        own, given = rw.load_model(folder), rw.load_model(folder, range="-1-1")
        assert (given.preprocess.range, given.preprocess.frame) == ("-1-1", own.preprocess.frame)
        live = rw.load_model(own.module, range="-1-1", processor=folder)
        assert live.preprocess == given.preprocess

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"config.json in .* cannot be read: save the model again with save_pretrained"),
            ("{ not json", r"config.json in .* cannot be read"),
            ('{"hidden": 3}', r"config.json in .* names no model_type: save the model again"),
            ('{"id2label": {"stop": "0"}}', r'id2label in .*config.json .* write it as \{"0": "stop"'),
            ('{"id2label": ["stop", "yield", "go"]}', r"id2label in .*config.json .* write it as"),
            (
                '{"id2label": {"0": "stop", "1": "yield"}}',
                r"id2label in .* names 2 classes, and the weights",
            ),
            ('{"id2label": {"0": "stop", "1": "stop", "2": "go"}}', r"has the name 'stop' twice: give `classes=`"),
        ],
    )
    def test_what_is_wrong_with_a_configuration(self, folder: Path, tmp_path: Path, text: str, message: str) -> None:
        spoiled = shutil.copytree(folder, tmp_path / "signs")
        config = json.loads((folder / "config.json").read_text())
        changed = {**config, **json.loads(text)} if "id2label" in text else None
        (spoiled / "config.json").write_text(text if changed is None else json.dumps(changed))
        with pytest.raises(InputError, match=message):
            rw.load_model(spoiled)

    def test_a_processor_is_known_by_its_settings_in_another_process_too(self) -> None:
        steps, other = (AppliedProcessor.of(processor(30, 40, image_mean=[mean] * 3)) for mean in (0.0, 0.5))
        assert steps != other
        assert steps == AppliedProcessor.of(processor(30, 40, image_mean=[0.0] * 3))
        sent = preprocess_of(json.loads(json.dumps(steps.as_plain())))
        assert (str(sent), sent.settings(), sent.size) == (str(steps), steps.settings(), steps.size)
        assert not sent.has_adjoint
        with pytest.raises(InputError, match="in the process of the model alone"):
            sent(batch(1).images)


class TestWhatIsNoModel:
    @pytest.mark.parametrize("given", [KNeighborsClassifier, SimpleNamespace])
    def test_a_class_is_not_an_object_of_it(self, given: Any) -> None:
        with pytest.raises(InputError, match=f"{given.__name__} is a class, not a model: give an object of it"):
            rw.load_model(given)

    def test_a_class_of_image_processors_is_no_processor(self) -> None:
        from transformers import ViTImageProcessorPil

        with pytest.raises(InputError, match="ViTImageProcessorPil is a class, not an image processor"):
            preprocess_of_processor(ViTImageProcessorPil)

    def test_pickles_and_names_of_a_hub_are_told_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("forest.joblib").write_bytes(b"")
        with pytest.raises(InputError, match=r"is a pickle, .* load it yourself and give the live model"):
            rw.load_model("forest.joblib")
        with pytest.raises(InputError, match=r"there is no model google/vit-base; nothing is downloaded"):
            rw.load_model("google/vit-base")
        with pytest.raises(InputError, match=r"there is no model nets$"):
            rw.load_model("nets")


def test_true_and_false_are_no_numbers_of_classes() -> None:
    rows, labels = pixels()
    estimator = KNeighborsClassifier().fit(rows, labels > 0)
    for names in (["stop", "yield"], ["stop", "yield", "priority"]):
        with pytest.raises(InputError, match=r"knows the classes 'False', 'True', which the data has not.*`classes=`"):
            align(rw.load_model(estimator), names)
    named = align(rw.load_model(estimator, classes=["yield", "stop"]), ["stop", "yield"])
    own = estimator.predict_proba(rows[:9])
    assert named.answer(batch(9), 9).probabilities == pytest.approx(own[:, ::-1], abs=1e-6)


class TestOnnx:
    WEIGHTS = np.random.default_rng(0).normal(0, 0.3, (192, 4)).astype(np.float32)
    ROUND = (("Softmax", ["z"], ["p"]), ("QuantizeLinear", ["p", "s", "zero"], ["q"]))

    def saved(self, path: Path, *nodes: Any, output: str, kind: int = TensorProto.FLOAT, size: Any = "n") -> Path:
        """A linear network of images of 8x8 pixels, then these nodes."""
        steps = [("Flatten", ["x"], ["f"]), ("MatMul", ["f", "w"], ["z"]), *nodes]
        constants = {"w": self.WEIGHTS, "s": np.float32(1 / 255), "zero": np.uint8(0)}
        graph = helper.make_graph(
            [helper.make_node(*step) for step in steps],
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (size, 3, 8, 8))],
            [helper.make_tensor_value_info(output, kind, (size, 4))],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
        return path

    def test_rounded_probabilities_are_seen_through_what_passes_them_on(self, tmp_path: Path) -> None:
        tail = (("DequantizeLinear", ["q", "s", "zero"], ["r"]), ("Identity", ["r"], ["o"]))
        model = rw.load_model(self.saved(tmp_path / "m.onnx", *self.ROUND, *tail, output="o"))
        assert model.outputs == "probabilities"
        assert "divided by their sum" in model.describe()["notes"][0]

    def test_whole_numbers_are_not_scores(self, tmp_path: Path) -> None:
        path = self.saved(tmp_path / "m.onnx", *self.ROUND, output="q", kind=TensorProto.UINT8)
        with pytest.raises(InputError, match="answers uint8: export it with float outputs"):
            rw.load_model(path)

    def test_a_fixed_batch_that_is_quantised_together_is_said(self, tmp_path: Path) -> None:
        scaled = [("DynamicQuantizeLinear", ["z"], ["q", "t", "zq"]), ("DequantizeLinear", ["q", "t", "zq"], ["o"])]
        model = rw.load_model(self.saved(tmp_path / "m.onnx", *scaled, output="o", size=4))
        assert "depends on the other images" in model.describe()["notes"][0]
