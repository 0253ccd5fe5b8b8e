"""The identity of code: what tells whether a class that someone wrote still does what it did for stored results."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import site
import symtable
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CellType, FunctionType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from roadworthy.core.errors import InputError
from roadworthy.core.hashing import digest, digest_file

OWN = __name__.partition(".")[0]
NOT_WRITTEN = sys.stdlib_module_names | {OWN}
"""Packages that no user wrote: Python's and our own."""
INSTALLED = ("site-packages", "dist-packages")
PLAIN = (bool, int, float, complex, str, bytes, type(None))
LIBRARIES = [
    Path(place).resolve() for place in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), site.getusersitepackages())
]


class Written:
    """A role whose classes are told apart by their code: a file's as it was when loaded, a notebook's as it is now."""

    code_version: ClassVar[int | str] = 1
    """Raised when the same parameters give other results, so that no stored one is taken for a new one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _file_of(cls) is not None:
            with suppress(InputError):  # told where the code is asked for
                _KNOWN[cls] = _read_code(cls)


_KNOWN: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def code_of(cls: type[Written]) -> str:
    """What stands for the code of a class in a hash: empty for Roadworthy's own classes in their first version.

    Roadworthy's classes raise `code_version` when what they compute changes. The code of anyone else's class is what
    its file says: the class, what it names among the file's other statements, what these name, and the files that they
    import, unless they belong to an installed library; the same of its bases. Comments and layout do not count. A class
    that states a `code_version` answers for changes of its own code itself.

    >>> from roadworthy.shifts import Fog
    >>> code_of(Fog)
    ''
    """
    return _KNOWN[cls] if cls in _KNOWN else _read_code(cls)


def is_written_here(module: str) -> bool:
    """Whether a module is the user's own: neither Python's, nor Roadworthy's, nor of an installed library.

    >>> is_written_here("json"), is_written_here("numpy.linalg"), is_written_here("roadworthy.shifts")
    (False, False, False)
    """
    if _top(module) in NOT_WRITTEN:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return not _is_installed(Path(file) if file else None, module, home="")


def code_files(file: Path) -> dict[str, str]:
    """The hashes of a Python file and of those that it imports, unless they belong to an installed library."""
    hashes = {str(file): digest_file(file)}
    _read_imports(_parsed(file.read_bytes()), "", "", hashes)
    return hashes


def _read_code(cls: type) -> str:
    version = getattr(cls, "code_version", 1)
    others = [base for base in cls.__mro__ if _top(base.__module__) not in NOT_WRITTEN]
    if not others:
        return "" if version == 1 else f"version {version}"
    if "code_version" in vars(cls):
        return f"version {version}"
    home = _top(cls.__module__)
    told = [_described(base, home) for base in others if base is cls or not _is_installed(_file_of(base), base, home)]
    return digest([version, *told])


def _described(cls: type, home: str) -> object:
    """The version that a class states, else what its file says of it, statement by statement, and what it imports."""
    if "code_version" in vars(cls):
        return f"version {vars(cls)['code_version']}"
    if _file_of(cls) is None:
        told: dict[str, object] = {}
        _read_cells(cls, home, told)
        return [told, _captured(cls)]
    return [_said(cls, _parsed(_text_of(cls)), home)[0], _captured(cls)]


def _said(thing: type | FunctionType, tree: ast.Module, home: str) -> tuple[object, set[str]]:
    """What a text says of a class or function, and the names that this uses."""
    if not tree.body:
        raise InputError(
            f"the code of {thing.__qualname__} cannot be read, so no change of it would be seen: write it to a file, "
            "or state code_version = '1' in the class and raise it with every change"
        )
    needed, used = _needed(tree, thing.__qualname__.partition(".")[0])
    imported: dict[str, str] = {}
    package = getattr(sys.modules.get(thing.__module__), "__package__", None) or ""
    for statement in needed:
        _read_imports(statement, package, home, imported)
    return [thing.__qualname__, [ast.dump(statement) for statement in needed], sorted(imported.values())], used


def _read_cells(thing: type | FunctionType, home: str, told: dict[str, object]) -> None:
    """Add what the cells of a notebook say of a class or function, and what it uses of other cells, as they are now."""
    told[thing.__qualname__], used = _said(thing, _parsed(_text_of(thing)), home)
    functions = _functions(thing)
    for name in sorted(used if functions else ()):
        value = functions[0].__globals__.get(name)
        if isinstance(value, type | FunctionType) and value.__module__ == thing.__module__:
            if value.__qualname__ not in told:
                _read_cells(value, home, told)
        elif isinstance(value, PLAIN):
            told[name] = repr(value)


def _captured(cls: type) -> list[str]:
    """The plain values that methods take from the function that defines their class."""
    cells = [
        (name, cell)
        for function in _functions(cls)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    ]
    return [f"{name}={cell_content(cell)!r}" for name, cell in cells if isinstance(cell_content(cell), PLAIN)]


def cell_content(cell: CellType) -> object:
    """What a function captures in a cell; None where it is not filled yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _needed(tree: ast.Module, name: str) -> tuple[list[ast.stmt], set[str]]:
    """The statements of a text that give a name its value, or one of the names that those use; and these names."""
    statements = [_Statement(each) for each in tree.body]
    fixed = {bound for each in statements if each.is_definition for bound in each.binds}
    wanted, needed = {name}, set[int]()
    while True:
        found = [place for place, each in enumerate(statements) if place not in needed and each.gives(wanted, fixed)]
        if not found:
            return [tree.body[place] for place in sorted(needed)], wanted
        needed.update(found)
        wanted.update(*(statements[place].uses for place in found))


