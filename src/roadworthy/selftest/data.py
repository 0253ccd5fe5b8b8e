"""Known answers of data: the bits of the built-in sets, and the classifier of the package that knows its signs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from roadworthy.selftest import images
from roadworthy.selftest.items import Item, Values

KIND = "data"
DRAWN, SIDE = 4, 32
RECOGNISED = "recognised_signs"


def items() -> Iterator[Item]:
    """All items of this kind."""
    from roadworthy.data.signs import BUILTIN

    for name in BUILTIN:
        yield Item(KIND, name, "roadworthy.data.signs:BuiltinDataset", partial(_drawn, name), images.block_means)
    yield Item(KIND, RECOGNISED, "roadworthy.diagnosing:self_check", _recognised)


def names() -> list[tuple[str, bool]]:
    """Every built-in set of data, and the signs that the classifier of the package recognises."""
    from roadworthy.data.signs import BUILTIN

    return [*((name, True) for name in BUILTIN), (RECOGNISED, True)]


def _drawn(name: str, builtin: Any) -> Values:
    from roadworthy.data import Opening

    return {"pixels": builtin(name, Opening(name=name, size=(SIDE, SIDE)), n=DRAWN).batch(slice(None)).images}


def _recognised(self_check: Any) -> Values:
    """What `roadworthy doctor` does too: draw a sign of every class and ask which it is."""
    return {"problem": self_check().problem}
