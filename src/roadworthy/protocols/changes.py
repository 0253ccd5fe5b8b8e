"""What a comparison says of one metric under one condition: before, after, and whether chance explains the change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from roadworthy.protocols.estimates import LEAST_BOOTSTRAP_GROUPS
from roadworthy.statistics import mcnemar, paired_interval, paired_p

OTHER_IMAGES = "other images: they cannot be paired"


def not_paired(names: Sequence[object], shown: Sequence[Mapping[Any, object]], condition: object) -> str:
    """Why a condition of two systems cannot be paired, or nothing; `shown` says of each how it was shown what.

    >>> not_paired(("old", "new"), ({"fog": "thick"}, {"rain": ""}), "fog")
    'new was not shown it'
    """
    for name, known in zip(names, shown, strict=True):
        if condition not in known:
            return f"{name} was not shown it"
    return "" if shown[0][condition] == shown[1][condition] else "shown with other parameters or other code"


@dataclass(frozen=True)
class Change:
    """One metric under one condition, of two systems that were shown the same images.

    `change` is after - before with its 95 % interval `lo` to `hi`; `p` is two-sided, by `method`, over `n` images of so
    many `groups` (objects). What is not known is NaN, and `reason` says why.
    """

    condition: str
    level: int
    metric: str
    before: float = math.nan
    after: float = math.nan
    change: float = math.nan
    lo: float = math.nan
    hi: float = math.nan
    p: float = math.nan
    n: int = 0
    groups: int = 0
    method: str = ""
    reason: str = ""

    def by_mcnemar(self, before: ArrayLike, after: ArrayLike, objects: ArrayLike) -> Change:
        """With the test of which images (n,) were right before and after; images of one object stay together."""
        test = mcnemar(after, before, objects)
        sized = replace(self, n=test.n, groups=test.groups)
        return replace(sized, change=test.difference, lo=test.lo, hi=test.hi, p=test.p, method=test.method)

    def by_bootstrap(self, before: ArrayLike, after: ArrayLike) -> Change:
        """With the test by the metric's values (B,) before and after in resamples that draw the same objects."""
        change = self.after - self.before
        if self.groups < LEAST_BOOTSTRAP_GROUPS:
            why = f"a bootstrap bound needs {LEAST_BOOTSTRAP_GROUPS} objects, not {self.groups}"
            return replace(self, change=change, reason=why)
        if math.isnan(self.before) or math.isnan(self.after):
            return replace(self, reason="undefined for one of the two")
        lo, hi, why = paired_interval(self.after, self.before, after, before, self.groups)
        p, no_p = paired_p(self.after, self.before, after, before, self.groups)
        if np.array_equal(before, after, equal_nan=True) and self.before == self.after:
            lo, hi, p, why, no_p = 0.0, 0.0, 1.0, "", ""
        method = "paired group bootstrap"
        return replace(self, change=change, lo=lo, hi=hi, p=p, method=method, reason=why or no_p)
