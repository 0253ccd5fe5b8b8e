"""Operating points: how often a classifier fails silently at a threshold on its score.

The threshold is fixed on held-out images. Then every image that is shown is accepted or rejected, undisturbed and under
every shift, and so is every outlier.
"""

from __future__ import annotations

from roadworthy.protocols.operating_points.plan import OperatingPoints

__all__ = ["OperatingPoints"]
