"""The study of an evaluation: candidates, the data given besides the test data, and the settings of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from roadworthy.core.errors import InputError
from roadworthy.core.remote import absolute_location, is_address, is_web, parse_location
from roadworthy.core.roles import Dataset, Model
from roadworthy.data import OpenedDataset, open_dataset
from roadworthy.data.live import live_data
from roadworthy.models import MODELS, WRAPPERS, check_entry, kind_of
from roadworthy.models.live import live_kind
from roadworthy.protocols import Suite, find_suite
from roadworthy.study import Study, parse_study

OUTLIERS, TRAIN, VALIDATION, MONITOR = "outliers", "train", "validation", "monitor"
"""What an evaluation may be given besides models and test data."""
LONGEST_NAME = 60
"""How many letters of the names of several candidates name their study, and with it the folder of the run."""


def candidates_of(model: Any, name: str | None = None) -> dict[str, Any]:
    """The models to evaluate by name: a mapping of names to models as it is, a single model under its own name.

    A mapping with a kind of model as key, and what a study names as its value, is the entry of one model:
    `{"onnx": "v3.onnx"}`.

    >>> candidates_of("nets/v3.onnx"), candidates_of({"old": "v2.onnx", "new": "v3.onnx"})
    ({'v3': 'nets/v3.onnx'}, {'old': 'v2.onnx', 'new': 'v3.onnx'})
    """
    if isinstance(model, Mapping) and not any(_names_kind(*entry) for entry in model.items()):
        if not model:
            raise InputError("there is no model to evaluate: the mapping of models is empty")
        if name is not None and len(model) > 1:
            raise InputError("`name=` names a single model: candidates have their names in the mapping")
        return dict(zip([name] if name is not None else model, model.values(), strict=True))
    return {name or name_of(model): model}


def _names_kind(key: str, value: Any) -> bool:
    """Whether a key with its value is an entry's kind: the value is what a study can name, not a live model."""
    return (key in MODELS or key in WRAPPERS) and isinstance(value, str | Path | Mapping | list)


def name_of(model: Any) -> str:
    """What a model is called that was given without a name."""
    if isinstance(model, str | Path):
        if is_address(model):
            address = urlsplit(str(parse_location(model)))
            return Path(address.path).stem or address.hostname or "model"
        return Path(str(model).partition(":")[0]).stem or "model"
    live = live_kind(model)
    own = getattr(model, "name", None) or getattr(model, "__name__", None) or (live and live.own_name(model))
    return str(own or type(model).__name__)


def named_paths(given: Sequence[str], what: str) -> dict[str, str]:
    """Paths by name from a command line: `NAME=PATH`, or a path alone, which is called after its file.

    >>> named_paths(["v2=old/net.onnx", "nets/v3.onnx"], "model")
    {'v2': 'old/net.onnx', 'v3': 'nets/v3.onnx'}
    """
    by_name: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name or not path or "/" in name or Path(text).exists():
            name, path = name_of(text), text
        if name in by_name:
            raise InputError(f"two {what}s are called {name}: name them, as in {name}-2={path}")
        by_name[name] = path
    return by_name


def model_spec(model: Any, settings: Mapping[str, Any]) -> Any:
    """A model as a study names it; one that lives in memory as `<its type>`."""
    if isinstance(model, dict | str | Path):
        entry = {**(model if isinstance(model, dict) else {kind_of(str(model)): str(model)}), **settings}
        check_entry(entry)
        return entry
    return f"<{type(model).__name__}>"


def with_whole_path(model: Any, base: Path) -> Any:
    """A model that is given as a path, whole, whether or not there is a file yet; any other as it is."""
    return str(absolute_location(model, base)) if isinstance(model, str | Path) and not is_web(model) else model


def data_spec(data: Any) -> Any:
    """A data set as a study names it; one that lives in memory as `<its type>`."""
    if not _can_be_named(data):
        return f"<{type(data).__name__}>"
    return str(data) if isinstance(data, str | Path) else data


def in_memory(data: Any) -> Any:
    """A data set that lives in memory, which a study cannot name; None for what it can."""
    return None if _can_be_named(data) else data


