"""What a very large study costs in time, storage and money, computed from rates that were measured on one machine.

    python benchmarks/cost.py [--models 1000] [--shifts 100] [--images 1000000] [--price-core-hour 0.05] ...
    python benchmarks/cost.py --measure --page docs/scale.md

`--measure` takes the rates anew, alone on the machine, and writes them to benchmarks/rates.json; `--page` writes the
tables of docs/scale.md from the stored ones, which a test compares. Prices are yours to give: the defaults are round
figures for an example, and nobody's prices. A model is the reference CNN of the thesis on 64x64 pixels, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RATES = HERE / "rates.json"
HOUR, DAY, GB = 3600.0, 86400.0, 1e9
CHUNK = 1024
BYTES_KEPT = 12
"""Bytes that tables keep per image and case; see `AnswerSummary`."""
PUTS_PER_PART = 2
"""A part and its receipt."""


@dataclass(frozen=True)
class Rates:
    """What was measured on one core (but for the driver, which is one process).

    shifts, inference  images per second;  part_seconds: to store one part of 1,024 rows, receipt included
    row_bytes          of a stored row;  table_rows, verify_bytes: per second, tables with bounds, and hashes of files
    resume_seconds     to look a stored part up at a resume, its hash included
    driver_tasks       tasks per second that one driver hands out and takes back through Ray
    """

    shifts: float
    inference: float
    part_seconds: float
    row_bytes: float
    table_rows: float
    verify_bytes: float
    resume_seconds: float
    driver_tasks: float


@dataclass(frozen=True)
class Work:
    """A study: every model is asked about every image under every shift."""

    models: int = 1000
    shifts: int = 100
    images: int = 1_000_000
    chunk: int = CHUNK

    @property
    def answers(self) -> int:
        """Rows that are stored."""
        return self.models * self.shifts * self.images

    @property
    def parts(self) -> int:
        """Files that hold them."""
        return self.models * self.shifts * math.ceil(self.images / self.chunk)


@dataclass(frozen=True)
class Machines:
    """Where it runs. `together` models share the pixels of a shift; with Ray they are made for each model.

    `drivers` are those of the studies that run at once, each with one of its own.
    """

    name: str
    cores: int
    together: int
    has_driver: bool = False
    drivers: int = 1


@dataclass(frozen=True)
class Prices:
    """What the user pays, in any one currency; the defaults are round figures and no offer of anybody's."""

    core_hour: float = 0.05
    gb_month: float = 0.02
    put: float = 0.000005
    months: float = 1.0


