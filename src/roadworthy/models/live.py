"""Which kind of model a live object is: asked in order, by what it looks like, without importing any library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from roadworthy.core.roles import Model
from roadworthy.models.callable import CallableModel
from roadworthy.models.torch import TorchModel


@dataclass(frozen=True)
class LiveKind:
    """A kind of live objects: its name, what recognises one, and the adapter that makes a model of it."""

    kind: str
    recognises: Callable[[Any], bool]
    adapter: Callable[..., Model]


def _is_instance_of(module: str, name: str) -> Callable[[Any], bool]:
    """Whether an object is of a class of a library: it cannot be where nobody has imported that module yet."""

    def recognises(value: Any) -> bool:
        cls = getattr(sys.modules.get(module), name, None)
        return cls is not None and isinstance(value, cls)

    return recognises


LIVE_KINDS = [
    LiveKind("torch", _is_instance_of("torch.nn", "Module"), TorchModel),
    LiveKind("callable", callable, CallableModel),
]
"""Kinds of live objects in the order in which they are tried."""


def live_kind(value: Any) -> LiveKind | None:
    """The first kind that recognises an object; None where none does.

    >>> live_kind(lambda images: images).kind, live_kind(3)
    ('callable', None)
    """
    return next((live for live in LIVE_KINDS if live.recognises(value)), None)
