"""How much memory it takes to answer with a model, with a monitor or without: measured in a process of its own.

Run as a program, it is that process: it reads a task as one line of JSON, opens the model and the monitor, answers the
images one at a time and writes the most memory that it held, or why it could not be done. Nothing is pickled: a model
is opened again from its file, a reference network from its weights. One that lives in memory alone has no figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, RoadworthyError, first_line
from roadworthy.core.resident import peak_resident
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch
from roadworthy.models import OnnxModel, ReferenceModel, TorchModel
from roadworthy.models.classes import AlignedModel
from roadworthy.models.reference import ARCHITECTURES
from roadworthy.models.signals import Signals
from roadworthy.monitors.fitted import CalibratedMonitor
from roadworthy.monitors.guard import Guard
from roadworthy.monitors.id_threshold import IdThreshold

LONGEST = 300.0
"""Seconds after which a process is ended, and there is no figure."""
MONITOR, IMAGES, WEIGHTS = "monitor", "images.npy", "weights.npz"


def guard_task(model: Model, guard: Guard | None, folder: Path, images: NDArray[np.uint8]) -> dict[str, Any]:
    """What a process is told that answers images (N, H, W, C) with a model, or with a guard of it, as plain values.

    What is too large for that is written to an empty folder. An `InputError` says why it cannot be told.
    """
    task = {"model": _recipe(model, folder), "images": str(folder / IMAGES)}
    np.save(folder / IMAGES, images)
    if guard is None:
        return task
    guard.calibrated().save(folder / MONITOR)
    return {**task, "monitor": str(folder / MONITOR), "threshold": guard.threshold.record()}


def measured(task: Mapping[str, Any]) -> int:
    """The most bytes that a process of its own held while it did a task; an `InputError` where it could not."""
    return _peak([sys.executable, "-m", __name__], json.dumps(task))


def measured_file(file: Path, images: Path) -> int:
    """The same with an ONNX file that takes images (N, H, W, C), stored as .npy: numpy and ONNX Runtime alone."""
    return _peak([sys.executable, "-m", "roadworthy.core.resident", str(file), str(images)], "")


def _peak(command: list[str], said: str) -> int:
    try:
        child = subprocess.run(
            command, input=said, capture_output=True, text=True, encoding="utf-8", timeout=LONGEST, check=False
        )
        answer = json.loads(child.stdout.splitlines()[-1]) if child.returncode == 0 and child.stdout else {}
    except subprocess.TimeoutExpired:
        answer = {"error": f"not done within {LONGEST:g} s"}
    if "peak_bytes" in answer:
        return int(answer["peak_bytes"])
    cause = answer.get("error") or (child.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    raise InputError(f"memory was not measured: {cause}")


def _recipe(model: Model, folder: Path) -> dict[str, Any]:
    """How another process opens a model, as plain values; weights are written to the folder."""
    if type(model) is AlignedModel:
        return {"aligned": [*model.class_names], "model": _recipe(model.model, folder)}
    if type(model) is ReferenceModel and model.loaded:
        opened = model.opened()
        if type(opened) is TorchModel and model.class_names is not None:
            np.savez(folder / WEIGHTS, **{name: own.cpu().numpy() for name, own in opened.module.state_dict().items()})
            known = ARCHITECTURES.get(model.architecture).settings
            return {
                "reference": model.architecture,
                "network": {name: getattr(model, name) for name in known},
                "form": model.form(),
                "weights": str(folder / WEIGHTS),
            }
        return _recipe(opened, folder)
    if type(model) is OnnxModel and model.reading is None:
        taken = model.preprocess
        return {
            "onnx": str(model.path.absolute()),
            "settings": {
                **{"range": taken.range, "layout": taken.layout, "colour": taken.colour, "size": taken.size},
                **{"outputs": model.outputs, "classes": model.class_names, "name": model.name},
                **{"device": model.device, "threads": model.threads},
            },
        }
    raise InputError(
        f"memory was not measured: model {model.name} cannot be opened in another process, which takes an ONNX file or "
        "a reference network of one pass"
    )


def _opened(recipe: Mapping[str, Any]) -> Model:
    """The model of a recipe."""
    if "aligned" in recipe:
        return AlignedModel(_opened(recipe["model"]), tuple(recipe["aligned"]))
    if "onnx" in recipe:
        return OnnxModel(recipe["onnx"], **recipe["settings"])
    import torch

    form = recipe["form"]
    make = ARCHITECTURES.get(recipe["reference"]).make
    network = make(len(form["classes"]), tuple(form["size"]), channels=form["channels"], **recipe["network"])
    with np.load(recipe["weights"]) as weights:
        network.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})
    return TorchModel(network.eval(), range="0-1", device="cpu", **form)


def main() -> None:
    """Do the task of the first line of the input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what somebody's code prints is no answer
    try:
        _answer_images(json.loads(sys.stdin.readline()))
        answer: dict[str, Any] = {"peak_bytes": peak_resident()}
    except RoadworthyError as error:
        answer = {"error": first_line(error)}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _answer_images(task: Mapping[str, Any]) -> None:
    model, guard = _opened(task["model"]), None
    if MONITOR in task:
        stored = CalibratedMonitor.load(task["monitor"])
        fitted = replace(stored.fitted, built_from=())  # the model has another name here, and is the same
        guard = Guard(model, fitted, stored.rule, IdThreshold.of_record(task["threshold"]))
    for image in np.load(task["images"]):
        batch = Batch(("image",), image[None], np.zeros(1, np.int64))
        Signals(model, batch, 1).prediction if guard is None else guard.check_batch(batch)


if __name__ == "__main__":
    main()
