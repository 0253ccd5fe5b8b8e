"""How well every detector tells CIFAR-10 from Tiny ImageNet and from traffic signs, beside OpenOOD's published order.

python examples/detector_table.py DATA [--images 2000] [--train 8000] [--only msp,energy]

DATA is a folder with cifar10_resnet20.th, cifar10_train.npz, cifar10_test.npz, tinyimagenet_val.npz and gtsrb_test.npz.
Detectors learn from training images; what else they choose, they choose on held-out images of CIFAR-10. No outlier is
looked at before it is scored. In-distribution is the positive class. Prints two tables in markdown; about 5 minutes.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.stats import spearmanr

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Dataset, Model
from roadworthy.data import Subset, open_dataset
from roadworthy.metrics.ranking import Separation, separation
from roadworthy.models import load_model
from roadworthy.models.signals import LiveTraining, Signals, Training
from roadworthy.monitors import MONITORS, FittedMonitor, make_monitor
from roadworthy.statistics import GroupBootstrap

HERE = Path(__file__).parent
BATCH, RESAMPLES = 64, 1000
HELD_OUT = 1000
SIGNALS = ("images", "logits", "probabilities", "features:penultimate")
LEFT_OUT = {
    "assertion": "decides by the images before",
    "callable": "is a function of the user's",
    "combined": "is made of others",
    "odin": "is `odin_id` with other steps where there are no outliers, and costs 160 passes",
    "onnx_monitor": "is a file of the user's",
    "pytorch_ood": "is another library",
    "stored": "is a file of the user's",
}
"""Registered monitors that are not in the table, and why."""
OPENOOD = {
    "deep_knn": (90.64, 92.96),
    "fdbd": (90.42, 93.16),
    "relative_mahalanobis": (89.80, 92.20),
    "vim": (88.68, 93.48),
    "gen": (88.20, 91.35),
    "msp": (88.03, 90.73),
    "energy": (87.58, 91.21),
    "odin_id": (82.87, 87.96),
    "scale": (82.55, 86.39),
    "she": (81.54, 85.32),
    "ash": (75.27, 78.49),
    "gradnorm": (54.90, 57.55),
}
"""AUROC in percent on near and far outliers of CIFAR-10: OpenOOD's leaderboard of August 2025, ResNet-18."""


class StoredTraining(Training):
    """Signals of training images that were asked for once, for all detectors."""

    def __init__(self, model: Model, data: Dataset) -> None:
        super().__init__(model, data, SIGNALS)
        columns = zip(*LiveTraining(model, data, SIGNALS).parts(*SIGNALS), strict=True)
        self.arrays = {name: np.concatenate(column) for name, column in zip(SIGNALS, columns, strict=True)}
        self.arrays["labels"] = data.labels

    def read(self, rows: slice, names: Sequence[str]) -> tuple[NDArray[Any], ...]:
        """These signals of some rows."""
        return tuple(self.arrays[name][rows] for name in names)


@dataclass(frozen=True)
class Sets:
    """The images: what detectors learn from, what they are calibrated on, the test images and the outliers by name."""

    train: Dataset
    held_out: Dataset
    test: Dataset
    outliers: Mapping[str, Dataset]

    @classmethod
    def of(cls, folder: Path, train: int, images: int) -> Sets:
        """The sets of the supplied data; Tiny ImageNet without the classes that CIFAR-10 has too."""
        study = yaml.safe_load((HERE.parent / "studies" / "od-test-small.yaml").read_text(encoding="utf-8"))
        shared = study["sources"]["cifar10"]["overlap"]["tinyimagenet"]["outliers"]
        cifar = open_dataset(folder / "cifar10_test.npz")
        return cls(
            open_dataset(folder / "cifar10_train.npz", limit=train),
            Subset(cifar, range(len(cifar) - HELD_OUT, len(cifar))),
            Subset(cifar, range(min(images, len(cifar) - HELD_OUT))),
            {
                "Tiny ImageNet": open_dataset(folder / "tinyimagenet_val.npz", without=shared, size=32, limit=images),
                "GTSRB": open_dataset(folder / "gtsrb_test.npz", limit=images),
            },
        )


def open_network(folder: Path) -> Model:
    """The ResNet-20, with the architecture that lies beside this file."""
    arch = f"{HERE / 'cifar10_resnet20.py'}:resnet20"
    return load_model({"torch": str(folder / "cifar10_resnet20.th"), "arch": arch, "range": "imagenet"}, trust=True)


def fit_all(model: Model, train: Dataset, names: Sequence[str]) -> tuple[dict[str, FittedMonitor], dict[str, str]]:
    """The fitted detectors by name, and the reasons of those that this network cannot serve."""
    training, fitted, refused = StoredTraining(model, train), dict[str, FittedMonitor](), dict[str, str]()
    for name in names:
        try:
            fitted[name] = make_monitor(name).build(model, training)
        except InputError as error:
            refused[name] = str(error)
        say(f"fitted {name}" if name in fitted else f"left out {name}: {refused[name]}")
    return fitted, refused