class _Statement:
    """A statement of a file: the names of the file that it binds or may change, and those that it uses.

    `called` is what a bare call starts from: `a` of `a.b()`, which may change `a` unless that is fixed.
    """

    def __init__(self, statement: ast.stmt) -> None:
        table = symtable.symtable(ast.unparse(statement), "<statement>", "exec")
        inner = [symbol for scope in _scopes(table) for symbol in scope.get_symbols() if symbol.is_global()]
        outer = table.get_symbols()
        self.uses = {symbol.get_name() for symbol in (*outer, *inner) if symbol.is_referenced()}
        changed = {symbol.get_name() for symbol in inner if symbol.is_assigned()}
        stored = [node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)]
        changed |= {_root(node) for node in stored if isinstance(node, ast.Attribute | ast.Subscript)} & self.uses
        self.binds = changed | {s.get_name() for s in outer if s.is_assigned() or s.is_imported() or s.is_namespace()}
        self.binds_all = isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        self.is_definition = isinstance(statement, kinds) and not changed
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        self.called = _root(statement) if is_call else ""

    def gives(self, wanted: set[str], fixed: set[str]) -> bool:
        """Whether one of these names may have its value from here."""
        return self.binds_all or not wanted.isdisjoint(self.binds) or self.called in wanted - fixed


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _scopes(child)


def _root(node: ast.AST) -> str:
    """The name that an expression starts from: `a` of `a.b[0].c`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call | ast.Expr):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _read_imports(tree: ast.AST, package: str, home: str, imported: dict[str, str]) -> None:
    """Add the hashes of the files that some code imports, and of those that these import, by their place."""
    for name in _imports(tree, package):
        for file in _files(name):
            if str(file) not in imported and not _is_installed(file, name, home):
                imported[str(file)] = digest_file(file)
                inner = name if file.name == "__init__.py" else name.rpartition(".")[0]
                _read_imports(_parsed(file.read_bytes()), inner, home, imported)


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """The names of modules that some code may import, wherever in it; those that are relative completed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - (node.level - 1)] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def _files(name: str) -> Iterator[Path]:
    """The Python files that importing a module runs: its packages' and its own, as far as they exist."""
    top, *parts = name.split(".")
    if not top or top in NOT_WRITTEN:
        return
    module = sys.modules.get(top)
    try:
        spec = importlib.util.find_spec(top) if module is None else module.__spec__
    except (ImportError, ValueError):
        return
    origin = getattr(module, "__file__", None) or (spec.origin if spec else None)
    file = Path(origin) if origin else None
    if file is not None and file.suffix == ".py" and file.is_file():
        yield file
    folders = [Path(place) for place in (spec.submodule_search_locations or () if spec else ())]
    for part in parts:
        file = next((each for folder in folders for each in _places(folder, part) if each.is_file()), None)
        if file is None:
            return
        yield file
        folders = [file.parent] if file.name == "__init__.py" else []


def _places(folder: Path, part: str) -> tuple[Path, Path]:
    return folder / part / "__init__.py", folder / f"{part}.py"


def _parsed(text: str | bytes) -> ast.Module:
    """The statements of a text; none where it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _file_of(thing: type | FunctionType) -> Path | None:
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    return Path(file) if file else None


def _text_of(thing: type | FunctionType) -> str | bytes:
    """The text of a class's file; of the cell of a notebook that defines a class or function."""
    file = _file_of(thing)
    if file is not None and file.suffix == ".py" and file.is_file():
        return file.read_bytes()
    lines = [linecache.getlines(each.__code__.co_filename) for each in _functions(thing)]
    return next(("".join(each) for each in lines if each), "")


def _functions(thing: type | FunctionType) -> list[FunctionType]:
    if isinstance(thing, FunctionType):
        return [thing]
    return [value for value in vars(thing).values() if isinstance(value, FunctionType)]


def _is_installed(file: Path | None, thing: type | str, home: str) -> bool:
    """Whether a file is that of an installed library; what lies in the package of the class itself is its own."""
    if file is None or _top(thing if isinstance(thing, str) else thing.__module__) == home:
        return False
    return not {*INSTALLED}.isdisjoint(file.parts) or any(file.resolve().is_relative_to(place) for place in LIBRARIES)


def _top(module: str) -> str:
    return module.partition(".")[0]
