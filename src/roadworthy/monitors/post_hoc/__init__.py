"""Post-hoc detectors: they read logits, probabilities and penultimate features of one forward pass, nothing else."""

from __future__ import annotations

from roadworthy.monitors.post_hoc.ash import Ash
from roadworthy.monitors.post_hoc.dice import Dice
from roadworthy.monitors.post_hoc.entropy import Entropy
from roadworthy.monitors.post_hoc.fdbd import Fdbd
from roadworthy.monitors.post_hoc.gen import Gen
from roadworthy.monitors.post_hoc.gradnorm import GradNorm
from roadworthy.monitors.post_hoc.margin import Margin
from roadworthy.monitors.post_hoc.neco import Neco
from roadworthy.monitors.post_hoc.nnguide import NnGuide
from roadworthy.monitors.post_hoc.relative_mahalanobis import RelativeMahalanobis
from roadworthy.monitors.post_hoc.residual import Residual
from roadworthy.monitors.post_hoc.scale import Scale
from roadworthy.monitors.post_hoc.she import She
from roadworthy.monitors.post_hoc.temperature_msp import TemperatureMsp

__all__ = [
    "Ash",
    "Dice",
    "Entropy",
    "Fdbd",
    "Gen",
    "GradNorm",
    "Margin",
    "Neco",
    "NnGuide",
    "RelativeMahalanobis",
    "Residual",
    "Scale",
    "She",
    "TemperatureMsp",
]
