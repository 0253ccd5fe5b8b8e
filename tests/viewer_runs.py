"""A folder of runs for tests of the viewer, and a viewer that listens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roadworthy as rw
from roadworthy.engine import chunks
from roadworthy.engine.progress import no_progress
from tiny import CLASSES, SIZE, save_onnx, study

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
"""The name of a class that would run a script where it is not shown as text."""
CRITERIA = [{"id": "V-1", "metric": "accuracy", "where": {"shift": "none"}, "at_least": 0.99, "hazard": HOSTILE}]


def write_runs(folder: Path, given: dict[tuple[str, str], np.ndarray]) -> Path:
    """Two finished runs below a folder; `given` is told the pixels that models were given, by stimulus and image."""
    save_onnx(folder / "tiny.onnx")
    save_onnx(folder / "worse.onnx", blur=0.5)
    runs = folder / "runs"
    content = study(
        folder,
        70,
        models={"tiny": {"onnx": str(folder / "tiny.onnx")}, "worse": {"onnx": str(folder / "worse.onnx")}},
        protocols={"classification": {"shifts": ["noise", "fog"], "levels": [1, 5]}},
    )
    original = chunks.ask_systems

    def recording(cases: Any, shown: Any, batch: int) -> Any:
        given.update({(shown.stimulus, i): image.copy() for i, image in zip(shown.ids, shown.images, strict=True)})
        return original(cases, shown, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "ask_systems", recording)
        rw.run(content, out=runs / "signs" / "v1", progress=no_progress)
    data = rw.open_dataset({"builtin": "signs", "n": 70}, size=SIZE)
    names = [HOSTILE, *(f"class {number}" for number in range(1, CLASSES))]
    images = data.batch(slice(None))
    np.savez(folder / "hostile.npz", images=images.images, labels=images.labels, class_names=names)
    hostile = {
        "name": "hostile",
        "data": {"test": str(folder / "hostile.npz")},
        "models": {"tiny": {"onnx": str(folder / "tiny.onnx")}},
        "protocols": {"classification": {"shifts": ["fog"], "levels": [5]}},
        "criteria": CRITERIA,
    }
    rw.run(hostile, out=runs / "hostile", progress=no_progress)
    return runs


@contextmanager
def listening(folder: Path) -> Iterator[str]:
    """A viewer of a folder that listens at a free port, in a thread of this process: its address."""
    import uvicorn

    from roadworthy.viewer.app import make_app
    from roadworthy.viewer.serving import listen

    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(folder), log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)
        socket.close()
