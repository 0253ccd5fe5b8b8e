"""Torch where it is installed, and what a torch module answers, as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roadworthy.core.errors import MissingExtra, ModelError


def import_torch() -> Any:
    """The torch module, imported when first needed; a clear error where it is not installed.

    A thread takes over torch's number of threads when it first asks for it. Before, some kernels use all cores there,
    and another number of threads gives other bits; so it is asked for here.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch models", "torch") from None
    torch.get_num_threads()
    return torch


def class_scores(output: Any) -> Any:
    """The class scores in what a module answers."""
    return next((value for value in answered_tensors(output) if value.ndim >= 2), answered_tensors(output)[0])


def answered_tensors(output: Any) -> list[Any]:
    """The tensors of an answer; those named `logits` alone where there are any."""
    torch = import_torch()
    if isinstance(output, torch.Tensor):
        return [output]
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, torch.Tensor):
        return [named]
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not tensors:
        raise ModelError(f"the module answered {type(output).__name__}, which holds no tensor of class scores")
    return tensors


def named_tensors(output: Any) -> dict[str, Any]:
    """The tensors in what a module answers, by name: keys, attributes, numbers in a tuple; one tensor is `0`."""
    torch = import_torch()
    if isinstance(output, torch.Tensor):
        return {"0": output}
    if hasattr(output, "_asdict"):
        output = output._asdict()
    if isinstance(output, list | tuple):
        output = dict(enumerate(output))
    named = output if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    tensors = {str(name): value for name, value in named.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise ModelError(f"the module answered {type(output).__name__}, which holds no tensor")
    return tensors


def dtype_of(module: Any) -> Any:
    """The type of a module's weights: that of the first floating ones, single precision where there are none."""
    return next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), import_torch().float32)
