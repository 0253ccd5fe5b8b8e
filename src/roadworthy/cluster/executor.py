"""The Ray executor as the command sees it: a driver in a process of its own, followed line by line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roadworthy.cluster.shared import RESUME
from roadworthy.core.errors import ClusterLost, InputError, MissingExtra, RoadworthyError
from roadworthy.engine.artifacts import is_built
from roadworthy.engine.executor import Executor, load_artifact
from roadworthy.engine.folder import RunFolder
from roadworthy.engine.ledger import Outcome
from roadworthy.engine.plan import Graph
from roadworthy.engine.progress import ProgressBar, no_progress
from roadworthy.preparing import Prepared

GRACE = 2.5
"""Seconds that a driver has to end its workers when nobody waits for it any more."""
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Ray tells nobody that it is used, and workers of a Ray of our own have the priority of the command."""


class RayExecutor(Executor):
    """A Ray cluster: the one at `address`, or one that is started on this machine with so many workers.

    Raises before anything is written: without Ray, or where the study needs an object of this process.
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        address: str | None = None,
        workers: int | None = None,
        progress: ProgressBar = no_progress,
        title: str = "testing",
    ) -> None:
        if find_spec("ray") is None:
            raise MissingExtra("runs on a cluster", "ray")
        if address and "://" in address:
            raise InputError(
                f"{address} is no address of a Ray cluster: give host:port, or run the command on a machine of the "
                "cluster with `address='auto'`"
            )
        try:
            recipe = prepared.recipe()
        except InputError as error:
            raise InputError(f"{error}; as it is, it runs on the local executor only: `engine='local'`") from None
        self._task = {
            "recipe": recipe,
            "title": title,
            "address": address,
            "workers": workers,
            "resources": prepared.study.resources.model_dump(),
        }
        self._progress = progress

    def run(self, graph: Graph, store: RunFolder) -> Outcome:
        """Do it all, and make ready what was built."""
        if store.mirror and store.mirror.remote.is_private:
            raise InputError(f"{store.address} lives in this process alone: no worker of a cluster sees it")
        store.publish_all()
        with _driver({**self._task, "folder": store.address}) as (driver, log):
            outcome = self._followed(driver, log, store)
        store.fetch_all()
        for hash_, node in graph.artifacts.items():
            if hash_ in outcome.failures or not is_built(store, node.parts[0].recipe):
                continue
            try:
                outcome.built[hash_] = load_artifact(node, store)
            except RoadworthyError as error:
                outcome.failures[hash_] = str(error)
        outcome.failures = graph.reasons(outcome.failures)
        return outcome

    def _followed(self, driver: subprocess.Popen[str], log: Path, store: RunFolder) -> Outcome:
        """What came of it in the end; shows how far it is meanwhile."""
        assert driver.stdout is not None
        connected = False
        with ExitStack() as bars:
            advance = None
            for line in driver.stdout:
                message = json.loads(line)
                if "advance" in message and advance is not None:
                    advance(message["advance"])
                elif "bar" in message:
                    advance = bars.enter_context(self._progress(message["bar"], message["total"]))
                elif "closed" in message:
                    bars.close()
                elif "warning" in message:
                    warnings.warn(message["warning"], stacklevel=2)
                elif "connected" in message:
                    connected = True
                else:
                    return _concluded(message, store)
        code, address = driver.wait(), self._task["address"]
        if not connected:
            where = f"at {address}" if address else "on this machine"
            raise InputError(
                f"no Ray cluster answers {where}: start one, or give another `address=` ({_last_line(log)})"
            )
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ClusterLost(f"the Ray cluster was lost: its driver ended with {how}; {RESUME}")


def _concluded(message: Mapping[str, Any], store: RunFolder) -> Outcome:
    """The last word of a driver: the outcome, with the hash of the manifests that it wrote, or what stopped it."""
    if "defect" in message:
        raise RuntimeError(f"on the cluster:\n{message['defect']}")
    if "error" in message:
        raise (ClusterLost if message["lost"] else InputError)(message["error"])
    known = message["outcome"]
    store.written |= {store.path / name: sha for name, sha in known["manifests"].items()}
    return Outcome(
        failures=known["failures"],
        not_shown=set(known["not_shown"]),
        spent={hash_: (seconds, images) for hash_, (seconds, images) in known["spent"].items()},
        peaks=known["peaks"],
    )


def _last_line(log: Path) -> str:
    """The last thing that a driver printed, which may be of no use, or nothing."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it says nothing"


@contextmanager
def _driver(task: Mapping[str, Any]) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A driver at work, and its log; where it is left, it ends its workers, and a Ray of its own, before it ends."""
    scratch = tempfile.mkdtemp(prefix="rw-", dir="/tmp")  # Ray puts sockets there, whose paths must be short
    log = Path(scratch) / "driver.log"
    command = [sys.executable, "-m", "roadworthy.cluster.driver"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with log.open("w") as errors:
        driver = subprocess.Popen(command, **pipes, stderr=errors, env={**SETTINGS, **os.environ})
    assert driver.stdin is not None
    try:
        with suppress(BrokenPipeError):
            driver.stdin.write(json.dumps({**task, "scratch": scratch}) + "\n")
            driver.stdin.flush()
        yield driver, log
    finally:
        with suppress(BrokenPipeError):
            driver.stdin.close()
        try:
            driver.wait(GRACE)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
        shutil.rmtree(scratch, ignore_errors=True)
