"""The break point: from which severity of a shift on does a metric miss its threshold?

Every image is shown undisturbed and under each shift at a grid of severities, between levels too. The curve of the
metric over severity has bounds that count objects; the severity at which it crosses the threshold first has bounds that
follow from them without a model of the curve (`statistics.crossings`).
"""

from __future__ import annotations

from roadworthy.protocols.break_point.plan import BreakPoints

__all__ = ["BreakPoints"]
