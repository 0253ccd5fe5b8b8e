"""The role Damage, the registry of damages, and the model that answers as a damaged one does."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.code import CodeIdentified, code_of
from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest
from roadworthy.core.parameters import check_ranges, registered
from roadworthy.core.registry import Registry
from roadworthy.core.roles import Dataset, Model
from roadworthy.core.types import Batch, Prediction
from roadworthy.core.validation import check_settings
from roadworthy.models.classes import Wrapper

Load = Callable[..., Model]
"""Loads the entry of a model, with some of its settings changed."""


@dataclass(frozen=True)
class Chosen:
    """The classes that damages of the answers are about: by default the two that most test images show."""

    classes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Damage(CodeIdentified, ABC):
    """What is done to a model on purpose: a frozen keyword-only dataclass whose fields are its parameters.

    A damage of the input changes `batch`, one of the answers `answer`, one of the weights `opened`; what it does not
    change is the model's own. It never draws anew: the same image is damaged in the same way every time.

    VARIANTS   the parameters of the variants that are tried by default
    changes    whether it changes anything; an undamaged copy does not
    """

    name: ClassVar[str]
    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    changes: ClassVar[bool] = True
    of_answers: ClassVar[bool] = False
    """Whether it changes answers, so that gradients of the model no longer say what the damaged one does."""

    def __post_init__(self) -> None:
        check_ranges("damage", self)

    @classmethod
    def variants(cls, chosen: Chosen, seeds: int) -> list[Self]:
        """The variants that are tried by default; one that draws at random is tried with so many seeds."""
        draws = {"seed"} <= {field.name for field in fields(cls)}
        repeats = [{"seed": seed} for seed in range(seeds)] if draws else [{}]
        return [cls(**{**variant, **repeat}) for variant in cls.VARIANTS for repeat in repeats]

    def parameters(self) -> dict[str, Any]:
        """Its configuration."""
        return asdict(self)

    @property
    def label(self) -> str:
        """The damage in words."""
        return self.name.replace("_", " ")

    @property
    def slug(self) -> str:
        """Its name with its parameters, as a folder can be called."""
        values = [str(value) for value in self.parameters().values() if not isinstance(value, tuple)]
        return "-".join([self.name, *values])

    def entry(self, spec: Any) -> dict[str, Any]:
        """The model `spec`, damaged, as a study names it."""
        plain = {key: [*value] if isinstance(value, tuple) else value for key, value in self.parameters().items()}
        return {"damaged": spec, "damage": {"damage": self.name, **plain}}

    def problem(self, spec: Any) -> str:
        """Why a model with this entry cannot be damaged so; empty where it can."""
        return ""

    def opened(self, spec: Any, load: Load) -> Model:
        """The damaged model of an entry."""
        return DamagedModel(load(spec), self)

    def batch(self, batch: Batch) -> Batch:
        """The images that the model sees in place of these."""
        return batch

    def answer(self, answer: Prediction, columns: Mapping[str, int]) -> Prediction:
        """What is answered in place of this; `columns` are those of the classes by name."""
        return answer

    def check_classes(self, class_names: Sequence[str]) -> None:
        """Refuse classes that the damage names and the data lacks."""


DAMAGES: Registry[type[Damage]] = Registry("damage")


@registered(DAMAGES, "undamaged")
class Undamaged(Damage):
    """Nothing at all: a copy of the model, which no criterion may catch."""

    changes: ClassVar[bool] = False

    @property
    def label(self) -> str:
        """The damage in words."""
        return "undamaged copy"


def make_damage(entry: str | Mapping[str, Any]) -> Damage:
    """The damage that an entry names, by its name or as `{damage: weight_noise, sigma: 0.1}`.

    >>> make_damage({"damage": "weight_noise", "sigma": 0.1})
    WeightNoise(sigma=0.1, seed=0)
    """
    settings = {"damage": entry} if isinstance(entry, str) else dict(entry)
    name = settings.pop("damage", None)
    if not isinstance(name, str):
        raise InputError("a damage is a name, or a mapping with the key damage: {damage: weight_noise, sigma: 0.1}")
    kind = DAMAGES.get(name)
    known = {field.name for field in fields(kind)}
    for key in settings:
        if key not in known:
            raise UnknownName(f"parameter of damage {name}", str(key), known)
    check_settings(kind, settings, f"{name} damage setting")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()})
    except TypeError as error:
        raise InputError(f"damage {name}: {error}") from None


class DamagedModel(Wrapper):
    """A model with a damage; its fingerprint is that of the model and of the damage.

    Its gradients are those of the model behind the damaged input; a damage of the answers has none.
    """

    def __init__(self, model: Model, damage: Damage, data_classes: tuple[str, ...] = ()) -> None:
        super().__init__(model)
        self.damage, self.data_classes = damage, data_classes
        if damage.of_answers:
            if "probabilities" not in model.capabilities:
                raise InputError(f"model {model.name} answers no classes, so that {damage.name} cannot damage it")
            self.capabilities = model.capabilities & {"probabilities", "logits", "features", "boxes", "box_variance"}

    def fingerprint(self) -> str:
        """Hash of the model and of the damage, with its code where that is not ours."""
        damage = {"name": self.damage.name, "parameters": self.damage.parameters(), "code": code_of(type(self.damage))}
        return digest({"kind": "damaged", "model": self.model.fingerprint(), "damage": damage})

    @property
    def columns_of_classes(self) -> dict[str, int]:
        """The column of each class; of a model that names none, in the order of the data."""
        return {name: column for column, name in enumerate(self.model.class_names or self.data_classes)}

    def predict(self, batch: Batch) -> Prediction:
        """The damaged answer to the damaged images."""
        return self.damage.answer(self.model.predict(self.damage.batch(batch)), self.columns_of_classes)

    def features(self, batch: Batch, layer: str) -> NDArray[np.float32]:
        """Those of the damaged images."""
        return self.model.features(self.damage.batch(batch), layer)

    def input_gradient(self, batch: Batch) -> NDArray[np.float32]:
        """Those of the damaged images."""
        return self.model.input_gradient(self.damage.batch(batch))

    def with_data(self, data: Mapping[str, Dataset]) -> Model:
        """The model with its data, damaged likewise."""
        return DamagedModel(self.model.with_data(data), self.damage, self.data_classes)

    def for_classes(self, class_names: Sequence[str]) -> Model:
        """The model as it answers about these classes, damaged likewise."""
        self.damage.check_classes(class_names)
        return DamagedModel(self.model.for_classes(class_names), self.damage, tuple(class_names))

    def for_repeat(self, repeat: int) -> Model:
        """What answers in this repeat, damaged likewise."""
        member = self.model.for_repeat(repeat)
        return self if member is self.model else DamagedModel(member, self.damage, self.data_classes)
