"""GAN-made outliers: images that a generator was taught to draw so that classifiers err on how sure they are."""

from __future__ import annotations

from roadworthy.outliers.gan.outliers import Gan, GanOutliers
from roadworthy.outliers.gan.settings import (
    CONFIGURATIONS,
    PRESETS,
    SETTINGS,
    Configuration,
    GanSettings,
    configuration,
)

__all__ = [
    "CONFIGURATIONS",
    "PRESETS",
    "SETTINGS",
    "Configuration",
    "Gan",
    "GanOutliers",
    "GanSettings",
    "configuration",
]
