"""Wrappers that turn models into models that know how sure they are, and measures of how much their samples agree.

Importing this package makes them entries of a study: `ensemble`, `temperature`, `mc_dropout` and `variance_scaling`;
and perception networks, whose uncertainty is a setting of theirs: `perception`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError
from roadworthy.core.roles import Model, leaves
from roadworthy.models import MODELS, VALIDATION_FITS, WRAPPERS, load_model
from roadworthy.models.base import passes_settings_to
from roadworthy.models.isolation import FOREIGN
from roadworthy.models.predictions import StoredPredictions
from roadworthy.models.reference import ReferenceModel
from roadworthy.models.torch import TorchModel
from roadworthy.uncertainty.ensemble import Ensemble, TrainedEnsemble
from roadworthy.uncertainty.mc_dropout import McDropout
from roadworthy.uncertainty.measures import mean_prediction, mutual_information, predictive_entropy, variation_ratio
from roadworthy.uncertainty.perception import load_perception
from roadworthy.uncertainty.temperature import Calibrated, Temperature, fit_temperature, log_probabilities
from roadworthy.uncertainty.variance_scaling import FittedVarianceScaling, VarianceScaling, fit_variance

__all__ = [
    "Calibrated",
    "Ensemble",
    "FittedVarianceScaling",
    "McDropout",
    "Temperature",
    "TrainedEnsemble",
    "VarianceScaling",
    "fit_temperature",
    "fit_variance",
    "log_probabilities",
    "mean_prediction",
    "mutual_information",
    "predictive_entropy",
    "variation_ratio",
]


@passes_settings_to(load_model)
def load_ensemble(spec: Any, *, members: int | None = None, name: str = "ensemble", **common: Any) -> Ensemble:
    """`{ensemble: [a.onnx, {torch: b.pt2}]}`: several models that answer as one.

    Or one network trained several times: `{ensemble: {reference: baseline}, members: 5}`.

    >>> load_ensemble({"reference": "baseline"}, members=2).learns_from
    frozenset({'train'})
    """
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        if members is not None:
            raise InputError(f"ensemble {name} lists its models: `members` is for one reference network")
        if len(spec) < 2:
            raise InputError(f"ensemble {name} needs at least 2 models, not {len(spec)}")
        named = (_loaded(entry, f"{name} {number}", common) for number, entry in enumerate(spec))
        return Ensemble(list(named), name=name)
    network = _loaded(spec, name, common)
    if isinstance(spec, Mapping) and "perception" in spec:
        raise InputError(
            f"ensemble {name}: a perception network is made an ensemble by its own settings: "
            "{perception: BACKBONE, uncertainty: ensemble, members: 5}"
        )
    if not isinstance(network, ReferenceModel):
        raise InputError(f"ensemble {name} needs a list of models, or one reference network and `members`")
    if members is None:
        raise InputError(f"ensemble {name} needs `members`: how many networks to train")
    return TrainedEnsemble(network, members, name=name)


@passes_settings_to(load_model)
def load_temperature(spec: Any, *, value: float | None = None, name: str | None = None, **common: Any) -> Model:
    """`{temperature: v3.onnx}`, fitted on `data.validation`, or with the `value` that is known already."""
    model = _loaded(spec, name, common)
    if value is None and any(isinstance(leaf, StoredPredictions) for leaf in leaves(model)):
        raise InputError(f"model {name}: stored predictions hold no answers to validation images: give the value")
    return Calibrated(model, name=name) if value is None else Temperature(model, value, name=name)


@passes_settings_to(load_model)
def load_variance_scaling(
    spec: Any, *, factors: list[float] | None = None, name: str | None = None, **common: Any
) -> Model:
    """`{variance_scaling: ENTRY}`, fitted on `data.validation`, or with the four `factors` that are known already."""
    model = _loaded(spec, name, common)
    if factors is not None:
        return VarianceScaling(model, factors, name=name)
    if any(isinstance(leaf, StoredPredictions) for leaf in leaves(model)):
        raise InputError(f"model {name}: stored predictions hold no answers to validation images: give the factors")
    return FittedVarianceScaling(model, name=name)


@passes_settings_to(load_model, "device")
def load_mc_dropout(
    spec: Any,
    *,
    passes: int = 20,
    seed: int = 0,
    placement: str | list[str] = "all",
    p: float | None = None,
    runtime: str = "auto",
    name: str | None = None,
    **common: Any,
) -> Model:
    """`{mc_dropout: {torch: net.pth, arch: code.py:Net}, passes: 20}`: a torch network with its dropout active."""
    trained = isinstance(spec, Mapping) and not {"perception", "reference"}.isdisjoint(spec)
    here = {"isolate": False} if common.get("isolate") == FOREIGN else {}  # its modules are taken apart
    model = _loaded(spec, name, {**(common if trained else {**common, "device": "cpu"}), **here})
    if model.isolated:
        raise InputError(
            f"model {name}: MC-Dropout takes its network apart, which cannot be in another process: leave out "
            "`isolate=`"
        )
    if not isinstance(model, TorchModel):
        raise InputError(
            f"model {name}: MC-Dropout needs a torch network, whose dropout it can switch on; networks that a study "
            "trains have it as a setting: {reference: mc_dropout}, or {perception: BACKBONE, uncertainty: full}"
        )
    return McDropout(model, passes=passes, seed=seed, placement=placement, p=p, runtime=runtime, name=name)


def _loaded(spec: Any, name: str | None, common: Mapping[str, Any]) -> Model:
    if not isinstance(spec, str | Path | Mapping | Model):
        raise InputError(f"model {name} wraps another: give its path or its entry, not {spec!r}")
    return load_model(spec, name=name, **common)


_LOADERS: dict[str, Callable[..., Model]] = {
    "ensemble": load_ensemble,
    "temperature": load_temperature,
    "mc_dropout": load_mc_dropout,
    "variance_scaling": load_variance_scaling,
}
for _kind, _loader in _LOADERS.items():
    MODELS.register(_kind)(_loader)
    WRAPPERS.add(_kind)

MODELS.register("perception")(load_perception)
VALIDATION_FITS.update({"temperature": "value", "variance_scaling": "factors", "perception": ""})
