"""A maker of outliers: every image as its negative, which no camera takes."""

from dataclasses import dataclass

import roadworthy as rw
from roadworthy.outliers import Painted


@rw.OUTLIERS.register("negative")
@dataclass(frozen=True, kw_only=True)
class Negative(Painted):
    """Dark where it was light: 255 - img."""

    name = "negative"

    def paint(self, source, rows, streams):
        """The images of these rows, (N, H, W, 3)."""
        return 255 - source.batch(rows.tolist()).images
