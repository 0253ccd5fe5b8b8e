"""What is tested: models of every kind, in files, folders and memory, all behind the one role `Model`."""

from __future__ import annotations

import inspect
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import InputError, UnknownName, shown
from roadworthy.core.fetching import local_entry, refuse_code
from roadworthy.core.hashing import digest_file
from roadworthy.core.processes import model_is_here
from roadworthy.core.registry import Registry
from roadworthy.core.remote import is_address
from roadworthy.core.roles import Model, Origin
from roadworthy.core.validation import check_settings, find_mode
from roadworthy.models.base import passes_settings_to
from roadworthy.models.boxes import BoxForm, parse_box_form
from roadworthy.models.callable import CallableModel, load_callable
from roadworthy.models.classes import align
from roadworthy.models.code import is_object_name
from roadworthy.models.http import HTTP_ISOLATION, HttpModel, is_web_model, parse_address
from roadworthy.models.huggingface import (
    HuggingFaceModel,
    files_of_folder,
    is_huggingface_folder,
    load_huggingface,
    refuse_unreadable_config,
)
from roadworthy.models.isolation import (
    FOREIGN,
    CannotBeIsolated,
    foreign,
    is_foreign,
    isolation_of,
    open_isolated,
    parse_limits,
)
from roadworthy.models.joint import JointModel
from roadworthy.models.keras import OLD_SUFFIXES as OLD_KERAS_SUFFIXES
from roadworthy.models.keras import SUFFIX as KERAS_SUFFIX
from roadworthy.models.keras import KerasModel, load_keras
from roadworthy.models.live import live_kind
from roadworthy.models.onnx import OnnxModel
from roadworthy.models.outputs import softmax
from roadworthy.models.predictions import SUFFIXES, StoredPredictions
from roadworthy.models.preprocess import Preprocess
from roadworthy.models.reference import ReferenceModel
from roadworthy.models.sklearn import SklearnModel
from roadworthy.models.torch import TorchModel
from roadworthy.models.torch_files import load_torch
from roadworthy.models.training import train_classifier

if TYPE_CHECKING:
    import torch

__all__ = [
    "MODELS",
    "VALIDATION_FITS",
    "WRAPPERS",
    "BoxForm",
    "CallableModel",
    "HttpModel",
    "HuggingFaceModel",
    "JointModel",
    "KerasModel",
    "OnnxModel",
    "Preprocess",
    "ReferenceModel",
    "SklearnModel",
    "StoredPredictions",
    "TorchModel",
    "align",
    "check_entry",
    "entry_fits_validation",
    "kind_of",
    "load_callable",
    "load_model",
    "load_torch",
    "parse_box_form",
    "softmax",
    "train_classifier",
]

Loader = Callable[..., Model]

TORCH_SUFFIXES = (".pt", ".pth", ".th", ".pt2", ".ts", ".torchscript")

MODELS: Registry[Loader] = Registry("model")
"""Kinds of models by their key in a study file. A loader takes the key's value and keyword settings; of `name`,
`trust`, `unpickle`, `device` and `base` (the folder that relative paths start from) it gets those that its signature
names."""

VALIDATION_FITS: dict[str, str] = {}
"""Kinds that are fitted on the validation data of a study, or chosen by it, each with the setting that gives what would
be fitted; empty where there is none."""

WRAPPERS: set[str] = set()
"""Kinds whose value is another model's entry, or several: `joint`, and those of `roadworthy.uncertainty`."""

MODELS.register("onnx")(OnnxModel)
MODELS.register("torch")(foreign(load_torch))
MODELS.register("huggingface")(load_huggingface)
MODELS.register("keras")(load_keras)
MODELS.register("callable")(foreign(load_callable))
MODELS.register("http")(foreign(HttpModel, HTTP_ISOLATION))
MODELS.register("predictions")(StoredPredictions)
MODELS.register("reference")(ReferenceModel)


