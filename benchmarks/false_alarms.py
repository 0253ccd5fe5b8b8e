"""How often do the tests cry wolf? Equal models, simulated, and how often each test tells them apart at a stated 5 %.

`python benchmarks/false_alarms.py [--runs N]` prints the figures of docs/statistics.md: beside each share of false
alarms how often the same test finds one stated difference.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtr

from roadworthy.protocols.changes import by_mcnemar
from roadworthy.statistics import critical_difference, holm, mcnemar, sign_flip_p
from roadworthy.statistics.factorial import contrasts
from roadworthy.statistics.paired import PairedChange
from roadworthy.statistics.slices import worst_slices

ROUNDING = 1e-12
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHARED, OWN, UNLIKE = "the same hard objects", "each its own hard objects", "a fails whole objects, b single frames"


def chances(rng: np.random.Generator, kind: str, objects: int, right: float) -> NDArray[np.float64]:
    """How often each of two models is right about each object, (2, objects); `right` on average for both."""
    if kind == UNLIKE:
        return np.stack([(rng.random(objects) < right).astype(np.float64), np.full(objects, right)])
    spread = 4.0 if kind == SHARED else 1.0
    drawn = rng.beta(right * spread, (1 - right) * spread, (2, objects))
    return np.stack([drawn[0], drawn[0 if kind == SHARED else 1]])


def two_models(
    rng: np.random.Generator, kind: str, objects: int, right: float, equal: bool, loss: float = 0.0
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """Right answers of two models and the object of each frame; model b loses a share of its right answers."""
    sizes = np.full(objects, 10) if equal else np.clip(np.exp(rng.normal(2, 1, objects)), 1, 100).astype(np.int64)
    groups = np.repeat(np.arange(objects), sizes)
    rate = chances(rng, kind, objects, right) * np.array([[1.0], [1 - loss]])
    a, b = rng.random((2, len(groups))) < rate[:, groups]
    return a, b, groups


def found(rng: np.random.Generator, runs: int, *case: str | float | bool) -> NDArray[np.float64]:
    """Share of runs that McNemar on frames, McNemar by object, and the interval call a difference."""
    count = np.zeros(3)
    for _ in range(runs):
        a, b, groups = two_models(rng, *case)  # type: ignore[arg-type]
        by_object = mcnemar(a, b, groups)
        count += [mcnemar(a, b).p < 0.05, by_object.p < 0.05, not by_object.lo <= 0 <= by_object.hi]
    return 100 * count / runs


def paired(runs: int) -> None:
    """The two tables for McNemar: false alarms, and power."""
    print("| objects | right | what they share | frames counted as images | flips by object | interval leaves 0 out |")
    cases = [(n, 0.9, kind) for n, kind in itertools.product((20, 50, 200), (SHARED, OWN, UNLIKE))]
    for objects, right, kind in [*cases, (50, 0.98, UNLIKE), (200, 0.98, UNLIKE)]:
        rng = np.random.default_rng([objects, int(100 * right), len(kind)])
        columns = [found(rng, runs, kind, objects, right, equal) for equal in (True, False)]
        cells = " | ".join(f"{one:.0f} / {other:.0f} %" for one, other in zip(*columns, strict=True))
        print(f"| {objects} | {right:.0%} | {kind} | {cells} |", flush=True)
    print("\nFound where b loses 6 % of its right answers, objects of 10 frames, hard ones shared: flips, interval")
    for objects in (60, 120, 300):
        shares = found(np.random.default_rng(objects), runs, SHARED, objects, 0.9, True, 0.06)
        print(f"{objects} objects: {shares[1]:.0f} %, {shares[2]:.0f} %", flush=True)


def called_clear(
    rng: np.random.Generator, runs: int, conditions: int, *case: str | float | bool
) -> tuple[float, float, float]:
    """In how many of the runs any of so many conditions is called clear, in per cent, with Holm's correction over them.

    By sign flips alone; by these where the 95 % interval of the condition leaves 0 out, too; and as `compare` does, by
    the larger p of sign flips and interval. A condition fails other objects than the next.
    """
    counts = np.zeros(3)
    for _ in range(runs):
        flips, p_values, leaves_0 = np.ones((3, conditions))
        for index in range(conditions):
            a, b, groups = two_models(rng, *case)  # type: ignore[arg-type]
            flips[index] = p_values[index] = sign_flips_p(a, b, groups)
            if flips[index] < 0.05:  # else nothing of it can be clear
                change = by_mcnemar(PairedChange("condition", index, "accuracy"), a, b, groups)
                p_values[index], leaves_0[index] = change.p, not change.lo <= 0 <= change.hi
        by_flips, by_both = holm(flips) < 0.05, holm(p_values) < 0.05
        counts += [(by_flips & which).any() for which in (True, leaves_0 > 0, by_both & (leaves_0 > 0))]
    flips_alone, with_interval, shipped = 100 * counts / runs
    return float(flips_alone), float(with_interval), float(shipped)


def sign_flips_p(a: Bools, b: Bools, groups: NDArray[np.int64]) -> float:
    """p of sign flips alone, as `mcnemar` has it."""
    sums = np.bincount(groups, a.astype(np.float64) - b)
    return sign_flip_p(int(sums.sum()), np.abs(sums))


def compared(runs: int) -> None:
    """False alarms of `compare` over several conditions, and what it finds of a loss of 6 % in all of them.

    A tenth of the runs for 50 conditions, which take five times as long as ten.
    """
    print("\n| objects | right | what they share | conditions | flips | and the interval of each | `compare` |")
    for kind, objects, right, conditions in itertools.product((OWN, UNLIKE), (50, 200), (0.9, 0.98), (2, 10, 50)):
        rng = np.random.default_rng([objects, conditions, int(100 * right)])
        own = runs if conditions <= 10 else runs // 10
        columns = [called_clear(rng, own, conditions, kind, objects, right, equal) for equal in (True, False)]
        cells = " | ".join(f"{one:.0f} / {other:.0f} %" for one, other in zip(*columns, strict=True))
        print(f"| {objects} | {right:.0%} | {kind} | {conditions} | {cells} |", flush=True)
    print(
        "Found where b loses 6 % of its right answers in each of 10 conditions, objects of 10 frames, hard ones shared"
    )
    for objects in (60, 120, 300):
        shares = called_clear(np.random.default_rng(objects), runs // 10, 10, SHARED, objects, 0.9, True, 0.06)
        print(f"{objects} objects: {', '.join(f'{share:.0f} %' for share in shares)}", flush=True)


# ---- Ranks of monitors, and slices


def ranked(rng: np.random.Generator, runs: int, sets: int, monitors: int, lead: float = 0.0) -> Floats:
    """In how many runs, in per cent, monitors are told apart over sets: Iman and Davenport, Nemenyi, Wilcoxon and Holm.

    The values of a set are drawn alike for all monitors, but for the `lead` of the first in their standard deviations.
    """
    counts = np.zeros(3)
    for _ in range(runs):
        values = rng.normal(size=(sets, monitors))
        values[:, 0] += lead
        result = critical_difference(values, [str(index) for index in range(monitors)])
        pairs = min(pair.wilcoxon_p_holm for pair in result.pairs)
        counts += [result.iman_davenport_p < 0.05, np.ptp(result.ranks) > result.distance, pairs < 0.05]
    return 100 * counts / runs


def sliced(rng: np.random.Generator, runs: int, objects: int, frames: int, bad: float = 0.0) -> float:
    """In how many runs, in per cent, a slice is called worse than elsewhere (Holm); a right answer in `bad` less often.

    Three conditions of three values, each object under one of each; nine in ten objects are easy, and frames alike.
    """
    found = 0
    for _ in range(runs):
        conditions = {name: rng.choice(list("xyz"), objects) for name in "abc"}
        chance = rng.beta(9, 1, objects) * (1 - bad * (conditions["a"] == "x"))
        right = rng.random((frames, objects)) < chance
        shown = {name: np.tile(column, frames) for name, column in conditions.items()}
        result = worst_slices(right.ravel(), np.tile(np.arange(objects), frames), shown, 0, 1, limit=3)
        found += any(one.p_holm < 0.05 for one in result.worst)
    return 100 * found / runs


def others(runs: int) -> None:
    """Ranks over sets, and slices: false alarms, and what is found of one stated difference."""
    print("\n| sets | monitors | Iman and Davenport | Nemenyi | Wilcoxon, Holm |")
    for sets, monitors in itertools.product((5, 10, 20), (3, 10)):
        rng = np.random.default_rng([sets, monitors])
        columns = ranked(rng, runs, sets, monitors), ranked(rng, runs // 4, sets, monitors, 2.0)
        print(f"| {sets} | {monitors} | {' | '.join(f'{a:.1f}; {b:.0f} %' for a, b in zip(*columns, strict=True))} |")
    for objects, frames in itertools.product((100, 400), (1, 5)):
        rng = np.random.default_rng([objects, frames])
        alarms, power = sliced(rng, runs, objects, frames), sliced(rng, runs // 10, objects, frames, 0.3)
        print(f"slices, {objects} objects of {frames} frames: {alarms:.1f}; {power:.0f} %", flush=True)


# ---- Classifiers that are trained anew: values of (runs, repeats, classifiers, cells)


def values_of_equal(
    rng: np.random.Generator, runs: int, repeats: int, cells: int, classifiers: int = 2, *, failing: bool = False
) -> Floats:
    """What equal classifiers give: the luck of a training in all cells (sd 1) and in each (sd .5 to 1.5, stronger ones
    more), and the draw of the repeat that all are shown (sd .5). If `failing`, one training in ten is off by 4.
    """
    luck = rng.normal(size=(runs, repeats, classifiers, 1))
    if failing:
        luck -= 4 * (rng.random(luck.shape) < 0.1)
    own = rng.normal(size=(runs, repeats, classifiers, cells)) * np.linspace(0.5, 1.5, cells)
    return np.asarray(luck + own + 0.5 * rng.normal(size=(runs, repeats, 1, cells)))


def paired_p_values(first: Floats, second: Floats) -> Floats:
    """Two-sided p of the t test of differences over repeats (runs, repeats, ...), as in `repeated_posthoc`."""
    differences = first - second
    repeats, error = differences.shape[1], differences.std(axis=1, ddof=1)
    t = differences.mean(axis=1) / np.where(error > ROUNDING, error, np.nan) * repeats**0.5
    return np.asarray(2 * stdtr(repeats - 1, -np.abs(t)))


def welch_p_values(first: Floats, second: Floats) -> Floats:
    """Two-sided p of Welch's test over repeats (runs, repeats, ...), as in `repeated_posthoc`."""
    repeats = first.shape[1]
    one, other = (side.var(axis=1, ddof=1) / repeats for side in (first, second))
    t = (first.mean(axis=1) - second.mean(axis=1)) / np.sqrt(one + other)
    df = (one + other) ** 2 * (repeats - 1) / (one**2 + other**2)
    return np.asarray(2 * stdtr(df, -np.abs(t)))


