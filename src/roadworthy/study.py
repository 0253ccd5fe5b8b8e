"""The study file: what is tested on what, by which protocols, against which criteria."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.record import PluginRecord
from roadworthy.core.remote import is_address
from roadworthy.core.types import UNDISTURBED
from roadworthy.core.validation import MOST_BATCH, MOST_SEED, parse_size, read_yaml, validated
from roadworthy.data import DATA, plain_options
from roadworthy.engine.plan import BATCH
from roadworthy.plugins import GivenPlugins, load_plugins, name_plugins
from roadworthy.protocols import PROTOCOLS, Protocol, default_protocol, find_protocol
from roadworthy.protocols.choices import check_names
from roadworthy.verdict.questions import question_in_settings


def _size(value: Any) -> Any:
    try:
        return parse_size(value)
    except InputError as error:
        raise ValueError(str(error)) from None


Size = Annotated[tuple[int, int] | None, BeforeValidator(_size)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Spec = str | dict[str, Any]


class DataSection(_Section):
    """The data sets of a source; only `test` is always needed.

    `split` cuts what is named under `test` by group into parts of these shares: of three train, validation and test,
    of two train and test.
    `mirror` adds a mirrored copy of every training image, and of every image that monitors are shown.
    `recorded` are further sets of the same classes by name, such as problem cases that vehicles recorded.
    """

    test: Spec
    train: Spec | None = None
    validation: Spec | None = None
    classes: str | list[str] | None = None
    split: Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=2, max_length=3)] | None = None
    mirror: bool = False
    recorded: dict[str, Spec] = {}

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A source without recorded sets is stored as it was before there were any."""
        content: dict[str, Any] = handler(self)
        return {name: value for name, value in content.items() if value or name != "recorded"}

    @field_validator("recorded")
    @classmethod
    def _set_names(cls, value: dict[str, Spec]) -> dict[str, Spec]:
        check_names("recorded set", value, (UNDISTURBED, "all", "builtin", "test", "train", "validation"))
        return value

    @model_validator(mode="after")
    def _one_way(self) -> DataSection:
        if self.split is not None and (self.train is not None or self.validation is not None):
            raise ValueError("split makes training and validation data out of test: name these, or split, not both")
        if self.split is not None and abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(f"the shares of split add up to 1, not {sum(self.split):g}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _former_places(cls, value: Any) -> Any:
        former = {key: hint for name in PROTOCOLS for key, hint in PROTOCOLS.get(name).former_data_keys.items()}
        if not isinstance(value, dict) or former.keys().isdisjoint(value):
            return value
        for key, hint in former.items():
            if value.get(key):
                raise ValueError(hint)
        return {key: content for key, content in value.items() if key not in former}


def _model_names(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if not name.strip() or any(ord(c) < 32 for c in name):
            raise ValueError(f"{name!r} is not a valid name for a model")
    return value


Models = Annotated[dict[str, Spec], AfterValidator(_model_names)]


class Overlap(_Section):
    """Classes that a source and a set of outliers share: left out of the set, or of the source where they meet."""

    outliers: list[str] = []
    source: list[str] = []


class SourceSection(_Section):
    """A source: a domain and what was made for it.

    size       of its images, and of the outliers it meets
    near       names of outlier sets that are near to it; the others are far
    exclude    names of outlier sets that it never meets;  overlap: shared classes by outlier set
    leave_out  names of monitors that its models cannot serve; `resnet/mc_dropout` is one on the model `resnet` alone
    """

    data: DataSection
    models: Annotated[Models, Field(min_length=1)]
    size: Size = None
    near: list[str] = []
    exclude: list[str] = []
    overlap: dict[str, Overlap] = {}
    leave_out: list[str] = []


class Resources(_Section):
    """What a worker of a cluster takes of its machine: CPUs and GPUs; never changes a result."""

    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1
    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0


def _monitors(value: Any) -> Any:
    """Monitors by label: `{energy: {}, knn8: {monitor: deep_knn, k: 8}}`; a list of names stands for their defaults."""
    if isinstance(value, list):
        if not all(isinstance(name, str) for name in value):
            raise ValueError(
                "a list of monitors holds names; write one with settings as knn8: {monitor: deep_knn, k: 8}"
            )
        if len({*value}) < len(value):
            raise ValueError("a monitor is named twice")
        value = dict.fromkeys(value)
    if not isinstance(value, dict):
        return value
    return {label: {} if chosen is None else chosen for label, chosen in value.items()}


def _plugins(value: Any) -> Any:
    """Plugins: a list of Python files and modules; each may come with the SHA-256 of its files."""
    if not isinstance(value, list):
        raise ValueError("plugins is a list of Python files or modules: write plugins: [my.py]")
    plugins = [{"plugin": plugin} if isinstance(plugin, str) else plugin for plugin in value]
    for plugin in plugins:
        if isinstance(plugin, PluginRecord):
            continue
        if not isinstance(plugin, dict) or not isinstance(plugin.get("plugin"), str) or not plugin["plugin"].strip():
            name = plugin.get("plugin") if isinstance(plugin, dict) else plugin
            raise ValueError(f"a plugin is a Python file (my.py) or a module (package.module), not {name!r}")
        files: Any = plugin.get("files", {})
        if not isinstance(files, dict):
            raise ValueError("the files of a plugin are given by name: write files: {my.py: 'its SHA-256'}")
        for name, sha in files.items():
            if not isinstance(sha, str) or not re.fullmatch("[0-9a-f]{64}", sha):
                raise ValueError(
                    f"{name} of plugin {plugin['plugin']} is pinned by {sha!r}, which is not a SHA-256: write its 64 "
                    "digits and letters a to f in quotes"
                )
    return plugins


Plugins = Annotated[list[PluginRecord], BeforeValidator(_plugins)]


class _Plugins(BaseModel):
    """What must be read of a study before the rest of it: plugins may bring the protocols that it names."""

    plugins: Plugins = []


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
    """A whole study: of one source (`data`, `models` and what else a source has, at the top) or of several `sources`.

    Everything but test data and one model has a default. `outliers` and `monitors` serve all sources. `plugins` are
    imported before the study is read. `questions` are those that criteria must answer, each with a pass, before the
    verdict is one; `criteria` is a file, or its content. With `until_decided` a case ends as soon as the criteria that
    speak of it are decided; `complete` shows it the images that are left, in the same order. `baseline` is
    the run of an earlier version: what is unchanged is taken over from it, and the models are compared with its models.
    `resources` are those of a worker where the study runs on a cluster.
    """

    name: Annotated[str, Field(min_length=1)] = "study"
    seed: Annotated[int, Field(ge=0, le=MOST_SEED)] = 0
    size: Size = None
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = BATCH
    data: DataSection | None = None
    models: Models = {}
    near: list[str] = []
    exclude: list[str] = []
    overlap: dict[str, Overlap] = {}
    leave_out: list[str] = []
    sources: dict[str, SourceSection] = {}
    plugins: Plugins = []
    outliers: dict[str, Spec] = {}
    monitors: Annotated[dict[str, dict[str, Any]], BeforeValidator(_monitors)] = {}
    protocols: ProtocolsSection
    questions: list[Annotated[str, AfterValidator(question_in_settings)]] = []
    criteria: str | list[Any] | dict[str, Any] | None = None
    baseline: Annotated[str, Field(min_length=1)] | None = None
    until_decided: bool | Literal["complete"] = False
    resources: Resources = Resources()

    @field_validator("questions")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        if len({*value}) < len(value):
            raise ValueError("a question is named twice")
        return value

    @model_validator(mode="after")
    def _one_or_several(self) -> Study:
        own = [key for key in SourceSection.model_fields if key != "size" and getattr(self, key)]
        if self.sources and own:
            raise ValueError(f"{own[0]} belongs to a source here: write it under sources: NAME: instead of at the top")
        if not self.sources and (self.data is None or not self.models):
            lacking = "data" if self.data is None else "models"
            raise ValueError(f"{lacking} is missing: a study names its data and models, or sources that do")
        for protocol, settings in self.protocols.chosen():
            named, where = settings.sources, f"protocols.{protocol.name}.sources"
            if named is not None and not 0 < len(named) == len({*named}):
                raise ValueError(f"{where} must name different sources, at least one; leave it out to run on all")
            for name in named or ():
                if name not in self.sources:
                    raise ValueError(f"{where}: {UnknownName('source', name, self.sources)}")
        return self

    def by_source(self) -> dict[str, SourceSection]:
        """The sources by name; one that has none is called ''."""
        if self.sources:
            return {
                name: source if source.size else source.model_copy(update={"size": self.size})
                for name, source in self.sources.items()
            }
        return {"": SourceSection.model_construct(**{key: getattr(self, key) for key in SourceSection.model_fields})}

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if value.strip() in ("", ".", "..") or re.search(r"[/\\\x00-\x1f]", value):
            raise ValueError(
                f"{value!r} is not a valid name for a study: it names a folder, so it has no slash or line break"
            )
        return value

    @field_validator("outliers", "sources")
    @classmethod
    def _plain_names(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        what = "a set of outliers" if info.field_name == "outliers" else "a source"
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", name) or name == "all":
                raise ValueError(
                    f"{name!r} is not a valid name for {what}: use letters, digits, _ . and -, and not all"
                )
        return value

    @field_validator("protocols")
    @classmethod
    def _some(cls, value: ProtocolsSection) -> ProtocolsSection:
        if not value.chosen():
            raise ValueError(f"no protocol is named; known: {', '.join(PROTOCOLS)}")
        return value

    def to_yaml(self) -> str:
        """The study as YAML, defaults included, so that it can be read without this version's defaults."""
        content = {key: value for key, value in self.model_dump(mode="json").items() if value not in (None, {}, [])}
        if not self.until_decided:
            del content["until_decided"]
        if self.resources == Resources():
            del content["resources"]
        content["protocols"] = {name: chosen for name, chosen in content["protocols"].items() if chosen is not None}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


MODEL_WORDS = {"format", "version"}
"""Settings of models that are words, also where a file has such a name."""


def whole_paths(spec: Any, base: Path) -> Any:
    """A model or data set as a study names it, with every path that exists under `base` written out whole.

    `code.py:name` keeps its name, `gtsrb:folder` its kind; of a pattern with braces the folder must exist. What is no
    path (a range, a built-in set, a split) stays as it is.
    """
    return _whole_paths(spec, base, plain_options())


def _whole_paths(spec: Any, base: Path, words: Collection[str]) -> Any:
    """See `whole_paths`; `words` are the options of data that are never a path."""
    if isinstance(spec, SourceSection | DataSection):
        of_data, of_source = ("test", "train", "validation", "classes", "recorded"), ("data", "models")
        named = of_data if isinstance(spec, DataSection) else of_source
        return spec.model_copy(update={key: _whole_paths(getattr(spec, key), base, words) for key in named})
    if isinstance(spec, dict):
        kept = {key for key in spec if key in words or key in MODEL_WORDS}
        return {key: value if key in kept else _whole_paths(value, base, words) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_whole_paths(item, base, words) for item in spec]
    if isinstance(spec, str) and spec and not is_address(spec) and not spec.startswith("env:"):
        path, colon, name = spec.partition(":")
        if colon and path in DATA and path not in words:
            return f"{path}:{_whole_paths(name, base, words)}"
        try:
            exists = (base / path).exists()
        except (OSError, ValueError):
            exists = False
        return f"{base / path}{colon}{name}" if exists or _is_pattern_below(path, base) else spec
    return spec


def _is_pattern_below(path: str, base: Path) -> bool:
    """Whether a path is a pattern with braces, such as `shards/test-{000..003}.tar`, in a folder that exists."""
    head, brace, _ = path.partition("{")
    if not brace or "{" in str(base) or not ("/" in head or path.endswith(".tar")):
        return False
    try:
        return (base / f"{head}*").parent.is_dir()
    except (OSError, ValueError):
        return False


def load_study(
    source: str | Path | dict[str, Any], *, plugins: GivenPlugins = (), trust: bool = False
) -> tuple[Study, Path]:
    """A study, its plugins and the given ones imported, and the folder that its relative paths start from."""
    if isinstance(source, dict):
        content, what, base = source, "study", Path()
    else:
        path = Path(source)
        content, what, base = read_yaml(path, "study"), f"study {path}", path.parent
        if not isinstance(content, dict):
            raise InputError(f"study {path} must be a mapping with the keys data and models, or sources")
    study = parse_study(content, what, base=base, plugins=plugins, trust=trust)
    return study.model_copy(update={"protocols": study.protocols.inlined(base)}), base


def parse_study(
    content: dict[str, Any], what: str, *, base: Path = Path(), plugins: GivenPlugins = (), trust: bool = False
) -> Study:
    """A study from parsed YAML, its plugins (paths starting from `base`) and the given ones imported.

    The first mistake is one sentence. Code of plugins that is not loaded yet runs only with `trust`.
    """
    named = validated(_Plugins, {key: content[key] for key in ("plugins",) if key in content}, what).plugins
    loaded = load_plugins(name_plugins(named, base, plugins), trust)
    if loaded:
        content = {**content, "plugins": [record.model_dump() for record in loaded]}
    return validated(_study_model(tuple((name, PROTOCOLS.get(name)) for name in PROTOCOLS)), content, what)


def _settings_model(protocol: type[Protocol]) -> Any:
    """The settings of a protocol, and the sources that it runs on: all, unless some are named."""
    return create_model(protocol.settings.__name__, __base__=protocol.settings, sources=(list[str] | None, None))


@cache
def _study_model(protocols: tuple[tuple[str, type[Protocol]], ...]) -> type[Study]:
    """The form of a study with these protocols; the default one is run where a study names none."""
    fields: dict[str, Any] = {name: (_settings_model(protocol) | None, None) for name, protocol in protocols}
    section = create_model("ProtocolsSection", __base__=ProtocolsSection, **fields)
    return create_model("Study", __base__=Study, protocols=(section, section(**{default_protocol().name: {}})))