def _can_be_named(data: Any) -> bool:
    """Whether a study can name a data set: by a path, or by a mapping that holds no object of another library."""
    if isinstance(data, dict):
        return all(_is_plain(value) for value in data.values())
    return isinstance(data, str | Path)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(part) for part in value.values())
    return value is None or isinstance(value, str | Path | int | float)


def opened_live(data: Any, **options: Any) -> Any:
    """A live object of a kind whose data says how its models are asked, opened before them; all else as it is."""
    live = None if isinstance(data, Dataset) else live_data(data)
    return open_dataset(data, **options) if live and live.informs_models else data


def settings_for(model: Any, data: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model: those given, and what follows from data that belongs with models of its kind."""
    live = live_kind(model)
    own = data.model_settings.get(live.kind, {}) if live and isinstance(data, OpenedDataset) else {}
    return {**own, **given}


@dataclass(frozen=True)
class GivenData:
    """What is given besides models and test data: outliers by name, training and validation data, a monitor by name."""

    outliers: Mapping[str, Any] = field(default_factory=dict)
    train: Any = None
    validation: Any = None
    monitor: str | None = None

    @property
    def by_role(self) -> dict[str, Any]:
        """What is given, by what it is."""
        named = {OUTLIERS: self.outliers or None, TRAIN: self.train, VALIDATION: self.validation}
        named |= {MONITOR: self.monitor}
        return {role: data for role, data in named.items() if data is not None}

    def check_used(self, suite: Suite, models: Iterable[Model] = ()) -> None:
        """Refuse what neither the suite nor a model makes use of: nothing that is given is ignored."""
        used = suite.uses.union(*(model.learns_from for model in models))
        for role in sorted(self.by_role.keys() - used):
            raise InputError(
                f"suite {suite.name} makes no use of `{role}=`, and no model learns from it: leave it out, or choose "
                "another suite"
            )


def outlier_sets(outliers: Any) -> dict[str, Any]:
    """Sets of outliers by name: a mapping as it is, a path under its own name, several paths each under theirs."""
    if outliers is None:
        return {}
    if isinstance(outliers, Mapping):
        return dict(outliers)
    if isinstance(outliers, str | Path):
        return {name_of(outliers): outliers}
    if isinstance(outliers, list) and all(isinstance(path, str | Path) for path in outliers):
        return dict(named_paths([str(path) for path in outliers], "set of outlier"))
    return {OUTLIERS: outliers}


def evaluation_study(
    candidates: Mapping[str, Any],
    data: Any,
    suite: str,
    given: GivenData,
    *,
    metrics: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    classes: Any = None,
    **top: Any,
) -> Study:
    """The study that an evaluation runs; `settings` are those of all models, `top` further keys of the study."""
    chosen = find_suite(suite)
    own = chosen.settings_for(given.by_role)
    learned = {
        role: data_spec(value)
        for role, value in ((TRAIN, given.train), (VALIDATION, given.validation))
        if value is not None
    }
    test = {"test": data_spec(data), "classes": str(classes) if isinstance(classes, Path) else classes}
    return parse_study(
        {
            "name": next(iter(candidates)) if len(candidates) == 1 else "-".join(candidates)[:LONGEST_NAME],
            "data": {**test, **learned},
            "models": {name: model_spec(model, settings or {}) for name, model in candidates.items()},
            "outliers": {name: data_spec(value) for name, value in given.outliers.items()},
            "monitors": [given.monitor] if given.monitor is not None else {},
            "protocols": _with_metrics(own, metrics, suite),
            "questions": list(chosen.questions),
            **top,
        },
        "evaluate",
    )


def _with_metrics(settings: Mapping[str, BaseModel], metrics: Sequence[str], suite: str) -> dict[str, dict[str, Any]]:
    """The content of settings with further metrics, where a protocol has a field for them; none is an error."""
    content = {name: own.model_dump() for name, own in settings.items()}
    measuring = [name for name, own in settings.items() if "metrics" in type(own).model_fields]
    if metrics and not measuring:
        raise InputError(
            f"suite {suite} takes no further metrics (`metrics=`): its protocol {' and '.join(content)} has none"
        )
    for name in measuring if metrics else ():
        content[name]["metrics"] = [*dict.fromkeys([*content[name].get("metrics", ()), *metrics])]
    return content
