"""What decides the answers of a user's function: its source, the values and code that it reads, and its files.

Stored answers may be used again only while all of this is unchanged. What cannot be seen (the inside of an object that
has no readable content) is an error that asks for a `version`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import os
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from roadworthy.core.code import PLAIN, cell_content, code_files, is_written_here
from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest, digest_array, digest_file
from roadworthy.core.registry import is_built_in

MAX_PATH = 4096
ENVIRONMENT = {"environ", "getenv"}
"""The names by which code reads environment variables."""
METHODS = ("__call__", "__init__", "__new__")
CODE_SUFFIXES = (".py", ".pyc", ".pyi", ".so", ".pth", ".egg-link")
NO_DATA = tuple(Path(name) for name in ("/proc", "/sys", "/dev", "/etc"))
WITHOUT_CONTENT = (type(threading.Lock()), type(threading.RLock()), threading.local, logging.Logger, types.GenericAlias)
"""What a function may read without its answers depending on it."""


class Unseen(Exception):
    """The content of a value that a function reads cannot be seen; the message names the value."""


def identity_of(function: Callable[..., Any]) -> Any:
    """Everything visible that decides what a function answers, as a plain value for a hash.

    Read are its source code, the values that it captures or has as defaults or attributes, the global variables and
    environment variables it names, and the same of the functions, classes and modules of the user's that it uses.
    Arrays, torch modules and objects of libraries such as scikit-learn count by their content, files named in the code
    by theirs. Functions and classes of installed libraries count by their name. Raises `Unseen` where a value has no
    readable content.

    >>> identity_of(np.mean)
    'numpy.mean'
    """
    return _Reader().value(function, getattr(function, "__name__", type(function).__name__))


def code_in_recipe(maker: Callable[..., Any]) -> dict[str, str]:
    """What a recipe says of the code that makes a network: nothing of Roadworthy's own, else its hash under `code`.

    >>> code_in_recipe(identity_of)
    {}
    """
    if is_built_in(maker):
        return {}
    try:
        return {"code": digest(identity_of(maker))}
    except Unseen as error:
        raise InputError(f"what {maker.__name__} reads cannot be seen: {error}; pass it in plain values") from None


class _Reader:
    """Turns what a function reads into plain values; what it has read before is named by its number."""

    def __init__(self) -> None:
        self._turns: dict[int, int] = {}
        self._kept: list[object] = []  # so that no two values have the same id

    def value(self, value: Any, name: str) -> Any:
        """A value as a plain one; `name` says where it was read."""
        if isinstance(value, str | os.PathLike):
            return [str(value), _content_of_file(value)]
        if isinstance(value, PLAIN):
            return repr(value)
        if isinstance(value, WITHOUT_CONTENT) or type(value).__module__ == typing.__name__:
            return type(value).__qualname__
        if id(value) in self._turns:
            return {"again": self._turns[id(value)]}
        self._turns[id(value)] = len(self._turns)
        self._kept.append(value)
        return self._new(value, name)

    def _new(self, value: Any, name: str) -> Any:
        if isinstance(value, types.ModuleType):
            return value.__name__ if not is_written_here(value.__name__) else _modules_text(value)
        if callable(value) and hasattr(value, "__qualname__") and not isinstance(value, types.MethodType):
            if not is_written_here(value.__module__ or "builtins"):
                return f"{value.__module__}.{value.__qualname__}"
            if isinstance(value, type):
                return self._class(value, name)
            if isinstance(value, types.FunctionType):
                return self._function(value, name)
        if isinstance(value, types.MethodType):
            return [self.value(value.__func__, name), self.value(value.__self__, name)]
        if isinstance(value, functools.partial):
            return [self.value(item, name) for item in (value.func, value.args, value.keywords)]
        if isinstance(value, Mapping):
            return [[self.value(k, name), self.value(v, f"{name}[{k!r}]")] for k, v in value.items()]
        if isinstance(value, list | tuple):
            return [self.value(item, name) for item in value]
        if hasattr(value, "__wrapped__"):
            return [type(value).__qualname__, self.value(value.__wrapped__, name)]
        return self._object(value, name)

    def _object(self, value: Any, name: str) -> Any:
        """An object by its content: an array's, a network's, a session's, else its attributes or its pickled form."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        torch = sys.modules.get("torch")
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return digest_array(value)
        if torch is not None and isinstance(value, torch.nn.Module | torch.Tensor):
            from roadworthy.models.torch_state import digest_tensors, module_state

            return module_state(value) if isinstance(value, torch.nn.Module) else digest_tensors([("", value)])
        if kind.startswith("onnxruntime.") and hasattr(value, "_model_path"):
            content = getattr(value, "_model_bytes", None)
            sha = digest_array(np.frombuffer(content, np.uint8)) if content else _content_of_file(value._model_path)
            return [kind, sha]
        if is_written_here(type(value).__module__) and hasattr(value, "__dict__"):
            return [self.value(type(value), name), self.value(vars(value), name)]
        if hasattr(value, "get_params") and hasattr(value, "__dict__"):  # an estimator, which may hold code of the user
            return [kind, self.value(dict(sorted(vars(value).items())), name)]
        try:
            import joblib

            return [kind, joblib.hash(value)]
        except Exception:  # any error of an object that cannot be pickled
            raise Unseen(f"{name} ({type(value).__name__})") from None

    def _function(self, function: types.FunctionType, name: str) -> Any:
        try:
            source = inspect.getsource(function)
        except (OSError, TypeError):
            raise Unseen(f"the source of {name}") from None
        read: dict[str, Any] = {}
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            read[key] = self.value(cell_content(cell), key)
        defaults: dict[Any, Any] = dict(enumerate(function.__defaults__ or ()))
        for key, default in (defaults | (function.__kwdefaults__ or {})).items():
            read[f"default {key}"] = self.value(default, f"a default of {name}")
        for key, value in vars(function).items():
            read[f"attribute {key}"] = self.value(value, f"{name}.{key}")
        names, texts = _names_in(function.__code__)
        for key in sorted((names | texts) & set(function.__globals__)):
            read[key] = self._read_global(function.__globals__[key], key, names | texts)
        for key in _imported_inside(function, names | texts):
            read[f"module {key}"] = self._read_global(sys.modules[key], key, names | texts)
        if names & ENVIRONMENT:
            read["environment"] = {text: os.environ[text] for text in sorted(texts & set(os.environ))}
        return [source, read, [_content_of_file(text) for text in sorted(texts)]]

    def _read_global(self, value: Any, key: str, names: set[str]) -> Any:
        """A global value; of a module of the user's also what the code may take from it."""
        plain = self.value(value, key)
        if not isinstance(value, types.ModuleType) or not is_written_here(value.__name__):
            return plain
        taken = sorted(names & set(vars(value)))
        return [plain, {name: self.value(vars(value)[name], f"{key}.{name}") for name in taken}]

    def _class(self, cls: type, name: str) -> Any:
        """What the methods and the values of a class say, and those of its bases."""
        keys = [key for key in vars(cls) if key in METHODS or not key.startswith(("__", "_abc_"))]
        made = getattr(vars(cls).get("__dataclass_params__"), "init", False)
        written = [key for key in keys if not (made and key == "__init__")]
        parts = {key: self._member(vars(cls)[key], f"{name}.{key}") for key in written}
        if made:
            parts["fields"] = [self._field(entry, name) for entry in dataclasses.fields(cls)]
        return [cls.__qualname__, parts, [self.value(base, name) for base in cls.__bases__]]

    def _field(self, entry: dataclasses.Field[Any], name: str) -> Any:
        """What the constructor that `dataclass` makes, which has no source, follows from: names and defaults."""
        defaults = [value for value in (entry.default, entry.default_factory) if value is not dataclasses.MISSING]
        return [
            entry.name,
            entry.init,
            entry.kw_only,
            [self.value(value, f"{name}.{entry.name}") for value in defaults],
        ]

    def _member(self, value: Any, name: str) -> Any:
        """A method by its function, also inside a property and the like; any other value as it is."""
        if not isinstance(value, types.FunctionType) and hasattr(type(value), "__get__"):
            inner = [getattr(value, key, None) for key in ("__func__", "fget", "func", "__wrapped__")]
            return next((self.value(item, name) for item in inner if item is not None), type(value).__qualname__)
        return self.value(value, name)


