"""Registries: components found by name, ours by decorator, third parties' by entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from roadworthy.core.errors import UnknownName

T = TypeVar("T")


class Registry(Generic[T]):
    """Components of one kind by name. Third parties add theirs under the entry point group `roadworthy.<kind>s`.

    >>> colours = Registry[type]("colour")
    >>> @colours.register("red")
    ... class Red: ...
    >>> colours.get("red").__name__, list(colours)
    ('Red', ['red'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._members: dict[str, T] = {}
        self._plugins_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a component; a name is used once, except by the same class defined again."""

        def add(member: T) -> T:
            if name in self._members and not _is_same(self._members[name], member):
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._members[name] = member
            return member

        return add

    def get(self, name: str) -> T:
        """The component of that name; an unknown one is an error that names the nearest."""
        self._load_plugins()
        if name not in self._members:
            raise UnknownName(self.kind, name, self._members)
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        self._load_plugins()
        return name in self._members

    def __len__(self) -> int:
        self._load_plugins()
        return len(self._members)

    def _load_plugins(self) -> None:
        if not self._plugins_loaded:
            self._plugins_loaded = True
            for point in entry_points(group=f"roadworthy.{self.kind}s"):
                self.register(point.name)(point.load())


def _is_same(first: object, second: object) -> bool:
    """Whether two components are one, or two definitions of one: of the same module and qualified name."""
    names = [(getattr(part, "__module__", None), getattr(part, "__qualname__", None)) for part in (first, second)]
    return first is second or (names[0] == names[1] and None not in names[0])
