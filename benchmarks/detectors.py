"""What detectors cost on a real network: all of one forward pass together, those with passes of their own, and peers.

    python benchmarks/detectors.py [--data FOLDER] [--train 8000] [--images 256] [--out result.json]

together  every registered monitor that reads probabilities, logits and features of one pass, fitted on the training
          images and asked through the same signals in batches of 64, against the forward pass of the same batches.
          Target: at most 1.3 times the pass
own       monitors with passes of their own, in ms per image and in forward passes; no target. The network has no
          dropout: for MC-Dropout a copy gets a dropout layer in front of its last one
peers     every detector that pytorch-ood has too, against that, from images to scores, each with its own forward pass.
          Those of the peer that follow no gradient run without one. Target: a median ratio of at most 1

Processor time on one torch thread, turns interleaved, median of the ratios of neighbouring turns. The network is a
ResNet-20 for CIFAR-10; --data is the folder that holds cifar10_resnet20.th, cifar10_train.npz and cifar10_test.npz, by
default that of ROADWORTHY_TEST_DATA. Without it, or without pytorch-ood, a part is left out with the reason. Exits
with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import processor_times, stand_in_for_torchvision
from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset
from roadworthy.core.types import Batch
from roadworthy.data import Subset, open_dataset
from roadworthy.models import TorchModel, load_model
from roadworthy.models.signals import Signals
from roadworthy.monitors import (
    MONITORS,
    FittedMonitor,
    MahalanobisFull,
    Monitor,
    Odin,
    PytorchOod,
    RankFeat,
    make_monitor,
    represent_data,
)

ROOT = Path(__file__).parent.parent
SIZE, BATCH, ROUNDS, FEW_ROUNDS = 32, 64, 9, 3
MOST_TOGETHER, MOST_OF_PEER = 1.3, 1.0
OF_ONE_PASS = frozenset({"probabilities", "logits", "features"})
LEFT_OUT = {"rankfeat", "callable", "onnx_monitor", "stored", "combined", "assertion"}
"""Monitors of those signals that run passes of their own, answer from files of the user, or are made of others."""
IMAGENET_STD = [0.229, 0.224, 0.225]
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "msp": ("MaxSoftmax", {}),
    "max_logit": ("MaxLogit", {}),
    "energy": ("EnergyBased", {}),
    "entropy": ("Entropy", {}),
    "gen": ("GEN", {}),
    "temperature_msp": ("TemperatureScaling", {}),
    "kl_matching": ("KLMatching", {}),
    "openmax": ("OpenMax", {}),
    "mahalanobis": ("Mahalanobis", {}),
    "relative_mahalanobis": ("RMD", {}),
    "deep_knn": ("KNN", {}),
    "vim": ("ViM", {"d": 32}),
    "react": ("ReAct", {}),
    "dice": ("DICE", {"p": 0.7}),
    "she": ("SHE", {}),
    "fdbd": ("fDBD", {}),
    "nnguide": ("NNGuide", {}),
    "gradnorm": ("GradNorm", {}),
}
"""The detector of pytorch-ood, with what it must be told, by the name of ours."""
FOLLOW_GRADIENTS = {"GradNorm", "ODIN", "MahalanobisODIN"}


def forward(model: TorchModel, batches: list[Batch]) -> None:
    """A forward pass over every batch."""
    for batch in batches:
        model.predict(batch)


def together(fitted: list[FittedMonitor], model: TorchModel, batches: list[Batch]) -> None:
    """Every monitor's representation of every batch, from signals that all of them share."""
    for batch in batches:
        signals = Signals(model, batch, BATCH)
        for monitor in fitted:
            monitor.represent_signals(signals)


