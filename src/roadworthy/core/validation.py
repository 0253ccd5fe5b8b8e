"""Reading what users write: safe YAML, class files, sizes, settings, and schema errors turned into one sentence."""

from __future__ import annotations

import difflib
import errno
import inspect
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

from roadworthy.core.errors import InputError

MAX_YAML_BYTES = 2**20
MAX_SIDE = 16384
MEMORY_SHARE = 4
"""What is held at once may take one part in this many of the machine's memory; what is made of it needs the rest."""

MOST_EPOCHS = MOST_PASSES = 10_000
"""Epochs that a network is trained for, and stochastic passes that answer an image, at most."""
MOST_WIDTH = 4096
MOST_SEED = 2**63 - 1
"""Filters of a convolution, or numbers in a layer between, at most."""
MOST_BATCH = 4096
"""Images that go through a network at once, at most."""
MOST_THREADS = 1024
MOST_CLASSES = 1_000_000

Form = TypeVar("Form", bound=BaseModel)
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases (they can unfold to gigabytes) and without repeated keys (one would be ignored)."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
        repeated = {key for key, count in keys.items() if count > 1}
        if repeated:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"the key {sorted(repeated)[0]!r} is used twice in one mapping (line {line})")
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The content of a YAML text without aliases and repeated keys; what is none raises errors of many kinds.

    >>> parse_yaml("a: [1, 2]")
    {'a': [1, 2]}
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_yaml(path: Path, what: str) -> Any:
    """The content of a YAML file; what cannot be read or is not YAML is an `InputError` that names the file."""
    try:
        require_file(path, what)
        if path.stat().st_size > MAX_YAML_BYTES:
            raise InputError(f"{what} {path} has more than {MAX_YAML_BYTES // 2**20} MiB: it is too large")
        return parse_yaml(path.read_text(encoding="utf-8"))
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {error.strerror}") from None
    except Exception as error:  # the parser raises much more than its own errors on a broken file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{what} {path} is not valid YAML: {reason}") from None


def require_file(path: Path, what: str) -> None:
    """Refuse what cannot be read like a file: nothing there, a folder, a pipe that never ends, a name too long."""
    mode = find_mode(path, what)
    if not mode:
        raise InputError(f"cannot read {what} {path}: {os.strerror(errno.ENOENT)}")
    if not stat.S_ISREG(mode):
        raise InputError(f"{what} {path} is not a file but a {'folder' if stat.S_ISDIR(mode) else 'pipe or device'}")


def find_mode(path: Path, what: str) -> int:
    """The mode bits of what is at a path, 0 where nothing does; what cannot be a path is an `InputError`.

    >>> find_mode(Path("nowhere"), "model"), stat.S_ISDIR(find_mode(Path(), "data"))
    (0, True)
    """
    try:
        return path.stat().st_mode
    except ValueError as error:
        raise InputError(f"{what} {str(path)!r} is not a valid path: {error}") from None
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise InputError(f"cannot read {what} {path}: {error.strerror}") from None


def require_memory(count: int, what: str) -> None:
    """Refuse to hold so many bytes at once that the machine would run out of memory.

    >>> require_memory(2**60, "a batch")
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: a batch needs 1,073,741,824.0 GiB of memory, more than this machine can give
    """
    if count > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEMORY_SHARE:
        raise InputError(f"{what} needs {count / 2**30:,.1f} GiB of memory, more than this machine can give")


def plain_array(stored: Any, name: str) -> NDArray[Any]:
    """A member of an npz file, which must be an array, and its texts must be text; a `ValueError` where it is not.

    >>> plain_array(np.array(["stop"]), "labels").tolist()
    ['stop']
    """
    if not isinstance(stored, np.ndarray):
        raise ValueError(f"its member {name!r} is not an array")
    if stored.dtype.kind == "U" and stored.size and stored.dtype.itemsize:
        characters = np.frombuffer(stored.tobytes(), f"{stored.dtype.byteorder}u4")
        if characters.max() > sys.maxunicode:
            raise ValueError(f"its member {name!r} holds what are no characters")
    return stored


def check_settings(function: Callable[..., Any], settings: Mapping[str, Any], what: str) -> None:
    """Refuse settings from a study whose type is not the one that the function's signature states.

    >>> def load(path: str, *, threads: int = 1) -> None: ...
    >>> check_settings(load, {"threads": "two"}, "onnx model setting")
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: onnx model setting threads cannot be 'two': Input should be a valid integer
    """
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except NameError:  # a type that only a type checker imports
        return
    for name, value in settings.items():
        if name in parameters and isinstance(value, str | bytes | int | float | list | dict | set | date):
            try:
                TypeAdapter(parameters[name].annotation).validate_python(value, strict=not isinstance(value, list))
            except ValidationError as error:
                reason = error.errors(include_url=False)[0]["msg"]
                raise InputError(f"{what} {name} cannot be {value!r}: {reason}") from None


