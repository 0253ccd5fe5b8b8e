"""Parameters of shifts and outliers: fields that say what they may be, at levels 1 to 5 and between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

from roadworthy.core.registry import Registry
from roadworthy.core.validation import check_number, check_whole

Component = TypeVar("Component")


def parameter(
    *levels: Any,
    within: tuple[float, float] | None = None,
    whole: bool = False,
    default: Any = MISSING,
    neutral: Any = None,
    inverse: bool = False,
    quantity: str = "",
    unit: str = "",
) -> Any:
    """A field: its values at the levels from 1 on, the least and the largest (whole) number it may be, its default.

    neutral         what it is at severity 0: a shift whose every declared neutral value is taken changes nothing
    inverse         whether it is 1 / x that lies on a straight line between levels, not x itself
    quantity, unit  what it measures, where that has a unit outside this program: a visual range in m
    """
    metadata = {"levels": levels, "within": within, "whole": whole, "neutral": neutral, "inverse": inverse}
    return field(default=default, metadata={**metadata, "quantity": quantity, "unit": unit})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(parameter,))
def registered(registry: Registry[Any], name: str) -> Callable[[type[Component]], type[Component]]:
    """Decorator that registers a class as a frozen keyword-only dataclass of that name.

    From its fields that are a `parameter` come `RANGES`, the least and the largest value of each, and `LEVELS`.
    """

    def add(cls: type[Component]) -> type[Component]:
        component: Any = dataclass(frozen=True, kw_only=True)(cls)
        parameters = {entry.name: entry.metadata for entry in fields(component) if entry.metadata}
        levels = {entry: metadata["levels"] for entry, metadata in parameters.items() if metadata["levels"]}
        component.name = name
        component.RANGES = {entry: metadata["within"] for entry, metadata in parameters.items() if metadata["within"]}
        if levels:
            component.LEVELS = tuple(dict(zip(levels, row, strict=True)) for row in zip(*levels.values(), strict=True))
        return registry.register(name)(component)  # type: ignore[no-any-return]

    return add


def check_ranges(kind: str, component: Any) -> None:
    """Refuse parameters of a component of that kind, a shift or outliers, that are not a number within their range."""
    for entry in fields(component):
        if entry.metadata.get("within"):
            check = check_whole if entry.metadata["whole"] else check_number
            check(f"{kind} {component.name}: {entry.name}", getattr(component, entry.name), *entry.metadata["within"])
