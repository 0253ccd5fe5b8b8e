"""Train the small classifier that `roadworthy demo` tests where torch is not installed, and export it to ONNX.

    python examples/train_demo_classifier.py src/roadworthy/demo_classifier.onnx

A small VGG of about 36,000 weights, on 5,600 drawn signs of 32x32. The file states its accuracy on 1,400 undisturbed
signs in its metadata; `tests/test_demo.py` asks it again. One thread and fixed seeds: the same machine type gives the
same weights. Takes about a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch

from roadworthy.data import open_dataset
from roadworthy.models import OnnxModel
from roadworthy.models.networks import export_onnx, small_vgg
from roadworthy.models.training import train_classifier

SIZE, CLASSES, SEED = 32, 14, 0
TRAIN = {"builtin": "signs", "split": "train", "n": 5600}
TEST = {"builtin": "signs", "n": 1400}


def train(folder: Path) -> torch.nn.Module:
    """The network of the best of ten epochs."""
    torch.manual_seed(SEED)
    network = small_vgg(CLASSES, SIZE, width=8, hidden=32, dropout=0.1)
    data = open_dataset(TRAIN, size=SIZE)
    competence = train_classifier(network, data, folder, epochs=10, learning_rate=3e-3, seed=SEED, threads=1)
    print(f"accuracy on a held-out fifth of the training signs: {competence['clean_accuracy']:.4f}")
    return network


def clean_accuracy(path: Path) -> float:
    """The share of right answers to the test signs as they are."""
    batch = open_dataset(TEST, size=SIZE).batch(slice(None))
    answers = OnnxModel(path).answer(batch, 64).probabilities.argmax(axis=1)
    return float((answers == batch.labels).mean())


def main() -> None:
    """Train, export, and write into the file what it can do."""
    out = Path(sys.argv[1])
    with TemporaryDirectory() as folder:
        export_onnx(train(Path(folder)), out, SIZE)
    model = onnx.load(out)
    facts = {"made_by": "examples/train_demo_classifier.py", "clean_accuracy": f"{clean_accuracy(out):.4f}"}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, out)
    print(f"{out}: {out.stat().st_size:,} bytes, accuracy {facts['clean_accuracy']} on the test signs")


if __name__ == "__main__":
    main()
