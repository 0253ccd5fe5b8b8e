"""Criteria templates: explained line by line, with hazards, and without thresholds, which are the user's decision.

One of them, the example, is filled in: it shows every kind of criterion, and says that nobody decided on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from roadworthy.core.errors import InputError, UnknownName

FOLDER = Path(__file__).with_name("templates")
AGAINST_BASELINE = "  #| "
"""What starts the lines of a criterion that only runs with a baseline can be judged by."""


def template_names() -> list[str]:
    """The names of all templates.

    >>> template_names()
    ['example', 'road-users', 'traffic-signs']
    """
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def template_text(name: str, *, baseline: bool = False) -> str:
    """A template as the file that a user fills in; for runs with a `baseline` with the criterion against it."""
    if name not in template_names():
        raise UnknownName("criteria template", name, template_names())
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    return text.replace(AGAINST_BASELINE, "  ") if baseline else text


def is_example(name: str) -> bool:
    """Whether a template is filled in, and marked as an example that nobody decided on.

    >>> is_example("example"), is_example("road-users")
    (True, False)
    """
    return bool(yaml.safe_load(template_text(name)).get("example"))


def template_summary(name: str) -> str:
    """What a template is for: its first line."""
    return template_text(name).partition("\n")[0].removeprefix("# ")


def filled_template(
    name: str, thresholds: Mapping[str, float], *, baseline: bool = False, **head: Any
) -> dict[str, Any]:
    """The content of a template with thresholds by the id of their criterion, and with the fields of its head.

    For runs with a `baseline` the criterion against it is there too.

    >>> filled_template("traffic-signs", {}, example=True)
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: no threshold is given for criterion TS-1 of traffic-signs
    """
    content = yaml.safe_load(template_text(name, baseline=baseline))
    for criterion in content["criteria"]:
        if criterion["id"] not in thresholds:
            raise InputError(f"no threshold is given for criterion {criterion['id']} of {name}")
        limit = "at_least" if "at_least" in criterion else "at_most"
        criterion[limit] = thresholds[criterion["id"]]
    return {"criteria": content["criteria"], **head}
