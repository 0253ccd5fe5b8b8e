"""Does a long stream of images need more memory? At deployment, and in a whole benchmark of monitors.

    python benchmarks/monitoring_stream.py [--images 100000] [--out result.json]

guard      model, monitor and the two tests on the assumption look at one image after the other, and the measures of the
           stream are counted on the way. Target: the resident memory after all images is at most 1.02 times that after
           the first thousand
protocol   drawn signs, a shipped ONNX classifier and three monitors: opening, readouts, thresholds, streams, tables
           with bounds and the report; a process of its own per length. The rows of a run (ids, objects, answers) grow
           with it, the images are never held. Target: at most 2 kB for every further image, of 12 kB of pixels each

Exits with 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from roadworthy.core.resident import peak_resident

FIRST = 1000
MOST_GROWTH, MOST_BYTES = 1.02, 2000.0


def run_stream(images: int) -> dict[str, float]:
    """A benchmark of so many images, half of them with pixel faults: seconds and peak bytes of this process."""
    from roadworthy.api import execute, no_progress, prepare
    from roadworthy.demo import CLASSIFIER
    from roadworthy.study import parse_study

    study = {
        "data": {"test": {"builtin": "signs", "n": images}},
        "models": {"demo": {"onnx": str(CLASSIFIER)}},
        "outliers": {"scenery": {"builtin": "scenery", "n": 16}},
        "monitors": {"msp": {}, "energy": {}, "random": {}},
        "protocols": {
            "monitoring": {
                "limit": None,
                "benchmarks": {"pixel_faults": {"kind": "noise", "shift": "sensor_pixel_faults", "level": 3}},
                "resamples": 100,
                "timed_images": 0,
            }
        },
    }
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        execute(prepare(parse_study(study, "benchmark")), Path(folder) / "run", progress=no_progress)
    return {"images": images, "seconds": time.perf_counter() - started, "peak_bytes": peak_resident()}


def measured(images: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", str(images)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def resident_bytes() -> int:
    """The memory of this process that is resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def guard_stream(images: int) -> dict[str, float]:
    """Drawn signs and noise in turns, shown to a guard one by one: resident bytes after the first and after all."""
    import roadworthy as rw
    from roadworthy.demo import CLASSIFIER
    from roadworthy.statistics.exchangeability import ExchangeabilityMartingale, RejectionRateTest

    signs = rw.open_dataset({"builtin": "signs", "n": 700}, size=32)
    guard = rw.Guard.make(str(CLASSIFIER), "msp", None, signs, rw.IdRule("conformal"))
    shown = signs.batch(slice(0, 64)).images
    martingale, rate = ExchangeabilityMartingale(level=0.01), RejectionRateTest(rejected=0.05, level=0.01)
    random, rejected, first = np.random.default_rng(0), np.zeros(2, np.int64), 0
    started = time.perf_counter()
    for number in range(images):
        is_ood = number % 2
        image = random.integers(0, 256, shown[0].shape, np.uint8) if is_ood else shown[number // 2 % len(shown)]
        decision = guard.check(image)
        rejected[is_ood] += not decision.accept
        martingale.update(decision.score)
        rate.update(not decision.accept)
        if number + 1 == FIRST:
            first = resident_bytes()
    seconds = time.perf_counter() - started
    shares = {"rejected_id": float(rejected[0] / (images / 2)), "rejected_ood": float(rejected[1] / (images / 2))}
    return {"images": images, "seconds": seconds, "first_bytes": first, "last_bytes": resident_bytes(), **shares}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(run_stream(arguments.one)))
        return
    guard = guard_stream(arguments.images)
    growth = guard["last_bytes"] / guard["first_bytes"]
    rate = guard["images"] / guard["seconds"]
    print(f"guard: {guard['images']:,} images one by one, {rate:,.0f}/s, {growth:.3f} times the memory at the end")
    short, long = measured(arguments.images // 10), measured(arguments.images)
    added = (long["peak_bytes"] - short["peak_bytes"]) / (long["images"] - short["images"])
    for stream in (short, long):
        rate, peak = stream["images"] / stream["seconds"], stream["peak_bytes"] / 2**20
        print(f"protocol: {stream['images']:,.0f} images, {peak:.0f} MiB at most, {rate:,.0f} images/s")
    print(f"protocol: {added:,.0f} bytes for every further image")
    is_met = growth <= MOST_GROWTH and added <= MOST_BYTES
    if arguments.out:
        result = {"guard": guard, "growth": growth, "short": short, "long": long, "bytes_per_image": added}
        arguments.out.write_text(json.dumps({**result, "is_met": is_met}, indent=2))
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
