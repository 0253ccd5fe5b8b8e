"""What monitors learn: arrays by name that cannot be written to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Rep = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]
Made = TypeVar("Made")


class Learned(Mapping[str, NDArray[Any]]):
    """Arrays by name that cannot be written to: what `fit` or `tune` has learned.

    `cached` keeps what can be made from them again, such as a search tree; nothing that decides a result.
    """

    def __init__(self, arrays: Arrays | None = None) -> None:
        self._arrays = {key: read_only(array) for key, array in (arrays or {}).items()}
        self._lock, self._made = threading.RLock(), dict[str, tuple[Any, Any]]()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def cached(self, name: str, make: Callable[[], Made], of: Any = None) -> Made:
        """What `make` returns, made once; again where it is to be made for another object than the last time."""
        with self._lock:
            known, made = self._made.get(name, (None, None))
            if name not in self._made or known is not of:
                made = make()
                self._made[name] = of, made
            return made  # type: ignore[no-any-return]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, of any shape, seen so that it cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