def load_model(
    spec: str | Path | Mapping[str, Any] | Model | torch.nn.Module | Callable[..., Any] | object,
    *,
    name: str | None = None,
    trust: bool = False,
    unpickle: bool = False,
    device: str = "auto",
    base: Path = Path(),
    isolate: bool | Mapping[str, Any] | str = False,
    varies: bool = False,
    **settings: Any,
) -> Model:
    """A model from a path, a web address, an entry of a study file or a live object; a `Model` comes back as it is.

    Paths are told apart by their ending: `.onnx`; `.pt .pth .th .pt2 .ts .torchscript`; `.keras`; a folder of a Hugging
    Face model (with config.json); `.csv`, `.parquet` or a folder of stored predictions; `file.py:name`;
    `http://HOST:PORT/PATH` is a server. Live objects are torch modules, models of MAITE, Hugging Face, scikit-learn and
    Keras, functions, and what has `predict`. An entry is `{onnx: v3.onnx, range: 0-255}`: one kind, then its settings.

    trust      run Python code that the entry names (`file.py:name`, `arch`) and TorchScript
    unpickle   read torch files with pickle, which runs any code they hold; only for files you made yourself
    isolate    run it in a process of its own: True, or its limits, `{"seconds": 10, "memory": "2GB"}`; `foreign`:
               where it is somebody's code. What an entry says of itself comes first
    varies     it answers the same images differently when asked again, on purpose

    >>> load_model(lambda images: images, num_classes=3, version="1", name="mine").name
    'mine'
    """
    common: dict[str, Any] = {"name": name, "trust": trust, "unpickle": unpickle, "device": device, "base": base}
    common |= {"isolate": isolate, "varies": varies}
    settings = {key: local_entry(value) for key, value in settings.items()}
    if isinstance(spec, Model):
        kept = [*settings, *(["varies"] if varies else ())]
        if kept:
            raise InputError(f"model {spec.name} is complete: {', '.join(kept)} cannot be set any more")
        _refuse_isolation(spec, isolate)
        return spec
    if isinstance(spec, str | Path):
        spec = local_entry(spec)
        kind, value = kind_of(str(spec), base), spec
    elif isinstance(spec, Mapping):
        kind, value, settings = _kind_in({key: local_entry(entry) for key, entry in spec.items()}, settings)
        common |= {key: settings.pop(key) for key in ("isolate", "varies") if key in settings}
    elif isinstance(spec, type):
        raise InputError(f"{spec.__name__} is a class, not a model: give an object of it, fitted or with its weights")
    else:
        live = live_kind(spec)
        if live is None:
            raise InputError(
                "a model is a path, a study entry, a function, a torch module, a model of MAITE, Hugging Face, "
                f"scikit-learn or Keras, or has the method predict, not {type(spec).__name__}"
            )
        _refuse_isolation(spec, isolate)
        return _build(live.kind, live.adapter, spec, settings, **common)
    return _build(kind, MODELS.get(kind), value, settings, **common)


def _refuse_isolation(spec: Any, isolate: Any) -> None:
    """Refuse a process of its own for what lives in this one and has no recipe."""
    if isolate not in (False, FOREIGN):
        raise InputError(
            f"a {type(spec).__name__} lives in the memory of this process, so that it cannot run in one of its own: "
            "name its file, or leave out `isolate=`"
        )


@passes_settings_to(load_model)
def load_joint(spec: Any, *, name: str = "joint", **common: Any) -> JointModel:
    """`{joint: {classes: what.onnx, boxes: {onnx: where.onnx, boxes: centre relative}}}`: two models, one answer.

    >>> load_joint({"classes": "what.onnx"})
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: model joint needs two models: {classes: MODEL, boxes: MODEL}
    """
    if not isinstance(spec, Mapping) or set(spec) != {"classes", "boxes"}:
        raise InputError(f"model {name} needs two models: {{classes: MODEL, boxes: MODEL}}")
    classes, boxes = (load_model(spec[part], name=f"{name} {part}", **common) for part in ("classes", "boxes"))
    return JointModel(classes, boxes, name=name)


