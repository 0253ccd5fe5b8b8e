"""The stub of `roadworthy.shifts.functions`, from the registry: `python tests/written_stub.py` after a change."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

from roadworthy.core.registry import is_built_in
from roadworthy.core.roles import SHIFTS
from roadworthy.shifts.arrays import parameter_types

STUB = Path(__file__).parent.parent / "src" / "roadworthy" / "shifts" / "functions.pyi"
HEAD = '''"""What type checkers know of every shift as a function; written by `python tests/written_stub.py`."""

from collections.abc import Sequence
from typing import Required, TypeAlias, TypedDict, Unpack, overload

from numpy.typing import ArrayLike

from roadworthy.core.types import Images
from roadworthy.shifts.arrays import Moved as Moved

Number: TypeAlias = float | None
Pair: TypeAlias = float | tuple[float, float] | None
Numbers: TypeAlias = Sequence[float] | None
Word: TypeAlias = str | None

class Alone(TypedDict, total=False):
    seed: int
    id: str | int | Sequence[str | int] | None
    depth: ArrayLike | None

class Boxed(Alone, total=False):
    boxes: Required[ArrayLike]
    masks: ArrayLike | None

class Masked(Alone, total=False):
    masks: Required[ArrayLike]

'''
FUNCTION = '''
@overload
def {name}({common}{own} **more: Unpack[Alone]) -> Images:
    """{doc}"""
@overload
def {name}({common}{own} **more: Unpack[Boxed]) -> Moved: ...
@overload
def {name}({common}{own} **more: Unpack[Masked]) -> Moved: ...
'''
COMMON = "image: ArrayLike, level: Number = None, *, "
TYPES = {
    "float": "Number",
    "float | None": "Number",
    "int": "int | None",
    "str": "Word",
    "Pair": "Pair",
    "tuple[float, ...]": "Numbers",
}
"""Types of parameters as their classes write them, and as the stub does."""


def written() -> str:
    """The text of the stub for the shifts of this package, before it is formatted."""
    names = [name for name in SHIFTS if is_built_in(SHIFTS.get(name))]
    parts = [HEAD, f"__all__ = {sorted(names)!r}\n".replace("'", '"')]
    for name in names:
        shift = SHIFTS.get(name)
        own = "".join(f" {entry}: {TYPES[type_]} = None," for entry, type_ in parameter_types(shift).items())
        paragraph = (inspect.getdoc(shift) or "").partition("\n\n")[0].replace("\n", " ")
        doc = "\n    ".join(textwrap.wrap(paragraph, 110))
        parts.append(FUNCTION.format(name=name, common=COMMON, own=own, doc=doc))
    return "".join(parts)


def formatted() -> str:
    """The stub as it must be in the package."""
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, input=written(), capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    STUB.write_text(formatted())
