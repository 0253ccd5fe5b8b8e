"""Damages of the answers: two classes swapped, a class that is never answered, a certainty that is not deserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.parameters import parameter, registered
from roadworthy.core.types import Prediction
from roadworthy.damages.base import DAMAGES, Chosen, Damage

FLOOR = float(np.finfo(np.float32).tiny)
"""Smallest probability that counts: the logarithm of an exact 0 is taken of this."""


@dataclass(frozen=True, kw_only=True)
class OfClasses(Damage):
    """A damage of the answers about some classes, which it names as the data does; the first ones by default."""

    classes: tuple[str, ...] = ()

    of_answers: ClassVar[bool] = True
    needed: ClassVar[int] = 1

    @classmethod
    def variants(cls, chosen: Chosen, seeds: int) -> list[Self]:
        """One, about the classes that most test images show."""
        return [cls(classes=chosen.classes[: cls.needed])]

    def check_classes(self, class_names: Sequence[str]) -> None:
        """Refuse classes that the data lacks, or too few of them."""
        for name in self.classes:
            if name not in class_names:
                raise UnknownName(f"class of damage {self.name}", name, class_names)
        if self.classes and len({*self.classes}) != self.needed:
            raise InputError(f"damage {self.name} is about {self.needed} different classes, not {[*self.classes]}")

    def indices(self, columns: Mapping[str, int]) -> list[int]:
        """The columns of its classes; the first ones where it names none."""
        return [columns[name] for name in self.classes] or [*range(self.needed)]


@registered(DAMAGES, "swapped_pair")
class SwappedPair(OfClasses):
    """Two classes change places in the answers, as where a list of classes is in the wrong order."""

    needed: ClassVar[int] = 2

    @property
    def label(self) -> str:
        """The damage in words."""
        return " and ".join(self.classes or ("the first two classes",)) + " swapped"

    def answer(self, answer: Prediction, columns: Mapping[str, int]) -> Prediction:
        """The answer with both columns swapped."""
        first, second = self.indices(columns)
        order = np.arange(answer.probabilities.shape[1])
        order[[first, second]] = second, first
        logits = None if answer.logits is None else answer.logits[:, order]
        return _plain(answer, answer.probabilities[:, order], logits)


@registered(DAMAGES, "never_answered")
class NeverAnswered(OfClasses):
    """A class that is never answered, as where it was missing in training: its probability goes to the others."""

    @property
    def label(self) -> str:
        """The damage in words."""
        return f"{(self.classes or ('the first class',))[0]} never answered"

    def answer(self, answer: Prediction, columns: Mapping[str, int]) -> Prediction:
        """The answer without the class."""
        (column,) = self.indices(columns)
        left = np.maximum(np.asarray(answer.probabilities, np.float64), FLOOR)
        left[:, column] = 0.0
        probabilities = left / left.sum(axis=1, keepdims=True)
        return _plain(answer, probabilities, None if answer.logits is None else _logits(probabilities))


@registered(DAMAGES, "wrong_confidence")
class WrongConfidence(Damage):
    """Answers that are surer (a temperature below 1) or less sure (above 1) than before; the classes stay."""

    temperature: float = parameter(within=(0.01, 100.0), default=0.2)

    of_answers: ClassVar[bool] = True
    VARIANTS: ClassVar[tuple[Mapping[str, Any], ...]] = ({"temperature": 0.2}, {"temperature": 5.0})

    @property
    def label(self) -> str:
        """The damage in words."""
        return f"{'over' if self.temperature < 1 else 'under'}confident, temperature {self.temperature:g}"

    def answer(self, answer: Prediction, columns: Mapping[str, int]) -> Prediction:
        """p_k proportional to p_k^(1/T)."""
        logs = np.log(np.maximum(np.asarray(answer.probabilities, np.float64), FLOOR)) / self.temperature
        powers = np.exp(logs - logs.max(axis=1, keepdims=True))
        logits = None if answer.logits is None else np.asarray(answer.logits / self.temperature, np.float32)
        return _plain(answer, powers / powers.sum(axis=1, keepdims=True), logits)


def _logits(probabilities: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.log(np.maximum(probabilities, FLOOR)).astype(np.float32)


def _plain(answer: Prediction, probabilities: NDArray[Any], logits: NDArray[Any] | None) -> Prediction:
    """The answer with other class scores; what would speak of the undamaged ones is gone."""
    return answer.changed(
        probabilities=np.asarray(probabilities, np.float32),
        logits=logits,
        log_odds=None,
        certainty=None,
        samples=None,
    )
