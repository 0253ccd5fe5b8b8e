"""Plugins: one's own Python file, or module, whose import registers shifts, outliers, monitors, metrics or protocols.

A plugin is code that a user wrote, so it is run only where the user trusts it. Studies and runs name it together with
the SHA-256 of its files, so that a run can say later whether its code is still the same.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import stat
import sys
import traceback
import warnings
from collections.abc import Collection, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import roadworthy.damages
import roadworthy.protocols
import roadworthy.uncertainty  # noqa: F401 (all: every component of ours is registered before any plugin's)
from roadworthy.core.code import code_files
from roadworthy.core.errors import InputError, first_line, foreign_code
from roadworthy.core.hashing import digest_file
from roadworthy.core.importing import import_code, name_plugins_by
from roadworthy.core.record import PluginRecord
from roadworthy.core.registry import Registered, RegistrationError, Registry, registering
from roadworthy.core.validation import find_mode, require_file


class ChangedPlugin(InputError):
    """The code of a plugin is not that which a study or a run names."""


class MissingPlugin(InputError):
    """There is no file where a plugin should be; the message has its whole path, wherever the user works."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.args = (" ".join(message.split()),)


Namer = Literal["given", "study", "run"]
"""Who names a plugin: the user, on the command line or in Python; a study; or the record of a run."""


@dataclass(frozen=True)
class NamedPlugin:
    """A plugin that is to be loaded, with its whole path, and who names it."""

    record: PluginRecord
    named_by: Namer


@dataclass(frozen=True)
class _Loaded:
    """A plugin that this process has imported: what it registered, and the modules that it imported with it."""

    record: PluginRecord
    registered: Registered
    modules: tuple[str, ...]

    @property
    def in_force(self) -> bool:
        """Whether all that it registered is still what its names stand for."""
        return not self.replaced()

    def replaced(self) -> list[tuple[str, str]]:
        """The kind and name of every component that it registered and that another one has replaced since."""
        return [
            (registry.kind, name)
            for registry, name, member in self.registered
            if name not in registry or registry.get(name) is not member
        ]


_LOADED: dict[str, _Loaded] = {}
name_plugins_by(lambda: {name: loaded.record.files for name, loaded in _LOADED.items() if loaded.in_force})


GivenPlugins = str | Path | Sequence[str | Path]
"""Plugins as a user gives them: one, or several."""


def name_plugins(
    named: Iterable[PluginRecord], base: Path, given: GivenPlugins = (), named_by: Namer = "study"
) -> list[NamedPlugin]:
    """The plugins that a study or run names and those that a user gives, as they are to be loaded.

    Paths of the named ones start from `base`, of the given ones from the working folder. A given one stands in for the
    named one of the same file name, whatever its content.
    """
    given = [given] if isinstance(given, str | Path) else given
    own = [NamedPlugin(_located(str(name), {}, Path.cwd()), "given") for name in given]
    chosen = []
    for record in named:
        instead = [other for other in own if _short_name(other.record.plugin) == _short_name(record.plugin)]
        located = NamedPlugin(_located(record.plugin, record.files, base), named_by)
        chosen.append(instead[-1] if instead else located)
    return [*chosen, *(plugin for plugin in own if plugin not in chosen)]


def load_plugins(plugins: Sequence[NamedPlugin], trust: bool) -> list[PluginRecord]:
    """Import plugins, each unless it is loaded as it is now, and return them with the SHA-256 of their files.

    They may take names of plugins that were loaded before and are not among them: those are imported again when they
    are next asked for. An `InputError` says which one is missing, is not trusted, cannot be imported or has a name
    that is taken; a `ChangedPlugin`, that its files are not those that its record names. Then nothing of it is
    registered.
    """
    used = {plugin.record.plugin for plugin in plugins}
    return [_load(plugin, trust, used) for plugin in plugins]


def load_given(plugins: GivenPlugins, trust: bool) -> list[PluginRecord]:
    """Import the plugins that a user gives, their paths starting from the working folder; see `load_plugins`."""
    return load_plugins(name_plugins((), Path.cwd(), plugins), trust)


def other_code(named: Sequence[PluginRecord], loaded: Sequence[PluginRecord]) -> list[str]:
    """The plugins that were loaded with other code than a run names; `loaded` begins with the run's own."""
    return [now.plugin for before, now in zip(named, loaded, strict=False) if before.files != now.files]


def plugin_problems(plugins: Iterable[NamedPlugin]) -> list[InputError]:
    """The errors on plugins that are gone, or were changed by the SHA-256 of their files; runs no code."""
    problems = []
    for plugin in plugins:
        try:
            _check_file(plugin, trust=False)
        except InputError as error:
            problems.append(error)
    return problems