def any_by_holm(p_values: Floats) -> Bools:
    """Whether Holm's method finds any of the pairs (runs, pairs): whether the smallest p is below .05 / pairs."""
    tested = (~np.isnan(p_values)).sum(axis=1)
    return np.asarray(np.nanmin(p_values, axis=1, initial=1) * tested < 0.05)


def repeated_p_values(values: Floats, term: tuple[str, ...]) -> Floats:
    """p of an effect as in `repeated_anova`, by Greenhouse and Geisser, of every run."""
    runs, repeats, classifiers, cells = values.shape
    effects = values.reshape(runs, repeats, -1) @ contrasts({"classifier": classifiers, "shift": cells}, term).T
    mean = effects.mean(axis=1, keepdims=True)
    centred = effects - mean
    error = (centred**2).sum(axis=(1, 2))
    df = error**2 / ((centred @ centred.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2))
    f = repeats * (mean**2).sum(axis=(1, 2)) / (error / (repeats - 1))
    return np.asarray(fdtrc(df, (repeats - 1) * df, f))


def replicated_p_values(values: Floats) -> tuple[Floats, Floats, Floats]:
    """p of two classifiers with every condition of a repeat as a replicate: `anova`, with a block, and `robust_anova`.

    Of two levels Tukey's comparison has the p of the first form, that of Games and Howell the p of the last.
    """
    repeats, cells = values.shape[1], values.shape[3]
    means, variances = values.mean(axis=1), values.var(axis=1, ddof=1)
    difference = (means[:, 0] - means[:, 1]).mean(axis=1)
    squares = variances.sum(axis=(1, 2)) * (repeats - 1)
    of_repeats = values.mean(axis=(2, 3)).var(axis=1, ddof=1) * (repeats - 1) * 2 * cells
    p_values = []
    for error, df in ((squares, 2 * cells), (squares - of_repeats, 2 * cells - 1)):
        t = difference / np.sqrt(2 / (repeats * cells) * error / (df * (repeats - 1)))
        p_values.append(2 * stdtr(df * (repeats - 1), -np.abs(t)))
    own = variances.sum(axis=(1, 2)) / repeats / cells**2
    df = own**2 / ((variances / repeats / cells**2) ** 2).sum(axis=(1, 2)) * (repeats - 1)
    return (*p_values, 2 * stdtr(df, -np.abs(difference) / np.sqrt(own)))


