"""Wrappers that turn models into models that know how sure they are, and measures of how much their samples agree."""

from __future__ import annotations

from roadworthy.uncertainty.ensemble import Ensemble, TrainedEnsemble
from roadworthy.uncertainty.entries import load_ensemble, load_mc_dropout, load_temperature
from roadworthy.uncertainty.mc_dropout import McDropout
from roadworthy.uncertainty.measures import mean_prediction, mutual_information, predictive_entropy, variation_ratio
from roadworthy.uncertainty.temperature import (
    Calibrated,
    FittedTemperature,
    Temperature,
    fit_temperature,
    log_probabilities,
)

__all__ = [
    "Calibrated",
    "Ensemble",
    "FittedTemperature",
    "McDropout",
    "Temperature",
    "TrainedEnsemble",
    "fit_temperature",
    "load_ensemble",
    "load_mc_dropout",
    "load_temperature",
    "log_probabilities",
    "mean_prediction",
    "mutual_information",
    "predictive_entropy",
    "variation_ratio",
]
