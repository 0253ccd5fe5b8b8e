"""A model whose process failed while it was opened: it answers nothing, so that the others of a study can go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roadworthy.core.errors import ModelError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Prediction


class UnopenedModel(Model):
    """Stands for a model that could not be opened; it is taken to answer the classes of the test data, or boxes.

    entry   what the study says of it;  cause why it could not be opened, which every case of it fails with
    """

    isolated, concurrent = True, True

    def __init__(self, name: str, entry: Any, cause: str) -> None:
        self.name, self.entry, self.cause = name, entry, cause
        answers_boxes = isinstance(entry, Mapping) and entry.get("boxes") is not None
        self.capabilities = frozenset({"boxes"} if answers_boxes else {"probabilities"})

    def with_data(self, data: Mapping[str, Dataset]) -> UnopenedModel:
        """The same with as many classes as the test data has."""
        known = UnopenedModel(self.name, self.entry, self.cause)
        known.num_classes = len(data["test"].class_names) if "probabilities" in self.capabilities else 0
        return known

    def fingerprint(self) -> str:
        """A hash that no model has which can be opened."""
        return digest({"kind": "unopened", "name": self.name, "entry": str(self.entry)})

    def predict(self, batch: Batch) -> Prediction:
        """Never an answer."""
        raise ModelError(self.cause)