MODELS.register("joint")(load_joint)
WRAPPERS.add("joint")


def _build(kind: str, loader: Loader, value: Any, settings: Mapping[str, Any], **common: Any) -> Model:
    """Call a loader with the settings it knows; one it does not know is an error that names the nearest."""
    parameters = inspect.signature(loader).parameters.values()
    known = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    settable = known - {"name", "trust", "unpickle", "base", "isolate", "varies"}
    for setting in settings:
        if setting not in settable:
            raise UnknownName(f"{kind} model setting", setting, settable)
    check_settings(loader, settings, f"{kind} model setting")
    if common["device"] != "auto" and "device" not in known:
        raise InputError(f"a {kind} model runs where it runs: the device {common['device']!r} cannot be chosen for it")
    origin = Origin(kind, dict(_named_files(value, common["base"])))
    model = _opened(kind, loader, value, settings, common, known)
    if not isinstance(common["varies"], bool):
        of_model = f" of model {common['name']}" if common["name"] else ""
        raise InputError(f"varies{of_model} is true or false, not {common['varies']!r}")
    object.__setattr__(model, "origin", origin)  # a model of a plugin may be a frozen dataclass
    if common["varies"]:
        object.__setattr__(model, "varies", True)
    return model


def _opened(
    kind: str, loader: Loader, value: Any, settings: Mapping[str, Any], common: Mapping[str, Any], known: set[str]
) -> Model:
    """The model that a loader makes: in this process, or in one of its own where that is asked for or its default."""

    def here() -> Model:
        if kind not in WRAPPERS:
            model_is_here()
        return loader(value, **{key: item for key, item in common.items() if key in known} | dict(settings))

    isolate = common["isolate"]
    declared = isolation_of(loader)
    wanted, unstated = None if isolate == FOREIGN else isolate, declared.limits(settings)
    limits = parse_limits(wanted, is_foreign(loader), common["name"] or "", unstated)
    if limits is None or kind in WRAPPERS or not isinstance(value, str | Path):
        return here()
    if is_foreign(loader) and declared.needs_trust and not (common["trust"] or common["unpickle"]):
        return here()  # no code is run without either: it is refused, or needs none
    own = {key: item for key, item in common.items() if key not in ("isolate", "varies")}
    try:
        return open_isolated(kind, loader, value, settings, own, limits, here)
    except CannotBeIsolated:
        if isolate != FOREIGN:
            raise
        return here()


def _named_files(value: Any, base: Path) -> Iterator[tuple[str, str]]:
    """The files that the value of a model's entry names, those of models inside it too, each with its SHA-256."""
    if is_address(value):
        return
    if isinstance(value, str | Path):
        is_file = stat.S_ISREG(find_mode(base / value, "model"))
        name = str(value) if is_file else str(value).rpartition(":")[0]
        if name and (base / name).is_file():
            yield shown(name), digest_file(base / name)
        for file in files_of_folder(base / value):
            yield f"{shown(value)}/{file.name}", digest_file(file)
    elif isinstance(value, Mapping):
        entries = [value[kind] for kind in value if kind in MODELS] or list(value.values())
        yield from (file for entry in entries for file in _named_files(entry, base))
    elif isinstance(value, list):
        yield from (file for member in value for file in _named_files(member, base))


PICKLED_SUFFIXES = (".pkl", ".pickle", ".joblib")


