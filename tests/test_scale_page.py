"""docs/scale.md says what follows from the stored rates, and the computation obeys its laws."""

from __future__ import annotations

import doctest
import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent


def benchmark(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


cost, scale = benchmark("cost"), benchmark("scale")
RATES = cost.Rates(1000, 500, 0.01, 70, 1e5, 1e9, 1e-4, 1000)
NUMBERS = st.integers(1, 10**6)


def test_the_tables_of_the_page_follow_from_the_stored_rates() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    assert cost.filled(page, cost.read_rates()) == page
    assert cost.filled(page, RATES) != page
    assert cost.Work().answers == 10**11


def test_its_examples() -> None:
    assert doctest.testmod(cost).failed == 0


@given(models=NUMBERS, images=NUMBERS, cores=st.integers(1, 1000))
def test_laws_of_the_cost(models: int, images: int, cores: int) -> None:
    work, machine = cost.Work(models, 3, images), cost.Machines("m", cores, 1)
    prices = cost.Prices(1.0, 0.0, 0.0)
    one = cost.cost(RATES, work, machine, prices)
    twice = cost.cost(RATES, work, replace(machine, cores=2 * cores), prices)
    assert twice.total == pytest.approx(one.total / 2)
    assert twice.money == pytest.approx(one.money)  # as many core hours
    shared = cost.cost(RATES, work, replace(machine, together=10), prices)
    assert shared.shifts == pytest.approx(one.shifts / 10)
    assert shared.inference == one.inference
    assert one.bytes == work.answers * RATES.row_bytes
    assert one.puts == 2 * work.parts + 3 * models
    with_driver = cost.cost(RATES, work, replace(machine, has_driver=True), prices)
    assert with_driver.running == max(one.running, work.parts / RATES.driver_tasks)
    several = cost.cost(RATES, work, replace(machine, has_driver=True, drivers=100), prices)
    assert several.driver == pytest.approx(with_driver.driver / 100)


def test_the_command_takes_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = ["--price-core-hour", "0", "--price-gb-month", "0", "--price-put", "0"]
    cost.main(["--models", "2", "--images", "5000", *free, "--out", str(tmp_path / "cost.json")])
    assert "1,000,000 answers in 1,000 parts" in capsys.readouterr().out
    costs = json.loads((tmp_path / "cost.json").read_text())["costs"]
    assert {own["money"] for own in costs.values()} == {0.0}


def test_the_benchmark_of_size_misses_where_memory_or_time_grows() -> None:
    def size(images: int, peak: float, tables: float) -> dict[str, Any]:
        return {"images": images, "peak": peak, "seconds": {"tables": tables, "verify": images, "report": 1.0}}

    assert scale.judged([size(10_000, 4e8, 1.0), size(200_000, 4.5e8, 20.0)])[1] == []
    assert "exponent 1.2" in scale.judged([size(10_000, 4e8, 1.0), size(200_000, 4e8, 40.0)])[1][0]
    assert "bytes per image" in scale.judged([size(10_000, 4e8, 1.0), size(200_000, 9e8, 20.0)])[1][0]
    assert "1,600 MB" in scale.judged([size(10_000, 1.6e9, 1.0)])[1][0]
