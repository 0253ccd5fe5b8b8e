"""What a monitor costs: times by turns, from stored raw times; memory in processes of their own; two machines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pandas as pd
import pytest

import roadworthy as rw
from roadworthy.core.errors import InputError
from roadworthy.core.resident import peak_resident
from roadworthy.demo import CLASSIFIER
from roadworthy.engine.provenance import machine
from roadworthy.monitors import make_monitor
from roadworthy.monitors.conformance import ToyModel
from roadworthy.monitors.guard import Guard
from roadworthy.monitors.id_threshold import IdRule
from roadworthy.monitors.resident import guard_task, measured, measured_file
from roadworthy.protocols.monitoring import live
from roadworthy.protocols.monitoring.costs import Costs, time_rows
from roadworthy.protocols.monitoring.names import FORMS
from roadworthy.protocols.monitoring.table_specs import TIMES, TIMING
from roadworthy.protocols.stopwatch import BLOCK, WARMING, seconds_in_turns
from roadworthy.stored import Run

TIMED = ("timing_monitoring", "timing_monitoring_images")


def study(**settings: Any) -> dict[str, Any]:
    return {
        "name": "cost",
        "size": 32,
        "data": {
            "test": {"builtin": "signs", "n": 112},
            "train": {"builtin": "signs", "split": "train", "n": 70},
        },
        "models": {"net": {"onnx": str(CLASSIFIER)}},
        "monitors": {"msp": {}, "mahalanobis": {}, "random": {}},
        "protocols": {
            "monitoring": {
                "benchmarks": {"noise": {"kind": "noise", "shift": "noise", "level": 3}},
                "resamples": 100,
                "timed_images": 400,
                "memory": False,
                **settings,
            }
        },
        "criteria": [
            {"id": "T-1", "metric": "seconds_p99", "where": {"monitor": "msp"}, "at_most": 60},
            {"id": "T-2", "metric": "seconds_median", "where": {"monitor": "msp", "form": "exported"}, "at_most": 1e-9},
        ],
    }


def drawn_seconds(decides: Any, images: int, number: int, most_seconds: float) -> dict[Any, Any]:
    """Every system decides once; its times are drawn, so that no test depends on what else this machine does."""
    random = np.random.default_rng(0)
    for decide in decides.values():
        decide(images - 1)
    return {key: (0.001 + random.exponential(0.0002, number)).tolist() for key in decides}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with mock.patch.object(live, "seconds_in_turns", drawn_seconds):
        yield rw.run_study(study(), out=tmp_path_factory.mktemp("cost") / "run", progress=rw.no_progress)


def row(run: Run, monitor: str, form: str = "guard") -> pd.Series:
    return run.tables[TIMING.name].set_index(["monitor", "form"]).loc[monitor, form]


def test_everything_follows_from_the_stored_times_of_each_image(run: Run) -> None:
    times = run.tables[TIMES.name].set_index(["monitor", "form"])
    for monitor in ("none", "msp", "mahalanobis"):
        for form in ("guard", "exported"):
            own, stored = times.loc[(monitor, form), :].sort_values("turn"), row(run, monitor, form)
            seconds = own["seconds"].to_numpy()
            assert stored["images"] == len(seconds) == 400
            assert own["image"].tolist() == [turn % 67 for turn in range(400)], "the 67 test images, shown again"
            assert stored["different"] == 67
            values = np.quantile(seconds, [0.5, 0.95, 0.99])
            assert stored[["median", "p95", "p99"]].tolist() == pytest.approx(values.tolist())
            if monitor != "none":
                alone = times.loc[("none", form), :].sort_values("turn")["seconds"].to_numpy()
                assert stored["extra"] == pytest.approx(np.median(seconds - alone))
                assert stored["overhead_median"] == pytest.approx(values[0] / np.median(alone))
            assert stored["machine"] == machine()
            assert stored["measured"].startswith("20")
    assert "draws a number" in row(run, "random", "exported")["reason"]
    assert run.verify() == []


def changed(run: Run, folder: Path, name: str, change: Any) -> Run:
    """A copy whose table is another, recorded as if it had been so from the start."""
    copy = Run(shutil.copytree(run.path, folder / name))
    copy.folder.write_table(name, change(copy.folder.table(name)))
    copy.folder.update_record([f"tables/{name}.{ending}" for ending in ("csv", "parquet")])
    return copy


@pytest.mark.parametrize(("name", "column"), [(TIMED[0], "p99"), (TIMED[0], "median_hi"), (TIMED[1], "seconds")])
def test_verify_finds_times_that_were_made_up(run: Run, name: str, column: str, tmp_path: Path) -> None:
    copy = changed(run, tmp_path, name, lambda table: table.assign(**{column: 0.5 * table[column]}))
    assert copy.verify()[0] == "table timing_monitoring does not follow from the readouts"


def test_criteria_are_judged_from_the_stored_times(run: Run, tmp_path: Path) -> None:
    findings = {finding.criterion.id: finding for finding in run.verdict().findings}
    assert [findings[name].status for name in ("T-1", "T-2")] == ["pass", "fail"]
    measured_there = findings["T-2"].rows[0].measurement
    assert measured_there.estimate.value == row(run, "msp", "exported")["median"]
    assert measured_there.unit == "timed images"
    slow = changed(run, tmp_path, TIMED[1], lambda table: table.assign(seconds=table["seconds"] + 100))
    assert {finding.criterion.id: finding.status for finding in slow.verdict().findings}["T-1"] == "fail"
    few = changed(run, tmp_path / "few", TIMED[1], lambda table: table[table["turn"] < 300])
    short = few.verdict([{"id": "T", "metric": "seconds_p99", "where": {"monitor": "msp"}, "at_most": 60}])
    assert short.status == "inconclusive"
    assert "368 values, not 300" in short.findings[0].rows[0].measurement.estimate.reason
    for metric, at_most in (("resident_bytes", 1), ("overhead_median", 2)):
        with pytest.raises(InputError, match=r"is measured once, .* read it in the table timing_monitoring"):
            run.verdict([{"id": "T", "metric": metric, "at_most": at_most}])


def test_compare_takes_times_of_one_machine_and_refuses_others(run: Run, tmp_path: Path) -> None:
    slower = changed(run, tmp_path, TIMED[1], lambda table: table.assign(seconds=3 * table["seconds"] + 0.1))
    table = rw.compare([run, slower], metrics=["seconds_median"]).set_index("condition")
    assert set(table.index) == {f"{m}: {f}" for m in ("none", "msp", "mahalanobis", "random") for f in FORMS} - {
        "random: exported"
    }
    assert set(table["result"]) == {"regression"}
    first = table.loc["msp: guard"]
    assert first["lo"] <= first["change"] == pytest.approx(first["after"] - first["before"])
    assert first["change"] <= first["hi"]
    same = rw.compare([run, run], metrics=["seconds_median", "extra_seconds"])
    assert set(same["result"]) == {"no clear difference"}
    other = changed(run, tmp_path / "other", TIMED[0], lambda table: table.assign(machine="Abacus, 1 core, Linux x"))
    refused = rw.compare([run, other], metrics=["seconds_p95"])
    assert set(refused["result"]) == {"not compared"}
    assert refused["reason"].str.contains("timed on another machine .*; Abacus, 1 core, Linux x.: time both").all()
    with pytest.raises(InputError, match="times are not judged against a baseline"):
        run.verdict(
            [{"id": "T", "metric": "seconds_p95", "at_most": 1.0, "against": "baseline", "where": {"monitor": "msp"}}],
            baseline=run,
        )


def test_times_of_an_earlier_run_say_where_and_when_they_were_taken(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, content = shutil.copytree(run.path, tmp_path / "run"), study()
    monkeypatch.setattr(live, "machine", lambda: "Abacus")
    content["protocols"]["monitoring"]["threshold"] = {"rejected": 0.2}
    again = rw.run_study(content, out=folder, progress=rw.no_progress)
    for name in TIMED:
        pd.testing.assert_frame_equal(again.tables[name], run.tables[name])
    content["monitors"]["energy"] = {}
    anew = rw.run_study(content, out=folder, progress=rw.no_progress)
    assert set(anew.tables[TIMING.name]["machine"]) == {"Abacus"}, "all are timed side by side, or none"
    content["protocols"]["monitoring"]["timed_images"] = 0
    none = rw.run_study(content | {"criteria": None}, out=folder, progress=rw.no_progress)
    assert not {*TIMED} & {*none.tables}
    assert none.verify() == []


def test_systems_take_turns_in_blocks_after_images_that_do_not_count() -> None:
    asked: list[tuple[str, int]] = []
    decides = {name: (lambda number, name=name: asked.append((name, number))) for name in "abc"}
    seconds = seconds_in_turns(decides, 30, 120, 60.0)
    assert {name: len(own) for name, own in seconds.items()} == {"a": 120, "b": 120, "c": 120}
    blocks = [asked[start : start + WARMING + BLOCK] for start in range(0, 6 * (WARMING + BLOCK), WARMING + BLOCK)]
    assert all(len({name for name, _ in block}) == 1 for block in blocks)
    assert [number for _, number in blocks[0]] == [*range(WARMING), *range(30), *range(20)]
    orders = ["".join(block[0][0] for block in blocks[start : start + 3]) for start in (0, 3)]
    assert sorted(orders[0]) == sorted(orders[1]) == ["a", "b", "c"]
    assert orders[0] != orders[1]


def test_one_that_is_slow_gets_fewer_images_and_one_that_fails_none() -> None:
    def fail(number: int) -> None:
        raise InputError("no answer")

    slow = lambda number: sum(range(200_000))  # noqa: E731
    seconds = seconds_in_turns({"quick": lambda number: None, "slow": slow, "broken": fail}, 5, 200, 0.02)
    assert len(seconds["quick"]) == 200
    assert 1 <= len(seconds["slow"]) < 100
    assert sum(seconds["slow"]) > 0.02
    assert seconds["broken"] == "no answer"


def test_extra_time_is_of_the_same_turns_where_one_stopped_early() -> None:
    common = dict.fromkeys(("state_bytes", "resident_bytes", "machine", "measured", "asked", "system"), 0.0)
    facts = TIMING.frame(
        {"model": "m", "monitor": name, "form": "guard", **common, "reason": "", "no_memory": ""}
        for name in ("none", "x", "broken")
    )
    seconds = {"none": [1.0, 5.0] * 200, "x": [2.0, 6.0] * 100}
    rows = [row for name, own in seconds.items() for row in time_rows(("m", name, "guard"), own, 2)]
    facts.loc[2, "reason"] = "it broke"
    costs = Costs.of_tables(facts, TIMES.frame(rows))
    table = costs.frame().set_index("monitor")
    assert table.loc["x", ["images", "different", "extra", "extra_lo", "extra_hi"]].tolist() == [200, 2, 1.0] + 2 * [
        pytest.approx(float("nan"), nan_ok=True)
    ], "fewer than five blocks"
    assert table.loc["broken", "reason"] == "it broke"
    assert costs.estimate(("m", "broken", "guard"), "seconds_p95").reason == "not timed: it broke"
    assert costs.estimate(("m", "gone", "guard"), "seconds_p95").reason == "not timed in this run"
    assert Costs.of_tables(facts.drop(columns="form"), pd.DataFrame()).facts == {}, "a run of an earlier version"


def network(file: Path, hidden: int) -> Path:
    """A linear network on 8x8 images with so many hidden units."""
    random = np.random.default_rng(0)
    weights = [random.normal(size=size).astype(np.float32) / 99 for size in ((192, hidden), (hidden, 4))]
    nodes = [
        onnx.helper.make_node("Flatten", ["images"], ["pixels"]),
        onnx.helper.make_node("Cast", ["pixels"], ["floats"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("MatMul", ["floats", "w0"], ["hidden"]),
        onnx.helper.make_node("MatMul", ["hidden", "w1"], ["logits"]),
    ]
    image = onnx.helper.make_tensor_value_info("images", onnx.TensorProto.UINT8, ["N", 8, 8, 3])
    logits = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", 4])
    constants = [onnx.numpy_helper.from_array(own, f"w{number}") for number, own in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, "linear", [image], [logits], constants)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(proto.SerializeToString())
    return file


def test_the_memory_of_a_process_of_its_own_counts_what_onnx_runtime_allocates(tmp_path: Path) -> None:
    """50,000 hidden units hold 39 MB of weights, which tracemalloc does not see; this process is not counted."""
    held = np.ones(12_000_000)
    np.save(tmp_path / "images.npy", np.zeros((3, 8, 8, 3), np.uint8))
    small, large = (
        measured_file(network(tmp_path / f"{hidden}.onnx", hidden), tmp_path / "images.npy") for hidden in (8, 50_000)
    )
    assert 35e6 < large - small < 200e6
    assert small < held.nbytes < peak_resident()
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match=r"memory was not measured: .*broken"):
        measured_file(tmp_path / "broken.onnx", tmp_path / "images.npy")


def test_a_guard_is_opened_again_in_another_process_or_has_no_figure(tmp_path: Path) -> None:
    train = rw.open_dataset({"builtin": "signs", "split": "train", "n": 70}, size=32)
    signs = rw.open_dataset({"builtin": "signs", "n": 56}, size=32)
    guard = Guard.make(str(CLASSIFIER), make_monitor("mahalanobis"), train, signs, IdRule("smallest"))
    images = signs.batch(slice(0, 2)).images
    assert 2e7 < measured(guard_task(guard.model, guard, tmp_path, images)) < 2e9
    with pytest.raises(InputError, match="cannot be opened in another process"):
        guard_task(ToyModel(), None, tmp_path, images)


def test_memory_and_its_reasons_stand_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(live, "measured", lambda task: told.append(task) or 100 + 50 * ("monitor" in task))
    monkeypatch.setattr(live, "measured_file", lambda file, images: 10 + 5 * (file.name == "monitor.onnx"))
    content = study(memory=True, timed_images=1)
    table = rw.run_study(content | {"criteria": None}, out=tmp_path / "run", progress=rw.no_progress).tables[
        TIMING.name
    ]
    found = table.set_index(["monitor", "form"])[["resident_bytes", "extra_resident_bytes"]]
    assert found.loc[("mahalanobis", "guard")].tolist() == [150, 50]
    assert found.loc[("mahalanobis", "exported")].tolist() == [15, 5]
    assert found.loc[("none", "guard"), "resident_bytes"] == 100
    assert len(told) == len({task["images"] for task in told})
