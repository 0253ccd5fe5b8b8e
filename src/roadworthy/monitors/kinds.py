"""The kinds of monitors by name: those that are registered, and those that were used in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import InputError
from roadworthy.core.registry import Registry

if TYPE_CHECKING:
    from roadworthy.monitors.base import Monitor

MONITORS: Registry[type[Monitor]] = Registry("monitor")
"""The classes of monitors by the names that studies use."""
_SEEN: dict[str, type[Monitor]] = {}
"""Classes that are not registered but were used in this process, by name."""


def remember_kind(kind: type[Monitor]) -> None:
    """Note a class of monitors, so that `find_kind` knows it; another class of the same name is an error."""
    name = kind.name
    known = MONITORS.get(name) if name in MONITORS else _SEEN.setdefault(name, kind)
    if known is kind:
        return
    if name in MONITORS or (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} bears the name {name} of another monitor, "
            f"{known.__module__}.{known.__qualname__}: give it a name of its own"
        )
    _SEEN[name] = kind  # a notebook cell that was run again


def find_kind(name: str) -> type[Monitor]:
    """The class of monitors of that name: registered, or used in this process."""
    if name not in MONITORS and name not in _SEEN:
        raise InputError(
            f"monitor {name} is not known here: import what defines and registers it, or install the package that "
            "declares it (entry point group roadworthy.monitors)"
        )
    return MONITORS.get(name) if name in MONITORS else _SEEN[name]
