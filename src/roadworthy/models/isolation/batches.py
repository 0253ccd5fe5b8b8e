"""A batch as a message and arrays, and back. An adapter is sent what it looks at: pixels and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.types import Batch

OPTIONAL = ("boxes", "masks", "depth", "box_inflation")
CONDITION = "condition:"
WATCHED = "watched:"
"""Begins the names of layers that come with an answer; their number among those asked for follows."""


def pixels_of(batch: Batch) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Pixels and labels alone; the images have no names then."""
    return {}, {"images": batch.images, "labels": batch.labels}


def all_of(batch: Batch) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """All that a batch holds."""
    arrays: dict[str, NDArray[Any]] = {"images": batch.images, "labels": batch.labels}
    arrays |= {name: getattr(batch, name) for name in OPTIONAL if getattr(batch, name) is not None}
    texts = {name: list(map(str, column)) for name, column in batch.conditions.items() if column.dtype.hasobject}
    arrays |= {CONDITION + name: column for name, column in batch.conditions.items() if name not in texts}
    message = {"ids": batch.ids, "group": batch.group, "stimulus": batch.stimulus, "conditions": texts}
    return message, arrays


def batch_of(message: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Batch:
    """The batch that was sent.

    >>> batch = Batch(("a",), np.zeros((1, 2, 2, 3), np.uint8), np.array([1]), conditions={"light": np.array([0.5])})
    >>> batch_of(*all_of(batch)).conditions["light"], batch_of(*pixels_of(batch)).ids
    (array([0.5]), ('0',))
    """
    named = {name: np.array(column, object) for name, column in message.get("conditions", {}).items()}
    named |= {name.removeprefix(CONDITION): array for name, array in arrays.items() if name.startswith(CONDITION)}
    return Batch(
        ids=tuple(message.get("ids", map(str, range(len(arrays["images"]))))),
        images=arrays["images"],
        labels=arrays["labels"],
        conditions=named,
        group=tuple(message.get("group", ())),
        stimulus=message.get("stimulus", ""),
        **{name: arrays[name] for name in OPTIONAL if name in arrays},
    )
