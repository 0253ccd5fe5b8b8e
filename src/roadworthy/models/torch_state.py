"""What decides the answers of a torch module, as a hash: weights, structure, attributes, the code of its classes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from roadworthy.core.hashing import digest, digest_array
from roadworthy.models.identity import Unseen, identity_of
from roadworthy.models.torch_tensors import import_torch

NO_ANSWER = ("training", "name_or_path")
"""Attributes on which no answer depends: the mode, which is set for each, and where transformers read a module."""
_CODES: dict[type, str] = {}


def module_state(module: Any) -> dict[str, Any]:
    """What decides the answers of a module: a hash of its weights and buffers, and its structure."""
    weights = digest_tensors([*module.named_parameters(), *module.named_buffers()])
    return {"weights": weights, "structure": _structure(module)}


def digest_tensors(named: Iterable[tuple[str, Any]], text: str = "") -> str:
    """SHA-256 (hex) of a text and of the names, types, shapes and values of tensors."""
    sha = hashlib.sha256(text.encode())
    for name, tensor in named:
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        sha.update(flat.view(import_torch().uint8).numpy().data if flat.numel() else b"")
    return sha.hexdigest()


def _structure(module: Any) -> list[Any]:
    """Names, classes, attributes and, once per class of the user's, the code of a module's parts."""
    parts: list[Any] = []
    user_classes: set[type] = set()
    for name, part in module.named_modules():
        public = {key: value for key, value in vars(part).items() if key not in NO_ANSWER and key[0] != "_"}
        attributes = [[key, _content(value)] for key, value in sorted(public.items())]
        parts.append([name, type(part).__qualname__, attributes, getattr(part, "original_name", "")])
        if not type(part).__module__.startswith("torch."):
            user_classes.add(type(part))
    code = getattr(module, "code", "")
    return [parts, sorted(map(_code, user_classes)), code if isinstance(code, str) else ""]


def _content(value: Any) -> Any:
    """A plain value, a tensor or an array, also inside a container, by its content; all else by its class."""
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    if isinstance(value, Mapping):
        return [[_content(key), _content(inner)] for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [_content(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, map(_content, value)))
    if isinstance(value, import_torch().Tensor):
        return digest_tensors([("", value)])
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return digest_array(value)
    return type(value).__qualname__


def _code(cls: type) -> str:
    """A hash of what decides what a class of the user's does, looked up once; its name where that cannot be seen."""
    if cls not in _CODES:
        try:
            _CODES[cls] = digest(identity_of(cls))
        except Unseen:
            _CODES[cls] = cls.__qualname__
    return _CODES[cls]
