"""How long the viewer takes: a list of 1,000 runs, asked for the first and the second time, and a case that finishes.

    python benchmarks/viewer.py [--runs 1000] [--out result.json]

The runs are copies of a stored one (tests/golden/schema2, a run.json of 61 KB) with names and dates of their own. A
viewer in a process of its own is asked over HTTP; its first answer is the first after it started. Then a study runs in
another process, and the viewer is asked for its page as the page itself would ask, every second: what counts is the
time from the receipt of a case's last part to the answer that names it as finished. Limits: the first list in `FIRST`
seconds, a finished case in `SHOWN`. Exits with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
STORED = ROOT / "tests" / "golden" / "schema2"
FIRST, SHOWN = 1.0, 2.0
"""Seconds: for the first list, and from the end of a case to its row on the page."""
POLL = 1.0
"""Seconds between two questions of a page that shows a running study."""
STUDY = {
    "name": "live",
    "size": "32x32",
    "data": {"test": {"builtin": "signs", "n": 1400}},
    "models": {"demo": {"onnx": str(ROOT / "src" / "roadworthy" / "demo_classifier.onnx")}},
    "protocols": {"classification": {"shifts": ["noise", "fog", "snow", "rain", "blur"], "levels": [1, 2, 3, 4, 5]}},
}
RUN = """
import json, sys
import roadworthy as rw
rw.run(json.loads(sys.argv[1]), out=sys.argv[2], workers=1, progress=rw.no_progress)
"""


def write_runs(folder: Path, count: int) -> int:
    """Copies of a stored run; the size of their records in bytes."""
    record, verdict = (STORED / "run.json").read_text(), (STORED / "verdict.json").read_bytes()
    size = 0
    for number in range(count):
        home = folder / f"group{number % 10}" / f"run{number:05d}"
        home.mkdir(parents=True)
        own = record.replace("golden-schema-2", f"study-{number}")
        size += (home / "run.json").write_text(own)
        (home / "verdict.json").write_bytes(verdict)
    return size


def started(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A viewer of a folder in a process of its own, and its address."""
    command = [sys.executable, "-m", "roadworthy", "serve", str(folder), "--port", "0"]
    viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert viewer.stdout is not None
    return viewer, re.findall(r"http://\S+/", viewer.stdout.readline())[0]


def asked(address: str) -> tuple[float, str]:
    """Seconds that an answer took, and the page."""
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        page = answer.read().decode()
    return time.perf_counter() - began, page


def measure_list(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        size = write_runs(Path(folder), count)
        viewer, address = started(Path(folder))
        try:
            first, page = asked(address)
            assert f"{count:,} runs" in page
            later = [asked(f"{address}?words=study-{number}&sort=name")[0] for number in range(5)]
        finally:
            viewer.terminate()
            viewer.wait()
    return {"runs": count, "record_bytes": size, "first_seconds": first, "later_seconds": statistics.median(later)}


def measure_live() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "live"
        viewer, address = started(Path(folder))
        study = subprocess.Popen([sys.executable, "-c", RUN, json.dumps(STUDY), str(run)])
        shown: dict[str, float] = {}
        ended: dict[str, float] = {}
        page_of_run = ""
        try:
            while study.poll() is None:
                page_of_run = page_of_run or next(iter(re.findall(r'href="/(run/[^"]+)"', asked(address)[1])), "")
                if page_of_run:
                    page = asked(address + page_of_run)[1]
                    finished = re.findall(r'id="finished">(.*?)</table>', page, re.S)
                    named = re.findall(r"<td>(\w+)</td><td class=\"n\">(\d*)</td>", finished[0] if finished else "")
                    for shift, level in named:
                        key = "none-0" if shift == "undisturbed" else f"{shift}-{level}"
                        shown.setdefault(key, time.time())
                for part in run.glob("readouts/*/part-00001.parquet"):  # 1,400 images are two parts
                    ended.setdefault("-".join(part.parent.name.split("-")[:2]), part.stat().st_mtime)
                time.sleep(POLL)
        finally:
            study.kill()
            viewer.terminate()
            viewer.wait()
    waits = [shown[key] - ended[key] for key in shown if key in ended]
    shutil.rmtree(folder, ignore_errors=True)
    return {"cases": len(waits), "median_seconds": statistics.median(waits), "most_seconds": max(waits)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    listed, live = measure_list(given.runs), measure_live()
    print(
        f"{listed['runs']:,} runs ({listed['record_bytes'] / 1e6:.0f} MB of run.json): first list "
        f"{listed['first_seconds']:.2f} s, later ones {listed['later_seconds']:.3f} s"
    )
    print(
        f"{live['cases']} cases of a running study: shown {live['median_seconds']:.2f} s after they finished, "
        f"{live['most_seconds']:.2f} s at most"
    )
    met = listed["first_seconds"] < FIRST and live["most_seconds"] < SHOWN
    if given.out:
        given.out.write_text(json.dumps({"list": listed, "live": live, "met": met}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
