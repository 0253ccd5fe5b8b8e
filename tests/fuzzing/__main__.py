"""Try every reader in a process of its own, with bounded memory, and print what was tried: see `make fuzz`."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzzing.readers import Reader

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "roadworthy"
INPUTS = 5000
MEMORY = 4 * 2**30
"""Bytes of address space that a reader may take beyond what it has when it starts."""
SILENT_SECONDS = 1800
COUNTED = 1000
"""Inputs of a reader for which branches are counted, which takes half as long again; later ones add hardly any."""
SUMMED = ("inputs", "accepted", "refused", "seconds", "covered", "branches")


def main(words: Sequence[str] | None = None) -> int:
    """Parse the words, try the readers they name, print the table; 1 where an input broke the law."""
    options = _parse(words)
    if options.child:
        return _child(options)
    from fuzzing.catalogue import READERS

    seed = options.seed if options.seed is not None else SystemRandom().randrange(2**32)
    chosen = [reader for reader in READERS if not options.reader or any(word in reader.name for word in options.reader)]
    options.keep.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}: the same inputs again with `--seed {seed}`", flush=True)

    def run(reader: Reader) -> dict[str, Any]:
        row = _run_child(reader.name, options, seed, max(1, reader.inputs * options.inputs // INPUTS))
        print("\n".join([_line(row), *(f"  FAILED {failure}" for failure in row["failures"])]), flush=True)
        return row

    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(run, reversed(chosen)))[::-1]  # the slowest, those of runs, first
    print("\n" + "\n".join(table(rows)))
    return 1 if any(row["failures"] for row in rows) else 0


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzzing", description=__doc__)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get("ROADWORTHY_FUZZ", INPUTS)), help="per reader")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one each time")
    parser.add_argument("--reader", action="append", default=[], help="only readers whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="readers tried at once; default: cores")
    parser.add_argument("--only", type=int, default=None, help="this input alone")
    parser.add_argument("--keep", type=Path, default=ROOT / "runs" / "fuzz", help="where inputs that fail are kept")
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _run_child(name: str, options: argparse.Namespace, seed: int, count: int) -> dict[str, Any]:
    """Try a reader in a process of its own; a process that dies is a failure that names the input it died of."""
    row: dict[str, Any] = {"reader": name, **dict.fromkeys(SUMMED, 0), "failures": []}
    command = [sys.executable, "-m", "fuzzing", "--child", name, "--seed", str(seed), "--count", str(count)]
    command += [
        "--keep",
        str(options.keep.absolute()),
        *(["--only", str(options.only)] if options.only is not None else []),
    ]
    started = time.monotonic()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        environment = {**os.environ, "TMPDIR": folder, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{ROOT / 'tests'}"}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        try:
            run = subprocess.run(command, capture_output=True, cwd=folder, env=environment, timeout=SILENT_SECONDS)
            last = run.stdout.decode(errors="replace").strip().rpartition("\n")[2]
            row |= (
                json.loads(last)
                if run.returncode in (0, 1) and last.startswith("{")
                else {
                    "failures": [
                        f"{name}, seed {seed}: the process ended with {run.returncode} at input "
                        f"{_last_input(options.keep, name)}: {run.stderr.decode(errors='replace')[-600:]}"
                    ]
                }
            )
        except subprocess.TimeoutExpired:
            row["failures"] = [f"{name}, seed {seed}: no end at input {_last_input(options.keep, name)}"]
    return row | {"seconds": time.monotonic() - started}


def _last_input(keep: Path, name: str) -> str:
    """Number of the input that a reader was given last."""
    from fuzzing.readers import last_input

    file = last_input(keep, name)
    return file.read_text() if file.exists() else "?"


def _child(options: argparse.Namespace) -> int:
    """Try one reader here: memory is bounded, branches are counted; the last line printed is a row of the table."""
    import coverage

    from fuzzing.catalogue import READERS
    from fuzzing.readers import explore

    reader = next(reader for reader in READERS if reader.name == options.child)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    numbers = range(options.count) if options.only is None else [options.only]
    measured = coverage.Coverage(
        data_file=None, branch=True, include=[str(PACKAGE / pattern) for pattern in reader.code], config_file=False
    )
    bound = _address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    measured.start()
    try:
        tally = explore(reader, folder, _counted(numbers, measured), options.seed, options.keep)
    finally:
        measured.stop()
    covered, branches = _branches(measured)
    counts = {"inputs": tally.accepted + tally.refused, "accepted": tally.accepted, "refused": tally.refused}
    print(json.dumps({**counts, "covered": covered, "branches": branches, "failures": [*tally.failures.values()]}))
    return 1 if tally.failures else 0


def _counted(numbers: Iterable[int], measured: Any) -> Iterator[int]:
    """The numbers of the inputs; branches are no longer counted after the first so many."""
    for position, number in enumerate(numbers):
        if position == COUNTED:
            measured.stop()
        yield number


def _address_space() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _branches(measured: Any) -> tuple[int, int]:
    """Branches that were taken, and all there are."""
    import coverage

    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        try:
            measured.json_report(outfile=file.name)
        except coverage.CoverageException:
            return 0, 0
        totals = json.loads(Path(file.name).read_text())["totals"]
    return totals["covered_branches"], totals["num_branches"]


HEADER = f"{'reader':28}{'inputs':>8}{'accepted':>10}{'refused':>9}{'seconds':>9}{'branches taken':>18}"


def _line(row: dict[str, Any]) -> str:
    share = f"{row['covered']} / {row['branches']} {row['covered'] / max(1, row['branches']):>5.0%}"
    counts = f"{row['inputs']:>8,}{row['accepted']:>10,}{row['refused']:>9,}{row['seconds']:>9.0f}"
    return f"{row['reader']:28}{counts}{share:>18}"


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """All rows and their sum."""
    total = {key: sum(row[key] for row in rows) for key in SUMMED}
    return [HEADER, *map(_line, rows), _line({"reader": f"all {len(rows)}", **total})]


if __name__ == "__main__":
    sys.exit(main())
