"""Grouping: what belongs together, in the order in which it comes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, tuple[Value, ...]]:
    """The values of each key; keys and values keep their order.

    >>> grouped([("fog", 1), ("rain", 1), ("fog", 3)])
    {'fog': (1, 3), 'rain': (1,)}
    """
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}
