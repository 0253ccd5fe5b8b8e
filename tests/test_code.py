"""The identity of code: what someone wrote and then changed is not taken for what it was."""

from __future__ import annotations

import importlib
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import roadworthy.outliers
import roadworthy.shifts  # noqa: F401 (these register)
from roadworthy.core.code import CodeIdentified, code_of
from roadworthy.core.errors import InputError
from roadworthy.core.roles import OUTLIERS, SHIFTS
from roadworthy.data import open_dataset
from roadworthy.monitors import MONITORS
from tiny import import_text

WRITTEN = """
import functools, json
from dataclasses import dataclass, field
from enum import Enum
import numpy as np
import helping
import package.inner
from package import beside
from roadworthy.core.code import CodeIdentified

SCALE = np.float32(2)
TABLE = {"a": [1, 2], "b": np.arange(3)}
TABLE["c"] = 4
TABLE.update(d=5)
STATE = None
UNUSED = 1
model = 1

def set_state():
    global STATE
    STATE = 11

set_state()

if SCALE > 1:
    LIMIT = 21
else:
    LIMIT = 22

class Colour(Enum):
    RED = 31
    BLUE = 32

def helper(x, *rest, power=2):
    return deeper(x) ** power

def deeper(x):
    return x + SCALE

@functools.lru_cache
def cached(x):
    return x

def noisy(f):
    @functools.wraps(f)
    def wrapped(*given):
        return f(*given)
    return wrapped

class Base(CodeIdentified):
    def shared(self, x):
        return x * 3

@dataclass(frozen=True, kw_only=True)
class Mine(Base):
    factor: float = 1.0
    names: list = field(init=False, default_factory=lambda: [41])
    calls = []

    def run(self, x, model=None):
        # a remark
        from helping_late import late
        self.calls.append(x)
        total = sum(helper(value) for value in x if value in {"p", "q", "r"})
        return repr([total, TABLE, STATE, LIMIT, cached(1), self.shared(x), Colour.RED, (lambda y: y + 5)(1), model])

    @noisy
    def decorated(self):
        return helping.help_me() + package.inner.deep() + beside.near()

    __call__ = functools.partialmethod(run, 51)

def unused(x):
    return 61

if __name__ == "__main__":
    answer = Mine().run([71])
"""
FILES = {
    "someone.py": WRITTEN,
    "helping.py": "import further\n\ndef help_me():\n    return further.on()\n",
    "further.py": "def on():\n    return 81\n",
    "helping_late.py": "late = 82\n",
    "package/__init__.py": "start = 83\n",
    "package/inner.py": "from . import beside\n\ndef deep():\n    return 84\n",
    "package/beside.py": "from .lower import low\n\ndef near():\n    return low\n",
    "package/lower.py": "low = 85\n",
    "package/other.py": "other = 86\n",
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Write the files with one text replaced, and import what they define as a new process would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def loaded(old: str = "", new: str = "", files: dict[str, str] = FILES) -> ModuleType:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace(old, new) if old else text)
        for module in (
            "someone",
            "helping",
            "further",
            "helping_late",
            *(m for m in sys.modules if m[:7] == "package"),
        ):
            monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("someone")

    return loaded


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum(helper", "min(helper"),
        ("power=2", "power=3"),
        ("*rest, power", "rest=(), power"),
        ("x + SCALE", "x - SCALE"),
        ("np.float32(2)", "np.float32(3)"),
        ('"a": [1, 2]', '"a": [1, 3]'),
        ('TABLE["c"] = 4', 'TABLE["c"] = 5'),
        ("d=5", "d=6"),
        ("STATE = 11", "STATE = 12"),
        ("LIMIT = 22", "LIMIT = 23"),
        ("RED = 31", "RED = 33"),
        ("def cached(x):\n    return x", "def cached(x):\n    return -x"),
        ("return f(*given)", "return f(*given) + 1"),
        ("return x * 3", "return x * 4"),
        ("lambda: [41]", "lambda: [42]"),
        ('{"p", "q", "r"}', '{"p", "q"}'),
        ("y + 5", "y + 6"),
        ("partialmethod(run, 51)", "partialmethod(run, 52)"),
        ("frozen=True", "frozen=False"),
        *((f"{number}", "99") for number in range(81, 86)),
    ],
)
def test_a_change_of_what_is_done_is_seen(load: Callable[..., Any], old: str, new: str) -> None:
    before = code_of(load().Mine)
    assert code_of(load(old, new).Mine) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a remark", "# more\n\n"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("model = 1", "model = 2"),
        ("return 61", "return 62"),
        ("Mine().run([71])", "Mine().run([72])"),
        ("other = 86", "other = 87"),
    ],
)
def test_a_change_of_what_it_does_not_use_is_not(load: Callable[..., Any], old: str, new: str) -> None:
    assert any(old in text for text in FILES.values())
    before = code_of(load().Mine)
    assert code_of(load(old, new).Mine) == before


