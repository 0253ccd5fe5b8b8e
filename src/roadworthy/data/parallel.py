"""One pool of threads for reading and decoding; both release Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int], None]
"""Called now and then with how many more items are done."""

_LARGEST_CHUNK = 256


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], progress: Progress | None = None
) -> list[Result]:
    """`[function(item) for item in items]`, worked on by all cores; an error is raised for the first item that has one.

    >>> in_threads(abs, [-2, 3])
    [2, 3]
    """
    chunk = min(_LARGEST_CHUNK, -(-len(items) // (4 * _workers())) or 1)
    pending = [
        _pool().submit(lambda part: [function(item) for item in part], items[start : start + chunk])
        for start in range(0, len(items), chunk)
    ]
    results: list[Result] = []
    try:
        for future in pending:
            part = future.result()
            results += part
            if progress is not None:
                progress(len(part))
    finally:
        for future in pending:
            future.cancel()
    return results


def _workers() -> int:
    return os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=_workers(), thread_name_prefix="roadworthy-data")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