def require_loaded(plugins: Iterable[PluginRecord]) -> None:
    """Refuse to go on where the code of a plugin is no longer the one that was loaded: another one has its names."""
    for record in plugins:
        loaded = _LOADED.get(record.plugin)
        if loaded is None or loaded.record.files != record.files or not loaded.in_force:
            raise InputError(
                f"plugin {record.plugin} was replaced by other code since the study was prepared: prepare it again"
            )


def replaced_components(plugins: Iterable[PluginRecord]) -> list[tuple[str, str]]:
    """The kind and name of every component of these plugins that another plugin has replaced since."""
    loaded = [_LOADED[record.plugin] for record in plugins if record.plugin in _LOADED]
    return list(dict.fromkeys(component for plugin in loaded for component in plugin.replaced()))


def plugin_behind(error: BaseException) -> tuple[str, list[traceback.FrameSummary]]:
    """The plugin, or installed package, whose code an error passed through, and the lines of that code.

    Both are empty where there is none.
    """
    frames = traceback.extract_tb(error.__traceback__)
    for name, loaded in _LOADED.items():
        folder = _file_of(name).parent
        files = {str(path) for file in loaded.record.files for path in (folder / file, (folder / file).resolve())}
        if own := [frame for frame in frames if frame.filename in files]:
            return f"plugin {name}", own
    for registry in Registry.everyone:
        for component, package in registry.packages.items():
            top = str(getattr(registry.get(component), "__module__", "")).partition(".")[0]
            file = getattr(sys.modules.get(top), "__file__", None)
            package_folder = Path(file).parent if file and Path(file).name == "__init__.py" else None
            if own := [
                frame
                for frame in frames
                if frame.filename == file or (package_folder and Path(frame.filename).is_relative_to(package_folder))
            ]:
                return f"the installed package {package}", own
    return "", []


def _short_name(plugin: str) -> str:
    return Path(plugin).name if plugin.endswith(".py") else plugin


def _located(plugin: str, files: dict[str, str], base: Path) -> PluginRecord:
    """With its whole path; what is neither a Python file nor the name of a module is an error."""
    if "://" in plugin:
        raise InputError(f"plugin {plugin} is an address: download the file and name it where it is then (my.py)")
    path = base / plugin
    if plugin.startswith("~"):
        try:
            path = Path(plugin).expanduser()
        except RuntimeError:
            raise InputError(f"plugin {plugin}: there is no such user, whose folder ~ could be") from None
    if plugin.endswith(".py"):
        return PluginRecord(plugin=str(path.absolute()), files=files)
    is_module_name = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", plugin) is not None
    is_module = is_module_name and _can_be_imported(plugin.partition(".")[0])
    if plugin and "\0" not in plugin and not is_module and stat.S_ISREG(find_mode(path, "plugin")):
        raise InputError(f"plugin {plugin} is a file whose name does not end in .py: rename it, a plugin must")
    if not is_module_name:
        raise InputError(f"plugin {plugin!r} is neither a Python file (my.py) nor a module (package.module)")
    return PluginRecord(plugin=plugin, files=files)


def _can_be_imported(module: str) -> bool:
    """Whether there is a module of that name, at the top of its package; runs no code."""
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _load(plugin: NamedPlugin, trust: bool, used: Collection[str]) -> PluginRecord:
    name = plugin.record.plugin
    _check_file(plugin, trust)
    loaded = _LOADED.get(name) or _same_code(name)
    if loaded is None or _changed_files(loaded.record) or not loaded.in_force:
        loaded = _import(name, trust, loaded, _unused_components(used))
    _LOADED[name] = loaded
    return loaded.record


def _check_file(plugin: NamedPlugin, trust: bool) -> None:
    """Refuse a plugin that is a file and is not there, or is not as its record names it, before its code runs."""
    name = plugin.record.plugin
    if name.endswith(".py"):
        if not find_mode(Path(name), "plugin"):
            raise MissingPlugin(_missing(name, plugin.named_by))
        require_file(Path(name), "plugin")
    if name.endswith(".py") or name in sys.modules or (trust and _module_file(name)):
        _check_unchanged(plugin.record)


def _missing(name: str, named_by: Namer) -> str:
    if named_by == "given":
        return f"there is no file {name}, which `plugins=` names"
    if named_by == "study":
        return f"there is no file {name}, which the study names under plugins (paths start from the study's folder)"
    return f"the run was made with the plugin {name}, which is gone: name it where it is now with `plugins=`"


def _same_code(name: str) -> _Loaded | None:
    """The same plugin, loaded from another folder or file name: all its files have the same content here."""
    for loaded in _LOADED.values() if name.endswith(".py") else ():
        earlier = Path(loaded.record.plugin).name
        files = {Path(name).name if file == earlier else file: sha for file, sha in loaded.record.files.items()}
        here = PluginRecord(plugin=name, files=files)
        if loaded.record.plugin.endswith(".py") and not _changed_files(here):
            return replace(loaded, record=here)
    return None


