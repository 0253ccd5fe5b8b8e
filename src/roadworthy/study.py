"""The study file: what is tested on what, by which protocols, against which criteria."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from roadworthy.core.errors import InputError
from roadworthy.core.validation import MOST_BATCH, explain, parse_size, read_yaml
from roadworthy.engine.plan import BATCH
from roadworthy.protocols import PROTOCOLS, Protocol, default_protocol, find_protocol


def _size(value: Any) -> Any:
    try:
        return parse_size(value)
    except InputError as error:
        raise ValueError(str(error)) from None


Size = Annotated[tuple[int, int] | None, BeforeValidator(_size)]


OD_TEST = "od_test"
"""The protocol whose studies and runs are of a kind of their own: see `roadworthy.od_testing`."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSection(_Section):
    """The data sets of a study; only `test` is always needed."""

    test: str | dict[str, Any]
    train: str | dict[str, Any] | None = None
    validation: str | dict[str, Any] | None = None
    classes: str | list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _former_places(cls, value: Any) -> Any:
        if isinstance(value, dict) and "ood" in value:
            if value["ood"]:
                raise ValueError(
                    "sets from outside stand at the top of a study now: write outliers: instead of data: ood:"
                )
            value = {key: content for key, content in value.items() if key != "ood"}
        return value


class ProtocolsSection(_Section):
    """The protocols to run, each with its settings: a field per registered protocol, None where it is not named."""

    @field_validator("*", mode="before")
    @classmethod
    def _defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    def inlined(self, base: Path) -> ProtocolsSection:
        """The same with the content of the files that settings name, paths starting from `base`."""
        return self.model_copy(update={p.name: p.inlined(settings, base) for p, settings in self.chosen()})

    def chosen(self) -> list[tuple[Protocol, Any]]:
        """The protocols that are named, with their settings."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        return [(find_protocol(name), settings) for name, settings in named.items() if settings is not None]


class Study(_Section):
    """A whole study. Everything but `data.test` and one model has a default."""

    name: Annotated[str, Field(min_length=1)] = "study"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    size: Size = None
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = BATCH
    data: DataSection
    models: Annotated[dict[str, str | dict[str, Any]], Field(min_length=1)]
    outliers: dict[str, str | dict[str, Any]] = {}
    protocols: ProtocolsSection
    criteria: str | list[Any] | None = None

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if value.strip() in ("", ".", "..") or re.search(r"[/\\\x00-\x1f]", value):
            raise ValueError(f"{value!r} is no name for a study: it names a folder, so it has no slash or line break")
        return value

    @field_validator("outliers")
    @classmethod
    def _plain_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name):
                raise ValueError(f"{name!r} is not a valid name for a set of outliers: use letters, digits, _ . and -")
        return value

    @field_validator("models")
    @classmethod
    def _names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not name.strip() or any(ord(c) < 32 for c in name):
                raise ValueError(f"{name!r} is no name for a model")
        return value

    @field_validator("protocols")
    @classmethod
    def _some(cls, value: ProtocolsSection) -> ProtocolsSection:
        if not value.chosen():
            raise ValueError(f"no protocol is named; known: {', '.join(PROTOCOLS)}")
        return value

    def to_yaml(self) -> str:
        """The study as YAML, defaults included, so that it can be read without this version's defaults."""
        content = self.model_dump(mode="json")
        content["protocols"] = {name: chosen for name, chosen in content["protocols"].items() if chosen is not None}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def whole_paths(spec: Any, base: Path) -> Any:
    """A model or data set as a study names it, with every path that exists under `base` written out whole.

    `code.py:name` keeps its name; what is no path (a range, a built-in set) stays as it is.
    """
    if isinstance(spec, dict):
        return {key: whole_paths(value, base) if key != "builtin" else value for key, value in spec.items()}
    if isinstance(spec, list):
        return [whole_paths(item, base) for item in spec]
    if isinstance(spec, str) and spec:
        path, colon, name = spec.partition(":")
        try:
            found = (base / path).exists()
        except (OSError, ValueError):
            found = False
        return f"{base / path}{colon}{name}" if found else spec
    return spec


def load_study(source: str | Path | dict[str, Any]) -> tuple[Study, Path]:
    """A study and the folder that its relative paths start from."""
    if isinstance(source, dict):
        return _inlined(parse_study(source, "study"), Path()), Path()
    path = Path(source)
    content = read_yaml(path, "study")
    if not isinstance(content, dict):
        raise InputError(f"study {path} must be a mapping with the keys data and models")
    return _inlined(parse_study(content, f"study {path}"), path.parent), path.parent


def _inlined(study: Study, base: Path) -> Study:
    return study.model_copy(update={"protocols": study.protocols.inlined(base)})


def parse_study(content: dict[str, Any], what: str) -> Study:
    """A study from parsed YAML; the first mistake is one sentence."""
    model = _study_model(tuple(PROTOCOLS))
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{what}: {explain(error, model)}") from None


@cache
def _study_model(protocols: tuple[str, ...]) -> type[Study]:
    """The form of a study with these protocols; the default one is run where a study names none."""
    fields: dict[str, Any] = {name: (PROTOCOLS.get(name).settings | None, None) for name in protocols}
    section = create_model("ProtocolsSection", __base__=ProtocolsSection, **fields)
    default = default_protocol()
    usual = section(**{default.name: default.settings()})
    return create_model("Study", __base__=Study, protocols=(section, usual))


def is_od_study(source: str | Path | Mapping[str, Any]) -> bool:
    """True for a study file (or its content) of the protocol od_test, which has a form of its own."""
    content = source if isinstance(source, Mapping) else read_yaml(Path(source), "study")
    protocols = content.get("protocols") if isinstance(content, Mapping) else None
    return isinstance(protocols, Mapping) and OD_TEST in protocols
