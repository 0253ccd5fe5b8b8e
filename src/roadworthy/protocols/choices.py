"""Choices: what a study file lists by name, each with settings of its own where the usual ones do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class Choice(BaseModel):
    """One entry of a list; a bare name stands for the entry that says nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str


def check_names(what: str, names: Iterable[str], taken: Iterable[str]) -> None:
    """Refuse names that cannot stand in a table, or that mean something else there (`taken`): a `ValueError`.

    >>> check_names("benchmark", ["fog", "btsc-2"], ["all"])
    """
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name) or name in taken:
            raise ValueError(
                f"{name!r} is not a valid name for a {what}: use letters, digits, _ . and -, and not "
                f"{' or '.join(taken)}"
            )


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value


NAMED = BeforeValidator(_named)
"""Of a list of choices: bare names may stand in it."""


def distinct(what: str = "one") -> AfterValidator:
    """Of a list of names, numbers or choices: `what` is named twice is an error."""

    def check(value: list[Any]) -> list[Any]:
        names = [item.name if isinstance(item, Choice) else item for item in value]
        if len(set(names)) < len(names):
            raise ValueError(f"{what} is named twice")
        return value

    return AfterValidator(check)


Levels = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
"""Levels of severity, from 1 on."""
