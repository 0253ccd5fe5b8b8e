"""Do the bounds hold? Simulated objects filmed in many frames, and how often each interval misses the truth.

`python benchmarks/interval_coverage.py [--runs N]` prints the tables of docs/metrics.md. An entry `a/b w` means: the
lower bound lay above the truth in a % of the runs, the upper bound below it in b %, and the mean width was w. Nominal:
2.5/2.5. In the tables of rankings an entry `c % w (h %)` means: h % of the runs have bounds, which hold the truth in
c % of these and are w times as wide as the central 95 % of the values.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, t

from roadworthy.metrics import Answers, Metric, accuracy, auroc, brier, fpr95_right, fpr95_wrong
from roadworthy.metrics.base import DROP
from roadworthy.metrics.ranking import Ranking
from roadworthy.protocols.classification.settings import METRICS
from roadworthy.statistics import (
    GroupBootstrap,
    bootstrap_interval,
    mean_interval,
    paired_interval,
    proportion_interval,
    wilson,
)
from roadworthy.statistics.ranked import ranked_estimate, ranked_figure

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
RESAMPLES = 1000


# ---- Proportions: which interval holds


def group_rates(rng: np.random.Generator, kind: str, groups: int, p: float) -> Floats:
    """The rate of right answers of each object, with mean p."""
    if kind == "rare object":
        rate = 0.8 * (1 - p)
        return np.where(rng.random(groups) < rate, 0.0, p / (1 - rate))
    correlation = float(kind.removeprefix("ICC "))
    if correlation in (0, 1):
        return np.full(groups, p) if correlation == 0 else (rng.random(groups) < p).astype(np.float64)
    spread = 1 / correlation - 1
    return rng.beta(p * spread, (1 - p) * spread, groups)


def group_sizes(rng: np.random.Generator, equal: bool, groups: int) -> NDArray[np.int64]:
    """Frames per object: 30, or log-normal from 1 to 200."""
    if equal:
        return np.full(groups, 30)
    return np.clip(np.exp(rng.normal(2.7, 1, groups)), 1, 200).astype(np.int64)


def of_images(hits: Floats, sizes: Floats) -> Bounds:
    """Wilson's with every frame counted: wrong, for comparison."""
    return wilson(float(hits.sum()), float(sizes.sum()))


def of_groups(hits: Floats, sizes: Floats) -> Bounds:
    """Wilson's with the effective number of groups as n, whatever the frames say."""
    n = float(sizes.sum() ** 2 / (sizes**2).sum())
    return wilson(min(n * float(hits.sum() / sizes.sum()), n), n)


def percentile(hits: Floats, sizes: Floats) -> Bounds:
    """The plain percentile bootstrap of groups."""
    weights = np.random.default_rng(0).multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=RESAMPLES)
    lo, hi = np.quantile((weights @ hits) / (weights @ sizes), [0.025, 0.975])
    return float(lo), float(hi)


def effective_sample(hits: Floats, sizes: Floats) -> Bounds:
    """Clopper-Pearson with n from the variance between groups and Student's t (Korn and Graubard)."""
    total, groups = float(sizes.sum()), len(sizes)
    p, fewest = float(hits.sum() / total), total**2 / float((sizes**2).sum())
    variance = groups / (groups - 1) * float(((hits - p * sizes) ** 2).sum()) / total**2
    n = fewest
    if variance > 0:
        n = min(max(p * (1 - p) / variance * (ndtri(0.975) / t.ppf(0.975, groups - 1)) ** 2, fewest), total)
    x = p * n
    lo = 0.0 if x <= 0 else float(beta.ppf(0.025, x, n - x + 1))
    return lo, 1.0 if n - x <= 1e-9 else float(beta.ppf(0.975, x + 1, n - x))


def phantom_group(hits: Floats, sizes: Floats) -> Bounds:
    """What the library does."""
    counts = sizes.astype(np.int64)
    interval = proportion_interval(np.repeat(hits / sizes, counts), np.repeat(np.arange(len(sizes)), counts))
    return interval.lo, interval.hi


PROPORTION_METHODS: dict[str, Callable[[Floats, Floats], Bounds]] = {
    "Wilson, n = frames": of_images,
    "percentile bootstrap": percentile,
    "effective n": effective_sample,
    "Wilson, n = groups": of_groups,
    "**phantom group**": phantom_group,
}