def called_different(values: Floats) -> dict[str, float]:
    """The share of runs in which each test of two classifiers finds a difference, in per cent.

    Means of classifiers and of cells are one value per repeat each; 'one shift by shift' compares the classifiers in
    each cell, 'interaction' is the analysis of variance.
    """
    of_classifier, of_cell = values.mean(axis=3), values.mean(axis=2)
    first, second = np.triu_indices(values.shape[3], 1)
    thesis, blocked, robust = replicated_p_values(values)
    found = {
        "classifiers": paired_p_values(of_classifier[..., 0], of_classifier[..., 1]) < 0.05,
        "classifiers, Welch": welch_p_values(of_classifier[..., 0], of_classifier[..., 1]) < 0.05,
        "shift by shift": any_by_holm(paired_p_values(values[:, :, 0], values[:, :, 1])),
        "pairs of shifts": any_by_holm(paired_p_values(of_cell[..., first], of_cell[..., second])),
        "shifts": repeated_p_values(values, ("shift",)) < 0.05,
        "interaction": repeated_p_values(values, ("classifier", "shift")) < 0.05,
        "anova, Tukey": thesis < 0.05,
        "anova, block": blocked < 0.05,
        "robust, Games-Howell": robust < 0.05,
    }
    return {name: 100 * float(own.mean()) for name, own in found.items()}


