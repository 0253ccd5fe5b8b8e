"""Python code named by a user, `file.py:name` or `package.module:name`: run only where the user trusts it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.core.code import code_files
from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.importing import import_code
from roadworthy.models.identity import watched_files


def is_object_name(spec: str) -> bool:
    """True for `file.py:name` and `package.module:name`.

    >>> is_object_name("nets/my.py:resnet"), is_object_name("timm.models:resnet18"), is_object_name("C:/m.onnx")
    (True, True, False)
    """
    return re.fullmatch(r".*\.py:[A-Za-z_][\w.]*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", spec) is not None


@dataclass(frozen=True)
class LoadedObject:
    """What a user named: the object, the hashes of the code that holds it, and the data files read on import.

    `spec` is the name by which it was found.
    """

    value: Any
    code: tuple[str, ...]
    files: frozenset[Path]
    spec: str = ""


def load_object(spec: str, base: Path, trust: bool) -> LoadedObject:
    """The object that `file.py:name` or `package.module:name` names; running it needs `trust`."""
    if not is_object_name(spec):
        raise InputError(f"cannot read {spec!r}: write file.py:name or package.module:name")
    source, name = spec.rsplit(":", 1)
    with (
        foreign_code(lambda error: InputError(f"cannot import {source}: {type(error).__name__}: {first_line(error)}")),
        watched_files() as files,
    ):
        module = import_code(source, base, trust)
    value: Any = module
    for step in name.split("."):
        if not hasattr(value, step):
            known = ", ".join(key for key, member in vars(module).items() if callable(member) and key[0] != "_")
            raise InputError(f"{source} has no {name!r}; it has: {known or 'nothing to call'}")
        value = getattr(value, step)
    file = inspect.getsourcefile(module)
    code = tuple(sorted(code_files(Path(file)).values())) if file else (spec,)
    return LoadedObject(value, code, frozenset(files), spec)
