"""How often do the tests cry wolf? Equal models, simulated, and how often each test tells them apart at a stated 5 %.

`python benchmarks/false_alarms.py [--runs N]` prints the figures of docs/statistics.md.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roadworthy.statistics import anova, mcnemar, repeated_anova

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


def one_model_for_all_cells(runs: int) -> None:
    """Two equal classifiers, trained anew in each of 10 repeats, each shown 10 shifts: false alarms of three tables."""
    rng = np.random.default_rng(0)
    grid = itertools.product(range(10), range(2), range(10))
    frame = pd.DataFrame(grid, columns=["repeat", "classifier", "shift"])
    factors, count = ["classifier", "shift"], np.zeros(3)
    for _ in range(runs):
        training = rng.normal(size=(10, 2))[frame["repeat"], frame["classifier"]]
        data = frame.assign(y=training + rng.normal(size=len(frame)))
        tables = (
            anova(data, "y", factors),
            anova(data, "y", factors, block="repeat"),
            repeated_anova(data, "y", factors, "repeat"),
        )
        count += [table.frame.set_index("factor")["p"]["classifier"] < 0.05 for table in tables]
    shares = ", ".join(f"{share:.0f} %" for share in 100 * count / runs)
    print(f"\nOne trained model for all cells: plain, blocked, repeated measures: {shares}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    arguments = parser.parse_args()
    paired(arguments.runs)
    one_model_for_all_cells(arguments.runs)
