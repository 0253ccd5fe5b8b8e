"""Which kind of model a live object is: asked in order, by what it looks like, without importing any library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from roadworthy.core.roles import Model
from roadworthy.models.base import passes_settings_to
from roadworthy.models.callable import CallableModel
from roadworthy.models.huggingface import HuggingFaceModel, load_pipeline
from roadworthy.models.keras import KerasModel, is_keras_model
from roadworthy.models.sklearn import SklearnModel, looks_like_sklearn
from roadworthy.models.torch import TorchModel


@dataclass(frozen=True)
class LiveKind:
    """A kind of live objects: its name, what recognises one, and the adapter that makes a model of it.

    own_name  what an object is called by itself, besides by `name` or `__name__`; None where it has no name
    """

    kind: str
    recognises: Callable[[Any], bool]
    adapter: Callable[..., Model]
    own_name: Callable[[Any], str | None] = lambda value: None


def _is_instance_of(module: str, name: str) -> Callable[[Any], bool]:
    """Whether an object is of a class of a library: it cannot be where nobody has imported that module yet."""

    def recognises(value: Any) -> bool:
        cls = getattr(sys.modules.get(module), name, None)
        return cls is not None and isinstance(value, cls)

    return recognises


@passes_settings_to(CallableModel, "loaded")
def _predictor(predictor: Any, *, name: str | None = None, **settings: Any) -> CallableModel:
    """An object whose `predict` is a function of images."""
    return CallableModel(predictor.predict, name=name or type(predictor).__name__, **settings)


def _predicts(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "predict", None))


LIVE_KINDS = [
    LiveKind("huggingface", _is_instance_of("transformers.pipelines.base", "Pipeline"), load_pipeline),
    LiveKind("huggingface", _is_instance_of("transformers.modeling_utils", "PreTrainedModel"), HuggingFaceModel),
    LiveKind("keras", is_keras_model, KerasModel),  # on torch it is a module, too
    LiveKind("torch", _is_instance_of("torch.nn", "Module"), TorchModel),
    LiveKind("sklearn", looks_like_sklearn, SklearnModel),
    LiveKind("callable", callable, CallableModel),
    LiveKind("callable", _predicts, _predictor),
]
"""Kinds of live objects in the order in which they are tried."""


def live_kind(value: Any) -> LiveKind | None:
    """The first kind that recognises an object; None where none does.

    >>> live_kind(len).kind, live_kind(3)
    ('callable', None)
    """
    return next((kind for kind in LIVE_KINDS if kind.recognises(value)), None)