def _modules_text(module: types.ModuleType) -> list[str]:
    """The hashes of a module of the user's and of the files that it imports."""
    file = getattr(module, "__file__", None)
    return sorted(code_files(Path(file)).values()) if file else [module.__name__]


def _names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names and the texts in some code, that of functions inside it included."""
    names, texts = set(code.co_names), {constant for constant in code.co_consts if isinstance(constant, str)}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more_names, more_texts = _names_in(inner)
            names, texts = names | more_names, texts | more_texts
    return names, texts


def _imported_inside(function: types.FunctionType, names: set[str]) -> list[str]:
    """The loaded modules of the user's that a function names, as it must to import them, relative ones included."""
    package = function.__globals__.get("__package__")
    spelled = names | {f"{package}.{name}" for name in names if package}
    return sorted(name for name in spelled & set(sys.modules) if is_written_here(name))


def _content_of_file(value: str | os.PathLike[Any]) -> str | None:
    """The hash of the file that a text names; None where it names none."""
    text = os.fspath(value)
    if not isinstance(text, str) or not 0 < len(text) < MAX_PATH or "\n" in text or "\0" in text:
        return None
    try:
        path = Path(text)
        return digest_file(path) if path.is_file() and path.suffix not in CODE_SUFFIXES else None
    except OSError:
        return None


_WATCHED = threading.local()


@contextmanager
def watched_files() -> Iterator[set[Path]]:
    """The data files that this thread opens for reading inside; what libraries open by themselves is not seen.

    Python code, libraries and what belongs to the machine do not count.
    """
    _start_watching()
    before, files = getattr(_WATCHED, "files", None), set[str]()
    _WATCHED.files = files
    read: set[Path] = set()
    try:
        yield read
    finally:
        _WATCHED.files = before
        read.update(path for path in map(Path, files) if _is_data(path))
        if before is not None:
            before.update(files)


@functools.cache
def _start_watching() -> None:
    """Listen to Python's audit events, once per process: a listener cannot be removed."""
    sys.addaudithook(_listen)


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    files = getattr(_WATCHED, "files", None) if event == "open" else None
    if files is None:
        return
    path, _, flags = arguments
    if isinstance(path, str | bytes) and not (isinstance(flags, int) and flags & os.O_WRONLY):
        files.add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 (an audit event must not import anything)


def _is_data(path: Path) -> bool:
    installed = [Path(folder).resolve() for folder in (sys.prefix, sys.base_prefix)]
    if path.suffix in CODE_SUFFIXES or any(path.is_relative_to(folder) for folder in (*NO_DATA, *installed)):
        return False
    return path.is_file()
