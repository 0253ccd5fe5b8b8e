"""Criteria templates: explained line by line, with hazards, and without thresholds, which are the user's decision."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from roadworthy.core.errors import InputError, UnknownName

FOLDER = Path(__file__).with_name("templates")


def template_names() -> list[str]:
    """The names of all templates.

    >>> template_names()
    ['road-users', 'traffic-signs']
    """
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def template_text(name: str) -> str:
    """A template as the file that a user fills in."""
    if name not in template_names():
        raise UnknownName("criteria template", name, template_names())
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def template_summary(name: str) -> str:
    """What a template is for: its first line."""
    return template_text(name).partition("\n")[0].removeprefix("# ")


def filled_template(name: str, thresholds: Mapping[str, float], **head: Any) -> dict[str, Any]:
    """The content of a template with thresholds by the id of their criterion, and with the fields of its head.

    >>> filled_template("traffic-signs", {}, example=True)
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: no threshold is given for criterion TS-1 of traffic-signs
    """
    content = yaml.safe_load(template_text(name))
    for criterion in content["criteria"]:
        if criterion["id"] not in thresholds:
            raise InputError(f"no threshold is given for criterion {criterion['id']} of {name}")
        limit = "at_least" if "at_least" in criterion else "at_most"
        criterion[limit] = thresholds[criterion["id"]]
    return {"criteria": content["criteria"], **head}