def kind_of(text: str, base: Path = Path()) -> str:
    """The kind of model that a path, `file.py:name` or a web address stands for: its key in a study file.

    >>> kind_of("v3.onnx"), kind_of("code.py:answer"), kind_of("http://127.0.0.1:8080/predict")
    ('onnx', 'callable', 'http')
    """
    suffix = Path(text).suffix.lower()
    if not text.strip():
        raise InputError("the path of the model is empty")
    refuse_code(text)
    if is_object_name(text):
        return "callable"
    text = local_entry(text)
    if is_web_model(text):
        address = parse_address(text)
        if Path(address.path).suffix.lower() in (".onnx", *TORCH_SUFFIXES, *SUFFIXES):
            raise InputError(
                f"{address} is a web address of a file, which is not fetched: download it and name it here"
            )
        return "http"
    if is_address(text):
        raise InputError(f"{text} is a web address: a model is a file here, or in a bucket such as s3://bucket/v3.onnx")
    find_mode(base / text, "model")
    if suffix == ".onnx":
        return "onnx"
    if suffix in TORCH_SUFFIXES:
        return "torch"
    if suffix == KERAS_SUFFIX:
        return "keras"
    if suffix in OLD_KERAS_SUFFIXES:
        raise InputError(
            f"{text} is in an old format of Keras: convert it with "
            f"keras.saving.load_model('{Path(text).name}').save('{Path(text).stem}{KERAS_SUFFIX}')"
        )
    if is_huggingface_folder(base / text):
        return "huggingface"
    if suffix in SUFFIXES or (base / text).is_dir():
        if not any(path.suffix.lower() in SUFFIXES for path in _files_in(base / text)):
            refuse_unreadable_config(base / text)
        return "predictions"
    if not (base / text).exists():
        of_hub = re.fullmatch(r"[\w-]+/[\w.-]+", text) is not None and not (base / text).parent.exists()
        hint = "; nothing is downloaded: a model of a hub is a folder that save_pretrained wrote" if of_hub else ""
        raise InputError(f"there is no model {base / text}{hint}")
    if suffix in PICKLED_SUFFIXES:
        raise InputError(f"{text} is a pickle, which runs any code in it: load it yourself and give the live model")
    raise InputError(
        f"cannot tell what kind of model {text} is: .onnx, {' '.join(TORCH_SUFFIXES)}, {KERAS_SUFFIX}, "
        f"{' '.join(SUFFIXES)}, a folder of a Hugging Face model or of stored predictions, file.py:function, or a "
        "server at http://HOST:PORT/PATH"
    )


def _files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else [folder]


def check_entry(entry: Any) -> None:
    """Refuse what may stand in no file, such as a secret, in the entry of a model and of models inside it.

    Nothing is opened.

    >>> check_entry({"http": "http://127.0.0.1/predict", "headers": {"Authorization": "env:MY_TOKEN"}})
    """
    if isinstance(entry, list):
        for member in entry:
            check_entry(member)
    if not isinstance(entry, Mapping):
        return
    for key, value in entry.items():
        checked = getattr(MODELS.get(key), "check_entry", None) if key in MODELS else None
        if checked is not None:
            checked(value, entry)
        check_entry(value)


def entry_fits_validation(entry: Any) -> bool:
    """Whether a model is fitted on the validation data of its study, as far as its entry and those inside it say.

    Nothing is opened, so that an export, which has no models, divides validation data as the run does.

    >>> entry_fits_validation({"ensemble": ["a.onnx", {"temperature": "b.onnx"}]})
    True
    >>> entry_fits_validation({"temperature": "b.onnx", "value": 1.5})
    False
    """
    if isinstance(entry, list):
        return any(entry_fits_validation(member) for member in entry)
    if not isinstance(entry, Mapping):
        return False
    fits = any(kind in VALIDATION_FITS and entry.get(VALIDATION_FITS[kind]) is None for kind in entry)
    return fits or any(entry_fits_validation(value) for value in entry.values())


def _kind_in(entry: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    kinds = [key for key in entry if key in MODELS]
    if not kinds:
        raise UnknownName("kind of model", str(next(iter(entry), "")), MODELS)
    if len(kinds) > 1:
        raise InputError(f"a model is of one kind, not {' and '.join(kinds)}")
    (kind,) = kinds
    if kind not in WRAPPERS and (not isinstance(entry[kind], str | Path) or not str(entry[kind]).strip()):
        raise InputError(f"{kind}: {entry[kind]!r} must be the path of a model")
    return kind, entry[kind], {**{key: value for key, value in entry.items() if key != kind}, **settings}
