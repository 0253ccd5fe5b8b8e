"""Random streams: one per image, keyed by what is tested and never by who tests it; seeds of what is trained.

A stream is a Philox counter-based generator whose key is (study seed, stimulus) and whose counter starts at a hash of
the image id. So batch size, order, worker and model never change a pixel, and every system sees the same disturbed
image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray


class Streams:
    """The random streams of one stimulus: `for rng in streams.each(batch.ids)` yields one generator per image.

    The generator object is the same one, reset for each image (creating one costs ten times as much), so draw from it
    before taking the next. Not to be shared between threads: make one `Streams` per thread, they are equal.

    >>> a = [rng.random() for rng in Streams("seed", "fog").each(["x", "y"])]
    >>> b = [rng.random() for rng in Streams("seed", "fog").each(["y", "x"])]
    >>> a == b[::-1]
    True
    """

    def __init__(self, *key: str | int) -> None:
        words = np.frombuffer(hashlib.sha256(repr(key).encode()).digest()[:16], dtype="<u8")
        self._bits = np.random.Philox(key=words.astype(np.uint64), counter=0)
        self._state = self._bits.state
        self._counter = self._state["state"]["counter"]
        self._generator = np.random.Generator(self._bits)

    def each(self, ids: Iterable[str]) -> Iterator[np.random.Generator]:
        """Yield the generator of each image id, in order; the same id always gets the same stream."""
        for image_id in ids:
            # 2**128 draws lie between two counters that differ in their upper half: streams cannot overlap.
            upper = hashlib.blake2b(image_id.encode(errors="surrogatepass"), digest_size=16).digest()
            self._counter[:2] = 0
            self._counter[2:] = np.frombuffer(upper, dtype="<u8")
            self._bits.state = self._state
            yield self._generator


def derive(seed: int, purpose: str, recipe: str, *index: int) -> int:
    """A seed for what is made by a recipe (its hash without a seed): another for every seed of a study, purpose, index.

    It is a hash, so that no two of these share one, not even neighbours; and below 2**53, so that every reader of JSON
    has it exactly.

    >>> derive(0, "gan", "recipe", 1) in {derive(0, "gan", "recipe", 0), derive(1, "gan", "recipe", 0)}
    False
    """
    key = (int(seed), purpose, recipe, *map(int, index))
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little") >> 11


def random_bytes(rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
    """Uniform on 0..255, (count,): the raw words of the generator, many times as fast as drawing one value each.

    >>> random_bytes(np.random.Generator(np.random.Philox(0)), 3).shape
    (3,)
    """
    words: NDArray[np.uint64] = rng.bit_generator.random_raw(-(-count // 8))
    return words.astype("<u8", copy=False).view(np.uint8)[:count]
