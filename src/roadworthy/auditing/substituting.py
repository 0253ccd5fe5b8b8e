"""Data and models on the machine of an assessor, in place of those that the study of a bundle names by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest_file
from roadworthy.core.record import ModelRecord, RunRecord
from roadworthy.core.remote import is_address
from roadworthy.study import ProtocolsSection, SourceSection, Study

OUTLIERS, RECORDED = "outliers", "recorded"
ROLES = ("test", "train", "validation")


@dataclass(frozen=True)
class Substitutes:
    """What an assessor has: data by role (`test`, `train`, `outliers/tiny`, `gtsrb/test`), models by name."""

    data: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Sequence[str], models: Sequence[str]) -> Substitutes:
        """From `PATH` (the test data) or `ROLE=PATH`, and `NAME=FILE`; what does not exist is an `InputError`.

        >>> Substitutes.parse(["train=."], ["v3=."]).models
        {'v3': '.'}
        """
        by_role = dict(_named(text, "test") for text in data)
        by_model = dict(_named(text, "") for text in models)
        if "" in by_model:
            raise InputError(f"`model='{by_model['']}'` does not say which model it is: write NAME=FILE")
        if len(by_role) < len(data) or len(by_model) < len(models):
            raise InputError("a model, or a role of data, is given twice: name each once")
        for path in (*by_role.values(), *by_model.values()):
            if not is_address(path) and not Path(path).exists():
                raise InputError(f"{path} does not exist: name data with `data=` and models with `model=`")
        return cls(by_role, by_model)


def _named(text: str, default: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        name, path = default, text
    file, colon, function = path.rpartition(":")
    named_code = colon and function.isidentifier() and not Path(path).exists() and Path(file).is_file()
    return name, file if named_code else path


@dataclass
class LocalStudy:
    """The study of a bundle as it can be run here: without what is not on this machine.

    absent        what cannot be rerun, by what it is, with the reason
    differences   files that were given, or are here, and are not those of the run
    """

    study: Study
    absent: dict[str, str]
    differences: list[str]


def local_study(study: Study, record: RunRecord, given: Substitutes) -> LocalStudy:
    """The study with what the assessor has in its place, and without the models and sources that are not here.

    Addresses are not opened unless the assessor gives them: a bundle must not choose whom this machine talks to. The
    size of the images is written out, so that it does not depend on which models are left.
    """
    sections, local = study.by_source(), LocalStudy(study, {}, [])
    outliers = _local_sets(study.outliers, f"{OUTLIERS}/", "outliers {}", given, local)
    kept = {}
    for source, section in sections.items():
        own = _local_section(source, section, record, given, local)
        if own is not None:
            kept[source] = own
    update: dict[str, Any] = {"outliers": outliers, "questions": [], "baseline": None}
    if not study.until_decided:
        update["criteria"] = None
    else:
        update["until_decided"] = "complete"
    if study.sources:
        update |= {"sources": kept, "protocols": _local_protocols(study, kept, local)}
    elif "" in kept:
        update |= {"data": kept[""].data, "models": kept[""].models, "size": kept[""].size}
    else:
        update |= {"models": {}}
    local.study = study.model_copy(update=update)
    return local


def _local_protocols(study: Study, kept: Mapping[str, Any], local: LocalStudy) -> ProtocolsSection:
    """The protocols without the sources that are not here, and without those that run on no other."""
    update: dict[str, Any] = {}
    for protocol, settings in study.protocols.chosen():
        if settings.sources is None:
            continue
        sources = [source for source in settings.sources if source in kept]
        if not sources:
            local.absent[f"protocol {protocol.name}"] = "none of its sources is here"
        update[protocol.name] = settings.model_copy(update={"sources": sources}) if sources else None
    return study.protocols.model_copy(update=update)


def check_given(study: Study, given: Substitutes) -> None:
    """Refuse what is given for a role or a model that the study does not have."""
    sections = study.by_source()
    roles = [f"{OUTLIERS}/{name}" for name in study.outliers]
    models = []
    for source, section in sections.items():
        prefix = f"{source}/" if source else ""
        recorded = [f"{RECORDED}/{name}" for name in section.data.recorded]
        roles += [prefix + role for role in (*ROLES, *recorded)]
        models += [prefix + name for name in section.models]
    for role in given.data:
        if role not in roles:
            raise UnknownName("role of data in the study of the bundle", role, roles)
    for name in given.models:
        if name not in models:
            raise UnknownName("model of the bundle", name, models)


def _local_section(
    source: str, section: SourceSection, record: RunRecord, given: Substitutes, local: LocalStudy
) -> SourceSection | None:
    """A source with what is here; None where its test data, or every model of it, is not."""
    prefix, words = (f"{source}/", f" of {source}") if source else ("", "")
    roles: dict[str, Any] = {}
    for role in ROLES:
        spec, _ = _placed(getattr(section.data, role), given.data.get(prefix + role))
        if reason := _unavailable(spec):
            local.absent[f"{role} data{words}"] = f"{reason}: name it with `data='{prefix}{role}=PATH'`"
            spec = None
        roles[role] = spec
    recorded = _local_sets(section.data.recorded, f"{prefix}{RECORDED}/", f"recorded set {{}}{words}", given, local)
    models = {}
    for name, spec in section.models.items():
        here = _local_model(f"{prefix}{name}", spec, record.models.get(f"{prefix}{name}"), given, local)
        if here is not None:
            models[name] = here
    if roles["test"] is None or not models:
        return None
    known = record.sources.get(source)
    size = tuple(known.data.size) if known and len(known.data.size) == 2 else section.size
    data = section.data.model_copy(update={**roles, "recorded": recorded})
    return section.model_copy(update={"data": data, "models": models, "size": size})


def _local_sets(
    sets: Mapping[str, Any], prefix: str, what: str, given: Substitutes, local: LocalStudy
) -> dict[str, Any]:
    """Those of some sets by name that are here; of the others `absent` says why, under `what` with their name."""
    here = {}
    for name, spec in sets.items():
        placed, _ = _placed(spec, given.data.get(f"{prefix}{name}"))
        if reason := _unavailable(placed):
            local.absent[what.format(name)] = f"{reason}: name it with `data='{prefix}{name}=PATH'`"
        else:
            here[name] = placed
    return here


def _local_model(name: str, spec: Any, known: ModelRecord | None, given: Substitutes, local: LocalStudy) -> Any:
    """The entry of a model with the files that are here; None where it cannot be rerun, with the reason."""
    placed, moved = _placed(spec, given.models.get(name))
    if reason := _unavailable(placed):
        hint = "" if "memory" in reason else f": name it with `model='{name}=FILE'`"
        local.absent[f"model {name}"] = f"{reason}{hint}"
        return None
    files = {} if known is None else known.files
    for recorded, sha in files.items():
        path = _place_of(recorded, moved)
        if path is not None and path.is_file() and (here := digest_file(path)) != sha:
            local.differences.append(
                f"model {name}: {path} is not the file that was tested (SHA-256 {here}, recorded is {sha})"
            )
            return None
    return placed


def _place_of(recorded: str, moved: Mapping[str, str]) -> Path | None:
    """Where a file lies now that a record names, given what was put in the place of which path."""
    name = PurePath(recorded)
    for before, after in moved.items():
        old = PurePath(before)
        if old.name == name.name:
            return Path(after)
        if old.name == name.parent.name:
            return Path(after) / name.name
    return None


def _unavailable(spec: Any) -> str:
    """Why data or a model cannot be opened here; empty where it can, or where there is none."""
    for text in _texts(spec):
        if text.startswith("<") and text.endswith(">"):
            return f"it lived in the memory of the process that tested it ({text})"
        if is_address(text):
            return f"it is at an address, {text}, which is not opened unless it is given"
        if (path := _path_in(text)) is not None and not path.exists():
            return f"{path} is not on this machine"
    return ""


def _texts(spec: Any) -> Iterator[str]:
    if isinstance(spec, _Given):
        return
    if isinstance(spec, str):
        yield spec
    elif isinstance(spec, Mapping):
        for value in spec.values():
            yield from _texts(value)
    elif isinstance(spec, list | tuple):
        for value in spec:
            yield from _texts(value)


class _Given(str):
    """A path or an address that the assessor gave: it may be opened."""


def _path_in(text: str) -> Path | None:
    """The whole path in a text such as `/data/test`, `gtsrb:/data/gtsrb` or `/code/net.py:make`; else None."""
    start = text if text.startswith("/") else text.partition(":")[2]
    if not start.startswith("/") or "\0" in start or start.startswith("//"):
        return None
    if Path(start).exists():
        return Path(start)
    path, colon, name = start.rpartition(":")
    return Path(path) if colon and name.isidentifier() else Path(start.partition("{")[0])


def _placed(spec: Any, given: str | None) -> tuple[Any, dict[str, str]]:
    """An entry with what is given in place of its paths, and which path stands where another was."""
    named = [whole_path for text in _texts(spec) if (whole_path := _path_in(text)) is not None]
    paths = list(dict.fromkeys(map(str, named)))
    if given is None:
        return spec, {path: path for path in paths}
    if is_address(given):
        addresses = [text for text in _texts(spec) if is_address(text)]
        return _replaced(spec, lambda text: _Given(given) if text in addresses else text), {}
    new, whole = Path(given).absolute(), dict[str, str]()
    if not paths:
        return (_Given(str(new)) if isinstance(spec, str) else spec), {}
    for path in paths:
        inside = new / PurePath(path).name
        if len(paths) == 1:
            was_file = bool(PurePath(path).suffix)
            whole[path] = str(inside) if new.is_dir() and was_file and inside.exists() else str(new)
        elif new.is_dir() and inside.exists():
            whole[path] = str(inside)
        elif new.name == PurePath(path).name:
            whole[path] = str(new)
        else:
            whole[path] = path
    if len(paths) > 1 and all(before == after for before, after in whole.items()):
        names = ", ".join(PurePath(path).name for path in paths)
        raise InputError(f"{given} is none of the files that are needed, {names}: name the folder that holds them")

    def moved(text: str) -> str:
        old = _path_in(text)
        return text if old is None else text.replace(str(old), whole[str(old)])

    return _replaced(spec, moved), whole


def _replaced(spec: Any, change: Callable[[str], str]) -> Any:
    if isinstance(spec, str):
        return change(spec)
    if isinstance(spec, Mapping):
        return {key: _replaced(value, change) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_replaced(value, change) for value in spec]
    return spec