def with_difference(values: Floats, name: str, size: float) -> Floats:
    """The values where classifier b, the first shift, or classifier b under the first shift is worse by `size`."""
    worse = values.copy()
    if name in ("pairs of shifts", "shifts"):
        worse[..., 0] -= size
    elif name in ("shift by shift", "interaction"):
        worse[:, :, 1, 0] -= size
    else:
        worse[:, :, 1] -= size
    return worse


DIFFERENCE = 5.0
"""The difference that power is stated for, in standard deviations of the luck that trainings share over all shifts."""


def trained_anew(runs: int) -> None:
    """False alarms, and what is found of a difference of 5, for 2 and 10 shifts and 3, 5 and 10 repeats."""
    print(f"\nEqual classifiers trained anew: false alarms / where one training in ten fails; found of {DIFFERENCE:g}")
    names: list[str] = []
    for cells, repeats in itertools.product((2, 10), (3, 5, 10)):
        rng = np.random.default_rng([cells, repeats])
        equal, failing = (values_of_equal(rng, runs, repeats, cells, failing=fails) for fails in (False, True))
        columns = [called_different(values) for values in (equal, failing)]
        if not names:
            names = [*columns[0]]
            print(f"| shifts | repeats | {' | '.join(names)} |")
        found = {name: called_different(with_difference(equal, name, DIFFERENCE))[name] for name in names}
        shares = [f"{columns[0][name]:.1f} / {columns[1][name]:.1f}; {found[name]:.0f} %" for name in names]
        print(f"| {cells} | {repeats} | {' | '.join(shares)} |", flush=True)