def read_classes(path: str | Path) -> tuple[str, ...]:
    """Class names from a text file, one per line, in the order of the model's output."""
    require_file(Path(path), "class file")
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"class file {str(path)!r} cannot be read as UTF-8 text: {error}") from error
    names = tuple(line.strip() for line in lines)
    while names and not names[-1]:
        names = names[:-1]
    if not names or "" in names:
        raise InputError(f"class file {str(path)!r} has an empty line or none; write one class name per line")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"class file {str(path)!r} names a class twice: {repeated[0]!r}")
    return names


def check_number(what: str, value: Any, low: float, high: float) -> None:
    """Refuse what is not a number within the bounds."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high:
        raise InputError(f"{what} must be a number from {low:g} to {high:g}, not {value!r}")


def check_whole(what: str, value: Any, low: int, high: int) -> None:
    """Refuse what is not a whole number within the bounds.

    >>> check_whole("passes", 20, 1, MOST_PASSES)
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(f"{what} must be a whole number from {low:,} to {high:,}, not {value!r}")


def check_no_nul(what: str, names: Iterable[Any]) -> None:
    """Refuse names that hold a NUL character, at which other programs end a text.

    >>> check_no_nul("class name", ["stop", "yield"])
    """
    for name in names:
        if isinstance(name, str) and "\0" in name:
            raise InputError(f"the {what} {name!r} holds a NUL character: take it out")


def parse_bytes(value: str | int, what: str) -> int:
    """A number of bytes from text such as `2GB`, `512 MiB` or a plain number; anything else is an `InputError`.

    >>> parse_bytes("1.5GB", "memory"), parse_bytes("512MiB", "memory"), parse_bytes(10**9, "memory")
    (1500000000, 536870912, 1000000000)
    """
    units = {"": 1, "b": 1}
    units |= {letter + b: 1000**power for power, letter in enumerate("kmgt", 1) for b in ("", "b")}
    units |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([a-zA-Z]*)\s*", str(value))
    count = int(float(match[1]) * units[match[2].lower()]) if match and match[2].lower() in units else 0
    if count < 1 or isinstance(value, bool):
        raise InputError(f"{what} is a number of bytes such as 2GB or 512MiB, not {value!r}")
    return count


def parse_size(value: str | int | Sequence[int] | None) -> tuple[int, int] | None:
    """(height, width) from `HxW`, one number for both, or a pair; None stays None.

    >>> parse_size("48x64"), parse_size(32), parse_size([28, 28]), parse_size(None)
    ((48, 64), (32, 32), (28, 28), None)
    """
    if value is None:
        return None
    numbers: Sequence[Any]
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*[xX]\s*(\d{1,9}))?\s*", value)
        numbers = () if match is None else (int(match[1]), int(match[2] or match[1]))
    else:
        numbers = (value, value) if isinstance(value, int) else value
    if not isinstance(numbers, Sequence) or len(numbers) != 2 or not all(_is_side(number) for number in numbers):
        raise InputError(f"cannot read the size {value!r}: write HEIGHTxWIDTH, at least 1x1, for example 64x64")
    return int(numbers[0]), int(numbers[1])


def _is_side(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and 1 <= int(number) <= MAX_SIDE


def validated(form: type[Form], content: Any, what: str) -> Form:
    """Content in its form; the first mistake is an `InputError` of one sentence, which begins with `what`."""
    try:
        return form.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{what}: {explain(error, form)}") from None


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first schema error as a sentence; an unknown key names the nearest known one.

    >>> class Point(BaseModel, extra="forbid"):
    ...     width: int
    >>> try: Point.model_validate({"widht": 1, "width": 2})
    ... except ValidationError as e: explain(e, Point)
    "unknown key 'widht': did you mean 'width'?"
    """
    details = error.errors(include_url=False, include_input=False)
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    first = (unknown or details)[0]
    path = [str(step) for step in first["loc"]]
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, path[:-1])
        near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f": did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(sorted(known))}"
        return f"unknown key {'.'.join(path)!r}{hint}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(path)}: {message}" if path else message


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """The keys that the schema knows under a path."""
    for step in path:
        field = model.model_fields.get(step)
        models = [*_schemas_in(field.annotation)] if field else []
        if models:
            model = models[0]
    return list(model.model_fields)


def _schemas_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The schemas that a type is made of, such as that of the values of `dict[str, Schema] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _schemas_in(inner)
