"""Python code named by a user, `file.py:name` or `package.module:name`: run only where the user trusts it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from roadworthy.core.code import code_files
from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.hashing import digest
from roadworthy.core.validation import find_mode
from roadworthy.models.identity import watched_files


def require_trust(what: str, trust: bool) -> None:
    """Refuse to run code that came with the user's files, unless the user trusts its author.

    >>> require_trust("m.pt holds code (TorchScript)", trust=True)
    """
    if not trust:
        raise InputError(f"{what}: pass `trust=True` if you trust its author")


def require_unpickle(what: str, unpickle: bool) -> None:
    """Refuse to read a file with pickle, which runs whatever code the file holds, unless the user asks for this.

    `trust` does not grant it: the user's own architecture says nothing about the author of the weights.

    >>> require_unpickle("m.pt holds a pickled module", unpickle=True)
    """
    if not unpickle:
        raise InputError(
            f"{what}, and pickle runs any code in it: pass `unpickle=True` only if you made the file yourself"
        )


def is_object_name(spec: str) -> bool:
    """True for `file.py:name` and `package.module:name`.

    >>> is_object_name("nets/my.py:resnet"), is_object_name("timm.models:resnet18"), is_object_name("C:/m.onnx")
    (True, True, False)
    """
    return re.fullmatch(r".*\.py:[A-Za-z_][\w.]*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", spec) is not None


@dataclass(frozen=True)
class LoadedObject:
    """What a user named: the object, the hashes of the code that holds it, and the data files read on import."""

    value: Any
    code: tuple[str, ...]
    files: frozenset[Path]


def load_object(spec: str, base: Path, trust: bool) -> LoadedObject:
    """The object that `file.py:name` or `package.module:name` names; running it needs `trust`."""
    if not is_object_name(spec):
        raise InputError(f"cannot read {spec!r}: write file.py:name or package.module:name")
    source, name = spec.rsplit(":", 1)
    require_trust(f"{source} holds code that would be run", trust)
    with (
        foreign_code(lambda error: InputError(f"cannot import {source}: {type(error).__name__}: {first_line(error)}")),
        watched_files() as files,
    ):
        module = _run_file(base / source) if source.endswith(".py") else importlib.import_module(source)
    value: Any = module
    for step in name.split("."):
        if not hasattr(value, step):
            known = ", ".join(key for key, member in vars(module).items() if callable(member) and key[0] != "_")
            raise InputError(f"{source} has no {name!r}; it has: {known or 'nothing to call'}")
        value = getattr(value, step)
    file = inspect.getsourcefile(module)
    return LoadedObject(value, tuple(sorted(code_files(Path(file)).values())) if file else (spec,), frozenset(files))


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module of its own; it can import the files beside it."""
    if not stat.S_ISREG(find_mode(path, "Python file")):
        raise InputError(f"there is no Python file {path}")
    name = f"roadworthy_user_{path.stem}_{digest(str(path.resolve()))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder, writes = str(path.resolve().parent), sys.dont_write_bytecode
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True  # the user's folder stays as it is
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(folder)
    return module
