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
from functools import lru_cache
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
    Path(path).resolve() for path in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), site.getusersitepackages())
]


class CodeIdentified:
    """A role whose classes are identified by their code: a file's as it was when loaded, a notebook's as it is now."""

    code_version: ClassVar[int | str] = 1
    """Raised when the same parameters give other results, so that no stored one is taken for a new one."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if _file_of(cls) is not None:
            with suppress(InputError):  # raised where the code is asked for
                _KNOWN[cls] = _read_code(cls)


_KNOWN: WeakKeyDictionary[type, str] = WeakKeyDictionary()


def code_of(cls: type[CodeIdentified]) -> str:
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
    code = [_described(base, home) for base in others if base is cls or not _is_installed(_file_of(base), base, home)]
    return digest([version, *code])


def _described(cls: type, home: str) -> object:
    """The version that a class states, else what its file says of it, statement by statement, and what it imports."""
    if "code_version" in vars(cls):
        return f"version {vars(cls)['code_version']}"
    if _file_of(cls) is None:
        contents: dict[str, object] = {}
        _read_cells(cls, home, contents)
        return [contents, _captured(cls)]
    return [_content_of(cls, _text_of(cls), home)[0], _captured(cls)]


def _content_of(definition: type | FunctionType, text: str | bytes, home: str) -> tuple[object, set[str]]:
    """What a text says of a class or function, and the names that this uses."""
    if not _parsed(text).body:
        raise InputError(
            f"the code of {definition.__qualname__} cannot be read, so no change of it would be seen: write it to a "
            "file, or state code_version = '1' in the class and raise it with every change"
        )
    needed, used = _needed(text, definition.__qualname__.partition(".")[0])
    imported: dict[str, str] = {}
    package = getattr(sys.modules.get(definition.__module__), "__package__", None) or ""
    for statement in needed:
        _read_imports(statement, package, home, imported)
    return [definition.__qualname__, [ast.dump(statement) for statement in needed], sorted(imported.values())], used


def _read_cells(definition: type | FunctionType, home: str, contents: dict[str, object]) -> None:
    """Add what the cells of a notebook say of a class or function, and what it uses of other cells, as they are now."""
    contents[definition.__qualname__], used = _content_of(definition, _text_of(definition), home)
    functions = _functions(definition)
    for name in sorted(used if functions else ()):
        value = functions[0].__globals__.get(name)
        if isinstance(value, type | FunctionType) and value.__module__ == definition.__module__:
            if value.__qualname__ not in contents:
                _read_cells(value, home, contents)
        elif isinstance(value, PLAIN):
            contents[name] = repr(value)


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


def _needed(text: str | bytes, name: str) -> tuple[list[ast.stmt], set[str]]:
    """The statements of a text that give a name its value, or one of the names that those use; and these names."""
    statements = _statements(text)
    fixed = {bound for statement in statements if statement.is_definition for bound in statement.binds}
    names, kept = {name}, set[int]()
    while True:
        new = [row for row, statement in enumerate(statements) if row not in kept and statement.gives(names, fixed)]
        if not new:
            return [_parsed(text).body[row] for row in sorted(kept)], names
        kept.update(new)
        names.update(*(statements[row].uses for row in new))


@lru_cache(maxsize=16)
def _statements(text: str | bytes) -> tuple[_Statement, ...]:
    """The statements of a text, read once for all classes of a file."""
    return tuple(map(_Statement, _parsed(text).body))


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

    def gives(self, names: set[str], fixed: set[str]) -> bool:
        """Whether one of these names may have its value from here."""
        return self.binds_all or not names.isdisjoint(self.binds) or self.called in names - fixed


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
    """Add the hashes of the files that some code imports, and of those that these import, by their path."""
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
    folders = [Path(location) for location in (spec.submodule_search_locations or () if spec else ())]
    for part in parts:
        file = next((path for folder in folders for path in _module_files(folder, part) if path.is_file()), None)
        if file is None:
            return
        yield file
        folders = [file.parent] if file.name == "__init__.py" else []


def _module_files(folder: Path, part: str) -> tuple[Path, Path]:
    return folder / part / "__init__.py", folder / f"{part}.py"


@lru_cache(maxsize=16)
def _parsed(text: str | bytes) -> ast.Module:
    """The statements of a text, parsed once for all classes of a file; none where it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _file_of(definition: type | FunctionType) -> Path | None:
    file = getattr(sys.modules.get(definition.__module__), "__file__", None)
    return Path(file) if file else None


def _text_of(definition: type | FunctionType) -> str | bytes:
    """The text of a class's file; of the cell of a notebook that defines a class or function."""
    file = _file_of(definition)
    if file is not None and file.suffix == ".py" and file.is_file():
        return file.read_bytes()
    cells = [linecache.getlines(function.__code__.co_filename) for function in _functions(definition)]
    return next(("".join(cell) for cell in cells if cell), "")


def _functions(definition: type | FunctionType) -> list[FunctionType]:
    if isinstance(definition, FunctionType):
        return [definition]
    return [value for value in vars(definition).values() if isinstance(value, FunctionType)]


def _is_installed(file: Path | None, owner: type | str, home: str) -> bool:
    """Whether a file is that of an installed library; what is in the package of the class itself is its own."""
    if file is None or _top(owner if isinstance(owner, str) else owner.__module__) == home:
        return False
    return not {*INSTALLED}.isdisjoint(file.parts) or any(file.resolve().is_relative_to(path) for path in LIBRARIES)


def _top(module: str) -> str:
    return module.partition(".")[0]
