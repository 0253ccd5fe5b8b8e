"""Which kind of data set a live object of another library is: asked in order, by what it looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from roadworthy.data.base import OpenedDataset, Opening


class Indexed(Protocol):
    """What data sets of most libraries have in common: a length, and an item for every number below it."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class LiveData:
    """A kind of live objects: its name, what recognises one, and what opens it as a data set.

    informs_models  whether the opened data says how models of the same kind are asked (`OpenedDataset.model_settings`)
    """

    kind: str
    recognises: Callable[[Any], bool]
    open: Callable[[Any, Opening], OpenedDataset]
    informs_models: bool = False


LIVE_DATA: list[LiveData] = []
"""Kinds of live objects in the order in which they are tried."""


def live_data(value: Any) -> LiveData | None:
    """The first kind that recognises an object; None where none does.

    >>> live_data(3) is None
    True
    """
    return next((live for live in LIVE_DATA if live.recognises(value)), None)
