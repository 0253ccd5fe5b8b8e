"""The last linear layer of a network: features go in, logits come out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.models.classes import AlignedModel


@dataclass(frozen=True)
class Head:
    """logits = features @ weights.T + bias.

    layer    what to ask `Model.features` for to get what goes in: (N, D)
    weights  (K, D) float32;  bias (K,) float32
    """

    layer: str
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]


@runtime_checkable
class HasHead(Protocol):
    """A model that knows its last linear layer."""

    def head(self) -> Head:
        """The last linear layer; an `InputError` where the network ends in another way."""


@runtime_checkable
class Trainable(Protocol):
    """A model that stands for a network, which is trained in the run."""

    @property
    def loaded(self) -> bool:
        """True once it is trained."""

    def opened(self) -> Model:
        """The trained network."""

    def untrained(self) -> Model:
        """The network before it is trained; the model itself where nothing is known of it yet."""


@runtime_checkable
class Elsewhere(Protocol):
    """A model whose network is in another process."""

    def in_process(self) -> Model:
        """The same network in this process."""


def network_of(model: Model) -> Model:
    """What answers in the end, without what orders its answers; of one to be trained, as it will be.

    One in another process stays there: see `network_here` for what takes its modules apart.
    """
    while (inner := _inner(model)) is not model:
        model = inner
    return model


def network_here(model: Model) -> Model:
    """The network behind a model in this process, whose modules can be reached."""
    network = network_of(model)
    return network.in_process() if isinstance(network, Elsewhere) else network


def _inner(model: Model) -> Model:
    if isinstance(model, AlignedModel):
        return model.model
    if isinstance(model, Trainable):
        return model.opened() if model.loaded else model.untrained()
    return model


def find_head(model: Model) -> Head:
    """The last linear layer of a model, its rows in the order of the model's classes."""
    inner = _inner(model)
    if inner is not model:
        head, order = find_head(inner), model.order if isinstance(model, AlignedModel) else slice(None)
        return Head(head.layer, head.weights[order], head.bias[order])
    if not isinstance(model, HasHead):
        raise InputError(
            f"model {model.name} shows no last linear layer: use an ONNX or torch model that answers logits"
        )
    return model.head()


@runtime_checkable
class Watchable(Protocol):
    """A model that can tell what goes through a layer while it answers."""

    @property
    def is_watchable(self) -> bool:
        """Whether `watch` gives what `Model.features` does."""

    def watch(self, layer: str) -> AbstractContextManager[list[NDArray[np.float32]]]:
        """A list that holds what `features` gives of a layer, of every pass that this thread makes while inside."""


_PENULTIMATE: WeakKeyDictionary[Model, str] = WeakKeyDictionary()
"""By network, since a head copies its weights and is asked for with every batch."""


def penultimate(model: Model) -> str:
    """The layer whose features go into the last linear layer: an argument for `Model.features`.

    Looked up once per network: its weights may change, its layers do not.
    """
    network = network_of(model)
    if network not in _PENULTIMATE:
        _PENULTIMATE[network] = find_head(network).layer
    return _PENULTIMATE[network]


_WATCHED: WeakKeyDictionary[Model, str] = WeakKeyDictionary()


def watched_layer(model: Model) -> str:
    """The layer in front of the last linear one, where the network tells what goes through it while it answers.

    Empty where it does not, or where it does not end in a linear layer. Looked up once per network.
    """
    network = network_of(model)
    if network not in _WATCHED:
        _WATCHED[network] = ""
        if isinstance(network, Watchable) and network.is_watchable and "features" in model.capabilities:
            with suppress(InputError):
                _WATCHED[network] = penultimate(network)
    return _WATCHED[network]


@contextmanager
def watching(model: Model) -> Iterator[list[NDArray[np.float32]]]:
    """A list that holds the features of `watched_layer` of every pass while inside; empty where there is none."""
    with watching_layer(network_of(model), watched_layer(model)) as seen:
        yield seen


@contextmanager
def watching_layer(network: Model, layer: str | None) -> Iterator[list[NDArray[np.float32]]]:
    """A list that holds the features of a layer of a network, of every pass while inside; empty where none is named."""
    if not layer:
        yield []
        return
    assert isinstance(network, Watchable)
    with network.watch(layer) as seen:
        yield seen
