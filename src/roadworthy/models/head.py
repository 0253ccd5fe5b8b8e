"""The last linear layer of a network: features go in, logits come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.models.classes import AlignedModel, Wrapper


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
        """Whether `watch` gives what `Model.features` does, but for rounding."""

    @property
    def watched_bits_are_its_own(self) -> bool:
        """Whether it does so to the bit, and the answer keeps its bits too: then what is stored may come from there."""

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


def _passed_network(model: Model) -> Model:
    """The network that passes the images of a model once for each answer, whatever is made of its answer afterwards."""
    network = network_of(model)
    while isinstance(network, Wrapper) and network.only_rescales:
        network = network_of(network.model)
    return network


def can_watch(model: Model) -> bool:
    """Whether layers can come with the answer of a model, from the same pass, as they are but for rounding."""
    network = _passed_network(model)
    return isinstance(network, Watchable) and network.is_watchable and "features" in model.capabilities


def watched_layer(model: Model) -> str:
    """The layer in front of the last linear one, where it comes with the answer without a change to any bit.

    Empty where it does not, or where the network does not end in a linear layer. Looked up once per network.
    """
    network = network_of(model)
    if network not in _WATCHED:
        _WATCHED[network] = ""
        if can_watch(model) and isinstance(network, Watchable) and network.watched_bits_are_its_own:
            with suppress(InputError):
                _WATCHED[network] = penultimate(network)
    return _WATCHED[network]


@contextmanager
def watching(model: Model, layers: Sequence[str]) -> Iterator[dict[str, list[NDArray[np.float32]]]]:
    """What `features` gives of these layers of every pass while inside, by layer; nothing where none is named."""
    network = _passed_network(model)
    with ExitStack() as stack:
        seen = {}
        for layer in layers:
            assert isinstance(network, Watchable)
            seen[layer] = stack.enter_context(network.watch(layer))
        yield seen
