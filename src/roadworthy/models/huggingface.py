"""Image classifiers of Hugging Face: a folder that `save_pretrained` wrote, a live model, or a pipeline."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, MissingExtra, first_line, foreign_code
from roadworthy.core.hashing import digest
from roadworthy.core.importing import require_unpickle
from roadworthy.core.validation import find_mode, parse_size
from roadworthy.models.base import passes_settings_to
from roadworthy.models.framing import Frame
from roadworthy.models.image_processor import preprocess_of_processor
from roadworthy.models.preprocess import Preprocess
from roadworthy.models.torch import TorchModel

CONFIG = "config.json"
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
NO_ANSWER = ("_name_or_path", "transformers_version", "id2label", "label2id", "architectures", "dtype", "torch_dtype")
"""Settings of a configuration on which no answer depends: where it lay, who wrote it, the names of the classes, and
the type of the weights, which these say themselves."""
NAMES_FORM = '{"0": "stop", "1": "yield", ...}'
SINGLE_LABEL = (None, "single_label_classification")


class HuggingFaceModel(TorchModel):
    """An `AutoModelForImageClassification` with its image processor: images in, logits out.

    Size, resize, crop and normalisation are the processor's, the class names those of `config.id2label`, in its order
    (names such as LABEL_0 name nothing and are left out). The processor's steps are carried out by `Preprocess` where
    this gives the same tensors, else by the processor itself. Weights, configuration and steps make the fingerprint.

    processor   the image processor, or a folder that holds one. Without it, it is looked for in the folder (or in the
                local cache under the name) that the model was loaded from
    range       in place of the processor's normalisation;  size (H, W) in place of its resize and crop
    classes     names in the model's order, in place of those of the configuration
    """

    def __init__(
        self,
        module: Any,
        *,
        processor: Any = None,
        range: str = "auto",
        colour: str = "rgb",
        size: str | int | Sequence[int] | None = None,
        classes: str | Path | Sequence[str] | None = None,
        device: str = "auto",
        threads: int = 1,
        version: str | None = None,
        name: str | None = None,
        base: Path = Path(),
    ) -> None:
        called = name or type(module).__name__
        config = module.config
        if getattr(config, "problem_type", None) not in SINGLE_LABEL:
            raise InputError(
                f"model {called} is for {config.problem_type}: only classifiers of one label per image can be tested"
            )
        steps, note = _steps_of(module, processor, range, size, base, called)
        changes = {key: value for key, value in (("range", range), ("colour", colour)) if value not in ("auto", "rgb")}
        wanted = parse_size(size)
        if (changes or wanted) and not steps.has_adjoint:
            raise InputError(
                f"model {called}: its image processor is applied as it is ({steps}), so that range, colour and size "
                "cannot be set: change them in the processor"
            )
        if wanted is not None and wanted != steps.size:
            method = steps.frame.method if steps.frame else "bilinear"
            changes |= {"size": wanted, "frame": Frame(wanted, method)}  # type: ignore[dict-item]
        names, names_note = _class_names(config) if classes is None else (classes, "")
        super().__init__(
            module,
            preprocess=replace(steps, **changes) if changes else steps,  # type: ignore[arg-type]
            outputs="logits",
            classes=names,
            device=device,
            threads=threads,
            version=version,
            name=called,
            base=base,
        )
        self.details = {**self.details, "kind": "huggingface"}
        self.notes = tuple(text for text in (note, names_note) if text)

    def fingerprint(self) -> str:
        """Hash of the weights, the structure, the configuration and the steps before; where it lay does not count."""
        if self.version is not None:
            return super().fingerprint()
        config: Any = self.module.config
        content = {key: value for key, value in config.to_dict().items() if key not in NO_ANSWER}
        return digest({"torch": super().fingerprint(), "config": json.loads(json.dumps(content, default=repr))})


@passes_settings_to(HuggingFaceModel)
def load_huggingface(
    path: str | Path, *, unpickle: bool = False, name: str | None = None, base: Path = Path(), **settings: Any
) -> HuggingFaceModel:
    """A folder that `save_pretrained` wrote: config.json, model.safetensors and preprocessor_config.json.

    Nothing is downloaded, and no code of the folder is run. Weights in `pytorch_model.bin` are a pickle and need
    `unpickle`. Weights that are missing in the folder, or of another shape, are an error. Other settings are those of
    `HuggingFaceModel`.
    """
    folder = base / path
    refuse_unreadable_config(folder)
    if not is_huggingface_folder(folder):
        raise InputError(f"{folder} is not a folder of a Hugging Face model: it holds no {CONFIG} with a model_type")
    named = _check_names(folder / CONFIG)
    transformers = import_transformers()
    weights = _weights_in(folder, unpickle)
    if settings.get("processor") is None and (settings.get("range", "auto") == "auto" or _has_processor(folder)):
        _require_processor(folder)
        settings["processor"] = folder.absolute()
    what = f"the Hugging Face model in {folder}"

    def explain(error: BaseException) -> InputError:
        if named and "ignore_mismatched_sizes" in str(error):
            return InputError(
                f"id2label in {folder / CONFIG} names {named} classes, and the weights are of another shape: name "
                f"every class that the model answers, {NAMES_FORM}"
            )
        return InputError(f"transformers cannot load {what}: {first_line(error)}")

    with _quiet(), foreign_code(explain):
        module, report = transformers.AutoModelForImageClassification.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=weights[0] in SAFE_WEIGHTS,
            output_loading_info=True,
        )
    _refuse_gaps(report, what)
    return HuggingFaceModel(module, name=name or folder.name, base=base, **settings)


@passes_settings_to(HuggingFaceModel, "processor")
def load_pipeline(pipeline: Any, **settings: Any) -> HuggingFaceModel:
    """The model and the image processor of a `transformers` pipeline for image classification."""
    if getattr(pipeline, "task", None) != "image-classification":
        raise InputError(f"a pipeline for {getattr(pipeline, 'task', None)} cannot be tested: image-classification can")
    return HuggingFaceModel(pipeline.model, processor=pipeline.image_processor, **settings)


def refuse_unreadable_config(folder: Path) -> None:
    """Refuse a folder with a config.json that is not that of a Hugging Face model: broken, empty or without a type."""
    if not find_mode(folder / CONFIG, "model") or is_huggingface_folder(folder):
        return
    again = "save the model again with save_pretrained"
    content = _json_in(folder / CONFIG)
    if isinstance(content, dict):
        raise InputError(f"{CONFIG} in {folder} names no model_type: {again}")
    raise InputError(f"{CONFIG} in {folder} cannot be read: {again}")


def is_huggingface_folder(folder: Path) -> bool:
    """Whether a folder holds a model as Hugging Face stores it: a config.json that names a model type.

    >>> is_huggingface_folder(Path("nowhere"))
    False
    """
    if not find_mode(folder / CONFIG, "model"):
        return False
    content = _json_in(folder / CONFIG)
    return isinstance(content, dict) and "model_type" in content


def _json_in(file: Path) -> Any:
    """What a JSON file holds; None where it cannot be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _check_names(file: Path) -> int:
    """How many classes the id2label of a config.json names; one of another form is an `InputError`."""
    names = _json_in(file).get("id2label")
    if names is None:
        return 0
    if not isinstance(names, dict) or not all(number.isdecimal() for number in names):
        raise InputError(f"id2label in {file} does not name the classes by their numbers: write it as {NAMES_FORM}")
    return len(names)


