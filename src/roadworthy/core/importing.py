"""Running Python code that a user names, `file.py` or `package.module`: only where the user trusts its author."""

from __future__ import annotations

import importlib
import importlib.util
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from roadworthy.core.errors import InputError
from roadworthy.core.fetching import refuse_code
from roadworthy.core.hashing import digest
from roadworthy.core.validation import find_mode

_in_force: Callable[[], Mapping[str, Mapping[str, str]]] = dict
"""Names the plugins of this process; `roadworthy.plugins` says how."""


def plugins_in_force() -> dict[str, dict[str, str]]:
    """The plugins that this process has loaded, with the SHA-256 of their files: another process can load the same."""
    return {plugin: dict(files) for plugin, files in _in_force().items()}


def name_plugins_by(name: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
    """Let `plugins_in_force` ask this function."""
    global _in_force
    _in_force = name


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


def import_code(source: str, base: Path, trust: bool) -> ModuleType:
    """The module that `file.py` (its path starting from `base`) or `package.module` names, imported; needs `trust`.

    Whatever the code raises passes through.
    """
    refuse_code(source)
    require_trust(f"{source} holds code that would be run", trust)
    return _run_file(base / source) if source.endswith(".py") else importlib.import_module(source)


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