# ---- Networks that are really trained


def trained_accuracies(
    pairs: int, repeats: int, shifts: int = 10, seed: int = 0, steps: int = 120, hidden: int = 16
) -> Floats:
    """Accuracies (pairs, repeats, 2, shifts) of networks that are trained anew on the same images, seeds apart.

    Four classes of ten measurements each, 200 objects to train on and 300 to test; a network of one hidden layer, by
    stochastic gradient descent with a momentum from random weights and random batches. A shift adds an offset
    and noise, which is drawn anew in each repeat, for all networks alike; later shifts are stronger.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, 10))
    labels = rng.integers(4, size=500)
    images = (centres[labels] + 1.2 * rng.normal(size=(500, 10))).astype(np.float32)
    train, test, train_labels, truth = images[:200], images[200:], labels[:200], labels[200:]
    strength = np.linspace(0.2, 2.0, shifts, dtype=np.float32)
    offset = rng.normal(size=(shifts, 1, 10)).astype(np.float32)
    accuracies = np.empty((pairs, repeats, 2, shifts))
    for pair in range(pairs):
        networks = 2 * repeats
        first = rng.normal(size=(networks, 10, hidden), scale=10**-0.5).astype(np.float32)
        second = rng.normal(size=(networks, hidden, 4), scale=hidden**-0.5).astype(np.float32)
        speed = [np.zeros_like(first), np.zeros_like(second)]
        for _ in range(steps):
            batch = rng.integers(200, size=(networks, 16))
            x, y = train[batch], train_labels[batch]
            active = np.maximum(x @ first, 0)
            scores = active @ second
            chances = np.exp(scores - scores.max(axis=2, keepdims=True))
            chances /= chances.sum(axis=2, keepdims=True)
            chances -= np.eye(4, dtype=np.float32)[y]
            back = (chances @ second.transpose(0, 2, 1)) * (active > 0)
            slopes = x.transpose(0, 2, 1) @ back / 16, active.transpose(0, 2, 1) @ chances / 16
            for weights, velocity, slope in zip((first, second), speed, slopes, strict=True):
                velocity *= 0.9
                velocity -= 0.1 * slope
                weights += velocity
        noise = rng.normal(size=(repeats, 1, shifts, 300, 10)).astype(np.float32)
        shown = (test + strength[:, None, None] * (noise + offset)).reshape(repeats, 1, shifts * 300, 10)
        first, second = (weights.reshape(repeats, 2, *weights.shape[1:]) for weights in (first, second))
        answers = (np.maximum(shown @ first, 0) @ second).argmax(axis=3).reshape(repeats, 2, shifts, 300)
        accuracies[pair] = (answers == truth).mean(axis=3)
    return accuracies


def really_trained(pairs: int) -> None:
    """The same of networks that are trained, 20 for every pair; two shifts are the mildest and the strongest."""
    accuracies = trained_accuracies(pairs, 10)
    sd = accuracies.mean(axis=3).std()
    print(
        f"\n{pairs} pairs of equal networks, accuracy {accuracies.mean():.2f}, sd of a training {sd:.3f}: alarms, found"
    )
    for cells, repeats in itertools.product((2, 10), (3, 5, 10)):
        values = accuracies[:, :repeats, :, :: 9 if cells == 2 else 1]
        own, size = called_different(values), DIFFERENCE * float(values.mean(axis=3).std(axis=1, ddof=1).mean())
        names = [name for name in own if "shifts" not in name]
        found = {name: called_different(with_difference(values, name, size))[name] for name in names}
        shares = [f"{name} {own[name]:.1f}; {found[name]:.0f} %" for name in names]
        print(f"| {cells} | {repeats} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=2000)
    arguments = parser.parse_args()
    trained_anew(arguments.runs)
    really_trained(arguments.pairs)
    paired(arguments.runs)
    others(arguments.runs)
    compared(arguments.runs)