def files_of_folder(folder: Path) -> list[Path]:
    """The configurations and weights in the folder of a Hugging Face model; nothing where it is none.

    >>> files_of_folder(Path("nowhere"))
    []
    """
    if not is_huggingface_folder(folder):
        return []
    wanted, weights = (CONFIG, *PROCESSOR_FILES), (".safetensors", ".bin")
    return [path for path in sorted(folder.iterdir()) if path.name in wanted or path.suffix in weights]


def import_transformers(what: str = "Hugging Face models") -> Any:
    """The package transformers, for `what`; a clear error where it is not installed, or stopped by a torchvision."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise MissingExtra(what, "huggingface") from None
    if problem := torchvision_problem():
        raise InputError(f"{what} cannot be used: {problem}")
    return transformers


def torchvision_problem() -> str:
    """What is wrong with an installed torchvision, and what mends it; '' where it works or is absent.

    transformers imports it where it is there, and then none of its models can be imported beside one that was built
    for another torch. What it says of that names neither.
    """
    try:
        importlib.import_module("torchvision")
    except Exception as error:  # it fails in many ways
        if isinstance(error, ModuleNotFoundError) and error.name == "torchvision":
            return ""
        try:
            version = f" {metadata.version('torchvision')}"
        except metadata.PackageNotFoundError:
            version = ""
        return (
            f"torchvision{version} is installed, but cannot be imported ({first_line(error)}), and transformers does "
            "not work beside it: pip uninstall torchvision, or install the build of it that fits your torch"
        )
    return ""


def _steps_of(module: Any, processor: Any, range: str, size: Any, base: Path, called: str) -> tuple[Preprocess, str]:
    """The preprocessing before a model, and a sentence on where it was found or why it is not the usual one."""
    note = ""
    if processor is None:
        processor = _processor_at(str(getattr(module, "name_or_path", "") or ""))
        if processor is None and range == "auto":
            raise InputError(
                f"model {called} comes without its image processor, which says what tensors it takes: give "
                "`processor=`, or `range=` and `size=`"
            )
        note = f"its image processor was found at {module.name_or_path}" if processor is not None else ""
    if processor is None:
        side = parse_size(size) or _config_size(module.config)
        return Preprocess(range, size=side), "no image processor: images are resized as a whole (area down, linear up)"
    if isinstance(processor, str | Path):
        folder = base / processor
        processor = _processor_at(str(folder))
        if processor is None:
            raise InputError(f"there is no image processor at {folder}")
    steps = preprocess_of_processor(processor)
    if not steps.has_adjoint:
        note = f"{type(processor).__name__} has steps of its own and is applied as it is: no gradients by the image"
    return steps, note


def _processor_at(location: str) -> Any:
    """The image processor in a local folder, or in the local cache under its name; None where there is none.

    Nothing is downloaded.
    """
    folder = Path(location)
    processors = import_transformers().AutoImageProcessor
    local = {"local_files_only": True, "trust_remote_code": False}
    if find_mode(folder, "image processor") and location:
        if not any(find_mode(folder / file, "image processor") for file in PROCESSOR_FILES):
            return None
        what = f"transformers cannot load the image processor in {folder}"
        with _quiet(), foreign_code(lambda error: InputError(f"{what}: {first_line(error)}")):
            return processors.from_pretrained(folder, **local)
    if not location or folder.is_absolute():
        return None
    try:
        with _quiet():
            return processors.from_pretrained(location, **local)
    except (OSError, ValueError):  # neither a folder nor a name in the cache
        return None


def _config_size(config: Any) -> tuple[int, int] | None:
    """The size of images that a configuration states, None where it states none."""
    stated = getattr(config, "image_size", None)
    return parse_size(stated if isinstance(stated, int) else [*stated]) if stated else None


def _class_names(config: Any) -> tuple[tuple[str, ...] | None, str]:
    """The class names of a configuration in the order of its answers, and why there are none."""
    by_index = {int(index): str(name) for index, name in (config.id2label or {}).items()}
    if sorted(by_index) != list(range(len(by_index))):
        raise InputError("config.id2label does not name the classes 0, 1, ... one after the other: give `classes=`")
    names = tuple(by_index[index] for index in sorted(by_index))
    order = "its classes are taken to be in the order of the data"
    if all(name == f"LABEL_{index}" for index, name in by_index.items()):
        return None, f"config.id2label has no names: {order}"
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"config.id2label has the name {twice[0]!r} twice: give `classes=`, a name for each class")
    return names, ""


def _weights_in(folder: Path, unpickle: bool) -> list[str]:
    """The file of weights that is read, and the others that it names."""
    for files in (SAFE_WEIGHTS, PICKLED_WEIGHTS):
        present = [file for file in files if find_mode(folder / file, "model")]
        if present:
            if files is PICKLED_WEIGHTS:
                require_unpickle(f"{folder / present[0]} is a pickle (save_pretrained writes safetensors)", unpickle)
            return present
    raise InputError(f"{folder} holds no weights: {SAFE_WEIGHTS[0]} is missing")


def _has_processor(folder: Path) -> bool:
    return any(find_mode(folder / file, "model") for file in PROCESSOR_FILES)


def _require_processor(folder: Path) -> None:
    if not _has_processor(folder):
        raise InputError(
            f"{folder} holds no {PROCESSOR_FILES[0]}, which says what tensors the model takes: save its image "
            "processor there, or give `processor=`, or `range=` and `size=`"
        )


def _refuse_gaps(report: Any, what: str) -> None:
    """Refuse weights that the folder does not hold, which transformers draws at random, or that do not fit."""
    for problem, key in (("lacks", "missing_keys"), ("has other shapes for", "mismatched_keys")):
        names = sorted(str(name) for name in report.get(key) or ())
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise InputError(
                f"{what} {problem} the weights {', '.join(names[:3])}{more}: it is not a trained image classifier"
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and hints of transformers, which say nothing of the model."""
    transformers = import_transformers()
    verbosity = transformers.utils.logging
    before, bars = verbosity.get_verbosity(), verbosity.is_progress_bar_enabled()
    verbosity.set_verbosity(logging.ERROR)
    verbosity.disable_progress_bar()
    try:
        yield
    finally:
        verbosity.set_verbosity(before)
        if bars:
            verbosity.enable_progress_bar()