SETTINGS = (
    Machines("laptop, 8 cores", 8, 10),
    Machines("one machine, 64 cores", 64, 100),
    Machines("100 nodes of 32 cores, Ray, one study", 3200, 1, has_driver=True),
    Machines("100 nodes, one study per model, 100 at once", 3200, 1, has_driver=True, drivers=100),
)


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock by step, bytes and objects that are stored, and money.

    `driver` is what the drivers need for their tasks, beside which the cores work: the longer of both counts.
    """

    shifts: float
    inference: float
    storing: float
    tables: float
    verify: float
    driver: float
    bytes: float
    puts: float
    money: float

    @property
    def running(self) -> float:
        """Seconds until every answer is stored."""
        return max(self.shifts + self.inference + self.storing, self.driver)

    @property
    def total(self) -> float:
        """Seconds until tables are made and verified."""
        return self.running + self.tables + self.verify


def cost(rates: Rates, work: Work, machines: Machines, prices: Prices) -> Cost:
    """What the work costs there, all cores busy.

    >>> rates = Rates(1000, 1000, 0.01, 70, 1e6, 1e9, 1e-4, 1000)
    >>> small = cost(rates, Work(1, 1, 1024 * 100), Machines("one core", 1, 1), Prices(1, 0, 0))
    >>> small.shifts, small.storing, round(small.money * 3600, 3) == round(small.total, 3)
    (102.4, 1.0, True)
    """
    answers, stored = work.answers, work.answers * rates.row_bytes
    shifts = answers / machines.together / rates.shifts / machines.cores
    inference = answers / rates.inference / machines.cores
    storing = work.parts * rates.part_seconds / machines.cores
    tables = answers / rates.table_rows / machines.cores
    verify = tables + stored / rates.verify_bytes / machines.cores
    driver = work.parts / rates.driver_tasks / machines.drivers if machines.has_driver else 0.0
    puts = PUTS_PER_PART * work.parts + work.models * work.shifts
    known = Cost(shifts, inference, storing, tables, verify, driver, stored, puts, 0.0)
    money = known.total * machines.cores / HOUR * prices.core_hour
    money += stored / GB * prices.gb_month * prices.months + puts * prices.put
    return Cost(**{**asdict(known), "money": money})


def span(seconds: float) -> str:
    """Seconds as people say them.

    >>> span(90), span(7200), span(86400 * 800)
    ('90 s', '2.0 h', '2.2 years')
    """
    for unit, size in (("years", 365 * DAY), ("days", DAY), ("h", HOUR)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"


def cost_table(rates: Rates, work: Work, prices: Prices) -> str:
    """The costs on every setting, as a table of Markdown."""
    costs = [cost(rates, work, machines, prices) for machines in SETTINGS]
    rows: list[tuple[str, Callable[[Cost], str]]] = [
        ("shifts", lambda own: span(own.shifts)),
        ("inference", lambda own: span(own.inference)),
        ("storing parts", lambda own: span(own.storing)),
        ("tasks of the driver or drivers", lambda own: span(own.driver) if own.driver else "none"),
        ("until all answers are stored", lambda own: span(own.running)),
        ("tables with bounds", lambda own: span(own.tables)),
        ("verify", lambda own: span(own.verify)),
        ("**in all**", lambda own: f"**{span(own.total)}**"),
        ("stored", lambda own: f"{own.bytes / 1e12:,.1f} TB"),
        ("objects written", lambda own: f"{own.puts / 1e6:,.0f} million"),
        ("money, by the example's prices", lambda own: f"{own.money:,.0f}"),
    ]
    lines = [["", *(machines.name for machines in SETTINGS)], ["---"] * (1 + len(SETTINGS))]
    lines += [[title, *map(shown, costs)] for title, shown in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def limits_table(rates: Rates, work: Work) -> str:
    """What grows with the number of parts, for the whole study and for one study per model, and with larger parts."""
    head = ["", "parts", "looking them up at a resume", "one driver's tasks", "memory of its tables"]
    lines = [head, ["---"] * len(head)]
    alone = Work(1, work.shifts, work.images)
    larger = Work(work.models, work.shifts, work.images, 8 * work.chunk)
    named = {"one study of all models": work, "one study per model": alone, "all, with parts of 8,192 rows": larger}
    for title, own in named.items():
        kept = own.models * own.shifts * own.images * BYTES_KEPT
        lines.append(
            [
                title,
                f"{own.parts:,}",
                span(own.parts * rates.resume_seconds),
                span(own.parts / rates.driver_tasks),
                f"{kept / GB:,.1f} GB",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rates_table(rates: Rates) -> str:
    """The stored rates, as a table of Markdown."""
    rows = {
        "shifts per core": f"{rates.shifts:,.0f} images/s",
        "inference per core": f"{rates.inference:,.0f} images/s",
        "storing a part of 1,024 rows, synced": f"{1e3 * rates.part_seconds:,.1f} ms",
        "a stored row": f"{rates.row_bytes:,.0f} bytes",
        "tables with bounds, per core": f"{rates.table_rows:,.0f} rows/s",
        "hashes of files": f"{rates.verify_bytes / 1e6:,.0f} MB/s",
        "looking up a stored part at a resume": f"{1e6 * rates.resume_seconds:,.0f} µs",
        "tasks that one driver hands out through Ray": f"{rates.driver_tasks:,.0f} per second",
    }
    return "\n".join(["| rate | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def read_rates(path: Path = RATES) -> Rates:
    """The rates that are stored."""
    known = json.loads(path.read_text())["rates"]
    return Rates(**{field.name: float(known[field.name]) for field in fields(Rates)})


def filled(page: str, rates: Rates) -> str:
    """The page with its tables made from the rates; each stands between two marks that name it."""
    tables = {
        "rates": rates_table(rates),
        "cost": cost_table(rates, Work(), Prices()),
        "limits": limits_table(rates, Work()),
    }
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


# ------------------------------------------------------------------------------------------------------------ measuring


def measure() -> Rates:
    """The rates of this machine, each on one core."""
    import numpy as np
    import torch

    from chain import SIZE, session
    from roadworthy.core.hashing import digest_file
    from roadworthy.core.manifests import counted_parts, drop_damaged, own_node
    from roadworthy.core.random import Streams
    from roadworthy.core.types import Batch
    from roadworthy.engine.readouts import part_path, write_part
    from roadworthy.models.networks import export_onnx, thesis_cnn
    from roadworthy.shifts import THESIS_SHIFTS, make_shift

    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (CHUNK, SIZE, SIZE, 3), dtype=np.uint8)
    labels, ids = generator.integers(0, 14, CHUNK), tuple(f"image-{row}" for row in range(CHUNK))
    batch = Batch(ids, pixels, labels)
    shifts = [make_shift(name, 3) for name in THESIS_SHIFTS]
    shift_seconds = [_seconds(partial(shift, batch, Streams("cost", 0))) for shift in shifts]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        export_onnx(thesis_cnn(14, SIZE), folder / "cnn.onnx", SIZE)
        ready, model = generator.random((64, 3, SIZE, SIZE), dtype=np.float32), session(folder / "cnn.onnx", 1)
        inference = _seconds(lambda: model.run(None, {"image": ready}), 20)
        answer = {"probabilities": generator.dirichlet(np.ones(14), CHUNK).astype(np.float32)}
        parts, home = 200, folder / "case"
        started = time.perf_counter()
        for chunk in range(parts):
            write_part(home, chunk, batch, answer)
        part_seconds = (time.perf_counter() - started) / parts
        size = sum(part_path(home, chunk).stat().st_size for chunk in range(parts))
        hashing = _seconds(lambda: [digest_file(part_path(home, chunk)) for chunk in range(parts)])
        resume = _seconds(lambda: (drop_damaged(home, own_node(home)), counted_parts(home)), 1)
    return Rates(
        shifts=CHUNK * len(shifts) / sum(shift_seconds),
        inference=64 / inference,
        part_seconds=part_seconds,
        row_bytes=size / parts / CHUNK,
        table_rows=_table_rows(),
        verify_bytes=size / hashing,
        resume_seconds=resume / parts,
        driver_tasks=_driver_tasks(),
    )


def _seconds(work: Callable[[], Any], times: int = 3) -> float:
    from common import best_of

    work()
    return best_of(work, times)


def _table_rows(images: int = 50_000) -> float:
    """Rows per second of tables with bounds, from a run of benchmarks/scale.py."""
    from scale import CASES, measured_apart

    return CASES * images / float(measured_apart(images)["seconds"]["tables"])


DRIVER = """
import sys, time, ray
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False,
         _node_ip_address="127.0.0.2")
