"""The identity of code: what someone wrote and then changed is not taken for what it was."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from roadworthy.core.code import code_of
from roadworthy.core.protocols import OUTLIERS, SHIFTS
from roadworthy.data import open_dataset
from roadworthy.monitors import MONITORS

WRITTEN = """
import functools, json
from dataclasses import dataclass, field
import numpy as np
import roadworthy as rw
from roadworthy.core.protocols import SHIFTS

SCALE = 2
TABLE = {"a": [1, 2], "b": np.arange(3)}
UNUSED = 1

def helper(x, power=2):
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

class Base:
    def shared(self, x):
        return x * 3

@dataclass(frozen=True, kw_only=True)
class Mine(Base):
    'What it is.'
    factor: float = 1.0
    names: tuple = field(default_factory=tuple)
    limits = (1, frozenset({"x", "y"}))
    calls = []

    def run(self, x):
        '''Doc.'''
        # a remark
        self.calls.append(x)
        total = sum(helper(value) for value in x if value in {"p", "q", "r"})
        return repr([total, TABLE, cached(1), self.shared(x), np.abs(-1), (lambda y: y + 5)(1)])

    @noisy
    def decorated(self):
        return 1

    @property
    def size(self):
        return 7

    @staticmethod
    def still():
        return super
"""


def written(source: str = WRITTEN, **changes: str) -> Any:
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    module = sys.modules["someone"] = types.ModuleType("someone")
    exec(compile(source, "someone.py", "exec"), vars(module))
    return module


def changed(old: str, new: str) -> Any:
    assert WRITTEN.count(old) == 1
    return written(WRITTEN.replace(old, new)).Mine


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sum(helper", "min(helper"),
        ("power=2", "power=3"),
        ("x + SCALE", "x - SCALE"),
        ("SCALE = 2", "SCALE = 3"),
        ('"a": [1, 2]', '"a": [1, 3]'),
        ("np.arange(3)", "np.arange(4)"),
        ("def cached(x):\n    return x", "def cached(x):\n    return -x"),
        ("return f(*given)", "return f(*given) + 1"),
        ("return x * 3", "return x * 4"),
        ('{"x", "y"}', '{"x", "z"}'),
        ('{"p", "q", "r"}', '{"p", "q"}'),
        ("y + 5", "y + 6"),
        ("np.abs", "np.ceil"),
        ("return 1\n\n    @property", "return 2\n\n    @property"),
        ("return 7", "return 8"),
        ("return super", "return sum"),
    ],
)
def test_a_change_of_what_is_done_is_seen(old: str, new: str) -> None:
    assert code_of(changed(old, new)) != code_of(written().Mine)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a remark", "# another\n\n"),
        ("'''Doc.'''", "'''Other.'''"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("What it", "How it"),
    ],
)
def test_a_change_of_nothing_that_is_done_is_not(old: str, new: str) -> None:
    assert code_of(changed(old, new)) == code_of(written().Mine)


def test_use_changes_nothing() -> None:
    module = written()
    before = code_of(module.Mine)
    module.Mine().run([1]), module.TABLE.clear()
    assert code_of(module.Mine) == before
    module.helper = lambda x, power=2: 0
    assert code_of(module.Mine) != before, "a helper that is defined anew is another one"


def test_who_states_a_version_answers_for_it() -> None:
    stated = "calls = []\n    code_version = '2.1'"
    first, second = (changed("calls = []", stated), written(**{"calls = []": stated, "x * 3": "x * 4"}).Mine)
    assert code_of(first) == code_of(second) == "version 2.1"


def test_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever the order of sets, and whether the code was compiled now or before."""
    (tmp_path / "someone.py").write_text(WRITTEN)
    line = "import sys; sys.path.insert(0, sys.argv[1]); import someone; from roadworthy.core.code import code_of; "
    line += "print(code_of(someone.Mine))"
    found = {
        subprocess.run(
            [sys.executable, "-c", line, str(tmp_path)], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1


def test_our_own_code_adds_nothing_to_a_hash_before_its_second_version() -> None:
    assert {code_of(registry.get(name)) for registry in (SHIFTS, OUTLIERS, MONITORS) for name in registry} == {""}


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


def test_outliers_of_another_maker_are_other_data() -> None:
    data = open_dataset({"builtin": "signs", "n": 14})
    first, same, other = (
        written(source).Negative().make(data, seed=0).fingerprint()
        for source in (MAKER, MAKER, MAKER.replace("255 - ", "127 + 0 * "))
    )
    assert first == same != other
