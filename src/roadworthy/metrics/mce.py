"""Mean corruption error: how often a model errs under common corruptions, measured against a reference model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

ErrorTable = Mapping[str, Sequence[float]]
"""Error rates (1 - accuracy) by corruption: one for each severity."""
OTHER_THAN_PUBLISHED = {
    "c_elastic_transform": "on images of more than 64 pixels the published one has other parameters",
}
"""Which of the 15 are not as hard as the published corruptions, as measured in docs/corruptions.md."""


@dataclass(frozen=True)
class CorruptionError:
    """A mean over corruptions (1 = as good as the reference, lower is better), its parts, and why a part is missing."""

    value: float
    by_corruption: Mapping[str, float]
    reasons: Mapping[str, str]

    @property
    def reason(self) -> str:
        """Why there is no value; empty where there is one."""
        return "; ".join(f"{name}: {why}" for name, why in self.reasons.items())


def mean_corruption_error(errors: ErrorTable, reference: ErrorTable) -> CorruptionError:
    """mCE: the mean over corruptions c of CE_c = sum_s E_s,c / sum_s R_s,c, s the severities.

    E are the model's error rates, R the reference model's on the same images. CE_c is NaN, with a reason, where the
    reference never errs; so then is the mean. Published figures are 100 times this, with AlexNet as reference.

    >>> mean_corruption_error({"fog": [0.1, 0.3], "snow": [0.2, 0.2]}, {"fog": [0.4, 0.4], "snow": [0.1, 0.3]}).value
    0.75
    """
    _check(errors, reference)
    return _mean_of_ratios(
        {name: (sum(errors[name]), sum(reference[name])) for name in errors},
        "the reference model makes no error here, so that there is nothing to compare with",
    )


def relative_corruption_error(
    errors: ErrorTable, clean: float, reference: ErrorTable, reference_clean: float
) -> CorruptionError:
    """Relative mCE: the mean over corruptions of sum_s (E_s,c - E_clean) / sum_s (R_s,c - R_clean).

    What corruption costs beyond the error on clean images. A part is NaN, with a reason, where the reference loses
    nothing; so then is the mean.

    >>> errors, reference = {"fog": [0.2, 0.4]}, {"fog": [0.4, 0.6]}
    >>> round(relative_corruption_error(errors, 0.1, reference, 0.2).value, 9)
    0.666666667
    """
    _check({**errors, "clean images": [clean]}, {**reference, "clean images": [reference_clean]})
    lost = {name: sum(rate - clean for rate in rates) for name, rates in errors.items()}
    return _mean_of_ratios(
        {name: (lost[name], sum(rate - reference_clean for rate in reference[name])) for name in errors},
        "the reference model loses nothing here, so that there is nothing to compare with",
    )


def _mean_of_ratios(sums: Mapping[str, tuple[float, float]], reason: str) -> CorruptionError:
    parts = {name: model / reference if reference > 0 else math.nan for name, (model, reference) in sums.items()}
    reasons = {name: reason for name, part in parts.items() if math.isnan(part)}
    return CorruptionError(float(np.mean(list(parts.values()))), parts, reasons)


def _check(errors: ErrorTable, reference: ErrorTable) -> None:
    if not errors or set(errors) != set(reference):
        raise ValueError(f"model and reference need the same corruptions, not {sorted(errors)} and {sorted(reference)}")
    for name in errors:
        if not len(errors[name]) or len(errors[name]) != len(reference[name]):
            raise ValueError(
                f"{name}: {len(errors[name])} severities of the model and {len(reference[name])} of the reference: "
                "give the same ones for both"
            )
        for rate in (*errors[name], *reference[name]):
            if not 0 <= rate <= 1:
                raise ValueError(f"{name}: an error rate must lie between 0 and 1, not {rate!r}")
