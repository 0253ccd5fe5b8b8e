"""Errors that a user can act on: one sentence each, never a traceback on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RoadworthyError(Exception):
    """Base of every error this package raises on purpose. The command line prints it and exits with `exit_code`.

    The message is one line, whatever a library's message or a file's name brings into it.

    >>> str(RoadworthyError("cannot read a.parquet: no data\\n  at all\\n"))
    'cannot read a.parquet: no data at all'
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class InputError(RoadworthyError):
    """What the user gave cannot be used; the message names it and says what to do."""


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
