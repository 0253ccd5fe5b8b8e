"""Stopping once it is decided: how often it decides wrongly, and how many answers it saves.

`python benchmarks/until_decided.py [--runs N] [--data FOLDER] [--out FILE]` simulates studies with correlated frames
whose true value lies above, below and exactly at the threshold, and lets the rule of real runs look at each part. Then
it tests a real ResNet-20 on 4,000 images of CIFAR-10 (skipped where FOLDER does not hold them). It exits with 1 where
false passes or false fails are more than the stated rate (binomial test at 1 %), or fewer than two of three answers are
saved, or the verdict is another one than in full.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from roadworthy.engine.plan import LOOK_IMAGES
from roadworthy.engine.readouts import Readouts, read_case
from roadworthy.metrics import Answers, accuracy
from roadworthy.protocols.classification.looks import Undecided
from roadworthy.protocols.classification.settings import METRICS
from roadworthy.protocols.classification.stopped import BoundedMetric, Looks, Watched
from roadworthy.statistics.anytime import can_decide, group_bets
from roadworthy.verdict import Criterion

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("ROADWORTHY_TEST_DATA", ROOT.parent / "shared" / "data"))
THRESHOLD = 0.8
TRUTHS = {"above": 0.9, "at": THRESHOLD, "below": 0.7}
"""The true accuracies; exactly at the threshold both a pass and a fail are wrong."""
WRONG = {"above": ("fail",), "at": ("pass", "fail"), "below": ("pass",)}
LARGEST, CORRELATION = 8, 0.3
SAVING = 3.0
LIMITS = (0.88, 0.95)


def simulated(seed: int, truth: float, images: int) -> Readouts:
    """Answers to objects that are filmed in 1 to 8 frames, whose rates of right answers differ."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, LARGEST + 1, images)
    spread = 1 / CORRELATION - 1
    rates = rng.beta(truth * spread, (1 - truth) * spread, images)
    groups = np.repeat(np.arange(images), sizes)[:images]
    right = rng.random(images) < rates[groups]
    half = np.full(images, 0.5)
    answers = Answers(np.zeros(images, np.int64), (~right).astype(np.int64), half, half, half, num_classes=2)
    return Readouts(tuple(map(str, range(images))), tuple(map(str, groups.tolist())), answers)


def first_rows(readouts: Readouts, rows: int) -> Readouts:
    """The first rows of some readouts."""
    known = readouts.answers
    columns = {name: getattr(known, name)[:rows] for name in ("label", "prediction", "confidence", "p_label")}
    answers = Answers(**columns, sum_squares=known.sum_squares[:rows], num_classes=known.num_classes)
    return Readouts(readouts.ids[:rows], readouts.groups[:rows], answers)


def outcome(seed: int, truth: float, *, images: int, part: int, confidence: float) -> tuple[str, int]:
    """How a simulated study ends, and after how many images: part after part, until the rule is content."""
    criterion = Criterion(id="A", metric="accuracy", at_least=THRESHOLD, confidence=confidence)
    watched, bounded = Watched(criterion=criterion), BoundedMetric.of(accuracy, METRICS, 2)
    looks = Looks(images=images, largest_group=LARGEST, part_images=part)
    rule, readouts = Undecided(((watched, bounded),), looks), simulated(seed, truth, images)
    for shown in range(part, images + 1, part):
        prefix = first_rows(readouts, shown)
        if rule(prefix):
            values = bounded.per_image(prefix.answers)
            return bounded.decide(watched, bounded.bets(values, prefix.groups, looks)), shown
    return "inconclusive", images


def error_rates(
    runs: int, *, images: int = 1024, part: int = 128, confidence: float = 0.9
) -> dict[str, dict[str, float]]:
    """By where the truth lies: the share of passes and fails, images shown on average, and p of too many errors.

    p is that of the more frequent error against the stated rate, (1 - confidence) / 2, one-sided.
    """
    rate, rows = (1 - confidence) / 2, {}
    for order, (name, truth) in enumerate(TRUTHS.items()):
        ends = [
            outcome(1000 * order + run, truth, images=images, part=part, confidence=confidence) for run in range(runs)
        ]
        counts = {status: sum(end == status for end, _ in ends) for status in ("pass", "fail", "inconclusive")}
        p = min(binomtest(counts[wrong], runs, rate, alternative="greater").pvalue for wrong in WRONG[name])
        shown = float(np.mean([images_shown for _, images_shown in ends]))
        rows[name] = {status: count / runs for status, count in counts.items()} | {"shown": shown, "p": float(p)}
    return rows


def resnet20(data: Path) -> Any:
    """The supplied network, and a list of how many images it was asked about at a time."""
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    from cifar10_resnet20 import resnet20 as build

    network = build()
    stored = torch.load(data / "cifar10_resnet20.th", weights_only=True, map_location="cpu")
    weights = stored.get("state_dict", stored)
    network.load_state_dict({name.removeprefix("module."): value for name, value in weights.items()})
    asked: list[int] = []
    network.register_forward_pre_hook(lambda _, inputs: asked.append(len(inputs[0])))
    return network.eval(), asked


