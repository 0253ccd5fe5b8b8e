"""Where dropout goes in a network of a backbone and a head, and which of it is active."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError
from roadworthy.models.preprocess import parse_choice
from roadworthy.models.torch_tensors import import_torch

if TYPE_CHECKING:
    import torch

PLACEMENTS = ("none", "last_layer", "after_backbone", "head", "full")
HEAD_LAYERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "none": (),
        "last_layer": ("hidden2",),
        "after_backbone": ("features",),
        "head": ("features", "hidden1", "hidden2"),
        "full": ("features", "hidden1", "hidden2"),
    }
)
"""What each placement drops in the head: the features, and the first and second hidden layer behind their ReLU."""


def check_placement(placement: str, p: float) -> None:
    """Refuse an unknown placement, and a probability that does not fit it.

    >>> check_placement("none", 0.0), check_placement("head", 0.05)
    (None, None)
    """
    parse_choice("placement", placement, PLACEMENTS)
    if placement == "none" and p != 0:
        raise InputError(f"placement 'none' has no dropout, so p = {p:g} would have no effect: leave out `p`")
    if placement != "none" and not 0 < p < 1:
        raise InputError(f"placement {placement!r} needs a probability `p` above 0 and below 1, not {p:g}")


def drop_after(activations: Iterable[tuple[Any, str]], p: float) -> int:
    """Put dropout of probability `p` behind activations, each given by its module and its name there; count them.

    An activation has no weights, so the names of a network's weights stay as they are.

    >>> nn = import_torch().nn
    >>> block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> drop_after([(block, "1")], 0.05), active_layers(block), sorted(block.state_dict())
    (1, ['1.dropout'], ['0.bias', '0.weight'])
    """
    nn = import_torch().nn
    count = 0
    for parent, name in activations:
        dropped = nn.Sequential()
        dropped.add_module("activation", getattr(parent, name))
        dropped.add_module("dropout", nn.Dropout(p))
        setattr(parent, name, dropped)
        count += 1
    return count


def active_layers(network: torch.nn.Module) -> list[str]:
    """The names of the dropout modules that drop something (probability above 0), in the network's order.

    >>> nn = import_torch().nn
    >>> active_layers(nn.Sequential(nn.Dropout(0.1), nn.Linear(2, 2), nn.Dropout(0.0)))
    ['0']
    """
    dropout = import_torch().nn.Dropout
    return [name for name, module in network.named_modules() if isinstance(module, dropout) and module.p > 0]
