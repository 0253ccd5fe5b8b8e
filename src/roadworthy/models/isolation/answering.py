"""What the process of an isolated model does with each question: it opens the model, describes it, and asks it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import code_files
from roadworthy.core.errors import InputError
from roadworthy.core.importing import import_code
from roadworthy.core.roles import Model
from roadworthy.models import load_model
from roadworthy.models.base import Adapter
from roadworthy.models.callable import CallableModel
from roadworthy.models.head import Watchable, find_head, watching
from roadworthy.models.isolation.batches import WATCHED, batch_of
from roadworthy.models.isolation.process import CannotBeIsolated
from roadworthy.models.predictions import StoredPredictions
from roadworthy.models.quick import QuickForward
from roadworthy.models.torch import TorchModel

Arrays = dict[str, NDArray[Any]]
Reply = tuple[dict[str, Any], Arrays]


class Host:
    """The model of this process, once it is opened, and what it can be asked."""

    def __init__(self) -> None:
        self.name = ""
        self._model: Model | None = None
        self._quick = QuickForward()

    @property
    def keeps_input(self) -> bool:
        """Whether the model may write into its images or keep them; an adapter makes a tensor of them first."""
        return not isinstance(self._model, Adapter)

    @property
    def model(self) -> Model:
        """The model; it is opened by the first question."""
        assert self._model is not None
        return self._model

    def answer(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        """The reply to a question with its arrays: a message and arrays."""
        if "open" in question:
            return self._open(question["open"]), {}
        asked: Mapping[str, Callable[[Mapping[str, Any], Arrays], Reply]] = {
            "predict": self._predict,
            "features": self._features,
            "input_gradient": self._input_gradient,
            "stepped_logits": self._stepped_logits,
            "fingerprint": self._fingerprint,
            "head": self._head,
        }
        return asked[question["ask"]](question, arrays)

    def _open(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        sys.path[:] = recipe["path"]
        self.name = recipe["common"]["name"] or "model"
        for plugin, files in recipe["plugins"].items():
            _import_plugin(plugin, files)
        common = {**recipe["common"], "base": Path(recipe["common"]["base"])}
        self._model = load_model({recipe["kind"]: recipe["value"], **recipe["settings"], "isolate": False}, **common)
        stored = isinstance(self.model, StoredPredictions)
        if stored or self.model.requires() or self.model.learns_from or self.model.wrapped():
            raise CannotBeIsolated(
                f"model {self.model.name} runs no code of its own, is built in the run or is made of others, so that "
                "it cannot run in a process of its own: leave out `isolate=`"
            )
        self.name = self.model.name
        return describe(self.model)

    def _predict(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        batch, model = batch_of(question["batch"], arrays), self.model
        if fed := question.get("fed"):
            assert isinstance(model, Adapter)
            model = model.fed(**fed)
        with watching(model, question.get("watch", ())) as seen:
            columns = dict(model.predict(batch).columns)
        for number, passes in enumerate(seen.values()):
            columns[f"{WATCHED}{number}"] = passes[-1] if passes else np.zeros(0, np.float32)
        return {}, {name: np.asarray(column) for name, column in columns.items()}

    def _features(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        batch = batch_of(question["batch"], arrays)
        return {}, {"values": np.asarray(self.model.features(batch, question["layer"]))}

    def _input_gradient(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        return {}, {"values": np.asarray(self.model.input_gradient(batch_of(question["batch"], arrays)))}

    def _stepped_logits(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        batch, model = batch_of(question["batch"], arrays), self.model
        assert isinstance(model, TorchModel)
        return {}, {"values": model.stepped_logits(batch, question["temperatures"], question["steps"], self._quick)}

    def _fingerprint(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        return {"value": self.model.fingerprint()}, {}

    def _head(self, question: Mapping[str, Any], arrays: Arrays) -> Reply:
        head = find_head(self.model)
        return {"layer": head.layer}, {"weights": head.weights, "bias": head.bias}


def describe(model: Model) -> dict[str, Any]:
    """All that is known of a model without asking it, as JSON; `adapter` and `torch` where it is one."""
    known: dict[str, Any] = {
        "name": model.name,
        "num_classes": model.num_classes,
        "class_names": model.class_names,
        "input_size": model.input_size,
        "fixed_batch": model.fixed_batch,
        "part_images": model.part_images,
        "capabilities": sorted(model.capabilities),
        "family": model.family,
        "uncertainty": model.uncertainty,
        "facts": {task: dict(own) for task, own in model.facts().items()},
        "fingerprint": model.fingerprint(),
    }
    if isinstance(model, Adapter):
        form = model.box_form
        known["adapter"] = {
            "preprocess": model.preprocess.as_plain(),
            "outputs": model.outputs,
            "notes": model.notes,
            "details": dict(model.details),
            "images_per_second": model.images_per_second,
            "boxes": None if form is None else str(form),
        }
    if isinstance(model, CallableModel):
        known["code"] = {"version": model.version, "key": model.code_key()}
    if isinstance(model, TorchModel):
        known["torch"] = {"layers": model.layers(), "watchable": isinstance(model, Watchable) and model.is_watchable}
    plain: dict[str, Any] = json.loads(json.dumps(known, default=str))
    return plain


def _import_plugin(plugin: str, files: Mapping[str, str]) -> None:
    """Import a plugin that the process which asks has loaded; other code than it has there is an error."""
    module = import_code(plugin, Path(), trust=True)
    file = Path(module.__file__ or "")
    hashes = set(code_files(file).values())
    if not set(files.values()) <= hashes:
        raise InputError(f"the plugin {plugin} has changed since it was loaded: run the same command again")