def test_the_code_is_that_which_runs(load: Callable[..., Any], tmp_path: Path) -> None:
    """A file that is edited while its code is in use is the old one until it is loaded again; use changes nothing."""
    loaded = load()
    before = code_of(loaded.Mine)
    loaded.Mine.calls.append(1), loaded.TABLE.clear()
    (tmp_path / "someone.py").write_text(WRITTEN.replace("x * 3", "x * 4"))
    assert code_of(loaded.Mine) == before
    assert code_of(load("x * 3", "x * 4").Mine) != before


def test_who_states_a_version_answers_for_it(load: Callable[..., Any]) -> None:
    stated = {**FILES, "someone.py": WRITTEN.replace("calls = []", "code_version = '2.1'; calls = []")}
    assert code_of(load(files=stated).Mine) == code_of(load("x * 3", "x * 4", stated).Mine) == "version 2.1"
    below = {**FILES, "someone.py": WRITTEN.replace("(CodeIdentified):", "(CodeIdentified):\n    code_version = 3")}
    first = code_of(load(files=below).Mine)
    assert code_of(load("lambda: [41]", "lambda: [42]", below).Mine) != first, "a base answers for itself alone"


def test_code_that_cannot_be_read_asks_for_a_version() -> None:
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec("from roadworthy.core.code import CodeIdentified\nclass Typed(CodeIdentified):\n    def f(self): pass", names)
    with pytest.raises(InputError, match=r"the code of Typed cannot be read.*code_version"):
        code_of(names["Typed"])


def test_cells_of_a_notebook_are_read_as_they_were_run() -> None:
    names: dict[str, Any] = {"__name__": "nowhere"}
    cells = {
        "import": "from roadworthy.core.code import CodeIdentified",
        "class": "class Cell(CodeIdentified):\n    def f(self):\n        return helper() + LIMIT",
        "helper": "def helper():\n    return deeper()",
        "deeper": "def deeper():\n    return 1",
        "limit": "LIMIT = 3",
        "unused": "OTHER = 4",
    }

    def run(cell: str, text: str) -> str:
        file = f"<cell {len(linecache.cache)} {cell}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), names)
        return code_of(names["Cell"]) if {"Cell", "helper", "deeper", "LIMIT"} <= set(names) else ""

    first = [run(cell, text) for cell, text in cells.items()][-1]
    assert [run(cell, text) for cell, text in cells.items()] == [first] * len(cells)
    assert run("unused", "OTHER = 5") == first
    for cell, old, new in (("deeper", "1", "2"), ("limit", "3", "4"), ("class", "+", "-"), ("helper", "deep", "-deep")):
        assert run(cell, cells[cell].replace(old, new)) != first
        assert run(cell, cells[cell]) == first


def test_a_class_that_a_function_makes_is_told_by_what_it_captures(tmp_path: Path) -> None:
    text = "from roadworthy.core.code import CodeIdentified\n\ndef make(sign):\n    class Made(CodeIdentified):\n"
    text += "        def f(self):\n            return sign\n    return Made\n"
    make = import_text(text, tmp_path / "making.py").make
    assert code_of(make(1)) == code_of(make(1)) != code_of(make(-1))


def test_the_same_in_every_process(tmp_path: Path, load: Callable[..., Any]) -> None:
    """Whatever the order of sets, compiled now or before, as a module or as the script that is run."""
    expected = code_of(load().Mine)
    line = "import sys; sys.path.insert(0, sys.argv[1]); import someone; from roadworthy.core.code import code_of; "
    line += "print(code_of(someone.Mine))"
    for seed in "12":
        command = [sys.executable, "-c", line, str(tmp_path)]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected


def test_our_own_code_adds_nothing_to_a_hash_before_its_second_version() -> None:
    codes = {name: code_of(registry.get(name)) for registry in (SHIFTS, OUTLIERS, MONITORS) for name in registry}
    changed = {name: code for name, code in codes.items() if code}
    second = ("c_elastic_transform", "c_fog", "c_frost", "c_glass_blur", "c_pixelate", "c_snow", "c_spatter")
    versions = dict.fromkeys((*second, "fog_veil", "rainfall"), "version 2")
    assert changed == {**versions, "c_defocus_blur": "version 3"}
    own = type("Second", (CodeIdentified,), {"__module__": "roadworthy.shifts.thesis", "code_version": 2})
    assert code_of(own) == "version 2"


MAKER = """
from dataclasses import dataclass
import numpy as np
from roadworthy.outliers.base import Painted, pixels

@dataclass(frozen=True, kw_only=True)
class Negative(Painted):
    name = "negative"

    def paint(self, source, rows, streams):
        return 255 - pixels(source, rows)
"""


def test_outliers_of_another_maker_are_other_data(tmp_path: Path) -> None:
    data = open_dataset({"builtin": "signs", "n": 14})
    first, same, other = (
        import_text(text, tmp_path / "maker.py").Negative().make(data, seed=0).fingerprint()
        for text in (MAKER, MAKER, MAKER.replace("255 - ", "127 + 0 * "))
    )
    assert first == same != other
