"""Known answers of makers of outliers: the bits of what they make of fixed images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import OUTLIERS
from roadworthy.selftest import images
from roadworthy.selftest.items import Item, Values

KIND = "outliers"
SEED = 7


def items() -> Iterator[Item]:
    """All items of this kind."""
    import roadworthy.outliers  # noqa: F401 (registers)

    for name in OUTLIERS:
        maker = OUTLIERS.get(name)
        if is_built_in(maker):
            yield Item(KIND, name, f"{maker.__module__}:{maker.__qualname__}", _made, images.block_means)


def names() -> list[tuple[str, bool]]:
    """Every maker of outliers, and whether it is ours."""
    import roadworthy.outliers  # noqa: F401 (registers)

    return [(name, is_built_in(OUTLIERS.get(name))) for name in OUTLIERS]


def _made(maker: Any) -> Values:
    data = images.dataset()
    return {"images": maker.of({}).make(data, seed=SEED, foreign=images.dataset()).batch(slice(None)).images}