def proportions(runs: int) -> None:
    """Print a table per kind of group sizes."""
    for equal in (True, False):
        print(f"\nFrames per object: {'30' if equal else 'log-normal, 1 to 200'}\n")
        print(f"| objects | p | frames | {' | '.join(PROPORTION_METHODS)} |")
        print("|---|---|---|" + "---|" * len(PROPORTION_METHODS))
        for groups in (5, 20, 50, 200):
            for p in (0.8, 0.95, 0.995):
                for kind in ("ICC 0", "ICC 0.3", "ICC 1", "rare object"):
                    rng = np.random.default_rng([groups, round(1000 * p), equal])
                    missed = {name: Misses(p) for name in PROPORTION_METHODS}
                    for _ in range(runs):
                        sizes = group_sizes(rng, equal, groups)
                        hits = rng.binomial(sizes, group_rates(rng, kind, groups, p)).astype(np.float64)
                        for name, method in PROPORTION_METHODS.items():
                            missed[name].add(method(hits, sizes.astype(np.float64)))
                    print(f"| {groups} | {p} | {kind} | {row(missed.values())} |", flush=True)


class Misses:
    """How often an interval misses the truth, on which side, and how wide it is."""

    def __init__(self, truth: float) -> None:
        self.truth = truth
        self.bounds: list[Bounds] = []
        self.missing = 0

    def add(self, bounds: Bounds) -> None:
        if math.isnan(bounds[0]):
            self.missing += 1
        else:
            self.bounds.append(bounds)

    def __str__(self) -> str:
        if not self.bounds:
            return "missing"
        lo, hi = np.array(self.bounds).T
        share = [100 * float(miss.mean()) for miss in (lo > self.truth + 1e-12, hi < self.truth - 1e-12)]
        note = f" ({self.missing} missing)" if self.missing else ""
        return f"{share[0]:.1f}/{share[1]:.1f} {np.mean(hi - lo):.3f}{note}"


def row(entries: Iterable[Misses]) -> str:
    return " | ".join(map(str, entries))


# ---- Other metrics: how well the bootstrap does


def show(
    rng: np.random.Generator, groups: int, frames: int, temperature: float, rare: float, drop: float
) -> tuple[Answers, Answers]:
    """Answers to frames of ten kinds of object, undisturbed and disturbed; a share `rare` of the objects is misread."""
    label = rng.integers(10, size=groups)
    labels = np.repeat(label, frames)
    rows = np.arange(groups * frames)
    skill = np.repeat(4 + rng.normal(0, 1.5, groups), frames)
    logits = rng.normal(size=(groups * frames, 10))
    logits[rows, labels] += skill
    misread = np.repeat(rng.random(groups) < rare, frames)
    logits[rows[misread], (labels[misread] + 1) % 10] += 10
    disturbed = logits + 0.5 * rng.normal(size=logits.shape)
    disturbed[rows, labels] -= drop
    return tuple(Answers.from_probabilities(softmax(temperature * x), labels) for x in (logits, disturbed))  # type: ignore[return-value]


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def others(runs: int) -> None:
    """Print a table of the bootstrap on every metric, of the phantom group on means, and of both on paired drops."""
    metrics = {m.name: m for m in METRICS if not m.ranked and m.name not in ("accuracy", "brier_mean")}
    columns = [*metrics, "brier, phantom group", "accuracy drop, bootstrap", "accuracy drop, phantom group"]
    print(f"\n| objects x frames | classifier | {' | '.join(columns)} |")
    print("|---|---|" + "---|" * len(columns))
    kinds = {"calibrated": (2.5, 0.0), "underconfident": (1.0, 0.0), "1 object in 50 misread": (2.5, 0.02)}
    for groups, frames in ((20, 10), (50, 10), (200, 10), (1000, 1)):
        for kind, (temperature, rare) in kinds.items():
            rng = np.random.default_rng([groups, frames, len(kind)])
            many, many_disturbed = show(rng, 400_000, 1, temperature, rare, 1.0)
            missed = {name: Misses(float(metric(many))) for name, metric in metrics.items()}
            missed |= {columns[-3]: Misses(missed["brier"].truth)}
            missed |= {name: Misses(accuracy(many_disturbed) - accuracy(many)) for name in columns[-2:]}
            owner = np.repeat(np.arange(groups), frames)
            bootstrap = GroupBootstrap(owner, RESAMPLES)
            for _ in range(runs):
                clean, disturbed = show(rng, groups, frames, temperature, rare, 1.0)
                for name, metric in metrics.items():
                    resampled = bootstrap.distribution(metric, clean)
                    bounds = bootstrap_interval(metric(clean), resampled, groups, bounds=metric.limits(10))
                    missed[name].add(bounds[:2])
                mean = mean_interval(brier.per_image(clean), owner, 0, 2)
                missed[columns[-3]].add((mean.lo, mean.hi))
                both = [bootstrap.distribution(accuracy, answers) for answers in (disturbed, clean)]
                missed[columns[-2]].add(paired_interval(accuracy(disturbed), accuracy(clean), *both, groups)[:2])
                change = disturbed.correct.astype(np.float64) - clean.correct
                mean = mean_interval(change, owner, -1, 1)
                missed[columns[-1]].add((mean.lo, mean.hi))
            print(f"| {groups} x {frames} | {kind} | {row(missed.values())} |", flush=True)


