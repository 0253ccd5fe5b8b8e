"""Models in processes of their own, with limits of time and memory: what one of them does harms no other.

`roadworthy.models.load_model` opens them; nothing else needs to know which models are isolated.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from roadworthy.core.errors import InputError
from roadworthy.core.importing import plugins_in_force
from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import Model
from roadworthy.models.isolation.limits import Isolation, Limits, parse_limits
from roadworthy.models.isolation.model import IsolatedModel, IsolatedTorch, isolated_class
from roadworthy.models.isolation.pool import Pool
from roadworthy.models.isolation.process import CannotBeIsolated
from roadworthy.models.isolation.unopened import UnopenedModel

__all__ = [
    "FOREIGN",
    "CannotBeIsolated",
    "IsolatedModel",
    "IsolatedTorch",
    "Isolation",
    "Limits",
    "UnopenedModel",
    "foreign",
    "is_foreign",
    "isolation_of",
    "open_isolated",
    "parse_limits",
]

FOREIGN = "foreign"
"""As the value of `isolate`: somebody's code runs in a process of its own, unless its entry says otherwise."""
Loader = TypeVar("Loader", bound=Callable[..., Model])


def foreign(loader: Loader, isolation: Isolation | None = None) -> Loader:
    """Declare that a loader's models are somebody's code or answers: in a study they are isolated by default."""
    loader.runs_foreign_code, loader.isolation = True, isolation or Isolation()  # type: ignore[attr-defined]
    return loader


def is_foreign(loader: Callable[..., Model]) -> bool:
    """Whether a loader runs somebody's code: one of ours where it declares that, a plugin's unless it denies it."""
    return bool(getattr(loader, "runs_foreign_code", not is_built_in(loader)))


def isolation_of(loader: Callable[..., Model]) -> Isolation:
    """What a loader declares of the processes of its models."""
    declared = getattr(loader, "isolation", None)
    return declared if isinstance(declared, Isolation) else Isolation()


def open_isolated(
    kind: str,
    loader: Callable[..., Model],
    value: Any,
    settings: Mapping[str, Any],
    common: Mapping[str, Any],
    limits: Limits,
    open_here: Callable[[], Model],
) -> IsolatedModel:
    """A model in a process of its own; `open_here` opens the same one in this process, for what takes it apart."""
    if not hasattr(os, "fork"):
        raise CannotBeIsolated("a model in a process of its own needs Linux or macOS: leave out `isolate=`")
    try:
        recipe = {
            "kind": kind,
            "value": os.fspath(value),
            "settings": json.loads(json.dumps(dict(settings), default=os.fspath)),
            "common": {**common, "base": str(common["base"].absolute())},
            "path": sys.path,
            "plugins": {} if is_built_in(loader) else plugins_in_force(),
        }
    except TypeError as error:
        raise InputError(
            f"model {common['name']} lives in the memory of this process, so that it cannot run in one of its own "
            f"({error}): `isolate: false`"
        ) from None
    pool = Pool(recipe, limits, str(common["name"] or kind), isolation_of(loader).most_processes)
    return isolated_class(pool.description)(pool, open_here)
