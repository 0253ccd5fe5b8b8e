"""A model that remembers its answers, for those who ask it the same question several times."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.protocols import Buildable, Model
from roadworthy.core.types import Batch, Prediction

MOST_BYTES = 2**28

Answer = TypeVar("Answer", Prediction, NDArray[np.float32])


class RememberingModel(Model):
    """A model whose answers and features are kept while they fit in `most_bytes`, the longest unused ones dropped.

    Answers are known by the pixels, ids and stimulus of their batch, so they are those of the model to the bit. They
    are given as copies that cannot be written to: a model may fill the same arrays again for its next answer.
    `seconds_spared` says what the remembered ones had cost, so that times can be told as if each had been asked anew.
    """

    def __init__(self, model: Model, most_bytes: int = MOST_BYTES) -> None:
        self.model, self.most_bytes = model, most_bytes
        self.name, self.num_classes, self.class_names = model.name, model.num_classes, model.class_names
        self.input_size, self.fixed_batch = model.input_size, model.fixed_batch
        self.concurrent, self.capabilities = model.concurrent, model.capabilities
        self._kept: OrderedDict[bytes, tuple[Any, float, int]] = OrderedDict()
        self._held = 0
        self._lock, self._spared = threading.Lock(), threading.local()

    def fingerprint(self) -> str:
        """The model's own."""
        return self.model.fingerprint()

    def requires(self) -> tuple[Buildable, ...]:
        """The model's own."""
        return self.model.requires()

    def wrapped(self) -> tuple[Model, ...]:
        """The model."""
        return (self.model,)

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer, asked for once."""
        return self._once("", batch, lambda: self.model.predict(batch.copy()))

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """The model's features, asked for once."""
        return self._once(layer, batch, lambda: self.model.features(batch.copy(), layer))

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """The model's own."""
        return self.model.input_gradient(batch.copy())

    def seconds_spared(self) -> float:
        """Seconds that remembered answers had cost, for this thread and since it last asked."""
        spared: float = getattr(self._spared, "seconds", 0.0)
        self._spared.seconds = 0.0
        return spared

    def _once(self, what: str, batch: Batch, ask: Callable[[], Answer]) -> Answer:
        key = _key(what, batch)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                answer, seconds, _ = self._kept[key]
                self._spared.seconds = getattr(self._spared, "seconds", 0.0) + seconds
                return answer  # type: ignore[no-any-return]
        started = time.perf_counter()
        answer = _frozen(ask())
        self._keep(key, answer, time.perf_counter() - started)
        return answer

    def _keep(self, key: bytes, answer: Prediction | NDArray[np.float32], seconds: float) -> None:
        size = sum(array.nbytes for array in _columns(answer).values())
        with self._lock:
            if key in self._kept or size > self.most_bytes:
                return
            self._kept[key] = answer, seconds, size
            self._held += size
            while self._held > self.most_bytes:
                self._held -= self._kept.popitem(last=False)[1][2]


def _columns(answer: Prediction | NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    if not isinstance(answer, Prediction):
        return {"": answer}
    return dict(answer.columns)


def _frozen(answer: Answer) -> Answer:
    """A copy that shares nothing with the answer and cannot be written to."""
    copies = {name: np.array(array) for name, array in _columns(answer).items()}
    for copy in copies.values():
        copy.flags.writeable = False
    return Prediction(**copies) if isinstance(answer, Prediction) else copies[""]  # type: ignore[return-value]


def _key(what: str, batch: Batch) -> bytes:
    known = hashlib.blake2b(repr((what, batch.images.shape, batch.ids, batch.stimulus)).encode(), digest_size=20)
    known.update(np.ascontiguousarray(batch.images).data)
    return known.digest()
