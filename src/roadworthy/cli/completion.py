"""What the shell proposes for a name that is being typed: shifts, suites, metrics, monitors, templates.

The names of our own components stand in a written file, and those of installed packages in their metadata, so that
nothing is imported while the shell waits. Components of plugins, which a command names itself, are not proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import entry_points

from roadworthy.cli.known_names import KNOWN_NAMES

GROUPS = {"shifts": ("shifts", "attacks"), "metrics": ("metrics",), "monitors": ("monitors",)}
"""The groups of entry points under which installed packages add components of a kind, without `roadworthy.`."""
OF_PROTOCOLS = ("suites", "metrics")
"""Kinds of which protocols declare some: those of an installed protocol are known once it is imported."""


def names_of(kind: str) -> Callable[[str], list[str]]:
    """A function that completes the name of a component of a kind: shifts, suites, metrics, monitors or templates.

    >>> names_of("shifts")("fog")
    ['fog', 'fog_veil']
    """

    def complete(incomplete: str) -> list[str]:
        if kind in OF_PROTOCOLS and entry_points(group="roadworthy.protocols"):
            from roadworthy.listing import listing

            return _starting_with(incomplete, (name for name, _ in listing(kind)))
        groups = (entry_points(group=f"roadworthy.{group}") for group in GROUPS.get(kind, ()))
        return _starting_with(incomplete, (*KNOWN_NAMES[kind], *(point.name for points in groups for point in points)))

    return complete


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that start so, in order, each once."""
    return sorted({name for name in names if name.startswith(incomplete)})
