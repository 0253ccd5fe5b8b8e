"""Registries: components by name, ours by decorator, third parties' by entry point or by a plugin's file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar

from roadworthy.core.errors import InputError, UnknownName, first_line, foreign_code

T = TypeVar("T")


class RegistrationError(ValueError):
    """A component cannot be registered; the message tells its author what to change."""


class NameTaken(RegistrationError):
    """Two different components want the same name in a registry."""


class Registry(Generic[T]):
    """Components of one kind by name. Third parties add theirs under the entry point group `group`.

    >>> colours = Registry[type]("colour")
    >>> @colours.register("red")
    ... class Red: ...
    >>> colours.get("red").__name__, list(colours)
    ('Red', ['red'])
    >>> colours.group
    'roadworthy.colours'
    """

    everyone: ClassVar[list[Registry[Any]]] = []
    """All registries."""
    replaceable: ClassVar[frozenset[int]] = frozenset()
    """The `id` of every component that another one may replace: those of plugins that are not used now."""

    def __init__(self, kind: str, check: Callable[[str, Any], None] | None = None) -> None:
        self.kind = kind
        self.packages: dict[str, str] = {}
        """The installed packages that bring components by entry points, by the name of the component."""
        self._check = check
        self._members: dict[str, T] = {}
        self._entry_points_loaded = False
        self.everyone.append(self)

    @property
    def group(self) -> str:
        """The group of entry points under which installed packages add components: `roadworthy.<kind>s`."""
        return f"roadworthy.{self.kind}s"

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a component; a name is used once, except by the same class defined again.

        A component that fails the check of its registry, or whose name is taken, is a `RegistrationError`.
        """

        def add(member: T) -> T:
            if self._check is not None:
                self._check(name, member)
            other = self._members.get(name, member)
            if not is_same(other, member) and id(other) not in self.replaceable:
                raise NameTaken(f"there is already a {self.kind} {name!r} ({_origin(other)}): choose another name")
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
        for point in entry_points(group=self.group):
            package = point.dist.name if point.dist else point.value

            def explain(error: BaseException, name: str = point.name, package: str = package) -> InputError:
                error_type = "" if isinstance(error, RegistrationError) else f"{type(error).__name__}: "
                return InputError(
                    f"the {self.kind} {name!r} of the installed package {package} cannot be loaded "
                    f"({error_type}{first_line(error)}): fix or uninstall that package"
                )

            with foreign_code(explain), redirect_stdout(sys.stderr):
                self.register(point.name)(point.load())
            self.packages[point.name] = package


Registered = list[tuple[Registry[Any], str, Any]]
"""Components with their registry and name."""


@contextmanager
def registering(instead_of: Registered, may_replace: Collection[Any] = ()) -> Iterator[Registered]:
    """A block in which a plugin registers components `instead_of` those that it registered before.

    It may take the names of the components `may_replace`. The list that it gives holds, after the block, what was
    registered in it. Where the block raises, every registry is as it was before.
    """
    for registry in Registry.everyone:
        registry._load_entry_points()
    before = [(registry, dict(registry._members)) for registry in Registry.everyone]
    for registry, name, member in instead_of:
        if registry._members.get(name) is member:
            del registry._members[name]
    kept = [(registry, dict(registry._members)) for registry, _ in before]
    registered: Registered = []
    Registry.replaceable = frozenset(map(id, may_replace))
    try:
        yield registered
    except BaseException:
        for registry, members in before:
            registry._members.clear()
            registry._members.update(members)
        raise
    finally:
        Registry.replaceable = frozenset()
    registered += [
        (registry, name, member)
        for registry, members in kept
        for name, member in registry._members.items()
        if members.get(name) is not member
    ]


def _origin(member: object) -> str:
    """Where a component comes from, as far as it says so: `built in`, `of my.py`."""
    module = getattr(member, "__module__", None) if isinstance(member, type) or callable(member) else None
    if module is None:
        return "of another plugin"
    if is_built_in(member):
        return "built in"
    return f"of {getattr(sys.modules.get(module), '__file__', None) or module}"


def is_built_in(member: object) -> bool:
    """Whether a component is one of Roadworthy's own, by the module that defines it."""
    return str(getattr(member, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def is_same(first: object, second: object) -> bool:
    """Whether two components are one, or two definitions of one: of the same module and qualified name."""
    names = [(getattr(part, "__module__", None), getattr(part, "__qualname__", None)) for part in (first, second)]
    return first is second or (names[0] == names[1] and None not in names[0])