def measure_together(model: TorchModel, train: Dataset, batches: list[Batch]) -> dict[str, Any]:
    """All monitors of one pass at once, against the pass, and what each adds to it."""
    names = [name for name in MONITORS if name not in LEFT_OUT and MONITORS.get(name).needs <= OF_ONE_PASS]
    fitted = [make_monitor(name).build(model, train) for name in names]
    turns = [partial(forward, model, batches), partial(together, fitted, model, batches)]
    seconds = processor_times(turns, ROUNDS)
    known = [Signals(model, batch, BATCH) for batch in batches]
    alone = [partial(asked_again, monitor, known) for monitor in fitted]
    for turn in alone:
        turn()
    added = np.median(processor_times(alone, ROUNDS), axis=0) / np.median(seconds[:, 0])
    return {
        "monitors": len(names),
        "ms per image": 1000 * float(np.median(seconds[:, 0])) / (BATCH * len(batches)),
        "ratio": float(np.median(seconds[:, 1] / seconds[:, 0])),
        "share of a pass": dict(sorted(zip(names, added.tolist(), strict=True), key=lambda pair: -pair[1])),
    }


def asked_again(monitor: FittedMonitor, known: list[Signals]) -> None:
    """One monitor's own algebra on signals that are there."""
    for signals in known:
        monitor.represent_signals(signals)


def with_dropout(model: TorchModel) -> TorchModel:
    """The network with a dropout layer in front of its last linear one."""
    module = copy.deepcopy(model.module)
    module.linear = torch.nn.Sequential(torch.nn.Dropout(0.2), module.linear)
    return TorchModel(module.eval(), range="imagenet", size=SIZE, outputs="logits", name="with dropout")


def measure_own(model: TorchModel, train: Dataset, batch: Batch) -> dict[str, dict[str, float]]:
    """Monitors with passes of their own, each against the forward pass of the same batch."""
    dropout = with_dropout(model)
    few = Subset(train, range(min(len(train), 1000)))
    cases = {name: (model, name) for name in ("odin", "odin_id", "rankfeat", "mahalanobis_full")}
    cases["mc_dropout"] = dropout, "mc_dropout"
    result = {}
    for name, (network, kind) in cases.items():
        fitted = make_monitor(kind).build(network, few)
        turns = [partial(network.predict, batch), partial(fitted.represent, network, batch)]
        turns[1]()
        seconds = processor_times(turns, 1 if name == "odin" else FEW_ROUNDS)
        result[name] = {
            "ms per image": 1000 * float(np.median(seconds[:, 1])) / len(batch),
            "passes": float(np.median(seconds[:, 1] / seconds[:, 0])),
        }
    return result


def peer_pairs(model: TorchModel) -> dict[str, tuple[TorchModel, Monitor, PytorchOod]]:
    """Our monitor and the peer's detector with the same work to do, by name, and the network that they run on."""
    pairs = {name: (model, make_monitor(name), peer(*PEERS[name])) for name in PEERS if name in MONITORS}
    network, dropout = model.module, with_dropout(model)

    def last_map(images: Any) -> Any:
        hidden = torch.relu(network.bn1(network.conv1(images)))
        return network.layer3(network.layer2(network.layer1(hidden)))

    def classes(maps: Any) -> Any:
        return network.linear(maps.mean((2, 3)))

    def pooled(images: Any) -> Any:
        return last_map(images).mean((2, 3), keepdim=True)

    of_pooled = {"backbone": pooled, "head": classes}
    step: dict[str, Any] = {"eps": 0.0014, "norm_std": IMAGENET_STD}
    split = {"backbone": last_map, "head": classes}
    return pairs | {
        "ash": (model, make_monitor("ash"), peer("ASH", of_pooled)),
        "scale": (model, make_monitor("scale"), peer("SCALE", of_pooled)),
        "odin, one step": (model, Odin(temperatures=(1000.0,), epsilons=(0.0014,)), peer("ODIN", step)),
        "rankfeat, one layer": (model, RankFeat(layers=("layer3",)), peer("RankFeat", split)),
        "mahalanobis_full, one layer and step": (
            model,
            MahalanobisFull(layers=("linear:input",), epsilons=(0.0014,), most=1),
            peer("MahalanobisODIN", step),
        ),
        "mc_dropout": (dropout, make_monitor("mc_dropout"), peer("MCD", {"samples": 7})),
    }


def peer(detector: str, options: dict[str, Any]) -> PytorchOod:
    """A detector of pytorch-ood as a monitor."""
    return PytorchOod(detector=detector, options=options)


