"""Temperature scaling: one number, fitted on held-out data, that makes a model's probabilities honest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.models.classes import Wrapper
from roadworthy.models.outputs import softmax
from roadworthy.uncertainty.validation_fit import ValidationFit

BOUNDS = (0.05, 20.0)
FITTED = "temperature.json"
FLOOR = float(np.finfo(np.float32).tiny)
"""Smallest probability that counts: the logarithm of an exact 0 is taken of this."""


def log_probabilities(prediction: Prediction) -> NDArray[np.float64]:
    """What a temperature divides, (N, K): the logits where the model gives them, else log probabilities.

    >>> log_probabilities(Prediction(probabilities=np.array([[1.0, 0.0]], np.float32))).round(1).tolist()
    [[0.0, -87.3]]
    """
    if prediction.logits is not None:
        return np.asarray(prediction.logits, np.float64)
    return np.log(np.maximum(np.asarray(prediction.probabilities, np.float64), FLOOR))


@dataclass(frozen=True)
class FittedTemperature:
    """A temperature, the mean negative log-likelihood before and after, and what is to be known of the fit."""

    temperature: float
    nll_before: float
    nll: float
    notes: tuple[str, ...] = ()


def fit_temperature(
    logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]], *, bounds: tuple[float, float] = BOUNDS
) -> FittedTemperature:
    """The temperature T that minimises the mean of -log softmax(z_n / T)_{y_n} over held-out logits (N, K).

    The mean is convex in 1/T, so the minimum within `bounds` is found by a bounded scalar search. Where there is none
    inside (answers that are all correct call for T = 0, answers worse than chance T = infinity) the bound is given, and
    `notes` say so.

    >>> logits = np.log(np.array([[0.9, 0.1]] * 4)) * 2
    >>> fitted = fit_temperature(logits, np.array([0, 0, 0, 1]))
    >>> bool(np.isclose(fitted.temperature, 2 * np.log(9) / np.log(3), rtol=1e-4))
    True
    """
    values, truth = np.asarray(logits, np.float64), np.asarray(labels)
    low, high = bounds
    if not 0 < low <= 1 <= high < np.inf:
        raise InputError(f"the bounds of a temperature must enclose 1 and be above 0, not {bounds}")
    if values.ndim != 2 or values.shape[1] < 2 or not len(values):
        raise InputError(f"a temperature is fitted on logits (images, at least two classes), not {values.shape}")
    if truth.shape != (len(values),) or not np.issubdtype(truth.dtype, np.integer):
        raise InputError(f"{len(values)} rows of logits need as many whole-number labels, not {truth.shape}")
    if truth.min() < 0 or truth.max() >= values.shape[1]:
        raise InputError(f"labels are {truth.min()} to {truth.max()}, but there are {values.shape[1]} classes")
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values).all(axis=1)).sum())
        raise InputError(f"the logits of {bad} of {len(values)} images are NaN or infinite: fix the model first")

    def nll(inverse: float) -> float:
        scaled = values * inverse
        return float((logsumexp(scaled, axis=1) - scaled[np.arange(len(truth)), truth]).mean())

    notes = []
    if len(np.unique(truth)) == 1:
        notes.append("all labels are of one class: the temperature says nothing about the others")
    if np.ptp(values, axis=1).max() == 0:
        notes.append("all logits of an image are equal: every temperature answers the same, 1 is kept")
        return FittedTemperature(1.0, nll(1.0), nll(1.0), tuple(notes))
    minimum = minimize_scalar(nll, bounds=(1 / high, 1 / low), method="bounded", options={"xatol": 1e-9})
    inverse = min((1 / low, 1 / high, 1.0, float(minimum.x)), key=nll)
    if inverse in (1 / high, 1 / low):
        why = "worse than chance" if inverse == 1 / high else "all correct, or nearly"
        notes.append(f"the best temperature lies beyond the bound {1 / inverse:g}: the answers are {why}")
    return FittedTemperature(1 / inverse, nll(1.0), nll(inverse), tuple(notes))


class Temperature(Wrapper):
    """A model whose logits are divided by a temperature: p_n = softmax(z_n / T).

    Of a model without logits, log probabilities are divided, so p_nk is proportional to p_nk^(1/T). The order of the
    classes never changes. Boxes are passed on as they are. Samples and a certainty of the model's own are not passed
    on: they are not scaled. To keep samples, scale the members and make an `Ensemble` of them.

    >>> from roadworthy.models import load_model
    >>> flat = lambda images: np.tile([0.1, 0.9], (len(images), 1)).astype(np.float32)
    >>> model = load_model(flat, num_classes=2, version="1", outputs="probabilities", name="flat")
    >>> batch = Batch(ids=("a",), images=np.zeros((1, 4, 4, 3), np.uint8), labels=np.zeros(1, np.int64))
    >>> Temperature(model, 2.0).predict(batch).probabilities.round(3).tolist()
    [[0.25, 0.75]]
    """

    only_rescales = True

    def __init__(self, model: Model, temperature: float, *, name: str | None = None) -> None:
        if not (np.isfinite(temperature) and temperature > 0):
            raise InputError(f"the temperature of model {model.name} must be above 0 and finite, not {temperature}")
        if "probabilities" not in model.capabilities:
            raise InputError(f"model {model.name} answers no classes, so there is nothing that a temperature scales")
        super().__init__(model, name)
        self.temperature = float(temperature)
        self.capabilities = model.capabilities & {"probabilities", "logits", "features", "boxes", "box_variance"}

    def fingerprint(self) -> str:
        """Hash of the model and the temperature."""
        return digest({"kind": "temperature", "model": self.model.fingerprint(), "temperature": self.temperature})

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer, scaled."""
        answer = self.model.predict(batch)
        scaled = np.asarray(log_probabilities(answer) / self.temperature, np.float32)
        logits = None if answer.logits is None else scaled
        return Prediction(softmax(scaled), logits=logits, boxes=answer.boxes, box_variance=answer.box_variance)

    def with_data(self, data: Mapping[str, Dataset]) -> Temperature:
        """The same temperature for the model with its data."""
        return Temperature(self.model.with_data(data), self.temperature, name=self.name) if self.learns_from else self

    def for_classes(self, class_names: Sequence[str]) -> Temperature:
        """The same temperature for the model as it answers about these classes."""
        member = self.model.for_classes(class_names)
        return self if member is self.model else Temperature(member, self.temperature, name=self.name)

    def for_repeat(self, repeat: int) -> Temperature:
        """The same temperature for what answers in this repeat."""
        member = self.model.for_repeat(repeat)
        return self if member is self.model else Temperature(member, self.temperature, name=self.name)


class Calibrated(ValidationFit, Temperature):
    """A model with the temperature that fits the validation data of its study, found before any case is shown.

    An artifact: `temperature.json` holds the temperature, the negative log-likelihood before and after, and notes.
    """

    activity = "fitting the temperature of"
    fitted_thing, builder, fingerprint_kind, file_name = "temperature", "temperature", "calibrated", FITTED

    def prepare(self, model: Model, name: str | None) -> None:
        """A temperature of 1 until the fit is known."""
        Temperature.__init__(self, model, 1.0, name=name)

    @property
    def signals(self) -> tuple[str, ...]:
        """Logits where the model gives them, else probabilities."""
        return ("logits" if "logits" in self.model.capabilities else "probabilities",)

    @property
    def parameters(self) -> dict[str, Any]:
        """The bounds of the temperature."""
        return {"bounds": list(BOUNDS)}

    def fit(self, answers: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The temperature for the model's classes."""
        return asdict(fit_temperature(log_probabilities(Prediction(**answers)), self.validation.labels))

    def take(self, fitted: Mapping[str, Any]) -> None:
        """Use the temperature."""
        self.temperature = float(fitted["temperature"])
