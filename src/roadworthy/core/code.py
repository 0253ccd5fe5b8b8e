"""The identity of code: what tells whether a class that someone wrote still does what it did for stored results."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from roadworthy.core.hashing import digest, digest_array

OWN = __name__.partition(".")[0]
LIBRARIES = tuple(sysconfig.get_path(part) for part in ("stdlib", "platstdlib", "purelib", "platlib"))
FIRST_SEEN: dict[int, tuple[Any, Any]] = {}
"""What can change while it is used (a list, an array, a cache), with its description when it was first looked at."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def code_of(cls: type) -> str:
    """What stands for the code of a class in a hash: empty for Roadworthy's own classes in their first version.

    Roadworthy's classes raise `code_version` when what they compute changes. The code of anyone else's class is its
    methods as compiled, its attributes, and the functions, classes and values that these use, unless they belong to an
    installed library. Comments, docstrings and names of files do not count; a class that states a `code_version`
    of its own answers for all changes itself.

    >>> from roadworthy.core.types import Batch
    >>> code_of(Batch)
    ''
    """
    foreign = [base for base in cls.__mro__ if base.__module__.partition(".")[0] != OWN]
    stated = next((vars(base)["code_version"] for base in foreign if "code_version" in vars(base)), None)
    if stated is not None:
        return f"version {stated}"
    walk = _Walk(cls.__module__)
    written = [walk.describe(base) for base in foreign if walk.is_written(base.__module__)]
    version = getattr(cls, "code_version", 1)
    if not written:
        return "" if version == 1 else f"version {version}"
    return digest([version, written])


class _Walk:
    """Describes in plain values what code uses; a function or class met again is told by its number."""

    def __init__(self, home: str) -> None:
        self.home = home.partition(".")[0]
        self.met: dict[int, int] = {}

    def is_written(self, module: str | None) -> bool:
        """Whether a module is the author's: in the package of the class itself, or no installed library."""
        top = (module or "").partition(".")[0]
        if top in ("", OWN) or top in sys.stdlib_module_names:
            return False
        file = getattr(sys.modules.get(module or ""), "__file__", None)
        return top == self.home or file is None or not any(Path(file).is_relative_to(place) for place in LIBRARIES)

    def describe(self, value: Any) -> Any:
        """A plain value that differs where the code or the value does."""
        if isinstance(value, PLAIN):
            return [type(value).__name__, repr(value)]
        if isinstance(value, tuple | frozenset):
            parts = [self.describe(part) for part in value]
            return [type(value).__name__, *(parts if isinstance(value, tuple) else sorted(parts, key=repr))]
        if isinstance(value, FunctionType | type):
            if not self.is_written(value.__module__):
                return _name(value)
            if id(value) in self.met:
                return self.met[id(value)]
            self.met[id(value)] = len(self.met)
            return self._class(value) if isinstance(value, type) else self._function(value)
        if id(value) not in FIRST_SEEN:
            FIRST_SEEN[id(value)] = (value, None)
            FIRST_SEEN[id(value)] = (value, _Walk(self.home)._object(value))
        return FIRST_SEEN[id(value)][1]

    def _object(self, value: Any) -> Any:
        match value:
            case np.ndarray() if value.dtype != object:
                return digest_array(value)
            case staticmethod() | classmethod() | MethodType():
                return self.describe(value.__func__)
            case property():
                return [self.describe(part) for part in (value.fget, value.fset, value.fdel)]
            case functools.cached_property():
                return self.describe(value.func)
            case functools.partial() | functools.partialmethod():
                return [self.describe(part) for part in (value.func, tuple(value.args), tuple(value.keywords.items()))]
            case Mapping():
                return sorted(([self.describe(key), self.describe(item)] for key, item in value.items()), key=repr)
            case list():
                return [self.describe(part) for part in value]
            case Set():
                return sorted(map(self.describe, value), key=repr)
        if callable(value) and hasattr(value, "__wrapped__"):
            return self.describe(value.__wrapped__)
        if self.is_written(type(value).__module__):
            return [self.describe(type(value)), self.describe(tuple(getattr(value, "__dict__", {}).items()))]
        return _name(value)

    def _class(self, cls: type) -> Any:
        """Methods and attributes by name; special ones only where they are written down, not generated."""
        told = {}
        for name, value in vars(cls).items():
            written = isinstance(value, FunctionType) and value.__code__.co_filename != "<string>"
            if written or not name.startswith(("__", "_abc_")):
                told[name] = self.describe(value)
        return [cls.__qualname__, told, self.describe(cls.__bases__)]

    def _function(self, function: FunctionType) -> Any:
        """Its code, what it is given by default and what it finds outside itself."""
        cells = [_content(cell) for cell in function.__closure__ or ()]
        names = list(dict.fromkeys(_names(function.__code__)))
        outside = {}
        for name in names:
            found = function.__globals__.get(name)
            if not isinstance(found, ModuleType):
                outside[name] = self.describe(found)
            elif self.is_written(found.__name__):
                outside[name] = {each: self.describe(vars(found)[each]) for each in names if each in vars(found)}
        given = self.describe((function.__defaults__, tuple((function.__kwdefaults__ or {}).items())))
        return [
            self._code(function.__code__, function.__doc__),
            given,
            [self.describe(cell) for cell in cells],
            outside,
        ]

    def _code(self, code: CodeType, doc: str | None) -> Any:
        constants = [
            self._code(each, None) if isinstance(each, CodeType) else self.describe(each)
            for each in code.co_consts
            if doc is None or each != doc
        ]
        return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
