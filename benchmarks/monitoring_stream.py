"""Does a long stream of images need more memory? A whole benchmark of monitors, ten times as long, in the same run.

    python benchmarks/monitoring_stream.py [--images 100000] [--out result.json]

Each length is a process of its own: opening and fingerprinting drawn signs, a shipped ONNX classifier and three
monitors shown every image of both sides, readouts, thresholds, streams, tables with bounds and the report. Compared is
the peak of resident memory. Target: a stream ten times as long needs at most 1.25 times the memory. Exits with 1 where
it is missed.
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

TARGET = 1.25


def run_stream(images: int) -> dict[str, float]:
    """A stream of so many images, half of them with pixel faults: seconds and peak bytes of this process."""
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
            }
        },
    }
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        execute(prepare(parse_study(study, "benchmark")), Path(folder) / "run", progress=no_progress)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"images": images, "seconds": time.perf_counter() - started, "peak_bytes": peak}


def measured(images: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", str(images)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--one", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(run_stream(arguments.one)))
        return
    short, long = measured(arguments.images // 10), measured(arguments.images)
    ratio = long["peak_bytes"] / short["peak_bytes"]
    result = {"short": short, "long": long, "memory_ratio": ratio, "target": TARGET, "met": ratio <= TARGET}
    for stream in (short, long):
        rate = stream["images"] / stream["seconds"]
        print(
            f"{stream['images']:>8,.0f} images: {stream['peak_bytes'] / 2**20:7.0f} MiB at most, {rate:,.0f} images/s"
        )
    print(f"memory: {ratio:.2f} times for a stream ten times as long (target {TARGET})")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2))
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
