"""Holm's correction over the claims of a verdict.

A verdict of many criteria makes many claims, one for each criterion and condition: that it fails, or that it passes.
Each by itself is wrong with a chance of at most a = (1 - confidence)/2, since bounds are two-sided. With m of them the
chance that any is wrong can be m times as large. Holm (1979) holds it at a: the claim with the smallest p value must
reach a/m, the next one a/(m - 1), and so on until one does not. All claims that are made then reach a/d for one
divisor d, which is m less the number of claims made. So the same criteria are judged with the confidence
1 - (1 - confidence)/d, and no p value is needed: a claim is made where the bound at that confidence supports it.

    holm       the claims that a criterion fails: the chance that any criterion is failed by chance alone is at most a
    holm_all   also the claims that a criterion passes: the chance that any single pass is a false one is at most a

That *all* criteria pass needs no correction: a false overall pass needs a false pass of a criterion that does not hold,
and that one has a chance of at most a, however many others there are (an intersection-union test).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from roadworthy.statistics.paired import holm_divisor
from roadworthy.verdict.criteria import Correction, Criterion

if TYPE_CHECKING:
    from roadworthy.verdict.judge import Judged

Claim = Literal["fail", "pass"]
CORRECTED: dict[Correction, tuple[Claim, ...]] = {"none": (), "holm": ("fail",), "holm_all": ("fail", "pass")}
"""The claims that each correction speaks of."""


@dataclass(frozen=True)
class Divisors:
    """By how much the chance of a wrong claim of each kind is divided, of so many `claims` in all; 1 is not at all."""

    fails: int = 1
    passes: int = 1
    claims: int = 1

    @property
    def any(self) -> bool:
        """Whether anything is corrected."""
        return self.fails > 1 or self.passes > 1


UNCORRECTED = Divisors()


def find_divisors(correction: Correction, claims: int, count: Callable[[Claim, int], int]) -> Divisors:
    """The divisors of a verdict with so many claims; `count(claim, divisor)` says how many of a kind it then makes."""
    by_claim = {
        claim: holm_divisor(claims, lambda divisor, claim=claim: count(claim, divisor))  # type: ignore[misc]
        for claim in CORRECTED[correction]
    }
    return Divisors(by_claim.get("fail", 1), by_claim.get("pass", 1), claims)


def stricter(criterion: Criterion, divisor: int) -> Criterion:
    """The same criterion with a chance of a wrong claim that is divided so.

    >>> round(stricter(Criterion(id="R", metric="accuracy", at_least=0.9), 10).confidence, 9)
    0.995
    """
    if divisor == 1:
        return criterion
    return criterion.model_copy(update={"confidence": 1 - (1 - criterion.confidence) / divisor})


def corrected(criterion: Criterion, as_asked: Judged, failing: Judged, passing: Judged, divisors: Divisors) -> Judged:
    """What follows for one condition, judged as asked, and with the divisors of fails and of passes.

    A value on the good side of the threshold can only pass, one on the other side can only fail.
    """
    estimate = as_asked.measurement.estimate
    if estimate.unbounded:
        return as_asked
    meets = criterion.sign * (estimate.value - criterion.threshold) >= 0
    chosen, divisor = (passing, divisors.passes) if meets else (failing, divisors.fails)
    if divisor == 1:
        return as_asked
    confidence = stricter(criterion, divisor).confidence
    note = f"bounds at {100 * confidence:.6g} % by Holm's correction over {divisors.claims} claims"
    if chosen.status != as_asked.status:
        note += f", without which it would be a {as_asked.status}"
    return replace(chosen, because=f"{chosen.because} ({note})", confidence=confidence)
