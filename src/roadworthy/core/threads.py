"""Small matrix products on one thread: several threads on a small product cost more than they save."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

_controller = cache(ThreadpoolController)
_lock = threading.Lock()
_users = 0
_limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Run numpy's matrix products on one thread while any caller is inside; the last one out puts the number back."""
    global _users, _limit
    with _lock:
        if not _users:
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.restore_original_limits()