def without_gradient(work: Callable[[], Any], detector: str) -> Callable[[], Any]:
    """The work as it is for detectors that follow a gradient, and without one for others."""

    def run() -> Any:
        with torch.set_grad_enabled(detector in FOLLOW_GRADIENTS):
            return work()

    return run


def race_peer(model: TorchModel, own: Monitor, other: PytorchOod, train: Dataset, asked: Dataset) -> dict[str, float]:
    """Seconds of ours and of the peer's, from images to scores."""
    fitted = [monitor.build(model, train) for monitor in (own, other)]
    ours, theirs = (partial(represent_data, monitor, model, asked) for monitor in fitted)
    turns = [ours, without_gradient(theirs, other.detector)]
    for turn in turns:
        turn()
    seconds = processor_times(turns, ROUNDS)
    medians = np.median(seconds, axis=0)
    ratio = float(np.median(seconds[:, 0] / seconds[:, 1]))
    return {"ours": float(medians[0]), "pytorch-ood": float(medians[1]), "ratio": ratio}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=folder)
    parser.add_argument("--train", type=int, default=8000)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {}
    misses: list[str] = []
    missing = [
        name
        for name in ("cifar10_resnet20.th", "cifar10_train.npz", "cifar10_test.npz")
        if not (options.data / name).exists()
    ]
    if missing:
        result["left out"] = f"no {', '.join(missing)} in {options.data}: give the folder as --data"
        print(f"left out: {result['left out']}")
    else:
        stand_in_for_torchvision()
        result, misses = measure(options.data, options.train, options.images)
    for miss in misses:
        print(f"MISSED: {miss}")
    if options.out:
        options.out.write_text(json.dumps(result | {"misses": misses}, indent=1) + "\n", encoding="utf-8")
    return 1 if misses else 0


def measure(folder: Path, train_images: int, test_images: int) -> tuple[dict[str, Any], list[str]]:
    """All parts, printed as they are done, and the targets that were missed."""
    entry = {"torch": folder / "cifar10_resnet20.th", "arch": ROOT / "examples" / "cifar10_resnet20.py:resnet20"}
    model = load_model({key: str(value) for key, value in entry.items()} | {"range": "imagenet"}, trust=True)
    assert isinstance(model, TorchModel)
    model.module.eval()  # peers call its parts as they are
    train = open_dataset(folder / "cifar10_train.npz", limit=train_images)
    asked = open_dataset(folder / "cifar10_test.npz", limit=max(BATCH, test_images // BATCH * BATCH))
    batches = [asked.batch(slice(start, start + BATCH)) for start in range(0, len(asked), BATCH)]
    misses = []

    shared = measure_together(model, train, batches)
    dearest = ", ".join(f"{name} {share:.3f}" for name, share in [*shared["share of a pass"].items()][:5])
    print(f"together: {shared['monitors']} monitors take {shared['ratio']:.3f} forward passes of", end=" ")
    print(f"{shared['ms per image']:.2f} ms; the most is added by {dearest}", flush=True)
    if shared["ratio"] > MOST_TOGETHER:
        misses.append(f"together: {shared['ratio']:.3f} forward passes, not {MOST_TOGETHER}")

    own = measure_own(model, train, batches[0])
    for name, row in own.items():
        print(
            f"own passes of {name}: {row['ms per image']:.2f} ms per image, {row['passes']:.1f} forward passes",
            flush=True,
        )

    peers: dict[str, Any] = {}
    for name, (network, monitor, other) in peer_pairs(model).items():
        try:
            row = peers[name] = race_peer(network, monitor, other, train, asked)
        except InputError as error:
            peers[name] = str(error)
            print(f"peer of {name} left out: {error}", flush=True)
            continue
        print(f"peer of {name}: {', '.join(f'{who} {value:.3f}' for who, value in row.items())}", flush=True)
        if row["ratio"] > MOST_OF_PEER:
            misses.append(f"peer of {name}: {row['ratio']:.3f} times pytorch-ood, not {MOST_OF_PEER:g}")
    return {"together": shared, "own": own, "peers": peers}, misses


if __name__ == "__main__":
    sys.exit(main())
