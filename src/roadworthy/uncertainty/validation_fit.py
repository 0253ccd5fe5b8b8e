"""What wrappers share that are fitted to a model's answers to the validation data of a study, before any case."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from roadworthy.core.errors import InputError, ModelError
from roadworthy.core.files import write_json
from roadworthy.core.hashing import digest
from roadworthy.core.roles import BATCH, Buildable, Dataset, Model
from roadworthy.core.types import Artifact, Batch, Prediction
from roadworthy.models.classes import Wrapper, align
from roadworthy.models.signals import LearningData, LiveTraining


class ValidationFit(Wrapper, Buildable):
    """A wrapper with a few numbers that fit the validation data; an artifact, whose one file holds what was fitted.

    A subclass names what it fits and says how; it comes before the wrapper that applies the numbers in the list of
    its bases: `class Calibrated(ValidationFit, Temperature)`.
    """

    fitted_thing: ClassVar[str]
    """What is fitted, in messages: `temperature`."""
    builder: ClassVar[str]
    fingerprint_kind: ClassVar[str]
    file_name: ClassVar[str]
    """The file of the artifact, JSON."""

    def __init__(
        self, model: Model, validation: Dataset | None = None, *, name: str | None = None, plan: Any = None
    ) -> None:
        if validation is not None and "probabilities" in model.capabilities:
            model = align(model, validation.class_names)
        self.prepare(model, name)
        self._validation, self._plan, self._fitted = validation, plan, False
        self._members: dict[int, Self] = {}
        self._planned: Any = None
        if validation is None:
            self.learns_from = model.learns_from | {"validation"}
            return
        self.check_data(validation)
        if plan is not None:
            self._planned = plan(self.model, validation, self.signals)

    @abstractmethod
    def prepare(self, model: Model, name: str | None) -> None:
        """Become the wrapper of a model, with numbers that change nothing yet."""

    def check_data(self, validation: Dataset) -> None:
        """Refuse validation data that nothing can be fitted on, before anything is asked; by default all will do."""

    @property
    @abstractmethod
    def signals(self) -> tuple[str, ...]:
        """The columns of the model's answers that are read."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What decides the fit besides the model and the data."""

    @abstractmethod
    def fit(self, answers: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The content of the file, from the model's answers (N, ...) to the validation data, by signal."""

    @abstractmethod
    def take(self, fitted: Mapping[str, Any]) -> None:
        """Use the numbers in the content of the file."""

    def with_data(self, data: Mapping[str, Dataset]) -> Self:
        """The model with its data, to be fitted on the validation data."""
        plan = data.plan if isinstance(data, LearningData) else self._plan
        validation = data["validation"] if self._validation is None else self._validation
        return type(self)(self.model.with_data(data), validation, name=self.name, plan=plan)

    def for_classes(self, class_names: Sequence[str]) -> Self:
        """The model as it answers about these classes, to be fitted to those answers."""
        member = self.model.for_classes(class_names)
        given: dict[str, Any] = {"name": self.name, "plan": self._plan}
        return self if member is self.model else type(self)(member, self._validation, **given)

    def for_repeat(self, repeat: int) -> Self:
        """What answers in this repeat, with a fit of its own."""
        if repeat not in self._members:
            member = self.model.for_repeat(repeat)
            given: dict[str, Any] = {"name": self.name, "plan": self._plan}
            self._members[repeat] = self if member is self.model else type(self)(member, self.validation, **given)
        return self._members[repeat]

    def requires(self) -> tuple[Buildable, ...]:
        """What the model is made of, then what is fitted to it."""
        return (*self.model.requires(), self)

    @property
    def validation(self) -> Dataset:
        """The data it is fitted on; an error where there is none yet."""
        if self._validation is None:
            raise InputError(
                f"the {self.fitted_thing} of model {self.name} needs data: give data.validation in the study"
            )
        return self._validation

    @property
    def recipe(self) -> Artifact:
        """The model, the data it is fitted on, and how many images are asked about at once where that is not usual."""
        inputs = (self.model.fingerprint(), self.validation.fingerprint())
        size, cases = (self._planned.size, self._planned.cases.values()) if self._planned else (BATCH, ())
        parameters = {**self.parameters, **({} if size in (BATCH, self.model.fixed_batch) else {"batch": size})}
        return Artifact(self.builder, parameters, inputs, requires=(*self.model.requires(), *cases))

    @property
    def work(self) -> int:
        """The images that are read, once for each signal."""
        return len(self.signals) * len(self.validation)

    @property
    def loaded(self) -> bool:
        """True once the fit is known."""
        return self._fitted

    def fingerprint(self) -> str:
        """Hash of the recipe: the same before and after the fit."""
        return digest({"kind": self.fingerprint_kind, "recipe": self.recipe.hash})

    def build(self, workshop: Path, progress: Callable[[int], None], store: Any = None) -> dict[str, Any]:
        """Fit to the model's answers to the validation data: as stored, or asked now."""
        asked = self.model, self.validation, self.signals
        training = self._planned.stored(store) if self._planned else LiveTraining(*asked)
        training.progress = progress
        fitted = self.fit({signal: training.gather(signal) for signal in self.signals})
        write_json(workshop / self.file_name, fitted)
        return {**fitted, "images": fitted.get("images", len(self.validation))}

    def load(self, home: Path) -> None:
        """Take what was fitted."""
        self.take(json.loads((home / self.file_name).read_text(encoding="utf-8")))
        self._fitted = True

    def predict(self, batch: Batch) -> Prediction:
        """The model's answer with the fit applied; an error before `load`."""
        if not self._fitted:
            raise ModelError(f"the {self.fitted_thing} of model {self.name} is not fitted yet: build it, then load it")
        return super().predict(batch)  # type: ignore[safe-super]  # that of the wrapper next in the list of bases