def measured_saving(data: Path, folder: Path) -> dict[str, Any]:
    """CIFAR-10 undisturbed: accuracy at least .88 and at least .95, in full and until it is decided."""
    from roadworthy.api import no_progress
    from roadworthy.executing import execute
    from roadworthy.models import load_model
    from roadworthy.opening import Given
    from roadworthy.preparing import prepare
    from roadworthy.study import parse_study

    network, asked = resnet20(data)
    criteria = [
        {"id": f"A{limit:g}", "metric": "accuracy", "at_least": limit, "where": {"shift": "none"}} for limit in LIMITS
    ]
    criteria.append({"id": "fog", "metric": "accuracy", "at_least": 0.5, "where": {"shift": "fog"}})
    result: dict[str, Any] = {}
    for name, until_decided in (("full", False), ("until_decided", True)):
        study = parse_study(
            {
                "data": {"test": str(data / "cifar10_test.npz")},
                "models": {"resnet20": "<network>"},
                "protocols": {"classification": {"shifts": ["fog"], "levels": [1]}},
                "criteria": criteria,
                "until_decided": until_decided,
            },
            "study",
        )
        given = Given({"resnet20": load_model(network, name="resnet20", range="imagenet", version="given")})
        asked.clear()
        run = execute(prepare(study, given=given, progress=no_progress), folder / name, progress=no_progress)
        verdict = json.loads((run.path / "verdict.json").read_text())
        table = run.tables["classification"].query("shift == 'none' and metric == 'accuracy'")
        result[name] = {
            "verdict": {one["id"]: one["status"] for one in verdict["criteria"]},
            "answers": int(table["n"].item()),
            "bounds": [round(float(table[bound].item()), 4) for bound in ("value", "lo", "hi")],
            "inferences_in_all": sum(asked),
        }
        if not until_decided:
            node, case = next(own for own in run.record.cases.items() if own[1].stimulus.name == "none")
            right = read_case(run.path / case.folder, node).answers.correct
    result["saving"] = result["full"]["answers"] / result["until_decided"]["answers"]
    result["saving_in_all"] = result["full"]["inferences_in_all"] / result["until_decided"]["inferences_in_all"]
    result["other_orders"] = other_orders(right)
    return result


def other_orders(right: NDArray[np.bool_], orders: int = 100) -> dict[str, float]:
    """What the same answers would have come to in other orders of the images: images until both limits are decided."""
    stops = []
    for seed in range(orders):
        values = np.random.default_rng(seed).permutation(right).astype(np.float64)
        ends = range(LOOK_IMAGES, len(values) + LOOK_IMAGES, LOOK_IMAGES)
        looks = [group_bets(values[:end], np.arange(len(values[:end])), 1, 0.0, 1.0) for end in ends]
        stop = next((int(b.sizes.sum()) for b in looks if all(can_decide(b, t, 0.95) for t in LIMITS)), len(values))
        stops.append(stop)
    saved = np.array(stops) * SAVING <= len(right)
    return {"mean images": float(np.mean(stops)), "share that saves two thirds": float(saved.mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rates = error_rates(chosen.runs)
    print("truth   pass   fail   inconclusive   images shown of 1,024   p of too many errors (5 % each side)")
    for name, row in rates.items():
        shares = f"{row['pass']:.3f}  {row['fail']:.3f}  {row['inconclusive']:.3f}"
        print(f"{name:<6}  {shares}          {row['shown']:7.0f}                 {row['p']:.3f}")
    missed = any(row["p"] < 0.01 for row in rates.values())
    result: dict[str, Any] = {"runs": chosen.runs, "rates": rates}
    if (chosen.data / "cifar10_test.npz").is_file():
        with tempfile.TemporaryDirectory() as folder:
            result["cifar10"] = cifar10 = measured_saving(chosen.data, Path(folder))
        for name in ("full", "until_decided"):
            print(f"ResNet-20 on CIFAR-10, {name}: {cifar10[name]}")
        saved = f"{cifar10['saving']:.1f} times fewer to undisturbed data, needed {SAVING:g}"
        print(f"answers: {saved}; {cifar10['saving_in_all']:.1f} times fewer inferences in all, rehearsals among them")
        print(f"the same answers in 100 other orders: {cifar10['other_orders']}")
        missed |= cifar10["saving"] < SAVING or cifar10["full"]["verdict"] != cifar10["until_decided"]["verdict"]
    else:
        print(f"no CIFAR-10 in {chosen.data}: not measured")
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=2))
    raise SystemExit(int(missed))


if __name__ == "__main__":
    main()
