"""Errors that a user can act on: one sentence each, never a traceback on the command line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def from_here(text: object) -> str:
    """A text in which paths below the working folder start there, as people write them.

    >>> from_here(Path("runs/m").absolute())
    'runs/m'
    """
    try:
        here = str(Path.cwd())
    except OSError:  # it was deleted
        return str(text)
    return str(text) if here == os.sep else str(text).replace(here + os.sep, "")


class RoadworthyError(Exception):
    """Base of every error this package raises on purpose. The command line prints it and exits with `exit_code`.

    The message is one line, whatever a library's message or a file's name brings into it, and short: see `from_here`.

    >>> str(RoadworthyError("cannot read a.parquet: no data\\n  at all\\n"))
    'cannot read a.parquet: no data at all'
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(from_here(message).split()))


class InputError(RoadworthyError):
    """What the user gave cannot be used; the message names it and says what to do."""


class DamagedFile(InputError):
    """A file that this package wrote is not as it was written: what it holds must be made again."""


class UnknownName(InputError):
    """A name that nothing is registered under, with the nearest known one.

    >>> str(UnknownName("shift", "fogg", ["fog", "rain"]))
    "unknown shift 'fogg': did you mean 'fog'? Known: fog, rain."
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f": did you mean {near[0]!r}?" if near else "."
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}.")


class MissingExtra(InputError):
    """An optional dependency is not installed; the message names the extra that brings it.

    >>> str(MissingExtra("torch models", "torch"))
    "torch models need an optional dependency: pip install 'roadworthy[torch]'"
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} need an optional dependency: pip install 'roadworthy[{extra}]'")


class ModelError(RoadworthyError):
    """The model under test raised, or answered something that is no answer (NaN, wrong number of rows)."""


@contextmanager
def foreign_code(explain: Callable[[BaseException], RoadworthyError]) -> Iterator[None]:
    """Turn whatever the code of others raises into the error that `explain` makes of it; ours and Ctrl-C pass.

    What is raised need not be an `Exception`: `sys.exit()`, a panic of a Rust extension and some classes are none.

    >>> with foreign_code(lambda error: ModelError(f"it raised {type(error).__name__}")):
    ...     raise SystemExit(3)
    Traceback (most recent call last):
    roadworthy.core.errors.ModelError: it raised SystemExit
    """
    try:
        yield
    except (RoadworthyError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise explain(error) from error
