"""A model that runs in a process of its own, as the process of the run sees it: the same answers, and a failure where
that process hangs, dies or takes too much."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import ModelError
from roadworthy.core.roles import Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.base import Adapter
from roadworthy.models.boxes import BoxForm, parse_box_form
from roadworthy.models.head import Head
from roadworthy.models.isolation.batches import WATCHED, all_of, pixels_of
from roadworthy.models.isolation.limits import Limits
from roadworthy.models.isolation.pool import Pool
from roadworthy.models.preprocess import preprocess_of

Open = Callable[[], Model]


class IsolatedModel(Model):
    """A model in a process of its own, made there from its recipe; what it answers has the same bits.

    Threads may ask at once: each process is asked by one of them, see `Pool`.
    """

    concurrent, only_reads, isolated = True, True, True

    def __init__(self, pool: Pool, open_here: Open) -> None:
        known = pool.description
        self._pool, self._open_here, self._fingerprint = pool, open_here, str(known["fingerprint"])
        self.name, self.num_classes = known["name"], known["num_classes"]
        self.class_names = None if known["class_names"] is None else tuple(known["class_names"])
        self.input_size = None if known["input_size"] is None else tuple(known["input_size"])
        self.fixed_batch, self.part_images = known["fixed_batch"], known["part_images"]
        self.capabilities = frozenset(known["capabilities"])
        self.family, self.uncertainty = known["family"], known["uncertainty"]
        self.version: str | None = known.get("code", {}).get("version")
        self._known = known

    @property
    def limits(self) -> Limits:
        """What its process may take."""
        return self._pool.limits

    @property
    def processes(self) -> int:
        """How many processes hold it now."""
        return self._pool.processes

    def close(self) -> None:
        """End its processes; the next question starts one again."""
        self._pool.close()

    def code_key(self) -> str:
        """What tells different functions with the same version apart; empty for other models."""
        return str(self._known.get("code", {}).get("key", ""))

    def fingerprint(self) -> str:
        """The hash that the model has in its own process; the last one known where that fails."""
        try:
            self._fingerprint = str(self._pool.ask({"ask": "fingerprint"}, {})[0]["value"])
        except ModelError:
            return self._fingerprint
        return self._fingerprint

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What the model says of itself."""
        return dict(self._known["facts"])

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer."""
        return Prediction(**self._asked({"ask": "predict"}, batch))

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """The model's own."""
        if "features" not in self.capabilities:
            return super().features(batch, layer)
        return self._asked({"ask": "features", "layer": layer}, batch)["values"]

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """The model's own."""
        if "input_gradient" not in self.capabilities:
            return super().input_gradient(batch)
        return self._asked({"ask": "input_gradient"}, batch)["values"]

    def _asked(self, question: Mapping[str, Any], batch: Batch) -> dict[str, NDArray[Any]]:
        message, arrays = self._sent(batch)
        return self._pool.ask({**question, "batch": message}, arrays)[1]

    def _sent(self, batch: Batch) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What the process needs of a batch: all of it."""
        return all_of(batch)


class IsolatedAdapter(IsolatedModel, Adapter):
    """An isolated model whose input and outputs are known, as those of every adapter."""

    def __init__(self, pool: Pool, open_here: Open) -> None:
        super().__init__(pool, open_here)
        own = self._known["adapter"]
        self.preprocess = preprocess_of(own["preprocess"])
        self.outputs, self.notes, self.details = own["outputs"], tuple(own["notes"]), own["details"]
        self.images_per_second = own["images_per_second"]
        self._fed: Mapping[str, Any] = {}
        self._boxes = None if own["boxes"] is None else parse_box_form(own["boxes"])

    @property
    def box_form(self) -> BoxForm | None:
        """The form in which it is taken to write boxes; None for a classifier."""
        return self._boxes

    def describe(self) -> dict[str, Any]:
        """What is in use, for people, and that it runs in a process of its own."""
        boxes = {} if self._boxes is None else {"boxes": str(self._boxes)}
        return {**super().describe(), **boxes}

    def run(self, tensor: NDArray[Any]) -> Prediction:
        """Not used: the whole batch goes to the process of the model."""
        raise NotImplementedError

    def fed(self, **changes: Any) -> IsolatedAdapter:
        """The same model in the same process, which is told with each question how to prepare its images."""
        other = super().fed(**changes)
        assert isinstance(other, IsolatedAdapter)
        other._fed = {**self._fed, **changes}
        return other

    def _asked(self, question: Mapping[str, Any], batch: Batch) -> dict[str, NDArray[Any]]:
        return super()._asked({**question, "fed": self._fed} if self._fed else question, batch)

    def _sent(self, batch: Batch) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return pixels_of(batch)


class IsolatedTorch(IsolatedAdapter):
    """An isolated torch module: its layers and gradients are asked for in its own process.

    What takes the network apart (MC-Dropout, monitors that reach into its modules) gets it by `in_process`.
    """

    def __init__(self, pool: Pool, open_here: Open) -> None:
        super().__init__(pool, open_here)
        self._watched = threading.local()
        self._here: Model | None = None

    @property
    def is_watchable(self) -> bool:
        """Whether the module tells what goes through a layer while it answers."""
        return bool(self._known["torch"]["watchable"])

    @property
    def watched_bits_are_its_own(self) -> bool:
        """True, as for every torch module."""
        return True

    def layers(self) -> tuple[str, ...]:
        """The named submodules, which `features` can be asked for."""
        return tuple(self._known["torch"]["layers"])

    def head(self) -> Head:
        """The last linear layer."""
        message, arrays = self._pool.ask({"ask": "head"}, {})
        return Head(message["layer"], arrays["weights"], arrays["bias"])

    def stepped_logits(
        self, batch: Batch, temperatures: Sequence[float], steps: Sequence[float]
    ) -> NDArray[np.float32]:
        """Logits (T, E, N, K) after a step of each size along the sign of the gradient at each temperature."""
        question = {"ask": "stepped_logits", "temperatures": list(temperatures), "steps": list(steps)}
        return self._asked(question, batch)["values"]

    @contextmanager
    def watch(self, layer: str) -> Iterator[list[NDArray[np.float32]]]:
        """A list that holds what `features` gives of a layer, of every pass that this thread makes while inside."""
        seen: list[NDArray[np.float32]] = []
        outer = getattr(self._watched, "by_layer", {})
        self._watched.by_layer = {**outer, layer: seen}
        try:
            yield seen
        finally:
            self._watched.by_layer = outer

    def predict(self, batch: Batch) -> Prediction:
        """The module's answer, and what goes through the layers that are watched."""
        by_layer = getattr(self._watched, "by_layer", {})
        if not by_layer:
            return super().predict(batch)
        columns = self._asked({"ask": "predict", "watch": [*by_layer]}, batch)
        for number, seen in enumerate(by_layer.values()):
            seen.append(columns.pop(f"{WATCHED}{number}"))
        return Prediction(**columns)

    def in_process(self) -> Model:
        """The same network in the process of the run, opened once: for what takes its modules apart."""
        if self._here is None:
            warnings.warn(
                f"something takes the network of model {self.name} apart, so that it runs in the process of the run, "
                "too, where nothing limits it",
                stacklevel=2,
            )
            self._here = self._open_here()
        return self._here


def isolated_class(description: Mapping[str, Any]) -> type[IsolatedModel]:
    """The class of an isolated model by what its process says of it."""
    if "torch" in description:
        return IsolatedTorch
    return IsolatedAdapter if "adapter" in description else IsolatedModel
