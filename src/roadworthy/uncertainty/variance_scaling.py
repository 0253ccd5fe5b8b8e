"""Variance scaling: a factor per coordinate, fitted on held-out data, makes the stated variance of boxes honest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.files import write_json
from roadworthy.core.hashing import digest
from roadworthy.core.roles import BATCH, Buildable, Dataset, Model
from roadworthy.core.types import Artifact, Batch, Prediction
from roadworthy.metrics.box_uncertainty import VARIANCE_FLOOR, gaussian_nll
from roadworthy.models.boxes import SIDES
from roadworthy.models.classes import Wrapper, align
from roadworthy.models.signals import PART, LearningData, LiveTraining

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

    def for_repeat(self, repeat: int) -> VarianceScaling:
        """The same factors for what answers in this repeat."""
        member = self.model.for_repeat(repeat)
        return self if member is self.model else VarianceScaling(member, self.factors, name=self.name)

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """The model's own: classes are not changed."""
        return self.model.input_gradient(batch)


class FittedVarianceScaling(VarianceScaling, Buildable):
    """A localizer with the factors that fit the validation data of its study, found before any case is shown.

    An artifact: `variance_scaling.json` holds the factors, the negative log-likelihood before and after, and notes.
    """

    activity = "fitting the variance of"

    def __init__(
        self, model: Model, validation: Dataset | None = None, *, name: str | None = None, plan: Any = None
    ) -> None:
        self._validation, self._plan, self._fitted = validation, plan, False
        self._members: dict[int, FittedVarianceScaling] = {}
        self._planned: Any = None
        if validation is None:
            Wrapper.__init__(self, model, name)
        else:
            own = align(model, validation.class_names) if "probabilities" in model.capabilities else model
            super().__init__(own, [1.0] * SIDES, name=name)
            self._planned = plan and plan(self.model, validation, SIGNALS)
        self.learns_from = model.learns_from | {"validation"}

    def with_data(self, data: Mapping[str, Dataset]) -> FittedVarianceScaling:
        """The model with its data, to be fitted on the validation data."""
        plan = data.plan if isinstance(data, LearningData) else self._plan
        validation = data["validation"] if self._validation is None else self._validation
        return FittedVarianceScaling(self.model.with_data(data), validation, name=self.name, plan=plan)

    def for_repeat(self, repeat: int) -> FittedVarianceScaling:
        """What answers in this repeat, with factors of its own."""
        if repeat not in self._members:
            member = self.model.for_repeat(repeat)
            given: dict[str, Any] = {"name": self.name, "plan": self._plan}
            own = self if member is self.model else FittedVarianceScaling(member, self.validation, **given)
            self._members[repeat] = own
        return self._members[repeat]

    def requires(self) -> tuple[Buildable, ...]:
        """What the model is made of, then its factors."""
        return (*self.model.requires(), self)

    @property
    def validation(self) -> Dataset:
        """The data it is fitted on; an error where there is none yet."""
        if self._validation is None:
            raise InputError(f"the variance of model {self.name} needs data: give data.validation in the study")
        return self._validation

    @property
    def recipe(self) -> Artifact:
        """The model, the data it is fitted on, and how many images are asked about at once where that is not usual."""
        inputs = (self.model.fingerprint(), self.validation.fingerprint())
        size, cases = (self._planned.size, self._planned.cases.values()) if self._planned else (BATCH, ())
        usual = size in (BATCH, self.model.fixed_batch)
        parameters = {"floor": VARIANCE_FLOOR, **({} if usual else {"batch": size})}
        return Artifact("variance_scaling", parameters, inputs, requires=(*self.model.requires(), *cases))

    @property
    def work(self) -> int:
        """The images that are read, once for each of the two columns."""
        return len(SIGNALS) * len(self.validation)

    @property
    def loaded(self) -> bool:
        """True once the factors are known."""
        return self._fitted

    def fingerprint(self) -> str:
        """Hash of the recipe: the same before and after the fit."""
        return digest({"kind": "fitted variance", "recipe": self.recipe.hash})

    def build(self, workshop: Path, progress: Callable[[int], None], store: Any = None) -> dict[str, Any]:
        """Fit the factors to the model's answers to the validation data: as stored, or asked now."""
        asked = self.model, self.validation, SIGNALS
        training = self._planned.stored(store) if self._planned else LiveTraining(*asked)
        training.progress = progress
        boxes, variance = (training.gather(name) for name in SIGNALS)
        fitted = asdict(fit_variance(true_boxes(self.validation), boxes, variance))
        write_json(workshop / FITTED, fitted)
        return fitted

    def load(self, home: Path) -> None:
        """Take the factors that were fitted."""
        factors = json.loads((home / FITTED).read_text())["factors"]
        self.factors, self._fitted = tuple(map(float, factors)), True

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer with its variance scaled; an error before `load`."""
        if not self._fitted:
            raise ModelError(f"the variance of model {self.name} is not fitted yet: build it, then load it")
        return super().predict(batch)


def true_boxes(data: Dataset) -> NDArray[np.float32]:
    """The true boxes (N, 4) of a data set, NaN where an image has none; an error where the data has no boxes at all."""
    parts = []
    for start in range(0, len(data), PART):
        boxes = data.batch(slice(start, min(start + PART, len(data)))).boxes
        if boxes is None:
            raise InputError(f"data {data.name} has no boxes: a variance of boxes cannot be fitted on it")
        parts.append(boxes)
    return np.concatenate(parts) if parts else np.zeros((0, SIDES), np.float32)