@ray.remote(num_cpus=1)
class Worker:
    def work(self, number): return number
worker = Worker.remote()
ray.get(worker.work.remote(0))
started, waiting, done = time.perf_counter(), [], 0
while done < 2000:
    while len(waiting) < 8 and done + len(waiting) < 2000:
        waiting.append(worker.work.remote(done))
    ready, waiting = ray.wait(waiting)
    done += len(ready)
print(2000 / (time.perf_counter() - started))
"""


def _driver_tasks() -> float:
    """Tasks per second that a driver hands to one actor and takes back, eight in flight, with empty work."""
    done = subprocess.run([sys.executable, "-c", DRIVER], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    return float(done.stdout.split()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in fields(Work)[:3]:
        parser.add_argument(f"--{option.name}", type=int, default=option.default)
    for price in fields(Prices):
        name = price.name if price.name == "months" else f"price-{price.name.replace('_', '-')}"
        parser.add_argument(f"--{name}", type=float, default=price.default, dest=price.name)
    parser.add_argument("--measure", action="store_true", help="take the rates anew")
    parser.add_argument("--rates", type=Path, default=RATES)
    parser.add_argument("--page", type=Path, help="write the tables of this page")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if given.measure:
        taken = {"cores": os.cpu_count(), "rates": asdict(measure())}
        given.rates.write_text(json.dumps(taken, indent=1) + "\n")
    rates = read_rates(given.rates)
    if given.page:
        given.page.write_text(filled(given.page.read_text(), rates))
    work = Work(given.models, given.shifts, given.images)
    prices = Prices(given.core_hour, given.gb_month, given.put, given.months)
    print(f"{work.answers:,} answers in {work.parts:,} parts\n")
    print(cost_table(rates, work, prices), limits_table(rates, work), sep="\n\n")
    if given.out:
        costs = {machines.name: asdict(cost(rates, work, machines, prices)) for machines in SETTINGS}
        given.out.write_text(json.dumps({"rates": asdict(rates), "costs": costs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
