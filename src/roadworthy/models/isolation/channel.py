"""How a process and its isolated model talk: arrays through shared memory, a short JSON message through a pipe.

Nothing is pickled. Each side writes the arrays of a message into memory of its own, which the other side maps, and then
sends the message, which says where in it each array lies.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import struct
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEAD = struct.Struct("<I")
ALIGNED = 64
"""Arrays start at multiples of this many bytes, as libraries like them."""
MOMENT = 50
"""Milliseconds between two looks at a process that has not answered yet."""
Arrays = Mapping[str, NDArray[Any]]


class Closed(Exception):
    """The other side has closed its end of a pipe: its process is gone."""


class SharedMemory:
    """Memory that one process writes arrays into and another one reads; it grows as it must."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self._size = descriptor, 0
        self._map: mmap.mmap | None = None

    @classmethod
    def new(cls) -> SharedMemory:
        """Memory without a name, known by its descriptor alone: it is gone when both processes are."""
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("roadworthy"))
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    def write(self, arrays: Arrays) -> list[list[Any]]:
        """Copy arrays into it: for each its name, type, shape and where it starts."""
        entries, end = list[list[Any]](), 0
        for name, array in arrays.items():
            entries.append([name, array.dtype.str, list(array.shape), end])
            end += -(-array.nbytes // ALIGNED) * ALIGNED
        if end > self._size:
            os.ftruncate(self.descriptor, end)
        view = self._mapped(end)
        for (_, _, _, start), array in zip(entries, arrays.values(), strict=True):
            if array.nbytes:
                target = np.frombuffer(view, array.dtype, array.size, start).reshape(array.shape)
                np.copyto(target, array)
        return entries

    def read(self, entries: list[list[Any]], copied: bool = True) -> dict[str, NDArray[Any]]:
        """The arrays that the other side wrote: in memory of their own, or as they lie there until the next ones."""
        arrays, end = {}, 0
        for _, kind, shape, start in entries:
            end = max(end, start + np.dtype(kind).itemsize * int(np.prod(shape, dtype=np.int64)))
        view = self._mapped(end)
        for name, kind, shape, start in entries:
            dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
            if dtype.hasobject:
                raise ValueError(f"an array of Python objects cannot be passed on: {name}")
            values = np.frombuffer(view, dtype, count, start) if count * dtype.itemsize else np.zeros(0, dtype)
            arrays[name] = values.reshape(shape).copy() if copied or not count else values.reshape(shape)
        return arrays

    def close(self) -> None:
        """Give the memory back."""
        self._map = None
        os.close(self.descriptor)

    def _mapped(self, size: int) -> Any:
        """The memory as bytes, at least so many."""
        if size > self._size:
            self._size = os.fstat(self.descriptor).st_size
            self._map = mmap.mmap(self.descriptor, self._size)  # the former map goes with the last array in it
        return self._map


def send(pipe: int, message: Mapping[str, Any], wait: Callable[[], None] | None = None) -> None:
    """Write a message; `wait` is called while the pipe is full, and raises where that has lasted too long."""
    content = json.dumps(message).encode()
    left = memoryview(HEAD.pack(len(content)) + content)
    while left:
        if wait is not None and not _ready(pipe, select.POLLOUT):
            wait()
            continue
        try:
            left = left[os.write(pipe, left[: select.PIPE_BUF] if wait else left) :]
        except BrokenPipeError:
            raise Closed from None


def receive(pipe: int, wait: Callable[[], None] | None = None) -> dict[str, Any]:
    """Read a message; `wait` is called now and then until it is there, and raises where that has lasted too long."""
    (length,) = HEAD.unpack(_exactly(pipe, HEAD.size, wait))
    message: dict[str, Any] = json.loads(_exactly(pipe, length, wait))
    return message


def _exactly(pipe: int, count: int, wait: Callable[[], None] | None) -> bytes:
    content = b""
    while len(content) < count:
        if wait is not None and not _ready(pipe, select.POLLIN):
            wait()
            continue
        part = os.read(pipe, count - len(content))
        if not part:
            raise Closed
        content += part
    return content


def _ready(pipe: int, event: int) -> bool:
    """Whether a pipe can be read or written now, or within a moment."""
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(MOMENT))