# ---- Figures of a ranking: AUROC and FPR95, alone, as drops, and for outliers


@dataclass(frozen=True)
class Shown:
    """A simulated test set: objects of each image (n,), who is on the positive side, and scores, two of each.

    The second system (a disturbed model) shares half of the variance of its scores with the first.
    """

    owner: NDArray[np.int64]
    positive: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    scores: tuple[Floats, Floats]


@dataclass(frozen=True)
class Cell:
    """What is simulated: so many objects of `frames` images each, or of 1 to 20 (`unequal`), so many right answers.

    Errors of the images of an object have this correlation, and so have their scores. `mean` is how far apart right and
    wrong answers lie in standard deviations; a disturbed model is wrong twice as often, 0.3 closer. With `outliers`
    the sides have objects of their own, as many outside as inside.
    """

    objects: int
    accuracy: float
    correlation: float
    mean: float = 1.5
    frames: int = 5
    unequal: bool = False
    outliers: bool = False

    def sizes(self, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.integers(1, 20, self.objects) if self.unequal else np.full(self.objects, self.frames)

    def alike(self, rng: np.random.Generator, owner: NDArray[np.int64], count: int) -> tuple[Floats, Floats]:
        """A uniform and a normal number per image; images of an object have the correlation of the cell."""
        own, root = len(owner), math.sqrt(self.correlation)
        together = rng.random(own) < root
        uniform = np.where(together, rng.random(count)[owner], rng.random(own))
        normal = root * rng.normal(size=count)[owner] + math.sqrt(1 - self.correlation) * rng.normal(size=own)
        return uniform, normal

    def draw(self, rng: np.random.Generator) -> Shown:
        count = 2 * self.objects if self.outliers else self.objects
        sizes = np.concatenate([self.sizes(rng) for _ in range(count // self.objects)])
        owner = np.repeat(np.arange(count), sizes)
        uniform, shared = self.alike(rng, owner, count)
        accuracies, means = (self.accuracy, 2 * self.accuracy - 1), (self.mean, self.mean - 0.3)
        positive, scores = [], []
        for right, mean in zip(accuracies, means, strict=True):
            side = owner < self.objects if self.outliers else uniform < right
            own = self.alike(rng, owner, count)[1]
            positive.append(side)
            scores.append(mean * side + math.sqrt(0.5) * (shared + own))
        return Shown(owner, (positive[0], positive[1]), (scores[0], scores[1]))

    def truths(self, metric: Metric) -> tuple[float, float]:
        """The true value of both systems; both directions of FPR95 have the same here."""
        means = (self.mean, self.mean - 0.3)
        areas = [float(ndtr(mean / math.sqrt(2))) for mean in means]
        rates = [float(ndtr(float(ndtri(0.95)) - mean)) for mean in means]
        chosen = areas if metric is auroc else rates
        return chosen[0], chosen[1]


@dataclass(frozen=True)
class Coverage:
    """How bounds do in a cell: the share of runs that have them; of these, the share that holds the truth, and that
    lies above and below it; the mean width as a multiple of the oracle's; how many objects the rarer side has.

    The oracle's width is that of the central 95 % of the values in the runs that have bounds.
    """

    bounded: float
    held: float
    above: float
    below: float
    width: float
    rare: float

    def __str__(self) -> str:
        if math.isnan(self.held):
            return f"none ({self.rare:.1f} objects)"
        return f"{100 * self.held:.1f} % {self.width:.2f} ({100 * self.bounded:.0f} %)"


RANKED = (auroc, fpr95_right, fpr95_wrong)
LEAST_RUNS = 50
"""Fewer runs that have bounds say nothing of how often these hold."""


def ranked_coverage(cell: Cell, runs: int, metrics: Sequence[Metric] = RANKED) -> dict[str, Coverage]:
    """How bounds of metrics by name, and of their changes to the second system (`_drop`), do in simulated runs."""
    rng = np.random.default_rng([cell.objects, round(1000 * cell.accuracy), round(10 * cell.correlation), cell.unequal])
    known: dict[str, list[tuple[float, float, float]]] = {f"{m.name}{end}": [] for end in ("", DROP) for m in metrics}
    rare = []
    for _ in range(runs):
        shown = cell.draw(rng)
        rare.append(min(np.unique(shown.owner[shown.positive[0] == side]).size for side in (True, False)))
        rankings = [Ranking(scores, side) for side, scores in zip(shown.positive, shown.scores, strict=True)]
        if any(ranking.one_sided for ranking in rankings):
            continue
        for metric in metrics:
            assert metric.ranked is not None
            first, second = ([ranked_figure(metric.ranked(ranking), shown.owner)] for ranking in rankings)
            for name, estimate in (
                (metric.name, ranked_estimate([first])),
                (f"{metric.name}{DROP}", ranked_estimate([second], [first])),
            ):
                if not estimate.unbounded:
                    known[name].append((estimate.value, estimate.lo, estimate.hi))
    truths = {metric.name: cell.truths(metric) for metric in metrics}
    true = {name: own[0] for name, own in truths.items()} | {f"{n}{DROP}": own[1] - own[0] for n, own in truths.items()}
    return {name: _coverage(rows, true[name], runs, float(np.mean(rare))) for name, rows in known.items()}


def _coverage(rows: Sequence[tuple[float, float, float]], truth: float, runs: int, rare: float) -> Coverage:
    if len(rows) < LEAST_RUNS:
        return Coverage(len(rows) / runs, math.nan, math.nan, math.nan, math.nan, rare)
    value, lo, hi = np.array(rows).T
    above, below = float((lo > truth).mean()), float((hi < truth).mean())
    oracle = float(np.diff(np.quantile(value, [0.025, 0.975]))[0])
    return Coverage(len(rows) / runs, 1 - above - below, above, below, float((hi - lo).mean()) / oracle, rare)


def cells(**details: Any) -> list[Cell]:
    """All cells of a table: objects x accuracy x correlation; of outliers, whose sides are given, without accuracy."""
    accuracies = (0.9,) if details.get("outliers") else (0.9, 0.99)
    return [Cell(*of, **details) for of in product((20, 50, 200), accuracies, (0.0, 0.5, 1.0))]


def rankings(runs: int) -> None:
    """Print a table per kind of cell: figures, and drops."""
    kinds: dict[str, dict[str, Any]] = {
        "Error detection, 5 frames per object": {},
        "Error detection, 1 to 19 frames per object": {"unequal": True},
        "Outliers, objects of their own": {"outliers": True},
        "Error detection, well separated (AUROC .98)": {"mean": 3.0},
    }
    for title, details in kinds.items():
        names = [f"{metric.name}{end}" for end in ("", DROP) for metric in RANKED]
        print(f"\n{title}\n\n| objects | right | correlation | rarer side | {' | '.join(names)} |")
        print("|---|---|---|---|" + "---|" * len(names))
        for cell in cells(**details):
            found = ranked_coverage(cell, runs)
            where = f"{cell.objects} | {cell.accuracy} | {cell.correlation} | {found[names[0]].rare:.1f}"
            print(f"| {where} | {' | '.join(str(found[name]) for name in names)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="simulated test sets per row")
    parser.add_argument("--only", choices=("proportions", "others", "rankings"), help="one of the three parts")
    arguments = parser.parse_args()
    parts = {"proportions": (proportions, 1.0), "others": (others, 0.6), "rankings": (rankings, 4.0)}
    for name, (part, times) in parts.items():
        if arguments.only in (None, name):
            part(max(int(times * arguments.runs), 1))
