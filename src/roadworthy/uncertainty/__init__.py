"""Wrappers that turn models into models that know how sure they are, and measures of how much their samples agree."""

from __future__ import annotations

from roadworthy.uncertainty.ensemble import Ensemble
from roadworthy.uncertainty.mc_dropout import McDropout
from roadworthy.uncertainty.measures import mean_prediction, mutual_information, predictive_entropy, variation_ratio
from roadworthy.uncertainty.temperature import FittedTemperature, Temperature, fit_temperature, log_probabilities

__all__ = [
    "Ensemble",
    "FittedTemperature",
    "McDropout",
    "Temperature",
    "fit_temperature",
    "log_probabilities",
    "mean_prediction",
    "mutual_information",
    "predictive_entropy",
    "variation_ratio",
]
