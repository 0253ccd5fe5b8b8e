"""Variance scaling: a factor per coordinate, fitted on held-out data, makes the stated variance of boxes honest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.metrics.box_uncertainty import VARIANCE_FLOOR, gaussian_nll
from roadworthy.models.boxes import SIDES
from roadworthy.models.classes import Wrapper
from roadworthy.models.signals import PART
from roadworthy.uncertainty.validation_fit import ValidationFit

FITTED = "variance_scaling.json"
SIGNALS = ("boxes", "box_variance")
COORDINATES = ("x0", "y0", "x1", "y1")

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FittedVariance:
    """The factors of the variance of x0, y0, x1, y1, the mean negative log-likelihood before and after, and notes.

    `images` is how many images with a true box the factors were fitted on.
    """

    factors: tuple[float, ...]
    nll_before: float
    nll: float
    images: int
    notes: tuple[str, ...] = ()


def fit_variance(true: Floats, boxes: Floats, variance: Floats) -> FittedVariance:
    """The factors f_j that minimise the Gaussian negative log-likelihood of held-out boxes, (N, 4) each.

    With the variance f_j max(v_nj, 0.01), the mean over n of 0.5 log(2 pi f_j v_nj) + (y_nj - b_nj)^2 / (2 f_j v_nj) is
    smallest at f_j = mean over n of (y_nj - b_nj)^2 / v_nj. A variance below 0.01 square pixels counts as that, as in
    the metrics of boxes. Rows whose true box is NaN are left out; where none is left, that is an `InputError`.

    >>> true, boxes = np.zeros((2, 4)), np.array([[1.0, 2, 2, 2], [-1, 2, 2, 2]])
    >>> fit_variance(true, boxes, np.ones((2, 4))).factors
    (1.0, 4.0, 4.0, 4.0)
    """
    arrays = [np.asarray(values, np.float64) for values in (true, boxes, variance)]
    if any(array.ndim != 2 or array.shape[1] != SIDES or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(f"true boxes, boxes and their variance must be (N, 4) each, not {shapes}")
    known = ~np.isnan(arrays[0]).any(axis=1)
    if not known.any():
        raise InputError("a variance is fitted on images with a true box, and none of these has one")
    truth, answered, stated = (array[known] for array in arrays)
    if not (np.isfinite(answered).all() and np.isfinite(stated).all()):
        raise InputError("boxes or their variance hold NaN or infinity: fix the model first")
    if stated.min() < 0:
        raise InputError("the variance of boxes is negative: declare how the model states it with `boxes=`")
    floored = np.maximum(stated, VARIANCE_FLOOR)
    factors = ((truth - answered) ** 2 / floored).mean(axis=0)
    notes = []
    exact = [name for name, factor in zip(COORDINATES, factors, strict=True) if not factor]
    if exact:
        notes.append(f"every box is exact in {', '.join(exact)}: the variance there is scaled to 0")
    if not known.all():
        notes.append(f"{int((~known).sum())} images have no true box and are left out")
    before, after = (float(gaussian_nll(truth, answered, floored * scale).mean()) for scale in (1.0, factors))
    return FittedVariance(tuple(map(float, factors)), before, after, int(known.sum()), tuple(notes))


class VarianceScaling(Wrapper):
    """A localizer whose variance of each coordinate is multiplied by a factor: v_nj becomes f_j max(v_nj, 0.01).

    Boxes and classes stay as they are. `factors` are those of x0, y0, x1, y1, for the variance (the square of sigma).

    >>> from roadworthy.models import CallableModel
    >>> rows = lambda images: np.tile([1.0, 1, 3, 3, 2, 2, 2, 2], (len(images), 1))
    >>> model = CallableModel(rows, boxes="corners pixels sigma", version="1", name="rows")
    >>> batch = Batch(ids=("a",), images=np.zeros((1, 4, 4, 3), np.uint8), labels=np.zeros(1, np.int64))
    >>> VarianceScaling(model, [1.0, 2.0, 0.5, 1.0]).predict(batch).box_variance.tolist()
    [[4.0, 8.0, 2.0, 4.0]]
    """

    def __init__(self, model: Model, factors: Sequence[float], *, name: str | None = None) -> None:
        if "box_variance" not in model.capabilities:
            raise InputError(
                f"model {name or model.name} states no variance of its boxes, so there is none to scale: declare it "
                "with `boxes=`, or use MC-Dropout or an ensemble"
            )
        values = [float(factor) for factor in factors]
        if len(values) != SIDES or not all(np.isfinite(value) and value >= 0 for value in values):
            raise InputError(f"model {model.name} needs factors of at least 0 for x0, y0, x1 and y1, not {values}")
        super().__init__(model, name)
        self.factors = tuple(values)

    def fingerprint(self) -> str:
        """Hash of the model and the factors."""
        parameters = {"factors": list(self.factors), "floor": VARIANCE_FLOOR}
        return digest({"kind": "variance_scaling", "model": self.model.fingerprint(), **parameters})

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer with its variance scaled."""
        answer = self.model.predict(batch)
        floored = np.maximum(np.asarray(answer.columns["box_variance"], np.float64), VARIANCE_FLOOR)
        return answer.changed(box_variance=np.asarray(floored * np.asarray(self.factors), np.float32))

    def with_data(self, data: Mapping[str, Dataset]) -> VarianceScaling:
        """The same factors for the model with its data."""
        return VarianceScaling(self.model.with_data(data), self.factors, name=self.name) if self.learns_from else self

    def for_classes(self, class_names: Sequence[str]) -> VarianceScaling:
        """The same factors for the model as it answers about these classes."""
        member = self.model.for_classes(class_names)
        return self if member is self.model else VarianceScaling(member, self.factors, name=self.name)

    def for_repeat(self, repeat: int) -> VarianceScaling:
        """The same factors for what answers in this repeat."""
        member = self.model.for_repeat(repeat)
        return self if member is self.model else VarianceScaling(member, self.factors, name=self.name)

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """The model's own: classes are not changed."""
        return self.model.input_gradient(batch)


