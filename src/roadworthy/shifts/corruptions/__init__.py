"""The common corruptions of Hendrycks and Dietterich: 15 and 4 more, in five severities, as shifts named `c_...`."""

from roadworthy.shifts.corruptions import blur, digital, noise, weather

COMMON = (
    *("c_gaussian_noise", "c_shot_noise", "c_impulse_noise"),
    *("c_defocus_blur", "c_glass_blur", "c_motion_blur", "c_zoom_blur"),
    *("c_snow", "c_frost", "c_fog", "c_brightness"),
    *("c_contrast", "c_elastic_transform", "c_pixelate", "c_jpeg_compression"),
)
"""The 15 that the mean corruption error counts."""
EXTRA = ("c_speckle_noise", "c_gaussian_blur", "c_spatter", "c_saturate")
"""The four kept apart for choosing settings."""

__all__ = ["COMMON", "EXTRA", "blur", "digital", "noise", "weather"]
