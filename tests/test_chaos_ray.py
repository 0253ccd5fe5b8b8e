"""Every protocol on a Ray cluster of three nodes that loses a node, its head or the command: the same tables."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from roadworthy.cluster.executor import SETTINGS
from roadworthy.core.errors import ClusterLost

pytestmark = pytest.mark.chaos

NODE: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.2", "object_store_memory": 80 * 2**20}
LOST_AFTER = 5
"""Seconds without its head after which Ray ends a driver; 60 unless it is told."""
LONGEST = 600
STUDY = Path(__file__).parent.parent / "studies" / "everything-builtin.yaml"


def reduced(folder: Path) -> Path:
    """The study with fewer images, monitors and shifts and short trainings."""
    study = yaml.safe_load(STUDY.read_text())
    study["size"] = 16
    study["data"] = {"train": {"builtin": "signs", "split": "train", "n": 350}, "test": {"builtin": "signs", "n": 140}}
    small = {"epochs": 1, "width": 4, "hidden": 8, "threads": 1}
    study["models"] = {
        "first": {"reference": "baseline", **small},
        "second": {"reference": "baseline", "seed": 1, **small},
    }
    study["outliers"] = {"scenery": {"builtin": "scenery", "n": 70}}
    study["monitors"] = ["msp", "kl_matching", "mahalanobis", "deep_knn"]
    protocols = study["protocols"]
    protocols["classification"] = {"shifts": ["noise", "fog", "rotation"], "levels": [1, 5]}
    protocols["ood"] = {"sets": ["uniform_noise", "scenery", "swirl"], "transformed": ["fog"]}
    protocols["od_test"] = {"limit": 60}
    shifted = {"kind": "distributional_shift", "shift": "fog"}
    protocols["monitoring"] = {"limit": 30, "resamples": 100, "timed_images": 0, "benchmarks": {"fog": shifted}}
    protocols["localization"] = {"sets": {"fog": {"shift": "fog"}}, "resamples": 100, "timed_images": 0}
    protocols["dependability"] |= {"loss_images": 28, "occlusion": {"patch": 8, "stride": 8, "images": 28}}
    study["criteria"] = study["criteria"][:1]
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


@contextmanager
def running_cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ.update(SETTINGS)
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


def started(study: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "roadworthy", "run", str(study), "--out", str(out), "--accept-chance", *words]
    env = os.environ | {"RAY_gcs_rpc_server_reconnect_timeout_s": str(LOST_AFTER)}
    return subprocess.Popen(command, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)


def ended(command: subprocess.Popen[str]) -> tuple[int, str]:
    errors = command.communicate(timeout=LONGEST)[1]
    return command.returncode, errors


def finished(study: Path, out: Path, *words: str) -> None:
    code, errors = ended(started(study, out, *words))
    assert code in (0, 1, 3), errors


def tables(out: Path) -> dict[str, bytes]:
    files = [*out.glob("tables/*"), *out.glob("readouts/*/*.parquet"), out / "verdict.json"]
    named = {str(file.relative_to(out)): file.read_bytes() for file in files}
    return {name: content for name, content in named.items() if "timing_" not in name}


def after_some_parts(out: Path, parts: int, strike: Callable[[], Any]) -> None:
    """Strike when so many parts are stored."""
    until = time.monotonic() + LONGEST
    while len([*out.glob("readouts/*/part-*.parquet")]) < parts:
        assert time.monotonic() < until
        time.sleep(0.02)
    strike()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes], int]:
    """The study, what the local executor makes of it, and after how many parts to strike."""
    folder = tmp_path_factory.mktemp("whole")
    study = reduced(folder)
    finished(study, folder / "run", "--workers", "2")
    expected = tables(folder / "run")
    assert len(expected) > 60
    seed = int(os.environ.get("ROADWORTHY_CHAOS_SEED", time.time()))
    print(f"ROADWORTHY_CHAOS_SEED={seed}")
    parts = sum(name.startswith("readouts") for name in expected)
    return study, expected, random.Random(seed).randrange(1, parts * 2 // 3)


def test_a_cluster_gives_the_same_tables_also_where_a_node_is_killed(tmp_path: Path, whole: Any) -> None:
    study, expected, parts = whole
    with running_cluster() as cluster:
        finished(study, tmp_path / "calm", "--engine", "ray", "--address", cluster.address)
        assert tables(tmp_path / "calm") == expected
        command = started(study, tmp_path / "node", "--engine", "ray", "--address", cluster.address)
        node = next(iter(cluster.worker_nodes))
        after_some_parts(tmp_path / "node", parts, lambda: cluster.remove_node(node, allow_graceful=False))
        assert command.poll() is None
        code, errors = ended(command)
        assert code in (0, 1, 3), errors
    assert tables(tmp_path / "node") == expected


def test_a_killed_head_ends_the_command_with_its_own_code_and_another_cluster_goes_on(
    tmp_path: Path, whole: Any
) -> None:
    study, expected, _ = whole
    out = tmp_path / "run"
    with running_cluster() as cluster:
        command = started(study, out, "--engine", "ray", "--address", cluster.address)

        def kill_head() -> None:
            cluster.head_node.kill_gcs_server(check_alive=False)
            cluster.head_node.kill_raylet(check_alive=False)

        after_some_parts(out, 1, kill_head)  # at once: what other nodes hold goes on without it for a while
        code, errors = ended(command)
        assert code == ClusterLost.exit_code, errors
        assert "run the same command again" in errors
        assert "Traceback" not in errors
    assert not (out / "run.json").exists()
    with running_cluster() as cluster:
        finished(study, out, "--engine", "ray", "--address", cluster.address)
    assert tables(out) == expected


def test_a_killed_command_is_gone_on_with(tmp_path: Path, whole: Any) -> None:
    study, expected, parts = whole
    out = tmp_path / "run"
    with running_cluster() as cluster:
        words = ("--engine", "ray", "--address", cluster.address)
        command = started(study, out, *words)
        after_some_parts(out, parts, command.kill)
        ended(command)
        finished(study, out, *words)
    assert tables(out) == expected