class FittedVarianceScaling(ValidationFit, VarianceScaling):
    """A localizer with the factors that fit the validation data of its study, found before any case is shown.

    An artifact: `variance_scaling.json` holds the factors, the negative log-likelihood before and after, and notes.
    """

    activity = "fitting the variance of"
    fitted_thing, builder, fingerprint_kind, file_name = "variance", "variance_scaling", "fitted variance", FITTED
    signals = SIGNALS

    def prepare(self, model: Model, name: str | None) -> None:
        """Factors of 1 until the fit is known."""
        VarianceScaling.__init__(self, model, [1.0] * SIDES, name=name)

    def check_data(self, validation: Dataset) -> None:
        """Refuse data without boxes."""
        true_boxes(validation, slice(0, 1))

    @property
    def parameters(self) -> dict[str, Any]:
        """The least variance."""
        return {"floor": VARIANCE_FLOOR}

    def fit(self, answers: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The factors for the model's boxes and their variance."""
        return asdict(fit_variance(true_boxes(self.validation), *(answers[signal] for signal in SIGNALS)))

    def take(self, fitted: Mapping[str, Any]) -> None:
        """Use the factors."""
        self.factors = tuple(map(float, fitted["factors"]))


def true_boxes(data: Dataset, rows: slice = slice(None)) -> NDArray[np.float32]:
    """The true boxes (N, 4) of some rows, NaN where an image has none; an error where the data has no boxes at all."""
    start, stop, _ = rows.indices(len(data))
    parts = [np.zeros((0, SIDES), np.float32)]
    for first in range(start, stop, PART):
        boxes = data.batch(slice(first, min(first + PART, stop))).boxes
        if boxes is None:
            raise InputError(f"data {data.name} has no boxes: a variance of boxes cannot be fitted on it")
        parts.append(boxes)
    return np.concatenate(parts)
