"""What an installation takes: megabytes of each library of the core, and the time of `import roadworthy`.

    python benchmarks/installation.py [--out FILE.json] [--extra NAME]... [--page docs/install.md]

A library's figure is its own files and those of packages that come with it alone. `--page` writes the page's table. The
import is compared with that of numpy alone in the same run; the limit is 0.3 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LIMIT, ROUNDS = 0.3, 7
START, END = "<!-- sizes: benchmarks/installation.py --page -->", "<!-- end of sizes -->"
PURPOSES = {
    "pyarrow": "readouts and tables: Parquet files in bounded memory",
    "opencv-python-headless": "the pixels of all shifts; resizing; 16-bit pictures",
    "scipy": "bounds, tests and distributions; distances of monitors",
    "pandas": "tables that you read, CSV",
    "numpy": "arrays; the base of all of these",
    "onnxruntime": "runs ONNX models",
    "onnx": "reads the graph of a model: inputs, outputs, files beside it, what its last step is",
    "pillow": "decodes pictures: orientation, colour modes, broken files",
    "pydantic": "checks studies, criteria and records",
    "rich": "progress bars (typer needs it too)",
    "typer": "the command line",
    "pyyaml": "studies and criteria",
    "joblib": "the hash of an object in memory that a model of yours reads",
    "jinja2": "the report",
    "threadpoolctl": "the same number of threads for monitors everywhere, so the same bits",
    "packaging": "versions, for `doctor`",
    "filelock": "one writer per run",
}
"""What each library of the core is for."""
SHARED = "what several need"


def bytes_of(name: str) -> int:
    """The size of the files that a package installed."""
    files = distribution(name).files or []
    paths = [Path(str(file.locate())) for file in files]
    return sum(path.stat().st_size for path in paths if path.is_file())


def closure(name: str) -> set[str]:
    """A package and all that it needs here."""
    seen: set[str] = set()
    waiting = [canonicalize_name(name)]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        try:
            needed = distribution(current).requires or []
        except PackageNotFoundError:  # needed on another platform, or not installed
            continue
        seen.add(current)
        requirements = [Requirement(text) for text in needed]
        waiting += [
            canonicalize_name(item.name)
            for item in requirements
            if item.marker is None or item.marker.evaluate({"extra": ""})
        ]
    return seen


def requirements_of(part: str) -> list[str]:
    """The names of what pyproject.toml asks for: those of the core for '', or of an extra."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = project["optional-dependencies"][part] if part else project["dependencies"]
    return [canonicalize_name(Requirement(text).name) for text in texts]


def sizes(part: str = "") -> dict[str, float]:
    """Megabytes of each library of the core, or those that an extra adds: its own and what comes with it alone."""
    names = requirements_of(part)
    of_others = set().union(*map(closure, requirements_of(""))) if part else set()
    taken = {name: closure(name) - of_others for name in names}
    result = {}
    for name in names:
        elsewhere = {*names, *of_others}.union(*(taken[other] for other in names if other != name)) - {name}
        result[name] = sum(map(bytes_of, {name} | (taken[name] - elsewhere))) / 1e6 if taken[name] else 0.0
    shared = set().union(*taken.values()) - {*names}
    shared = {name for name in shared if sum(name in taken[other] for other in names) > 1}
    result[SHARED] = sum(map(bytes_of, shared)) / 1e6
    return dict(sorted(result.items(), key=lambda item: -item[1]))


def import_seconds(code: str) -> float:
    """Processor seconds of some imports in a new process, so that a busy machine counts less; the fastest round."""
    program = f"import time; start = time.process_time(); {code}; print(time.process_time() - start)"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(ROUNDS)
    ]
    return min(map(float, runs))


def help_seconds() -> float:
    """Seconds of `roadworthy --help`, the start of Python included."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "roadworthy", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def table(core: dict[str, float]) -> str:
    """The table of the page."""
    purposes = {**PURPOSES, SHARED: "protobuf, Pygments, the core of pydantic and the like"}
    rows = [f"| {name} | {size:,.0f} | {purposes[name]} |" for name, size in core.items() if size >= 0.5]
    small = [name for name, size in core.items() if size < 0.5 and name in PURPOSES]
    rows += [f"| {name} | < 1 | {PURPOSES[name]} |" for name in small]
    head = ["| library | MB | what for |", "|---|---|---|"]
    return "\n".join([START, *head, *rows, f"| **all** | **{sum(core.values()):,.0f}** | |", END])


def main() -> int:
    """Print the figures, and write what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="Write the figures as JSON.")
    parser.add_argument("--extra", action="append", default=[], help="Measure what an extra adds, too.")
    parser.add_argument("--page", type=Path, help="Write the table of sizes into this page.")
    arguments = parser.parse_args()
    core = sizes()
    imports = {"roadworthy": import_seconds("import roadworthy"), "numpy": import_seconds("import numpy")}
    facts: dict[str, Any] = {
        "core_mb": {name: round(size, 1) for name, size in core.items()},
        "total_mb": round(sum(core.values()), 1),
        "extras_mb": {name: round(sum(sizes(name).values()), 1) for name in arguments.extra},
        "import_seconds": {name: round(seconds, 3) for name, seconds in imports.items()},
        "import_to_numpy": round(imports["roadworthy"] / imports["numpy"], 2),
        "help_seconds": round(help_seconds(), 3),
    }
    print(json.dumps(facts, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
    if arguments.page:
        before, _, rest = arguments.page.read_text().partition(START)
        arguments.page.write_text(before + table(core) + rest.partition(END)[2])
    return int(imports["roadworthy"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