def represent_all(fitted: Mapping[str, FittedMonitor], model: Model, data: Dataset) -> dict[str, NDArray[np.float32]]:
    """What every detector keeps of each image, (N, D), from signals that all of them share."""
    rows: dict[str, list[NDArray[np.float32]]] = {name: [] for name in fitted}
    for start in range(0, len(data), BATCH):
        signals = Signals(model, data.batch(slice(start, min(start + BATCH, len(data)))), BATCH)
        for name, monitor in fitted.items():
            rows[name].append(monitor.represent_signals(signals))
    say(f"represented {len(data)} images of {data.name}")
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def score_all(fitted: Mapping[str, FittedMonitor], model: Model, sets: Sets) -> dict[str, dict[str, NDArray[Any]]]:
    """The scores of every detector by set, calibrated on held-out images of CIFAR-10 alone."""
    shown = {"test": sets.test, **sets.outliers}
    rows = {name: represent_all(fitted, model, data) for name, data in {"held out": sets.held_out, **shown}.items()}
    scores = {}
    for name, monitor in fitted.items():
        calibrated = monitor.calibrate(rows["held out"][name])
        scores[name] = {which: calibrated.score(rows[which][name]) for which in shown}
        for note in calibrated.notes:
            say(f"{name}: {note}")
    return scores


def separate_all(
    scores: Mapping[str, Mapping[str, NDArray[Any]]], sets: Sets, which: str
) -> dict[str, tuple[Separation, Separation]]:
    """How well each detector separates the test images from outliers: as they are, and in resamples of the groups.

    All detectors share the resamples, so that differences between them are paired.
    """
    outliers = sets.outliers[which]
    groups = [f"in {group}" for group in sets.test.groups] + [f"out {group}" for group in outliers.groups]
    weights = np.concatenate(list(GroupBootstrap(groups, resamples=RESAMPLES).chunks()))
    inside = np.arange(len(groups)) < len(sets.test)
    results = {}
    for name, by_set in scores.items():
        values = np.concatenate([by_set["test"], by_set[which]])
        results[name] = separation(values, inside), separation(values, inside, weights)
    return results


def percent(value: NDArray[Any], resampled: NDArray[Any]) -> str:
    """A share in percent with its 95 % bounds."""
    low, high = np.nanquantile(resampled, [0.025, 0.975])
    return f"{100 * float(value[0]):.1f} ({100 * low:.1f} to {100 * high:.1f})"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows, the first of them the heading, as a table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measures_table(results: Mapping[str, Mapping[str, tuple[Separation, Separation]]]) -> list[list[str]]:
    """AUROC, AUPR and FPR95 of every detector by set of outliers, the best mean AUROC first; inside is positive."""
    rows = [["detector", *(f"{which} {measure}" for which in results for measure in ("AUROC", "AUPR-in", "FPR95-in"))]]
    names = next(iter(results.values()))
    for name in sorted(names, key=lambda name: -sum(float(results[which][name][0].auroc[0]) for which in results)):
        cells = []
        for which in results:
            found, resampled = results[which][name]
            cells += [
                percent(getattr(found, measure), getattr(resampled, measure))
                for measure in ("auroc", "aupr_in", "fpr95_in")
            ]
        rows.append([f"`{name}`", *cells])
    return rows


def order_table(
    results: Mapping[str, Mapping[str, tuple[Separation, Separation]]],
) -> tuple[list[list[str]], list[str]]:
    """The AUROC of detectors that OpenOOD lists beside the published ones, with both ranks, and how the orders agree.

    Tiny ImageNet stands beside OpenOOD's near outliers and GTSRB beside its far ones.
    """
    names = [name for name in OPENOOD if all(name in by_name for by_name in results.values())]
    rows = [["detector"]]
    columns: list[list[str]] = []
    agreement = []
    for column, (which, kind) in enumerate(zip(results, ("near", "far"), strict=True)):
        published = np.array([OPENOOD[name][column] for name in names])
        ours = np.array([100 * float(results[which][name][0].auroc[0]) for name in names])
        resampled = np.stack([results[which][name][1].auroc for name in names], axis=1)
        rows[0] += [f"{which}", "rank", f"OpenOOD, {kind}", "rank"]
        ranks = [(-values).argsort().argsort() + 1 for values in (ours, published)]
        columns += [[f"{value:.1f}" for value in ours], [str(rank) for rank in ranks[0]]]
        columns += [[f"{value:.2f}" for value in published], [str(rank) for rank in ranks[1]]]
        low, high = np.quantile([spearmanr(row, published).statistic for row in resampled], [0.025, 0.975])
        rho = spearmanr(ours, published).statistic
        agreement.append(f"{which} and OpenOOD's {kind} outliers: Spearman's rank correlation {rho:.2f}, 95 % bounds")
        agreement[-1] += f" {low:.2f} to {high:.2f} (resampled images), {len(names)} detectors"
    rows += [[f"`{name}`", *cells] for name, *cells in zip(names, *columns, strict=True)]
    return rows, agreement


def say(text: str) -> None:
    """Report progress beside the tables."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Fit, score and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--train", type=int, default=8000)
    parser.add_argument("--only", help="names of detectors, separated by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.only.split(",") if options.only else [name for name in MONITORS if name not in LEFT_OUT]
    sets, model = Sets.of(options.data, options.train, options.images), open_network(options.data)
    fitted, refused = fit_all(model, sets.train, names)
    scores = score_all(fitted, model, sets)
    results = {which: separate_all(scores, sets, which) for which in sets.outliers}
    counts = ", ".join(f"{len(data):,} {which}" for which, data in sets.outliers.items())
    print(f"{len(sets.train):,} training images, {len(sets.test):,} CIFAR-10 test images, {counts}. In percent, 95 %")
    print("bounds by bootstrap over images; in-distribution is the positive class.\n")
    print(markdown(measures_table(results)))
    print("\nNot in the table:")
    for name, reason in {**({} if options.only else LEFT_OUT), **refused}.items():
        print(f"- `{name}`: {reason}")
    rows, agreement = order_table(results)
    if len(rows) > 2:
        print("\n" + markdown(rows) + "\n\n" + "\n\n".join(f"{line}." for line in agreement))


if __name__ == "__main__":
    main()
