"""Bounds of what GANs draw. Images drawn by one GAN are one object, so a figure of a configuration counts GANs.

The figure of a single GAN speaks of this GAN's images alone: test objects and its images are the unit there. What
another GAN of the same configuration would do is said by the figure of the configuration, and not at all by one GAN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from roadworthy.core.errors import InputError
from roadworthy.protocols.base import matching
from roadworthy.protocols.ood.set_keys import SetKey
from roadworthy.statistics import Estimate
from roadworthy.statistics.estimates import CONFIDENCE, mean_defined
from roadworthy.statistics.nested import LEAST_UNITS, further_units, nested_estimate
from roadworthy.verdict import Criterion, Measurement

GANS = "GANs"
"""The unit of a figure of a configuration. Cases that are planned with it have tables that count so."""
ONE_GAN = "test objects and images of this GAN"
"""The unit of a figure of a single GAN."""
ALL = "all"
"""What a criterion may say instead of numbers: every GAN by itself."""


@dataclass(frozen=True)
class GanKey(SetKey):
    """A model against what one GAN of a configuration draws: GANs are counted from 0, as in the table `gan`."""

    gan: int = 0

    def of_set(self) -> SetKey:
        """The configuration that it is one of."""
        return SetKey(**{field.name: getattr(self, field.name) for field in fields(SetKey)})


def over_gans(images: Estimate, by_gan: Sequence[Sequence[float]], confidence: float = CONFIDENCE) -> Estimate:
    """The estimate of a configuration from the values of each of its GANs in all repeats; a GAN counts once.

    `images` is the same figure bounded by objects and images, the GANs held fixed.
    """
    means = _means(by_gan)
    if images.missing or not means:
        return replace(images, groups=len(by_gan))
    return nested_estimate(means, images, GANS, confidence=confidence)


def further_gans(
    images: Estimate, by_gan: Sequence[Sequence[float]], threshold: float, confidence: float
) -> float | None:
    """How many further GANs would settle a criterion on a configuration; None where nothing is bounded."""
    means = _means(by_gan)
    if images.unbounded or len(means) < LEAST_UNITS:
        return None
    return further_units(means, images, threshold, confidence=confidence)


def differences(before: Mapping[int, Sequence[float]], after: Mapping[int, Sequence[float]]) -> list[float]:
    """After - before of every GAN for which both have a value, each the mean over repeats."""
    changes = [mean_defined(after[gan]) - mean_defined(before[gan]) for gan in before]
    return [change for change in changes if not math.isnan(change)]


def asked_gans(keys: Sequence[GanKey], criterion: Criterion) -> list[GanKey]:
    """The single GANs that a criterion with the condition `gan` asks for; `gan: all` asks for every one."""
    label, where = f"criterion {criterion.id}", dict(criterion.where)
    if not keys:
        raise InputError(f"{label} asks for gan {where['gan']!r}, but the run has no GANs")
    if where["gan"] == ALL:
        del where["gan"]
    columns = [field.name for field in fields(GanKey)]
    return matching(label, list(keys), columns, criterion.model_copy(update={"where": where}))


def gan_measurement(key: GanKey, estimate: Estimate) -> Measurement:
    """What a criterion is told of a single GAN."""
    return Measurement({"model": key.model, "ood_set": key.ood_set, "gan": key.gan}, estimate, unit=ONE_GAN)


def _means(by_gan: Sequence[Sequence[float]]) -> list[float]:
    """The mean over repeats of every GAN that has a value."""
    return [mean for mean in map(mean_defined, by_gan) if not math.isnan(mean)]
