"""Damages: what is done to a model on purpose, to see whether a study notices.

Importing this package makes a damaged model an entry of a study: `{damaged: v3.onnx, damage: {damage: weight_noise,
sigma: 0.1}}`. A damage is one class in a file that this one imports, with `@registered(DAMAGES, "name")`.
"""

from __future__ import annotations

from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model
from roadworthy.damages.answers import NeverAnswered, SwappedPair, WrongConfidence
from roadworthy.damages.base import DAMAGES, Chosen, Damage, DamagedModel, make_damage
from roadworthy.damages.inputs import BlurredLens, DeadPixels, SwappedColours, WrongRange
from roadworthy.damages.weights import WeightNoise
from roadworthy.models import MODELS, WRAPPERS, load_model
from roadworthy.models.base import passes_settings_to

__all__ = [
    "DAMAGES",
    "BlurredLens",
    "Chosen",
    "Damage",
    "DamagedModel",
    "DeadPixels",
    "NeverAnswered",
    "SwappedColours",
    "SwappedPair",
    "WeightNoise",
    "WrongConfidence",
    "WrongRange",
    "default_damages",
    "load_damaged",
    "make_damage",
]

KIND = "damaged"
"""The key of a damaged model in a study file."""


@passes_settings_to(load_model)
def load_damaged(spec: Any, *, damage: str | dict[str, Any], name: str | None = None, **common: Any) -> Model:
    """`{damaged: v3.onnx, damage: swapped_colours}`: another model, damaged on purpose.

    >>> load_damaged("v3.onnx", damage="rust")
    Traceback (most recent call last):
    roadworthy.core.errors.UnknownName: unknown damage 'rust'. Known: blurred_lens, dead_pixels, never_answered, swapped_colours, swapped_pair, undamaged, weight_noise, wrong_confidence, wrong_range.
    """  # noqa: E501
    own = make_damage(damage)
    problem = own.problem(spec)
    if problem:
        raise InputError(f"model {name} cannot be damaged by {own.name}: {problem}")
    return own.opened(spec, lambda entry, **changes: load_model(entry, name=name, **{**common, **changes}))


MODELS.register(KIND)(load_damaged)
WRAPPERS.add(KIND)


def default_damages(names: tuple[str, ...] = (), *, seeds: int = 1, chosen: Chosen | None = None) -> list[Damage]:
    """The variants of the named damages, or of all, that `roadworthy mutate` tries; of random ones so many `seeds`.

    `chosen` are the classes that damages of the answers are about.
    """
    classes = chosen or Chosen()
    for name in names:
        DAMAGES.get(name)
    wanted = [name for name in DAMAGES if (name in names if names else DAMAGES.get(name).changes)]
    return [variant for name in wanted for variant in DAMAGES.get(name).variants(classes, seeds)]