def _unused_components(used: Collection[str]) -> list[Any]:
    """What plugins have registered that are loaded, but not among those that are used now."""
    kept = {id(member) for name in used if name in _LOADED for _, _, member in _LOADED[name].registered}
    unused = [loaded for name, loaded in _LOADED.items() if name not in used]
    return [member for loaded in unused for _, _, member in loaded.registered if id(member) not in kept]


def _import(name: str, trust: bool, before: _Loaded | None, may_replace: Collection[Any]) -> _Loaded:
    """Run the code of a plugin, in place of what it registered `before`; what it prints goes to standard error."""

    def explain(error: BaseException) -> InputError:
        kind = "" if isinstance(error, RegistrationError) else f"{type(error).__name__}: "
        return InputError(f"cannot load plugin {name}: {kind}{first_line(error)}")

    outdated = [*(before.modules if before else ()), *_modules_of_others(name)]
    replaced = {module: sys.modules.pop(module) for module in outdated if module in sys.modules}
    known = {*sys.modules}
    try:
        with (
            registering(before.registered if before else [], may_replace) as registered,
            foreign_code(explain),
            redirect_stdout(sys.stderr),
        ):
            import_code(name, Path(), trust)
            file = _file_of(name)
    except BaseException:
        sys.modules.update(replaced)
        raise
    hashes = code_files(file)
    new = {module: getattr(sys.modules[module], "__file__", None) for module in {*sys.modules} - known}
    if not registered and not _brings_components(name, hashes):
        warnings.warn(
            f"plugin {name} registers nothing: decorate its classes, as in @rw.SHIFTS.register('name')", stacklevel=2
        )
    files = {_name_in(Path(path), file.parent): value for path, value in sorted(hashes.items())}
    return _Loaded(
        PluginRecord(plugin=name, files=files), registered, tuple(module for module in new if new[module] in hashes)
    )


def _modules_of_others(name: str) -> list[str]:
    """The modules of other plugins that have the name of a module beside this one, which it would get instead."""
    folder = Path(name).parent
    modules = [module for loaded in _LOADED.values() for module in loaded.modules] if name.endswith(".py") else []
    beside = {path.stem for path in folder.iterdir()} if modules else set()
    return [
        module
        for module in modules
        if module.partition(".")[0] in beside
        and not Path(getattr(sys.modules.get(module), "__file__", None) or folder / name).is_relative_to(folder)
    ]


def _brings_components(name: str, files: Collection[str]) -> bool:
    """Whether a component that is registered was defined in a module, in a part of it, or in these files."""
    members = [registry.get(member) for registry in Registry.everyone for member in registry]
    modules = {str(getattr(member, "__module__", "")) for member in members}
    return any(
        module == name or module.startswith(f"{name}.") or getattr(sys.modules.get(module), "__file__", None) in files
        for module in modules
    )


def _file_of(name: str) -> Path:
    """The file of a plugin, also of a module that is not imported yet."""
    if name.endswith(".py"):
        return Path(name)
    file = _module_file(name)
    if not file:
        raise InputError(f"plugin {name} has no Python file, so no change of it would be seen")
    return Path(file)


def _module_file(name: str) -> str:
    """The Python file of a module; empty where there is none. To look for it imports the packages that hold it."""
    if name in sys.modules:
        return inspect.getsourcefile(sys.modules[name]) or ""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    return spec.origin if spec is not None and spec.origin and spec.origin.endswith(".py") else ""


def _name_in(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _changed_files(plugin: PluginRecord) -> list[str]:
    """The files of a plugin that are not there as its record names them."""
    folder = _file_of(plugin.plugin).parent if plugin.files else Path()
    return [
        name
        for name, value in plugin.files.items()
        if not stat.S_ISREG(find_mode(folder / name, "plugin")) or digest_file(folder / name) != value
    ]


def _check_unchanged(plugin: PluginRecord) -> None:
    """Refuse a plugin whose files are not those that its record names."""
    folder = _file_of(plugin.plugin).parent if plugin.files else Path()
    differing = _changed_files(plugin)
    gone = [name for name in differing if not (folder / name).exists()]
    changed = [name for name in differing if name not in gone]
    problems = [f"was changed since the SHA-256 of {', '.join(changed)} was noted"] if changed else []
    problems += [f"imports {', '.join(gone)}, which is gone"] if gone else []
    if problems:
        raise ChangedPlugin(
            f"plugin {plugin.plugin} {' and '.join(problems)}: put it back as it was, or name the code to use with "
            "`plugins=`"
        )
