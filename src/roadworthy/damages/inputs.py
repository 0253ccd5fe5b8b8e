"""Damages of the input: a wrong range or order of colours, a blurred lens, dead pixels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.random import Streams
from roadworthy.core.roles import SHIFTS
from roadworthy.core.types import Batch
from roadworthy.damages.base import DAMAGES, Damage

RANGES = {
    "half": "the upper half of the range is never used, as where values are divided by 510",
    "raised": "values lie in the upper half, as where a model for -1 to 1 gets 0 to 1",
    "inverted": "dark is bright",
}
"""What a wrong range can be."""


@registered(DAMAGES, "wrong_range")
class WrongRange(Damage):
    """Pixels in another range than the model was trained with: `half`, `raised` or `inverted`."""

    range: str = "half"

    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = tuple({"range": name} for name in RANGES)

    def __post_init__(self) -> None:
        if self.range not in RANGES:
            raise InputError(f"damage {self.name}: range is {', '.join(RANGES)}, not {self.range!r}")
        super().__post_init__()

    @property
    def label(self) -> str:
        """The damage in words."""
        return f"wrong range, {self.range}"

    def batch(self, batch: Batch) -> Batch:
        """The images in the wrong range."""
        images = batch.images
        changed = {"half": images // 2, "raised": 128 + images // 2, "inverted": 255 - images}[self.range]
        return batch.with_images(changed.astype(np.uint8))


@registered(DAMAGES, "swapped_colours")
class SwappedColours(Damage):
    """Red and blue change places, as where BGR is read for RGB; grey images stay as they are."""

    @property
    def label(self) -> str:
        """The damage in words."""
        return "red and blue swapped"

    def batch(self, batch: Batch) -> Batch:
        """The images with their channels in the other order."""
        return batch.with_images(np.ascontiguousarray(batch.images[..., ::-1]))


@registered(DAMAGES, "blurred_lens")
class BlurredLens(Damage):
    """A lens out of focus: every image is seen through a shift, `blur` unless another is named, at one level."""

    level: int = parameter(within=(1, 5), whole=True, default=3)
    shift: str = "blur"

    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = ({"level": 1}, {"level": 3}, {"level": 5})

    def __post_init__(self) -> None:
        super().__post_init__()
        SHIFTS.get(self.shift)

    @property
    def label(self) -> str:
        """The damage in words."""
        return f"{'blurred lens' if self.shift == 'blur' else self.shift + ' on the lens'}, level {self.level}"

    def batch(self, batch: Batch) -> Batch:
        """The images as the lens shows them."""
        shifted = SHIFTS.get(self.shift).at(self.level)(batch, Streams("damage", self.shift, self.level))
        return batch.with_images(shifted.images)


@registered(DAMAGES, "dead_pixels")
class DeadPixels(Damage):
    """Pixels of the sensor that stay black, a `share` of all, at the same places in every image."""

    share: float = parameter(within=(0.0, 1.0), default=0.02)
    seed: int = 0

    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = ({"share": 0.02}, {"share": 0.1})

    @property
    def label(self) -> str:
        """The damage in words."""
        return f"{self.share:.0%} of the pixels dead"

    def batch(self, batch: Batch) -> Batch:
        """The images without these pixels."""
        images = batch.images.copy()
        images[:, _dead(self.share, self.seed, images.shape[1], images.shape[2])] = 0
        return batch.with_images(images)


@lru_cache(maxsize=16)
def _dead(share: float, seed: int, height: int, width: int) -> NDArray[np.bool_]:
    """Which pixels (H, W) are dead: so many of them, drawn once."""
    (rng,) = Streams("dead pixels", seed).each([f"{height}x{width}"])
    dead = np.zeros(height * width, bool)
    dead[rng.permutation(height * width)[: round(share * height * width)]] = True
    return dead.reshape(height, width)
