"""Python code named by a user, `file.py:name` or `package.module:name`: run only where the user trusts it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from roadworthy.core.errors import InputError, foreign_code
from roadworthy.core.hashing import digest, digest_file
from roadworthy.core.validation import find_mode
from roadworthy.models.base import first_line


def require_trust(what: str, trust: bool) -> None:
    """Refuse to run code that came with the user's files, unless the user trusts its author.

    >>> require_trust("m.pt holds code (a pickled module)", trust=True)
    """
    if not trust:
        raise InputError(f"{what}: pass --trust if you trust its author")


def is_object_name(spec: str) -> bool:
    """True for `file.py:name` and `package.module:name`.

    >>> is_object_name("nets/my.py:resnet"), is_object_name("timm.models:resnet18"), is_object_name("C:/m.onnx")
    (True, True, False)
    """
    return re.fullmatch(r".*\.py:[A-Za-z_][\w.]*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", spec) is not None


def load_object(spec: str, base: Path, trust: bool) -> tuple[Any, str]:
    """The object that `file.py:name` or `package.module:name` names, and the hash of the file that holds it."""
    if not is_object_name(spec):
        raise InputError(f"cannot read {spec!r}: write file.py:name or package.module:name")
    place, name = spec.rsplit(":", 1)
    require_trust(f"{place} holds code that would be run", trust)
    with foreign_code(lambda error: InputError(f"cannot import {place}: {type(error).__name__}: {first_line(error)}")):
        module = _run_file(base / place) if place.endswith(".py") else importlib.import_module(place)
    found: Any = module
    for step in name.split("."):
        if not hasattr(found, step):
            known = ", ".join(key for key, value in vars(module).items() if callable(value) and key[0] != "_")
            raise InputError(f"{place} has no {name!r}; it has: {known or 'nothing to call'}")
        found = getattr(found, step)
    file = inspect.getsourcefile(module)
    return found, digest_file(Path(file)) if file else digest(spec)


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module of its own; it can import what lies beside it."""
    if not stat.S_ISREG(find_mode(path, "Python file")):
        raise InputError(f"there is no Python file {path}")
    name = f"roadworthy_user_{path.stem}_{digest(str(path.resolve()))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file")
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
