"""What activation patterns cost, against binary decision diagrams in the same run and by the number of patterns.

    python benchmarks/patterns.py [--patterns 1000000] [--out result.json]

diagram  84 neurons, 200 patterns, tolerance 1, against a diagram of the package dd (its Python one, and CUDD where the
         wheel has it): to build the set, which for a diagram means to enlarge it too, and to ask about 200 images, in
         processor time. Both must give the same answers. Target: at least 200 times as fast in all; the ratios of
         building and of asking are shown beside (asking alone is about 100 times as fast as the Python diagram)
large    84 neurons, a million patterns. Targets: under 100 MB, at its peak while it is built too; 99th percentile of
         single questions at most 2 ms by the clock, which a busy machine can miss: processor time is shown beside

Exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.monitors.patterns import PatternSet

NEURONS, FEW, ASKED = 84, 200, 200
QUESTIONS = 400
MOST_BYTES, MOST_SECONDS, LEAST_RATIO = 100e6, 2e-3, 200.0


def drawn(count: int, seed: int) -> np.ndarray:
    """Patterns of neurons that are on more or less often, as those of a network are."""
    rng = np.random.default_rng(seed)
    return rng.random((count, NEURONS)) < np.random.default_rng(0).beta(0.7, 0.7, NEURONS)


def processor_time(work: Callable[[], Any], rounds: int = 1) -> tuple[float, Any]:
    """Seconds of processor time of the fastest of some rounds, and what the work gave."""
    seconds, answer = [], None
    for _ in range(rounds):
        started = time.process_time()
        answer = work()
        seconds.append(time.process_time() - started)
    return min(seconds), answer


def diagram_of(kind: Any, patterns: np.ndarray) -> tuple[Any, Any, list[str]]:
    """A diagram of patterns and all that differ from one of them in one neuron."""
    diagram, names = kind(), [f"n{number}" for number in range(NEURONS)]
    diagram.declare(*names)
    accepted = diagram.false
    for row in patterns.tolist():
        accepted |= diagram.cube(dict(zip(names, row, strict=True)))
    enlarged = accepted
    for name in names:
        enlarged |= diagram.exist([name], accepted)
    return diagram, enlarged, names


def answers_of(diagram: Any, accepted: Any, names: list[str], asked: list[list[bool]]) -> list[bool]:
    return [diagram.let(dict(zip(names, row, strict=True)), accepted) == diagram.true for row in asked]


def race_diagrams() -> dict[str, dict[str, float]]:
    patterns = drawn(FEW, 1)
    asked = patterns[np.random.default_rng(2).integers(FEW, size=ASKED)].copy()
    asked[np.arange(ASKED), np.arange(ASKED) % NEURONS] ^= True
    asked[::2, 7] ^= True

    def known() -> PatternSet:
        learned = PatternSet(NEURONS)
        learned.add(patterns)
        _ = learned.columns
        return learned

    own_build, learned = processor_time(known, 50)
    own_ask, distances = processor_time(lambda: learned.nearest(asked), 50)
    times = {}
    for name in ("autoref", "cudd"):
        try:
            kind = importlib.import_module(f"dd.{name}").BDD
        except ImportError:
            continue
        build, (diagram, accepted, names) = processor_time(lambda kind=kind: diagram_of(kind, patterns))
        ask, answers = processor_time(
            lambda diagram=diagram, accepted=accepted, names=names: answers_of(diagram, accepted, names, asked.tolist())
        )
        assert answers == (distances <= 1).tolist(), "both must accept the same images"
        ratios = {"ratio build": build / own_build, "ratio ask": ask / own_ask}
        times[name] = {"build": build, "ask": ask, **ratios, "ratio together": (build + ask) / (own_build + own_ask)}
    return {"ours": {"build": own_build, "ask": own_ask}, **times}


def measure_large(count: int) -> dict[str, float]:
    tracemalloc.start()
    learned, part = PatternSet(NEURONS), 20_000
    started = time.perf_counter()
    for start in range(0, count, part):
        learned.add(drawn(min(part, count - start), 10 + start))
    held = len(learned)
    build, peak = time.perf_counter() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    asked = drawn(QUESTIONS, 3)
    seconds, processor = np.empty(QUESTIONS), np.empty(QUESTIONS)
    for row in range(QUESTIONS):
        before = time.perf_counter(), time.thread_time()
        learned.nearest(asked[row : row + 1])
        seconds[row], processor[row] = time.perf_counter() - before[0], time.thread_time() - before[1]
    return {
        "patterns": held,
        "bytes": learned.nbytes,
        "peak bytes": peak,
        "build": build,
        "median": float(np.median(seconds)),
        "p99": float(np.quantile(seconds, 0.99)),
        "p99 processor": float(np.quantile(processor, 0.99)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    misses = []

    diagrams = race_diagrams()
    for name, row in diagrams.items():
        print(f"diagram, {NEURONS} x {FEW}, {name}: {', '.join(f'{what} {value:.3g}' for what, value in row.items())}")
        misses += [
            f"diagram of {name}, {what}: {row[what]:.0f}, not {LEAST_RATIO:.0f}"
            for what in ("ratio together",)
            if row.get(what, LEAST_RATIO) < LEAST_RATIO
        ]
    if len(diagrams) == 1:
        print("diagram: the package dd is not installed, so there is nothing to compare with")

    large = measure_large(options.patterns)
    print(
        f"large: {large['patterns']:,} distinct patterns in {large['bytes'] / 1e6:.1f} MB, "
        f"{large['peak bytes'] / 1e6:.1f} MB at the peak; 99th percentile of a question "
        f"{large['p99'] * 1e3:.2f} ms by the clock (median {large['median'] * 1e3:.2f} ms), "
        f"{large['p99 processor'] * 1e3:.2f} ms of processor time"
    )
    if large["peak bytes"] >= MOST_BYTES:
        misses.append(f"large: {large['peak bytes'] / 1e6:.0f} MB, not under {MOST_BYTES / 1e6:.0f}")
    if large["p99"] > MOST_SECONDS:
        misses.append(f"large: 99th percentile {large['p99'] * 1e3:.2f} ms, not {MOST_SECONDS * 1e3:.0f}")

    for miss in misses:
        print(f"MISSED: {miss}")
    if options.out:
        result = {"diagrams": diagrams, "large": large, "misses": misses}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
