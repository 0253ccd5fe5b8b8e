"""Torch models from files: TorchScript, an exported program, a pickled module, or weights with their architecture."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.importing import require_trust, require_unpickle
from roadworthy.models.base import passes_settings_to
from roadworthy.models.code import load_object
from roadworthy.models.torch import TorchModel
from roadworthy.models.torch_answers import ANY_SHAPE
from roadworthy.models.torch_tensors import import_torch

WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "module")
PREFIXES = ("module.", "_orig_mod.")
PICKLE_START = b"\x80"


@passes_settings_to(TorchModel, "dims", "preprocess")
def load_torch(
    path: str | Path,
    *,
    arch: str | None = None,
    trust: bool = False,
    unpickle: bool = False,
    name: str | None = None,
    base: Path = Path(),
    **settings: Any,
) -> TorchModel:
    """A torch model from a file: TorchScript, an exported program (.pt2), a pickled module, or weights.

    Weights (a state dict) need `arch`, `file.py:factory` or `package.module:factory`, a function without arguments that
    returns the module; they are read without running code, the architecture is code and needs `trust`. TorchScript
    is a program too and needs `trust`. torch reads pickled modules and exported programs with pickle, which runs
    whatever code they hold: these, and weights among other objects, need `unpickle`. Other settings: `TorchModel`'s.
    """
    torch = import_torch()
    file = base / path
    dims: tuple[int | None, ...] = ANY_SHAPE
    match _kind(file):
        case "script":
            _refuse_arch(f"{file} is TorchScript", arch)
            require_trust(f"{file} holds code (TorchScript)", trust)
            module = _loaded(file, lambda: torch.jit.load(str(file), map_location="cpu"))
        case "exported":
            _refuse_arch(f"{file} is an exported program", arch)
            require_unpickle(f"{file} is an exported program, which torch reads with pickle", unpickle)
            program = _loaded(file, lambda: torch.export.load(str(file)))
            module, dims = program.module(), _program_shape(program)
        case _:
            module = _from_pickle(torch, file, trust, unpickle, arch, base)
    return TorchModel(module, name=name or file.stem, base=base, dims=dims, **settings)


def _kind(file: Path) -> str:
    """`script`, `exported` or `pickle`, by the names inside the archive."""
    if not file.is_file():
        raise InputError(f"there is no torch file {file}")
    if not file.stat().st_size:
        raise InputError(f"{file} is empty")
    try:
        if not zipfile.is_zipfile(file):
            with file.open("rb") as content:
                if content.read(1) != PICKLE_START:
                    raise InputError(f"{file} is not a torch file, or it is corrupt")
            return "pickle"
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise InputError(f"{file} is not a torch file, or it is corrupt") from None
    if any(name.endswith(("/archive_format", "serialized_exported_program.json")) for name in names):
        return "exported"
    return "script" if any(name.endswith("/constants.pkl") for name in names) else "pickle"


def _loaded(file: Path, load: Callable[[], Any]) -> Any:
    with foreign_code(lambda error: InputError(f"torch cannot load {file}: {first_line(error)}")):
        return load()


def _refuse_arch(what: str, arch: str | None) -> None:
    """Refuse an architecture beside a file that has its own: one of the two would be ignored."""
    if arch is not None:
        raise InputError(
            f"{what}, which comes with its architecture: leave out `arch=`, or give weights (a state dict)"
        )


def _from_pickle(torch: Any, file: Path, trust: bool, unpickle: bool, arch: str | None, base: Path) -> Any:
    """The module in a file, or its weights in the module that `arch` makes."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        require_unpickle(f"{file} holds more than tensors, such as a pickled module", unpickle)
        content = _loaded(file, lambda: torch.load(file, map_location="cpu", weights_only=False))
    except Exception:
        raise InputError(f"{file} is not a torch file, or it is corrupt") from None
    content = _unwrap(torch, content)
    if isinstance(content, torch.nn.Module):
        _refuse_arch(f"{file} holds a whole module", arch)
        return content
    if content is None:
        raise InputError(f"{file} holds neither a module nor weights (names with tensors)")
    if arch is None:
        raise InputError(
            f"{file} holds weights without their architecture: give it with `arch='file.py:factory'`, "
            "a function without arguments that returns the module"
        )
    factory = load_object(arch, base, trust).value
    with foreign_code(lambda error: InputError(f"{arch} raised {type(error).__name__}: {first_line(error)}")):
        module = factory if isinstance(factory, torch.nn.Module) else factory()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{arch} returned {type(module).__name__}, not a torch module")
    return _fill(module, content, file, arch)


def _unwrap(torch: Any, content: Any) -> Any:
    """The module or the state dict inside a checkpoint, without the prefixes of DataParallel and compile; or None."""
    for _ in range(4):
        if isinstance(content, torch.nn.Module):
            return content
        if not isinstance(content, Mapping):
            return None
        inner = next(
            (content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping | torch.nn.Module)), None
        )
        if inner is None:
            break
        content = inner
    weights = {str(key): value for key, value in content.items() if isinstance(value, torch.Tensor)}
    if not weights or len(weights) < len(content):
        return None
    for prefix in PREFIXES:
        if all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def _fill(module: Any, weights: dict[str, Any], file: Path, arch: str) -> Any:
    """Put weights into a module; a name that is missing or left over, or another shape, is an error."""
    state = module.state_dict()
    missing = [key for key in state if key not in weights and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in weights if key not in state]
    shapes = [key for key in state if key in weights and state[key].shape != weights[key].shape]
    for problem, keys in (("lacks", missing), ("has unknown", unexpected), ("has other shapes for", shapes)):
        if keys:
            more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
            raise InputError(f"{file} does not fit {arch}: it {problem} {', '.join(keys[:3])}{more}")
    module.load_state_dict(weights, strict=False)
    return module


def _program_shape(program: Any) -> tuple[int | None, ...]:
    """The input shape of an exported program, None where it is dynamic."""
    names = program.graph_signature.user_inputs
    inputs = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    if len(inputs) != 1:
        raise InputError(f"the exported program must have one input for the image; its inputs are: {', '.join(names)}")
    return tuple(side if isinstance(side, int) else None for side in inputs[0].meta["val"].shape)
