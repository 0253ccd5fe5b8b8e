"""The demo: drawn signs, a small classifier trained on the spot, a report. Needs nothing from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roadworthy.api import ProgressBar, Run, execute, prepare, terminal_progress
from roadworthy.core.protocols import Dataset
from roadworthy.core.types import Artifact
from roadworthy.data import open_dataset
from roadworthy.engine.artifacts import ensure_artifact
from roadworthy.engine.folder import RunFolder, write_bytes
from roadworthy.study import parse_study

IMAGES, SIZE, SEED = 600, 32, 0
CRITERIA = [
    {
        "id": "DEMO-1",
        "hazard": "a sign is misread in plain sight",
        "metric": "accuracy",
        "where": {"shift": "none"},
        "at_least": 0.9,
    },
    {
        "id": "DEMO-2",
        "hazard": "a sign is misread in fog",
        "metric": "accuracy",
        "where": {"shift": "fog", "level": [1, 3]},
        "at_least": 0.9,
    },
]


def run_demo(out: str | Path = "runs/demo", *, progress: ProgressBar = terminal_progress) -> Run:
    """Draw signs, train a linear classifier on some, test it on others under the shifts of the quick suite."""
    train, test = (open_dataset({"builtin": "drawn", "n": IMAGES, "seed": seed, "size": SIZE}) for seed in (1, SEED))
    folder = RunFolder(out)
    folder.check_usable()
    recipe = Artifact("softmax_regression", {"size": SIZE}, inputs=(train.fingerprint(),), seed=SEED)
    with folder.locked():
        home = ensure_artifact(folder, recipe, lambda workshop: _train(train, test, workshop / "model.onnx"))
    study = parse_study(
        {
            "name": "demo",
            "size": SIZE,
            "data": {"test": {"builtin": "drawn", "n": IMAGES, "seed": SEED}},
            "models": {"linear": {"onnx": str(home / "model.onnx")}},
            "protocols": {"classification": {"levels": [1, 3, 5]}},
            "criteria": CRITERIA,
        },
        "demo",
    )
    return execute(prepare(study, progress=progress), out, progress=progress)


def _train(train: Dataset, test: Dataset, path: Path) -> dict[str, Any]:
    """Softmax regression on the pixels, written as an ONNX graph; returns its competence."""
    from sklearn.linear_model import LogisticRegression

    def pixels(data: Dataset) -> np.ndarray[Any, np.dtype[np.float32]]:
        images = data.batch(slice(None)).images.transpose(0, 3, 1, 2)
        return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)

    fitted = LogisticRegression(C=0.01, max_iter=300).fit(pixels(train), train.labels)
    height, width = train.size
    weights, bias = fitted.coef_.T.astype(np.float32), fitted.intercept_.astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["pixels"]),
            helper.make_node("Gemm", ["pixels", "weights", "bias"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"]),
        ],
        "softmax_regression",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, height, width])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", len(train.class_names)])],
        [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    write_bytes(path, model.SerializeToString())
    return {"clean_accuracy": float(fitted.score(pixels(test), test.labels)), "floor": 0.5}
