"""Ray with one and with two single-thread workers, and the local executor with two, on the same study of one model.

`python benchmarks/ray_workers.py [--images N] [--rounds N] [--out FILE]` shows drawn images under some shifts to a
small convolutional network and stores all answers, each time from an empty folder. Times are those of the work alone:
a Ray on this machine and its workers are started before, and what that took is printed. The fastest of some rounds
counts, rounds of all three taken in turn. It exits with 1 where two workers are less than 1.6 times as fast as one, or
Ray with two is more than 15 % slower than the local executor with two, or stored parts differ. It needs two free cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from common import CLASSES, SIZE, images
from roadworthy.api import no_progress, prepare
from roadworthy.cluster.executor import SETTINGS
from roadworthy.core.hashing import digest_file
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.local import LocalExecutor
from roadworthy.study import parse_study

SPEEDUP, OVERHEAD = 1.6, 1.15
SHIFTS = ["noise", "fog", "rotation", "blur", "rain"]
WIDTHS = (3, 32, 64, 64)


def network(path: Path) -> Path:
    """Three convolutions with stride 2 but for the first, and one layer for the classes, with drawn weights."""
    rng, nodes, weights, before = np.random.default_rng(0), [], [], "image"
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(WIDTHS)):
        drawn = rng.normal(0, (2 / (9 * inputs)) ** 0.5, (outputs, inputs, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(drawn, f"w{layer}"))
        settings: dict[str, Any] = {"pads": [1] * 4, "strides": [2, 2] if layer else [1, 1]}
        nodes.append(helper.make_node("Conv", [before, f"w{layer}"], [f"c{layer}"], **settings))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        before = f"r{layer}"
    last = rng.normal(0, 0.1, (WIDTHS[-1], CLASSES)).astype(np.float32)
    weights.append(numpy_helper.from_array(last, "last"))
    nodes.append(helper.make_node("GlobalAveragePool", [before], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "last"], ["logits"]))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        weights,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def prepared_study(folder: Path, count: int) -> Any:
    """The study of drawn images, from files, as a cluster needs it."""
    batch = images(count, seed=0).batch(slice(None))
    np.savez(folder / "data.npz", images=batch.images, labels=batch.labels, class_names=[*map(str, range(CLASSES))])
    content = {
        "name": "workers",
        "data": {"test": str(folder / "data.npz")},
        "models": {"network": {"onnx": str(network(folder / "network.onnx"))}},
        "protocols": {"classification": {"shifts": SHIFTS, "levels": [3]}},
    }
    return prepare(parse_study(content, "study"), accept_chance=True, rehearse=False, progress=no_progress)


def timed(run: Callable[[], Any], folder: Path) -> tuple[float, dict[str, str]]:
    """Seconds of a run into an empty folder, and the hash of each part that it stored."""
    shutil.rmtree(folder / "readouts", ignore_errors=True)
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    parts = sorted(folder.glob("readouts/*/*.parquet"))
    return seconds, {str(part.relative_to(folder)): digest_file(part) for part in parts}


def measured(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """The seconds of each way, of the fastest round, and of the start of Ray and its workers."""
    import ray

    from roadworthy.cluster.driver import LOOPBACK, OBJECTS, ClusterExecutor
    from roadworthy.cluster.pool import Pool
    from roadworthy.cluster.shared import graph_digest, marked

    prepared = prepared_study(folder, count)
    graph, stores = prepared.plan.graph(), {name: RunFolder(folder / name) for name in ("ray 1", "ray 2", "local 2")}
    for store in stores.values():
        store.path.mkdir()
    scratch = tempfile.mkdtemp(prefix="rw-", dir="/tmp")
    started, quiet = time.perf_counter(), {"log_to_driver": False, "logging_level": "ERROR"}
    here = {"_temp_dir": scratch, "object_store_memory": OBJECTS, "_node_ip_address": LOOPBACK}
    ray.init(address="local", num_cpus=3, include_dashboard=False, **here, **quiet)
    ray_started, started = time.perf_counter() - started, time.perf_counter()
    pools: dict[str, Pool] = {}
    try:
        with marked(stores["ray 1"]) as one, marked(stores["ray 2"]) as two:
            for number, token in ((1, one), (2, two)):
                task = {"recipe": prepared.recipe(), "folder": str(folder / f"ray {number}"), "token": token}
                resources = {"num_cpus": 1, "num_gpus": 0}
                pools[f"ray {number}"] = pool = Pool(number, task, graph_digest(graph), resources, print)
                pool.gather(number)
            workers_started = time.perf_counter() - started
            ways = {name: ClusterExecutor(pool, no_progress, name) for name, pool in pools.items()}
            ways |= {"local 2": LocalExecutor(2)}
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            stored: dict[str, dict[str, str]] = {}
            for _ in range(rounds):
                for name, way in ways.items():
                    spent, stored[name] = timed(
                        lambda way=way, store=stores[name]: way.run(graph, store), folder / name
                    )
                    seconds[name].append(spent)
    finally:
        for pool in pools.values():
            pool.stop()
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)
    fastest = {name: min(own) for name, own in seconds.items()}
    return {
        "answers": graph.image_cases(),
        "seconds": fastest,
        "speedup": fastest["ray 1"] / fastest["ray 2"],
        "to_local": fastest["ray 2"] / fastest["local 2"],
        "start_of_ray": ray_started,
        "start_of_3_workers": workers_started,
        "same_parts": stored["ray 1"] == stored["ray 2"] == stored["local 2"] and len(stored["local 2"]) > 0,
    }


def main() -> None:
    os.environ.update(SETTINGS)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measured(Path(folder), chosen.images, chosen.rounds)
    for name, seconds in result["seconds"].items():
        print(f"{name}: {seconds:.2f} s, {result['answers'] / seconds:,.0f} answers/s")
    print(f"two workers of Ray are {result['speedup']:.2f} times as fast as one, needed {SPEEDUP}")
    print(f"Ray takes {result['to_local']:.2f} times as long as the local executor, at most {OVERHEAD}")
    start = f"{result['start_of_ray']:.1f} s for Ray, {result['start_of_3_workers']:.1f} s for 3 workers"
    print(f"not in these times, once per run: {start}; same parts: {result['same_parts']}")
    if chosen.out:
        chosen.out.write_text(json.dumps(result, indent=2))
    good = result["speedup"] >= SPEEDUP and result["to_local"] <= OVERHEAD and result["same_parts"]
    raise SystemExit(int(not good))


if __name__ == "__main__":
    main()
