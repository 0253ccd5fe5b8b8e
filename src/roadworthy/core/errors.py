"""Errors that a user can act on: one sentence each, never a traceback on the command line."""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SHOWN: dict[str, str] = {}
"""How folders are named in messages, by their path, where that is not how the user named them."""


def show_as(path: Path, name: str) -> None:
    """Name a folder in messages as the user did: that of a run at an address is somewhere in a cache."""
    _SHOWN[str(path)] = name


def shown(text: object) -> str:
    """A text in which folders and files are named as the user did: see `show_as`."""
    named = str(text)
    for path, name in tuple(_SHOWN.items()):  # another thread may add one
        named = named.replace(path, name)
    return named


def from_here(text: object) -> str:
    """A text in which paths below the working folder start there, as people write them; see also `show_as`.

    >>> from_here(Path("runs/m").absolute())
    'runs/m'
    """
    text = shown(text)
    try:
        here = str(Path.cwd())
    except OSError:  # it was deleted
        return str(text)
    return str(text) if here == os.sep else str(text).replace(here + os.sep, "")


MOST_SHOWN = 2000
"""Characters of a message at most: a name from a file may have millions."""


def printable(text: str) -> str:
    """A text that a terminal shows as it is: control codes, line breaks and marks of direction are spelled out.

    >>> printable("stop\\n\\x1b[31mverdict: pass")
    'stop\\\\n\\\\x1b[31mverdict: pass'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def one_line(text: str) -> str:
    """A message as one printable line, whatever a file's name brings into it; what is too long loses its middle.

    >>> one_line("no class\\n\\x1b[31mstop"), len(one_line("x" * 10**6))
    ('no class \\\\x1b[31mstop', 2000)
    """
    if len(text) > 2 * MOST_SHOWN:
        text = text[:MOST_SHOWN] + text[-MOST_SHOWN:]
    line = " ".join(text.split())
    if len(line) > MOST_SHOWN:
        line = f"{line[: MOST_SHOWN // 2 - 4]} [...] {line[3 - MOST_SHOWN // 2 :]}"
    return printable(line)


class RoadworthyError(Exception):
    """Base of every error this package raises on purpose. The command line prints it and exits with `exit_code`.

    The message is one line, whatever a library's message or a file's name brings into it. A setting that it asks for is
    written as the Python keyword in backticks (`size='HxW'`, `trust=True`, `out=`); the command line turns that into
    its option when it prints the message, and paths are short: see
    `from_here`.

    >>> str(RoadworthyError("cannot read a.parquet: no data\\n  at all\\n"))
    'cannot read a.parquet: no data at all'
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(one_line(from_here(message)))


class InputError(RoadworthyError):
    """What the user gave cannot be used; the message names it and says what to do."""


class UnreadableFile(InputError, OSError):
    """A file whose bytes the system does not give; `strerror` is its reason.

    >>> str(UnreadableFile("/proc/self/mem", OSError(5, "Input/output error")))
    '/proc/self/mem cannot be read: Input/output error'
    """

    def __init__(self, path: str | Path, error: OSError) -> None:
        super().__init__(f"{path} cannot be read: {error.strerror or error}")
        self.strerror = error.strerror or str(error)


class DamagedFile(InputError):
    """A file that this package wrote is not as it was written: what it holds must be made again."""


class UnknownName(InputError):
    """A name that nothing is registered under, with the nearest known one, or `hint` in its place.

    >>> str(UnknownName("shift", "fogg", ["fog", "rain"]))
    "unknown shift 'fogg': did you mean 'fog'? Known: fog, rain."
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name = kind, name
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = hint or (f": did you mean {near[0]!r}?" if near else ".")
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}.")


class MissingExtra(InputError):
    """An optional dependency is not installed; the message names the extra that brings it.

    >>> str(MissingExtra("torch models", "torch")).partition(": ")[0]
    'torch models need an optional dependency'
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} need an optional dependency: {install_command(extra)}")


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation: by the tool that made it, from where it came.

    A clone is installed again from its folder; a wheel, an archive or a repository from its address; all else by name.
    """
    name = f"roadworthy[{extra}]"
    try:
        installed = distribution("roadworthy")
    except PackageNotFoundError:
        return f"pip install {shlex.quote(name)}"
    tool = _tool((installed.read_text("INSTALLER") or "").strip())
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"{tool} {editable}{shlex.quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return f"{tool} {shlex.quote(f'{name} @ {url}' if url else name)}"


def _tool(installer: str) -> str:
    """The command that installs into the environment that is running."""
    if (Path(sys.prefix) / "pipx_metadata.json").exists():
        return "pipx install --force"
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        return "uv tool install"
    return "uv pip install" if installer == "uv" else "pip install"


class ModelError(RoadworthyError):
    """The model under test raised, or answered something that is no answer (NaN, wrong number of rows)."""


class ClusterLost(RoadworthyError):
    """The cluster that a study ran on is gone; what was done is stored, and the message says how to go on."""

    exit_code = 75


def is_the_machine_s(error: BaseException) -> bool:
    """True where no code is to blame: memory has run out, or the disk is full or read-only.

    >>> is_the_machine_s(OSError(errno.ENOSPC, "No space left")), is_the_machine_s(FileNotFoundError(2, "no data"))
    (True, False)
    """
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in full)


def is_the_store_s(error: BaseException) -> bool:
    """True where writing or reading files fails in whatever way, or memory has run out.

    >>> is_the_store_s(FileNotFoundError(2, "no data")), is_the_store_s(ValueError("no data"))
    (True, False)
    """
    return isinstance(error, MemoryError | OSError)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, shortened and without codes; its type where it has none.

    >>> first_line(KeyError()), first_line(ValueError("no such layer\\ntrace"))
    ('KeyError', 'no such layer')
    """
    if isinstance(error, SystemExit):
        return "it called sys.exit()"
    line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
    line = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", line)
    return line if len(line) <= 300 else line[:297] + "..."


@contextmanager
def foreign_code(
    explain: str | Callable[[BaseException], RoadworthyError],
    passes: Callable[[BaseException], bool] = lambda error: False,
) -> Iterator[None]:
    """Turn whatever the code of others raises into one of our errors; ours, Ctrl-C and what `passes` says go through.

    `explain` makes that error, or names who is to blame: then it is a `ModelError`, with the kind of the error and its
    first line. What is raised need not be an `Exception`: `sys.exit()`, a panic of a Rust extension and some classes
    are none.

    >>> with foreign_code("model v3"):
    ...     [][1]
    Traceback (most recent call last):
    roadworthy.core.errors.ModelError: model v3 raised IndexError: list index out of range
    >>> with foreign_code(lambda error: InputError(f"it raised {type(error).__name__}")):
    ...     raise SystemExit(3)
    Traceback (most recent call last):
    roadworthy.core.errors.InputError: it raised SystemExit
    """
    try:
        yield
    except (RoadworthyError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if passes(error):
            raise
        raise (_blame(explain, error) if isinstance(explain, str) else explain(error)) from error


def _blame(who: str, error: BaseException) -> ModelError:
    kind, line = type(error).__name__, first_line(error)
    what = kind if line == kind else f"{kind}: {line}"
    return ModelError(f"{who} raised {what}" if who else what)
