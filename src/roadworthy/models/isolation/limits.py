"""What a model in a process of its own may take: seconds per batch and at the start, and memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.validation import parse_bytes

GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where Linux says how much memory a container may take."""
LEAST_MEMORY = 50 * 10**6
"""Bytes that the interpreter of a process takes before it has opened any model."""


@dataclass(frozen=True)
class Limits:
    """What a model may take before its process is ended.

    seconds   for the answer to one batch
    start     seconds to start the process and to open the model in it
    memory    bytes that the process may hold (its resident size); None: half of the machine's memory
    """

    seconds: float = 60.0
    start: float = 120.0
    memory: int | None = None

    @property
    def bytes(self) -> int:
        """The limit of memory, in bytes."""
        return self.memory or machine_memory() // 2


@dataclass(frozen=True)
class Isolation:
    """What a loader declares of the processes that its models run in.

    needs_trust     whether a model runs code only where its user trusts that; without trust it needs no process then
    most_processes  how many processes may hold one model; None: as many as processors
    limits          the limits of a model with these settings, where its entry states none
    """

    needs_trust: bool = True
    most_processes: int | None = None
    limits: Callable[[Mapping[str, Any]], Limits] = lambda settings: Limits()


def parse_limits(
    isolate: bool | Mapping[str, Any] | None, by_default: bool, model: str = "", unstated: Limits | None = None
) -> Limits | None:
    """The limits of a model that runs in a process of its own; None for one that runs in the process of the run.

    `isolate` is True or False, or its limits, as in `{seconds: 10, start: 60, memory: 2GB}`; None leaves it to what is
    the default of such a model. Limits that it does not state are those in `unstated`. Messages name the `model`.

    >>> parse_limits({"seconds": 10, "memory": "2GB"}, by_default=False)
    Limits(seconds=10.0, start=120.0, memory=2000000000)
    >>> parse_limits(None, by_default=False) is None
    True
    """
    of_model, limits = f" of model {model}" if model else "", unstated or Limits()
    if isolate is None or isinstance(isolate, bool):
        return limits if (by_default if isolate is None else isolate) else None
    if not isinstance(isolate, Mapping):
        limits_text = "limits such as {seconds: 10, memory: 2GB}"
        raise InputError(f"isolate{of_model} is true, false or {limits_text}, not {isolate!r}")
    for name, value in isolate.items():
        if name not in {field.name for field in fields(Limits)}:
            raise UnknownName(f"limit in isolate{of_model}", str(name), [field.name for field in fields(Limits)])
        what = f"{name} in isolate{of_model}"
        changed: dict[str, Any] = {name: _memory(what, value) if name == "memory" else _seconds(what, value)}
        limits = replace(limits, **changed)
    return limits


def _memory(what: str, value: Any) -> int:
    size = parse_bytes(value, what)
    if size < LEAST_MEMORY:
        raise InputError(
            f"{what} is at least {LEAST_MEMORY // 10**6}MB, which a process takes by itself, not {value!r}"
        )
    return size


def _seconds(what: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < math.inf:
        raise InputError(f"{what} is a number of seconds above 0, not {value!r}")
    return float(value)


def machine_memory() -> int:
    """The memory of this machine in bytes, or of its container where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int(GROUP_LIMIT.read_text()))
    return total


def written_memory(size: float) -> str:
    """A size in bytes, for people.

    >>> written_memory(2.1e9), written_memory(500.04e6)
    ('2,100.0 MB', '500.0 MB')
    """
    return f"{size / 1e6:,.1f} MB"
