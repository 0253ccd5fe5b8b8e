"""What a monitor inside the ONNX file of its model costs: seconds per call beside the bare model, as ratios.

Two networks: the classifier that is shipped with the package (32x32, under 0.1 ms an image) and the small convolutional
network of the reference study (64x64). One image at a time, and batches of 16. Everything runs on one thread, so the
seconds are those of the processor, which other work on the machine does not change. Calls of the bare model and of the
exported file take turns; the ratio is the median over pairs of calls.

Exit code 1 where msp or energy costs more than 1.1 times the bare model.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from roadworthy.core.roles import Dataset
from roadworthy.data import BuiltinDataset, Opening
from roadworthy.models import OnnxModel
from roadworthy.models.networks import export_onnx, thesis_cnn
from roadworthy.models.onnx import session_options
from roadworthy.monitors import Learned, make_monitor, represent_data
from roadworthy.monitors.id_threshold import IdRule, id_threshold
from roadworthy.monitors.onnx_export import export_onnx_monitor

MONITORS: dict[str, tuple[str, dict[str, Any]]] = {
    "msp": ("msp", {}),
    "max_logit": ("max_logit", {}),
    "energy": ("energy", {}),
    "kl_matching": ("kl_matching", {}),
    "doctor": ("doctor", {}),
    "mahalanobis": ("mahalanobis", {}),
    "vim": ("vim", {}),
    "react": ("react", {}),
    "deep_knn": ("deep_knn", {"k": 10}),
    "boxes": ("boxes", {"clusters": 3}),
    "boxes pca": ("boxes", {"reduction": "pca"}),
    "activation_patterns": ("activation_patterns", {}),
}
LIMIT = 1.1
LIMITED = ("msp", "energy")
BATCHES = {"one image": (1, 400), "batch of 16": (16, 30)}
"""How many images a call gets, and how many calls are timed."""


def race(bare: Any, guarded: Any, tensor: np.ndarray, rounds: int) -> dict[str, float]:
    """The median seconds of a call of each session, the calls in turns, and the median of their ratios."""
    seconds = np.empty((rounds, 2))
    feeds = [{session.get_inputs()[0].name: tensor} for session in (bare, guarded)]
    for row in seconds:
        for place, (session, feed) in enumerate(zip((bare, guarded), feeds, strict=True)):
            started = time.process_time()
            session.run(None, feed)
            row[place] = time.process_time() - started
    seconds = seconds[rounds // 10 :]
    alone, together = np.median(seconds, axis=0)
    ratio = float(np.median(seconds[:, 1] / seconds[:, 0]))
    return {"model": float(alone), "with monitor": float(together), "ratio": ratio}


def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), session_options(), ["CPUExecutionProvider"])


def measure(model: OnnxModel, train: Dataset, valid: Dataset, home: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Seconds and ratios by monitor and batch."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    tensor, bare = model.preprocess(valid.batch(slice(0, 64)).images), session_of(model.path)
    for label, (name, parameters) in MONITORS.items():
        fitted = make_monitor(name, **parameters).build(model, train)
        scores = fitted.scores(represent_data(fitted, model, valid), Learned())
        threshold = id_threshold(scores, valid.groups, IdRule())
        written = export_onnx_monitor(model, fitted, Learned(), threshold, home / name)
        guarded, results[label] = session_of(written.path), {}
        for batch, (count, rounds) in BATCHES.items():
            results[label][batch] = race(bare, guarded, tensor[:count], rounds)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=280, help="training images of the monitors")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    misses, results = [], {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        torch.manual_seed(0)
        export_onnx(thesis_cnn(14, 64), home / "thesis_cnn.onnx", 64)
        networks = {
            "demo_classifier": files("roadworthy") / "demo_classifier.onnx",
            "thesis_cnn": home / "thesis_cnn.onnx",
        }
        for network, path in networks.items():
            model = OnnxModel(str(path))
            train, valid = (
                BuiltinDataset("signs", Opening(size=model.input_size), n=options.images, split=split)
                for split in ("train", "test")
            )
            results[network] = measure(model, train, valid, home / network)
            for label, by_batch in results[network].items():
                shown = ", ".join(
                    f"{batch} {row['ratio']:.3f} of {1e6 * row['model']:.0f} us" for batch, row in by_batch.items()
                )
                print(f"{network} with {label}: {shown}")
                worst = max(row["ratio"] for row in by_batch.values())
                if label in LIMITED and worst > LIMIT:
                    misses.append(f"{network} with {label}: {worst:.2f} times the model alone, not {LIMIT}")
    for miss in misses:
        print(f"MISSED: {miss}")
    if options.out:
        options.out.write_text(json.dumps({"ratios": results, "misses": misses}, indent=1) + "\n", encoding="utf-8")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
