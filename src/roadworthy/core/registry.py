"""Registries: components by name, ours by decorator, third parties' by entry point or by a plugin's file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar

from roadworthy.core.errors import InputError, UnknownName, first_line, foreign_code

T = TypeVar("T")


class NameTaken(ValueError):
    """Two different components want the same name in a registry."""


class Registry(Generic[T]):
    """Components of one kind by name. Third parties add theirs under the entry point group `roadworthy.<kind>s`.

    >>> colours = Registry[type]("colour")
    >>> @colours.register("red")
    ... class Red: ...
    >>> colours.get("red").__name__, list(colours)
    ('Red', ['red'])
    """

    everyone: ClassVar[list[Registry[Any]]] = []
    """All registries."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._members: dict[str, T] = {}
        self._entry_points_loaded = False
        self.everyone.append(self)

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a component; a name is used once, except by the same class defined again."""

        def add(member: T) -> T:
            if name in self._members and not _is_same(self._members[name], member):
                raise NameTaken(
                    f"{self.kind} {name!r} is registered twice, {_origin(self._members[name])} already: choose "
                    "another name"
                )
            self._members[name] = member
            return member

        return add

    def get(self, name: str) -> T:
        """The component of that name; an unknown one is an error that names the nearest."""
        self._load_entry_points()
        if name not in self._members:
            raise UnknownName(self.kind, name, self._members)
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        self._load_entry_points()
        return name in self._members

    def __len__(self) -> int:
        self._load_entry_points()
        return len(self._members)

    def _load_entry_points(self) -> None:
        """Add what installed packages declare; one that cannot be imported is an `InputError` that names it."""
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True
        for point in entry_points(group=f"roadworthy.{self.kind}s"):
            package = point.dist.name if point.dist else point.value

            def explain(error: BaseException, name: str = point.name, package: str = package) -> InputError:
                return InputError(
                    f"the {self.kind} {name!r} of the installed package {package} cannot be loaded "
                    f"({type(error).__name__}: {first_line(error)}): fix or uninstall that package"
                )

            with foreign_code(explain):
                self.register(point.name)(point.load())


Registered = list[tuple[Registry[Any], str, Any]]
"""Components with their registry and name."""


@contextmanager
def registering(instead_of: Registered) -> Iterator[Registered]:
    """A block in which a plugin registers components `instead_of` those that it registered before.

    The list that it gives holds, after the block, what was registered in it. Where the block raises, every registry is
    as it was before.
    """
    for registry in Registry.everyone:
        registry._load_entry_points()
    before = [(registry, dict(registry._members)) for registry in Registry.everyone]
    for registry, name, member in instead_of:
        if registry._members.get(name) is member:
            del registry._members[name]
    kept = [(registry, dict(registry._members)) for registry, _ in before]
    registered: Registered = []
    try:
        yield registered
    except BaseException:
        for registry, members in before:
            registry._members.clear()
            registry._members.update(members)
        raise
    registered += [
        (registry, name, member)
        for registry, members in kept
        for name, member in registry._members.items()
        if members.get(name) is not member
    ]


def _origin(member: object) -> str:
    """Where a component comes from, as far as it says so: `by my.py`."""
    module = getattr(member, "__module__", None) if isinstance(member, type) or callable(member) else None
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return f"by {file or module}" if module else "by another plugin"


def _is_same(first: object, second: object) -> bool:
    """Whether two components are one, or two definitions of one: of the same module and qualified name."""
    names = [(getattr(part, "__module__", None), getattr(part, "__qualname__", None)) for part in (first, second)]
    return first is second or (names[0] == names[1] and None not in names[0])
