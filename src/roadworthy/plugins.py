"""Plugins: one's own Python file, or module, whose import registers shifts, outliers, monitors, metrics or protocols.

A plugin is code that a user wrote, so it is run only where the user trusts it. Studies and runs name it together with
the SHA-256 of its files, so that a run can say later whether its code is still the same.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import roadworthy.protocols
import roadworthy.uncertainty  # noqa: F401 (both: every component of ours is registered before any plugin's)
from roadworthy.core.code import code_files
from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.hashing import digest_file
from roadworthy.core.importing import import_code
from roadworthy.core.record import PluginRecord
from roadworthy.core.registry import NameTaken, Registered, registering
from roadworthy.core.validation import find_mode, require_file


class ChangedPlugin(InputError):
    """The code of a plugin is not that which a study or a run names."""


@dataclass(frozen=True)
class _Loaded:
    """A plugin that this process has imported: what it registered, and the modules that it imported with it."""

    record: PluginRecord
    registered: Registered
    modules: tuple[str, ...]

    @property
    def in_force(self) -> bool:
        """Whether all that it registered is still what its names stand for."""
        return all(name in registry and registry.get(name) is member for registry, name, member in self.registered)


_LOADED: dict[str, _Loaded] = {}


GivenPlugins = str | Path | Sequence[str | Path]
"""Plugins as a user gives them: one, or several."""


def name_plugins(named: Iterable[PluginRecord], base: Path, given: GivenPlugins = ()) -> list[PluginRecord]:
    """The plugins that a study or run names and those that a user gives, as they are to be loaded.

    Paths of the named ones start from `base`, of the given ones from the working folder. A given one stands in for the
    named one of the same file name, whatever its content.
    """
    given = [given] if isinstance(given, str | Path) else given
    own = [_located(PluginRecord(plugin=str(name)), Path.cwd()) for name in given]
    chosen = []
    for record in named:
        instead = [other for other in own if _short_name(other.plugin) == _short_name(record.plugin)]
        chosen.append(instead[-1] if instead else _located(record, base))
    return [*chosen, *(record for record in own if record not in chosen)]


def load_plugins(plugins: Iterable[PluginRecord], trust: bool) -> list[PluginRecord]:
    """Import plugins, each unless it is loaded as it is now, and return them with the SHA-256 of their files.

    An `InputError` says which one is missing, is not trusted, cannot be imported or wants a name that is taken; a
    `ChangedPlugin`, that its files are not those that its record names. Then nothing of it is registered.
    """
    return [_load(plugin, trust) for plugin in plugins]


def load_given(plugins: GivenPlugins, trust: bool) -> list[PluginRecord]:
    """Import the plugins that a user gives, their paths starting from the working folder; see `load_plugins`."""
    return load_plugins(name_plugins((), Path.cwd(), plugins), trust)


def differences(named: Sequence[PluginRecord], loaded: Sequence[PluginRecord]) -> list[str]:
    """A sentence for every plugin that was loaded with other code than a run names; `loaded` begins with its own."""
    return [
        f"plugin {now.plugin} is not the code that the run was made with"
        for before, now in zip(named, loaded, strict=False)
        if before.files != now.files
    ]


def plugin_behind(error: BaseException) -> str:
    """The loaded plugin whose code an error passed through; empty where there is none."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    behind = [name for name in _LOADED if str(_file_of(name)) in files]
    return behind[0] if behind else ""


def _short_name(plugin: str) -> str:
    return Path(plugin).name if plugin.endswith(".py") else plugin


def _located(record: PluginRecord, base: Path) -> PluginRecord:
    """With its whole path; what is neither a Python file nor the name of a module is an error."""
    if record.plugin.endswith(".py"):
        return record.model_copy(update={"plugin": str((base / record.plugin).absolute())})
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", record.plugin):
        raise InputError(f"plugin {record.plugin!r} is neither a Python file (my.py) nor a module (package.module)")
    return record


def _load(plugin: PluginRecord, trust: bool) -> PluginRecord:
    name = plugin.plugin
    if name.endswith(".py"):
        if not find_mode(Path(name), "plugin"):
            raise InputError(f"there is no plugin {name}: name it where it is now with `plugins=`")
        require_file(Path(name), "plugin")
        _check_unchanged(plugin)
    loaded = _LOADED.get(name) or _same_code(name)
    if loaded is None or _changed_files(loaded.record) or not loaded.in_force:
        loaded = _import(name, trust, loaded)
    _LOADED[name] = loaded
    _check_unchanged(plugin)
    return loaded.record


def _same_code(name: str) -> _Loaded | None:
    """The same plugin, loaded from another folder: its file has the same name, and all its files are the same here."""
    for loaded in _LOADED.values():
        moved = loaded.record.model_copy(update={"plugin": name})
        if name.endswith(".py") and _short_name(loaded.record.plugin) == Path(name).name and not _changed_files(moved):
            return replace(loaded, record=moved)
    return None


def _import(name: str, trust: bool, before: _Loaded | None) -> _Loaded:
    """Run the code of a plugin, in place of what it registered `before`."""

    def explain(error: BaseException) -> InputError:
        kind = "" if isinstance(error, NameTaken) else f"{type(error).__name__}: "
        return InputError(f"cannot load plugin {name}: {kind}{first_line(error)}")

    replaced = {
        module: sys.modules.pop(module) for module in (before.modules if before else ()) if module in sys.modules
    }
    known = {*sys.modules}
    try:
        with registering(before.registered if before else []) as registered, foreign_code(explain):
            import_code(name, Path(), trust)
            file = _file_of(name)
    except BaseException:
        sys.modules.update(replaced)
        raise
    hashes = code_files(file)
    new = {module: getattr(sys.modules[module], "__file__", None) for module in {*sys.modules} - known}
    if not registered and (new or before):
        warnings.warn(
            f"plugin {name} registers nothing: decorate its classes, as in @rw.SHIFTS.register('name')", stacklevel=2
        )
    files = {_name_in(Path(path), file.parent): value for path, value in sorted(hashes.items())}
    return _Loaded(
        PluginRecord(plugin=name, files=files), registered, tuple(module for module in new if new[module] in hashes)
    )


def _file_of(name: str) -> Path:
    """The file of a plugin; that of a module, which must be imported by now."""
    if name.endswith(".py"):
        return Path(name)
    file = inspect.getsourcefile(sys.modules[name])
    if file is None:
        raise InputError(f"plugin {name} has no Python file, so no change of it would be seen")
    return Path(file)


def _name_in(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _changed_files(plugin: PluginRecord) -> list[str]:
    """The files of a plugin that are not there as its record names them."""
    folder = _file_of(plugin.plugin).parent if plugin.files else Path()
    return [
        name
        for name, value in plugin.files.items()
        if not (folder / name).is_file() or digest_file(folder / name) != value
    ]


def _check_unchanged(plugin: PluginRecord) -> None:
    """Refuse a plugin whose files are not those that its record names."""
    changed = _changed_files(plugin)
    if changed:
        raise ChangedPlugin(
            f"plugin {plugin.plugin} was changed since the SHA-256 of {', '.join(changed)} was noted: put it back as "
            "it was, or name the code to use with `plugins=`"
        )
