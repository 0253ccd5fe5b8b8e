"""Monitors that a study names: opened by their name and settings, with the files and the code that these name."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roadworthy.core.errors import InputError, UnknownName
from roadworthy.core.hashing import digest, digest_file
from roadworthy.models.code import load_object
from roadworthy.models.identity import Unseen, identity_of
from roadworthy.monitors.base import Monitor
from roadworthy.monitors.kinds import MONITORS


@dataclass(frozen=True)
class MonitorOpening:
    """What the settings of a monitor in a study are read against.

    base   the folder that relative paths start from;  trust: whether Python code that settings name may run
    named  the monitors of the study by label, as the study writes them
    """

    base: Path = Path()
    trust: bool = False
    named: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class NamesFiles(Monitor):
    """A monitor whose settings name files of the user, or other monitors that may.

    Two forms of its settings exist: as a study writes them, and as they are kept in the monitor, where paths are whole
    and the content of every file counts by its hash.
    """

    @classmethod
    @abstractmethod
    def opened(cls, settings: Mapping[str, Any], opening: MonitorOpening) -> dict[str, Any]:
        """The settings of a study with whole paths; code that they name is imported, which needs trust."""

    @abstractmethod
    def as_named(self) -> dict[str, Any]:
        """Its settings as a study writes them, with whole paths and without hashes."""


def open_monitor(
    entry: str | Mapping[str, Any] | Monitor, opening: MonitorOpening | None = None, *, label: str = ""
) -> Monitor:
    """The monitor of an entry: a registered name, or a mapping `{monitor: name, setting: value}`.

    `label` is the name where the mapping has none. A monitor comes back as it is.

    >>> open_monitor("energy"), open_monitor({"monitor": "knn_svm", "k": 4})
    (Energy(temperature=1.0), KnnSvm(k=4))
    """
    if isinstance(entry, Monitor):
        return entry
    if not isinstance(entry, str | Mapping):
        raise InputError(f"a monitor is a name or a mapping such as {{monitor: deep_knn, k: 8}}, not {entry!r}")
    settings = {} if isinstance(entry, str) else dict(entry)
    name = entry if isinstance(entry, str) else settings.pop("monitor", label)
    if not isinstance(name, str) or name not in MONITORS:
        raise UnknownName("monitor", str(name), MONITORS)
    kind = MONITORS.get(name)
    if issubclass(kind, NamesFiles):
        settings = kind.opened(settings, opening or MonitorOpening())
    return kind.of(settings)


def whole_path(path: Any, base: Path) -> Any:
    """A path as a text that does not depend on the working folder; what is not a text stays as it is."""
    return str((base / path).absolute()) if isinstance(path, str) and path else path


def is_code_name(spec: str) -> bool:
    """Whether a text names an object in a Python file.

    >>> is_code_name("my.py:score"), is_code_name("flicker")
    (True, False)
    """
    return re.fullmatch(r".+\.py:[A-Za-z_][\w.]*", spec) is not None


@dataclass(frozen=True)
class UserCode:
    """A function of the user's that was imported: it is called by one thread at a time.

    identity   what decides its answers, as a hash: its code, what it reads and the files that its import opens; empty
               where this cannot be seen, and then `unseen` says why
    """

    function: Callable[..., Any]
    identity: str
    unseen: str
    lock: threading.RLock = field(default_factory=threading.RLock)

    def sha256(self, spec: str, version: str) -> str:
        """The hash that stands for the code: of its version where the user states one."""
        if version:
            return digest({"version": version})
        if not self.identity:
            raise InputError(
                f"{spec} reads {self.unseen}, in which a change of its answers could not be seen: give "
                "`version='TEXT'`, and another text with every change"
            )
        return self.identity


_IMPORTED: dict[str, UserCode] = {}
"""The code of the user's that was imported with trust in this process, by its whole name."""


def import_user_code(spec: Any, base: Path, trust: bool) -> Any:
    """Import `file.py:function`, which needs trust, and return its whole name; what is not a text is returned as it is.

    The file is run again at each call, so that the code is as the file says now.
    """
    if not isinstance(spec, str):
        return spec
    if not is_code_name(spec):
        raise InputError(f"cannot read {spec!r}: name a function in a Python file, as in my.py:function")
    source, name = spec.rsplit(":", 1)
    whole = f"{whole_path(source, base)}:{name}"
    loaded = load_object(whole, Path(), trust)
    if not callable(loaded.value):
        raise InputError(f"{whole} is {type(loaded.value).__name__}, not a function")
    identity = unseen = ""
    try:
        files = sorted({digest_file(file) for file in loaded.files if file.is_file()})
        identity = digest([identity_of(loaded.value), *loaded.code, *files])
    except Unseen as error:
        unseen = str(error)
    _IMPORTED[whole] = UserCode(loaded.value, identity, unseen)
    return whole


def imported_code(monitor: str, spec: str, version: str, sha256: str = "") -> UserCode:
    """The code that `import_user_code` imported; an `InputError` where it was not, or is not that of the hash."""
    if spec not in _IMPORTED:
        raise InputError(
            f"monitor {monitor} runs the code of {spec}, which was not imported yet: open the study or the run with "
            "`trust=True` if you trust its author"
        )
    code = _IMPORTED[spec]
    if sha256 and code.sha256(spec, version) != sha256:
        raise InputError(
            f"monitor {monitor}: the code of {spec} has changed since the monitor was built: build it anew"
        )
    return code
