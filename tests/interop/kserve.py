"""The http format `kserve` against a real MLServer, which lives in an environment of its own: `make interop`.

    python tests/interop/kserve.py --server .venv-interop/bin

Trains a scikit-learn model on drawn signs, serves it twice (mlserver-sklearn: rows of FP32, probabilities; a runtime of
its own: images of UINT8, logits), asks both through `rw.load_model`, compares with numpy, and evaluates one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import roadworthy as rw
from roadworthy.core.types import Batch
from roadworthy.data import BuiltinDataset, Opening
from roadworthy.models import softmax

HERE = Path(__file__).parent
START_SECONDS = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_settings(folder: Path) -> str:
    """The settings of the server; returns its address."""
    ports = {name: free_port() for name in ("http_port", "grpc_port", "metrics_port")}
    common = {"host": "127.0.0.1", "parallel_workers": 0, "debug": False, "metrics_endpoint": None}
    (folder / "settings.json").write_text(json.dumps({**common, **ports}))
    return f"http://127.0.0.1:{ports['http_port']}"


def wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(f"{address}/v2/health/ready", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.3)
    raise SystemExit(f"the server did not start:\n{log.read_text()[-3000:]}")


def compare(address: str, folder: Path, batch: Batch) -> None:
    weights = np.load(folder / "weights.npz")
    flat = batch.images.reshape(len(batch), -1) / 255
    expected = softmax(flat @ weights["coefficients"].T + weights["intercept"])
    settings: dict[str, dict[str, Any]] = {
        "rows": {"size": "32x32", "layout": "nhwc", "output": "predict_proba"},
        "images": {"batch": 5, "concurrency": 3},
    }
    for name, own in settings.items():
        model: Any = rw.load_model(f"{address}/v2/models/{name}", **own)
        answer = model.answer(batch, 64)
        again = model.answer(batch, 64)
        difference = float(np.abs(answer.probabilities - expected).max())
        assert difference < 1e-5, (name, difference)
        assert np.array_equal(answer.probabilities, again.probabilities)
        about = model.describe()
        print(
            f"{name}: version {model.version}, {about['input']}, {about['outputs']}, {model.num_classes} classes; "
            f"differs from numpy by {difference:.1g}; {about['latency']}"
        )


def evaluate(address: str, folder: Path) -> None:
    data = {"builtin": "signs", "n": 140}
    run = rw.evaluate(f"{address}/v2/models/images", data, suite="quick", size="32x32", out=folder / "run")
    for line in run.headline():
        print(line)
    failed = [case for case in run.record.cases.values() if case.status == "failed"]
    assert not failed, failed[0].reason
    assert run.record.models["images"].isolated
    print(f"verify: {run.verify() or 'every table is what the stored answers say'}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--server", type=Path, required=True, help="the bin folder of the server's environment")
    programs = arguments.parse_args().server.absolute()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = BuiltinDataset("signs", Opening(size=32), n=700, split="train").batch(slice(None))
        np.savez(folder / "train.npz", images=train.images, labels=train.labels)
        subprocess.run([programs / "python", HERE / "make_models.py", folder], check=True)
        shutil.copy(HERE / "image_model.py", folder)
        address = write_settings(folder)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with (folder / "log").open("wb") as log:
            command = [programs / "mlserver", "start", "."]
            server = subprocess.Popen(
                command, cwd=folder, stdout=log, stderr=log, env={**environment, "PYTHONPATH": str(folder)}
            )
            try:
                wait_until_ready(address, server, folder / "log")
                version = subprocess.run([programs / "mlserver", "--version"], capture_output=True, text=True).stdout
                print(version.strip())
                compare(address, folder, BuiltinDataset("signs", Opening(size=32), n=70).batch(slice(None)))
                evaluate(address, folder)
            finally:
                server.terminate()
                server.wait(30)
    print("the kserve format and MLServer understand each other")


if __name__ == "__main__":
    main()
