"""Model, monitor and threshold as one ONNX file, with a JSON beside it that says how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike, NDArray

from roadworthy.core.errors import InputError, first_line
from roadworthy.core.files import write_bytes, write_json
from roadworthy.core.roles import BATCH, Model
from roadworthy.core.types import Batch, Images
from roadworthy.models.head import penultimate
from roadworthy.models.signals import LAYERED, PENULTIMATE, Signals
from roadworthy.monitors.fitted import FittedMonitor
from roadworthy.monitors.id_threshold import IdThreshold
from roadworthy.monitors.learned import Learned
from roadworthy.monitors.onnx_export.agreement import Agreement, compare_decisions
from roadworthy.monitors.onnx_export.builder import Tensor
from roadworthy.monitors.onnx_export.description import (
    ACCEPT,
    MEANINGS,
    PROBABILITIES,
    SCORE,
    WrittenGraph,
    described_graph,
    described_monitor,
    described_threshold,
)
from roadworthy.monitors.onnx_export.network import ModelGraph, adapter_of, check_images
from roadworthy.monitors.onnx_export.scores import add_score, check_exportable
from roadworthy.monitors.trials import Trial, tried_sentence

ONNX_FILE, DESCRIPTION = "monitor.onnx", "monitor.json"
CHECKED = 8
"""Probe images that every file is checked on."""


@dataclass(frozen=True)
class OnnxExport:
    """A written file: where it is, what stands in its JSON, and how it compares with the monitor in Python."""

    path: Path
    description: Mapping[str, Any]
    agreement: Agreement


def export_onnx_monitor(
    model: Model,
    fitted: FittedMonitor,
    rule: Learned,
    threshold: IdThreshold,
    folder: str | Path,
    *,
    include_preprocessing: bool = False,
    size: tuple[int, int] | None = None,
    images: Images | None = None,
    class_names: Sequence[str] | None = None,
    tried_on: Sequence[Trial] = (),
) -> OnnxExport:
    """Write monitor.onnx and monitor.json to a folder; outputs are `probabilities`, `score` and `accept`.

    rule       what `tune` of the monitor learned
    include_preprocessing   False: the input is the model's own, so that the file can stand in for the model's. True: it
               is uint8 images (N, H, W, C) at the model's size, R, G, B, or grey where the model takes one channel
    size       (H, W), needed where the model takes images of any size
    images     (N, H, W, C) uint8, on which the file is compared with Python besides probe images
    class_names             of the model's classes, in their order; None: those that the model itself knows, if any
    tried_on   the sets of outliers that the monitor was tried on (`Guard.tried_on`); none where none are named

    Before anything is written, the graph is run by ONNX Runtime and compared with the monitor in Python: a file that
    scores or decides otherwise is an `InputError`, and so is a monitor or a model that ONNX cannot hold.
    """
    if not fitted.built_on(model):
        raise InputError(f"monitor {fitted.monitor.name} was built on another model than {model.name}: build it anew")
    check_exportable(fitted.monitor)
    names = _class_names(model, class_names)
    probes = _probes(model, size)
    graph = ModelGraph(model, _layers(fitted, model), probes, include_preprocessing=include_preprocessing)
    if graph.input.name in MEANINGS:
        raise InputError(
            f"the input of model {model.name} is called {graph.input.name!r}, as an output is to be: write it with "
            "`include_preprocessing=True`, or rename the input"
        )
    score = add_score(graph, fitted.monitor, fitted.state, rule)
    outputs = {PROBABILITIES: graph.probabilities, SCORE: score, ACCEPT: add_decision(graph, score, threshold)}
    proto = graph.write(outputs, {name: (model.num_classes,) if name == PROBABILITIES else () for name in outputs})
    written = WrittenGraph(_serialised(proto, model.name), graph)
    shown = probes if images is None else np.concatenate([probes, written.at_size(images)])
    agreement = _agreement(written, fitted, rule, threshold, shown)
    if not agreement.holds:
        raise InputError(
            f"the ONNX form of monitor {fitted.monitor.name} on model {model.name} does not decide as the monitor "
            f"does: scores differ by up to {agreement.difference:.2g} of their scale, and {agreement.wrong} of "
            f"{agreement.images} decisions; use the folder of the guard"
        )
    description = {
        "file": ONNX_FILE,
        **described_graph(written, proto, names),
        "threshold": described_threshold(threshold, compared_thresholds(threshold, graph.dtype(score), graph.model)),
        "monitor": described_monitor(fitted, rule),
        "tried_on": {"sentence": f"{tried_sentence(tried_on)}.", "sets": [trial.record() for trial in tried_on]},
        "compared_with_python": asdict(agreement),
    }
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    write_bytes(home / ONNX_FILE, written.content)
    write_json(home / DESCRIPTION, description)
    return OnnxExport(home / ONNX_FILE, description, agreement)


def export_onnx_model(model: Model, file: str | Path, *, size: tuple[int, int] | None = None) -> Path:
    """Write a model by itself, as it stands in a file of `export_onnx_monitor` with preprocessing: what that adds to.

    The input is uint8 images (N, H, W, C) at the model's size, the output `probabilities`.
    """
    graph = ModelGraph(model, (), _probes(model, size), include_preprocessing=True)
    proto = graph.write({PROBABILITIES: graph.probabilities}, {PROBABILITIES: (model.num_classes,)})
    write_bytes(Path(file), _serialised(proto, model.name))
    return Path(file)


def add_decision(graph: ModelGraph, score: Tensor, threshold: IdThreshold) -> Tensor:
    """score >= threshold, (N,) bool; by the predicted class where each has a threshold of its own."""
    cuts = compared_thresholds(threshold, graph.dtype(score), graph.model)
    if not threshold.by_class:
        return graph.add("GreaterOrEqual", score, cuts)
    own_cut = graph.add("Gather", graph.constant(cuts), graph.predicted, axis=0)
    return graph.add("GreaterOrEqual", score, own_cut)


def compared_thresholds(threshold: IdThreshold, dtype: DTypeLike, model: Model) -> NDArray[Any]:
    """What scores of a type are compared with: the threshold (), or that of each predicted class (K,)."""
    if not threshold.by_class:
        return rounded_up(threshold.threshold, dtype)
    cuts = [threshold.by_class.get(label, threshold.threshold) for label in range(model.num_classes)]
    return np.array([rounded_up(cut, dtype) for cut in cuts], dtype)


def rounded_up(threshold: float, dtype: DTypeLike) -> NDArray[Any]:
    """The least value of a type that is not below the threshold: a score of that type is below both or neither.

    >>> float(rounded_up(0.1, np.float32)) >= 0.1, float(rounded_up(0.5, np.float32))
    (True, 0.5)
    """
    with np.errstate(over="ignore"):
        near = np.asarray(threshold, np.float64).astype(dtype)
    return near if float(near) >= threshold else np.asarray(np.nextafter(near, np.asarray(np.inf, dtype)))


def _class_names(model: Model, names: Sequence[str] | None) -> Sequence[str] | None:
    """The names that are given, one for each class of the model, or those that the model itself knows."""
    if names is None:
        return model.class_names
    if len(names) != model.num_classes:
        raise InputError(
            f"{len(names)} class names are given for the {model.num_classes} classes of model {model.name}: give one "
            "for each class, in the order of the model"
        )
    return names


def _layers(fitted: FittedMonitor, model: Model) -> list[str]:
    """The layers that the fit of the monitor reads, by their name in the model."""
    pairs = [signal.partition(":") for signal in fitted.monitor.signals(model)]
    layers = dict.fromkeys(layer for kind, _, layer in pairs if kind in LAYERED)
    return [penultimate(model) if layer == PENULTIMATE else layer for layer in layers]


def _probes(model: Model, size: tuple[int, int] | None) -> Images:
    """Images that the network takes, (N, H, W, C), as many as fill its batches."""
    adapter, batch = adapter_of(model), model.fixed_batch or 1
    size = model.input_size or size
    if size is None:
        raise InputError(f"model {model.name} takes images of any size: say with `size=` which ones it will be given")
    return check_images(size, adapter.preprocess.channels or 3, -(-CHECKED // batch) * batch)


def _serialised(proto: onnx.ModelProto, name: str) -> bytes:
    try:
        content: bytes = proto.SerializeToString()
        onnx.checker.check_model(content)
    except Exception as error:
        raise InputError(f"model {name} in its exported form is not a valid ONNX graph: {first_line(error)}") from None
    return content


def _agreement(
    written: WrittenGraph, fitted: FittedMonitor, rule: Learned, threshold: IdThreshold, images: Images
) -> Agreement:
    """The written graph beside the monitor in Python, on images (N, H, W, C) at the model's size."""
    model = written.graph.model
    ids = tuple(f"image {number}" for number in range(len(images)))
    batch = Batch(ids=ids, images=images, labels=np.zeros(len(images), np.int64))
    size = min(len(images), BATCH)
    expected = fitted.scores(fitted.represent(model, batch, size), rule)
    predictions = Signals(model, batch, size).probabilities.argmax(axis=1)
    answers = written.run(images)
    return compare_decisions(answers[SCORE], expected, answers[ACCEPT], threshold.thresholds(len(images), predictions))
